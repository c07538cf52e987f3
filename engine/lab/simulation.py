"""What ``sostenuto simulate`` does with its options: a sweep, progress on standard error, and results wherever they go."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import evolve
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from protocol.codec import encode

from . import outlook
from .command import Outlets, command
from .command import asked as asked_of
from .experiment import Experiment, ExperimentError, check_simulate, workloads
from .places import OnRun, Simulated, sweep
from .scenario import Scenario, Simulate, scenarios


def run(files: Sequence[Path], **options: Any) -> bool:
    """Simulate, and show; false if a signal came before the end. Raises ``ExperimentError`` and ``OSError``."""
    outlets = Outlets.take(options)
    experiment = asked(files, **options)
    wanted = experiment.simulate or Simulate()
    names = [one.name for one in workloads(experiment)]
    count = sum(place.users * wanted.rollouts for place in scenarios(wanted, names))
    with _progress(count) as on_run:
        simulated = sweep(experiment, command=command(), on_run=on_run)
    if simulated is None:
        return False
    _show(simulated, outlets)
    return True


def asked(
    files: Sequence[Path],
    *,
    calls: int | None = None,
    seed: int | None = None,
    tool_seconds: str | None = None,
    prefill: float | None = None,
    rollouts: int | None = None,
    loss: float | None = None,
    costs: Path | None = None,
    **lists: str | None,
) -> Experiment:
    """The experiment of the command line; what options don't say is as a file has it, or as by default. ``lists`` are lists
    of values, joined by commas. Raises ``ExperimentError``."""
    experiment = asked_of(files, calls=calls, seed=seed)
    changes: dict[str, Any] = {
        "prefill_tokens_per_second": prefill,
        "rollouts": rollouts,
        "loss": loss,
        "costs": None if costs is None else str(costs),
        "tool_seconds": None if tool_seconds is None else tuple(tool_seconds.split(",")),
    }
    for name, text in lists.items():
        field_name, kind = LISTS[name]
        changes[field_name] = None if text is None else _listed(name, kind, text)
    simulate = evolve(
        experiment.simulate or Simulate(), **{name: value for name, value in changes.items() if value is not None}
    )
    check_simulate(simulate)
    return evolve(experiment, simulate=simulate)


def _listed(name: str, kind: Callable[[str], Any], text: str) -> tuple[Any, ...]:
    try:
        return tuple(kind(one.strip()) for one in text.split(","))
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise ExperimentError(f"--{name}: expected {what}, joined by commas, got {text!r}") from None


LISTS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "users": ("users", int),
    "slots": ("slots", int),
    "policy": ("policies", str),
    "memory": ("memory_gib", float),
    "speeds": ("tokens_per_second", float),
    "rtt": ("rtt_ms", float),
    "shapes": ("shapes", str),
}
"""Options that are lists: of which field, and of what."""


@contextmanager
def _progress(count: int) -> Iterator[OnRun]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("rollouts", total=count)

        def told(place: Scenario) -> None:
            shown.update(task, advance=1, description=f"{place.users} users, {place.policy}, {place.shape}")

        yield told


def _show(simulated: Simulated, outlets: Outlets) -> None:
    if outlets.html is not None:
        outlets.html.write_text(outlook.page(simulated), encoding="utf-8")
    for folder, form in ((outlets.svg, "svg"), (outlets.png, "png")):
        if folder is not None:
            outlook.draw(simulated, folder, form)
    if outlets.as_json:
        sys.stdout.write(encode(simulated.as_json()).decode() + "\n")
    elif outlets.as_csv:
        sys.stdout.write(outlook.as_csv(simulated))
    else:
        Console().print(outlook.table(simulated))
