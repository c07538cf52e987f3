"""A network in memory, for virtual time: what is sent arrives later, in its order, and now and then must be sent again.

Theory. Each chunk that is sent is due at the other end one way's delay later. A chunk that is lost is sent again when its
retransmission timer has run out, once more if that is lost too, with a timer twice as long each time, as TCP has it; what was
sent after it waits for it, since bytes arrive in order. So a loss is a delay here, and no connection ever breaks by it. The
rate is not limited. Opening a connection takes no time.

What the ends do with what they send and receive (JSON, frames, system calls, timers that ring late) takes no virtual time. So
a link may ``charge`` for each chunk of the client's: it is sent that much later.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Final

import trio
from attrs import define, field, frozen

from ..transport.framing import ReadyStream
from .virtual import Sleeper

RETRANSMIT_SECONDS: Final = 0.2
"""The least that Linux waits before it sends again; the round trip comes on top of it."""


@frozen(kw_only=True)
class Distance:
    """How far two ends are from each other. Times are seconds."""

    rtt: float = 0.0
    loss: float = 0.0
    """The chance that a chunk is lost, each time that it is sent; below 1."""

    def one_way(self, chance: Callable[[], float]) -> float:
        """How long a chunk is on its way."""
        late, timer = self.rtt / 2, RETRANSMIT_SECONDS + self.rtt
        while self.loss and chance() < self.loss:
            late, timer = late + timer, timer * 2
        return late


@define(eq=False)
class _Way:
    """One direction."""

    distance: Distance
    chance: Callable[[], float]
    charge: Callable[[int], float] | None = None
    charged: float = 0.0
    chunks: deque[tuple[float, bytes]] = field(factory=deque)
    """When each is due; an empty one is the end."""
    broken: bool = False
    """Nobody reads any more."""
    reader: Sleeper | None = None
    """Who waits for the first chunk."""

    def send(self, data: bytes) -> None:
        leaves = trio.current_time()
        if self.charge is not None and data:
            cost = self.charge(len(data))
            self.charged += cost
            leaves += cost
        due = leaves + self.distance.one_way(self.chance)
        if self.chunks:
            due = max(due, self.chunks[-1][0])
        elif self.reader is not None:
            self.reader.wake_at(due)
        self.chunks.append((due, data))

    def break_off(self) -> None:
        """Nobody reads any more."""
        self.broken = True
        if self.reader is not None:
            self.reader.wake()

    async def receive(self, most: int | None) -> bytes:
        """What has come, or will come first. A checkpoint, in which nothing is lost."""
        if not self.broken and self.chunks and self.chunks[0][0] <= trio.current_time():
            await trio.lowlevel.checkpoint()
        while not self.broken:
            if self.chunks and self.chunks[0][0] <= trio.current_time():
                return self._take(most)
            await self._wait()
        await trio.lowlevel.checkpoint()
        raise trio.ClosedResourceError

    async def _wait(self) -> None:
        """Until the first chunk is due, whether it was sent yet or not."""
        self.reader = Sleeper()
        if self.chunks:
            self.reader.wake_at(self.chunks[0][0])
        try:
            await self.reader.sleep()
        finally:
            self.reader = None

    def _take(self, most: int | None) -> bytes:
        """All that is due by now, or so much of it. The end stays where it is."""
        now = trio.current_time()
        taken: list[bytes] = []
        room = most
        while self.chunks and self.chunks[0][0] <= now and (room is None or room > 0):
            due, data = self.chunks[0]
            if not data:
                break
            part = data if room is None else data[:room]
            if len(part) == len(data):
                self.chunks.popleft()
            else:
                self.chunks[0] = (due, data[len(part) :])
            taken.append(part)
            room = None if room is None else room - len(part)
        return b"".join(taken)


class LinkStream(ReadyStream):
    """One end of a connection. Its buffers are as large as they need to be."""

    def __init__(self, inward: _Way, outward: _Way) -> None:
        self._inward = inward
        self._outward = outward
        self._closed = False
        self._ended = False

    @property
    def charged(self) -> float:
        """Seconds that were charged for what this end has sent."""
        return self._outward.charged

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send. Always a checkpoint, after which all was sent; cancelled there, nothing was."""
        await trio.lowlevel.checkpoint()
        if self._closed or self._ended:
            raise trio.ClosedResourceError
        if self._outward.broken:
            raise trio.BrokenResourceError
        if data:
            self._outward.send(bytes(data))

    def send_nowait(self, data: bytes | bytearray) -> int:
        """Send: all is taken, if anything is."""
        if self._closed or self._ended or self._outward.broken:
            return 0
        self._outward.send(bytes(data))
        return len(data)

    async def wait_send_all_might_not_block(self) -> None:
        """It never does."""
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What has come by now, at least something; or ``b""`` at the end. Cancellation loses nothing."""
        return await self._inward.receive(max_bytes)

    async def send_eof(self) -> None:
        """Write no more: the other end reads so when all before it has come."""
        self._end()
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close: what the other end sends from now on is an error to it."""
        self._end()
        self._closed = True
        self._inward.break_off()
        await trio.lowlevel.checkpoint()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._outward.send(b"")


def link(
    distance: Distance, *, charge: Callable[[int], float] | None = None, source: random.Random | None = None
) -> tuple[LinkStream, LinkStream]:
    """The two ends of a new connection, the client's first. ``charge``: seconds for so many bytes of the client's."""
    chance = (source or random.Random(0)).random
    up, down = _Way(distance, chance, charge), _Way(distance, chance)
    return LinkStream(down, up), LinkStream(up, down)
