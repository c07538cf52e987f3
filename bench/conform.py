"""``conform``: a conversation of the conformance kit with the engine in memory, in virtual time, against one over sockets."""

import time
from collections.abc import Iterator
from itertools import count

from attrs import asdict

from engine.testing.runner import InMemory
from protocol.conformance.adapters import Scripted
from protocol.conformance.capabilities import ALL
from protocol.conformance.run import Plan
from protocol.conformance.run import conform as check
from protocol.conformance.runner import AtUrl, Runner
from protocol.conformance.transport import Shape

from .process import ServerProcess
from .report import Row, Sizes, interleaved, ratio, sides

SHAPES: tuple[Shape, ...] = ("append", "create")


def conform(sizes: Sizes) -> Iterator[Row]:
    """Conversations of each shape, as ``sostenuto conform`` plays them."""
    for shape in SHAPES:
        seeds = count()
        with ServerProcess("engine") as engine:
            there = AtUrl(url=f"http://127.0.0.1:{engine.port}")
            pairs = interleaved(
                sizes.rounds,
                lambda: _seconds(InMemory(direct=True), shape, next(seeds), sizes.conversations),  # noqa: B023
                lambda: _seconds(there, shape, next(seeds), sizes.conversations),  # noqa: B023
            )
        yield Row(
            name="conform",
            what=f"a conversation of the kit, {shape}, in memory : over sockets",
            value=ratio(pairs),
            target=1 / 20,
            detail=sides(pairs, 1e3 / sizes.conversations, "ms") | {"conversations": sizes.conversations},
        )


def _seconds(runner: Runner, shape: Shape, seed: int, conversations: int) -> float:
    plan = Plan(shapes=[shape], examples=conversations, probes=(), seed=seed, having=asdict(ALL))
    started = time.perf_counter()
    report = check(runner, adapter=Scripted(), plan=plan)
    assert not report.broken, report.broken
    return time.perf_counter() - started
