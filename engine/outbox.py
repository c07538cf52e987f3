"""From a Response's log to a socket: bounded, in order, and without a task of its own.

An ``Outbox`` is what one socket has still to send. A ``Subscription`` is one reader of one log: it knows up to where its
socket has been given the log. While the socket keeps up, each event is handed on as it is logged. When the outbox is full
the subscription falls behind: nothing is handed on, the log remembers anyway, and whenever the outbox drains the
subscription goes on from its cursor. Attach is the same thing: a subscription that begins behind.

So what waits in memory for a socket that does not read is at most one outbox (law L11); the loop of the Response waits in
``room`` meanwhile, and nobody else does.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

import trio

from protocol.codec import lane_suffix, seal

from .replayed import Log


class Wire(Protocol):
    """Where frames go: a socket's buffered stream."""

    @property
    def waiting(self) -> int:
        """Bytes that were put and not sent yet."""
        ...

    def put(self, frame: bytes) -> None:
        """Take one frame; never blocks. After the socket has closed it does nothing."""
        ...

    def flush(self) -> None:
        """Send what was put: at once, as far as that needs no waiting, and the rest as soon as it can be sent."""
        ...


class Outbox:
    """What one socket has still to send, and who waits for it to drain."""

    __slots__ = (
        "_behind",
        "_limit",
        "_lot",
        "_unread",
        "_wire",
        "closed",
    )

    def __init__(self, wire: Wire, limit: int) -> None:
        self._wire = wire
        self._limit = limit
        self._behind: dict[str | None, deque[Subscription | _Note]] = {}
        self._lot = trio.lowlevel.ParkingLot()
        self._unread = 0
        self.closed = False

    @property
    def has_room(self) -> bool:
        """Whether another frame may be put."""
        return self._wire.waiting < self._limit

    @property
    def overrun(self) -> bool:
        """Whether the peer goes on to ask while it reads no answers: as much as the limit waits beyond it."""
        return self._unread > self._limit

    def put(self, frame: bytes) -> None:
        """Send a frame of a log, for which there is room, with the next ``flush``."""
        if not self.closed:
            self._wire.put(frame)

    def put_all(self, frames: Iterable[bytes]) -> None:
        """As ``put``, a few in a row."""
        if not self.closed:
            put = self._wire.put
            for frame in frames:
                put(frame)

    def tell(self, frame: bytes) -> None:
        """Send a frame that belongs to no log, an error for example. It answers the peer, room or not."""
        if not self.has_room:
            self._unread += len(frame)
        self.put(frame)
        self.flush()

    def tell_in_turn(self, frame: bytes, stream_id: str | None) -> None:
        """As ``tell``, but behind what is still to be said on the lane: else nobody could know what is answered."""
        queue = self._behind.get(stream_id)
        if queue is None:
            self.tell(frame)
        elif not self.closed:
            self._unread += len(frame)
            queue.append(_Note(self, frame))

    def flush(self) -> None:
        """Send what was put. Whoever puts, flushes before it waits for something."""
        if not self.closed:
            self._wire.flush()

    def fall_behind(self, subscription: "Subscription") -> None:
        """Remember to let ``subscription`` go on when there is room."""
        queue = self._behind.setdefault(subscription.stream_id, deque())
        if subscription not in queue:
            queue.append(subscription)

    def drained(self) -> None:
        """The wire has sent what it had: let those who are behind go on, the lanes in turn, each lane in its order."""
        for lane in list(self._behind):
            if not self.has_room:
                return
            queue = self._behind.pop(lane)
            while queue and queue[0].catch_up():
                queue.popleft()
            if queue:
                self._behind[lane] = queue
        if self.has_room:
            self._unread = 0
            self._lot.unpark_all()

    def close(self) -> None:
        """The socket is gone: nothing more is sent, and nobody waits for it."""
        self.closed = True
        self._behind.clear()
        self._lot.unpark_all()

    async def room(self) -> None:
        """Wait until there is room, or the socket is gone. Cancellation leaves nothing behind."""
        while not self.closed and not self.has_room:
            await self._lot.park()


class _Note:
    """A frame of no log that waits for its turn on its lane."""

    __slots__ = ("_frame", "_outbox")

    def __init__(self, outbox: Outbox, frame: bytes) -> None:
        self._outbox = outbox
        self._frame = frame

    def catch_up(self) -> bool:
        """Hand it on, if there is room."""
        if self._outbox.has_room:
            self._outbox.put(self._frame)
            return True
        return False


class Subscription:
    """One reader of one Response's log."""

    __slots__ = ("_log", "_suffix", "cursor", "open", "outbox", "stream_id", "timed")

    def __init__(
        self, log: Log, outbox: Outbox, *, stream_id: str | None = None, cursor: int = -1, timed: bool = False
    ) -> None:
        self._log = log.opened()
        self._suffix = lane_suffix(stream_id)
        self.outbox = outbox
        self.stream_id = stream_id
        self.cursor = cursor
        self.open = True
        self.timed = timed
        """Whether it wants to hear where the Response's time went."""

    @property
    def caught_up(self) -> bool:
        """Whether all of the log was handed on."""
        return self.cursor == self._log.last

    def deliver(self, bodies: Sequence[bytes]) -> None:
        """The newest events' bodies: hand them on if the socket keeps up. They are few, so that the outbox stays bounded."""
        before = self._log.last - len(bodies)
        if self.cursor != before or not self.open:
            return  # behind: they come from the log in their turn
        if not self.outbox.has_room:
            self.outbox.fall_behind(self)
            return
        suffix = self._suffix
        if len(bodies) == 1:
            self.outbox.put(seal(bodies[0], before + 1, suffix))
        else:
            self.outbox.put_all([seal(body, number, suffix) for number, body in enumerate(bodies, before + 1)])
        self.cursor = before + len(bodies)

    def start(self) -> None:
        """Hand on what there is in the log, now or as there is room."""
        if not self.catch_up():
            self.outbox.fall_behind(self)
        self.outbox.flush()

    def catch_up(self) -> bool:
        """Hand on from the log until there is no more (then it returns true) or the outbox is full."""
        for number, body in self._log.after(self.cursor):
            if not self.open:
                return True
            if not self.outbox.has_room:
                return False
            self.outbox.put(seal(body, number, self._suffix))
            self.cursor = number
        return True

    async def all_sent(self) -> None:
        """Wait until all of the log was handed on, or the socket is gone. Cancellation leaves nothing behind."""
        while not (self.caught_up or self.outbox.closed or not self.open):
            await self.outbox.room()
            self.start()

    def release(self, log: Log) -> None:
        """The Response has ended, and ``log`` is all that is kept of its log: hold no other, unless there is more to read."""
        if self.caught_up:
            self._log = log

    def close(self) -> None:
        """Hand on nothing more."""
        self.open = False
