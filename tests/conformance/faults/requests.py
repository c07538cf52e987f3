"""Faults of the answers over HTTP: heads, streams, what is stored."""

from protocol.conformance.transport import Frame

from .base import Line, answers, asked, hears, says

ENDS = ("response.completed", "response.incomplete", "response.failed")


@answers("L12", shapes=[], probes=["what is not there", "a stream that is refused", "the errors shape"])
def errors_have_status_200(status: int, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
    """What is refused is answered with 200."""
    return 200 if status >= 400 else status, headers


@answers("L4", shapes=[], probes=["server sent events"])
def streams_are_called_json(status: int, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
    """A stream's content type is application/json."""
    return status, {**headers, "content-type": "application/json"}


@says("L4", shapes=[], probes=["server sent events"])
def a_stream_just_stops(frame: Frame, line: Line) -> list[Frame] | None:
    """data: [DONE] is left out."""
    return [] if frame["type"] == "[DONE]" else None


@says("L4", shapes=[], probes=["server sent events"])
def event_lines_lie(frame: Frame, line: Line) -> None:
    """The event line of each event is message."""
    frame["event:"] = "message"


@says("L4", shapes=[], probes=["json and events say the same"])
def json_lacks_what_events_have(frame: Frame, line: Line) -> None:
    """A Response that comes as JSON has no metadata and no reasoning."""
    if "sequence_number" not in frame and "response" in frame:
        for name in ("metadata", "reasoning"):
            frame["response"].pop(name, None)


@asked("L10", shapes=[], probes=["cancel in the background"])
def a_post_to_cancel_only_looks(method: str, path: str) -> tuple[str, str]:
    """POST …/cancel answers with the Response, and leaves it alone."""
    return ("GET", path.removesuffix("/cancel")) if path.endswith("/cancel") else (method, path)


@asked("L9", shapes=[], probes=["starting after at the edges"])
def starting_after_is_ignored(method: str, path: str) -> tuple[str, str]:
    """A stored stream is always sent from its beginning."""
    head, _, query = path.partition("?")
    kept = "&".join(one for one in query.split("&") if not one.startswith("starting_after="))
    return method, f"{head}?{kept}" if kept else head


@asked("L14", shapes=[], probes=["what is stored"])
def nothing_is_deleted(method: str, path: str) -> tuple[str, str]:
    """DELETE answers with the Response, and leaves it there."""
    return "GET" if method == "DELETE" else method, path


@says("L12", shapes=[], probes=["a poll in the background"])
def the_background_never_ends(frame: Frame, line: Line) -> None:
    """A Response in the background is queued whenever somebody looks."""
    if "sequence_number" not in frame and (frame.get("response") or {}).get("background"):
        frame["response"]["status"] = "queued"


@hears("L12", shapes=[], probes=["a poll in the background"])
def there_is_no_background(frame: Frame, line: Line) -> None:
    """background is ignored: the answer comes when all is done."""
    frame.pop("background", None)
