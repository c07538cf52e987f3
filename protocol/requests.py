"""What a client may say: one frozen class a message. ``codec.decode_client`` makes them from JSON."""

from typing import Any, ClassVar, Final, Literal

from attrs import frozen

from .fields import Json, optional, unknown_fields
from .items import Item

Continuation = Literal["append", "create"]
Hold = Literal["rollout", "conversation"]


@frozen(kw_only=True)
class Tool:
    """A tool definition: ``function`` and ``custom`` tools have names; others are known by their type alone."""

    type: str
    name: str | None = optional()
    description: str | None = optional()
    parameters: Json | None = optional()
    strict: bool | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class CreateRequest:
    """The create body. Over a WebSocket it stands flat beside ``type``.

    ``continuation``, ``hold``, ``generate``, ``stream_id`` and ``idempotency_key`` are not part of the HTTP body of the
    Responses API. ``hold`` says what a Response does when the model has answered: end (``rollout``), or park and ask the
    user (``conversation``).
    """

    type: ClassVar[str] = "response.create"
    model: str
    input: str | tuple[Item, ...] = ()
    instructions: str | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: str | Json | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    truncation: Literal["auto", "disabled"] | None = None
    reasoning: Json | None = None
    text: Json | None = None
    metadata: Json | None = None
    include: tuple[str, ...] | None = None
    store: bool | None = None
    background: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    stream: bool | None = None
    stream_id: str | None = None
    generate: bool | None = None
    continuation: Continuation | None = None
    hold: Hold | None = None
    idempotency_key: str | None = None
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class AppendRequest:
    """Results for open slots, and user messages. All of it applies, or nothing (law L6)."""

    type: ClassVar[str] = "response.append"
    input: tuple[Item, ...]
    response_id: str | None = None
    stream_id: str | None = None
    idempotency_key: str | None = None
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class CancelRequest:
    """Ends a live Response where it is."""

    type: ClassVar[str] = "response.cancel"
    response_id: str | None = None
    stream_id: str | None = None
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class FinishRequest:
    """Ends a Response that waits for the user, as completed; one that samples ends when the model has answered."""

    type: ClassVar[str] = "response.finish"
    response_id: str | None = None
    stream_id: str | None = None
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class AttachRequest:
    """(Re)joins a Response's event stream behind ``starting_after``; -1, the default, is from the beginning."""

    type: ClassVar[str] = "response.attach"
    response_id: str
    starting_after: int = -1
    stream_id: str | None = None
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class SteerRequest:
    """Tells a Response that samples something more: it ends at its next item, and another one goes on with it."""

    type: ClassVar[str] = "response.steer"
    previous_response_id: str
    input: str | tuple[Item, ...]
    stream_id: str | None = None
    extra: Json = unknown_fields()


ClientMessage = CreateRequest | AppendRequest | CancelRequest | FinishRequest | AttachRequest | SteerRequest
MESSAGES: Final[dict[str, type[ClientMessage]]] = {
    cls.type: cls for cls in (CreateRequest, AppendRequest, CancelRequest, FinishRequest, AttachRequest, SteerRequest)
}
