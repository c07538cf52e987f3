"""Faults of lanes, strangers, errors and cancels."""

from protocol.conformance.strategies import CODES_OF_BAD_FRAMES
from protocol.conformance.transport import Frame

from .base import Line, hears, reads, says

ENDS = ("response.completed", "response.incomplete", "response.failed")
WEBSOCKET = ["append", "create"]


@says("L13", "L9", shapes=WEBSOCKET, probes=["a stream id on every event"])
def events_have_no_lane(frame: Frame, line: Line) -> None:
    """Events lack the stream_id of their create."""
    if "sequence_number" in frame:
        frame.pop("stream_id", None)


@says("L13", "L9", shapes=WEBSOCKET)
def only_the_first_event_has_its_lane(frame: Frame, line: Line) -> None:
    """Only response.created has the stream_id."""
    if frame["type"] != "response.created" and "sequence_number" in frame:
        frame.pop("stream_id", None)


@says("L13", "L9", shapes=WEBSOCKET)
def lanes_are_renamed(frame: Frame, line: Line) -> None:
    """stream_id comes back in capital letters."""
    if "sequence_number" in frame and "stream_id" in frame:
        frame["stream_id"] = frame["stream_id"].upper()


@hears("L13", "L12", shapes=WEBSOCKET, probes=["a stream id on every event"])
def lanes_are_ignored(frame: Frame, line: Line) -> None:
    """All Responses of a connection run on its default lane."""
    if frame.get("type") == "response.create":
        frame.pop("stream_id", None)


@says("L13", shapes=WEBSOCKET)
def others_hear_it_too(frame: Frame, line: Line) -> None:
    """Each text is told to all connections of the server."""
    lines = line.shared.setdefault("lines", [])
    if line not in lines:
        lines.append(line)
    if frame["type"].endswith(".delta"):
        for other in lines:
            if other is not line:
                other.say(frame)


@says("L13", "L12", shapes=WEBSOCKET, probes=["an error after which the connection lives"])
def a_bad_frame_closes_the_connection(frame: Frame, line: Line) -> None:
    """A frame that cannot be read ends the connection."""
    if frame.get("code") in CODES_OF_BAD_FRAMES:
        line.close()


@says("L12", shapes=WEBSOCKET, probes=["a frame that nobody knows", "what is no json", "a bad frame beside a stream"])
def a_bad_frame_is_ignored(frame: Frame, line: Line) -> list[Frame] | None:
    """A frame that cannot be read gets no answer."""
    return [] if frame.get("code") in CODES_OF_BAD_FRAMES else None


@says("L12", "L13", shapes=WEBSOCKET)
def a_bad_frame_is_answered_twice(frame: Frame, line: Line) -> list[Frame] | None:
    """Each error is sent twice."""
    return [frame, frame] if frame["type"] == "error" else None


@says("L2", "L12", shapes=WEBSOCKET)
def a_bad_frame_is_the_servers_fault(frame: Frame, line: Line) -> None:
    """What cannot be read is answered with server_error."""
    if frame.get("code") in CODES_OF_BAD_FRAMES:
        frame["code"] = frame["error"]["code"] = "server_error"
        frame["status"] = 500


@says("L12", shapes=WEBSOCKET)
def errors_have_no_code(frame: Frame, line: Line) -> None:
    """code is null in every error."""
    if frame["type"] == "error":
        frame["code"] = frame["error"]["code"] = None


@says("L12", shapes=WEBSOCKET, probes=["the errors shape"])
def errors_are_flat(frame: Frame, line: Line) -> None:
    """An error frame has no object error."""
    frame.pop("error", None)


@says("L13", "L12", shapes=["append"])
def a_strangers_id_is_told_apart(frame: Frame, line: Line) -> None:
    """Of an id that it does not know the server says that it is another tenant's."""
    if frame.get("code") == "response_not_found":
        frame["code"] = frame["error"]["code"] = "invalid_api_key"


@hears("L12", "L10", shapes=WEBSOCKET, probes=["cancel in the midst"])
def a_cancel_is_ignored(frame: Frame, line: Line) -> list[Frame] | None:
    """response.cancel changes nothing, and gets no answer."""
    return [] if frame.get("type") == "response.cancel" else None


@says("L10", "L4", shapes=WEBSOCKET)
def cancelled_is_called_completed(frame: Frame, line: Line) -> None:
    """A Response that was cancelled ends with response.completed."""
    if frame["type"] in ENDS and frame["response"]["status"] == "cancelled":
        frame["type"], frame["response"]["status"] = "response.completed", "completed"


@says("L12", "L10", shapes=WEBSOCKET, probes=["cancel after the end"])
def a_late_cancel_is_ignored(frame: Frame, line: Line) -> list[Frame] | None:
    """What is said to a Response that has ended gets no answer."""
    return [] if frame.get("code") == "response_not_active" else None


@hears("L12", "L7", "L10", shapes=["append"])
def a_finish_is_ignored(frame: Frame, line: Line) -> list[Frame] | None:
    """response.finish changes nothing."""
    return [] if frame.get("type") == "response.finish" else None


@hears("L10", "L7", "L12", shapes=["append"])
def a_finish_cancels(frame: Frame, line: Line) -> None:
    """response.finish does what response.cancel does."""
    if frame.get("type") == "response.finish":
        frame["type"] = "response.cancel"


@reads("L14", "L12", shapes=[], probes=["nan is no json"])
def nan_is_null(text: str) -> str:
    """NaN is read as null."""
    return text.replace("NaN", "null")
