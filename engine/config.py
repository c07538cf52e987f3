"""One frozen object with every limit and timeout of a server, each with its reason. Limits of the wire: ``protocol.limits``.

Times are seconds, sizes are bytes, unless a name says otherwise.
"""

from typing import Final, Literal

from attrs import field, frozen

REUSE: Final = frozenset({"tokens", "validation", "classification", "routing", "overlap"})
"""The kinds of reuse: rendered tokens, validation and classification of what is new only, the resolved model, and
post-inference work that overlaps what the client does next."""


@frozen(kw_only=True)
class Config:
    """How one server behaves. All of it can be set; the defaults suit a server that strangers reach."""

    # What the server does when a request does not say.
    continuation: Literal["append", "create"] = "append"
    hold: Literal["rollout", "conversation"] = "rollout"

    reuse: frozenset[str] = REUSE
    """What a continuation takes over from the Response before it; research turns one off to see what it was worth."""

    # The door.
    keys: tuple[str, ...] = field(default=(), repr=False)
    """Bearer keys, each a tenant. None at all means that everybody is one tenant; only for loopback."""
    websocket: bool = True
    """Off, an upgrade is answered with 426, which makes clients fall back to HTTP."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may use the HTTP side; ``*`` for all."""
    connections: int = 20_000
    """A connection idles at some 20 KiB: this many fit well into 1 GiB."""
    handshake_seconds: float = 10.0
    """A real client sends its head at once; a slower one holds a place for nothing."""
    head_bytes: int = 64 * 1024
    """A request's head. Codex sends 2 KiB; cookies and tracing headers can add tens."""

    # A socket.
    idle_seconds: float = 3600.0
    """A socket without a Response and without a frame for so long is closed: an agent may wait an hour for its user."""
    connection_seconds: float = 3600.0
    """A socket's age limit, as the Responses API has it. One that holds a live Response of the append shape may grow older."""
    send_seconds: float = 30.0
    """A write that the peer's TCP does not take for so long: the peer is gone or stuck. The socket is closed by force."""
    close_seconds: float = 2.0
    """How long a polite close waits for its echo."""
    ping_seconds: float = 30.0
    """Pings keep middleboxes from dropping a silent socket; most drop after 60 s or more."""
    heartbeat_seconds: float = 30.0
    """``response.in_progress`` again after so much silence: Codex gives up after 300 s without a text frame."""
    outbox_bytes: int = 256 * 1024
    """What may wait for one socket before its Responses stall (law L11): some 1,000 events, and less than TCP's buffers."""
    lane_queue: int = 64
    """Creates that may wait in one lane. A client that queues more does not read the answers."""

    # A Response.
    responses: int = 100_000
    """Live Responses. A parked one is some 15 KiB beside its history."""
    park_seconds: float = 3600.0
    """How long a park waits for the client's results. Tools that wait for people take long; nobody takes for ever."""
    detach_seconds: float = 300.0
    """How long a Response outlives its socket: a laptop's lid, a deploy, a tunnel."""
    response_seconds: float = 24 * 3600.0
    """The whole Response, from create to its end."""
    hosted_seconds: float = 60.0
    """One call of a hosted tool; after that the call has failed, and the model reads so."""
    output_tokens: int = 1_000_000
    """What one Response may sample when its request sets no ``max_output_tokens``: a stop for a model that does not."""
    context_bytes: int = 256 * 1024 * 1024
    """What one Response may hold of text, its own and appended. With it memory per lane has a cap (law L11)."""
    finished: int = 256
    """Ended Responses whose event stream can still be attached to."""
    finished_seconds: float = 600.0
    """And for how long."""
    finished_tokens: int = 4_194_304
    """Token ids of ended Responses that are kept for those that continue them, together: 16 MiB. What is continued from further
    back is rendered again. What a connection remembers is not counted."""
    idempotency_keys: int = 1_024
    """Keys remembered per Response (of appends) and per server (of creates): the newest."""

    # The end.
    grace_seconds: float = 10.0
    """At shutdown, how long Responses that sample may go on until they park or end."""
    seal_seconds: float = 10.0
    """How long post-inference work may take when a Response ends, also when it was cancelled."""

    thread_bytes: int = 128 * 1024
    """Text longer than this is rendered in a thread: tokenizing it takes longer than a tick should."""
