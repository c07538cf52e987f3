"""``sostenuto conform``: the conformance kit at the command line. What it finds is shown as a table, as JSON or as HTML."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from attrs import evolve, frozen
from rich import box
from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from protocol.conformance.adapters import Scripted
from protocol.conformance.doors import adapter_of, names, need_permission
from protocol.conformance.probes import PROBES
from protocol.conformance.report import Finding, Report
from protocol.conformance.run import CannotCheck, Plan, conform, find_adapter
from protocol.conformance.run import Progress as Step
from protocol.conformance.runner import AtUrl, Runner
from protocol.conformance.show import MARKS, failure_text, failures, head_of, html, name_of
from protocol.conformance.transport import Shape

from ..testing.runner import PATIENT, InMemory

COLOURS: Final = {"held": "green", "broken": "red", "not offered": "dim"}
KEYS: Final = ("mine", "a stranger's")
KEYED: Final = evolve(PATIENT, keys=KEYS)
"""In memory there is a stranger, too."""

SHOWN_FAILURES: Final = 12
"""More are in the JSON and in the HTML."""


@frozen(kw_only=True)
class Options:
    """What the command was given."""

    url: str | None
    shapes: Sequence[Shape]
    examples: int
    seed: int | None
    seconds: float
    keys: Sequence[str]
    adapter: str | None
    without: str | None
    having: str | None
    probes: Sequence[str]
    no_probes: bool
    probes_only: bool
    connections: int
    quiet: float
    allow_remote: bool
    memory: bool
    as_json: bool
    html: Path | None


def run(options: Options) -> Report:
    """Do it, and show it. Raises ``CannotCheck``, ``ValueError`` and ``OSError`` for what can't be done."""
    runner = _runner(options)
    adapter = adapter_of(options.adapter) or (Scripted() if options.memory else find_adapter(runner))
    seed = int.from_bytes(os.urandom(3)) if options.seed is None else options.seed
    plan = Plan(
        shapes=options.shapes or Plan().shapes,
        examples=0 if options.probes_only else options.examples,
        probes=() if options.no_probes else options.probes or tuple(PROBES),
        seed=seed,
        seconds=options.seconds,
        without=names(options.without),
        having=names(options.having),
        keys=KEYS if options.memory else options.keys,
        hosted=options.memory,
    )
    with Progressing() as progress:
        faster = InMemory(config=KEYED, direct=True) if options.memory else None
        report = conform(runner, adapter=adapter, plan=plan, on_progress=progress.show, faster=faster)
    if options.html is not None:
        options.html.write_text(html(report), encoding="utf-8")
    if options.as_json:
        sys.stdout.write(json.dumps(report.as_json()) + "\n")  # frames may have what no UTF-8 can say, as escapes
    else:
        show(report, Console())
    sys.stdout.flush()
    return report


def _runner(options: Options) -> Runner:
    if options.memory == (options.url is not None):
        raise CannotCheck("give the URL of a server, as in `sostenuto conform http://127.0.0.1:8080`, or --memory")
    if options.url is None:
        return InMemory(config=KEYED)
    need_permission(options.url, remote_too=options.allow_remote)
    key = next(iter(options.keys), None)
    return AtUrl(url=options.url, key=key, connections=options.connections, quiet_seconds=options.quiet)


class Progressing:
    """A line on standard error that says how far it is; nothing where that is no terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        count = TextColumn("{task.completed}/{task.total}")
        columns = (TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task("connecting", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, step: Step) -> None:
        """How far it is."""
        words = [step.what, step.shape or "", step.name, f"[red]{len(step.broken)} broken[/]" if step.broken else ""]
        self._progress.update(
            self._task, description=" ".join(word for word in words if word), completed=step.done, total=step.total or None
        )


def show(report: Report, console: Console) -> None:
    """The tables, then the failures."""
    console.print(*head_of(report), sep="\n", highlight=False, markup=False, soft_wrap=True)
    laws = {name_of(law, finding): finding for law, finding in report.laws.items()}
    console.print(Group(_table("laws", report, laws), _table("probes", report, report.probes) if report.probes else ""))
    told = list(failures(report))
    for name, failure in told[:SHOWN_FAILURES]:
        console.print(failure_text(name, failure), highlight=False, markup=False, soft_wrap=True)
        console.print()
    if len(told) > SHOWN_FAILURES:
        console.print(f"… and {len(told) - SHOWN_FAILURES} more: see --json or --html", highlight=False)
    broken = report.broken
    verdict = f"{len(broken)} broken: {', '.join(broken)}" if broken else "no failure"
    console.print(Text(verdict, style="bold red" if broken else "bold green"), soft_wrap=True)


def _table(title: str, report: Report, findings: Mapping[str, Finding]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1), title_justify="left")
    table.add_column("", no_wrap=True)
    for shape in report.shapes:
        table.add_column(shape, justify="center", no_wrap=True)
    table.add_column("examples" if title == "laws" else "law", justify="right", no_wrap=True)
    table.add_column("", ratio=1)
    for name, finding in findings.items():
        cells = [_mark(finding.shapes.get(shape)) for shape in report.shapes]
        table.add_row(
            name, *cells, finding.law or str(finding.examples or ""), Text(finding.message, style=COLOURS[finding.status])
        )
    return table


def _mark(status: str | None) -> Text:
    return Text(MARKS[status], style=COLOURS[status]) if status else Text("")
