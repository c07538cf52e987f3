"""``sostenuto chat``: the conversation over real sockets, the command through a pipe, and at a terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from engine import cli
from engine.client import Client, ConnectionLost, RolloutError, connect
from engine.lab.relay import join
from engine.lab.talk.command import CannotTalk, Options, place
from engine.lab.talk.conversation import Conversation, Counts
from engine.lab.talk.permission import GuardedTools, Verdict, chosen
from engine.lab.talk.transcript import Transcript
from engine.lab.talk.view import TerminalView, clean
from protocol.client import Frame

from .http_support import NEVER, program
from .socket_support import serving

SECONDS = 20.0
LIST = {"call": {"name": "list_dir", "arguments": {}}}
SHELL = {"call": {"name": "shell", "arguments": {"command": "touch made"}}}
TOLD = {"say": "It says: {{output}}"}


# ---- the conversation


@define
class Person:
    """Says ``words``, one after the other; a function among them is called, and says nothing."""

    words: list[str | Callable[[], Awaitable[None]]]

    async def next_words(self) -> str | None:
        await trio.lowlevel.checkpoint()
        while self.words:
            said = self.words.pop(0)
            if isinstance(said, str):
                return said
            await said()
        return None


@define
class Recorder:
    """What was told, in order."""

    told: list[tuple[str, Any]] = field(factory=list)
    on_delta: Callable[[], None] = lambda: None

    def said(self, words: str) -> None:
        self.told.append(("said", words))

    def event(self, frame: Frame) -> None:
        if frame["type"] == "response.output_text.delta":
            self.on_delta()
        elif frame["type"] in ("response.output_text.done", "response.incomplete", "response.failed"):
            self.told.append(("text", frame["text"]) if "text" in frame else ("ended", frame["response"]["status"]))

    def result(self, call: Frame, output: Frame, seconds: float) -> None:
        self.told.append(("result", output["output"]))

    def note(self, text: str) -> None:
        self.told.append(("note", text))

    def failed(self, error: RolloutError | ConnectionLost) -> None:
        self.told.append(("failed", getattr(error, "code", "connection_lost")))

    def over(self, counts: Counts) -> None:
        self.told.append(("over", counts.responses))

    def all(self, kind: str) -> list[Any]:
        return [what for one, what in self.told if one == kind]


def talking(client: Client, folder: Path, *words: Any, verdicts: Sequence[Verdict] = (), **body: Any) -> Conversation:
    answers = iter(verdicts)

    async def ask(call: Frame) -> Verdict:
        await trio.lowlevel.checkpoint()
        return next(answers)

    hands = GuardedTools(chosen("all" if verdicts else "read", folder), ask)
    return Conversation(client, {"model": "scripted", **body}, hands, Person(list(words)), Recorder())


def recorded(conversation: Conversation) -> Recorder:
    assert isinstance(conversation.audience, Recorder)
    return conversation.audience


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


async def test_a_conversation_is_one_response_and_parks_for_tools_and_for_the_person(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    async with serving() as (_, port), connect(url_of(port)) as client:
        talk = talking(client, tmp_path, program(LIST, TOLD), "And now?", "Thank you.")
        await talk.run()
    heard = recorded(talk)
    assert heard.all("text") == ["It says: a.txt", "You said: And now?", "You said: Thank you."]
    assert heard.all("over") == [1, 1, 1]
    assert (talk.counts.responses, talk.counts.parks) == (1, 4)
    assert [item["type"] for item in talk.transcript.items()][:4] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]


async def test_what_may_change_something_runs_when_it_is_allowed(tmp_path: Path) -> None:
    async with serving() as (_, port), connect(url_of(port)) as client:
        asked = [program(SHELL, TOLD)] * 4
        talk = talking(client, tmp_path, *asked, verdicts=("no", "yes", "always"))
        await talk.run()
    results = recorded(talk).all("result")
    assert [text.splitlines()[0] for text in results] == ["error: the user did not allow this call", *["exit code 0"] * 3]
    assert (tmp_path / "made").exists()


async def test_tools_side_by_side_are_asked_about_one_by_one(tmp_path: Path) -> None:
    calls = {"calls": [SHELL["call"], LIST["call"], SHELL["call"]]}
    async with serving() as (_, port), connect(url_of(port)) as client:
        talk = talking(client, tmp_path, program(calls, {"say": "done"}), verdicts=("no", "yes"))
        await talk.run()
    assert [text.splitlines()[0] for text in recorded(talk).all("result")] == [
        "[the folder is empty]",
        "error: the user did not allow this call",
        "exit code 0",
    ]


async def test_after_an_interruption_the_next_words_begin_a_response_that_knows_all(tmp_path: Path) -> None:
    async with serving() as (server, port), connect(url_of(port)) as client:
        talk = talking(client, tmp_path, program(LIST, TOLD), program(NEVER, pace=200), "Go on.")
        heard = recorded(talk)
        heard.on_delta = lambda: talk.interrupt() if len(heard.all("said")) == 2 else None
        await talk.run()
        [_, after] = server.engine.services.store.all()  # type: ignore[attr-defined]
    assert heard.all("ended") == ["cancelled"]
    assert heard.all("over") == [1, 1, 2]
    types = [item.type for item in after.items]
    assert types[:4] == ["message", "function_call", "function_call_output", "message"]
    asked, cut, following = after.items[4:7]
    assert (asked.role, cut.role, cut.status, following.role) == ("user", "assistant", "incomplete", "user")


async def test_an_interrupted_tool_is_ended_and_its_call_has_an_answer(tmp_path: Path) -> None:
    slow = {"call": {"name": "shell", "arguments": {"command": "sleep 60"}}}
    async with serving() as (_, port), connect(url_of(port)) as client:
        talk = talking(client, tmp_path, program(slow, TOLD), "Go on.", verdicts=["yes"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.run)
            while not (talk._rollout and talk._rollout.state.parked):
                await trio.sleep(0.01)
            await trio.sleep(0.05)
            talk.interrupt()
    assert recorded(talk).all("text") == ["It says: error: interrupted by the user"]
    assert talk.counts.responses == 2


async def test_a_failed_response_and_a_refusal_leave_the_conversation_alive(tmp_path: Path) -> None:
    async with serving() as (_, port), connect(url_of(port)) as client:
        talk = talking(client, tmp_path, "Hello.", program({"fail": {"message": "no"}}, {"say": "Yes?"}), "Again.")
        await talk.run()
        assert recorded(talk).all("ended") == ["failed"]
        assert recorded(talk).all("text")[-1] == "Yes?"
        refused = talking(client, tmp_path, "Hello.", model="none")
        await refused.run()
        assert recorded(refused).all("failed") == ["model_not_found"]
        assert refused.failed
        assert refused.transcript.items() == []


async def test_words_that_a_response_did_not_live_to_hear_are_said_to_the_next(tmp_path: Path) -> None:
    async def wait() -> None:
        await trio.sleep(0.2)

    async with serving(park_seconds=0.05) as (_, port), connect(url_of(port)) as client:
        talk = talking(client, tmp_path, "One.", wait, "Two.")
        await talk.run()
    assert recorded(talk).all("note") == ["the Response had ended: a new one goes on with what was said"]
    assert recorded(talk).all("said") == ["One.", "Two.", "Two."]
    assert [item.get("content") for item in talk.transcript.items() if item.get("role") == "user"] == ["One.", "Two."]


async def test_begun_anew_nothing_is_remembered(tmp_path: Path) -> None:
    async with serving() as (_, port), connect(url_of(port)) as client:

        async def forget() -> None:
            await trio.lowlevel.checkpoint()
            talk.begin_anew()

        talk = talking(client, tmp_path, "One.", forget, "Two.")
        await talk.run()
    assert talk.counts.responses == 2
    assert talk.transcript.items()[0]["content"] == "Two."


@asynccontextmanager
async def cuttable(port: int) -> Any:
    """A way to ``port`` that can be cut: its own port, and what cuts all that goes over it now."""
    scopes: list[trio.CancelScope] = []

    async def carry(near: trio.SocketStream) -> None:
        far = await trio.open_tcp_stream("127.0.0.1", port)
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await join(near, far, 0)

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, carry, 0, host="127.0.0.1"))
        yield listener.socket.getsockname()[1], lambda: [scope.cancel() for scope in scopes]
        nursery.cancel_scope.cancel()


async def test_a_dropped_socket_costs_a_note(tmp_path: Path) -> None:
    async with serving() as (_, port), cuttable(port) as (way, cut), connect(url_of(way)) as client:

        async def drop() -> None:
            cut()
            await trio.lowlevel.checkpoint()

        talk = talking(client, tmp_path, "One.", drop, program(LIST, TOLD))
        heard = recorded(talk)
        await talk.run()
    assert heard.all("note") == ["the connection was lost, and is there again"]
    assert heard.all("text")[-1] == "It says: [the folder is empty]"
    assert (talk.counts.responses, talk.counts.reconnects) == (1, 1)


async def test_a_server_that_was_started_anew_goes_on_with_what_was_said(tmp_path: Path) -> None:
    """The same address, another server, which knows nothing of the Response."""
    async with serving() as (_, first), serving() as (_, second):
        where = [first]

        async def carry(near: trio.SocketStream) -> None:
            with trio.CancelScope() as scope:
                scopes.append(scope)
                await join(near, await trio.open_tcp_stream("127.0.0.1", where[0]), 0)

        async def restart() -> None:
            where[0] = second
            scopes[0].cancel()
            await trio.sleep(0.3)

        scopes: list[trio.CancelScope] = []
        async with trio.open_nursery() as nursery:
            [listener] = await nursery.start(partial(trio.serve_tcp, carry, 0, host="127.0.0.1"))
            async with connect(url_of(listener.socket.getsockname()[1])) as client:
                talk = talking(client, tmp_path, "One.", restart, "Two.")
                await talk.run()
            nursery.cancel_scope.cancel()
    assert recorded(talk).all("note")[-1] == "the Response had ended: a new one goes on with what was said"
    assert recorded(talk).all("failed") == []
    assert talk.counts.responses == 2


# ---- what was said


WORDS = {"type": "message", "role": "user", "content": "x"}
ANSWER = {"type": "message", "role": "assistant", "content": []}


@given(st.lists(st.sampled_from(["words", "message", "call", "cut call", "answer"]), max_size=30))
def test_a_transcript_can_be_sent_at_any_time(steps: list[str]) -> None:
    transcript, calls = Transcript(), 0
    for step in steps:
        if step == "words":
            transcript.said(WORDS)
        elif step == "message":
            transcript.heard(ANSWER)
        elif step == "answer":
            transcript.answered({"type": "function_call_output", "call_id": str(calls), "output": "fine"})
        else:
            calls += step == "call"
            status = "completed" if step == "call" else "incomplete"
            transcript.heard({"type": "function_call", "call_id": str(calls), "status": status, "arguments": ""})
    items = transcript.items()
    assert [item for item in items if item["type"] == "message"] == [
        WORDS if step == "words" else ANSWER for step in steps if step in ("words", "message")
    ]
    called, answered = (
        {item["call_id"]: place for place, item in enumerate(items) if item["type"] == kind}
        for kind in ("function_call", "function_call_output")
    )
    assert called.keys() == answered.keys() == {str(number + 1) for number in range(calls)}
    assert all(items[place]["type"] != "message" for call, start in called.items() for place in range(start, answered[call]))


# ---- what is shown


def test_what_leads_a_terminal_by_the_nose_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    view = TerminalView(typed=False)
    evil = "\x1b]0;owned\x07\x1b[2Jfine\n\tand so on\r\x9b31m"
    assert clean(evil) == "]0;owned[2Jfine\n\tand so on31m"
    view.event({"type": "response.output_item.added", "item": {"type": "message"}})
    view.event({"type": "response.output_text.delta", "delta": "\n\n" + evil})
    call = {"type": "function_call", "call_id": "c", "name": "x\x1b[2J", "arguments": '{"path": "\\u001b[2J"}'}
    view.event({"type": "response.output_item.done", "item": call})
    view.result(call, {"type": "function_call_output", "output": evil}, 0.1)
    told = "".join(capsys.readouterr())
    assert "\x1b" not in told
    assert "\x9b" not in told
    assert told.startswith("]0;owned[2Jfine\n    and so on31m\n")


@pytest.mark.parametrize("arguments", ["", "{", "[1]", '{"path": 1}', "null"])
def test_a_call_of_a_small_model_is_shown_as_it_is(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}
    TerminalView(typed=False).event({"type": "response.output_item.done", "item": call})
    assert (arguments.strip("{}") or "f") in capsys.readouterr().err.replace("path 1", '"path": 1').replace("f 1", '"path": 1')


# ---- the command


def environment() -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": root, "PYTHONWARNINGS": "error", "TERM": "xterm", "COLUMNS": "80"}


def piped(lines: Sequence[str], *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "engine.cli", "chat", *options]
    text = "".join(f"{line}\n" for line in lines)
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=SECONDS, env=environment())


def test_in_a_pipe_a_line_is_a_message_and_answers_alone_are_on_standard_output(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello", encoding="utf-8")
    read = {"call": {"name": "read_file", "arguments": {"path": "a.txt"}}}
    lines = [
        program({"reason": "Hm."}, read, SHELL, TOLD),
        "",
        "/usage",
        "Thanks.",
        program({"fail": {"message": "broken"}}),
        "No.",
    ]
    done = piped(lines, "--tools", "all", "--folder", str(tmp_path))
    assert done.stdout == "It says: error: the user did not allow this call\nYou said: Thanks.\n"
    assert done.returncode == 1, done.stderr
    assert [part in done.stderr for part in ("Hm.", "▸ read_file a.txt\n  hello\n", "--yes", "Responses", "broken")] == [
        True
    ] * 5
    assert not (tmp_path / "made").exists()


def test_as_json_a_turn_is_an_object(tmp_path: Path) -> None:
    done = piped([program(SHELL, TOLD), "Thanks."], "--json", "--yes", "--tools", "all", "--folder", str(tmp_path))
    first, second = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, done.stderr) == (0, "")
    assert [call["name"] for call in first["calls"]] == ["shell"]
    assert (second["user"], second["text"], second["response_id"]) == ("Thanks.", "You said: Thanks.", first["response_id"])
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (["--url", "http://127.0.0.1:9/v1"], "sostenuto serve"),
        (["--url", "nonsense"], "sostenuto serve"),
        (["--model", "nonsense"], "no such kind of model"),
        (["--folder", "/nowhere"], "does not exist"),
    ],
)
def test_nobody_there_is_said_with_what_to_do(options: list[str], advice: str) -> None:
    done = CliRunner().invoke(cli.main, ["chat", *options], input="Hello.\n")
    assert done.exit_code in (1, 2)
    assert advice in done.stderr
    assert isinstance(done.exception, SystemExit)


async def test_a_server_that_runs_is_asked_for_its_models_and_its_key() -> None:
    async with serving(keys=("secret",)) as (_, port):
        url = url_of(port)
        for options, complaint in (
            (Options(url=url), "wants a key"),
            (Options(url=url, key="wrong"), "wants another key"),
            (Options(url=url, key="secret", model="gpt"), "it has scripted"),
        ):
            with pytest.raises(CannotTalk, match=complaint):
                async with place(options):
                    pass
        async with place(Options(url=url, key="secret")) as found:
            assert found == (url, "scripted")


# ---- at a terminal


@define
class Terminal:
    """What a person sees, and types."""

    descriptor: int
    seen: bytes = b""
    _looked: int = 0

    def wait_for(self, text: str) -> str:
        """Until ``text`` is seen behind what was looked at; what was seen up to it, without colours."""
        deadline = time.monotonic() + SECONDS
        while text not in self._new:
            assert time.monotonic() < deadline, f"not seen: {text!r} in {self._new!r}"
            if select.select([self.descriptor], [], [], 0.1)[0]:
                self.seen += self._read()
        start = self._looked
        self._looked += self._new.index(text) + len(text)
        return self.plain[start : self._looked]

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    @property
    def plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen.decode(errors="ignore")).replace("\r", "")

    @property
    def _new(self) -> str:
        return self.plain[self._looked :]

    def _read(self) -> bytes:
        try:
            return os.read(self.descriptor, 65536)
        except OSError:  # the other side is gone
            return b""


ADOPT = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes standard input the terminal from which Ctrl-C comes."""


@contextmanager
def at_a_terminal(*options: str) -> Iterator[tuple[Terminal, "subprocess.Popen[bytes]"]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    command = [sys.executable, "-c", ADOPT, sys.executable, "-m", "engine.cli", "chat", *options]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env=environment())
    os.close(theirs)
    try:
        yield Terminal(ours), process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)


def test_a_person_talks_allows_interrupts_and_leaves(tmp_path: Path) -> None:
    with at_a_terminal("--tools", "all", "--folder", str(tmp_path)) as (screen, process):
        assert "sostenuto chat · scripted" in screen.wait_for("› ")
        screen.type(program(SHELL, TOLD) + "\r")
        assert "▸ shell touch made" in screen.wait_for("[N]o: ")
        assert not (tmp_path / "made").exists()
        screen.type("y\r")
        assert "It says: exit code 0" in screen.wait_for("› ")
        assert (tmp_path / "made").exists()
        screen.type(program(NEVER, pace=100) + "\r")
        time.sleep(0.5)
        screen.type("\x03")
        assert "(stopped)" in screen.wait_for("› ")
        screen.type("one line\\\r")
        screen.wait_for("… ")
        screen.type("and another\r")
        assert "You said: one line\nand another" in screen.wait_for("› ")
        screen.type("/help\r")
        assert "/usage" in screen.wait_for("› ")
        screen.type("\x04")
        screen.wait_for("2 Responses")
        assert process.wait(SECONDS) == 0


def test_ctrl_c_at_the_prompt_ends_nothing_and_a_signal_ends_all(tmp_path: Path) -> None:
    with at_a_terminal("--tools", "all", "--folder", str(tmp_path)) as (screen, process):
        screen.wait_for("› ")
        screen.type("half a li")
        screen.wait_for("half a li")
        time.sleep(0.1)
        screen.type("\x03")
        assert "Ctrl-D ends" in screen.wait_for("› ")
        screen.type(program(SHELL, TOLD) + "\r")
        screen.wait_for("[N]o: ")
        time.sleep(0.1)
        screen.type("\x03")
        assert "(stopped)" in screen.wait_for("› ")
        assert not (tmp_path / "made").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 130
