"""Heat maps of a sweep: two axes, and in each field a figure, which is written there, too."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import matplotlib as mpl
from attrs import frozen
from matplotlib.figure import Figure

from .figures import STYLE, Chart, rtt_of, speed_of
from .scenario import AXES, Scenario, swept
from .simulate import Outcome

ACROSS: Final = ("users", "tool_seconds", "tokens_per_second", "slots", "memory_gib", "rtt", "policy", "shape")
"""What goes across if it is swept: the first of these. The next of ``AXES`` goes down."""
NAMES: Final = {
    "users": "users",
    "slots": "slots",
    "policy": "policy",
    "memory_gib": "GiB of memory",
    "shape": "shape",
    "rtt": "network",
    "tokens_per_second": "model's speed",
    "tool_seconds": "seconds of a tool",
}
DARK: Final = 0.6
"""Share of the scale from which on writing is white."""


@frozen
class Shade:
    """What a map shows: how it is found, and written."""

    name: str
    title: str
    caption: str
    value: Callable[[Outcome], float]
    form: str


SHADES: Final = (
    Shade(
        "slowdown",
        "How many times its floor a rollout takes",
        "Medians. The floor is the model's tokens at its speed, the tools, and one round trip per park: what one user alone "
        "would need at the least.",
        lambda one: one.slowdown,
        ".3g",
    ),
    Shade(
        "state",
        "Memory that the model's state takes, in GiB",
        "The mean over the time of the simulation, of all rollouts together.",
        lambda one: one.load.held,
        ".3g",
    ),
    Shade(
        "parked",
        "Parked Responses for each busy slot",
        "Means over the time of the simulation.",
        lambda one: one.load.parked / one.load.busy if one.load.busy else 0.0,
        ".3g",
    ),
)


def heat_maps(outcomes: Sequence[Outcome]) -> Iterator[Chart]:
    """A map of each shade, for each workload and each value of what is swept beyond two axes."""
    axes = swept([one.scenario for one in outcomes])
    across = next((axis for axis in ACROSS if axis in axes), "users")
    down = next((axis for axis in AXES if axis in axes and axis != across), "policy" if across != "policy" else "users")

    def rest(one: Outcome) -> tuple[Any, ...]:
        others = (axis for axis in axes if axis not in (across, down))
        return one.scenario.workload, *(f"{told(one.scenario, axis)}" for axis in others)

    for number, (names, group) in enumerate(groupby(sorted(outcomes, key=rest), rest), 1):
        own = list(group)
        for shade in SHADES:
            if len({f"{shade.value(one):{shade.form}}" for one in own}) > 1:  # differences that nobody can read are none
                with mpl.rc_context(STYLE):
                    yield _map(f"{number}-{shade.name}", ", ".join(names[1:]), own, across, down, shade)


def told(place: Scenario, axis: str) -> str:
    """A place's value on an axis, as people read it."""
    value = getattr(place, axis)
    if axis == "tokens_per_second":
        return speed_of(value)
    if axis == "rtt":
        return rtt_of(value)
    if value is None:
        return "no limit" if axis == "memory_gib" else "the workload's"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _map(name: str, subtitle: str, own: Sequence[Outcome], across: str, down: str, shade: Shade) -> Chart:
    columns = list(dict.fromkeys(told(one.scenario, across) for one in own))
    rows = list(dict.fromkeys(told(one.scenario, down) for one in own))
    values = {(told(one.scenario, down), told(one.scenario, across)): shade.value(one) for one in own}
    table = [[values.get((row, column), math.nan) for column in columns] for row in rows]
    figure = Figure(figsize=(2.4 + 1.0 * len(columns), 1.5 + 0.5 * len(rows)), layout="constrained")
    axes = figure.subplots()
    picture = axes.imshow(table, cmap="YlOrBr", aspect="auto")
    low, high = picture.get_clim()
    for down_at, row in enumerate(table):
        for across_at, value in enumerate(row):
            white = high > low and (value - low) / (high - low) > DARK
            text = "" if math.isnan(value) else f"{value:{shade.form}}"
            axes.text(across_at, down_at, text, ha="center", va="center", color="white" if white else "#222222", fontsize=8)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel(NAMES[across])
    axes.set_ylabel(NAMES[down])
    axes.tick_params(length=0)
    axes.set_title(f"{shade.title}{f'; {subtitle}' if subtitle else ''}", loc="left")
    figure.colorbar(picture, ax=axes, shrink=0.9)
    return Chart(name=name, workload=own[0].scenario.workload, title=shade.title, caption=shade.caption, figure=figure)
