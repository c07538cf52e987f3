"""What a server says: one frozen class an event. The names and fields are those of the Responses API.

``sequence_number`` is not in the classes: it is given when the event enters its Response's log (law L3), and the codec
writes it into the frame. ``ErrorEvent`` is in ``errors``, since it has no number.
"""

from typing import Any, ClassVar, Literal

from attrs import frozen

from .fields import Json, optional
from .items import Item, Part, SummaryText
from .response import Response, Usage

# ---- the Response


@frozen
class Created:
    type: ClassVar[str] = "response.created"
    response: Response


@frozen
class InProgress:
    type: ClassVar[str] = "response.in_progress"
    response: Response


@frozen
class Completed:
    type: ClassVar[str] = "response.completed"
    response: Response


@frozen
class Incomplete:
    type: ClassVar[str] = "response.incomplete"
    response: Response


@frozen
class Failed:
    type: ClassVar[str] = "response.failed"
    response: Response


OF_RESPONSE = (Created, InProgress, Completed, Incomplete, Failed)
"""Events that show the whole Response, and nothing else."""


# ---- items and their parts


@frozen
class ItemAdded:
    type: ClassVar[str] = "response.output_item.added"
    output_index: int
    item: Item


@frozen
class ItemDone:
    type: ClassVar[str] = "response.output_item.done"
    output_index: int
    item: Item


@frozen
class PartAdded:
    type: ClassVar[str] = "response.content_part.added"
    item_id: str
    output_index: int
    content_index: int
    part: Part


@frozen
class PartDone:
    type: ClassVar[str] = "response.content_part.done"
    item_id: str
    output_index: int
    content_index: int
    part: Part


@frozen
class TextDone:
    type: ClassVar[str] = "response.output_text.done"
    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: tuple[Json, ...] = ()


@frozen
class SummaryPartAdded:
    type: ClassVar[str] = "response.reasoning_summary_part.added"
    item_id: str
    output_index: int
    summary_index: int
    part: SummaryText


@frozen
class SummaryPartDone:
    type: ClassVar[str] = "response.reasoning_summary_part.done"
    item_id: str
    output_index: int
    summary_index: int
    part: SummaryText


@frozen
class SummaryTextDone:
    type: ClassVar[str] = "response.reasoning_summary_text.done"
    item_id: str
    output_index: int
    summary_index: int
    text: str


@frozen
class ArgumentsDone:
    type: ClassVar[str] = "response.function_call_arguments.done"
    item_id: str
    output_index: int
    name: str
    arguments: str


@frozen
class CustomInputDone:
    type: ClassVar[str] = "response.custom_tool_call_input.done"
    item_id: str
    output_index: int
    input: str


@frozen
class HostedProgress:
    """A hosted tool's progress, ``response.file_search_call.searching`` for example: its type varies."""

    type: str
    item_id: str
    output_index: int


# ---- deltas: the many


DeltaType = Literal[
    "response.output_text.delta",
    "response.reasoning_summary_text.delta",
    "response.function_call_arguments.delta",
    "response.custom_tool_call_input.delta",
]


@frozen
class DeltaRun:
    """What the deltas of one text have in common; each delta adds its piece and its number.

    A run stands for many events. It is kept apart from the other classes since deltas are nearly all of the events that
    are ever sent, and must cost next to nothing.
    """

    type: DeltaType
    item_id: str
    output_index: int
    content_index: int | None = optional()
    summary_index: int | None = optional()


# ---- of the append shape


@frozen
class Stub:
    """What an open slot waits for: an output of ``type`` for ``call_id``; or, with ``role``, a message of the user."""

    type: str
    call_id: str | None = optional()
    name: str | None = optional()
    role: Literal["user"] | None = optional()


@frozen
class ParkedResponse:
    """The Response in a ``response.done``: no output, so that a park costs what is new, not what has been."""

    object: ClassVar[str] = "response"
    id: str
    usage: Usage
    status: Literal["in_progress"] = "in_progress"


@frozen
class Done:
    """The loop has parked, and waits for ``required_input``. Never sent after a terminal event."""

    type: ClassVar[str] = "response.done"
    response: ParkedResponse
    required_input: tuple[Stub, ...]


@frozen
class AppendInfo:
    id: str
    call_ids: tuple[str, ...]
    duplicate: bool


@frozen
class AppendAccepted:
    """The server owns these results; the client need never run their tools again. ``pending``: calls still open."""

    type: ClassVar[str] = "response.append.accepted"
    append: AppendInfo
    pending: tuple[str, ...]


@frozen
class AppendAnswer:
    """What ``response.append.accepted`` says to a client that is not attached: it does not hear the log, so has no number."""

    type: ClassVar[str] = "response.append.accepted"
    response_id: str
    append: AppendInfo
    pending: tuple[str, ...]
    stream_id: str | None = optional()


@frozen
class EndAnswer:
    """To a client that is not attached: its cancel or its finish was taken. It has no number either."""

    type: Literal["response.cancel.accepted", "response.finish.accepted"]
    response_id: str
    stream_id: str | None = optional()


@frozen
class AttachAccepted:
    """The answer to ``response.attach``: not part of the log, so it has no number. The rest of the log follows it.

    ``last_sequence_number`` is the newest event's at that moment (-1 before the first).
    """

    type: ClassVar[str] = "response.attach.accepted"
    response_id: str
    epoch: int
    starting_after: int
    last_sequence_number: int
    stream_id: str | None = optional()


@frozen
class WebsocketTiming:
    """Where a Response's time went: before its terminal event, to sockets whose handshake asked for it. Not part of the log.

    Names, and milliseconds, are those that Codex CLI reads. The time that client tools took is in none of them.
    """

    type: ClassVar[str] = "responsesapi.websocket_timing"
    timing_metrics: Json
    response_id: str
    stream_id: str | None = optional()


# ---- steering, of the create shape


@frozen
class SteerInfo:
    id: str
    previous_response_id: str


@frozen
class SteerAccepted:
    """The input is queued, and not applied yet."""

    type: ClassVar[str] = "response.steer.accepted"
    steer: SteerInfo


@frozen
class SteerPending:
    """The steered Response has ended on calls of the client's: its input waits for the create that answers them."""

    type: ClassVar[str] = "response.steer.pending"
    steer: SteerInfo
    required_input: tuple[Stub, ...]
    reason: Literal["waiting_for_required_input"] = "waiting_for_required_input"


@frozen
class SteerError:
    code: str
    message: str
    type: str = "invalid_request_error"


@frozen
class SteerRejected:
    """What was refused: the input as it was sent, and an id if it had been accepted before."""

    input: Any
    previous_response_id: str
    id: str | None = optional()


@frozen
class SteerFailed:
    """The input was refused, or could not be applied."""

    type: ClassVar[str] = "response.steer.failed"
    steer: SteerRejected
    error: SteerError


Event = (
    Created
    | InProgress
    | Completed
    | Incomplete
    | Failed
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | TextDone
    | SummaryPartAdded
    | SummaryPartDone
    | SummaryTextDone
    | ArgumentsDone
    | CustomInputDone
    | HostedProgress
    | Done
    | AppendAccepted
    | SteerAccepted
    | SteerPending
    | SteerFailed
)
TERMINAL: dict[str, type[Completed] | type[Incomplete] | type[Failed]] = {
    cls.type: cls for cls in (Completed, Incomplete, Failed)
}
