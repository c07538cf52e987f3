"""The shell on real processes: what it answers, its limits, and that nothing of a command outlives it."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from protocol.items import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    LocalShellAction,
    LocalShellCall,
    LocalShellCallOutput,
    ShellAction,
    ShellCall,
    ShellCallOutput,
    ShellOutcome,
    ShellOutputChunk,
)
from tools.local import Shell, Workspace, process
from tools.local.process import NOTE_BYTES, HeadTail
from tools.local.shell import OUTPUT_BYTES

TEST_SECONDS = 20


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(Workspace(tmp_path))


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended and that nobody has reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return not Path("/proc/self").exists()
    return state not in "ZX"


async def comes_true(condition: Callable[[], bool]) -> bool:
    """Whether it does within the test's time."""
    await trio.lowlevel.checkpoint()
    deadline = trio.current_time() + TEST_SECONDS
    while trio.current_time() < deadline:
        if condition():
            return True
        await trio.sleep(0.005)
    return False


async def gone(pid: int) -> bool:
    return await comes_true(lambda: not alive(pid))


async def number_in(path: Path) -> int:
    """The number that a command writes into a file."""
    assert await comes_true(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


# ---- answers


@pytest.mark.trio
async def test_exit_code_and_both_outputs(shell: Shell) -> None:
    assert await shell.run({"command": "echo out; echo err >&2; exit 3"}) == "exit code 3\nout\nerr\n"
    assert await shell.run({"command": "true"}) == "exit code 0\n[no output]"
    assert await shell.run({"command": "kill -KILL $$"}) == "exit code 137\n[no output]"
    assert await shell.run({"command": "printf 'a\\xff\\xc3\\xbc'"}) == "exit code 0\na\ufffdü"


@pytest.mark.trio
async def test_runs_in_the_folder_without_input(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert await shell.run({"command": "pwd -P; cat; tty"}) == f"exit code 1\n{tmp_path.resolve()}\nnot a tty\n"
    assert await shell.run({"command": "pwd -P", "workdir": "sub"}) == f"exit code 0\n{tmp_path.resolve()}/sub\n"
    assert await shell.run({"command": "pwd", "workdir": ".."}) == (
        "error: ..: outside of the working folder; use a path relative to it"
    )
    assert await shell.run({"command": "pwd", "workdir": "none"}) == "error: none: no such folder"
    assert await shell.run({"command": "echo \0"}) == "error: a command can't contain a NUL character"
    assert "at most 600" in await shell.run({"command": "true", "timeout_seconds": 601})
    assert (await shell.run({"command": "x" * 3_000_000})).startswith("error: ")


@pytest.mark.trio
async def test_environment_can_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    place = Workspace(tmp_path)
    assert await Shell(place).run({"command": "echo $A_KEY"}) == "exit code 0\nsecret\n"
    clean = Shell(place, env={"PATH": os.environ["PATH"], "B": "b"})
    assert await clean.run({"command": "echo $A_KEY$B"}) == "exit code 0\nb\n"


@pytest.mark.trio
async def test_function_and_custom_calls(shell: Shell) -> None:
    function = FunctionCall(call_id="c", name="shell", arguments='{"command": "echo hi"}')
    assert (await shell.call(function)).item == FunctionCallOutput(call_id="c", output="exit code 0\nhi\n")
    custom = CustomToolCall(call_id="c", name="shell", input="echo hi")
    assert (await shell.call(custom)).item == CustomToolCallOutput(call_id="c", output="exit code 0\nhi\n")


@pytest.mark.trio
async def test_shell_call_answers_each_command(shell: Shell) -> None:
    commands = ("echo out; echo err >&2", "exit 2", "echo so far; sleep 60")
    call = ShellCall(call_id="c", action=ShellAction(commands=commands, timeout_ms=1000, max_output_length=1000))
    assert (await shell.call(call)).item == ShellCallOutput(
        call_id="c",
        output=(
            ShellOutputChunk(stdout="out\n", stderr="err\n", outcome=ShellOutcome(type="exit", exit_code=0)),
            ShellOutputChunk(stdout="", stderr="", outcome=ShellOutcome(type="exit", exit_code=2)),
            ShellOutputChunk(stdout="so far\n", stderr="", outcome=ShellOutcome(type="timeout")),
        ),
        max_output_length=1000,
    )


@pytest.mark.trio
async def test_shell_call_keeps_to_its_output_length(shell: Shell) -> None:
    call = ShellCall(call_id="c", action=ShellAction(commands=("seq 1000; seq 1000 >&2",), max_output_length=200))
    item = (await shell.call(call)).item
    assert isinstance(item, ShellCallOutput)
    for text in (item.output[0].stdout, item.output[0].stderr):
        assert len(text) <= 200
        assert text.startswith("1\n2\n")
        assert text.endswith("\n999\n1000\n")


@pytest.mark.trio
async def test_local_shell_call(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()

    async def answer(**fields: object) -> LocalShellCallOutput:
        action = LocalShellAction(**{"command": ("sh", "-c", "pwd -P; echo $X"), "env": {"X": "x"}, **fields})  # type: ignore[arg-type]
        item = (await shell.call(LocalShellCall(call_id="c", action=action))).item
        assert isinstance(item, LocalShellCallOutput)
        assert item.call_id == "c"
        return item

    assert (await answer(working_directory="sub")).output == f"exit code 0\n{tmp_path.resolve()}/sub\nx\n"
    assert (await answer(working_directory="/")).output.startswith("error: /: outside")
    assert (await answer(command=())).output == "error: the command is empty"
    assert (await answer(command=("no-such-program",))).output == "error: no-such-program: no such file or directory"
    assert (await answer(user="root")).output.startswith("error: commands run as the agent's own user")
    assert (await answer(env={"X": 1})).output == "error: env: the value of X is no string"
    assert (await answer(command=("sleep", "60"), timeout_ms=50)).output.startswith("timed out after 0.05 s")


# ---- the output's limit


@pytest.mark.trio
async def test_a_flood_keeps_its_beginning_and_end(shell: Shell) -> None:
    said = await shell.run({"command": "echo begin; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo last"})
    assert said.startswith("exit code 0\nbegin\nxxx")
    assert said.endswith("xxx\nlast\n")
    assert len(said.encode()) <= OUTPUT_BYTES + len("exit code 0\n")
    left_out = re.search(r"\[… (\d+) bytes left out …\]", said)
    assert left_out
    assert int(left_out[1]) + said.removeprefix("exit").count("x") == 20_000_000


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(0, 200))
def test_head_and_tail_are_exact_and_bounded(pieces: list[bytes], limit: int) -> None:
    kept = HeadTail(limit)
    for piece in pieces:
        kept.feed(piece)
        assert len(kept._head) + len(kept._tail) <= limit
    data = b"".join(pieces)
    text = kept.text()
    if len(data) <= limit:
        assert text == data.decode(errors="replace")
        return
    assert re.search(r"\n\[… \d+ bytes left out …\]\n", text)


@given(st.text(min_size=1), st.integers(0, 400), st.integers(1, 9))
def test_no_character_is_cut_in_two(text: str, limit: int, step: int) -> None:
    data = (text * 50).encode(errors="ignore")
    kept = HeadTail(limit)
    for start in range(0, len(data), step):
        kept.feed(data[start : start + step])
    said = kept.text()
    if len(data) <= limit:
        assert said == data.decode()
        return
    head, count, tail = re.split(r"\n\[… (\d+) bytes left out …\]\n", said)
    assert data.decode().startswith(head)
    assert data.decode().endswith(tail)
    assert len(head.encode()) + int(count) + len(tail.encode()) == len(data)
    assert len(said.encode()) <= max(limit, NOTE_BYTES)


# ---- time, and what outlives a command


@pytest.mark.trio
async def test_a_timeout_ends_the_group_with_what_holds_the_pipes(shell: Shell, tmp_path: Path) -> None:
    command = "echo so far; (sleep 600 & echo $! > child; wait) & wait"
    said = await shell.run({"command": command, "timeout_seconds": 1})
    assert said == "timed out after 1 s and was ended\nso far\n"
    assert await gone(await number_in(tmp_path / "child"))


@pytest.mark.trio
async def test_who_ignores_sigterm_is_killed(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.2)
    command = "trap '' TERM; echo $$ > shell; (trap '' TERM; while true; do sleep 1; done) & echo $! > child; wait"
    said = await shell.run({"command": command, "timeout_seconds": 1})
    assert said.startswith("timed out")
    assert await gone(await number_in(tmp_path / "shell"))
    assert await gone(await number_in(tmp_path / "child"))


@pytest.mark.trio
async def test_sigterm_leaves_time_to_tidy_up(shell: Shell) -> None:
    said = await shell.run({"command": "trap 'echo tidy; exit 0' TERM; sleep 600 & wait", "timeout_seconds": 1})
    assert said == "timed out after 1 s and was ended\ntidy\n"


@pytest.mark.trio
async def test_cancellation_ends_the_group(shell: Shell, tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shell.run, {"command": "echo $$ > shell; sleep 600 & echo $! > child; wait"})
        pids = [await number_in(tmp_path / name) for name in ("shell", "child")]
        assert all(alive(pid) for pid in pids)
        nursery.cancel_scope.cancel()
    assert not alive(pids[0])
    assert await gone(pids[1])


@pytest.mark.trio
async def test_a_background_process_hangs_nothing_and_is_ended(shell: Shell, tmp_path: Path) -> None:
    with trio.fail_after(TEST_SECONDS):
        said = await shell.run({"command": "sleep 600 & echo $! > child; echo done"})
    assert said == "exit code 0; what it left in the background was ended\ndone\n"
    assert await gone(await number_in(tmp_path / "child"))
    with trio.fail_after(TEST_SECONDS):
        said = await shell.run({"command": "sleep 600 > /dev/null 2>&1 & echo $! > quiet"})
    assert said == "exit code 0; what it left in the background was ended\n[no output]"
    assert await gone(await number_in(tmp_path / "quiet"))


@pytest.mark.trio
async def test_late_output_of_the_background_is_waited_for_a_little(shell: Shell) -> None:
    said = await shell.run({"command": "(sleep 0.1; echo late) & echo early"})
    assert said.endswith("\nearly\nlate\n")


@pytest.mark.trio
async def test_who_left_the_group_can_hold_the_pipes_but_not_us(shell: Shell, tmp_path: Path) -> None:
    escapes = "setsid sh -c 'echo $$ > child; exec sleep 600' &"
    command = f"{escapes} while [ ! -s child ]; do sleep 0.01; done; echo done"
    with trio.fail_after(TEST_SECONDS):
        said = await shell.run({"command": command})
    assert said.endswith("\ndone\n")
    os.kill(await number_in(tmp_path / "child"), signal.SIGKILL)


@pytest.mark.trio
async def test_many_at_once_leave_no_descriptor_open(shell: Shell) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("counts open files in /proc")
    said: list[str] = []

    async def one(number: int) -> None:
        said.append(await shell.run({"command": f"echo {number}"}))

    await one(-1)
    before = len(os.listdir("/proc/self/fd"))
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(one, number)
    assert sorted(said) == sorted(f"exit code 0\n{number}\n" for number in range(-1, 10))
    assert len(os.listdir("/proc/self/fd")) == before
