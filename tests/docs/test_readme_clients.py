"""The table of clients in the README is the one of ``docs/clients.md`` in short: who is tested in which shape."""

import os

from ..clients.matrix import SHAPES
from .blocks import ROOT, read, rows

README = ROOT / "README.md"
BEGIN, END = "<!-- clients -->\n", "<!-- /clients -->"


def short() -> str:
    """A line a client: a tick for each shape in which ``docs/clients.md`` says something of it."""
    _, _, section = read("clients.md").partition("<!-- clients: begin -->\n")
    told = rows(section.partition("<!-- clients: end -->")[0])
    assert told[0] == ["client", *SHAPES]
    lines = [f"| {' | '.join(told[0])} |", "|---|---|---|---|"]
    for name, *cells in told[2:]:
        lines.append(f"| {name} | {' | '.join('✓' if cell else '' for cell in cells)} |")
    return "\n".join([*lines, ""])


def test_the_readme_has_the_table_of_clients() -> None:
    before, found, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    now, ended, after = rest.partition(END)
    assert found
    assert ended
    if os.environ.get("SOSTENUTO_UPDATE_DOCS") == "1":
        README.write_text(before + BEGIN + short() + END + after, encoding="utf-8")
        return
    assert now == short(), "README.md is not up to date: run the tests in tests/docs with SOSTENUTO_UPDATE_DOCS=1"
