"""A network that is far away: a TCP relay that delays both directions, and does not limit their rate.

Theory. What is read is stamped with the time at which it is due, now and one way's delay, and queued; another task writes it
when it is due. So the delays of chunks do not add up, as they would if each were slept out in its turn, and a burst arrives
as a burst. The queue is as long as the delay asks for: nothing pushes back on the sender but the memory of this process. The
end of a direction travels like a chunk; a connection that breaks breaks both sides at once. Opening a connection takes no
round trip.

Chunks arrive exactly when they are due on a virtual clock, and a tenth of a millisecond later on a real one.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from attrs import define, field, frozen

from ..models.pacemaker import sleep_until

CHUNK_BYTES: Final = 256 * 1024
"""Read at once: what a fast sender has written meanwhile."""

Dial = Callable[[], Awaitable[trio.abc.HalfCloseableStream]]
"""Opens a connection to the other side. Raises ``OSError``."""


@frozen
class Relay:
    """Delays connections by ``one_way`` seconds each way. ``serve`` is a handler for ``trio.serve_listeners``."""

    dial: Dial
    one_way: float

    async def serve(self, near: trio.abc.HalfCloseableStream) -> None:
        """Relay one connection, until it has ended; ``near`` is closed then. Cancelled, it leaves nothing open."""
        try:
            far = await self.dial()
        except OSError:
            await trio.aclose_forcefully(near)
        else:
            await join(near, far, self.one_way)


async def join(near: trio.abc.HalfCloseableStream, far: trio.abc.HalfCloseableStream, one_way: float) -> None:
    """Relay between two streams until both directions have ended, or one of them has broken. Both are closed then."""
    try:
        async with trio.open_nursery() as nursery:
            for source, sink in ((near, far), (far, near)):
                way = _Way(sink, one_way, nursery.cancel_scope)
                nursery.start_soon(way.read, source)
                nursery.start_soon(way.write)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1.0):
            await trio.aclose_forcefully(near)
            await trio.aclose_forcefully(far)


@define(eq=False)
class _Way:
    """One direction."""

    _sink: trio.abc.HalfCloseableStream
    _delay: float
    _broken: trio.CancelScope
    """Cancelled when the connection is not one any more."""
    _queue: deque[tuple[float, bytes]] = field(factory=deque)
    """When each chunk is due; an empty one is the end."""
    _more: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot)

    async def read(self, source: trio.abc.ReceiveStream) -> None:
        try:
            while True:
                chunk = await source.receive_some(CHUNK_BYTES)
                self._queue.append((trio.current_time() + self._delay, bytes(chunk)))
                self._more.unpark_all()
                if not chunk:
                    return
        except trio.BrokenResourceError:
            self._broken.cancel()

    async def write(self) -> None:
        try:
            while True:
                while not self._queue:
                    await self._more.park()
                await sleep_until(self._queue[0][0])
                due, ends = self._due()
                if due:
                    await self._sink.send_all(due)
                if ends:
                    await self._sink.send_eof()
                    return
        except trio.BrokenResourceError:
            self._broken.cancel()

    def _due(self) -> tuple[bytes, bool]:
        """All that is due by now, in one piece; and whether it is the end."""
        now = trio.current_time()
        chunks: list[bytes] = []
        while self._queue and self._queue[0][0] <= now:
            chunk = self._queue.popleft()[1]
            if not chunk:
                return b"".join(chunks), True
            chunks.append(chunk)
        return b"".join(chunks), False
