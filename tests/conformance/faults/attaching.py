"""Faults of attach: what a client gets that joins a Response's stream again."""

from protocol.conformance.transport import Frame

from .base import Line, hears, says

APPEND = ["append"]
ATTACHED = "response.attach.accepted"


@says("L9", "L3", shapes=APPEND)
def an_event_is_lost_at_attach(frame: Frame, line: Line) -> list[Frame] | None:
    """The first event behind the cursor is not sent again."""
    lane = frame.get("stream_id")
    if frame["type"] == ATTACHED:
        line.memory[lane] = True
    elif "sequence_number" in frame and line.memory.pop(lane, False):
        return []
    return None


@hears("L9", "L3", shapes=APPEND)
def the_cursor_is_included(frame: Frame, line: Line) -> None:
    """The event at the cursor is sent again, too."""
    if frame.get("type") == "response.attach" and type(frame.get("starting_after")) is int:
        frame["starting_after"] = max(-1, frame["starting_after"] - 1)


@hears("L9", "L3", shapes=APPEND)
def the_cursor_is_ignored(frame: Frame, line: Line) -> None:
    """All events are sent again, whatever the cursor."""
    if frame.get("type") == "response.attach" and type(frame.get("starting_after")) is int:
        frame["starting_after"] = -1


@says("L9", "L4", shapes=APPEND)
def a_replay_differs(frame: Frame, line: Line) -> None:
    """Deltas that are sent again are in capital letters."""
    if "delta" in frame and not line.first_of_all(frame["item_id"], frame["sequence_number"]):
        frame["delta"] = frame["delta"].upper()


@says("L9", "L12", shapes=APPEND)
def nothing_is_sent_again(frame: Frame, line: Line) -> list[Frame] | None:
    """Attach gives what is new only."""
    lane = frame.get("stream_id")
    if frame["type"] == ATTACHED:
        line.memory[lane] = frame["last_sequence_number"]
    return [] if frame.get("sequence_number", 10**9) <= line.memory.get(lane, -2) else None


@says("L9", shapes=APPEND)
def the_epoch_stands_still(frame: Frame, line: Line) -> None:
    """epoch is 1 for each client that attaches."""
    if frame["type"] == ATTACHED:
        frame["epoch"] = 1


@says("L9", shapes=APPEND)
def the_cursor_is_not_given_back(frame: Frame, line: Line) -> None:
    """response.attach.accepted has no starting_after."""
    if frame["type"] == ATTACHED:
        del frame["starting_after"]


@says("L9", "L12", shapes=APPEND)
def a_client_that_was_replaced_hears_nothing(frame: Frame, line: Line) -> list[Frame] | None:
    """attached_elsewhere is not told."""
    return [] if frame.get("code") == "attached_elsewhere" else None


@hears("L9", shapes=APPEND)
def a_cursor_beyond_the_end_is_corrected(frame: Frame, line: Line) -> None:
    """An attach at an impossible cursor begins from the beginning."""
    if frame.get("type") == "response.attach" and frame.get("starting_after") in (-2, 10_000_000):
        frame["starting_after"] = -1


@says("L13", shapes=APPEND)
def a_replay_has_no_lane(frame: Frame, line: Line) -> None:
    """What is sent again lacks the stream_id of the attach."""
    lane = frame.get("stream_id")
    if frame["type"] == ATTACHED:
        line.memory[lane] = frame["last_sequence_number"]
    if lane and frame.get("sequence_number", 10**9) <= line.memory.get(lane, -2):
        del frame["stream_id"]


@says("L13", "L9", shapes=APPEND)
def attached_is_told_last(frame: Frame, line: Line) -> list[Frame] | None:
    """response.attach.accepted comes after the first event that is sent again."""
    lane = frame.get("stream_id")
    if frame["type"] == ATTACHED and frame["last_sequence_number"] > frame["starting_after"]:
        line.memory[lane] = frame
        return []
    held = line.memory.pop(lane, None) if "sequence_number" in frame else None
    return [frame, held] if held else None


@says("L9", "L12", shapes=APPEND)
def the_end_is_not_sent_again(frame: Frame, line: Line) -> list[Frame] | None:
    """Who attaches to a Response that has ended gets all but the terminal event."""
    lane = frame.get("stream_id")
    if frame["type"] == ATTACHED:
        line.memory[lane] = frame["last_sequence_number"]
    ended = frame["type"] in ("response.completed", "response.incomplete", "response.failed")
    return [] if ended and frame["sequence_number"] <= line.memory.get(lane, -2) else None
