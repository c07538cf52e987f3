"""``lab``: whole rollouts, as ``sostenuto compare`` plays them: how far above the floor, and what each shape costs.

The clients, relays and servers are those of ``compare``, each server in a process of its own, cells interleaved. Rollouts are
made up; and recorded, where ``SOSTENUTO_TRAJECTORIES`` names the folder that has them. Tools take no time, so that there is
nothing in which overhead could hide.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import trio
from attrs import evolve

from engine.lab.cells import Cell, Result, Results, Sample
from engine.lab.compare import compare
from engine.lab.experiment import Compare, Experiment, WorkloadTable
from engine.lab.places import sweep
from engine.lab.play import Way
from engine.lab.scenario import Simulate
from engine.lab.workload import Spread

from .process import unpinned
from .report import Pair, Row, Sizes, against

SETTING: Final = "SOSTENUTO_TRAJECTORIES"
RECORDED: Final = ("mini-django-11848-unicode", "mini-sqlfluff-1733-long", "tau2-airline-opus46-par20")
COMMAND: Final = "python -m bench --only lab"

FLOORS: Final = {1_000.0: 1.03, 4_000.0: 1.10}
"""How far above the floor the append shape may be, by tokens a second, in recorded rollouts of real agents. The made-up one has
shorter turns, at each of which something is added."""
RTTS: Final = (0.0, 20.0)
SHAPES: Final[tuple[Way, ...]] = ("append", "create", "http-full")
SAVING: Final = 0.6
"""40 % less, end to end, where all that takes time by itself is away: at the highest speed, without a network."""
FAR_OFF: Final = 0.15
"""How far a prediction may be from what was measured."""
SLOW: Final = 65.0
LONG_CALLS: Final = 10 / 3
"""Times as many calls has the long rollout."""


def lab(sizes: Sizes) -> Iterator[Row]:
    """Rows of made-up rollouts, then of recorded ones."""
    experiment = _made_up(sizes)
    results = _compare(experiment)
    middle, long = (_only(results, one.name) for one in results.workloads)
    yield from _floors(middle, aimed=False)
    yield from _costs(middle, aimed=False)
    yield from _savings(middle, None)
    yield from _savings(_compare(_slow(experiment)), None)
    yield from _savings(long, SAVING)
    yield _prediction(middle, experiment, experiment.workload[1], long, aimed=False)
    folder = os.environ.get(SETTING)
    if folder:
        played = _recorded(Path(folder), sizes)
        recorded = _compare(played)
        yield from _floors(recorded, aimed=True)
        yield from _costs(recorded, aimed=True)
        yield from _savings(recorded, None)
        for one, table in zip(recorded.workloads, played.workload, strict=True):
            yield _prediction(middle, played, table, _only(recorded, one.name), aimed=True)


# ---- what is played


def _made_up(sizes: Sizes) -> Experiment:
    """A rollout of some length, and a long one."""
    middle = {
        "calls": sizes.calls,
        "call_tokens": 30,
        "message_tokens": 20,
        "output_tokens": {"distribution": "lognormal", "value": 400, "sigma": 1.0},
        "instructions_tokens": 2_000,
        "tools": 12,
    }
    calls = int(sizes.calls * LONG_CALLS)
    long = {"calls": calls, "output_tokens": {"value": 2_000}}
    tables = (
        WorkloadTable(name=f"{sizes.calls} calls", tool_seconds=Spread(), extra=middle),
        WorkloadTable(name=f"{calls} calls with long outputs", tool_seconds=Spread(), extra=long),
    )
    return _experiment(sizes.repetitions, tables)


def _slow(experiment: Experiment) -> Experiment:
    """The first of its rollouts, at the speed that models had."""
    asked = evolve(experiment.compare, tokens_per_second=(SLOW,), rtt_ms=(0.0,), shapes=("append", "http-full"), repetitions=1)
    return evolve(experiment, compare=asked, workload=experiment.workload[:1])


def _recorded(folder: Path, sizes: Sizes) -> Experiment:
    files = (str(folder / f"{name}.jsonl") for name in RECORDED)
    tables = tuple(WorkloadTable(file=file, tool_seconds=Spread()) for file in files)
    return _experiment(max(1, sizes.repetitions // 2), tables)


def _experiment(repetitions: int, tables: tuple[WorkloadTable, ...]) -> Experiment:
    return Experiment(
        title="python -m bench",
        seed=1,
        compare=Compare(tokens_per_second=tuple(FLOORS), rtt_ms=RTTS, shapes=SHAPES, repetitions=repetitions),
        workload=tables,
    )


def _compare(experiment: Experiment) -> Results:
    with unpinned():
        return trio.run(partial(compare, experiment, command=COMMAND))


# ---- rows


def _floors(results: Results, *, aimed: bool) -> Iterator[Row]:
    """Append above the floor. ``aimed``: the targets are meant for these rollouts."""
    for one in _of(results, "append"):
        pairs = [(sample.seconds, one.floor) for sample in one.samples]
        what = f"{_place(one.cell)}: append, end to end : the floor"
        target = FLOORS[one.cell.tokens_per_second] if aimed else None
        yield against("lab", what, pairs, target=target, scale=1.0, unit="s")


def _costs(results: Results, *, aimed: bool) -> Iterator[Row]:
    """What the engine spends on a rollout, without a network, at the highest speed. ``aimed`` as for ``_floors``."""
    figures: list[tuple[str, Callable[[Sample], float], dict[Way, float | None]]] = [
        ("seconds of all stages", lambda one: one.work, {"http-full": 0.1, "create": 0.5}),
        ("server CPU", lambda one: one.cpu, {"http-full": None, "create": None}),
    ]
    for ours in _of(results, "append"):
        if ours.cell.rtt or ours.cell.tokens_per_second != max(FLOORS):
            continue
        for name, figure, targets in figures:
            for shape, target in targets.items():
                pairs = _pairs(ours, _like(results, ours.cell, shape), figure)
                what = f"{_place(ours.cell)}: {name}, append : {shape}"
                yield against("lab", what, pairs, target=target if aimed else None, scale=1e3, unit="ms")


def _savings(results: Results, target: float | None) -> Iterator[Row]:
    """Append against the whole history sent each time, end to end. ``target`` is for where it matters most."""
    for ours in _of(results, "append"):
        pairs = _pairs(ours, _like(results, ours.cell, "http-full"), lambda one: one.seconds)
        what = f"{_place(ours.cell)}: end to end, append : http-full"
        aim = target if ours.cell.tokens_per_second == max(FLOORS) and not ours.cell.rtt else None
        yield against("lab", what, pairs, target=aim, scale=1.0, unit="s")


def _prediction(known: Results, experiment: Experiment, workload: WorkloadTable, measured: Results, *, aimed: bool) -> Row:
    """How far ``simulate`` is off, which knows what work costs from another rollout, the ``known``. ``aimed`` as for
    ``_floors``."""
    asked = experiment.compare
    with tempfile.TemporaryDirectory() as folder:
        costs = Path(folder) / "costs.json"
        costs.write_text(json.dumps(known.as_json()))
        table = Simulate(tokens_per_second=asked.tokens_per_second, rtt_ms=asked.rtt_ms, shapes=asked.shapes, costs=str(costs))
        simulated = sweep(evolve(experiment, simulate=table, workload=(workload,)), command=COMMAND)
    assert simulated is not None
    places = {(one.scenario.shape, one.scenario.tokens_per_second, one.scenario.rtt): one for one in simulated.outcomes}
    off = []
    for one in measured.results:
        cell = one.cell
        predicted = places[cell.shape, cell.tokens_per_second, cell.rtt]["seconds"].median
        off.append(abs(predicted / one["seconds"].median - 1.0))
    return Row(
        name="lab",
        what=f"{measured.workloads[0].name}: the most by which a prediction of simulate is off, of {len(off)} cells",
        value=max(off) * 100,
        unit="%",
        target=FAR_OFF * 100 if aimed else None,
    )


def _only(results: Results, workload: str) -> Results:
    return evolve(
        results,
        workloads=[one for one in results.workloads if one.name == workload],
        results=[one for one in results.results if one.cell.workload == workload],
    )


def _of(results: Results, shape: Way) -> Sequence[Result]:
    return [one for one in results.results if one.cell.shape == shape]


def _like(results: Results, cell: Cell, shape: Way) -> Result:
    wanted = evolve(cell, shape=shape)
    return next(one for one in results.results if one.cell == wanted)


def _pairs(ours: Result, theirs: Result, figure: Callable[[Sample], float]) -> list[Pair]:
    return [(figure(one), figure(other)) for one, other in zip(ours.samples, theirs.samples, strict=True)]


def _place(cell: Cell) -> str:
    return f"{cell.workload}, {cell.tokens_per_second:,.0f} tokens/s, {cell.rtt * 1e3:g} ms"
