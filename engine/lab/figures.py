"""The charts of a comparison, drawn with matplotlib, for a page or a paper.

Colours are those of Okabe and Ito, which people with any kind of colour vision can tell apart; what a chart says it says with
places and words, too. The same results give the same SVG, byte for byte.
"""

import io
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
from attrs import frozen
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from .cells import PARTS, Result, Results, Sample
from .workload import Workload

COLOURS: Final = {
    "sampling": "#56B4E9",
    "tools": "#F0C95C",
    "network": "#B9A3D0",
    "engine": "#D55E00",
    "rest": "#9A9A9A",
    "wait": "#D55E00",
}
SHAPES: Final = {"append": "#0072B2", "create": "#009E73", "http": "#E69F00", "http-full": "#CC3311"}
NAMES: Final = {
    "sampling": "the model samples",
    "tools": "the client's tools",
    "network": "network",
    "engine": "the engine",
    "rest": "the rest: sockets, JSON, timers",
}
INK: Final = "#333333"
STYLE: Final[Any] = {
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.edgecolor": "#BBBBBB",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",
    "svg.hashsalt": "sostenuto",
    "hatch.linewidth": 0.6,
}
WIDTH: Final = 11.0
"""Inches."""
TURNS_SHOWN: Final = 6
"""Turns of a timeline: as many as one can tell apart."""
TIMELINE_SPEED: Final = 1000.0
"""The timeline is that of the speed nearest to this one: there one sees both the model and what is around it."""
BAND: Final = 15
"""Turns over which the line through the overheads takes its median."""


@frozen(kw_only=True)
class Chart:
    """A chart of one workload. ``name`` is good for a file; ``caption`` says what one sees."""

    name: str
    workload: str
    title: str
    caption: str
    figure: Figure

    def svg(self) -> str:
        """As SVG, to stand in a page or a file."""
        return self._saved("svg", metadata={"Date": None}).decode()

    def png(self) -> bytes:
        """As PNG, 200 dots an inch."""
        return self._saved("png", dpi=200, metadata={"Software": None})

    def _saved(self, form: str, **options: Any) -> bytes:
        buffer = io.BytesIO()
        with mpl.rc_context(STYLE):
            self.figure.savefig(buffer, format=form, facecolor="white", **options)
        return buffer.getvalue()


def charts(results: Results) -> Iterator[Chart]:
    """The charts of each workload: where the time goes, the overhead by history, a timeline."""
    for number, workload in enumerate(results.workloads):
        own = [one for one in results.results if one.cell.workload == workload.name]
        for draw in (_where_time_goes, _overhead, _timeline):
            with mpl.rc_context(STYLE):
                yield draw(f"{number + 1}", workload, own)


def speed_of(tokens_per_second: float) -> str:
    """As people read it."""
    return "instant model" if math.isinf(tokens_per_second) else f"{tokens_per_second:,.10g} tokens/s"


def rtt_of(rtt: float) -> str:
    """As people read it."""
    return f"RTT {rtt * 1e3:.3g} ms"


# ---- where the time goes


def _where_time_goes(prefix: str, workload: Workload, own: Sequence[Result]) -> Chart:
    rtts = sorted({one.cell.rtt for one in own})
    speeds = sorted({one.cell.tokens_per_second for one in own})
    bars = len({one.cell.label for one in own})
    size = (WIDTH, 0.9 + len(rtts) * (0.55 + 0.24 * bars))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rtts), len(speeds), squeeze=False)
    for row, rtt in enumerate(rtts):
        for column, speed in enumerate(speeds):
            group = [one for one in own if (one.cell.rtt, one.cell.tokens_per_second) == (rtt, speed)]
            axes = grid[row][column]
            _bars(axes, group, with_labels=column == 0)
            axes.set_title(f"{speed_of(speed)}, {rtt_of(rtt)}", loc="left")
            if row == len(rtts) - 1:
                axes.set_xlabel("seconds")
    handles = [Patch(color=COLOURS[part], label=NAMES[part]) for part in PARTS]
    floor = Line2D([], [], color=INK, linestyle=(0, (4, 2)), label="the floor")
    figure.legend(handles=[*handles, floor], loc="outside upper left", ncols=len(handles) + 1, frameon=False)
    return Chart(
        name=f"{prefix}-time",
        workload=workload.name,
        title="End to end, and where the time goes",
        caption=(
            "Medians of whole rollouts. The floor is the model's tokens at its speed, the tools, and one round trip per park; "
            "the number behind a bar is how far it is above that. Each panel has a scale of its own."
        ),
        figure=figure,
    )


def _bars(axes: Axes, group: Sequence[Result], *, with_labels: bool) -> None:
    places = range(len(group))
    left = [0.0] * len(group)
    for part in PARTS:
        widths = [max(0.0, one[part].median) for one in group]
        axes.barh(places, widths, left=left, height=0.72, color=COLOURS[part])
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for place, one in zip(places, group, strict=True):
        over = f"+{one.over_floor:.0%}" if math.isfinite(one.over_floor) else ""
        axes.text(left[place], place, f" {one['seconds'].median:.3g} s  {over}", va="center", fontsize=7.5)
    axes.axvline(group[0].floor, color=INK, linewidth=1.0, linestyle=(0, (4, 2)))
    axes.set_yticks(list(places), [one.cell.label for one in group] if with_labels else [""] * len(group))
    axes.set_ylim(len(group) - 0.5, -0.5)
    axes.set_xlim(0, max(left) * 1.32)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.tick_params(length=0)


# ---- the overhead of a turn against its history


def _overhead(prefix: str, workload: Workload, own: Sequence[Result]) -> Chart:
    rtt = min(one.cell.rtt for one in own)
    speed = max(one.cell.tokens_per_second for one in own)
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    axes = figure.subplots()
    ends: dict[str, tuple[float, float]] = {}
    for one in own:
        cell = one.cell
        if (cell.rtt, cell.tokens_per_second) == (rtt, speed) and not cell.no_reuse:
            histories, waits = zip(*one.overheads[1:] or one.overheads, strict=True)
            ends[cell.shape] = _through(axes, histories, [wait * 1e3 for wait in waits], SHAPES[cell.shape])
    top = 1.15 * max(height for _, height in ends.values())
    axes.set_ylim(0, top)
    _name(axes, ends, top / 14)
    axes.set_xlabel("history in front of the turn, in tokens")
    axes.set_ylabel("milliseconds")
    axes.grid(axis="y", color="#E6E6E6")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_title(f"{speed_of(speed)}, {rtt_of(rtt)}", loc="left")
    return Chart(
        name=f"{prefix}-overhead",
        workload=workload.name,
        title="The overhead of a turn, by its history",
        caption=(
            "From the moment when the last result is ready until the first token of what follows has come, without the "
            "network's round trip and the model's first token. A dot is a turn, the median over the repetitions; lines are "
            "medians of turns. Single turns that lie far above are not shown."
        ),
        figure=figure,
    )


def _through(axes: Axes, xs: Sequence[float], ys: Sequence[float], colour: str) -> tuple[float, float]:
    """Dots, and a line through their medians; returns where it ends, and the most that is worth to be seen."""
    axes.plot(xs, ys, ".", color=colour, alpha=0.35, markersize=5, markeredgewidth=0)
    half = BAND // 2
    smooth = [statistics.median(ys[max(0, at - half) : at + half + 1]) for at in range(len(ys))]
    axes.plot(xs, smooth, color=colour, linewidth=2.0)
    return smooth[-1], max(*smooth, sorted(ys)[len(ys) * 9 // 10])


def _name(axes: Axes, ends: Mapping[str, tuple[float, float]], gap: float) -> None:
    """The names of the lines at their ends, none upon another."""
    right = axes.dataLim.x1
    last = -math.inf
    for shape, (end, _) in sorted(ends.items(), key=lambda one: one[1][0]):
        last = max(end, last + gap)
        place: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "annotation_clip": False}
        axes.annotate(shape, (right, last), color=SHAPES[shape], weight="bold", **place)


# ---- timelines


def _timeline(prefix: str, workload: Workload, own: Sequence[Result]) -> Chart:
    rtt = max(one.cell.rtt for one in own)
    speed = min({one.cell.tokens_per_second for one in own}, key=lambda speed: abs(math.log(speed / TIMELINE_SPEED)))
    group = [one for one in own if (one.cell.rtt, one.cell.tokens_per_second) == (rtt, speed) and not one.cell.no_reuse]
    figure = Figure(figsize=(WIDTH, 1.0 + 0.85 * len(group)), layout="constrained")
    axes = figure.subplots()
    for row, one in enumerate(group):
        _track(axes, row, one)
    axes.set_yticks(range(len(group)), [one.cell.label for one in group])
    axes.set_ylim(len(group) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds since the first create")
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"{speed_of(speed)}, {rtt_of(rtt)}", loc="left")
    handles = [
        Patch(facecolor="white", edgecolor=INK, label="a Response"),
        Patch(facecolor="white", edgecolor="#888888", hatch="////", label="it is parked"),
        Patch(color=COLOURS["network"], label="network"),
        Patch(color=COLOURS["wait"], label="wait for the first token beyond that"),
        Patch(color=COLOURS["sampling"], label=NAMES["sampling"]),
        Patch(color=COLOURS["tools"], label=NAMES["tools"]),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), frameon=False)
    shown = min(TURNS_SHOWN, len(workload.turns))
    return Chart(
        name=f"{prefix}-timeline",
        workload=workload.name,
        title="One rollout in each shape",
        caption=(
            f"The first {shown} of {len(workload.turns)} turns, as the client saw them. Above, the Responses as they live on "
            "the server: in the append shape it is one, which parks at each call of a tool and resumes in the same place; in "
            "the others each turn is one of its own."
        ),
        figure=figure,
    )


def _track(axes: Axes, row: int, one: Result) -> None:
    """A rollout: its Responses above, which see all half a round trip earlier or later; what the client sees below."""
    typical = one.typical
    turns = typical.turns[:TURNS_SHOWN]
    if one.cell.shape == "append":
        _box(axes, row, one.cell.rtt / 2, _until(typical, len(turns)))
    way = one.cell.rtt / 2
    for turn in turns:
        first, ended = turn.first_token or turn.asked, turn.ended or turn.asked
        if one.cell.shape != "append":
            _box(axes, row, turn.asked + way, ended - way)
        elif turn.answered:
            _box(axes, row, ended - way, turn.answered + way, hatch="////")
        far = min(turn.asked + one.cell.rtt, first)
        _segment(axes, row, turn.asked, far, COLOURS["network"])
        _segment(axes, row, far, first, COLOURS["wait"])
        _segment(axes, row, first, ended, COLOURS["sampling"])
        _segment(axes, row, ended, turn.answered or ended, COLOURS["tools"])


def _until(typical: Sample, shown: int) -> float:
    last = typical.turns[shown - 1]
    return (last.answered if shown < len(typical.turns) else last.ended) or 0.0


def _box(axes: Axes, row: int, start: float, end: float, **style: Any) -> None:
    edge = "#888888" if style else INK
    axes.barh(row - 0.27, end - start, left=start, height=0.2, facecolor="white", edgecolor=edge, linewidth=0.9, **style)


def _segment(axes: Axes, row: int, start: float, end: float, colour: str) -> None:
    if end > start:
        axes.barh(row + 0.08, end - start, left=start, height=0.42, color=colour, linewidth=0)
