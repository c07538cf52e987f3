"""Many Responses on few model slots: who samples, who waits, and whose context the model keeps meanwhile.

Theory. A *slot* is a place in which the model reads and samples for one Response at a time. Whoever wants one waits in a FIFO.
A Response that parks gives its slot back, but the model's state for it (its KV cache) can stay in memory: how long is the
``Policy``. What was let go of must be read again when the Response resumes, at the speed of prefill, in its slot.

Memory is counted in tokens, and may be limited. Who holds without end (``hold``) can't be turned out, so that a rollout is let
in only when there is room for all that it will ever hold, in a FIFO of its own; once in, it never waits for memory. The
others take room when they have a slot, in FIFO order too. Who waits for room holds none: so what is in the way is always held
by Responses that sample, and will park, or by parked ones, whose time runs out (``release``), or who are turned out, those
first that parked first (``pressure``). Hence nothing waits for ever.

The state belongs to the rollout and not to the Response: in the shapes that make a chain of Responses it stands for a
provider's cache of prompts.
"""

import math
from collections import OrderedDict, deque
from typing import Final, Literal

import trio
from attrs import define, field, frozen

Kind = Literal["hold", "release", "pressure"]
KINDS: Final = ("hold", "release", "pressure")


@frozen
class Policy:
    """What becomes of a parked Response's state: ``hold`` keeps it, ``release`` lets go of it ``after`` so many seconds,
    ``pressure`` when somebody needs the room."""

    kind: Kind = "hold"
    after: float = 0.0

    @classmethod
    def of(cls, text: str) -> "Policy":
        """As options have it: ``hold``, ``release``, ``release:SECONDS``, ``pressure``. Raises ``ValueError``."""
        kind, colon, after = text.partition(":")
        seconds = float(after) if colon else 0.0
        if kind not in KINDS or (colon and kind != "release") or not 0 <= seconds < math.inf:
            raise ValueError(f"{text!r} is none of hold, release, release:SECONDS, pressure")
        return cls(kind, seconds)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"release:{self.after:g}" if self.kind == "release" and self.after else self.kind


@define(eq=False)
class Gauge:
    """An amount that goes up and down: how much it is now, how much it was at most, and on the average since its beginning."""

    now: float = 0.0
    peak: float = 0.0
    _area: float = 0.0
    _since: float = field(factory=trio.current_time)
    _began: float = field(factory=trio.current_time)

    def add(self, amount: float) -> None:
        """Go up, or down."""
        at = trio.current_time()
        self._area += self.now * (at - self._since)
        self._since = at
        self.now += amount
        self.peak = max(self.peak, self.now)

    @property
    def mean(self) -> float:
        """Over the time until now."""
        at = trio.current_time()
        span = at - self._began
        return (self._area + self.now * (at - self._since)) / span if span else self.now


class Slots:
    """So many places, given out in the order in which they were asked for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.busy = Gauge()
        self.queued = Gauge()
        self._lot = trio.lowlevel.ParkingLot()

    async def take(self) -> None:
        """Wait for a place. Cancelled, it holds none."""
        if self.busy.now < self.count:
            self.busy.add(1)
            return
        self.queued.add(1)
        try:
            await self._lot.park()  # who gives a place back hands it on
        finally:
            self.queued.add(-1)

    def give(self) -> None:
        """Give a place back."""
        if self._lot:
            self._lot.unpark()
        else:
            self.busy.add(-1)


@define(eq=False)
class State:
    """What the model keeps of one rollout, in tokens."""

    whole: int
    """The most that it will ever be."""
    tokens: int = 0
    """What it knows: how much of the context need not be read."""
    room: int = 0
    """Of memory, for these and for what it is about to sample."""
    known: int = 0
    """What it has known at most: of that, what must be read again is read twice."""


class Memory:
    """Where states are kept, as the policy says. ``run`` is to be run as a task."""

    def __init__(self, policy: Policy, capacity: float = math.inf) -> None:
        self.policy = policy
        self.capacity = capacity
        self.held = Gauge()
        self.parked = Gauge()
        """States that are not used, and could be let go of."""
        self._parked: OrderedDict[State, float] = OrderedDict()
        """And since when; the oldest first."""
        self._waiting: deque[tuple[State, int, trio.Event]] = deque()
        self._newly_parked = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Let go of what was held for its time, until cancelled."""
        if self.policy.kind != "release":
            return
        while True:
            while not self._parked:
                await self._newly_parked.park()
            state, since = next(iter(self._parked.items()))
            due = since + self.policy.after
            if due > trio.current_time():
                await trio.sleep_until(due)
            else:
                self._let_go(state)

    async def admit(self, state: State) -> None:
        """Wait until a rollout may begin: where it is held without end, until there is room for all of it."""
        if self.policy.kind == "hold" and not state.room and self.capacity < math.inf:
            await self._wait(state, state.whole)

    async def use(self, state: State, need: int) -> None:
        """Take ``state``, which then has room for ``need`` tokens, out of those that can be let go of. May wait for room."""
        self._unpark(state)
        if self.policy.kind == "hold":
            self._take(state, max(0, need - state.room))  # it was let in with room for this, or there is no limit
        elif need > state.room:
            await self._wait(state, need)

    def park(self, state: State) -> None:
        """It is not used for a while."""
        if self.policy.kind == "release" and not self.policy.after:
            self.drop(state)
            return
        if self.policy.kind != "hold":
            self._take(state, state.tokens - state.room)
        self._parked[state] = trio.current_time()
        self.parked.add(1)
        self._newly_parked.unpark_all()
        self._grant()

    def drop(self, state: State) -> None:
        """It is not kept."""
        self._unpark(state)
        self._let_go(state)

    async def _wait(self, state: State, need: int) -> None:
        if not self._waiting and self._fits(need - state.room):
            self._take(state, need - state.room)
            return
        self._let_go(state)  # who waits for room holds none
        granted = trio.Event()
        waits = (state, need, granted)
        self._waiting.append(waits)
        self._grant()
        try:
            await granted.wait()
        except trio.Cancelled:
            if waits in self._waiting:
                self._waiting.remove(waits)
            raise

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0][1]):
            state, need, granted = self._waiting.popleft()
            self._take(state, need)
            granted.set()

    def _fits(self, more: int) -> bool:
        """Whether there is room, perhaps after turning others out."""
        while self.held.now + more > self.capacity and self.policy.kind == "pressure" and self._parked:
            oldest = next(iter(self._parked))
            self._unpark(oldest)
            self._take(oldest, -oldest.room)
            oldest.tokens = 0
        return self.held.now + more <= self.capacity

    def _let_go(self, state: State) -> None:
        self._unpark(state)
        state.tokens = 0
        if state.room:
            self._take(state, -state.room)
            self._grant()

    def _take(self, state: State, more: int) -> None:
        state.room += more
        self.held.add(more)

    def _unpark(self, state: State) -> None:
        if self._parked.pop(state, None) is not None:
            self.parked.add(-1)
