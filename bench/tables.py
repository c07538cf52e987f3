"""Rows as people read them: columns for a terminal, and tables of Markdown, also in the places that a document has for them."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from .report import Row

HEAD: Final = ("name", "what", "ratio", "spread", "target", "", "quiet", "measured")
DIGITS: Final = 3


def table(rows: Iterable[Row]) -> str:
    """The rows in columns."""
    lines = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)


def markdown(rows: Iterable[Row], *, named: bool = True) -> str:
    """The rows as a table of Markdown; the benchmark's name is its first column if it is ``named``."""
    first = 0 if named else 1
    head = [name or "met?" for name in HEAD[first:]]
    lines = [head, ["---"] * len(head), *(_cells(row)[first:] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    detail = row.detail
    return (
        row.name,
        row.what,
        _with_unit(row.value, row.unit),
        "" if row.spread is None else " to ".join(map(_number, row.spread)),
        "" if row.target is None else f"{'≥' if row.at_least else '≤'} {_number(row.target)}",
        row.verdict,
        _number(detail["quiet"]) if "quiet" in detail else "",
        f"{_number(detail['ours'])} : {_number(detail['theirs'])} {detail['unit']}" if "ours" in detail else "",
    )


def _with_unit(value: float, unit: str) -> str:
    return _number(value) if unit == "×" else f"{_number(value)} {unit}"


def _number(value: float) -> str:
    """Three digits, and all of those in front of the point."""
    return f"{value:,.0f}" if abs(value) >= 10**DIGITS else f"{value:.{DIGITS}g}"


# ---- in a document


def marks(name: str) -> tuple[str, str]:
    """What stands around a benchmark's table in a document."""
    return f"<!-- bench {name}: begin -->", f"<!-- bench {name}: end -->"


def places(text: str) -> list[str]:
    """The benchmarks that have a place in a document, in its order."""
    return re.findall(r"^<!-- bench (\w+): begin -->$", text, re.MULTILINE)


def with_tables(text: str, rows: Sequence[Row]) -> str:
    """``text``, with the tables of the benchmarks that have rows; the others stay what they were. Raises ``ValueError`` for a
    benchmark that has no place."""
    for name in dict.fromkeys(row.name for row in rows):
        begin, end = marks(name)
        if name not in places(text) or end not in text:
            raise ValueError(f"no place for {name}: {begin} … {end}")
        before, _, rest = text.partition(f"{begin}\n")
        own = markdown((row for row in rows if row.name == name), named=False)
        text = f"{before}{begin}\n\n{own}\n\n{end}{rest.partition(end)[2]}"
    return text


def write_tables(path: Path, rows: Sequence[Row]) -> None:
    """Put the tables into a file. Raises ``ValueError`` and ``OSError``."""
    path.write_text(with_tables(path.read_text(encoding="utf-8"), rows), encoding="utf-8")
