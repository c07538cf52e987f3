"""Parts of the documentation that are made, not written: compared by tests, or made again with SOSTENUTO_UPDATE_DOCS=1."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def check_block(name: str, block: str, expected: str) -> None:
    """Assert that what stands between the marks of ``block`` in ``docs/NAME`` is ``expected``; or write it there."""
    begin, end = f"<!-- {block}: begin -->\n", f"<!-- {block}: end -->"
    before, found, rest = read(name).partition(begin)
    assert found, f"docs/{name} has no {begin}"
    now, found, after = rest.partition(end)
    assert found, f"docs/{name} has no {end}"
    if os.environ.get("SOSTENUTO_UPDATE_DOCS") == "1":
        (DOCS / name).write_text(before + begin + expected + end + after, encoding="utf-8")
        return
    assert now == expected, f"docs/{name} is not up to date: run the tests in tests/docs with SOSTENUTO_UPDATE_DOCS=1"


def rows(text: str) -> list[list[str]]:
    """The cells of all Markdown table rows in ``text``; heads and rules too."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
