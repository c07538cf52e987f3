"""What a peer sends, read by a task of its own, so that its end is noticed while nobody waits for its bytes.

A handler may take minutes. The client that dropped meanwhile must be noticed, and a request that it sent ahead must not be
lost: so bytes are kept here, up to a bound. Beyond it nothing is read, and TCP holds the peer back.
"""

from collections.abc import Callable
from typing import Final

import trio

READ_BYTES: Final = 64 * 1024
"""Read at once: large bodies come in few system calls."""


class Inlet:
    """The reading half of a connection. ``on_end`` is called once, when the peer will send no more."""

    def __init__(self, stream: trio.abc.ReceiveStream, bound: int, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._bound = bound
        self._on_end = on_end
        self._data = bytearray()
        self._came = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        self._discarding = False
        self.ended = False
        """The peer has said that it sends no more, or the connection is broken."""
        self.broken = False
        """It is broken: nothing that we send arrives."""

    def __len__(self) -> int:
        return len(self._data)

    async def run(self) -> None:
        """Read until the peer's end: run it as a task. Cancellation loses nothing: all that was read is here."""
        try:
            while data := await self._stream.receive_some(READ_BYTES):
                if not self._discarding:
                    self._data += data
                    self._came.unpark_all()
                while len(self._data) >= self._bound and not self._discarding:
                    await self._room.park()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.broken = True
        self.ended = True
        self._came.unpark_all()
        self._on_end()

    async def wait(self) -> None:
        """Wait until there are bytes, or the end, or a ``nudge``."""
        if not self._data and not self.ended:
            await self._came.park()

    def nudge(self) -> None:
        """Let ``wait`` return."""
        self._came.unpark_all()

    def take(self) -> bytes:
        """What has come since the last time."""
        data = bytes(self._data)
        self._data.clear()
        if self._room:
            self._room.unpark_all()
        return data

    async def discard(self) -> None:
        """Read on, and forget, until the peer's end; the caller has a deadline."""
        self._discarding = True
        self.take()
        while not self.ended:
            await self._came.park()
