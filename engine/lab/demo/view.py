"""Shows the demo live: a bar down the screen is a Response.

The bar is whole where the model samples, and broken where the loop is parked and waits for the agent's tools; where a rollout
is a chain of Responses, each has its own, and the tools run between them. What is beside it happens as it is shown. It only
ever adds lines, so it is the same on a terminal, in a pipe and in a log; colours and Unicode are used where there are any.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from rich.text import Text

from protocol.client import Acknowledged
from protocol.codec import encode, parse

from ...account import Shape
from ...client import Event
from ...stages.counters import STAGES
from ..calls import arguments_shortly, patch_lines
from .lines import Lines, Screen, speaks_unicode
from .run import Nobody, Report
from .task import PROMPT, Repository

BAR_CELLS: Final = 44
"""The longest bar of the summary: fits into 80 columns with what stands before and behind it."""

SHOWN_LINES: Final = 8
"""Lines of one result: what matters of a short test run."""


@frozen
class Marks:
    """The signs that make the picture."""

    begin: str = "╭─"
    sampling: str = "│ "
    park: str = "├╴"
    parked: str = "┊ "
    resume: str = "├╴"
    end: str = "╰─"
    call: str = "▸"
    dot: str = "·"
    whole: str = "━"
    broken: str = "╍"
    short: tuple[str, str] = ("╭─", "╮ ")
    """A Response of a chain, as its beginning and its end, where there is one line for all."""


PLAIN: Final = Marks("+-", "| ", "+-", ": ", "+-", "+-", ">", "-", "=", ":", ("+-", "+ "))
"""Those of ASCII."""

SHAPES_TOLD: Final[Mapping[Shape, str]] = {
    "append": "append: one Response, which parks while the agent's tools run",
    "create": "create: a Response for each turn, over one WebSocket",
    "http": "http: a Response for each turn, each a POST of its own",
}


class JsonView(Nobody):
    """Prints the reports as JSON, an object a line, and nothing else; where repositories were kept, on standard error."""

    def end(self, report: Report, kept: Path | None) -> None:
        """It is over in one shape."""
        if kept:
            sys.stderr.write(f"kept {kept}\n")
        sys.stdout.write(encode(report.as_json()).decode() + "\n")
        sys.stdout.flush()


class LiveView:
    """An ``Audience`` that prints all that happens in one shape, and a summary."""

    def __init__(self, seed: int) -> None:
        self._console = Screen(highlight=False)
        self._marks = marks_for(self._console)
        self._lines = Lines(self._console)
        self._seed = seed
        self._live = False
        self._parks = 0
        self._parked_at: float | None = None  # while that was shown, and its end was not
        self._resumed_at: float | None = None

    # ---- what happens

    def begin(self, shape: Shape, repository: Repository, url: str) -> None:
        """The heading, and what the user says."""
        git = "a git repository with one commit" if repository.has_git else "no git here, so it has no history"
        self._console.print(Text.assemble(("sostenuto demo", "bold"), f" {self._marks.dot} seed {self._seed}\n"))
        self._lines.facts(
            (
                ("shape", SHAPES_TOLD[shape]),
                ("repository", f"{repository.root}, {git}"),
                ("server", f"{url}, in this process"),
                ("user", PROMPT),
            )
        )
        self._console.print()

    def event(self, event: Event) -> None:
        """Show an event, if it is one to be shown."""
        if any(isinstance(notice, Acknowledged) for notice in event.notices) and not event.frame["pending"]:
            self._resumed_at = time.perf_counter()
        show = _SHOWN.get(event.type)
        if show is not None:
            show(self, event.frame)

    def result(self, call: Mapping[str, Any], output: Mapping[str, Any], seconds: float) -> None:
        """Show what a tool of the agent has returned."""
        text = str(output["output"])
        shown = _RESULTS.get(call["name"], _first_lines)(text) if not text.startswith("error: ") else [Text(text, "red")]
        head = Text.assemble((call["name"], "bold"), (f" {self._marks.dot} {seconds * 1000:,.0f} ms", "dim"))
        self._beside(head)
        for line in shown[:SHOWN_LINES]:
            self._beside(Text.assemble("  ", line))

    def end(self, report: Report, kept: Path | None) -> None:
        """The summary."""
        passed = Text("all pass", "bold green") if report.tests_passed else Text("they do not all pass", "bold red")
        parked = f"parked and resumed {report.parks} times" if report.shape == "append" else "one for each turn"
        self._console.print()
        self._lines.facts(
            (
                ("tests", passed),
                ("Responses", f"{report.responses}, {parked}"),
                ("stage runs", _stages(report.stage_runs)),
                ("tokens", self._tokens(report)),
                ("bytes", f"{report.bytes_up:,} up, {report.bytes_down:,} down"),
                ("seconds", self._seconds(report)),
                *((("kept", str(kept)),) if kept else ()),
            )
        )

    def all_ended(self, reports: Sequence[Report]) -> None:
        """All was said."""

    # ---- events

    def _created(self, frame: Mapping[str, Any]) -> None:
        self._live = True
        self._edge(self._marks.begin, Text.assemble(("Response ", "bold"), (frame["response"]["id"], "dim")))

    def _item_added(self, frame: Mapping[str, Any]) -> None:
        self._show_resumed()
        item = frame["item"]
        if item["type"] == "reasoning":
            self._lines.begin(self._bar(), "italic dim")
        elif item["type"] == "message":
            self._lines.begin(self._bar(), "")
        elif item["type"] == "file_search_call":
            self._show_call("file_search", Text(", ".join(item["queries"])), " (hosted: the server runs it)")

    def _delta(self, frame: Mapping[str, Any]) -> None:
        self._lines.feed(frame["delta"])

    def _text_done(self, _: Mapping[str, Any]) -> None:
        self._lines.finish()

    def _item_done(self, frame: Mapping[str, Any]) -> None:
        item = frame["item"]
        if item["type"] == "function_call":
            arguments = parse(item["arguments"])
            patch = arguments.pop("patch", None)
            self._show_call(item["name"], Text(arguments_shortly(arguments)))
            for line in patch_lines(patch) if patch else ():
                self._beside(line)
        elif item["type"] == "file_search_call":
            self._beside(Text.assemble(("file_search", "bold")))
            for line in _passages(item)[:SHOWN_LINES]:
                self._beside(Text.assemble("  ", line))

    def _parked(self, frame: Mapping[str, Any]) -> None:
        self._parks += 1
        self._parked_at, self._resumed_at = time.perf_counter(), None
        waits_for = ", ".join(str(stub.get("name") or stub["type"]) for stub in frame["required_input"])
        self._edge(self._marks.park, Text.assemble((f"parked ({self._parks})", "bold yellow"), f", waiting for {waits_for}"))

    def _ended(self, frame: Mapping[str, Any]) -> None:
        self._show_resumed()
        response = frame["response"]
        style = "bold green" if response["status"] == "completed" else "bold red"
        why = (response["error"] or {}).get("message") or (response["incomplete_details"] or {}).get("reason") or ""
        self._edge(self._marks.end, Text.assemble((response["status"], style), f" {why}".rstrip()))
        self._live = False

    def _show_resumed(self) -> None:
        if self._parked_at is None:
            return
        parked_at, self._parked_at = self._parked_at, None
        seconds = (self._resumed_at or time.perf_counter()) - parked_at
        self._edge(self._marks.resume, Text.assemble(("resumed", "bold green"), f" after {seconds * 1000:,.0f} ms"))

    # ---- lines

    def _bar(self) -> Text:
        if not self._live:
            return Text("  ")
        return Text(self._marks.parked, "yellow") if self._parked_at is not None else Text(self._marks.sampling, "green")

    def _edge(self, mark: str, text: Text) -> None:
        self._lines.line(Text(f"{mark} ", "yellow" if self._parked_at is not None else "green"), text)

    def _beside(self, text: Text) -> None:
        self._lines.line(self._bar(), text)

    def _show_call(self, name: str, arguments: Text, note: str = "") -> None:
        head = Text.assemble((f"{self._marks.call} ", "cyan"), (name, "bold cyan"))
        self._beside(Text.assemble(head, " " if arguments else "", arguments, (note, "dim")))

    def _tokens(self, report: Report) -> Text:
        times = report.tokens_rerendering / max(report.tokens_rendered, 1)
        cells = max(1, round(BAR_CELLS / max(times, 1)))
        return Text.assemble(
            f"{report.tokens_rendered:,} rendered\n",
            (self._marks.whole * cells, "green"),
            f"\n{report.tokens_rerendering:,} if rendered anew at each turn, {times:.1f} times as many\n",
            (self._marks.whole * BAR_CELLS, "red"),
        )

    def _seconds(self, report: Report) -> Text:
        """The time, and a bar in the same hand as the one beside the events."""
        parts = (
            ("sampling", "sampling", self._marks.whole, "green"),
            ("parked", "parked" if report.shape == "append" else "between Responses", self._marks.broken, "yellow"),
            ("engine", "in the engine", self._marks.whole, "cyan"),
        )
        everything = sum(report.seconds.values()) or 1.0
        told = ", ".join(f"{report.seconds[name]:.2f} {what}" for name, what, *_ in parts)
        text = Text(f"{told}\n")
        for name, _, mark, style in parts:
            text.append(mark * max(1, round(BAR_CELLS * report.seconds[name] / everything)), style)
        return text


_SHOWN: Final = {
    "response.created": LiveView._created,
    "response.output_item.added": LiveView._item_added,
    "response.output_text.delta": LiveView._delta,
    "response.reasoning_summary_text.delta": LiveView._delta,
    "response.output_text.done": LiveView._text_done,
    "response.reasoning_summary_text.done": LiveView._text_done,
    "response.output_item.done": LiveView._item_done,
    "response.done": LiveView._parked,
    "response.completed": LiveView._ended,
    "response.incomplete": LiveView._ended,
    "response.failed": LiveView._ended,
}


def marks_for(console: Screen) -> Marks:
    """The marks that ``console`` can show; other characters that it can't are replaced from here on."""
    if speaks_unicode(console):
        return Marks()
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    return PLAIN


# ---- counts, calls and results, shortly


def _stages(runs: Mapping[str, int]) -> str:
    if len(set(runs.values())) == 1:
        times = runs[STAGES[0]]
        return f"each {'once' if times == 1 else f'{times} times'}: {', '.join(STAGES)}"
    return ", ".join(f"{stage} {runs[stage]}" for stage in STAGES)


def _first_lines(text: str) -> list[Text]:
    return [Text(line) for line in text.splitlines()]


def _count_lines(text: str) -> list[Text]:
    return [Text(f"{len(text.splitlines())} lines")]


def _listing(text: str) -> list[Text]:
    names = text.splitlines()
    return [Text(f"{len(names)} entries: {'  '.join(names)}")]


def _command(text: str) -> list[Text]:
    """The exit code, and of a test run what failed and how."""
    first, *rest = text.splitlines()
    told = [Text(first, "green" if first == "exit code 0" else "red")]
    if not any(line.startswith("Ran ") for line in rest):
        return told + [Text(line.strip()) for line in rest if line.strip()]
    for line in rest:
        if line.startswith(("FAIL:", "ERROR:")):
            told.append(Text(line.split(" (")[0], "red"))
        elif line.startswith(("Ran ", "OK", "FAILED")) or line.partition(":")[0].endswith("Error"):
            told.append(Text(line))
    return told


_RESULTS: Final = {"list_dir": _listing, "read_file": _count_lines, "shell": _command}


def _passages(item: Mapping[str, Any]) -> list[Text]:
    if item["status"] != "completed":
        return [Text(f"failed: {item.get('error', 'no reason was given')}", "red")]
    places = [f"{one['filename']}:{one['attributes'].get('line', '?')}" for one in item["results"]]
    return list(map(Text, places)) or [Text("nothing found")]
