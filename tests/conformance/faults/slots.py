"""Faults of appends: results, acknowledgements, messages."""

from typing import Any

from protocol.conformance.transport import Frame
from protocol.items import OUTPUT_TYPE_OF

from .base import Line, hears, says

ACCEPTED = "response.append.accepted"
OUTPUTS = frozenset(OUTPUT_TYPE_OF.values())
APPEND = ["append"]


@says("L5", "L14", shapes=APPEND, probes=["the same output after a lost acknowledgement"])
def a_duplicate_is_not_called_one(frame: Frame, line: Line) -> None:
    """duplicate is false, whatever was sent again."""
    if frame["type"] == ACCEPTED:
        frame["append"]["duplicate"] = False


@says("L5", shapes=APPEND)
def everything_is_called_a_duplicate(frame: Frame, line: Line) -> None:
    """duplicate is true for the first result of a call, too."""
    if frame["type"] == ACCEPTED:
        frame["append"]["duplicate"] = True


@says("L5", shapes=APPEND)
def a_call_is_pending_for_ever(frame: Frame, line: Line) -> None:
    """pending still has the calls that the append has answered."""
    if frame["type"] == ACCEPTED:
        frame["pending"] = [*frame["append"]["call_ids"], *frame["pending"]]


@says("L5", shapes=APPEND)
def nothing_is_ever_pending(frame: Frame, line: Line) -> None:
    """pending is empty, however many calls are open."""
    if frame["type"] == ACCEPTED:
        frame["pending"] = []


@says("L5", shapes=APPEND)
def an_acknowledgement_names_no_call(frame: Frame, line: Line) -> None:
    """call_ids is empty."""
    if frame["type"] == ACCEPTED:
        frame["append"]["call_ids"] = []


@says("L4", "L5", "L12", shapes=APPEND, renumber=True)
def an_acknowledgement_is_lost(frame: Frame, line: Line) -> list[Frame] | None:
    """Results are taken without response.append.accepted."""
    return [] if frame["type"] == ACCEPTED else None


@says("L5", shapes=APPEND, renumber=True)
def an_acknowledgement_comes_twice(frame: Frame, line: Line) -> list[Frame] | None:
    """response.append.accepted is sent twice, with two numbers."""
    return [frame, frame] if frame["type"] == ACCEPTED else None


@says("L4", "L5", shapes=APPEND, renumber=True)
def an_acknowledgement_comes_late(frame: Frame, line: Line) -> list[Frame] | None:
    """response.append.accepted comes after the next item has begun."""
    lane = frame.get("stream_id")
    if frame["type"] == ACCEPTED and "sequence_number" in frame:
        line.memory.setdefault(lane, []).append(frame)
        return []
    if frame["type"] == "response.output_item.added":
        return [frame, *line.memory.pop(lane, [])]
    return None


@hears("L5", shapes=APPEND, probes=["an orphan output"])
def an_orphan_is_accepted(frame: Frame, line: Line) -> None:
    """Results of calls that nobody made are passed over in silence."""
    if frame.get("type") == "response.append" and isinstance(frame.get("input"), list):
        known = [item for item in _items(frame) if item.get("call_id") != "call_nobody_made"]
        frame["input"] = known or [{"role": "user", "content": "nothing"}]


@hears("L5", shapes=APPEND)
def the_first_of_two_results_counts(frame: Frame, line: Line) -> None:
    """Two different results of a call in one frame: the second is passed over."""
    seen: set[Any] = set()
    for item in _items(frame):
        if item.get("type") in OUTPUTS and item.get("call_id") in seen:
            frame["input"] = [one for one in frame["input"] if one is not item]
        seen.add(item.get("call_id"))


@hears("L14", shapes=APPEND)
def parts_become_a_string(frame: Frame, line: Line) -> None:
    """A result that is a list of parts is kept as one string."""
    for item in _items(frame):
        if isinstance(item.get("output"), list):
            item["output"] = "".join(part.get("text", "") for part in item["output"])


@hears("L14", "L7", shapes=APPEND)
def results_are_made_ascii(frame: Frame, line: Line) -> None:
    """Characters beyond ASCII are dropped from results."""
    for item in _items(frame):
        if isinstance(item.get("output"), str):
            item["output"] = item["output"].encode("ascii", "ignore").decode()


@hears("L5", shapes=APPEND)
def keys_are_ignored(frame: Frame, line: Line) -> None:
    """A message that is appended again with its idempotency_key counts twice."""
    frame.pop("idempotency_key", None)


@hears("L5", "L7", "L12", shapes=APPEND)
def echoes_are_not_compared(frame: Frame, line: Line) -> None:
    """Whatever is no result and no user message is passed over in silence."""
    items = [one for one in _items(frame) if one.get("type") in OUTPUTS or one.get("role") == "user"]
    if items:
        frame["input"] = items


@hears("L5", "L14", shapes=APPEND)
def anybody_speaks_as_the_user(frame: Frame, line: Line) -> None:
    """A message of the assistant is appended as the user's."""
    for item in _items(frame):
        if item.get("role") == "assistant":
            item["role"] = "user"


@hears("L12", shapes=APPEND)
def an_empty_append_is_ignored(frame: Frame, line: Line) -> list[Frame] | None:
    """An append without items gets no answer."""
    return [] if frame.get("type") == "response.append" and frame.get("input") == [] else None


@says("L5", "L12", shapes=APPEND)
def an_unknown_call_is_a_conflict(frame: Frame, line: Line) -> None:
    """tool_output_conflict for a call that nobody made."""
    if frame.get("code") == "tool_call_not_found":
        frame["code"] = frame["error"]["code"] = "tool_output_conflict"


@says("L4", shapes=APPEND)
def a_park_asks_for_nothing(frame: Frame, line: Line) -> None:
    """required_input is empty."""
    if frame["type"] == "response.done":
        frame["required_input"] = []


@says("L4", shapes=APPEND)
def a_park_asks_for_one_call(frame: Frame, line: Line) -> None:
    """required_input has the first open call only."""
    if frame["type"] == "response.done":
        frame["required_input"] = frame["required_input"][:1]


@says("L4", shapes=APPEND)
def a_park_is_completed(frame: Frame, line: Line) -> None:
    """The Response in response.done has the status completed."""
    if frame["type"] == "response.done":
        frame["response"]["status"] = "completed"


@says("L12", "L4", shapes=APPEND, renumber=True)
def a_park_is_not_told(frame: Frame, line: Line) -> list[Frame] | None:
    """response.done is left out."""
    return [] if frame["type"] == "response.done" else None


@says("L4", shapes=APPEND, renumber=True)
def a_park_is_told_twice(frame: Frame, line: Line) -> list[Frame] | None:
    """response.done is sent twice."""
    return [frame, frame] if frame["type"] == "response.done" else None


def _items(frame: Frame) -> list[Any]:
    items = frame.get("input")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
