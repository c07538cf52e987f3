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
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import trio
from attrs import define, field
from trio._core import _run

from .. import sleepers
from ..sleepers import Sleepers

T = TypeVar("T")


def run(main: Callable[[], Awaitable[T]], seed: int) -> T:
    """Run ``main`` in virtual time: whenever all tasks wait, the clock jumps to the next deadline. Raises what it raises."""
    with _in_order(seed), _rare_collections():
        return trio.run(main, clock=JumpClock())


@define(eq=False)
class JumpClock(trio.abc.Clock):
    """Begins at 0, and jumps to the next deadline whenever all tasks wait."""

    _now: float = 0.0
    sleepers: Sleepers = field(factory=Sleepers)
    """Whom it wakes."""

    def start_clock(self) -> None:
        """It stands."""

    def current_time(self) -> float:
        """Seconds since the beginning."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Asked when no task can run, with trio's next deadline: jump there, or to the sleepers that are before it."""
        due = min(deadline, self.sleepers.due)
        if due == math.inf:
            return math.inf
        self._now = max(self._now, due)
        self.sleepers.wake(self._now)
        return 0.0


def _clock() -> JumpClock:
    """Only in a simulation."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, JumpClock)
    return clock


@define(eq=False)
class Sleeper(sleepers.Sleeper):
    """A task that sleeps on the clock of a simulation. It is woken once, at the first of the times that were told."""

    _clock: JumpClock = field(factory=_clock)

    def wake_at(self, due: float) -> None:
        """Wake it then."""
        self._clock.sleepers.add(due, self)


async def sleep_until(due: float) -> None:
    """As ``trio.sleep_until``, for much less. Only in a simulation."""
    one = Sleeper()
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
