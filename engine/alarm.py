"""A timer that rings in time.

Theory. trio waits with epoll, whose timeouts are whole milliseconds, rounded up: a timer is half a millisecond late on average,
which at 4,000 tokens a second is two tokens. Linux has timers that are file descriptors (timerfd), due to the nanosecond, and
epoll wakes for those at once. Python has them since 3.13; before that the C library is called.
"""

import ctypes
import math
import os
import sys
import time
from functools import cache
from typing import Final, Protocol

import trio
from attrs import define, field

SOONEST: Final = 1e-6
"""Seconds. A timer of none would be one that never rings."""
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC


class _Interval(ctypes.Structure):
    """``struct itimerspec``: how often it rings again, never here, and when it rings first."""

    _fields_ = (
        ("again_s", ctypes.c_long),
        ("again_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


@cache
def _library() -> ctypes.CDLL | None:
    """The C library, where it has such timers."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "timerfd_create") else None


def _is_real() -> bool:
    """Whether trio's time passes by itself: a virtual one stands while a task runs."""
    before, start = trio.current_time(), time.perf_counter()
    while time.perf_counter() == start:
        pass
    return trio.current_time() > before


class Alarm(Protocol):
    """A timer that one task waits for."""

    due: float
    """When it rings: trio's time, infinite for never."""

    def set(self, due: float) -> None:
        """Let it ring at ``due``, and not when it was to ring before."""
        ...

    async def rings(self) -> None:
        """Wait until it does; it is then not set any more. Cancellation leaves it as it is."""
        ...

    def close(self) -> None:
        """Give it back; nobody may wait for it."""
        ...


def open_alarm() -> Alarm:
    """One that is not set: the system's, or trio's where there are none, or none left, or time is virtual."""
    library = _library()
    if library is not None and _is_real():
        file = library.timerfd_create(time.CLOCK_MONOTONIC, _FLAGS)
        if file >= 0:
            return _SystemAlarm(file, library)
    return _TrioAlarm()


@define(eq=False)
class _SystemAlarm:
    _file: int
    _library: ctypes.CDLL
    due: float = math.inf

    def set(self, due: float) -> None:
        self.due = due
        wait = 0.0 if due == math.inf else max(due - trio.current_time(), SOONEST)
        interval = _Interval(0, 0, int(wait), int(wait % 1 * 1e9))
        self._library.timerfd_settime(self._file, 0, ctypes.byref(interval), None)

    async def rings(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._file)
            try:
                os.read(self._file, 8)
            except BlockingIOError:
                continue  # it was set anew in between
            self.due = math.inf
            return

    def close(self) -> None:
        os.close(self._file)


@define(eq=False)
class _TrioAlarm:
    due: float = math.inf
    _sleep: trio.CancelScope = field(factory=trio.CancelScope)

    def set(self, due: float) -> None:
        self.due = self._sleep.deadline = due

    async def rings(self) -> None:
        with trio.CancelScope(deadline=self.due) as self._sleep:
            await trio.sleep_forever()
        self.due = math.inf

    def close(self) -> None:
        pass
