"""The demo: a real agent, a real server, real tests; and the policy by itself, which sees nothing but texts."""

import io
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from engine import cli
from engine.account import Shape
from engine.client import Event
from engine.lab.demo import beside, reading, run, task
from engine.lab.demo.agent import INSTRUCTIONS, make_tools
from engine.lab.demo.lines import Lines, Screen
from engine.lab.demo.model import Answer, Ask, Mind, MindModel, Turn
from engine.lab.demo.policy import mend
from engine.lab.demo.sources import FILES
from engine.lab.signals import until_signal
from engine.models.base import CallBegin, Chunk, Plan, Rendered, Stop, Text
from engine.stages.rendering import render_prompt
from engine.store import Stored
from protocol.items import (
    CallItem,
    FileSearchCall,
    FunctionCall,
    FunctionCallOutput,
    Message,
    OutputText,
)
from protocol.response import Response
from tools.spec import Outcome, Tool, ToolSpec

STAGES = ("validate", "route", "classify", "render", "classify_output", "bill", "store")


class Recorder(run.Nobody):
    """Remembers what it was shown."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []
        self.calls: list[Mapping[str, Any]] = []

    def event(self, event: Event) -> None:
        self.events.append(event.frame)

    def result(self, call: Mapping[str, Any], output: Mapping[str, Any], seconds: float) -> None:
        self.calls.append(call)

    @property
    def names(self) -> list[str]:
        return [call["name"] for call in self.calls]


async def demonstrate(
    seed: int, audience: run.Audience | None = None, shapes: Sequence[Shape] = ("append",)
) -> Sequence[run.Report]:
    return await run.demo(seed=seed, tokens_per_second=None, keep=False, audience=audience or run.Nobody(), shapes=shapes)


# ---- the whole


HAS_GIT = shutil.which("git") is not None
PATHS = {
    0: "list shell read read patch shell patch shell",
    1: "list shell read read patch shell",
    2: "list shell read read read patch shell",
    3: "list shell read read patch shell",
    4: "list shell read patch shell",
    5: "list shell read read patch shell read read patch shell",
}
"""The agent's own calls by seed; with git there is a last ``git diff``. Each is a park."""


@pytest.mark.parametrize("seed", PATHS)
async def test_each_bug_is_mended_over_one_response_on_its_own_path(seed: int) -> None:
    recorder = Recorder()
    (report,) = await demonstrate(seed, recorder)
    path = PATHS[seed].split() + ["shell"] * HAS_GIT
    assert [next(part for part in name.split("_") if part in path) for name in recorder.names] == path
    assert report.tests_passed
    assert report.responses == 1
    assert report.stage_runs == dict.fromkeys(STAGES, 1)
    assert report.parks == len(path) >= 5
    types = [frame["type"] for frame in recorder.events]
    assert types.count("response.done") == report.parks
    assert types.count("response.created") == 1
    assert types.count("response.file_search_call.completed") >= 1
    assert 0 < report.tokens_rendered < report.tokens_rerendering
    assert report.bytes_down > report.bytes_up > 0


@pytest.mark.parametrize("seed", [0, 5])
async def test_the_shapes_do_the_same_with_more_responses(seed: int) -> None:
    recorders: list[Recorder] = []

    class Audience(run.Nobody):
        def begin(self, shape: Shape, repository: task.Repository, url: str) -> None:
            recorders.append(Recorder())

        def event(self, event: Event) -> None:
            recorders[-1].event(event)

        def result(self, call: Mapping[str, Any], output: Mapping[str, Any], seconds: float) -> None:
            recorders[-1].result(call, output, seconds)

    reports = await demonstrate(seed, Audience(), run.SHAPES)
    append, create, http = reports
    turns = len(PATHS[seed].split()) + HAS_GIT + 1
    assert [report.shape for report in reports] == ["append", "create", "http"]
    assert [report.responses for report in reports] == [1, turns, turns]
    assert [report.parks for report in reports] == [turns - 1, 0, 0]
    assert [report.stage_runs for report in reports] == [dict.fromkeys(STAGES, report.responses) for report in reports]
    assert all(report.tests_passed for report in reports)
    assert all(min(report.seconds.values()) > 0 for report in reports)
    # They work at the same place, one after the other, so that what the tools say is the same, to the token.
    assert append.tokens_rendered == create.tokens_rendered == http.tokens_rendered
    assert append.tokens_rerendering == create.tokens_rerendering == http.tokens_rerendering
    assert append.bytes_up < min(create.bytes_up, http.bytes_up)
    assert append.bytes_down < min(create.bytes_down, http.bytes_down)
    for recorder in recorders[1:]:
        assert recorder.names == recorders[0].names
        types = [frame["type"] for frame in recorder.events]
        assert types.count("response.completed") == types.count("response.created") == turns
        assert "response.done" not in types


def test_each_case_has_its_path() -> None:
    assert len(PATHS) == len(task.CASES)
    assert task.case(len(PATHS)) == task.case(0)


async def test_hosted_and_client_calls_run_side_by_side() -> None:
    recorder = Recorder()
    await demonstrate(0, recorder)
    types = [frame["type"] for frame in recorder.events]
    searching = types.index("response.file_search_call.searching")
    parked = max(n for n in range(searching) if types[n] == "response.done")
    assert [stub["name"] for stub in recorder.events[parked]["required_input"]] == ["read_file"]


async def test_without_git_there_is_no_history_and_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "GIT", "no-such-git")
    recorder = Recorder()
    (report,) = await demonstrate(4, recorder)
    assert report.tests_passed
    assert report.parks >= 5
    assert recorder.names[-1] == "shell"
    assert "unittest" in recorder.calls[-1]["arguments"]  # and no git diff


def test_rendering_anew_is_the_whole_prompt_of_each_turn() -> None:
    output = FunctionCallOutput(call_id="call_1", output="text of a")
    context = (USER, FOUND, CALLED, output, Message(role="assistant", content=(OutputText(text="done"),)))
    response = Response(id="resp_1", created_at=0, model="mender", status="completed")
    whole = Stored(tenant="everybody", response=response, items=context, input=(USER, output), stops=(3, 5))
    prompts = [render_prompt(INSTRUCTIONS, (), context[:end]) for end in (1, 4)]
    assert run.rerendering([whole], ()) == sum(map(len, prompts))
    first = Stored(tenant="everybody", response=response, items=context[:3], input=(USER,), stops=(3,))
    second = Stored(tenant="everybody", response=response, items=context[3:], input=(output,), stops=(2,))
    assert run.rerendering([first, second], ()) == run.rerendering([whole], ())


# ---- the tools misbehave


class Broken:
    """A tool whose answers are changed."""

    def __init__(self, tool: Tool, change: Callable[[CallItem, int], Outcome | None]) -> None:
        self.tool = tool
        self.count = 0
        self._change = change

    @property
    def spec(self) -> ToolSpec:
        return self.tool.spec

    async def call(self, call: CallItem) -> Outcome:
        self.count += 1
        return self._change(call, self.count) or await self.tool.call(call)


def says(call: CallItem, text: str) -> Outcome:
    return Outcome(item=FunctionCallOutput(call_id=call.call_id, output=text))


async def work_with(root: Path, seed: int, **broken: Callable[[CallItem, int], Outcome | None]) -> tuple[run.Report, Recorder]:
    repository = task.make(root, seed)
    tools = make_tools(repository)
    tools |= {name: Broken(tools[name], change) for name, change in broken.items()}
    recorder = Recorder()
    return await run.rollout(repository, audience=recorder, tools=tools), recorder


async def test_a_refused_patch_makes_it_read_again_and_write_the_file(tmp_path: Path) -> None:
    def refuse(call: CallItem, count: int) -> Outcome | None:
        return says(call, "error: the disk is in a bad mood") if count == 1 else None

    report, recorder = await work_with(tmp_path, 1, apply_patch=refuse)
    patched = recorder.names.index("apply_patch")
    assert recorder.names[patched : patched + 3] == ["apply_patch", "read_file", "write_file"]
    assert report.tests_passed


async def test_a_file_that_has_changed_is_read_again_and_patched_anew(tmp_path: Path) -> None:
    path = tmp_path / "practice/tempo.py"

    def change(call: CallItem, count: int) -> Outcome | None:
        if count == 1:
            path.write_text(path.read_text().replace("def ramp(first, last, step):", "def ramp(first, last, step=5):"))
        return None

    report, recorder = await work_with(tmp_path, 1, apply_patch=change)
    patched = recorder.names.index("apply_patch")
    assert recorder.names[patched : patched + 3] == ["apply_patch", "read_file", "apply_patch"]
    assert report.tests_passed
    assert "step=5" in path.read_text()


async def test_without_an_idea_it_gives_up_and_leaves_the_code_as_it_was(tmp_path: Path) -> None:
    def still_fails(call: CallItem, count: int) -> Outcome | None:
        return says(call, CRASH) if "unittest" in str(call) else None

    report, _ = await work_with(tmp_path, 4, shell=still_fails)
    assert not report.tests_passed
    assert report.responses == 1
    assert "counts[composer] += 1" in (tmp_path / "practice/repertoire.py").read_text()


async def test_edited_tests_do_not_count_as_passed(tmp_path: Path) -> None:
    def cheat(call: CallItem, count: int) -> Outcome | None:
        (tmp_path / "tests/test_tempo.py").write_text("")
        return None

    report, _ = await work_with(tmp_path, 1, shell=cheat)
    assert not report.tests_passed


# ---- the repository


def test_the_healthy_repository_passes(tmp_path: Path) -> None:
    repository = write(tmp_path, ())
    assert unittest(repository).returncode == 0


@pytest.mark.parametrize("bug", sorted({bug for bugs in task.CASES for bug in bugs}, key=str))
def test_each_bug_fails_a_test(tmp_path: Path, bug: task.Bug) -> None:
    assert unittest(write(tmp_path, (bug,))).returncode == 1


def write(root: Path, bugs: tuple[task.Bug, ...]) -> task.Repository:
    for path, text in FILES.items():
        (root / path).parent.mkdir(exist_ok=True)
        for bug in bugs:
            text = bug.plant(text) if bug.path == path else text
        (root / path).write_text(text)
    return task.Repository(root, bugs, has_git=False)


def unittest(repository: task.Repository) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "unittest"]
    return subprocess.run(command, cwd=repository.root, env=repository.environment, capture_output=True, check=False)


# ---- the policy

CRASH = """\
exit code 1
E.
======================================================================
ERROR: test_by_composer (tests.test_repertoire.RepertoireTest.test_by_composer)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/home/somebody/tests/test_repertoire.py", line 10, in test_by_composer
    self.assertEqual(by_composer(PIECES), {"Bach": 2, "Chopin": 1})
                     ^^^^^^^^^^^^^^^^^^^
  File "/home/somebody/practice/repertoire.py", line 8, in by_composer
    counts[composer] += 1
    ~~~~~~^^^^^^^^^^
KeyError: 'Bach'

----------------------------------------------------------------------
Ran 2 tests in 0.017s

FAILED (errors=1)
"""
GREEN = "exit code 0\n..\n----------------------------------------------------------------------\nRan 2 tests in 0.001s\n\nOK\n"
LISTING = "practice/\npractice/repertoire.py\ntests/\ntests/test_repertoire.py"


def play(mind: Mind, *answers: tuple[str, ...]) -> Turn:
    """The turn behind these answers; those that begin with ``error`` have failed."""
    turn = next(mind)
    for texts in answers:
        assert len(turn.calls) == len(texts), turn
        turn = mind.send(tuple(Answer(text, text.startswith("error")) for text in texts))
    return turn


def test_green_tests_need_no_mending() -> None:
    turn = play(mend(task.PROMPT), (LISTING,), (GREEN,))
    assert not turn.calls
    assert turn.said == "All 2 tests pass; there was nothing to mend."


def test_the_command_comes_from_the_task() -> None:
    turn = play(mend("Mend it. The tests are `make check`."), (LISTING,))
    assert turn.calls == (Ask("shell", {"command": "make check"}),)


def test_a_crash_leads_to_its_file_without_a_search_for_it() -> None:
    turn = play(mend(task.PROMPT), (LISTING,), (CRASH,))
    assert turn.calls[-1] == Ask("read_file", {"path": "practice/repertoire.py"})


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ((("error: no such folder",),), "I can't even list the folder. I give up."),
        (((LISTING,), ("error: no shell",)), "The tests did not run to their end, and I can't tell why. I give up."),
        (((LISTING,), ("timed out after 30 s",)), "The tests did not run to their end, and I can't tell why. I give up."),
        (((LISTING,), (CRASH,), ("nothing", "error: no such file")), "I can't read practice/repertoire.py. I give up."),
        (
            ((LISTING,), (CRASH,), ("nothing", "def other():\n    pass\n")),
            "I have no idea left why test_by_composer fails. I give up.",
        ),
    ],
)
def test_it_says_why_it_gives_up(answers: tuple[tuple[str, ...], ...], said: str) -> None:
    turn = play(mend(task.PROMPT), *answers)
    assert not turn.calls
    assert turn.said == said


def test_a_search_that_finds_nothing_is_followed_by_grep() -> None:
    failed = (
        CRASH[: CRASH.index('  File "/home/somebody/practice')]
        + "AssertionError: {} != 1\n\n"
        + CRASH[CRASH.index("-" * 70 + "\nRan") :]
    )
    turn = play(mend(task.PROMPT), (LISTING,), (failed,))
    assert turn.calls[0] == Ask("file_search", {"queries": ["def by_composer"], "max_num_results": 5})
    turn = play(mend(task.PROMPT), (LISTING,), (failed,), ("No results.", "the test"))
    assert [ask.name for ask in turn.calls] == ["shell"]
    turn = play(
        mend(task.PROMPT),
        (LISTING,),
        (failed,),
        ("No results.", "the test"),
        ("exit code 0\n./practice/repertoire.py:4:def by_composer(pieces):",),
    )
    assert turn.calls == (Ask("read_file", {"path": "practice/repertoire.py"}),)


# ---- reading


def test_a_report_is_read() -> None:
    report = reading.read_report(CRASH)
    assert not report.passed
    assert report.count == 2
    (failure,) = report.failures
    assert failure.test == "test_by_composer"
    assert failure.symptom == "KeyError"
    assert [frame.function for frame in failure.frames] == ["test_by_composer", "by_composer"]


@pytest.mark.parametrize(
    ("message", "symptom"),
    [
        ("1 != 2", "other number"),
        ("17 != 17.5", "whole number"),
        ("'1:5' != '1:05'", "other text"),
        ("Lists differ: [60, 70] != [60, 70, 80]", "shorter"),
        ("Lists differ: [1, 2] != [2]", "longer"),
        ("Lists differ: ['C'] != ['B']", "other items"),
        ("something else", "other"),
    ],
)
def test_symptoms(message: str, symptom: str) -> None:
    assert reading.Failure("test", "AssertionError", message, ()).symptom == symptom


def test_a_patch_leads_from_one_text_to_another(tmp_path: Path) -> None:
    from tools.local.patch import UpdateFile, apply_hunks, parse_patch

    before = FILES["practice/goals.py"]
    after = before.replace("goal / 2", "goal / 3").replace("return 3", "return 4")
    (section,) = parse_patch(reading.patch([("practice/goals.py", before, after)]))
    assert isinstance(section, UpdateFile)
    assert apply_hunks(before, section.hunks, section.path) == after


# ---- the model


def searching_mind(_: str) -> Mind:
    found, read = yield Turn("Hm.", calls=(Ask("file_search", {"query": "x"}), Ask("read_file", {"path": "a"})))
    (again,) = yield Turn(said=f"{found.text} {read.text}", calls=(Ask("read_file", {"path": "b"}),))
    yield Turn(said=f"done: {again.text}{'!' if again.failed else ''}")


USER = Message(role="user", content="go")
CALLED = FunctionCall(call_id="call_1", name="read_file", arguments='{"path":"a"}')
FOUND = FileSearchCall(id="fs_1", queries=("x",), status="completed", results=())
ANSWERED = FunctionCallOutput(call_id="call_1", output="text of a")


async def sample(sampler: Any) -> list[Chunk]:
    chunks: list[Chunk] = []
    while not chunks or not isinstance(chunks[-1], Stop):
        chunks += await sampler.receive()
    return chunks


def said(chunks: list[Chunk]) -> str:
    return "".join(piece for chunk in chunks if isinstance(chunk, Text) for piece in chunk.pieces)


async def test_a_mind_goes_on_in_the_same_place_in_every_shape() -> None:
    """One sampler that is extended, and new ones that are given the history, say the same."""
    model = MindModel("mind", searching_mind)
    async with model.open(Plan(model="mind", prompt=Rendered((USER,), ()))) as sampler:
        first = await sample(sampler)
        assert [chunk.name for chunk in first if isinstance(chunk, CallBegin)] == ["file_search", "read_file"]
        await sampler.extend(Rendered((FOUND, ANSWERED), ()))
        second = await sample(sampler)
        await sampler.extend(Rendered((FunctionCallOutput(call_id="call_2", output="text of b"),), ()))
        third = await sample(sampler)
    assert said(second) == "No results. text of a"
    assert second[-1] == Stop("tool_calls")
    assert said(third) == "done: text of b"
    assert third[-1] == Stop("end")

    history = (USER, FOUND, CALLED, ANSWERED)
    async with model.open(Plan(model="mind", prompt=Rendered(history, ()))) as sampler:
        assert await sample(sampler) == second
    called = FunctionCall(call_id="call_2", name="read_file", arguments='{"path":"b"}')
    answer = FunctionCallOutput(call_id="call_2", output="text of b")
    async with model.open(Plan(model="mind", prompt=Rendered((*history, called, answer), ()))) as sampler:
        assert await sample(sampler) == third


async def test_a_missing_answer_is_a_failure() -> None:
    history = (USER, FOUND, CALLED, ANSWERED, FunctionCall(call_id="call_2", name="read_file", arguments="{}"))
    async with MindModel("mind", searching_mind).open(Plan(model="mind", prompt=Rendered(history, ()))) as sampler:
        assert said(await sample(sampler)) == "done: error: no result came back!"


# ---- what is seen


KEYS = (
    "shape",
    "responses",
    "parks",
    "stage_runs",
    "tests_passed",
    "tokens_rendered",
    "tokens_rerendering",
    "bytes_up",
    "bytes_down",
    "seconds",
)


def invoke(*options: str, width: int = 80) -> Result:
    return CliRunner().invoke(cli.main, ["demo", "--tokens-per-second", "100000", *options], env={"COLUMNS": str(width)})


@pytest.mark.parametrize("shape", run.SHAPES)
def test_json_is_one_object_with_these_keys_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: Shape
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = invoke("--json", "--shape", shape)
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert tuple(report) == KEYS
    assert report["shape"] == shape
    assert tuple(report["stage_runs"]) == STAGES
    assert tuple(report["seconds"]) == ("sampling", "parked", "engine")
    assert report["tests_passed"] is True
    assert list(tmp_path.iterdir()) == []


def test_json_is_a_line_for_each_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = invoke("--json", "--keep", "--seed", "4")
    assert result.exit_code == 0, result.output
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    assert [tuple(report) for report in reports] == [KEYS] * 3
    assert [report["shape"] for report in reports] == list(run.SHAPES)
    (folder,) = tmp_path.iterdir()
    assert result.stderr.splitlines() == [f"kept {folder / shape}" for shape in run.SHAPES]
    assert sorted(path.name for path in folder.iterdir()) == sorted(run.SHAPES)


@pytest.mark.parametrize("fails_in", [*run.SHAPES, None])
def test_the_exit_status_tells_of_every_shape(monkeypatch: pytest.MonkeyPatch, fails_in: Shape | None) -> None:
    async def rollout(repository: task.Repository, *, shape: Shape, **_: Any) -> run.Report:
        await trio.lowlevel.checkpoint()
        numbers = dict.fromkeys(("responses", "parks", "tokens_rendered", "tokens_rerendering", "bytes_up", "bytes_down"), 1)
        return run.Report(shape=shape, tests_passed=shape != fails_in, stage_runs={}, seconds={}, **numbers)

    monkeypatch.setattr(run, "rollout", rollout)
    result = invoke("--json")
    assert [json.loads(line)["tests_passed"] for line in result.output.splitlines()] == [
        shape != fails_in for shape in run.SHAPES
    ]
    assert result.exit_code == (0 if fails_in is None else 1)


def test_side_by_side_one_is_live_and_a_table_compares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = invoke("--seed", "0", "--keep")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    turns = len(PATHS[0].split()) + HAS_GIT + 1
    assert [line.split()[0] for line in lines if line.startswith("╭─ ")] == ["╭─"]
    chains = [at for at, line in enumerate(lines) if line.strip() == " ".join(["╭─╮"] * turns)]
    assert [lines[at - 1].split(":")[0] for at in chains] == ["create", "http"]
    table = {line[: beside.NAME_CELLS].rstrip(): line[beside.NAME_CELLS :].split() for line in lines[chains[-1] + 2 :]}
    assert table[""] == ["append", "create", "http"]
    assert table["Responses"] == ["1", str(turns), str(turns)]
    assert table["stage runs, in full"] == [str(7 * count) for count in (1, turns, turns)]
    assert len(set(table["tokens rendered"])) == 1
    assert [name for name, _ in beside.ROWS if len(table[name]) != 3] == ["tests"]
    assert " ".join(table["tests"]) == "all pass all pass all pass"
    (folder,) = tmp_path.iterdir()
    assert [line.split()[-1] for line in lines[-3:]] == [str(folder / shape) for shape in run.SHAPES]
    assert max(len(line) for line in lines if str(tmp_path) not in line) < 80


def test_a_shape_by_itself_is_shown_live() -> None:
    result = invoke("--seed", "4", "--shape", "create")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    turns = len(PATHS[4].split()) + HAS_GIT + 1
    assert [line[3:].split()[0] for line in lines if line.startswith(("╭", "├", "╰"))] == ["Response", "completed"] * turns
    assert f"Responses   {turns}, one for each turn" in lines
    assert f"stage runs  each {turns} times: validate, route, classify, render, classify_output," in lines


def test_the_screen_tells_the_story_in_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = invoke("--seed", "0", "--keep", "--shape", "append")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    story = [line[3:].split()[0] for line in lines if line.startswith(("╭", "├", "╰"))]
    parks = len(PATHS[0].split()) + HAS_GIT
    assert story == ["Response", *["parked", "resumed"] * parks, "completed"]
    assert f"Responses   1, parked and resumed {parks} times" in lines
    assert "tests       all pass" in lines
    assert "\x1b" not in result.output
    kept = next(tmp_path.iterdir()) / "append"
    assert lines[-1] == f"kept        {kept}"
    assert max(len(line) for line in lines if str(kept.parent) not in line) < 80
    assert (kept / "practice/goals.py").read_text() == FILES["practice/goals.py"]


@pytest.mark.parametrize(("shape", "kind"), [("append", "response.done"), ("create", "response.completed")])
async def test_a_signal_cancels_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: Shape, kind: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    class Killer(run.Nobody):
        def event(self, event: Event) -> None:
            if event.type == kind:
                signal.raise_signal(signal.SIGTERM)

    assert await until_signal(partial(demonstrate, 0, Killer(), [shape])) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shape", ["append", "create"])
async def test_who_looks_on_may_fail_and_its_error_comes_out_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: Shape
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    class Gone(run.Nobody):
        def event(self, event: Event) -> None:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await until_signal(partial(demonstrate, 0, Gone(), [shape]))
    assert list(tmp_path.iterdir()) == []


def test_streamed_text_is_wrapped_at_words() -> None:
    from rich.text import Text as RichText

    file = io.StringIO()
    lines = Lines(Screen(file=file, width=30))
    lines.begin(RichText("| "), "")
    for piece in ("One rollout is", " one Resp", "onse, end to", " end.\n\nAnd a wordthatiswiderthanthewholeline."):
        lines.feed(piece)
    lines.finish()
    shown = file.getvalue().splitlines()
    assert all(line.startswith("| ") for line in shown)
    assert [line.rstrip() for line in shown] == [
        "| One rollout is one",
        "| Response, end to end.",
        "|",
        "| And a",
        "| wordthatiswiderthanthewholeline.",
    ]
