"""What a server offers. What it does not is reported as *not offered*, not as broken."""

from collections.abc import Collection
from typing import Final

from attrs import asdict, evolve, field, frozen


@frozen(kw_only=True)
class Capabilities:
    """By name, whether it is offered."""

    append: bool = field(default=True, metadata={"is": "response.append on a WebSocket: a rollout is one Response"})
    create: bool = field(default=True, metadata={"is": "response.create on a WebSocket, with previous_response_id"})
    http: bool = field(default=True, metadata={"is": "POST /v1/responses"})
    stream: bool = field(default=True, metadata={"is": "server-sent events over HTTP"})
    lanes: bool = field(default=True, metadata={"is": "stream_id: several Responses at once on one socket"})
    chain: bool = field(default=True, metadata={"is": "previous_response_id"})
    store: bool = field(default=True, metadata={"is": "GET and DELETE of a stored Response"})
    input_items: bool = field(default=True, metadata={"is": "GET …/input_items of a stored Response"})
    warm_up: bool = field(default=True, metadata={"is": "generate: false"})
    steer: bool = field(default=True, metadata={"is": "response.steer"})
    cancel: bool = field(default=True, metadata={"is": "response.cancel on a WebSocket"})
    attach: bool = field(default=True, metadata={"is": "joining a live Response's events from a cursor"})
    background: bool = field(default=True, metadata={"is": "background: true"})
    custom: bool = field(default=True, metadata={"is": "custom tools: custom_tool_call"})
    conversations: bool = field(default=True, metadata={"is": "/v1/conversations"})

    def without(self, names: Collection[str]) -> "Capabilities":
        """The same, of which ``names`` are not offered. Raises ``ValueError`` for a name that there is not."""
        unknown = sorted(set(names) - set(asdict(self)))
        if unknown:
            raise ValueError(f"no such capability: {', '.join(unknown)}; there are {', '.join(asdict(self))}")
        return evolve(self, **dict.fromkeys(names, False))


ALL: Final = Capabilities()
