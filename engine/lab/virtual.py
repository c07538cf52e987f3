"""Virtual time in which the same things happen in the same order each time, to the last digit.

trio turns the tasks of a tick about by chance, so that nobody relies on their order. Two users who want the last slot at the
same instant then get it in one order today and in another one tomorrow. For tests under Hypothesis trio has a switch and a
source of chance that can be seeded; both are private, and a simulation needs them, too.
"""

import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import trio
import trio.testing
from trio._core import _run

T = TypeVar("T")


def run(main: Callable[[], Awaitable[T]], seed: int) -> T:
    """Run ``main`` in virtual time: whenever all tasks wait, the clock jumps to the next deadline. Raises what it raises."""
    with _in_order(seed), _rare_collections():
        return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


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
