"""The life of a Response: its phases, its deadlines, and the one decision how it ends.

Around a Response's coroutine is one cancel scope. Whatever can end it from outside is either the scope's deadline (whichever of
several comes first) or a cancel that was decided on before. Who decides first has won (law L10): ``_end`` counts once, and
what comes later finds a Response that is not live any more.
"""

import math

import trio

from protocol import events as ev
from protocol.errors import ProtocolError
from protocol.lifecycle import LIVE, RESPONSE, Phase
from protocol.requests import CreateRequest
from protocol.response import Response, Usage

from .account import Shape, Times
from .audience import Audience
from .config import Config
from .ending import CANCELLED, COMPLETED, Ending
from .outbox import Subscription


class Lifespan(Audience):
    """A Response that begins, parks, resumes and ends."""

    __slots__ = (
        "_beats",
        "_config",
        "_detached_at",
        "_ending",
        "_moved",
        "_parked_for",
        "_response",
        "_scope",
        "_times",
        "_waits_for",
        "abandoned",
        "in_place",
        "parks",
        "phase",
        "request",
        "shape",
    )

    def __init__(self, request: CreateRequest, shape: Shape, config: Config) -> None:
        super().__init__()
        self.request = request
        self.shape = shape
        self.phase = Phase.QUEUED
        self.parks = 0
        self.abandoned = False
        """It was cancelled because its client had gone."""
        self.in_place = False
        """It runs in the task of the client that it answers to, and goes with it."""
        self._config = config
        self._response: Response | None = None
        """The resource: as it began, and in the end as it ended."""
        self._scope = trio.CancelScope()
        self._times = Times()
        self._parked_for = ""
        self._waits_for: tuple[ev.Stub, ...] = ()
        self._detached_at = math.inf
        self._ending: Ending | None = None
        self._moved = trio.lowlevel.ParkingLot()
        """Where those wait who want to know of its phases, or of what the user says."""
        self._beats = -1
        """The newest event's number when the pulse was last felt."""

    @property
    def live(self) -> bool:
        """Whether it takes appends, cancels and finishes."""
        return self.phase in LIVE

    @property
    def required_input(self) -> tuple[ev.Stub, ...]:
        """What it waits for while it is parked."""
        return self._waits_for

    async def rests(self) -> None:
        """Wait until it has parked or ended. Cancellation leaves nothing behind."""
        while self.phase not in (Phase.PARKED, Phase.ENDED):
            await self._moved.park()

    async def over(self) -> None:
        """Wait until its terminal event is logged. Cancellation leaves nothing behind."""
        while self.phase is not Phase.ENDED:
            await self._moved.park()

    # ---- clients come and go

    def attach(self, subscription: Subscription) -> int:
        """Make ``subscription`` the client that the Response answers to; returns its epoch. Another one is let go."""
        self._notice_deadline()
        self._admit_controller(subscription, ended=self.phase is Phase.ENDED)
        self._detached_at = math.inf
        self._arm()
        return self.epoch

    def detach(self, subscription: Subscription) -> None:
        """The client is gone. Without one, the Response lives on for ``detach_seconds``, or ends, if its shape says so."""
        self._notice_deadline()
        self._leave(subscription)
        if self._controller is subscription:
            self._controller = None
            self._detached_at = trio.current_time()
            self._arm()
            if not self.in_place:
                self.abandon()

    def touch(self) -> None:
        """Somebody has asked for it: while no client is attached, it lives for ``detach_seconds`` from now."""
        self._notice_deadline()
        if self._controller is None:
            self._detached_at = trio.current_time()
            self._arm()

    def pulse(self) -> None:
        """Called now and then: if nothing was said since the last time, say that the Response is alive."""
        if self.live and self.attached and self.log.next == self._beats:
            self._heartbeat()
        self._beats = self.log.next

    # ---- how it ends

    def cancel(self, *, epoch: int | None = None) -> None:
        """End it where it is; raises ``ProtocolError``."""
        self._check_live(epoch)
        self._end(CANCELLED)
        self._scope.cancel()

    def stop(self, reason: str) -> None:
        """End it because the server says so."""
        if self.live:
            self._end(Ending("incomplete", reason))
            self._scope.cancel()

    def abandon(self) -> None:
        """Its client is gone: end it, unless it was made to outlive its client."""
        if self.live and self.shape != "append" and not self.request.background:
            self.abandoned = True
            self._end(CANCELLED)
            self._scope.cancel()

    def _end(self, ending: Ending) -> None:
        """Decide how it ends. Only the first decision counts."""
        if self.phase in LIVE:
            if self.phase is Phase.PARKED:
                self._times.parked += trio.current_time() - self._times.since
            self._move("end")
            self._ending = ending
            self._times.ended = trio.current_time()

    # ---- phases and deadlines

    def _park(self, what: str, stubs: tuple[ev.Stub, ...]) -> None:
        self._move("park")
        self.parks += 1
        self._parked_for, self._waits_for = what, stubs
        self._times.since = trio.current_time()
        self._arm()
        self.emit(ev.Done(ev.ParkedResponse(self.id, self._usage()), stubs))
        self._flush()
        self._moved.unpark_all()

    def _resume(self) -> None:
        self._move("resume")
        self._parked_for, self._waits_for = "", ()
        self._times.parked += trio.current_time() - self._times.since
        self._arm()

    def _move(self, move: str) -> None:
        self.phase = RESPONSE.next(self.phase, move)

    def _arm(self) -> None:
        """Set the scope's deadline to whichever comes first."""
        deadline = min(self._deadlines())[0]
        if deadline != self._scope.deadline:  # to set it is not cheap: trio keeps deadlines in order
            self._scope.deadline = deadline

    def _deadlines(self) -> list[tuple[float, str]]:
        config = self._config
        deadlines = [
            (self._times.started + config.response_seconds, "response_timeout"),
            (math.inf if self._outlives else self._detached_at + config.detach_seconds, "detached_timeout"),
        ]
        if self.phase is Phase.PARKED:
            deadlines.append((self._times.since + config.park_seconds, f"park:{self._parked_for}"))
        return deadlines

    @property
    def _outlives(self) -> bool:
        """Whether it matters not how long no client has been attached."""
        return self.in_place or bool(self.request.background)

    def _timeout(self) -> Ending:
        reason = min(self._deadlines())[1]
        if reason == "park:user":
            return COMPLETED  # the model has answered, and the user said nothing more
        return Ending("incomplete", "tool_output_timeout" if reason == "park:tools" else reason)

    def _notice_deadline(self) -> None:
        """If the deadline has passed, it has won, though the loop has not noticed yet."""
        if self.live and self._scope.cancel_called:
            self._end(self._timeout())

    def _check_live(self, epoch: int | None) -> None:
        self._notice_deadline()
        if not self.live:
            state = "has ended" if self.phase is Phase.ENDED else "is ending"
            raise ProtocolError("response_not_active", f"the Response {self.id} {state}", "response_id")
        if epoch is not None and epoch != self.epoch:
            message = f"another client has attached to {self.id} since; attach again to go on"
            raise ProtocolError("stale_epoch", message, "response_id")

    def _heartbeat(self) -> None:
        assert self._response is not None
        self.emit(ev.InProgress(self._response))
        self._flush()
        self._beats = self.log.next

    def _usage(self) -> Usage:
        raise NotImplementedError
