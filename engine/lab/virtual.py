"""Virtual time in which the same things happen in the same order each time, to the last digit.

trio turns the tasks of a tick about by chance, so that nobody relies on their order. Two users who want the last slot at the
same instant then get it in one order today and in another one tomorrow. For tests under Hypothesis trio has a switch and a
source of chance that can be seeded; both are private, and a simulation needs them, too.

A simulation is timers, mostly. trio's are cancel scopes, each of which ends with an exception: that is most of what a sleep
costs. So the clock of a simulation, which is asked whenever all tasks wait, knows when those that sleep by ``sleep_until`` want
to go on, and wakes them itself. It jumps one step of the loop sooner than ``trio.testing.MockClock`` does, and reads no other
clock.
"""

import gc
import heapq
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

import trio
from attrs import define, field
from trio._core import _run

T = TypeVar("T")


def run(main: Callable[[], Awaitable[T]], seed: int) -> T:
    """Run ``main`` in virtual time: whenever all tasks wait, the clock jumps to the next deadline. Raises what it raises."""
    with _in_order(seed), _rare_collections():
        return trio.run(main, clock=JumpClock())


@define(eq=False)
class Sleeper:
    """A task that sleeps on the clock of a simulation. It is woken once, at the first of the times that were told."""

    _clock: "JumpClock"
    _task: trio.lowlevel.Task | None = field(factory=trio.lowlevel.current_task)

    async def sleep(self) -> None:
        """Sleep until it is woken; to be awaited at once by the task that has made it. Cancelled, nobody is woken."""

        def abort(_: Callable[[], object]) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def wake(self) -> None:
        """Wake it now, if it sleeps."""
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    def wake_at(self, due: float) -> None:
        """Wake it then."""
        self._clock.add(due, self)


@define(eq=False)
class JumpClock(trio.abc.Clock):
    """Begins at 0, and jumps to the next deadline whenever all tasks wait."""

    _now: float = 0.0
    _sleepers: list[tuple[float, int, Sleeper]] = field(factory=list)
    """A heap, by time, then in the order in which they came."""
    _numbers: Iterator[int] = field(factory=count)

    def start_clock(self) -> None:
        """It stands."""

    def current_time(self) -> float:
        """Seconds since the beginning."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Asked when no task can run, with trio's next deadline: jump there, or to the sleepers that are before it."""
        due = min(deadline, self._sleepers[0][0]) if self._sleepers else deadline
        if due == math.inf:
            return math.inf
        self._now = max(self._now, due)
        while self._sleepers and self._sleepers[0][0] <= self._now:
            heapq.heappop(self._sleepers)[2].wake()
        return 0.0

    def add(self, due: float, sleeper: Sleeper) -> None:
        """Wake ``sleeper`` then."""
        heapq.heappush(self._sleepers, (due, next(self._numbers), sleeper))


def sleeper() -> Sleeper:
    """The task that asks, about to sleep. Only in a simulation."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, JumpClock)
    return Sleeper(clock)


async def sleep_until(due: float) -> None:
    """As ``trio.sleep_until``, for much less. Only in a simulation."""
    one = sleeper()
    one.wake_at(due)
    await one.sleep()


@contextmanager
def _in_order(seed: int) -> Iterator[None]:
    trios: Any = _run
    switch, state = trios._ALLOW_DETERMINISTIC_SCHEDULING, trios._r.getstate()
    trios._ALLOW_DETERMINISTIC_SCHEDULING = True
    trios._r.seed(seed)
    try:
        yield
    finally:
        trios._ALLOW_DETERMINISTIC_SCHEDULING = switch
        trios._r.setstate(state)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """A thousand live Responses are many objects, and hardly one of them is garbage: don't look at all of them so often."""
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
