"""Who listens to a Response: its log, the client that it answers to, and others that only hear.

What is emitted is logged, and handed to everybody who listens. One of them is the *controller*, the client that attached last:
its frames count, the Response falls back on it when it stalls, and lives for a while when it is gone. Its *epoch* tells whether
a frame comes from it, or from one that was attached before.
"""

from collections.abc import Sequence
from typing import Final

from protocol import events as ev
from protocol.codec import encode
from protocol.errors import ErrorEvent, ProtocolError

from .log import DeltaText, EventLog
from .outbox import Subscription
from .replayed import PackedLog

RUN: Final = 64
"""Deltas that are handed on at once: some 10 KiB, so that an outbox is never much over its limit."""


class Audience:
    """A Response's log, and who listens to it."""

    __slots__ = ("_controller", "_subscriptions", "epoch", "id", "log")

    def __init__(self) -> None:
        self.id = ""
        """Given when the Response begins: what is refused never had one."""
        self.epoch = 0
        """Rises at each attach; frames of clients that were attached before are refused."""
        self.log = EventLog()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._controller: Subscription | None = None

    @property
    def attached(self) -> bool:
        """Whether a client listens."""
        return bool(self._subscriptions)

    @property
    def controlled(self) -> bool:
        """Whether it answers to a client, with which it falls back or stalls."""
        return self._controller is not None

    @property
    def timed(self) -> bool:
        """Whether somebody wants to hear where the time went."""
        return any(one.timed for one in self._subscriptions)

    def listen(self, subscription: Subscription) -> None:
        """Let ``subscription`` hear what is said from here on, beside the client that is attached."""
        self._subscriptions += (subscription,)

    def emit(self, event: ev.Event) -> None:
        """Log ``event`` and hand it to whoever listens."""
        self._deliver(self.log.append(event, read=self.attached))

    def emit_deltas(self, text: DeltaText, pieces: Sequence[str]) -> None:
        """Log the next pieces of ``text``. The one path that is hot."""
        for start in range(0, len(pieces), RUN):
            bodies = self.log.deltas(text, pieces[start : start + RUN], read=self.attached)
            for subscription in self._subscriptions:
                subscription.deliver(bodies)

    def _flush(self) -> None:
        """Send what was emitted, before the loop waits for something."""
        for subscription in self._subscriptions:
            subscription.outbox.flush()

    def _tell_timing(self, metrics: dict[str, float]) -> None:
        """Tell where the time went, to those who asked."""
        for one in self._subscriptions:
            if one.timed:
                one.outbox.put(encode(ev.WebsocketTiming(metrics, self.id, stream_id=one.stream_id)))

    def _deliver(self, body: bytes) -> None:
        for subscription in self._subscriptions:
            subscription.deliver((body,))

    def _admit_controller(self, subscription: Subscription, *, ended: bool) -> None:
        """Make ``subscription`` the controller. The former one is let go, and told so, unless it has heard all there is."""
        former = self._controller
        if former is not None:
            self._leave(former)
            if former.outbox is not subscription.outbox and not (ended and former.caught_up):
                message = f"another client has attached to {self.id}"
                error = ErrorEvent(ProtocolError("attached_elsewhere", message), self.id, former.stream_id)
                former.outbox.tell(encode(error.to_wire()))
        self.epoch += 1
        self._controller = subscription
        if subscription.open:
            self._subscriptions += (subscription,)

    def _pack(self, packed: bytes) -> None:
        """The Response has ended, and its log is ``packed``: hold nothing else of it, but for those who still read."""
        self.log = PackedLog(packed, self.log.last)  # type: ignore[assignment]  # nothing is logged any more
        for subscription in self._subscriptions:
            subscription.release(self.log)

    def _leave(self, subscription: Subscription) -> None:
        subscription.close()
        self._subscriptions = tuple(one for one in self._subscriptions if one is not subscription)
