"""How experiments show themselves: a table for people, JSON lines for scripts."""

import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from protocol.codec import encode

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
