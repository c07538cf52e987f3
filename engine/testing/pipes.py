"""Two ends of a connection in memory, with buffers of bounded size, as TCP has them.

``trio.testing``'s memory streams either never push back or always wait for the reader; laws about slow readers need what is
between. The ends know an end of file, a polite close and a reset.
"""

import trio
from attrs import define

CAPACITY = 64 * 1024
"""Bytes that one direction holds: what a small TCP buffer does."""


@define(eq=False)
class _Pipe:
    """One direction."""

    capacity: int
    data: bytearray
    lot: trio.lowlevel.ParkingLot
    ended: bool = False
    """The writer will write no more."""
    broken: bool = False
    """The reader will read no more, or the connection was reset."""
    reset: bool = False

    def wake(self) -> None:
        self.lot.unpark_all()


class PipeStream(trio.abc.HalfCloseableStream):
    """One end of a connection."""

    def __init__(self, inward: _Pipe, outward: _Pipe) -> None:
        self._inward = inward
        self._outward = outward
        self._closed = False

    @property
    def unread(self) -> int:
        """Bytes that the peer has sent and this end has not read."""
        return len(self._inward.data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send, and wait while the buffer is full. Cancellation may leave part of ``data`` sent."""
        pipe, rest = self._outward, memoryview(bytes(data))
        await trio.lowlevel.checkpoint()
        while True:
            if self._closed or pipe.ended:
                raise trio.ClosedResourceError
            if pipe.broken:
                raise trio.BrokenResourceError
            room = pipe.capacity - len(pipe.data)
            if room > 0 and rest:
                pipe.data += rest[:room]
                rest = rest[room:]
                pipe.wake()
            if not rest:
                return
            await pipe.lot.park()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room."""
        await trio.lowlevel.checkpoint()
        while not self._closed and not self._outward.broken and len(self._outward.data) >= self._outward.capacity:
            await self._outward.lot.park()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What has come, or ``b""`` at the end."""
        pipe = self._inward
        await trio.lowlevel.checkpoint()
        while True:
            if self._closed:
                raise trio.ClosedResourceError
            if pipe.reset:
                raise trio.BrokenResourceError
            if pipe.data:
                taken = bytes(pipe.data[: max_bytes or len(pipe.data)])
                del pipe.data[: len(taken)]
                pipe.wake()
                return taken
            if pipe.ended:
                return b""
            await pipe.lot.park()

    async def send_eof(self) -> None:
        """Write no more."""
        self._outward.ended = True
        self._outward.wake()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Close this end: the peer reads what was sent, then the end; what it sends is lost."""
        self._closed = True
        self._outward.ended = self._inward.broken = True
        self._outward.wake()
        self._inward.wake()

    def reset(self) -> None:
        """Break the connection: what is under way is lost, and the peer is told by an error."""
        self.close()
        self._outward.reset = self._outward.broken = True
        self._outward.data.clear()
        self._outward.wake()

    async def aclose(self) -> None:
        """As ``close``."""
        self.close()
        await trio.lowlevel.checkpoint()


def pipe_pair(capacity: int = CAPACITY) -> tuple[PipeStream, PipeStream]:
    """The two ends of a new connection."""
    there = _Pipe(capacity, bytearray(), trio.lowlevel.ParkingLot())
    back = _Pipe(capacity, bytearray(), trio.lowlevel.ParkingLot())
    return PipeStream(back, there), PipeStream(there, back)
