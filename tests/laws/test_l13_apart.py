"""L13 apart: a foreign id cannot be told from an unknown one; a bad frame never disturbs another lane."""

import json
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Config
from engine.testing import append, calls_in, create, direct_server, memory_server, numbered, result, user, virtually
from engine.testing.profile import examples
from protocol.conformance.strategies import CODES_OF_BAD_FRAMES, bad_frames

STEPS: list[Any] = [{"say": "let me see"}, {"calls": [{"name": "a"}, {"name": "b"}]}, {"say": "{{output}}"}]


@pytest.mark.parametrize("kind", ["append", "cancel", "finish", "attach", "continue"])
def test_l13_a_stranger_sees_nothing(kind: str) -> None:
    """The same question about another tenant's live Response, its ended one, and one that never was: the same answer."""

    async def main() -> None:
        async with memory_server(config=Config(keys=("mine", "yours"))) as server:
            mine, yours = await server.connect(key="mine"), await server.connect(key="yours")
            await mine.send(create({"say": "hi"}))
            ended = (await mine.until_end())[0]["response"]["id"]
            await mine.send(create(*STEPS))
            live = (await mine.until("response.done"))[0]["response"]["id"]
            answers = []
            for response_id in (live, ended, "resp_" + "0" * 32):
                frame: dict[str, Any] = {"type": f"response.{kind}", "response_id": response_id}
                if kind == "append":
                    frame = append(user("hello"), response_id=response_id)
                elif kind == "continue":
                    frame = create({"say": "hi"}, previous_response_id=response_id)
                await yours.send(frame)
                answers.append(json.dumps(await yours.receive()).replace(response_id, "ID"))
            assert len(set(answers)) == 1
            assert json.loads(answers[0])["code"] in ("response_not_found", "previous_response_not_found")
            await server.settle()
            await mine.send({"type": "response.cancel"})
            assert (await mine.receive())["type"] == "response.incomplete", "and the owner noticed nothing"

    virtually(main)


@pytest.mark.parametrize("continuation", ["append", "create"])
def test_l13_a_strangers_item_is_as_one_that_never_was(continuation: str) -> None:
    async def main() -> None:
        async with memory_server(config=Config(keys=("mine", "yours"))) as server:
            mine, yours = await server.connect(key="mine"), await server.connect(key="yours")
            await mine.send({**create({"say": "hi"}), "continuation": continuation})
            response = (await mine.until_end())[-1]["response"]
            listed = f"msg_{response['id'].removeprefix('resp_')}0000"
            answers = []
            for item_id in (response["output"][0]["id"], listed, "msg_" + "0" * 32):
                named = {**create({"say": "hi"}), "continuation": continuation, "input": [user("x"), {"id": item_id}]}
                await yours.send(named)
                answers.append(json.dumps(await yours.receive()).replace(item_id, "ID"))
                if item_id != "msg_" + "0" * 32:
                    await mine.send(named)
                    assert (await mine.until_end())[-1]["type"] == "response.completed"
            assert len(set(answers)) == 1
            assert json.loads(answers[0])["code"] == "item_not_found"

    virtually(main)


async def lane_alone(disturb: list[str | bytes] | None) -> list[dict[str, Any]]:
    """All frames of one lane, byte for byte, while another client and another lane misbehave, or nobody does."""
    async with direct_server() as server:
        socket, other = await server.connect(), await server.connect()
        await socket.send(create(*STEPS, stream_id="good"))
        frames = await socket.until("response.done")
        errors = 0
        for bad in disturb or []:
            await socket.send(bad)
            await other.send(bad)
            errors += 1
        for call in calls_in(frames):
            await socket.send(append(result(call, f"result of {call['name']}"), stream_id="good"))
        while frames[-1]["type"] != "response.completed":
            frames.append(await socket.receive())
        refused = [frame for frame in frames if frame["type"] == "error"]
        assert len(refused) == errors
        assert {frame["code"] for frame in refused} <= CODES_OF_BAD_FRAMES
        for _ in range(errors):
            assert (await other.receive())["type"] == "error"
        return [frame for frame in frames if frame["type"] != "error"]


@examples(40)
@given(st.lists(bad_frames(), min_size=1, max_size=6))
def test_l13_a_bad_frame_disturbs_no_other_lane(bad: list[tuple[str | bytes, frozenset[str]]]) -> None:
    quiet = virtually(lambda: lane_alone(None))
    disturbed = virtually(lambda: lane_alone([frame for frame, _ in bad]))
    assert strip(disturbed) == strip(quiet)


def strip(frames: list[dict[str, Any]]) -> list[str]:
    """Frames as they came, but for the seconds that were measured by the wall."""
    texts = []
    for frame in frames:
        if "engine" in frame.get("response", {}):
            frame = {**frame, "response": {**frame["response"], "engine": None}}
        texts.append(json.dumps(frame))
    return texts


@examples(60)
@given(bad_frames())
def test_l13_each_bad_frame_has_its_error(bad: tuple[str | bytes, frozenset[str]]) -> None:
    frame, codes = bad

    async def main() -> None:
        async with memory_server() as server:
            socket = await server.connect()
            await socket.send(frame)
            error = await socket.receive()
            assert error["type"] == "error"
            assert error["code"] in codes
            assert error["error"]["code"] == error["code"]
            assert error["work"] == "not_started"
            await socket.send(create({"say": "alive"}))
            assert (await socket.until_end())[-1]["response"]["status"] == "completed"

    virtually(main)


@examples(60)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["input", "response_id", "stream_id", "tools", "metadata", "hold", "idempotency_key", "text", "type", "x"]),
    st.sampled_from(["response.create", "response.append", "response.attach", "response.cancel", "response.finish"]),
)
def test_l13_any_value_anywhere_is_answered(value: Any, name: str, kind: str) -> None:
    """Whatever JSON stands in a field: the frame is obeyed or refused, and neither is a bug."""

    async def main() -> None:
        async with direct_server() as server:
            socket = await server.connect()
            frame = {"type": kind, "model": "scripted", "input": '{"program": [{"say": "x"}]}', name: value}
            await socket.send(json.dumps(frame))
            with trio.move_on_after(400):
                first = await socket.receive()
                assert first["type"] == "error" or kind == "response.create"
                if first["type"] != "error":
                    await socket.until_end()
            assert not server.books.bugs
            await socket.send(create({"say": "alive"}))
            assert (await socket.until_end())[-1]["response"]["status"] == "completed"

    virtually(main)


@pytest.mark.parametrize("depth", [*range(225, 262), 300, 1000, 1100, 10_000])
def test_l13_depth(depth: int) -> None:
    """However deep: never a bug. What can be read can be sent on."""
    deep = "[" * depth + "]" * depth

    async def main() -> None:
        async with direct_server() as server:
            socket = await server.connect()
            for field in (
                f'"tools": [{{"type": "function", "name": "f", "parameters": {{"a": {deep}}}}}]',
                f'"text": {{"a": {deep}}}',
            ):
                await socket.send('{"type": "response.create", "model": "scripted", "input": "hi", ' + field + "}")
                frames = [await socket.receive()]
                if frames[0]["type"] != "error":
                    frames += await socket.until_end()
                else:
                    assert frames[0]["code"] == "invalid_json"
            await socket.send(append({"type": "function_call_output", "call_id": "c", "output": "x"}))
            await socket.receive()

    virtually(main)


@examples(20)
@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8))
def test_l13_lanes_are_fifos_and_run_side_by_side(lanes: list[str | None]) -> None:
    async def main() -> None:
        async with direct_server() as server:
            socket = await server.connect()
            for number, lane in enumerate(lanes):
                fields = {"stream_id": lane} if lane else {}
                await socket.send(create({"say": f"number {number}"}, tokens_per_second=10, **fields))
            order: dict[str | None, list[str]] = {}
            frames: list[dict[str, Any]] = []
            while sum(frame["type"] == "response.completed" for frame in frames) < len(lanes):
                frames.append(await socket.receive())
            for frame in frames:
                lane = frame.get("stream_id")
                if frame["type"] == "response.output_text.done":
                    order.setdefault(lane, []).append(frame["text"])
            assert order == {lane: [f"number {number}" for number, one in enumerate(lanes) if one == lane] for lane in lanes}
            for lane in set(lanes):
                numbers = [frame["sequence_number"] for frame in frames if frame.get("stream_id") == lane]
                starts = [at for at, number in enumerate(numbers) if number == 0]
                assert len(starts) == lanes.count(lane), "one after the other"
                assert numbered(frames)
            busiest = max(lanes.count(lane) for lane in lanes)
            assert trio.current_time() < busiest * 1.0, "side by side"

    virtually(main)
