"""Faults of the terminal event, and of the Response that it shows."""

from protocol.conformance.transport import Frame
from protocol.lifecycle import TERMINAL_EVENTS

from .base import Line, says

ENDS = frozenset(TERMINAL_EVENTS.values())


@says("L2", "L12")
def no_terminal_event(frame: Frame, line: Line) -> list[Frame] | None:
    """A Response just stops."""
    return [] if frame["type"] in ENDS else None


@says("L2")
def two_terminal_events(frame: Frame, line: Line) -> list[Frame] | None:
    """response.completed is followed by another one, with the next number."""
    return [frame, {**frame, "sequence_number": frame["sequence_number"] + 1}] if frame["type"] in ENDS else None


@says("L2")
def an_event_after_the_end(frame: Frame, line: Line) -> list[Frame] | None:
    """response.completed is followed by a sign of life."""
    if frame["type"] not in ENDS:
        return None
    late = {**frame, "type": "response.in_progress", "sequence_number": frame["sequence_number"] + 1}
    return [frame, late]


@says("L4", "L2", renumber=True)
def the_end_overtakes_the_last_item(frame: Frame, line: Line) -> list[Frame] | None:
    """The terminal event is sent before the end of the last item."""
    lane = frame.get("stream_id")
    held = line.memory.pop(lane, None)
    if frame["type"] == "response.output_item.done":
        line.memory[lane] = frame
        return []
    if held is None:
        return None
    return [frame, held] if frame["type"] in ENDS else [held, frame]


@says("L2", "L9", "L12")
def the_end_is_late(frame: Frame, line: Line) -> None:
    """The terminal event comes an hour after the last item."""
    if frame["type"] in ENDS:
        line.delay = 3600.0


@says("L4", "L2")
def completed_while_in_progress(frame: Frame, line: Line) -> None:
    """The Response in response.completed has the status in_progress."""
    if frame["type"] == "response.completed":
        frame["response"]["status"] = "in_progress"


@says("L4", "L2", "L7", "L8")
def a_failure_is_called_completed(frame: Frame, line: Line) -> None:
    """What ends response.failed is told as response.completed, with an error in it."""
    if frame["type"] == "response.failed":
        frame["type"], frame["response"]["status"] = "response.completed", "completed"


@says("L4")
def failed_without_an_error(frame: Frame, line: Line) -> None:
    """response.failed has no error in it."""
    if frame["type"] == "response.failed":
        frame["response"]["error"] = None


@says("L4")
def incomplete_without_a_reason(frame: Frame, line: Line) -> None:
    """incomplete_details is null, whatever happened."""
    if frame["type"] == "response.incomplete":
        frame["response"]["incomplete_details"] = None


@says("L4")
def the_final_output_is_empty(frame: Frame, line: Line) -> None:
    """output in the terminal event is an empty list."""
    if frame["type"] in ENDS:
        frame["response"]["output"] = []


@says("L4")
def the_final_output_lacks_an_item(frame: Frame, line: Line) -> None:
    """output in the terminal event lacks what came before the last item."""
    if frame["type"] in ENDS:
        frame["response"]["output"] = frame["response"]["output"][-1:]


@says("L4")
def the_final_text_is_trimmed(frame: Frame, line: Line) -> None:
    """Texts in the final output have no punctuation at their end."""
    if frame["type"] in ENDS:
        for item in frame["response"]["output"]:
            for part in item.get("content", ()):
                part["text"] = part["text"].rstrip(".")


@says("L4")
def the_id_changes_at_the_end(frame: Frame, line: Line) -> None:
    """The terminal event has another response.id than response.created."""
    if frame["type"] in ENDS:
        frame["response"]["id"] += "0"


@says("L15", "L4")
def usage_is_left_out(frame: Frame, line: Line) -> None:
    """usage is null in the terminal event, too."""
    if frame["type"] in ENDS:
        frame["response"]["usage"] = None


@says("L15", "L4")
def usage_is_zero(frame: Frame, line: Line) -> None:
    """All numbers of usage are 0."""
    if frame["type"] in ENDS and frame["response"]["usage"]:
        usage = frame["response"]["usage"]
        usage |= {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        usage["input_tokens_details"]["cached_tokens"] = usage["output_tokens_details"]["reasoning_tokens"] = 0


@says("L4", "L15")
def usage_does_not_add_up(frame: Frame, line: Line) -> None:
    """total_tokens is that of the output alone."""
    usage = frame.get("response", {}).get("usage")
    if usage:
        usage["total_tokens"] = usage["output_tokens"]


@says("L4", "L15", shapes=["append"])
def usage_is_of_the_last_turn(frame: Frame, line: Line) -> None:
    """After a park usage counts only what came after it."""
    usage = frame.get("response", {}).get("usage")
    if usage and frame["type"] == "response.done":
        line.memory.setdefault(frame["response"]["id"], usage["output_tokens"])
    elif usage:
        usage["output_tokens"] -= line.memory.get(frame["response"]["id"], 0)
        usage["total_tokens"] = usage["input_tokens"] + usage["output_tokens"]
