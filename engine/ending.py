"""How a Response ends: the reason, the resource as it is then, and what is stored of it."""

from collections.abc import Sequence
from typing import Any

from attrs import evolve, frozen

from protocol import events as ev
from protocol.items import Item
from protocol.lifecycle import TERMINAL_EVENTS
from protocol.response import IncompleteDetails, Response, ResponseError, ResponseStatus, Usage

from .history import History
from .log import EventLog
from .policy import Verdict
from .replayed import pack
from .store import Stored


@frozen
class Ending:
    """How a Response ends."""

    status: ResponseStatus
    reason: str | None = None
    """Of ``incomplete_details``."""
    error: ResponseError | None = None


COMPLETED = Ending("completed")
CANCELLED = Ending("cancelled")
SHUTDOWN = Ending("incomplete", "server_shutdown")
OUR_FAULT = Ending("failed", error=ResponseError("server_error", "the server failed; this is its fault"))


def wrong_format(deviation: str) -> Ending:
    """The answer is not of the format that was asked for."""
    message = f"the model's answer is not of the format that text.format asks for: {deviation}"
    return Ending("failed", error=ResponseError("server_error", message))


def final(
    response: Response, ending: Ending, output: Sequence[Item], usage: Usage, now: int, report: dict[str, Any]
) -> Response:
    """The resource at its end; ``now`` is Unix time in seconds."""
    return evolve(
        response,
        status=ending.status,
        output=tuple(output),
        usage=usage,
        error=ending.error,
        incomplete_details=IncompleteDetails(ending.reason) if ending.reason else None,
        completed_at=now if ending.status == "completed" else None,
        engine=report,
    )


def terminal(response: Response) -> ev.Event:
    """The last event of a Response."""
    return ev.TERMINAL[TERMINAL_EVENTS[response.status]](response)


def to_store(
    tenant: str,
    response: Response,
    history: History,
    own: int,
    outside: Sequence[Item],
    verdict: Verdict,
    log: EventLog,
    *,
    previous_id: str | None,
) -> Stored:
    """What is stored: as it was streamed, but for what the policy redacts.

    ``own`` is where in ``history`` this Response begins, ``verdict`` what the policy said of its output. With
    ``previous_id``, what stands before ``own`` is stored under that id already.
    """
    begin = own if previous_id else 0
    redacted = {id(old): new for old, new in zip(response.output, verdict.items, strict=True) if old is not new}
    return Stored(
        tenant=tenant,
        response=evolve(response, output=verdict.items) if redacted else response,
        items=tuple(redacted.get(id(item), item) for item in history.items[begin:]),
        stops=tuple(stop - begin for stop in history.stops if stop > begin),
        input=tuple(outside),
        events=pack(log),
        previous_id=previous_id,
    )
