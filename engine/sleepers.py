"""Tasks that sleep until a time: whoever knows what time it is wakes them, without a cancel scope for each."""

import heapq
import math
from collections.abc import Callable, Iterator
from itertools import count

import trio
from attrs import define, field


@define(eq=False)
class Sleeper:
    """The task that makes it, about to sleep. It is woken once, by whoever is first."""

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


@define(eq=False)
class Sleepers:
    """Who is to be woken when."""

    _heap: list[tuple[float, int, Sleeper]] = field(factory=list)
    """By time, then in the order in which they came."""
    _numbers: Iterator[int] = field(factory=count)

    @property
    def due(self) -> float:
        """When the next one is to be woken; infinite if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def add(self, due: float, sleeper: Sleeper) -> None:
        """Wake ``sleeper`` then."""
        heapq.heappush(self._heap, (due, next(self._numbers), sleeper))

    def wake(self, now: float) -> None:
        """Wake all that are due."""
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2].wake()
