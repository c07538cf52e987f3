"""Faults of texts: deltas, wholes, parts."""

import json
from contextlib import suppress
from typing import Any

from protocol.conformance.transport import Frame

from .base import Line, says

DELTA, TEXT_DONE = "response.output_text.delta", "response.output_text.done"
ARGUMENTS, ARGUMENTS_DONE = "response.function_call_arguments.delta", "response.function_call_arguments.done"


@says("L4", renumber=True)
def a_delta_is_lost(frame: Frame, line: Line) -> list[Frame] | None:
    """The first delta of each text is dropped, and numbers close up."""
    if frame["type"] == "response.content_part.added":
        line.memory[frame.get("stream_id")] = True
    if frame["type"] == DELTA and line.memory.pop(frame.get("stream_id"), False):
        return []
    return None


@says("L4")
def a_delta_is_cut(frame: Frame, line: Line) -> None:
    """Each delta lacks its first character."""
    if frame["type"] == DELTA:
        frame["delta"] = frame["delta"][1:]


@says("L4")
def deltas_are_the_text_so_far(frame: Frame, line: Line) -> None:
    """A delta has all that was said since the item began."""
    if frame["type"] == DELTA:
        frame["delta"] = line.memory[frame["item_id"]] = line.memory.get(frame["item_id"], "") + frame["delta"]


@says("L4")
def blanks_are_trimmed(frame: Frame, line: Line) -> None:
    """Deltas lose the blanks at their ends."""
    if frame["type"] == DELTA:
        frame["delta"] = frame["delta"].strip()


@says("L4")
def a_delta_has_no_text(frame: Frame, line: Line) -> None:
    """The text of a delta stands in text, as in the done event."""
    if frame["type"] == DELTA:
        frame["text"] = frame.pop("delta")


@says("L4")
def a_character_is_split(frame: Frame, line: Line) -> None:
    """What is several tokens comes as U+FFFD, everywhere."""
    frame |= _changed(frame, lambda text: text.replace("é", "\ufffd").replace("🎹", "\ufffd\ufffd"))


@says("L4")
def the_whole_text_is_another(frame: Frame, line: Line) -> None:
    """response.output_text.done ends with a line break."""
    if frame["type"] == TEXT_DONE:
        frame["text"] += "\n"


@says("L4")
def the_part_is_another(frame: Frame, line: Line) -> None:
    """response.content_part.done has an empty part."""
    if frame["type"] == "response.content_part.done":
        frame["part"]["text"] = ""


@says("L4")
def the_item_is_another(frame: Frame, line: Line) -> None:
    """A message is done with an empty content."""
    if frame["type"] == "response.output_item.done" and frame["item"]["type"] == "message":
        frame["item"]["content"] = []


@says("L4")
def parts_begin_at_one(frame: Frame, line: Line) -> None:
    """The first part of a message has content_index 1."""
    if "content_index" in frame:
        frame["content_index"] += 1


@says("L4", renumber=True)
def a_part_is_not_added(frame: Frame, line: Line) -> list[Frame] | None:
    """Deltas come without response.content_part.added."""
    return [] if frame["type"] == "response.content_part.added" else None


@says("L4", renumber=True)
def a_text_has_no_end(frame: Frame, line: Line) -> list[Frame] | None:
    """response.output_text.done is left out."""
    return [] if frame["type"] == TEXT_DONE else None


@says("L4")
def arguments_are_written_anew(frame: Frame, line: Line) -> None:
    """A call that is done has its arguments as this server writes JSON, not as they were sampled."""
    if frame["type"] == "response.output_item.done" and frame["item"]["type"] == "function_call":
        with suppress(json.JSONDecodeError):
            frame["item"]["arguments"] = json.dumps(json.loads(frame["item"]["arguments"]), separators=(",", ":"))


@says("L4")
def arguments_are_an_object(frame: Frame, line: Line) -> None:
    """A call that is done has its arguments as an object, not as text."""
    if frame["type"] == "response.output_item.done" and frame["item"]["type"] == "function_call":
        frame["item"]["arguments"] = {"of": frame["item"]["arguments"]}


@says("L4", renumber=True)
def arguments_come_without_deltas(frame: Frame, line: Line) -> list[Frame] | None:
    """Of a call's arguments only the whole is told."""
    return [] if frame["type"] == ARGUMENTS else None


@says("L4")
def arguments_are_done_elsewhere(frame: Frame, line: Line) -> None:
    """The arguments' end has the output_index of the next item."""
    if frame["type"] == ARGUMENTS_DONE:
        frame["output_index"] += 1


@says("L4")
def reasoning_is_told_as_text(frame: Frame, line: Line) -> None:
    """A reasoning summary comes in response.output_text.delta."""
    if frame["type"] == "response.reasoning_summary_text.delta":
        frame["type"], frame["content_index"] = DELTA, frame.pop("summary_index")


@says("L7", "L8")
def the_model_says_something_else(frame: Frame, line: Line) -> None:
    """Texts are put into small letters, the same everywhere."""
    frame |= _changed(frame, lambda text: text.replace("D", "d").replace("H", "h"))


def _changed(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_changed(one, change) for one in value]
    if isinstance(value, dict):
        return {key: _changed(one, change) for key, one in value.items()}
    return value
