"""Something happens at every step: a scenario is run again and again, and each time a bomb goes off one step later.

    async def scenario(bomb):
        async with memory_server(...) as server:
            socket = await server.connect()
            bomb.arm(socket.cut)
            ...
    steps = sweep(scenario)

A step is a task's run from one checkpoint to the next, of any task, counted from ``arm`` on. Bombs are plain functions: they
cut a connection, cancel a scope, cancel a Response. What must hold afterwards the scenario itself checks.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from .servers import virtually

MOST: Final = 5_000
"""A scenario with more steps than this does not end."""


class Bomb(trio.abc.Instrument):
    """Calls what it is armed with at step ``at``."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._steps = 0
        self._act: Callable[[], object] | None = None
        self.went_off = False
        self.error: Exception | None = None

    def arm(self, act: Callable[[], object]) -> None:
        """Count from here; ``act`` is what happens."""
        self._act = act

    def disarm(self) -> None:
        """Nothing happens any more."""
        self._act = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - trio passes it by name or not
        """Trio's call."""
        if self._act is None:
            return
        self._steps += 1
        if self._steps == self._at:
            act, self._act = self._act, None
            self.went_off = True
            try:
                act()
            except Exception as error:
                self.error = error


def sweep(scenario: Callable[[Bomb], Awaitable[None]], *, stride: int = 1) -> int:
    """Run ``scenario`` in virtual time with a bomb at step 1, 1 + ``stride`` and so on, until one is left over.

    Returns the number of runs in which it went off. Raises what the scenario raises.
    """
    for run, at in enumerate(range(1, MOST, stride)):
        bomb = Bomb(at)
        virtually(partial(scenario, bomb), bomb)
        if bomb.error is not None:
            raise bomb.error
        if not bomb.went_off:
            return run
    raise RuntimeError(f"the scenario has more than {MOST} steps")
