"""A timer that rings in time.

Theory. trio waits with epoll, whose timeouts are whole milliseconds, rounded up: a timer is half a millisecond late on average,
which at 4,000 tokens a second is two tokens. Linux has timers that are file descriptors (timerfd), due to the nanosecond, and
epoll wakes for those at once. Python has them since 3.13; before that the C library is called.
"""

import ctypes
import os
import sys
import time
from functools import cache
from typing import Final

import trio
from attrs import define

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
    """Whether trio's time goes as the system's does: in a virtual one, who waits for a minute need not sleep for it."""
    clock = trio.lowlevel.current_clock()
    return 59.0 < clock.deadline_to_sleep_time(clock.current_time() + 60.0) <= 60.0


@define(eq=False)
class Alarm:
    """One timer, that one task waits for. ``due`` is when it rings: trio's time, infinite for never."""

    due: float
    _file: int
    _library: ctypes.CDLL

    @classmethod
    def create(cls) -> "Alarm | None":
        """One that is not set; None where there are none, or where trio's time is not the system's.

        Raises ``OSError`` if the process has no file descriptor left.
        """
        library = _library()
        if library is None or not _is_real():
            return None
        file = library.timerfd_create(time.CLOCK_MONOTONIC, _FLAGS)
        if file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        return cls(float("inf"), file, library)

    def set(self, due: float) -> None:
        """Let it ring at ``due``, and not when it was to ring before."""
        self.due = due
        wait = 0.0 if due == float("inf") else max(due - trio.current_time(), SOONEST)
        interval = _Interval(0, 0, int(wait), int(wait % 1 * 1e9))
        self._library.timerfd_settime(self._file, 0, ctypes.byref(interval), None)

    async def rings(self) -> None:
        """Wait until it does; it is then not set any more. Cancellation leaves it as it is."""
        while True:
            await trio.lowlevel.wait_readable(self._file)
            try:
                os.read(self._file, 8)
            except BlockingIOError:
                continue  # it was set anew in between
            self.due = float("inf")
            return

    def close(self) -> None:
        """Give it back; nobody may wait for it."""
        os.close(self._file)
