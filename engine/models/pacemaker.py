"""One timer for all who wait until their next token is due.

A timer of trio is a cancel scope that ends with an exception; with one for each token they are a third of what a paced token
costs, and where many streams share a processor, that makes all of them late. So those who wait stand in a heap, and one task of
trio's, started with the first of them, waits for an alarm that is set for the earliest, and wakes all that are due by then.
"""

from typing import Final

import trio
from attrs import define, field

from ..alarm import Alarm, open_alarm
from ..sleepers import Sleeper, Sleepers


@define(eq=False)
class _Pacemaker:
    """Of one run of trio."""

    _sleepers: Sleepers = field(factory=Sleepers)
    _alarm: Alarm = field(factory=open_alarm)

    async def run(self) -> None:
        """Wake who is due, until the run ends."""
        try:
            while True:
                await self._alarm.rings()
                self._sleepers.wake(trio.current_time())
                self._set()
        finally:
            self._alarm.close()

    async def wait(self, due: float) -> None:
        sleeper = Sleeper()
        self._sleepers.add(due, sleeper)
        self._set()
        await sleeper.sleep()

    def _set(self) -> None:
        if self._sleepers.due < self._alarm.due:
            self._alarm.set(self._sleepers.due)


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
