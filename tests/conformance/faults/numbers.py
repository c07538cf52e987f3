"""Faults of the sequence numbers."""

from protocol.conformance.transport import Frame

from .base import Line, says

DELTA = "response.output_text.delta"


@says("L3")
def numbers_begin_at_one(frame: Frame, line: Line) -> None:
    """The first event of each Response has the number 1."""
    if "sequence_number" in frame:
        frame["sequence_number"] += 1


@says("L3")
def a_number_is_skipped(frame: Frame, line: Line) -> None:
    """From a Response's first item on numbers are too high by one."""
    lane = frame.get("stream_id")
    if frame["type"] == "response.created":
        line.memory[lane] = 0
    elif frame["type"] == "response.output_item.added":
        line.memory[lane] = 1
    if "sequence_number" in frame:
        frame["sequence_number"] += line.memory.get(lane, 0)


@says("L3", "L9")
def a_number_comes_twice(frame: Frame, line: Line) -> None:
    """An item's end has the number of the event before it, and so on from there."""
    lane = frame.get("stream_id")
    if frame["type"] == "response.created":
        line.memory[lane] = 0
    elif frame["type"] == "response.output_item.done":
        line.memory[lane] = line.memory.get(lane, 0) + 1
    if "sequence_number" in frame:
        frame["sequence_number"] -= line.memory.get(lane, 0)


@says("L3", shapes=["append"])
def numbers_begin_again_after_a_park(frame: Frame, line: Line) -> None:
    """After response.done the next event has the number 0."""
    lane = frame.get("stream_id")
    number = frame.get("sequence_number")
    if number is not None:
        frame["sequence_number"] -= line.memory.get(lane, 0)
    if frame["type"] == "response.done":
        line.memory[lane] = number + 1
    elif frame["type"] in ("response.created", "response.completed"):
        line.memory[lane] = 0


@says("L3", "L9")
def numbers_count_per_connection(frame: Frame, line: Line) -> None:
    """A second Response on a connection goes on where the first one stopped."""
    if "sequence_number" in frame:
        frame["sequence_number"] = line.memory["next"] = line.memory.get("next", -1) + 1


@says("L3")
def numbers_are_strings(frame: Frame, line: Line) -> None:
    """sequence_number is "0", "1" and so on."""
    if "sequence_number" in frame:
        frame["sequence_number"] = str(frame["sequence_number"])


@says("L3")
def deltas_have_no_number(frame: Frame, line: Line) -> None:
    """Deltas come without a sequence_number."""
    if frame["type"].endswith(".delta"):
        del frame["sequence_number"]


@says("L3")
def an_event_is_lost(frame: Frame, line: Line) -> list[Frame] | None:
    """The first delta of each text is dropped, and its number with it."""
    if frame["type"] == "response.content_part.added":
        line.memory[frame.get("stream_id")] = True
    if frame["type"] == DELTA and line.memory.pop(frame.get("stream_id"), False):
        return []
    return None


@says("L3", "L9")
def an_event_comes_twice(frame: Frame, line: Line) -> list[Frame] | None:
    """The end of each item is sent twice, with the same number."""
    return [frame, frame] if frame["type"] == "response.output_item.done" else None


@says("L3")
def two_events_change_places(frame: Frame, line: Line) -> list[Frame] | None:
    """A text's end overtakes its last delta."""
    lane = frame.get("stream_id")
    held = line.memory.pop(lane, None)
    if frame["type"] == DELTA:
        line.memory[lane] = frame
        return [held] if held else []
    if held:
        return [frame, held] if frame["type"] == "response.output_text.done" else [held, frame]
    return None
