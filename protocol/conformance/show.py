"""Reports for people: plain text, and one HTML file. A failure is shown as frames that one can paste."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any, Final

from attrs import asdict

from .report import Failure, Finding, Report
from .transport import Frame

LONG: Final = 4_000
"""Characters of a frame that a terminal can show. Who wants to paste a longer one takes it from the JSON."""

MARKS: Final[Mapping[str, str]] = {"held": "✓", "broken": "✗", "not offered": "–"}


def text_of(value: Any) -> str:
    """A frame as it is on the wire, more or less: objects as JSON, text as it is."""
    return sayable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _prose(text: str) -> str:
    """A docstring's text as HTML."""
    return re.sub("``(.+?)``", r"<code>\1</code>", escape(text))


def sayable(text: str) -> str:
    """``text``, with unpaired surrogates as the escapes as which they came: no encoding can say them."""
    return text.encode("utf-8", "backslashreplace").decode()


def lines_of(conversation: Sequence[Frame], *, whole: bool = False) -> Iterator[str]:
    """A conversation in lines. What was sent can be pasted; of what was got only the last frame is shown ``whole``, or all."""
    most = None if whole else LONG
    last = len(conversation) - 1
    numbered = enumerate(conversation)
    for (who, brief), some in groupby(numbered, lambda one: _kind(one[1], brief=not whole and one[0] < last)):
        notes = [note for _, note in some]
        yield from (
            [f"{who:>3} ←  {_types([note['got'] for note in notes])}"] if brief else (_cut(_line(note), most) for note in notes)
        )


def _cut(line: str, most: int | None) -> str:
    return line if most is None or len(line) <= most else f"{line[:most]}… ({len(line):,} characters: see --json)"


def _kind(note: Frame, *, brief: bool) -> tuple[str, bool]:
    return note["client"], brief and "got" in note


def _line(note: Frame) -> str:
    who = f"{note['client']:>3}"
    if "did" in note:
        return f"{who} {note['did']}"
    if "status" in note:
        return f"{who} ←  HTTP {note['status']}"
    if "got" in note:
        return f"{who} ←  {text_of(note['got'])}"
    request = f"{note['request']}  " if "request" in note else ""
    return f"{who}  → {request}{text_of(note['sent']) if 'sent' in note else ''}".rstrip()


def _types(got: Sequence[Any]) -> str:
    """``created, output_text.delta ×7, error invalid_json``."""
    runs = [(name, len(list(some))) for name, some in groupby(got, _type)]
    return ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in runs)


def _type(got: Any) -> str:
    if not isinstance(got, dict):
        return str(got)[:40]
    kind = str(got.get("type", got.get("object", "?"))).removeprefix("response.")
    code = got.get("code") or (got["error"].get("code") if isinstance(got.get("error"), dict) else None)
    return f"{kind} {code}" if code else kind


def failure_text(name: str, failure: Failure) -> str:
    """A failure: what is wrong, and the conversation."""
    again = {True: "", False: " (it did not come about again when the same was said: it may depend on time)", None: ""}
    head = f"{name}, {failure.shape}: {failure.message}{again[failure.reproducible]}"
    return "\n".join([head, *(f"  {line}" for line in lines_of(failure.conversation))])


def failures(report: Report) -> Iterator[tuple[str, Failure]]:
    """All of them, with the name of the law or probe."""
    for named in (report.laws, report.probes):
        for name, finding in named.items():
            yield from ((name, failure) for failure in finding.failures)


def name_of(law: str, finding: Finding) -> str:
    """``L2 one end``."""
    return f"{law} {finding.says.partition(':')[0]}"


def head_of(report: Report) -> list[str]:
    """What was tried, in a few lines."""
    played = ", ".join(f"{count} in {shape}" for shape, count in report.examples.items()) or "none"
    missing = [name for name, offered in asdict(report.capabilities).items() if not offered]
    lines = [
        f"{report.server}: {', '.join(report.shapes)}; steered by {report.adapter}; seed {report.seed}; {report.seconds:.0f} s",
        f"conversations: {played}; probes: {len(report.probes)}",
        *(f"not offered: {name} ({report.reasons.get(name, '')})" for name in missing),
        *(f"note: {note}" for note in report.notes),
    ]
    return [*lines, "interrupted: this is what was found so far"] if report.interrupted else lines


def html(report: Report) -> str:
    """One self-contained page."""
    title = f"Conformance of {report.server}"
    broken = report.broken
    verdict = f"{len(broken)} broken" if broken else "No failure"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>",
        f"<h1>{escape(title)}</h1><p class={'broken' if broken else 'held'}>{verdict}</p>",
        "".join(f"<p>{escape(line)}</p>" for line in head_of(report)),
        _table("Laws", report, report.laws),
        _table("Probes", report, report.probes),
        "<h2>Failures</h2>" if broken else "",
        *(_failure(name, failure) for name, failure in failures(report)),
    ]
    return "\n".join(parts) + "\n"


def _table(title: str, report: Report, findings: Mapping[str, Finding]) -> str:
    heads = "".join(f"<th>{escape(shape)}" for shape in report.shapes)
    rows = [_row(report, name, finding) for name, finding in findings.items()]
    return f"<h2>{title}</h2><table><tr><th><th>right is<th>law{heads}<th>examples<th>{''.join(rows)}</table>" if rows else ""


def _row(report: Report, name: str, finding: Finding) -> str:
    cells = "".join(_cell(finding.shapes.get(shape)) for shape in report.shapes)
    where = f"{finding.law} ({finding.basis})" if finding.law else ""
    return (
        f"<tr class='{finding.status}'><td><b>{escape(name)}</b><td>{_prose(finding.says)}<td>{escape(where)}{cells}"
        f"<td>{finding.examples or ''}<td>{escape(finding.message)}"
    )


def _cell(status: str | None) -> str:
    return f"<td class='{status}'>{MARKS[status]}" if status else "<td>"


def _failure(name: str, failure: Failure) -> str:
    lines = "\n".join(escape(line) for line in lines_of(failure.conversation, whole=True))
    flaky = " It did not come about again." if failure.reproducible is False else ""
    return (
        f"<h3>{escape(name)}, {failure.shape}</h3><p>{escape(failure.message)}{flaky}"
        f"<details open><summary>{len(failure.conversation)} frames</summary><pre>{lines}</pre></details>"
    )


STYLE: Final = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; vertical-align: top; padding: .3rem .6rem;
border-bottom: 1px solid #8884 } pre { overflow-x: auto; padding: 1rem; background: #8881; font-size: 13px }
.held { color: #2a8a3e } .broken, tr.broken > td { color: #c6303e } .not.offered { color: #888 } tr.held > td { color: inherit }
tr td.held { color: #2a8a3e }
"""
