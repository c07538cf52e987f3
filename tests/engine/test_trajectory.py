"""A recorded rollout is replayed byte for byte, wherever the context says that it is."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models.base import CallBegin, CallEnd, CallPieces, Chunk, MessageEnd, Plan, Reasoning, Rendered, Sampler, Stop, Text
from engine.models.trajectory import TrajectoryModel
from engine.testing import virtually
from engine.trajectories import (
    AssistantRecord,
    Record,
    RecordedCall,
    Rollout,
    RolloutError,
    ToolRecord,
    UserRecord,
    read_rollout,
)
from protocol import codec, items
from protocol.items import Item
from protocol.requests import Tool

RECORDED = Path(__file__).parents[3] / "shared" / "trajectories"
FILES = sorted(RECORDED.glob("*.jsonl"))


def plan(context: Sequence[Item] = (), **settings: Any) -> Plan:
    return Plan(model="trajectory", prompt=Rendered(tuple(context), ()), **settings)


def item_of(record: UserRecord | ToolRecord) -> Item:
    if isinstance(record, UserRecord):
        return items.Message(role="user", content=record.text)
    return items.FunctionCallOutput(call_id=record.call_id, output=record.output)


def said(record: AssistantRecord) -> list[Item]:
    """The items of an assistant's record."""
    text = (items.OutputText(text=record.text),)
    thoughts = [items.Reasoning(summary=(items.SummaryText(text=record.reasoning),))] if record.reasoning else []
    message = [items.Message(role="assistant", content=text)] if record.text else []
    calls = [items.FunctionCall(call_id=c.call_id, name=c.name, arguments=c.arguments) for c in record.calls]
    return [*thoughts, *message, *calls]


def items_of(chunks: Sequence[Chunk]) -> list[Item]:
    made: list[Item] = []
    text, begin, thinks = "", None, False
    for chunk in chunks:
        if isinstance(chunk, CallBegin):
            begin = chunk
        elif isinstance(chunk, Text | CallPieces | Reasoning):
            thinks = isinstance(chunk, Reasoning)
            text += "".join(chunk.pieces)
        elif isinstance(chunk, MessageEnd) and thinks:
            made.append(items.Reasoning(summary=(items.SummaryText(text=text),)))
            text = ""
        elif isinstance(chunk, MessageEnd):
            made.append(items.Message(role="assistant", content=(items.OutputText(text=text),)))
            text = ""
        elif isinstance(chunk, CallEnd):
            assert begin is not None
            assert begin.call_id is not None
            made.append(items.FunctionCall(call_id=begin.call_id, name=begin.name, arguments=text))
            text = ""
    return made


async def turn(sampler: Sampler) -> list[Chunk]:
    chunks: list[Chunk] = []
    while not chunks or not isinstance(chunks[-1], Stop):
        chunks += await sampler.receive()
    return chunks


def turns_of(records: Sequence[Record]) -> list[tuple[list[Item], list[Item]]]:
    """What comes from outside, and what the model says to it."""
    turns: list[tuple[list[Item], list[Item]]] = [([], [])]
    for record in records:
        if isinstance(record, AssistantRecord):
            turns[-1][1].extend(said(record))
        else:
            if turns[-1][1]:
                turns.append(([], []))
            turns[-1][0].append(item_of(record))
    return turns


def unchanged(new: list[Item]) -> list[Item]:
    return new


def deviating(new: list[Item]) -> list[Item]:
    """Other outputs, and other words of the user, than were recorded."""
    return [
        items.FunctionCallOutput(call_id=item.call_id, output="something else")
        if isinstance(item, items.FunctionCallOutput)
        else items.Message(role="user", content="something else")
        for item in new
    ]


async def replay(rollout: Rollout, deform: Callable[[list[Item]], list[Item]], reopen: bool) -> None:
    """Play the client's part, and check each turn."""
    model = TrajectoryModel(rollout, "t")
    turns = turns_of(rollout.records)
    history = deform(turns[0][0])
    opened = model.open(plan(history))
    sampler = await opened.__aenter__()
    for index, (_, wanted) in enumerate(turns):
        chunks = await turn(sampler)
        assert items_of(chunks) == wanted
        has_called = any(isinstance(item, items.FunctionCall) for item in wanted)
        assert chunks[-1] == Stop("tool_calls" if has_called else "end")
        new = deform(turns[index + 1][0]) if index + 1 < len(turns) else []
        history = [*history, *wanted, *new]
        if reopen:
            await opened.__aexit__(None, None, None)
            opened = model.open(plan(history))
            sampler = await opened.__aenter__()
        else:
            await sampler.extend(Rendered(tuple(new), ()))
    assert await turn(sampler) == [Stop("end")]  # there is nothing more to say
    await opened.__aexit__(None, None, None)


texts = st.sampled_from(["", "hello", "naïve 日本 👩‍👩‍👧", " a\n b "])


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    """Rollouts of any form: greetings, several users' messages, assistant's records in a row, any end."""
    records: list[Record] = []
    count = 0
    for kind in draw(st.lists(st.sampled_from("uaaa"), max_size=8)):
        if kind == "u":
            records.append(UserRecord(draw(texts)))
            continue
        arguments = draw(st.lists(st.sampled_from(["{}", '{ "x":1}', "é no json"]), max_size=3))
        calls = tuple(RecordedCall(f"c{count + index}", "f", text) for index, text in enumerate(arguments))
        count += len(calls)
        records.append(AssistantRecord(draw(texts), calls, draw(texts)))
        records += [ToolRecord(call.call_id, draw(texts)) for call in calls] if draw(st.booleans()) else []
    return Rollout("", "", None, (), tuple(records))


@given(rollouts(), st.sampled_from([unchanged, deviating]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_it_replays_by_position(rollout: Rollout, deform: Callable[[list[Item]], list[Item]], reopen: bool) -> None:
    trio.run(replay, rollout, deform, reopen)


@pytest.mark.skipif(not FILES, reason="the recorded rollouts are not here")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_replays_a_recording(path: Path) -> None:
    rollout = read_rollout(path)
    trio.run(replay, rollout, unchanged, False)
    trio.run(replay, rollout, deviating, True)


CALLS = (RecordedCall("c1", "f", '{"x": 1}'), RecordedCall("c2", "g", "{}"))
SMALL = Rollout("", "", None, (), (UserRecord("go"), AssistantRecord("one two three", CALLS), ToolRecord("c1", "ok")))


def first_turn(rollout: Rollout, context: Sequence[Item], **settings: Any) -> list[Chunk]:
    async def main() -> list[Chunk]:
        async with TrajectoryModel(rollout, "t").open(plan(context, **settings)) as sampler:
            return await turn(sampler)

    return trio.run(main)


def test_half_a_turn_is_gone_on_with() -> None:
    context = [item_of(UserRecord("go")), *said(SMALL.records[1])]  # type: ignore[arg-type]
    for held in range(1, 5):
        assert items_of(first_turn(SMALL, context[:held])) == context[held:]


def test_calls_are_known_by_their_ids() -> None:
    foreign = items.FunctionCall(call_id="x", name="f", arguments="{}")
    second = items.FunctionCall(call_id="c2", name="g", arguments="{}")
    assert [item.call_id for item in items_of(first_turn(SMALL, [foreign])) if hasattr(item, "call_id")] == ["c2"]
    assert first_turn(SMALL, [second, foreign]) == [Stop("end")]
    first = items.FunctionCall(call_id="c1", name="f", arguments="{}")
    assert first_turn(SMALL, [second, first]) == [Stop("end")]  # what is passed stays passed


def test_a_custom_tool_is_called_as_one() -> None:
    chunks = first_turn(SMALL, [], tools=(Tool(type="custom", name="g"),))
    assert [c for c in chunks if isinstance(c, CallBegin)] == [
        CallBegin("f", "function_call", "c1"),
        CallBegin("g", "custom_tool_call", "c2"),
    ]


def test_max_output_tokens_cuts_it() -> None:
    assert first_turn(SMALL, [], max_output_tokens=2) == [Text(("one", " two"), 2), Stop("max_output_tokens")]


def test_pace() -> None:
    async def main() -> None:
        start = trio.current_time()
        async with TrajectoryModel(SMALL, "t", tokens_per_second=2).open(plan()) as sampler:
            chunks = await turn(sampler)
        count = sum(chunk.tokens for chunk in chunks if isinstance(chunk, Text | CallPieces))
        assert trio.current_time() - start == pytest.approx(count / 2)

    virtually(main)


# ---- files

HEAD = {"kind": "rollout", "source": "s", "license": "MIT", "instructions": None, "tools": [{"name": "f", "parameters": {}}]}
CALL = {"call_id": "c", "name": "f", "arguments": '{ "x": 1}'}
GOOD = [
    HEAD,
    {"kind": "user", "text": "go"},
    {"kind": "assistant", "text": "", "tool_calls": [CALL]},
    {"kind": "tool", "call_id": "c", "output": "a\u2028b", "seconds": 1},
]


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "some.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_a_rollout_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, *GOOD)
    rollout = read_rollout(path)
    assert rollout.tools == ({"type": "function", "name": "f", "parameters": {}},)
    assert [codec.from_wire(tool, Tool).name for tool in rollout.tools] == ["f"]
    assert rollout.records == (
        UserRecord("go"),
        AssistantRecord("", (RecordedCall("c", "f", '{ "x": 1}'),)),
        ToolRecord("c", "a\u2028b", 1.0),
    )
    assert TrajectoryModel.load(path).name == f"trajectory:{path}"
    assert TrajectoryModel.load(path, name="mine").name == "mine"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], ":1: kind: the first line is of kind rollout"),
        ([GOOD[1]], ":1: kind: the first line is of kind rollout"),
        ([HEAD, HEAD], "record 2 is of kind rollout"),
        ([HEAD, "{"], ":2: not valid JSON"),
        ([HEAD, [1]], ":2: expected an object, got a list"),
        ([HEAD, {}], ":2: kind: missing; a string is wanted"),
        ([HEAD, {"kind": "system"}], ":2: kind: expected one of rollout, user, assistant, tool, got 'system'"),
        ([HEAD, {"kind": "user", "text": 1}], ":2: text: expected a string, got the number 1"),
        ([HEAD, {"kind": "assistant", "text": "", "tool_calls": {}}], ":2: tool_calls: expected a list, got an object"),
        (
            [HEAD, {"kind": "assistant", "text": "", "tool_calls": [{**CALL, "arguments": {}}]}],
            ":2: tool_calls[0].arguments: expected a string, got an object",
        ),
        ([HEAD, {"kind": "assistant", "text": "", "tool_calls": [], "reasoning": 1}], ":2: reasoning: expected a string"),
        ([HEAD, {**GOOD[3], "seconds": True}], ":2: seconds: expected a number, 0 or more, or null, got a boolean"),
        ([{**HEAD, "tools": [{}]}], ":1: tools[0].name: missing"),
        ([{**HEAD, "instructions": 1}], ":1: instructions: expected a string or null"),
    ],
)
def test_what_is_no_rollout_is_told_with_line_and_field(tmp_path: Path, lines: list[Any], message: str) -> None:
    with pytest.raises(RolloutError) as caught:
        read_rollout(written(tmp_path, *lines))
    assert message in str(caught.value)


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(b'{"kind": "\xff"}')
    with pytest.raises(RolloutError, match="not UTF-8"):
        read_rollout(path)
    with pytest.raises(FileNotFoundError):
        read_rollout(tmp_path / "none.jsonl")
