"""Every block of README.md is run, or says why not.

What a block may be:

- ``python``: a whole program, which must end with status 0 and nothing on standard error;
- ``sh``, or ``console`` (commands behind ``$``, and what they print): each command must succeed. What a ``console`` block shows
  must be printed, numbers aside; a line with nothing but ``…`` stands for any lines. ``sostenuto serve`` runs while its block
  does, on another port. Commands that set up an environment, and the tests themselves, are not run from here: ``.ci/run``
  must run the very same;
- ``json``: JSON; a frame of the client if it is one.

Another kind needs a comment before it, ``<!-- not run: why -->``, and is skipped with that reason, as any block can be. The
address ``127.0.0.1:8080`` becomes that of a real server.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from attrs import field, frozen

from protocol.codec import client_message, parse
from protocol.errors import ProtocolError

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
GATE = ROOT / ".ci" / "run"

ADDRESS = "127.0.0.1:8080"
"""Where the README's server listens."""
SECONDS = 120.0
"""For one command; the slowest takes a few."""
FIRST_SCREEN_LINES = 45

SHELL_KINDS = ("sh", "console")
PROGRAMS = {"sostenuto": "-m engine.cli", "python": "", "pytest": "-m pytest"}
"""What a command may run. All mean this interpreter, and this source."""
GATE_ONLY = re.compile(r"python3? -m venv |\S*pip install |\S*python3? -m pytest\b")
"""Commands that only the gate can run."""


@frozen
class Block:
    """A fenced block. ``excuse`` is why it is not run; ``shown`` is what each command of a ``console`` prints."""

    line: int
    kind: str
    text: str
    excuse: str | None = None
    commands: tuple[str, ...] = field(init=False)
    shown: tuple[tuple[str, ...], ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        text = re.sub(r"\\\n\s*", "", self.text)
        commands: list[str] = []
        shown: list[list[str]] = []
        for line in text.splitlines() if self.kind in SHELL_KINDS else ():
            is_command = self.kind == "sh" or line.startswith("$ ")
            if is_command and shlex.split(line.removeprefix("$ "), comments=True):
                commands.append(line.removeprefix("$ "))
                shown.append([])
            elif not is_command:
                assert commands, f"README.md, line {self.line}: a console block begins with a command, behind '$ '"
                shown[-1].append(line)
        object.__setattr__(self, "commands", tuple(commands))
        object.__setattr__(self, "shown", tuple(map(tuple, shown)))


FENCE = re.compile(r"^(?:<!-- not run: (?P<excuse>.+?) -->\n+)?^```(?P<kind>.*)\n(?P<text>(?:.*\n)*?)^```$", re.MULTILINE)


def blocks_of(text: str) -> list[Block]:
    """All fenced blocks of a document."""
    return [
        Block(text.count("\n", 0, found.start("text")), found["kind"], found["text"], found["excuse"])
        for found in FENCE.finditer(text)
    ]


def steps_of(command: str) -> list[str]:
    """What a command does one after the other."""
    return [step.strip() for step in command.split("&&")]


def gate_steps() -> list[str]:
    """What ``.ci/run`` does, but for the options that keep it quiet."""
    lines = re.sub(r"\\\n\s*", "", GATE.read_text(encoding="utf-8")).splitlines()
    return [step.replace(" --quiet", "") for line in lines for step in steps_of(line)]


def is_in_gate(command: str) -> bool:
    """Whether ``.ci/run`` has each step of ``command``, word by word and in this order."""
    steps = iter(gate_steps())
    return all(step in steps for step in steps_of(command))


# ---- running


@frozen
class Shell:
    """Runs commands in ``cwd``, the repository if not told else. ``address`` is where a server listens."""

    folder: Path
    address: str
    cwd: Path = ROOT

    @classmethod
    def make(cls, folder: Path, address: str = ADDRESS, cwd: Path = ROOT) -> "Shell":
        """With programs for ``PROGRAMS`` in ``folder``."""
        for name, options in PROGRAMS.items():
            program = folder / name
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {options} "$@"\n', encoding="utf-8")
            program.chmod(0o755)
        return cls(folder, address, cwd)

    def popen(self, command: str) -> "subprocess.Popen[str]":
        command = command.replace(".venv/bin/", "").replace(ADDRESS, self.address)
        path = f"{self.folder}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "120"}
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )

    def run(self, command: str) -> list[str]:
        """The lines that ``command`` prints; it must succeed."""
        process = self.popen(command)
        try:
            output, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        assert process.returncode == 0, f"{command}\nended with status {process.returncode}:\n{output}\n{errors}"
        return output.splitlines()

    @contextmanager
    def serve(self, command: str) -> Iterator[tuple["Shell", list[str]]]:
        """A server in the background, a shell that talks to it, and what it printed. It must end well by SIGTERM."""
        data = "" if "--data" in command else f" --data {shlex.quote(str(self.folder / 'readme.sqlite3'))}"
        process = self.popen(f"exec {re.sub(r' --port [0-9]+', '', command)} --port 0{data}")
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            found = re.match(r"listening on http://(\S+)/v1", line)
            assert found, f"{command}\nprinted {line!r}: {process.stderr.read() if process.stderr else ''}"
            yield Shell(self.folder, found[1], self.cwd), [line.rstrip().replace(found[1], ADDRESS)]
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, errors
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def run_shell_block(block: Block, shell: Shell) -> None:
    """Run the commands of a block, one after the other."""
    with ExitStack() as servers:
        for command, shown in zip(block.commands, block.shown, strict=True):
            for step in steps_of(command):
                printed: list[str] = []
                if GATE_ONLY.match(step):
                    assert is_in_gate(step), f"README.md, line {block.line}: .ci/run does not run {step!r}"
                elif re.match(r"(\.venv/bin/)?sostenuto serve\b", step):
                    shell, printed = servers.enter_context(shell.serve(step.removesuffix("&").strip()))
                else:
                    program = shlex.split(step.removeprefix(".venv/bin/"))[0]
                    assert program in PROGRAMS, f"README.md, line {block.line}: can't run {program!r}; say why before the block"
                    printed = shell.run(step)
            check_shown(shown, printed)


def check_shown(shown: tuple[str, ...], printed: list[str]) -> None:
    """What the README shows was printed, numbers aside."""
    if shown:
        pattern = "".join(r"(?:.*\n)*" if line.strip() == "…" else re.escape(_plain(line)) + r"\n" for line in shown)
        text = "".join(f"{_plain(line)}\n" for line in printed)
        assert re.fullmatch(pattern, text), "\n".join(["the README shows", *shown, "and this was printed", *printed])


def _plain(line: str) -> str:
    """Without numbers, ids and the width of columns."""
    return re.sub(r"\s+", " ", re.sub(r"_[0-9a-f]{32}|\d[\d.,]*", "N", line)).strip()


def run_python_block(block: Block, shell: Shell) -> None:
    program = shell.folder / "block.py"
    program.write_text(block.text.replace(ADDRESS, shell.address), encoding="utf-8")
    shell.run(f"python -W error {shlex.quote(str(program))}")


def run_block(block: Block, folder: Path) -> None:
    """Do what stands in ``block``; raises ``AssertionError`` and ``ProtocolError`` if it isn't so."""
    shell = Shell.make(folder)
    if block.kind == "json":
        value = parse(block.text)
        if isinstance(value, dict) and value.get("type") in ("response.create", "response.append", "response.attach"):
            client_message(value)
        return
    assert block.kind in ("python", *SHELL_KINDS), f"README.md, line {block.line}: what to do with {block.kind!r}?"
    run = run_python_block if block.kind == "python" else run_shell_block
    needs_server = ADDRESS in block.text and not any("sostenuto serve" in command for command in block.commands)
    if needs_server:
        with shell.serve("sostenuto serve") as (shell_with_server, _):
            run(block, shell_with_server)
    else:
        run(block, shell)


# ---- the README


def readme() -> str:
    return README.read_text(encoding="utf-8") if README.exists() else ""


@pytest.mark.parametrize("block", [pytest.param(block, id=f"line {block.line}") for block in blocks_of(readme())])
def test_a_block_does_what_it_says(block: Block, tmp_path: Path) -> None:
    if block.excuse:
        pytest.skip(f"README.md, line {block.line}: not run: {block.excuse}")
    run_block(block, tmp_path)


def first_screen_commands() -> list[str]:
    head = "\n".join(readme().splitlines()[:FIRST_SCREEN_LINES]) + "\n"
    return [command for block in blocks_of(head) for command in block.commands]


def test_the_first_screen_has_one_command_for_the_demo() -> None:
    setups = [command for command in first_screen_commands() if "pip install" in command and "pytest" not in command]
    assert len(setups) == 1, "one command sets up and runs the demo"
    assert re.fullmatch(r"(\.venv/bin/)?sostenuto demo", steps_of(setups[0])[-1])


def test_the_first_screen_has_one_command_for_the_tests_and_the_gate_runs_it() -> None:
    tests = [command for command in first_screen_commands() if "pytest" in command]
    assert len(tests) == 1, "one command sets up and runs the tests"
    assert "pip install" in tests[0]
    assert is_in_gate(tests[0])


# ---- this test itself


def only(text: str) -> Block:
    [block] = blocks_of(text)
    return block


def test_blocks_are_found_with_their_excuses() -> None:
    text = "# A\n\n```sh\na\n```\n\n<!-- not run: a drawing -->\n```text\nb\n```\n\n<!-- a note -->\n\n```json\n{}\n```\n"
    assert [(block.line, block.kind, block.excuse) for block in blocks_of(text)] == [
        (3, "sh", None),
        (8, "text", "a drawing"),
        (14, "json", None),
    ]


def test_a_console_has_commands_and_what_they_print() -> None:
    block = only("```console\n$ a \\\n    b\n1\n2\n$ c\n```\n")
    assert block.commands == ("a b", "c")
    assert block.shown == (("1", "2"), ())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```ruby\nputs\n```\n", "what to do with 'ruby'"),
        ("```\nputs\n```\n", "what to do with ''"),
        ("```sh\nrm -rf x\n```\n", "can't run 'rm'"),
        ("```sh\nsostenuto no-such-command\n```\n", "ended with status 2"),
        ("```sh\n.venv/bin/pip install other\n```\n", "does not run"),
        ("```python\nraise SystemExit(3)\n```\n", "ended with status 3"),
        ("```console\n$ python -c 'print(1)'\none\n```\n", "this was printed"),
        ('```json\n{"a": 1,}\n```\n', "JSON"),
        ('```json\n{"type": "response.append", "input": 1}\n```\n', "input"),
    ],
)
def test_what_is_not_so_is_told(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ProtocolError), match=complaint):
        run_block(only(text), tmp_path)


CLIENT = """
import trio
from engine.client import connect

async def main():
    async with connect("http://127.0.0.1:8080/v1") as client:
        result = await client.run(model="scripted", input="Hello?")
        assert "Hello?" in result.text

trio.run(main)
"""


@pytest.mark.parametrize(
    "text",
    [
        f"```python{CLIENT}```\n",
        "```console\n$ python -c 'print(1.5, \"a  b\"); print(3)'\n2 a b\n…\n```\n",
        "```console\n$ sostenuto serve --port 8080 &\nlistening on http://127.0.0.1:8080/v1\n"
        "$ python -c 'import urllib.request as r; print(r.urlopen(\"http://127.0.0.1:8080/healthz\").status)'\n200\n```\n",
        '```json\n{"type": "response.create", "model": "scripted"}\n```\n',
    ],
)
def test_what_is_so_passes(text: str, tmp_path: Path) -> None:
    run_block(only(text), tmp_path)
