"""Experiments: what is compared, or simulated, as the command line or a TOML file says it.

title = "The headline"
seed = 1

[compare]
tokens_per_second = [65, 1000]
rtt_ms = [0, 20]
repetitions = 5

[[workload]]
calls = 24
tool_seconds = {distribution = "lognormal", value = 0.2}

[[workload]]
file = "rollout.jsonl"          # a recorded one; the path is seen from the experiment's file
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import asdict, evolve, fields_dict, frozen

from protocol.codec import from_wire
from protocol.errors import ProtocolError
from protocol.fields import Json, unknown_fields

from ..config import REUSE
from ..trajectories import RolloutError, read_rollout
from .play import WAYS, Way
from .scenario import Simulate
from .workload import RECORDED, Spread, Synthetic, Workload, with_tool_seconds


class ExperimentError(ValueError):
    """An experiment that can't be: the message says which file and field, and what is wanted."""


@frozen(kw_only=True)
class Compare:
    """The cells of a comparison: each workload at each speed and distance, in each shape."""

    tokens_per_second: tuple[float, ...] = (65, 300, 1000, 4000)
    rtt_ms: tuple[float, ...] = (0, 20, 80)
    shapes: tuple[Way, ...] = WAYS
    ablation: bool = False
    """Whether the shapes that reuse something are measured with each kind of reuse turned off, too, and with all of them."""
    repetitions: int = 3
    side_by_side: int | None = None
    """Rollouts of one speed that are played at the same time, each on a server of its own; if not given, as many as disturb
    nothing: several of a slow model, one of a fast one."""
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class WorkloadTable:
    """A ``[[workload]]``: a ``file``, or the parameters of ``Synthetic``, which are in ``extra``."""

    name: str | None = None
    file: str | None = None
    tool_seconds: Spread | None = None
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class Experiment:
    """All that one needs to measure it again."""

    title: str = ""
    """Of the page with its results; one that says what was done if it is empty."""
    seed: int = 0
    compare: Compare = Compare()
    simulate: Simulate | None = None
    workload: tuple[WorkloadTable, ...] = (WorkloadTable(name="synthetic"),)
    extra: Json = unknown_fields()

    def as_json(self) -> dict[str, Any]:
        """As results carry it: the form of the TOML file."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


DEFAULT_TOOL_SECONDS: Final = Spread(value=0.01)
"""Of synthetic workloads: reading a file takes about that long."""
SLOW_TOKENS: Final = 600
"""Tokens a second, all rollouts that are played at the same time together, which a processor streams without noticing."""
MOST_SIDE_BY_SIDE: Final = 4


def side_by_side(compare: Compare, tokens_per_second: float) -> int:
    """How many rollouts of a model of this speed are played at the same time."""
    if compare.side_by_side is not None:
        return compare.side_by_side
    return max(1, min(MOST_SIDE_BY_SIDE, int(SLOW_TOKENS / tokens_per_second)))


def variants(compare: Compare) -> Iterator[tuple[Way, tuple[str, ...]]]:
    """Each shape with what is turned off in it; without an ablation that is nothing.

    What the append shape does not do twice it can't reuse, and a full history reuses nothing: they have no variants.
    """
    for shape in compare.shapes:
        yield shape, ()
        if compare.ablation and shape in ("create", "http"):
            yield from ((shape, (kind,)) for kind in sorted(REUSE))
            yield shape, tuple(sorted(REUSE))


# ---- reading


def read_experiment(path: Path) -> Experiment:
    """The experiment in a TOML file; files of workloads are found from there. Raises ``ExperimentError``."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExperimentError(f"{path}: can't be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ExperimentError(f"{path}: not valid TOML: {error}") from None
    try:
        experiment = from_wire(_with_spreads(table), Experiment)
        check(experiment)
    except ProtocolError as error:
        raise ExperimentError(f"{path}: {error.message}") from None
    except ExperimentError as error:
        raise ExperimentError(f"{path}: {error}") from None
    here = path.parent
    simulate = experiment.simulate
    if simulate is not None and simulate.costs is not None:
        simulate = evolve(simulate, costs=str(here / simulate.costs))
    return evolve(experiment, simulate=simulate, workload=tuple(_from(here, one) for one in experiment.workload))


def _from(folder: Path, table: WorkloadTable) -> WorkloadTable:
    return table if table.file is None else evolve(table, file=str(folder / table.file))


def _with_spreads(table: Mapping[str, Any]) -> dict[str, Any]:
    """A bare number where a ``Spread`` may stand is a constant."""

    def full(name: str, value: Any) -> Any:
        is_number = name in ("tool_seconds", "output_tokens") and type(value) in (int, float)
        return {"value": value} if is_number else value

    workloads = table.get("workload")
    if not isinstance(workloads, list) or not all(isinstance(one, dict) for one in workloads):
        return dict(table)
    return {**table, "workload": [{name: full(name, value) for name, value in one.items()} for one in workloads]}


def check(experiment: Experiment) -> None:
    """Raises ``ExperimentError`` for what is out of range, or unknown."""
    compare = experiment.compare
    _no_more(experiment.extra, "", Experiment)
    _no_more(compare.extra, "compare.", Compare)
    if experiment.simulate is not None:
        check_simulate(experiment.simulate)
    for number, table in enumerate(experiment.workload):
        _synthetic(table, f"workload[{number}].")
    wanted = {
        "compare.tokens_per_second: at least one, each above 0": bool(compare.tokens_per_second)
        and min(compare.tokens_per_second, default=0) > 0,
        "compare.rtt_ms: at least one, each 0 or more": min(compare.rtt_ms, default=-1) >= 0,
        "compare.shapes: at least one": bool(compare.shapes),
        "compare.repetitions: 1 or more": compare.repetitions >= 1,
        "compare.side_by_side: 1 or more": compare.side_by_side is None or compare.side_by_side >= 1,
        "workload: at least one": bool(experiment.workload),
    }
    for what, holds in wanted.items():
        if not holds:
            raise ExperimentError(what)


def check_simulate(asked: Simulate) -> None:
    """Raises ``ExperimentError`` for what is out of range, or unknown."""
    _no_more(asked.extra, "simulate.", Simulate)
    for what, holds in asked.wanted().items():
        if not holds:
            raise ExperimentError(f"simulate.{what}")
    for text in asked.tool_seconds:
        spread(text)


def _no_more(extra: Json, where: str, cls: type) -> None:
    if extra:
        known = ", ".join(sorted(fields_dict(cls).keys() - {"extra"}))
        raise ExperimentError(f"{where}{min(extra)}: no such field; there are {known}")


def _synthetic(table: WorkloadTable, where: str) -> Synthetic | None:
    """The parameters of a made-up rollout; None if it is a recorded one."""
    known = fields_dict(Synthetic).keys()
    if unknown := sorted(table.extra.keys() - known):
        raise ExperimentError(
            f"{where}{unknown[0]}: no such field; there are file, name, tool_seconds, {', '.join(sorted(known))}"
        )
    if table.file is not None:
        if table.extra:
            raise ExperimentError(f"{where}{min(table.extra)}: a file is given; this is for made-up rollouts")
        return None
    try:
        synthetic = from_wire(table.extra, Synthetic)
    except ProtocolError as error:
        raise ExperimentError(f"{where}{error.message}") from None
    if synthetic.calls < 0 or synthetic.parallel < 1:
        raise ExperimentError(f"{where}calls: 0 or more, and parallel: 1 or more")
    return synthetic


def spread(text: str) -> Spread:
    """A ``Spread`` as the command line has it: ``0.2``, ``recorded``, ``exponential:0.2``, ``lognormal:0.2:1.0``.

    Raises ``ExperimentError``.
    """
    first, *numbers = text.split(":")
    try:
        if not numbers and first != "recorded":
            return Spread(value=float(first))
        named = dict(zip(("value", "sigma"), map(float, numbers), strict=False))
        return from_wire({"distribution": first, **named}, Spread)
    except (ValueError, ProtocolError):
        forms = "a number of seconds, recorded, exponential:MEAN or lognormal:MEDIAN:SIGMA"
        raise ExperimentError(f"{text!r} is none of {forms}") from None


# ---- workloads


def workloads(experiment: Experiment) -> Sequence[Workload]:
    """What is played. Raises ``ExperimentError`` for a file that can't be read, and for a name that stands twice."""
    made = [_workload(table, experiment.seed, number) for number, table in enumerate(experiment.workload)]
    names = [one.name for one in made]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ExperimentError(f"two workloads have the name {twice[0]!r}")
    return made


def _workload(table: WorkloadTable, seed: int, number: int) -> Workload:
    synthetic = _synthetic(table, f"workload[{number}].")
    if synthetic is not None:
        rollout = synthetic.rollout(table.tool_seconds or DEFAULT_TOOL_SECONDS, seed)
        return Workload(table.name or f"{synthetic.calls} calls", rollout)
    path = Path(table.file or "")
    try:
        rollout = read_rollout(path)
    except (RolloutError, OSError) as error:
        raise ExperimentError(str(error)) from None
    return Workload(table.name or path.stem, with_tool_seconds(rollout, table.tool_seconds or RECORDED, seed))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        flat = {**value, **value.get("extra", {})}
        return {name: _plain(one) for name, one in flat.items() if name != "extra" and one is not None}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
