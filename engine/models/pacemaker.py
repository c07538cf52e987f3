"""One timer for all who wait until their next token is due.

A timer of trio is a cancel scope that ends with an exception; with one for each token they are a third of what a paced token
costs, and where many streams share a processor, that makes all of them late. So those who wait stand in a heap, and one task of
trio's, started with the first of them, sleeps until the earliest is due and wakes all that are due by then.
"""

import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import Final

import trio
from attrs import define, field


@define(eq=False)
class _Waiting:
    task: trio.lowlevel.Task | None


@define(eq=False)
class _Pacemaker:
    """Of one run of trio."""

    _heap: list[tuple[float, int, _Waiting]] = field(factory=list)
    """By time, then in the order in which they came."""
    _numbers: "count[int]" = field(factory=count)
    _sleep: trio.CancelScope = field(factory=trio.CancelScope)

    async def run(self) -> None:
        """Wake who is due, until the run ends."""
        while True:
            due = self._heap[0][0] if self._heap else math.inf
            with trio.CancelScope(deadline=due) as self._sleep:
                await trio.sleep_forever()
            self._wake(trio.current_time())

    async def wait(self, due: float) -> None:
        waiting = _Waiting(trio.lowlevel.current_task())
        heapq.heappush(self._heap, (due, next(self._numbers), waiting))
        if due < self._sleep.deadline:
            self._sleep.deadline = due

        def abort(_: Callable[[], object]) -> trio.lowlevel.Abort:
            waiting.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _wake(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            waiting = heapq.heappop(self._heap)[2]
            if waiting.task is not None:
                trio.lowlevel.reschedule(waiting.task)
                waiting.task = None


_RUNNING: Final = trio.lowlevel.RunVar[_Pacemaker]("sostenuto pacemaker")


async def sleep_until(due: float) -> None:
    """As ``trio.sleep_until``, for less where many do it. Always a checkpoint; cancellation leaves nothing that matters."""
    try:
        pacemaker = _RUNNING.get()
    except LookupError:
        pacemaker = _Pacemaker()
        _RUNNING.set(pacemaker)
        trio.lowlevel.spawn_system_task(pacemaker.run)
    await pacemaker.wait(due)
