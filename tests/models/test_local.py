"""A real model behind the loop: forced calls over the append shape, side by side; a process that is killed meanwhile."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from engine.client import Client, Result, connect
from engine.models import load_model
from engine.models.base import ModelError, Plan, Rendered
from engine.models.local import LocalModel
from engine.server import Server, listening
from engine.testing import make_services
from protocol.grammar import check

READ_FILE: dict[str, Any] = {
    "type": "function",
    "name": "read_file",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string", "enum": ["notes.txt", "todo.txt"]}},
        "required": ["path"],
        "additionalProperties": False,
    },
}
TOKENS = 40


@asynccontextmanager
async def served(model: LocalModel) -> AsyncIterator[Client]:
    server = Server(make_services(models=[model]))
    async with model.running(), listening(server) as port, connect(f"http://127.0.0.1:{port}/v1") as client:
        yield client


async def rollout(
    client: Client, number: int, meanwhile: Callable[[], object] = lambda: None
) -> tuple[Result, list[dict[str, Any]], list[str]]:
    """Read a file, since that is asked for, while ``meanwhile`` happens, then answer. Gives the result, the events, and the
    files that were read."""
    events: list[dict[str, Any]] = []
    read: list[str] = []
    parked = trio.Event()

    def hear(event: Any) -> None:
        events.append(dict(event.frame))
        if event.type == "response.done":
            parked.set()

    async def read_file(path: str) -> str:
        read.append(path)
        await parked.wait()  # a call can be answered before the model has stopped: here it waits
        meanwhile()
        await trio.sleep(0.05)
        return f"{path}: milk, bread, and number {number}"

    result = await client.run(
        model="smollm2",
        input=f"What is in file number {number}?",
        tools={"read_file": read_file},
        tool_definitions=[READ_FILE],
        tool_choice={"type": "function", "name": "read_file"},
        parallel_tool_calls=False,
        max_output_tokens=TOKENS,
        temperature=0,
        on_event=hear,
    )
    return result, events, read


async def test_four_rollouts_with_forced_calls_side_by_side(smollm2: Path) -> None:
    model = LocalModel.load(smollm2, "smollm2", "slots=4&context=512")
    model.hold_seconds = 60.0
    found: list[tuple[Result, list[dict[str, Any]], list[str]]] = []

    async def one(client: Client, number: int) -> None:
        found.append(await rollout(client, number))

    async with served(model) as client, trio.open_nursery() as nursery:
        assert await model.check() == "llama.cpp, 4 slots, 512 tokens; chatml"
        model.hold_seconds = 30.0
        for number in range(4):
            nursery.start_soon(one, client, number)
    assert len(found) == 4
    assert model.hold_seconds == 30.0
    for result, events, read in found:
        check(events, append_shape=True)
        assert result.parks == 1
        assert read
        assert set(read) <= {"notes.txt", "todo.txt"}
        assert result.status == "completed" or result.response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert (result.response["engine"]["kv_kept"], result.response["engine"]["kv_lost"]) == (1, 0)


async def test_killed_while_it_samples_the_response_fails_and_says_why(smollm2: Path) -> None:
    model = LocalModel.load(smollm2, "smollm2", "slots=1&context=512")
    async with served(model) as client:

        def kill(event: Any) -> None:
            if event.type == "response.output_text.delta" and model.server.pid is not None and model.server.starts == 1:
                os.kill(model.server.pid, signal.SIGKILL)

        broken = await client.run(model="smollm2", input="Count from 1 to 100.", max_output_tokens=400, on_event=kill)
        assert broken.status == "failed"
        assert "killed by signal 9" in broken.response["error"]["message"]
        assert "started again" in broken.response["error"]["message"]
        again = await client.run(model="smollm2", input="Say hello.", max_output_tokens=5)
        assert again.status in ("completed", "incomplete")
        assert again.response["usage"]["output_tokens"] > 0
        assert model.server.starts == 2


async def test_killed_while_it_is_parked_the_response_goes_on(smollm2: Path) -> None:
    model = LocalModel.load(smollm2, "smollm2", "slots=1&context=512")

    def kill() -> None:
        assert model.server.pid is not None
        os.kill(model.server.pid, signal.SIGKILL)

    async with served(model) as client:
        result, events, read = await rollout(client, 1, kill)
    check(events, append_shape=True)
    assert len(read) == 1
    assert result.status in ("completed", "incomplete")
    assert (result.response["engine"]["kv_kept"], result.response["engine"]["kv_lost"]) == (0, 1)
    assert model.server.starts == 2


async def test_it_is_opened_while_it_runs(smollm2: Path) -> None:
    model = LocalModel.load(smollm2, "mine")
    assert model.name == "mine"
    with pytest.raises(ModelError, match="model mine is not running"):
        model.open(Plan(model="mine", prompt=Rendered((), ())))


def test_options_are_read(smollm2: Path) -> None:
    model = load_model(f"small=gguf:{smollm2}?slots=2&context=1024&threads=3&format=chatml")
    assert isinstance(model, LocalModel)
    assert (model.name, model.server.slots, model.server.context, model.server.threads) == ("small", 2, 1024, 3)
    usual = load_model(f"gguf:{smollm2}")
    assert isinstance(usual, LocalModel)
    assert (usual.name, usual.server.slots, usual.server.context) == (smollm2.stem, 4, 8192)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("slots=0", "slots is a whole number from 1 on"),
        ("context=many", "context is a whole number"),
        ("context=8193", "made for a context of 8192 tokens, not 8193"),
        ("turbo=1", "no such option: turbo; there are slots, context, threads, format"),
        ("format=tune", "there is no format 'tune'; say format=, one of chatml, llama3"),
        ("format=llama3", "needs the special token"),
        ("fast", "no options: 'fast'"),
    ],
)
def test_what_cannot_be_is_said(smollm2: Path, options: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load_model(f"gguf:{smollm2}?{options}")


def test_what_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOSTENUTO_MODELS", str(tmp_path))
    with pytest.raises(ValueError, match="sostenuto pull smollm2"):
        load_model("smollm2")
    with pytest.raises(ValueError, match="gguf needs a file"):
        load_model("gguf:")
    with pytest.raises(FileNotFoundError):
        load_model(f"gguf:{tmp_path}/none.gguf")
