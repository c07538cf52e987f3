"""What is measured: cells, what one repetition brought, and what several amount to."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import asdict, field, frozen

from ..config import REUSE
from ..stages.counters import STAGES
from .child import Spent
from .play import Played, Way
from .timeline import Timeline, ToolTimes, TurnTimes
from .workload import Workload

PARTS: Final = ("sampling", "tools", "network", "engine", "rest")
"""Where the time goes."""
STAGES_SHOWN: Final = STAGES[:5]
"""Those whose seconds a Response reports: the last two run when it has been sent."""


@frozen(kw_only=True)
class Cell:
    """One place of the comparison. Times are seconds."""

    workload: str
    shape: Way
    tokens_per_second: float
    """Infinite: as fast as can be."""
    rtt: float
    no_reuse: tuple[str, ...] = ()
    """Kinds of reuse that the server has turned off."""

    @property
    def label(self) -> str:
        """The shape, and what is turned off."""
        off = "all" if set(self.no_reuse) == REUSE else ",".join(self.no_reuse)
        return f"{self.shape} -{off}" if off else self.shape


@frozen(kw_only=True)
class Sample:
    """One rollout of a cell, played once. Times are seconds.

    ``sampling`` is the model's own time, its tokens divided by its speed. ``engine`` is what the Responses took beyond that
    while they didn't wait for the client, by the server's account (``response.engine``); ``stages`` is the part of it that
    the stages took. ``tools`` is how long the model waited for the client's tools; ``network`` is one round trip per turn;
    ``rest`` is what is left: JSON and frames at both ends, sockets, timers that ring late.
    """

    seconds: float
    sampling: float
    engine: float
    tools: float
    network: float
    rest: float
    stages: float
    cpu: float
    """Of the server's process."""
    work: float
    """Of all stages, by the ledger: also what runs while the client goes on already."""
    bytes_up: int
    bytes_down: int
    tokens_rendered: int
    responses: int
    parks: int
    stage_runs: Mapping[str, int]
    """Full runs, by stage."""
    stage_seconds: Mapping[str, float]
    turns: Sequence[TurnTimes] = field(repr=False)
    tool_runs: Sequence[ToolTimes] = field(repr=False)


def sample(cell: Cell, workload: Workload, played: Played, timeline: Timeline, spent: Spent) -> Sample:
    """What one playing of ``cell`` has brought."""
    reports = [response["engine"] for response in played.responses]
    turns = timeline.turns
    sampling = workload.tokens / cell.tokens_per_second
    stages = {
        stage: math.fsum(report["stages"].get(stage, {}).get("seconds", 0.0) for report in reports)
        for stage in reports[0]["stages"]
    }
    parts = {
        "sampling": sampling,
        "engine": _total(reports, "seconds", "sampling") + _total(reports, "seconds", "engine") - sampling,
        "tools": math.fsum(max(0.0, turn.answered - turn.ended) for turn in turns if turn.answered and turn.ended),
        "network": cell.rtt * len(turns),
    }
    return Sample(
        seconds=timeline.seconds,
        **parts,
        rest=timeline.seconds - math.fsum(parts.values()),
        stages=math.fsum(stages.values()),
        cpu=spent.cpu,
        work=spent.stages,
        bytes_up=played.bytes_up,
        bytes_down=played.bytes_down,
        tokens_rendered=sum(report["tokens_rendered"] for report in reports),
        responses=len(reports),
        parks=sum(report["parks"] for report in reports),
        stage_runs={stage: _total(reports, "stage_runs", stage) for stage in reports[0]["stage_runs"]},
        stage_seconds=stages,
        turns=turns,
        tool_runs=timeline.tools,
    )


def _total(reports: Sequence[Mapping[str, Any]], group: str, name: str) -> Any:
    return sum(report[group][name] for report in reports)


# ---- several repetitions


@frozen
class Figure:
    """A median and its spread: the quartiles. Of one value, all three are it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        """Of at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)


MEASURES: Final[dict[str, Callable[[Sample], float]]] = {
    "seconds": lambda one: one.seconds,
    **{part: (lambda one, part=part: getattr(one, part)) for part in PARTS},  # type: ignore[misc]
    "stages": lambda one: one.stages,
    "work": lambda one: one.work,
    "first_token": lambda one: statistics.median(first_tokens(one)),
    "server_cpu": lambda one: one.cpu,
    "bytes_up": lambda one: one.bytes_up,
    "bytes_down": lambda one: one.bytes_down,
    "tokens_rendered": lambda one: one.tokens_rendered,
    "responses": lambda one: one.responses,
    "parks": lambda one: one.parks,
}
"""What of a sample becomes a figure of its cell; ``first_token`` is the median over its turns."""


def first_tokens(one: Sample) -> list[float]:
    """The time to the first token of each turn."""
    return [turn.first_token - turn.asked for turn in one.turns if turn.first_token is not None]


@frozen
class Result:
    """A cell, and all that was measured in it."""

    cell: Cell
    workload: Workload
    samples: Sequence[Sample] = field(repr=False)

    @property
    def floor(self) -> float:
        """The least that its rollout can take; see ``Workload.floor``."""
        return self.workload.floor(self.cell.tokens_per_second, self.cell.rtt)

    @property
    def over_floor(self) -> float:
        """How much longer it took, as a share of the floor."""
        return self["seconds"].median / self.floor - 1.0 if self.floor else math.inf

    def __getitem__(self, measure: str) -> Figure:
        """One of ``MEASURES``."""
        return Figure.of([MEASURES[measure](one) for one in self.samples])

    @property
    def typical(self) -> Sample:
        """The sample whose time is nearest to the median."""
        median = self["seconds"].median
        return min(self.samples, key=lambda one: abs(one.seconds - median))

    @property
    def overheads(self) -> list[tuple[int, float]]:
        """For each turn the tokens in front of it, and the median wait for its first token beyond network and model."""
        own = self.cell.rtt + 1.0 / self.cell.tokens_per_second
        waits = zip(*(first_tokens(one) for one in self.samples), strict=False)
        histories = [turn.history for turn in self.workload.turns]
        return [(history, statistics.median(each) - own) for history, each in zip(histories, waits, strict=False)]

    @property
    def stage_seconds(self) -> dict[str, float]:
        """Medians, by stage."""
        stages = self.samples[0].stage_seconds
        return {stage: statistics.median(one.stage_seconds.get(stage, 0.0) for one in self.samples) for stage in stages}

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        typical = self.typical
        return {
            "workload": self.cell.workload,
            "shape": self.cell.shape,
            "tokens_per_second": None if math.isinf(self.cell.tokens_per_second) else self.cell.tokens_per_second,
            "rtt_ms": round(self.cell.rtt * 1e3, 3),
            "no_reuse": list(self.cell.no_reuse),
            "repetitions": len(self.samples),
            "floor": round(self.floor, 6),
            "over_floor": round(self.over_floor, 4) if math.isfinite(self.over_floor) else None,
            **{name: _rounded(self[name]) for name in MEASURES},
            "stage_runs": dict(typical.stage_runs),
            "stage_seconds": {stage: round(seconds, 6) for stage, seconds in self.stage_seconds.items()},
            "overhead_by_history": [[history, round(wait, 6)] for history, wait in self.overheads],
            "turns": [_rounded(turn) for turn in typical.turns],
            "tool_runs": [_rounded(run) for run in typical.tool_runs],
        }


def _rounded(value: Any) -> dict[str, Any]:
    return {name: round(one, 6) if isinstance(one, float) else one for name, one in asdict(value).items()}


@frozen(kw_only=True)
class Results:
    """A whole comparison: what was measured, and how to measure it again."""

    version: str
    command: str
    machine: Mapping[str, Any]
    experiment: Mapping[str, Any]
    workloads: Sequence[Workload]
    results: Sequence[Result] = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "sostenuto": self.version,
            "command": self.command,
            "machine": dict(self.machine),
            "experiment": dict(self.experiment),
            "workloads": [
                {
                    "name": one.name,
                    "turns": len(one.turns),
                    "calls": sum(turn.calls for turn in one.turns),
                    "tokens": one.tokens,
                    "tool_seconds": round(one.tool_seconds, 6),
                }
                for one in self.workloads
            ],
            "cells": [result.as_json() for result in self.results],
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each cell, as ``--csv`` prints them: a figure is three columns, its median and its quartiles."""
        return [_flat(result.as_json()) for result in self.results]


def _flat(cell: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in cell.items():
        if name in ("overhead_by_history", "turns", "tool_runs"):
            continue
        if name == "no_reuse":
            row[name] = " ".join(value)
        elif isinstance(value, dict) and "median" in value:
            row |= {name: value["median"], f"{name}_low": value["low"], f"{name}_high": value["high"]}
        elif isinstance(value, dict):
            row |= {f"{name}_{key}": one for key, one in value.items()}
        else:
            row[name] = value
    return row
