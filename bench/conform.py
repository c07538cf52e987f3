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

from .process import ServerProcess
from .report import Row, Sizes, against, interleaved


def conform(sizes: Sizes) -> Iterator[Row]:
    """Conversations of all shapes, as ``sostenuto conform`` plays them."""
    seeds = count()
    with ServerProcess("engine") as engine:
        there = AtUrl(url=f"http://127.0.0.1:{engine.port}")
        memory = InMemory(direct=True)
        pairs = interleaved(
            max(1, sizes.rounds // 5),  # each is minutes of waiting, over sockets
            lambda: _seconds(memory, next(seeds), sizes.conversations),
            lambda: _seconds(there, next(seeds), sizes.conversations),
        )
    what = "a conversation of the conformance kit, in memory : over sockets"
    yield against("conform", what, pairs, target=1 / 20, scale=1e3, unit="ms", conversations=sizes.conversations)


def _seconds(runner: Runner, seed: int, conversations: int) -> float:
    """For one conversation, over as many in each shape."""
    plan = Plan(examples=conversations, probes=(), seed=seed, having=asdict(ALL))
    started = time.perf_counter()
    report = check(runner, adapter=Scripted(), plan=plan)
    assert not report.broken, report.broken
    return (time.perf_counter() - started) / sum(report.examples.values())
