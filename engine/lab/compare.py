"""``sostenuto compare``: plays workloads in each shape, at each speed and distance, over sockets, against servers of their own.

Cells are interleaved: one repetition of each in its turn, so that what disturbs the machine for a while disturbs all alike.
Each plays on a connection that has served a small rollout before, as an agent's has. A server is a process of its own, and
plays one rollout at a time, so that its CPU time is that rollout's; so is each relay. The clients are all in this process.

``append``, ``create`` and ``http-full`` ask that nothing be stored, as Codex does; ``http`` by ``previous_response_id`` needs
it.
"""

import math
import os
import platform
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import trio
from attrs import define, field

from .. import tokens
from ..client import RolloutError
from ..trajectories import AssistantRecord, Rollout, UserRecord, write_rollout
from .cells import Cell, Result, Results, Sample, sample
from .child import Child
from .experiment import Compare, Experiment, side_by_side, variants, workloads
from .lean import open_play
from .play import Player, Way
from .timeline import Timeline
from .workload import Workload

WARM_UP: Final = Workload("(warm-up)", Rollout("", "", None, (), (UserRecord("Hello."), AssistantRecord("Hello."))))
STORES: Final[Mapping[Way, bool]] = {"append": False, "create": False, "http": True, "http-full": False}

OnSample = Callable[[Cell, Sample], object]


async def compare(experiment: Experiment, *, command: str, on_sample: OnSample = lambda _, __: None) -> Results:
    """Measure. Raises ``ExperimentError``, ``RolloutError``, ``ConnectionLost``, ``ChildFailed`` and ``OSError``.

    Cancelled, it leaves no process and no file.
    """
    await trio.to_thread.run_sync(tokens.load)
    played = workloads(experiment)
    measured: dict[Cell, list[Sample]] = {cell: [] for cell in cells(experiment.compare, played)}

    def note(cell: Cell, one: Sample) -> None:
        measured[cell].append(one)
        on_sample(cell, one)

    async with _open_stage(played, experiment.compare) as stage:
        for _ in range(experiment.compare.repetitions):
            for speed in experiment.compare.tokens_per_second:
                of_speed = [cell for cell in measured if cell.tokens_per_second == speed]
                await _in_turn(stage, of_speed, side_by_side(experiment.compare, speed), note)
    by_name = {one.name: one for one in played}
    return Results(
        version=version("sostenuto"),
        command=command,
        machine=machine(),
        experiment=experiment.as_json(),
        workloads=played,
        results=[Result(cell, by_name[cell.workload], samples) for cell, samples in measured.items()],
    )


def cells(asked: Compare, played: Sequence[Workload]) -> list[Cell]:
    """All cells, the shapes of one workload, speed and distance next to each other."""
    return [
        Cell(workload=one.name, shape=shape, tokens_per_second=speed, rtt=rtt / 1e3, no_reuse=no_reuse)
        for one in played
        for rtt in asked.rtt_ms
        for speed in asked.tokens_per_second
        for shape, no_reuse in variants(asked)
    ]


def machine() -> dict[str, Any]:
    """What of this machine matters. It names nobody."""
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "cpus": len(affinity(0)) if affinity else os.cpu_count(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


async def _in_turn(stage: "_Stage", waiting: list[Cell], at_once: int, note: OnSample) -> None:
    """Play each cell once, so many at the same time."""
    queue = iter(waiting)
    failures: list[Exception] = []

    async def work(scope: trio.CancelScope) -> None:
        try:
            for cell in queue:
                note(cell, await stage.play(cell))
        except Exception as error:  # goes out as it is, not in the nursery's group
            failures.append(error)
            scope.cancel()

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(work, nursery.cancel_scope)
    if failures:
        raise failures[0]


@define(eq=False)
class _Host:
    """A server, and the relays to it, by round trip time."""

    server: Child
    relays: dict[float, Child] = field(factory=dict)

    async def url(self, rtt: float) -> str:
        """Where it is, so far away. Raises ``ChildFailed``."""
        if rtt and rtt not in self.relays:
            self.relays[rtt] = await Child.start("relay", port=self.server.port, one_way=rtt / 2)
        port = self.relays[rtt].port if rtt else self.server.port
        return f"http://127.0.0.1:{port}/v1"


class _Stage:
    """Servers for all cells, started when they are needed."""

    def __init__(self, played: Sequence[Workload], folder: Path, asked: Compare) -> None:
        self._played = {one.name: one for one in played}
        self._models = {
            _model(one, speed): {
                "file": str(folder / f"{number}.jsonl"),
                "tokens_per_second": None if math.isinf(speed) else speed,
            }
            for number, one in enumerate([*played, WARM_UP])
            for speed in asked.tokens_per_second
        }
        for number, one in enumerate([*played, WARM_UP]):
            write_rollout(one.rollout, folder / f"{number}.jsonl")
        self._all: list[_Host] = []
        self._idle: dict[tuple[str, ...], list[_Host]] = {}

    async def play(self, cell: Cell) -> Sample:
        """Play it once. Raises ``RolloutError``, ``ConnectionLost``, ``ChildFailed``."""
        host = await self._take(cell.no_reuse)
        workload = self._played[cell.workload]
        url = await host.url(cell.rtt)
        async with open_play(url, cell.shape, store=STORES[cell.shape]) as play:
            await play(Player(WARM_UP.rollout, real_time=True), _model(WARM_UP, cell.tokens_per_second))
            before = await host.server.spent()
            timeline = Timeline([turn.items for turn in workload.turns])
            player = Player(workload.rollout, real_time=True, watcher=timeline)
            played = await play(player, _model(workload, cell.tokens_per_second))
            spent = await host.server.spent() - before
        status = played.responses[-1]["status"]
        if status != "completed" or len(timeline.turns) != len(workload.turns):
            turns = f"{len(timeline.turns)} of {len(workload.turns)} turns"
            raise RolloutError("not_played", f"{cell.workload}, {cell.label}: {status} after {turns}")
        self._idle[cell.no_reuse].append(host)
        return sample(cell, workload, played, timeline, spent)

    async def _take(self, no_reuse: tuple[str, ...]) -> _Host:
        idle = self._idle.setdefault(no_reuse, [])
        if idle:
            return idle.pop()
        host = _Host(await Child.start("server", models=self._models, no_reuse=list(no_reuse)))
        self._all.append(host)
        return host

    async def aclose(self) -> None:
        """End all processes, side by side, within a deadline; also when it is cancelled."""
        async with trio.open_nursery() as nursery:
            for host in self._all:
                for child in (*host.relays.values(), host.server):
                    nursery.start_soon(child.aclose)


def _model(workload: Workload, tokens_per_second: float) -> str:
    return f"{workload.name}@{tokens_per_second:g}"


@asynccontextmanager
async def _open_stage(played: Sequence[Workload], asked: Compare) -> AsyncIterator[_Stage]:
    with tempfile.TemporaryDirectory(prefix="sostenuto-compare-") as folder:
        stage = await trio.to_thread.run_sync(partial(_Stage, played, Path(folder), asked))
        try:
            yield stage
        finally:
            await stage.aclose()
