"""How experiments show themselves: a table for people, JSON lines for scripts."""

import sys
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console
from rich.filesize import decimal
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

    def _table(self) -> Table:
        table = Table(title=f"{len(self._reports)} of {self._files} rollouts played, each as one Response", box=box.SIMPLE)
        table.add_column("file", no_wrap=True, overflow="ellipsis")
        table.add_column("identical")
        for name in ("calls", "parks", "tokens", "up", "down", "s"):
            table.add_column(name, justify="right", no_wrap=True)
        for report in self._reports:
            verdict = "[green]yes[/]" if report.identical else f"[red]no[/]: {report.difference}"
            sizes = (f"{decimal(size)}" for size in (report.bytes_up, report.bytes_down))
            counts = (f"{count:,}" for count in (report.calls, report.parks, report.tokens_rendered))
            table.add_row(report.file, verdict, *counts, *sizes, f"{report.seconds:.2f}")
        table.caption = "tokens: rendered once each; up, down: bytes of the client's and of the server's frames"
        return table
