"""``docs/conformance.md``: its blocks do what they say, and its tables are those of the code."""

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from protocol.conformance.laws import BASIS, LAWS
from protocol.conformance.probes import PROBES

from ..test_readme import Block, Shell, blocks_of, run_python_block, run_shell_block
from .blocks import check_block, read

FILE = re.compile(r"<!-- file: (\S+) -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLUGIN = "protocol.conformance.plugin"
TEXT = read("conformance.md")
FILES = dict(FILE.findall(TEXT))
BLOCKS = [block for block in blocks_of(TEXT) if block.text not in FILES.values()]


@pytest.mark.parametrize("block", [pytest.param(block, id=f"line {block.line}") for block in BLOCKS])
def test_a_block_does_what_it_says(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if block.excuse:
        pytest.skip(f"docs/conformance.md, line {block.line}: not run: {block.excuse}")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    if not any(point.value == PLUGIN for point in entry_points(group="pytest11")):
        monkeypatch.setenv("PYTEST_PLUGINS", PLUGIN)  # this source is not installed
    shell = Shell.make(tmp_path, cwd=tmp_path)
    if block.kind == "json":
        assert block.text.strip().startswith("[")
        return
    run = run_python_block if block.kind == "python" else run_shell_block
    if any("sostenuto serve" in command for command in block.commands) or "127.0.0.1:8080" not in block.text:
        run(block, shell)
        return
    with shell.serve("sostenuto serve") as (with_server, _):
        run(block, with_server)


def test_files_are_found() -> None:
    assert list(FILES) == ["parrots.py", "mine.py"]


def test_the_laws_are_those_of_the_code() -> None:
    lines = ["| law | what it says | where that is written |", "|---|---|---|"]
    for law, says in LAWS.items():
        name, _, meaning = says.partition(": ")
        lines.append(f"| {law} {name} | {meaning} | {BASIS[law]} |")
    check_block("conformance.md", "laws", "\n".join([*lines, ""]))


def test_the_probes_are_those_of_the_code() -> None:
    lines = ["| probe | law | shapes | basis | what is right |", "|---|---|---|---|---|"]
    for name, probe in PROBES.items():
        right = " ".join(probe.right.split()).replace("``", "`").replace("|", "\\|")
        lines.append(f"| {name} | {probe.law} | {', '.join(probe.shapes)} | {probe.basis} | {right} |")
    check_block("conformance.md", "probes", "\n".join([*lines, ""]))
