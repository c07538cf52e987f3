"""What probes speak with: one server, in one shape, and the same words for all three.

    async def only_one_of_two_outputs(talk):
        client = await talk.client()
        turn = await client.begin(calls("read", "write"), say("Done."))
        ...

A ``Talk`` gives clients (``clients``); a client's words return a ``Turn`` (``turn``), or fail with all that was said so
far.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol, runtime_checkable

import trio

from ..adapters import Adapter
from ..capabilities import ALL, Capabilities
from ..script import Step
from ..transport import Frame, Shape, Transport
from .clients import BETA, Client, HttpClient, SocketClient
from .notes import Notes, NotOffered
from .turn import Turn

__all__ = ["NotOffered", "Pings", "Talk", "Turn", "call", "calls", "quote", "say", "speak"]

CLOSING_SECONDS: Final = 3.0


@runtime_checkable
class Pings(Protocol):
    """A socket that can send a ping."""

    async def ping(self) -> None:
        """Send one, and wait for its pong; raises ``Closed``."""
        ...


class Talk(Notes):
    """One probe's conversation. ``keys`` are bearer keys of different tenants: the first is everybody's, the second a
    stranger's."""

    def __init__(
        self,
        transport: Transport,
        shape: Shape,
        adapter: Adapter,
        *,
        capabilities: Capabilities = ALL,
        keys: Sequence[str] = (),
        seconds: float | None = None,
    ) -> None:
        super().__init__(transport, shape, adapter, capabilities, seconds)
        self.keys = keys
        self._clients: list[Client] = []

    # ---- who speaks

    async def client(self, *, key: str | None = None) -> Client:
        """Another client, of the shape that is talked about."""
        return await self.posting(key=key) if self.shape == "http" else await self.socket(key=key)

    async def socket(self, *, key: str | None = None) -> SocketClient:
        """A client with a WebSocket of its own."""
        key = key or next(iter(self.keys), None)
        with self.patience("the handshake"):
            socket = await self.transport.connect(key=key, beta=BETA.get(self.shape))
        client = SocketClient(self, f"c{len(self._clients)}", key, socket)
        self._clients.append(client)
        return client

    async def posting(self, *, key: str | None = None) -> HttpClient:
        """A client that sends requests over HTTP."""
        if not self.capabilities.http:
            raise NotOffered("http")
        client = HttpClient(self, f"c{len(self._clients)}", key or next(iter(self.keys), None))
        self._clients.append(client)
        return client

    async def stranger(self) -> Client | None:
        """A client of another tenant, where there are keys."""
        return await self.client(key=self.keys[1]) if len(self.keys) > 1 else None

    async def aclose(self) -> None:
        """Close all sockets; takes no longer than ``CLOSING_SECONDS``, also when it is cancelled."""
        with trio.move_on_after(CLOSING_SECONDS, shield=True):
            for client in self._clients:
                await client.aclose()

    # ---- what it comes to

    def need_quote(self, turn: Turn, text: str, law: str | None = None) -> None:
        """The model was told to quote ``text``, which it can if it was given it."""
        if text in turn.text:
            return
        if self.adapter.obeys:
            raise self.failure(f"the model says {turn.text!r:.200}, and was told to quote {text!r}", law)
        raise NotOffered(f"the model could not be made to quote {text!r}")

    def need_events(self, turn: Turn) -> Sequence[Frame]:
        """The events of ``turn``, which a server without streams can't be asked for."""
        if not turn.events:
            raise NotOffered("stream")
        return turn.events

    def need_completed(self, turn: Turn) -> None:
        """The Response has ended well."""
        why = (turn.response or {}).get("error") or (turn.response or {}).get("incomplete_details")
        self.need(turn.status == "completed", f"the Response is {turn.status or 'waiting'} ({why}), not completed")


def say(text: str) -> Step:
    """The model says ``text``."""
    return {"say": text}


def speak(tokens: int) -> Step:
    """The model says so many tokens."""
    return {"say": {"tokens": tokens}}


def quote(name: str | None = None) -> Step:
    """The model says what the last call, or the last one of ``name``, has returned."""
    return {"say": "It says: {{output}}." if name is None else f"It says: {{{{output_of:{name}}}}}."}


def call(name: str = "read", arguments: Any = "{}", **fields: Any) -> Step:
    """The model calls one tool; arguments that are text are sampled as they are."""
    return {"call": {"name": name, "arguments": arguments, **fields}}


def calls(*names: str) -> Step:
    """The model calls several tools at once."""
    return {"calls": [{"name": name, "arguments": "{}"} for name in names]}
