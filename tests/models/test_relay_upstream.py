"""A relay to a real server of this project: over its WebSocket and over HTTP, in each shape; and what a park survives."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import trio

from engine.models.responses import sampler
from engine.models.scripted import ScriptedModel
from engine.models.trajectory import TrajectoryModel
from engine.server import open_listeners
from engine.testing import append, calls_in, create, eventually, result
from protocol.grammar import check

from .relay_support import FAST, PARKED_OR_ENDED, TOOLS, essence, here_and_there, play, relay_to, rollout, served

SHAPES = ("append", "create", "http")
CALL = {"call": {"name": "f", "arguments": {"a": "ü"}}}
PROGRAM = [
    {"reason": "let me see"},
    {"say": "I look.\u2028It is\r\nfine."},
    CALL,
    {"say": "{{output}}"},
    {"calls": [CALL["call"], {"name": "g", "arguments": {}}, {"name": "note", "arguments": "free\ntext"}]},
    {"call": {"name": "shell", "kind": "shell_call", "arguments": {"commands": ["ls", "pwd"]}}},
    {"say": "That was {{output}}."},
]
ALL_TOOLS = [*TOOLS, {"type": "custom", "name": "note"}, {"type": "shell"}]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "BACKOFF_SECONDS", FAST)


def asking(steps: list[Any], pace: float = 0) -> list[dict[str, Any]]:
    program = {"program": steps} | ({"tokens_per_second": pace} if pace else {})
    return [{"type": "message", "role": "user", "content": json.dumps(program)}]


def recorded(folder: Path) -> TrajectoryModel:
    call = {"call_id": "call_1", "name": "f", "arguments": '{"a": 1}'}
    lines = [
        {"kind": "rollout", "source": "test", "license": "CC0-1.0", "instructions": None, "tools": TOOLS},
        {"kind": "user", "text": "go"},
        {"kind": "assistant", "text": "First.", "reasoning": "hm", "tool_calls": [call, {**call, "call_id": "call_2"}]},
        {"kind": "tool", "call_id": "call_1", "output": "one", "seconds": None},
        {"kind": "tool", "call_id": "call_2", "output": "two", "seconds": None},
        {"kind": "assistant", "text": "Last.", "tool_calls": []},
    ]
    file = folder / "rollout.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return TrajectoryModel.load(file, name="recorded")


@pytest.mark.parametrize("websocket", [True, False], ids=["websocket", "http"])
async def test_a_relayed_rollout_is_that_of_the_model_in_each_shape(websocket: bool) -> None:
    body = {"input": asking(PROGRAM), "tools": ALL_TOOLS}
    async with here_and_there(websocket=websocket) as (here, there, _):
        directly, _ = await rollout(there, "http", model="scripted", **body)
        assert [item["type"] for item in directly].count("function_call") == 3
        assert {"custom_tool_call", "shell_call", "reasoning"} <= {item["type"] for item in directly}
        for shape in SHAPES:
            items, responses = await rollout(here, shape, model="relay", **body)
            assert essence(items) == essence(directly), shape
            parks = len(responses) - 1 if shape != "append" else responses[0]["engine"]["parks"]
            kept = {name: responses[0]["engine"][name] for name in ("kv_kept", "kv_lost")}
            asked = sum(response["engine"]["upstream"]["requests"] for response in responses)
            assert (parks, asked) == (3, 4)
            held = websocket and shape == "append"
            assert kept == {"kv_kept": 3 if held else 0, "kv_lost": 3 if shape == "append" and not held else 0}


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_recording_is_relayed_byte_for_byte(shape: str, tmp_path: Path) -> None:
    body = {"input": [{"type": "message", "role": "user", "content": "go"}], "tools": TOOLS}
    model = recorded(tmp_path)
    async with here_and_there(model) as (here, there, _):
        directly, before = await rollout(there, shape, model="recorded", **body)
        items, responses = await rollout(here, shape, model="relay", **body)
        assert essence(items) == essence(directly)
        assert [item.get("call_id") for item in items] == [item.get("call_id") for item in directly]
        tokens = [[one["usage"]["output_tokens"] for one in chain] for chain in (before, responses)]
        assert tokens[0] == tokens[1]


async def until_cancelled(*, task_status: trio.TaskStatus[str]) -> None:
    async with served() as (url, _):
        task_status.started(url)
        await trio.sleep_forever()


@pytest.mark.parametrize("websocket", [True, False], ids=["websocket", "http"])
async def test_a_cancelled_response_is_dropped_by_the_other_server_too(websocket: bool) -> None:
    async with served(websocket=websocket) as (url, upstream), relay_to(url) as here:
        socket = await here.connect()
        await socket.send(create(model="relay", input=asking([{"say": {"tokens": 100_000}}], pace=1000)))
        await socket.until("response.output_text.delta")
        assert len(upstream.engine.live) == 1
        await socket.send({"type": "response.cancel"})
        ended = (await socket.until_end())[-1]["response"]
        assert ended["status"] == "cancelled"
        await eventually(lambda: not upstream.engine.live)
        await eventually(lambda: not here.engine.live)


async def test_the_limit_of_tokens_spans_the_whole_response() -> None:
    async with served() as (url, _), relay_to(url) as here:
        request = create({"say": {"tokens": 6}}, CALL, {"say": {"tokens": 100}}, model="relay", tools=TOOLS)
        response = (await play(here, {**request, "max_output_tokens": 20}))[-1]["response"]
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert response["usage"]["output_tokens"] == 20


@pytest.mark.parametrize("websocket", [True, False], ids=["websocket", "http"])
async def test_one_connection_is_held_and_serves_the_next_rollout_too(websocket: bool) -> None:
    async with served(websocket=websocket) as (url, upstream), relay_to(url) as here:
        for _ in range(2):
            frames = await play(here, create(CALL, CALL, {"say": "done"}, model="relay", tools=TOOLS))
            assert frames[-1]["response"]["engine"]["kv_kept"] == (2 if websocket else 0)
            assert upstream.connections == 1
        sent = [row.input_tokens - row.cached_tokens for row in upstream.services.ledger.rows]
        assert (sent[1] < sent[0] / 2) == websocket  # what is new only


async def test_it_goes_on_when_the_other_server_has_been_started_again() -> None:
    (first,) = await open_listeners("127.0.0.1", 0)
    port = first.socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        started = await nursery.start(until_stopped, [first], 0)
        async with relay_to(f"http://127.0.0.1:{port}/v1") as here:
            socket = await here.connect()
            await socket.send(create(CALL, CALL, {"say": "{{output}}"}, model="relay", tools=TOOLS))
            frames = await socket.until("response.done")
            started.set()
            await eventually(lambda: not nursery.child_tasks)
            again = await nursery.start(until_stopped, await open_listeners("127.0.0.1", port), 1)
            for number in (1, 2):
                await socket.send(append(result(calls_in(frames)[-1], f"output {number}")))
                frames += await socket.until(*PARKED_OR_ENDED)
            check(frames, append_shape=True)
            assert frames[-1]["response"]["output"][-1]["content"][0]["text"] == "output 2"
            report = frames[-1]["response"]["engine"]
            assert (report["kv_kept"], report["kv_lost"]) == (1, 1)
        again.set()


async def until_stopped(listeners: Any, seed: int, *, task_status: trio.TaskStatus[trio.Event]) -> None:
    stopped = trio.Event()
    async with served(ScriptedModel(), listeners=listeners, seed=seed, close_seconds=0.1):
        task_status.started(stopped)
        await stopped.wait()


async def test_a_server_that_stops_while_it_samples_fails_the_response_with_the_reason() -> None:
    async with trio.open_nursery() as life:
        url = await life.start(until_cancelled)
        with trio.CancelScope(shield=True):
            async with relay_to(url) as here:
                socket = await here.connect()
                steps = asking([{"say": "first"}, CALL, {"say": {"tokens": 100_000}}], pace=1000)
                await socket.send(create(model="relay", input=steps, tools=TOOLS))
                frames = await socket.until("response.done")
                await socket.send(append(result(calls_in(frames)[0])))
                frames += await socket.until("response.output_text.delta")
                life.cancel_scope.cancel()
                frames += await socket.until_end()
    check(frames, append_shape=True)
    response = frames[-1]["response"]
    assert response["status"] == "failed"
    assert re.search("server_shutdown|connection to the model's server is gone", response["error"]["message"])
    assert [item["type"] for item in response["output"]] == ["message", "function_call", "message"]
