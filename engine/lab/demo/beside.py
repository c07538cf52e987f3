"""Shows the shapes side by side: the first one live, the others in a line each, and at the end one table."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from protocol.events import TERMINAL

from ...account import Shape
from ...client import Event
from .lines import Lines, Screen
from .run import Report
from .task import Repository
from .view import SHAPES_TOLD, LiveView, marks_for

NAME_CELLS: Final = 24
COLUMN_CELLS: Final = 13
"""Three of them, and the names, fit into 80 columns."""


class SideBySide:
    """An ``Audience`` of several shapes."""

    def __init__(self, seed: int) -> None:
        self._console = Screen(highlight=False)
        self._marks = marks_for(self._console)
        self._live: LiveView | None = LiveView(seed)
        self._room = 0
        self._kept: list[tuple[str, str]] = []

    def begin(self, shape: Shape, repository: Repository, url: str) -> None:
        """Another shape has its turn."""
        if self._live is not None:
            self._live.begin(shape, repository, url)
            return
        self._print(f"\n{SHAPES_TOLD[shape]}\n")
        self._room = self._console.width - 1

    def event(self, event: Event) -> None:
        """Show it, or where a Response begins and ends."""
        if self._live is not None:
            self._live.event(event)
        elif event.type == "response.created":
            self._draw(0)
        elif event.type in TERMINAL:
            self._draw(1)

    def result(self, call: Mapping[str, Any], output: Mapping[str, Any], seconds: float) -> None:
        """A tool of the agent has answered."""
        if self._live is not None:
            self._live.result(call, output, seconds)

    def end(self, report: Report, kept: Path | None) -> None:  # noqa: ARG002 - the table tells all of them
        """It is over in one shape; what comes is not shown live."""
        if kept is not None:
            self._kept.append(("kept", str(kept)))
        if self._live is None:
            self._print("\n")
        self._live = None

    def all_ended(self, reports: Sequence[Report]) -> None:
        """The table."""
        self._print("\n")
        self._row("", [Text(report.shape, "bold") for report in reports])
        for name, told in ROWS:
            self._row(name, [told(report) for report in reports])
        Lines(self._console).facts(self._kept)

    def _row(self, name: str, cells: Sequence[str | Text]) -> None:
        row = Text(f"{name:{NAME_CELLS}}", "dim")
        for cell in cells:
            text = Text.assemble(cell)
            row.append(" " * (COLUMN_CELLS - text.cell_len)).append_text(text)
        self._print(row.append("\n"))

    def _draw(self, edge: int) -> None:
        """The beginning or the end of a Response, as long as there is room on the line."""
        mark = self._marks.short[edge]
        self._room -= len(mark)
        if self._room >= 0:
            self._print(Text(mark, "green"))

    def _print(self, text: str | Text) -> None:
        self._console.print(text, end="", soft_wrap=True, highlight=False, markup=False)


def _passed(report: Report) -> Text:
    return Text("all pass", "green") if report.tests_passed else Text("not all pass", "bold red")


def _seconds(name: str) -> Callable[[Report], str]:
    return lambda report: f"{report.seconds[name]:.2f}"


ROWS: Final[Sequence[tuple[str, Callable[[Report], str | Text]]]] = (
    ("tests", _passed),
    ("Responses", lambda report: f"{report.responses:,}"),
    ("stage runs, in full", lambda report: f"{sum(report.stage_runs.values()):,}"),
    ("tokens rendered", lambda report: f"{report.tokens_rendered:,}"),
    ("  with nothing reused", lambda report: f"{report.tokens_rerendering:,}"),
    ("bytes up", lambda report: f"{report.bytes_up:,}"),
    ("bytes down", lambda report: f"{report.bytes_down:,}"),
    ("seconds", lambda report: f"{sum(report.seconds.values()):.2f}"),
    ("  sampling", _seconds("sampling")),
    ("  waiting for the agent", _seconds("parked")),
    ("  in the engine", _seconds("engine")),
)
