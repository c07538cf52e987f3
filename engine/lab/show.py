"""How experiments show themselves: a table for people, JSON lines for scripts."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from protocol.codec import encode

from .cells import Cell, Result, Results, Sample
from .replay import Report


class JsonLines:
    """One JSON object a line on standard output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()

    def add(self, report: Report) -> None:
        """Print ``report``."""
        sys.stdout.write(encode(report.as_json()).decode() + "\n")
        sys.stdout.flush()


class ReplayTable:
    """A table that grows as files are played."""

    def __init__(self, files: int) -> None:
        self._files = files
        self._reports: list[Report] = []
        self._live = Live(self._table(), console=Console(), auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def add(self, report: Report) -> None:
        """Show one more file."""
        self._reports.append(report)
        self._live.update(self._table(), refresh=True)

    def _table(self) -> Group:
        table = Table(title=f"{len(self._reports)} of {self._files} rollouts played", box=box.SIMPLE_HEAD, padding=0)
        table.add_column("rollout", no_wrap=True, overflow="ellipsis")
        for name, width in (
            ("same", 4),
            ("calls", 5),
            ("Responses", 9),
            ("parks", 5),
            ("tokens", 7),
            ("kB up", 5),
            ("kB down", 7),
            ("s", 5),
        ):
            table.add_column(name, justify="right", no_wrap=True, min_width=width)
        for report in self._reports:
            counts = (
                report.calls,
                report.responses,
                report.parks,
                report.tokens_rendered,
                report.bytes_up // 1000,
                report.bytes_down // 1000,
            )
            same = "[green]yes[/]" if report.identical else "[red]no[/]"
            table.add_row(Path(report.file).stem, same, *(f"{count:,}" for count in counts), f"{report.seconds:.2f}")
        differences = [f"{report.file}: {report.difference}" for report in self._reports if not report.identical]
        return Group(table, *differences)


# ---- comparisons


@contextmanager
def progress(count: int) -> Iterator[Callable[[Cell, Sample], None]]:
    """Progress on standard error, over so many rollouts; gives what is to be told of each."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("rollouts", total=count)

        def told(cell: Cell, sample: Sample) -> None:
            shown.update(task, advance=1, description=f"{_place(cell)}, {cell.label}: {sample.seconds:.3g} s")

        yield told


def comparison(results: Results) -> Table:
    """The most important figures of a comparison, for a terminal of 80 columns."""
    caption = "Medians. over: above the floor; first: to a turn's first token, ms; engine, CPU: ms."
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=caption)
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=26)
    for name, width in (("s", 6), ("±", 5), ("over", 6), ("first", 5), ("engine", 6), ("CPU", 5), ("kB up", 6)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    for (workload, place), group in groupby(results.results, lambda one: (one.cell.workload, _place(one.cell))):
        table.add_row(f"[dim]{escape(workload)}[/]")
        table.add_row(f"[bold]{place}[/]")
        for one in group:
            table.add_row(f"  {one.cell.label}", *_figures(one))
        table.add_section()
    return table


def _place(cell: Cell) -> str:
    speed = "instant" if math.isinf(cell.tokens_per_second) else f"{cell.tokens_per_second:g} tok/s"
    return f"{speed}, {cell.rtt * 1e3:g} ms"


def _figures(one: Result) -> Iterator[str]:
    seconds = one["seconds"]
    yield f"{seconds.median:.3f}"
    yield f"{(seconds.high - seconds.low) / 2:.3f}"
    yield f"{one.over_floor:.1%}" if math.isfinite(one.over_floor) else ""
    for measure, factor, form in (("first_token", 1e3, ".1f"), ("engine", 1e3, ".1f"), ("server_cpu", 1e3, ".0f")):
        yield f"{one[measure].median * factor:{form}}"
    yield f"{one['bytes_up'].median / 1e3:,.0f}"
