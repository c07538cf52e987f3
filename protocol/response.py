"""The Response resource, and its usage. All 31 keys are in every snapshot; those without a value are null."""

from typing import Any, ClassVar, Literal

from attrs import field, frozen

from .fields import Json, optional
from .items import Item

ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


@frozen
class InputTokensDetails:
    """``cached_tokens``: how many of the input tokens were reused and not rendered again; ``cache_write_tokens``: how many
    were paid for being cached, which is none here."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


@frozen
class OutputTokensDetails:
    """``reasoning_tokens``: how many of the output tokens were reasoning."""

    reasoning_tokens: int = 0


@frozen
class Usage:
    """Tokens so far. In the append shape each token that came from outside counts once in ``input_tokens``."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    input_tokens_details: InputTokensDetails = InputTokensDetails()
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()


def usage_of(input_tokens: int, output_tokens: int, *, cached: int = 0, reasoning: int = 0) -> Usage:
    """A ``Usage`` whose total is right."""
    return Usage(
        input_tokens,
        output_tokens,
        input_tokens + output_tokens,
        InputTokensDetails(cached),
        OutputTokensDetails(reasoning),
    )


@frozen
class ResponseError:
    """Why a Response failed."""

    code: str
    message: str


@frozen
class IncompleteDetails:
    """Why a Response is incomplete: ``max_output_tokens``, ``content_filter``, and of the append
    shape ``tool_output_timeout``, ``response_timeout``, ``detached_timeout``, ``server_shutdown``."""

    reason: str


@frozen(kw_only=True)
class Response:
    """The resource. ``created_at`` and ``completed_at`` are whole seconds of Unix time."""

    object: ClassVar[str] = "response"
    id: str
    created_at: int
    model: str
    status: ResponseStatus
    output: tuple[Item, ...] = ()
    usage: Usage | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    completed_at: int | None = None
    previous_response_id: str | None = None
    instructions: str | None = None
    tools: tuple[Json, ...] = ()
    tool_choice: str | Json = "auto"
    parallel_tool_calls: bool = True
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: Json = field(factory=dict)
    reasoning: Json | None = None
    text: Json = field(factory=lambda: {"format": {"type": "text"}})
    temperature: float = 1.0
    top_p: float = 1.0
    top_logprobs: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    truncation: str = "disabled"
    store: bool = True
    background: bool = False
    service_tier: str = "default"
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    conversation: Json | None = optional()
    """The ``id`` of the conversation that it is a part of: only of a Response that was created with one."""
    engine: dict[str, Any] | None = optional()
    """What the engine did for this Response (parks, stage runs, tokens rendered, seconds): in the terminal event only."""
