"""The report of a comparison: one page of HTML that needs nothing beside it, with charts and a table; and the same as CSV."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final, Protocol

from .cells import STAGES_SHOWN, Figure, Result, Results
from .workload import Workload

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 2rem auto; max-width: 74rem; padding: 0
1rem } h1 { font-size: 1.6rem; margin-bottom: .2rem } h2 { font-size: 1.25rem; margin-top: 2.6rem; border-bottom: 1px solid
#ddd } h3 { font-size: 1.05rem; margin-bottom: .3rem } .small, figcaption { color: #555; font-size: .88rem } figure { margin:
1.2rem 0 } figure svg { width: 100%; height: auto } .wide { overflow-x: auto } table { border-collapse: collapse; font-size:
.85rem; font-variant-numeric: tabular-nums } th, td { padding: .2rem .55rem; text-align: right; white-space: nowrap } th {
border-bottom: 1px solid #999; font-weight: 600 } th.left, td.left { text-align: left } tbody tr.group td { border-top: 1px
solid #ddd } td .spread { color: #777; font-size: .92em } tr.append td { background: #eef5fb } code, pre { font-size: .85rem;
background: #f5f5f5; padding: .1rem .3rem; border-radius: 3px } pre { padding: .6rem; overflow-x: auto }
"""

Column = tuple[str, Callable[[Result], str]]


def page(results: Results) -> str:
    """The page. Needs matplotlib."""
    from .figures import charts

    title = escape(str(results.experiment.get("title") or "Comparison of the shapes"))
    drawn = list(charts(results))
    sections: list[str] = []
    for workload in results.workloads:
        sections.append(f"<h2>{escape(workload.name)}</h2><p>{_told(workload)}</p>")
        own = [one for one in results.results if one.cell.workload == workload.name]
        sections.append(_saving(own))
        for chart in drawn:
            if chart.workload == workload.name:
                svg = chart.svg()
                svg = svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{escape(chart.title)}"', 1)
                caption = f"<figcaption>{escape(chart.caption)}</figcaption>"
                sections.append(f"<h3>{chart.title}</h3><figure>{svg}{caption}</figure>")
        sections.append(f'<h3>All figures</h3><div class="wide">{_table(own)}</div>')
    head = (
        f'<meta charset="utf-8"><title>{title}</title><meta name="viewport" content="width=device-width">'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style>'
    )
    body = f"<h1>{title}</h1>{_head(results)}{''.join(sections)}{_notes(results)}"
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _head(results: Results) -> str:
    machine = results.machine
    return (
        f'<p class="small">sostenuto {escape(results.version)} on {machine["cpus"]} processors, Python {machine["python"]}, '
        f"{machine['system']} {machine['architecture']}; seed {results.experiment.get('seed', 0)}. "
        f"Measured by <code>{escape(results.command)}</code>.</p>"
    )


def _told(workload: Workload) -> str:
    calls = sum(turn.calls for turn in workload.turns)
    return (
        f"{len(workload.turns)} turns, {calls} tool calls, {workload.tokens:,} tokens sampled, {workload.tool_seconds:.3g} s "
        f"of tools, up to {workload.turns[-1].history:,} tokens of history."
    )


# ---- tables


def _saving(own: Sequence[Result]) -> str:
    """How much sooner append ends than the others, by speed and distance."""
    by_place = {(one.cell.tokens_per_second, one.cell.rtt, one.cell.label): one["seconds"].median for one in own}
    others = list(dict.fromkeys(one.cell.label for one in own if one.cell.shape != "append" and not one.cell.no_reuse))
    places = list(dict.fromkeys((one.cell.tokens_per_second, one.cell.rtt) for one in own))
    if not any((*place, "append") in by_place for place in places) or not others:
        return ""
    head = "".join(f"<th>than {escape(label)}</th>" for label in others)
    rows = []
    for speed, rtt in places:
        ours = by_place[speed, rtt, "append"]
        saved = "".join(f"<td>{1 - ours / by_place[speed, rtt, label]:.1%}</td>" for label in others)
        rows.append(f"<tr><td>{_speed(speed)}</td><td>{rtt * 1e3:.3g}</td>{saved}</tr>")
    return (
        "<h3>How much sooner append ends</h3>"
        f'<div class="wide"><table><thead><tr><th>tokens/s</th><th>RTT, ms</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _milliseconds(measure: str) -> Callable[[Result], str]:
    return lambda one: _spread(one[measure], 1e3, len(one.samples))


def _spread(figure: Figure, factor: float, samples: int) -> str:
    median = f"{figure.median * factor:,.1f}"
    if samples == 1:
        return median
    return f'{median} <span class="spread">{figure.low * factor:,.1f}–{figure.high * factor:,.1f}</span>'


def _count(measure: str, factor: float = 1.0) -> Callable[[Result], str]:
    return lambda one: f"{one[measure].median * factor:,.0f}"


def _speed(speed: float) -> str:
    return "instant" if math.isinf(speed) else f"{speed:,.10g}"


def _stage(stage: str) -> Column:
    return f"{stage}, ms", lambda one: f"{one.stage_seconds.get(stage, 0.0) * 1e3:,.2f}"


COLUMNS: Final[tuple[Column, ...]] = (
    ("tokens/s", lambda one: _speed(one.cell.tokens_per_second)),
    ("RTT, ms", lambda one: f"{one.cell.rtt * 1e3:.3g}"),
    ("shape", lambda one: escape(one.cell.label)),
    ("end to end, ms", _milliseconds("seconds")),
    ("over floor", lambda one: f"{one.over_floor:.1%}" if math.isfinite(one.over_floor) else ""),
    ("first token, ms", _milliseconds("first_token")),
    ("engine, ms", _milliseconds("engine")),
    ("stages, ms", _milliseconds("stages")),
    ("tools, ms", _milliseconds("tools")),
    ("network, ms", _milliseconds("network")),
    ("rest, ms", _milliseconds("rest")),
    ("server CPU, ms", _milliseconds("server_cpu")),
    ("kB up", _count("bytes_up", 1e-3)),
    ("kB down", _count("bytes_down", 1e-3)),
    ("tokens rendered", _count("tokens_rendered")),
    ("Responses", _count("responses")),
    ("stage runs", lambda one: f"{sum(one.typical.stage_runs.values()):,}"),
    *map(_stage, STAGES_SHOWN),
)


def _table(own: Sequence[Result]) -> str:
    head = "".join(f"<th{_side(name)}>{name}</th>" for name, _ in COLUMNS)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(_rows(own))}</tbody></table>"


def _rows(own: Iterable[Result]) -> Iterator[str]:
    place = None
    for one in own:
        new = (one.cell.tokens_per_second, one.cell.rtt)
        classes = f"{one.cell.shape}{' group' if new != place else ''}"
        place = new
        yield f'<tr class="{classes}">{"".join(f"<td{_side(name)}>{show(one)}</td>" for name, show in COLUMNS)}</tr>'


def _side(name: str) -> str:
    return ' class="left"' if name == "shape" else ""


NOTES: Final = """
One repetition of each cell in its turn; figures are medians, and behind them the quartiles. Each server is a process of its
own, the network is a relay that delays both directions and does not limit their rate, and the client of each shape is the
same few lines. <b>Over floor</b>: how much longer than the model's tokens at its speed, the tools, and one round trip per
park. <b>First token</b>: from the last result being ready to the first token of what follows, median over the turns.
<b>Engine</b>: what the Responses took beyond the model's own time, by the server's account; <b>stages</b> is the part of it
that is work before and after inference. <b>Rest</b>: JSON and frames at both ends, sockets, timers that ring late. Bytes are
payload.
"""


def _notes(results: Results) -> str:
    experiment = escape(json.dumps(results.experiment, indent=1, ensure_ascii=False))
    repetitions = f"{len(results.results[0].samples)} repetitions. {NOTES}"
    text = f'<p class="small">{repetitions}</p><p class="small">The experiment:</p><pre>{experiment}</pre>'
    return f"<h2>How it was measured</h2>{text}"


# ---- CSV


class Tabular(Protocol):
    """Results that are flat rows, one for each cell."""

    def rows(self) -> Sequence[Mapping[str, Any]]: ...


def as_csv(results: Tabular) -> str:
    """One line for each cell, under a line of names."""
    rows = results.rows()
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
