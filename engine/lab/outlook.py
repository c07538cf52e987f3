"""How results of a simulation look: a table for a terminal, a page with heat maps, pictures, CSV."""

import json
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Final

from rich import box
from rich.table import Table

from .places import Simulated
from .report import STYLE, as_csv
from .scenario import AXES, Scenario, swept
from .simulate import PARTS, Outcome

__all__ = ["as_csv", "draw", "page", "table"]

Column = tuple[str, Callable[[Outcome], str]]


def _median(measure: str) -> Callable[[Outcome], str]:
    return lambda one: f"{one[measure].median:,.2f}"


MAIN: Final[tuple[Column, ...]] = (
    ("s", _median("seconds")),
    ("×floor", lambda one: f"{one.slowdown:.2f}"),
    ("waits", lambda one: f"{one['queue'].median + one['memory'].median:,.2f}"),
    ("reads", _median("prefill")),
    ("busy", lambda one: f"{one.load.busy:,.2f}"),
    ("parked", lambda one: f"{one.load.parked:,.1f}"),
    ("GiB", lambda one: f"{one.load.held:,.1f}"),
)
CAPTION: Final = (
    "Medians of rollouts, in seconds: end to end, times the floor, waiting for a slot or memory, the model's reading. Means "
    "over time: slots that are busy, Responses that are parked, the model's state."
)


def table(simulated: Simulated) -> Table:
    """The most important figures, for a terminal of 80 columns."""
    axes = _axes(simulated)
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=CAPTION)
    for axis in axes:
        shown.add_column(SHORT[axis], no_wrap=True)
    for name, _ in MAIN:
        shown.add_column(name, justify="right", no_wrap=True)
    for one in simulated.outcomes:
        shown.add_row(*(_value(one.scenario, axis) for axis in axes), *(show(one) for _, show in MAIN))
    return shown


SHORT: Final = {
    "workload": "workload",
    "shape": "shape",
    "tokens_per_second": "tok/s",
    "rtt": "RTT",
    "users": "users",
    "slots": "slots",
    "policy": "policy",
    "memory_gib": "limit",
    "tool_seconds": "tools",
}


def _axes(simulated: Simulated) -> list[str]:
    places = [one.scenario for one in simulated.outcomes]
    several = ["workload"] if len(simulated.workloads) > 1 else []
    return [*several, *(axis for axis in reversed(AXES) if axis in swept(places))] or ["users"]


def _value(place: Scenario, axis: str) -> str:
    value = getattr(place, axis)
    if axis == "rtt":
        return f"{value * 1e3:g} ms"
    if value is None:
        return "none" if axis == "memory_gib" else "own"
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---- the page


def page(simulated: Simulated) -> str:
    """One page of HTML that needs nothing beside it. Needs matplotlib."""
    title = escape(str(simulated.experiment.get("title") or "Simulation of the shapes"))
    sections = "".join(_sections(simulated))
    experiment = escape(json.dumps(simulated.experiment, indent=1, ensure_ascii=False))
    costs = escape(json.dumps(simulated.costs.as_json(), indent=1))
    head = (
        f'<meta charset="utf-8"><title>{title}</title><meta name="viewport" content="width=device-width">'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style>'
    )
    body = (
        f'<h1>{title}</h1><p class="small">sostenuto {escape(simulated.version)}, in virtual time, seed '
        f"{simulated.experiment.get('seed', 0)}, by <code>{escape(simulated.command)}</code>.</p>{sections}"
        f"<h2>How it was simulated</h2><p>The experiment:</p><pre>{experiment}</pre>"
        f"<p>What work costs, in seconds:</p><pre>{costs}</pre>"
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _sections(simulated: Simulated) -> Iterator[str]:
    from .heatmap import heat_maps

    charts = list(heat_maps(simulated.outcomes))
    for workload in simulated.workloads:
        yield f"<h2>{escape(workload.name)}</h2>"
        for chart in charts:
            if chart.workload == workload.name:
                svg = chart.svg()
                svg = svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{escape(chart.title)}"', 1)
                caption = f"<figcaption>{escape(chart.caption)}</figcaption>"
                yield f"<h3>{escape(chart.title)}</h3><figure>{svg}{caption}</figure>"
    yield f'<h2>All figures</h2><div class="wide">{_figures(simulated)}</div>'


def _figures(simulated: Simulated) -> str:
    axes = _axes(simulated)
    columns: list[Column] = [
        *MAIN,
        *((f"{part}, s", _median(part)) for part in PARTS),
        ("peak GiB", lambda one: f"{one.load.held_peak:,.1f}"),
        ("peak parked", lambda one: f"{one.load.parked_peak:,.0f}"),
        ("tokens read again", lambda one: f"{sum(run.read_again for run in one.runs):,}"),
    ]
    head = "".join(f'<th class="left">{SHORT[axis]}</th>' for axis in axes) + "".join(f"<th>{name}</th>" for name, _ in columns)
    rows = "".join(
        "<tr>"
        + "".join(f'<td class="left">{escape(_value(one.scenario, axis))}</td>' for axis in axes)
        + "".join(f"<td>{show(one)}</td>" for _, show in columns)
        + "</tr>"
        for one in simulated.outcomes
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def draw(simulated: Simulated, folder: Path, form: str) -> None:
    """Write the heat maps into ``folder``, as ``png`` or ``svg``. Raises ``OSError``."""
    from .heatmap import heat_maps

    folder.mkdir(parents=True, exist_ok=True)
    for chart in heat_maps(simulated.outcomes):
        data = chart.png() if form == "png" else chart.svg().encode()
        (folder / f"{chart.name}.{form}").write_bytes(data)
