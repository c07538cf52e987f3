"""Experiments end in good order when a signal says so: what they have begun is ended, and nothing is left."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import trio

from ..client import background

T = TypeVar("T")
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def until_signal(job: Callable[[], Awaitable[T]]) -> T | None:
    """What ``job`` returns; None when Ctrl-C, or another signal to end, came first: it is cancelled then.

    Raises what it raises.
    """
    outcome: T | None = None
    heeded = [one for one in ENDING if signal.getsignal(one) is not signal.SIG_IGN]  # nohup ignores SIGHUP, for example
    with trio.open_signal_receiver(*heeded) as signals:
        async with background() as nursery:
            nursery.start_soon(_cancel_on, signals, nursery.cancel_scope)
            outcome = await job()
    return outcome


async def _cancel_on(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()
