"""The lanes of one socket: each a FIFO of creates, of which one at a time is a live Response.

Rules of OpenAI's guide: within a lane Responses never overlap, across lanes they run side by side; a socket may name 32 lanes
in its life and have 16 Responses in flight; creates beyond that wait. A lane without a name is the default lane.
"""

import re
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from protocol.errors import ProtocolError
from protocol.limits import IN_FLIGHT, STREAM_ID_CHARS, STREAM_IDS

STREAM_ID: Final = re.compile(rf"[A-Za-z0-9_.-]{{1,{STREAM_ID_CHARS}}}\Z")
Job = TypeVar("Job")


def check_stream_id(stream_id: str | None) -> None:
    """Raises ``invalid_stream_id`` for a name that is none."""
    if stream_id is not None and not STREAM_ID.match(stream_id):
        raise ProtocolError(
            "invalid_stream_id",
            f"The 'stream_id' field must be a non-empty string with at most {STREAM_ID_CHARS} characters and may only "
            "contain letters, numbers, underscores, hyphens, and periods.",
            "stream_id",
        )


class Lanes(Generic[Job]):
    """Which job may run. ``start`` is called for each in its turn; ``done`` is told when its Response has ended."""

    def __init__(self, start: Callable[[Job], None], *, queue_limit: int) -> None:
        self._start = start
        self._queue_limit = queue_limit
        self._queues: dict[str | None, list[Job]] = {None: []}
        """Short ones, mostly empty: a deque would cost 600 bytes each."""
        self._running: set[str | None] = set()
        self._ready: dict[str | None, None] = {}

    @property
    def running(self) -> int:
        """Responses in flight."""
        return len(self._running)

    def submit(self, stream_id: str | None, job: Job) -> None:
        """Queue ``job``, and start it if its lane is free; raises ``ProtocolError``."""
        queue = self._queue(stream_id)
        if len(queue) >= self._queue_limit:
            message = f"{len(queue)} creates wait in this lane already; wait for a Response to end"
            raise ProtocolError("queue_full", message, "stream_id")
        queue.append(job)
        self._advance(stream_id)

    def put_first(self, stream_id: str | None, job: Job) -> None:
        """Queue ``job`` before all that wait in its lane; it starts when ``done`` is told."""
        self._queues[stream_id].insert(0, job)

    def done(self, stream_id: str | None) -> None:
        """The lane's Response has ended, or was refused: the next one may start, here or where one waits for room."""
        self._running.discard(stream_id)
        self._advance(stream_id)
        for other in list(self._ready):
            self._advance(other)

    def clear(self) -> None:
        """Forget what has not started."""
        for queue in self._queues.values():
            queue.clear()
        self._ready.clear()

    def _queue(self, stream_id: str | None) -> list[Job]:
        check_stream_id(stream_id)
        if stream_id not in self._queues:
            if len(self._queues) > STREAM_IDS:
                raise ProtocolError(
                    "websocket_stream_limit_reached",
                    f"This WebSocket connection has reached its maximum number of distinct stream IDs ({STREAM_IDS}). "
                    "Reuse an existing stream_id or open a new WebSocket connection.",
                    "stream_id",
                )
            self._queues[stream_id] = []
        return self._queues[stream_id]

    def _advance(self, stream_id: str | None) -> None:
        queue = self._queues[stream_id]
        if stream_id in self._running or not queue:
            self._ready.pop(stream_id, None)
        elif len(self._running) >= IN_FLIGHT:
            self._ready[stream_id] = None
        else:
            self._ready.pop(stream_id, None)
            self._running.add(stream_id)
            self._start(queue.pop(0))
