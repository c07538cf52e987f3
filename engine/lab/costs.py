"""What work costs, in seconds of virtual time, in which it would take none.

A stage's cost has a constant part for each run, and parts for each item and token that it looks at or makes. What is around
the stages (JSON and frames at both ends, sockets, timers that ring late, the beginning and end of a Response) costs something
for each Response, for each message of the client's, and for each of its bytes.

``measured`` takes them from the results of a comparison: the stages' from what the server's reports say, the others from how
far each rollout was above its floor, by least squares of which none is negative.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from operator import mul
from pathlib import Path
from typing import Any, Final

from attrs import asdict, evolve, field, frozen

from protocol.codec import from_wire, parse
from protocol.errors import ProtocolError
from protocol.fields import Json, unknown_fields

from ..stages.counters import STAGES, Count, Counters, Stage
from .cells import STAGES_SHOWN

ALIKE: Final = 1e-9
"""Columns of which so little is their own can't be told apart."""


class CostsError(ValueError):
    """A file from which costs can't be taken."""


@frozen(kw_only=True)
class StageCost:
    """Of one stage, in seconds: of each run, and of each item and token."""

    run: float = 0.0
    item: float = 0.0
    token: float = 0.0

    def of(self, runs: int, items: int, tokens: int) -> float:
        """Seconds."""
        return self.run * runs + self.item * items + self.token * tokens


@frozen(kw_only=True)
class Costs:
    """What a simulation charges, in seconds. By default nothing."""

    stages: Mapping[str, StageCost] = field(factory=dict)
    response: float = 0.0
    """Of each Response, beside its stages."""
    message: float = 0.0
    """Of each message that the client sends."""
    byte: float = 0.0
    """Of each byte of it."""
    extra: Json = unknown_fields()

    def price(self, counters: Counters) -> float:
        """As ``Services.price``."""
        return math.fsum(self._stage(stage, count) for stage, count in counters.units())

    def charge(self, size: int) -> float:
        """Of a message of the client's."""
        return self.message + self.byte * size

    def reported(self, report: Mapping[str, Any]) -> dict[str, float]:
        """By stage, of those that have run before the report of a Response (``response.engine``) was written."""
        told: Mapping[str, Mapping[str, Any]] = report["stages"]
        return {
            stage: self.stages[stage].of(one["full"] + one["incremental"], one["items"], one["tokens"])
            for stage, one in told.items()
            if stage in self.stages
        }

    def _stage(self, stage: Stage, count: Count) -> float:
        beginning = self.response * count.full if stage == "validate" else 0.0
        cost = self.stages.get(stage)
        if cost is None:
            return beginning
        return beginning + cost.of(count.full + count.incremental, count.items, count.tokens)

    def as_json(self) -> dict[str, Any]:
        """As results carry them, and files may have them."""
        stages = {stage: {name: value for name, value in asdict(one).items() if value} for stage, one in self.stages.items()}
        return {"stages": stages, "response": self.response, "message": self.message, "byte": self.byte}


USUAL: Final = Costs(
    stages={
        "validate": StageCost(run=12e-6),
        "route": StageCost(run=1.5e-6),
        "classify": StageCost(run=6e-6),
        "render": StageCost(run=40e-6, token=0.35e-6),
        "classify_output": StageCost(run=3e-6),
    },
    response=0.8e-3,
    message=0.9e-3,
    byte=30e-9,
)
"""Rounded, from the processor's time in comparisons on a machine of two processors. ``--costs`` takes those of another."""


# ---- read from files


def read_costs(path: Path) -> Costs:
    """Costs from a file of JSON: results of ``compare --json``, or costs as results of ``simulate`` have them. Raises
    ``CostsError``."""
    try:
        told = parse(path.read_bytes())
        if not isinstance(told, dict):
            raise CostsError("neither results of a comparison nor costs")
        return measured(told) if "cells" in told else _written(told.get("costs", told))
    except OSError as error:
        raise CostsError(f"{path}: can't be read: {error.strerror or error}") from None
    except ProtocolError as error:
        raise CostsError(f"{path}: {error.message}") from None
    except (KeyError, TypeError, AttributeError):
        raise CostsError(f"{path}: not the results of a comparison") from None
    except CostsError as error:
        raise CostsError(f"{path}: {error}") from None


def _written(told: Mapping[str, Any]) -> Costs:
    """As ``Costs.as_json`` has them. Raises ``CostsError`` and ``ProtocolError``."""
    rest = {name: value for name, value in told.items() if name != "stages"}
    costs, stages = from_wire(rest, Costs), told.get("stages", {})
    if unknown := sorted({*costs.extra, *(stages.keys() - set(STAGES))}):
        raise CostsError(f"{unknown[0]}: no such field or stage")
    return evolve(costs, stages={stage: from_wire(one, StageCost) for stage, one in stages.items()})


def measured(results: Mapping[str, Any]) -> Costs:
    """Costs from the results of a comparison. Raises ``CostsError`` if nothing can be learned from them."""
    turns = {one["name"]: one["turns"] for one in results["workloads"]}
    cells = [one for one in results["cells"] if not one["no_reuse"]]
    near = [one for one in cells if not one["rtt_ms"]] or cells
    paced = [one for one in near if one["tokens_per_second"]] or near  # else streaming as fast as can be is in it
    if not paced:
        raise CostsError("no cell of the comparison reuses all that it can")
    rows = [(turns[one["workload"]], one["responses"]["median"], one["bytes_up"]["median"]) for one in paced]
    over = [one["seconds"]["median"] - one["floor"] - math.fsum(one["stage_seconds"].values()) for one in paced]
    message, response, byte = fit(rows, over)
    stages: dict[str, StageCost] = {stage: _stage(stage, cells) for stage in STAGES_SHOWN}
    return Costs(stages=stages, response=response, message=message, byte=byte)


def _stage(stage: Stage, cells: Sequence[Mapping[str, Any]]) -> StageCost:
    runs = [one["stage_runs"][stage] + (one["parks"]["median"] if stage in STAGES[:4] else 0) for one in cells]
    seconds = [one["stage_seconds"][stage] for one in cells]
    if stage != "render":
        return StageCost(run=fit([(run,) for run in runs], seconds)[0])
    rendered = [one["tokens_rendered"]["median"] for one in cells]
    run, token = fit(list(zip(runs, rendered, strict=True)), seconds)
    return StageCost(run=run, token=token)


def fit(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Factors, none of them negative, with which the rows come nearest to the values: relative to these, in least squares."""
    scaled = [([one / value for one in row], 1.0) for row, value in zip(rows, values, strict=True) if value > 0]
    width = len(rows[0])
    best, least = [0.0] * width, float(len(scaled))
    for chosen in (subset for size in range(1, width + 1) for subset in itertools.combinations(range(width), size)):
        factors = _solved([[row[at] for at in chosen] for row, _ in scaled])
        if factors is None or min(factors) < 0:
            continue
        whole = [0.0] * width
        for at, factor in zip(chosen, factors, strict=True):
            whole[at] = factor
        error = math.fsum((math.fsum(map(mul, row, whole)) - 1.0) ** 2 for row, _ in scaled)
        if error < least:
            best, least = whole, error
    return best


def _solved(rows: Sequence[Sequence[float]]) -> list[float] | None:
    """Least squares for values that are all 1, by the normal equations; None if they have no one solution."""
    size = len(rows[0]) if rows else 0
    table = [
        [math.fsum(row[a] * row[b] for row in rows) for b in range(size)] + [math.fsum(row[a] for row in rows)]
        for a in range(size)
    ]
    diagonal = [table[at][at] for at in range(size)]
    for at in range(size):
        if table[at][at] <= ALIKE * diagonal[at]:
            return None
        for other in range(size):
            if other != at:
                factor = table[other][at] / table[at][at]
                table[other] = [left - factor * right for left, right in zip(table[other], table[at], strict=True)]
    return [table[at][size] / table[at][at] for at in range(size)] if size else None
