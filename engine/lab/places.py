"""Sweeps: all places of a simulation, one after the other, and what came of them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from . import virtual
from .costs import USUAL, Costs, CostsError, read_costs
from .experiment import Experiment, ExperimentError, spread, workloads
from .scenario import GIB, Scenario, Simulate, scenarios
from .signals import until_signal
from .simulate import Outcome, Run, capacity, simulate, whole
from .workload import Spread, Workload

OnRun = Callable[[Scenario], object]


@frozen(kw_only=True)
class Simulated:
    """A whole sweep: what came out, and how to have it again. There is nothing in it but what the seed decides."""

    version: str
    command: str
    experiment: Mapping[str, Any]
    costs: Costs
    workloads: Sequence[Workload]
    outcomes: Sequence[Outcome] = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "sostenuto": self.version,
            "command": self.command,
            "experiment": dict(self.experiment),
            "costs": self.costs.as_json(),
            "workloads": [
                {"name": one.name, "turns": len(one.turns), "tokens": one.tokens, "tool_seconds": round(one.tool_seconds, 6)}
                for one in self.workloads
            ],
            "places": [one.as_json() for one in self.outcomes],
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each place, as ``--csv`` prints them: a figure is three columns, its median and its quartiles."""
        return [_flat(one.as_json()) for one in self.outcomes]


def _flat(place: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in place.items():
        if isinstance(value, dict):
            row |= {name: value["median"], f"{name}_low": value["low"], f"{name}_high": value["high"]}
        else:
            row[name] = value
    return row


# ---- the sweep


def sweep(experiment: Experiment, *, command: str, on_run: OnRun = lambda _: None) -> Simulated | None:
    """Simulate all places, one after the other; None if a signal came before the end. Raises ``ExperimentError``."""
    asked = experiment.simulate or Simulate()
    played = workloads(experiment)
    tables = {one.name: (one, table.tool_seconds) for one, table in zip(played, experiment.workload, strict=True)}
    costs = _costs(asked)
    places = list(scenarios(asked, list(tables)))
    for place in places:
        _check_memory(asked, place, tables[place.workload][0])
    outcomes: list[Outcome] = []
    for place in places:
        workload, own = tables[place.workload]
        job = partial(
            simulate,
            asked,
            place,
            workload,
            _tool_seconds(place, own),
            costs=costs,
            seed=experiment.seed,
            on_run=partial(_on_run, on_run, place),
        )
        outcome = virtual.run(partial(until_signal, job), experiment.seed)
        if outcome is None:
            return None
        outcomes.append(outcome)
    return Simulated(
        version=version("sostenuto"),
        command=command,
        experiment=evolve(experiment, simulate=asked).as_json(),
        costs=costs,
        workloads=played,
        outcomes=outcomes,
    )


def _on_run(on_run: OnRun, place: Scenario, _: Run) -> None:
    on_run(place)


def _costs(asked: Simulate) -> Costs:
    if asked.costs is None:
        return USUAL
    try:
        return read_costs(Path(asked.costs))
    except CostsError as error:
        raise ExperimentError(str(error)) from None


def _check_memory(asked: Simulate, place: Scenario, workload: Workload) -> None:
    need = whole(workload)
    if need > capacity(asked, place):
        gib = need * asked.kv_bytes_per_token / GIB
        raise ExperimentError(f"simulate.memory_gib: one rollout of {workload.name!r} alone takes {gib:.3g} GiB")


def _tool_seconds(place: Scenario, own: Spread | None) -> Spread | None:
    """What tools take, drawn anew for each rollout; None where each takes what it takes in the workload."""
    if place.tool_seconds is not None:
        return spread(place.tool_seconds)
    return own if own is not None and own.distribution != "recorded" else None
