"""Server-sent events: the frames of a WebSocket, as the body of an HTTP answer.

Each frame becomes ``event: TYPE``, ``data: JSON`` and an empty line, with LF only; ``data: [DONE]`` is the last. As below a
WebSocket (see ``framing``), events gather in one buffer, which one task empties: the first of a burst is written at once, and
what comes while it is written goes out together, in one write. A write has whole events only.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

TYPE_AT: Final = len(b'{"type":"')
"""Where the type begins: each frame that we encode has it first."""
DONE: Final = b"data: [DONE]\n\n"

HEADERS: Final = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),
)
"""The last one asks proxies not to hold events back."""


def sse_event(frame: bytes) -> bytes:
    """``frame`` (the JSON of an event, which begins with its type) as a server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (frame[TYPE_AT : frame.index(b'"', TYPE_AT)], frame)


class SseStream:
    """A ``Wire`` (see ``engine.outbox``) whose frames are written as events. ``write`` sends some of the answer's body."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._write = write
        self._buffer = bytearray()
        self._writing = 0
        self._wake = trio.Event()
        self._closed = False
        self._on_drained: Callable[[], None] = _nothing

    def on_drained(self, notify: Callable[[], None]) -> None:
        """Call ``notify`` after each write."""
        self._on_drained = notify

    @property
    def waiting(self) -> int:
        """Bytes that were put and are not in the kernel yet."""
        return len(self._buffer) + self._writing

    def put(self, frame: bytes) -> None:
        """Send an event; never blocks, and does nothing once the stream was closed."""
        self._put(sse_event(frame))

    def flush(self) -> None:
        """Nothing: the writer was woken when the event was put."""

    def comment(self) -> None:
        """Send an empty comment, which clients skip: it keeps middleboxes from dropping a silent connection."""
        self._put(b":\n\n")

    def close(self) -> None:
        """Send ``[DONE]``, and nothing after it."""
        self._put(DONE)
        self._closed = True

    async def pump(self) -> None:
        """The writer: run it as a task. Returns when the stream was closed and all is written.

        Cancelled, it may have left half a write on the connection, which is of no use then.
        """
        await self._flush()  # the answer's head at least: the client knows then that it was heard
        while self._buffer or not self._closed:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._buffer:
                await self._flush()

    async def _flush(self) -> None:
        data, self._buffer = self._buffer, bytearray()
        self._writing = len(data)
        try:
            await self._write(bytes(data))
        finally:
            self._writing = 0
        self._on_drained()

    def _put(self, data: bytes) -> None:
        if not self._closed:
            self._buffer += data
            self._wake.set()


def _nothing() -> None:
    """What is called after a write while nobody wants to know."""
