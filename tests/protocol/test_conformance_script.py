"""The machine's own interpreter of programs, and its reference model, against hand-written cases."""

from typing import Any

import pytest

from protocol.conformance.append.model import ACCEPTED, Append, Rollout
from protocol.conformance.script import Expected, Script, beginning, message_of
from protocol.conformance.story import Story


def script(*steps: Any) -> Script:
    return beginning(message_of(steps))


def said(turn: Any) -> list[Any]:
    return [item.text if item.name is None else item.name for item in turn.items]


def test_a_turn_ends_where_the_program_waits() -> None:
    first = script({"say": "a"}, {"call": {"name": "t"}}, {"say": "b {{output}}"}).turn()
    assert (said(first), first.reason) == (["a", "t"], "tool_calls")
    second = first.after.read([("t", "out")], []).turn()
    assert (said(second), second.reason) == (["b out"], "end")
    assert second.after.turn().items == ()


def test_calls_without_a_wait_are_waited_for_at_the_next_or_at_the_end() -> None:
    first = script({"call": {"name": "t"}, "wait": False}, {"say": "a"}, {"wait": True}, {"say": "b"}).turn()
    assert (said(first), first.reason) == (["t", "a"], "tool_calls")
    last = script({"call": {"name": "t"}, "wait": False}, {"say": "a"}).turn()
    assert (said(last), last.reason) == (["t", "a"], "tool_calls")
    assert script({"wait": True}, {"say": "a"}).turn().reason == "end"


@pytest.mark.parametrize(("output", "branch"), [("all ok", "yes"), ("no", "else")])
def test_conditions_repetitions_and_templates(output: str, branch: str) -> None:
    steps = [
        {"calls": [{"name": "t"}, {"name": "u", "kind": "custom_tool_call", "arguments": "x"}]},
        {"if": {"contains": "ok"}, "then": [{"say": "yes"}], "else": [{"say": "else"}]},
        {"repeat": 2, "steps": [{"say": "{{output_of:t}}"}]},
        {"say": "{{output_of:nobody}}"},
    ]
    first = script(*steps).turn()
    assert first.items[1] == Expected("custom_tool_call", "x", "u")
    turn = first.after.read([("t", "one"), ("u", output)], []).turn()
    assert said(turn) == [branch, "one", "one"]


def test_messages_move_a_program_on() -> None:
    over = script({"say": "a"}).turn().after
    assert said(over.read([], ["hi"]).turn()) == ["You said: hi"]
    assert said(over.read([], ["hi", " "]).turn()) == ["You said nothing that I can read."]
    assert said(over.read([], [message_of([{"say": "new"}])]).turn()) == ["new"]
    stopped = script({"say": "a"}, {"stop": "end"}, {"say": "b"}).turn().after
    assert said(stopped.read([], ["hi"]).turn()) == ["b"]
    running = script({"call": {"name": "t"}}, {"say": "b"}).turn().after
    assert said(running.read([("t", "")], ["hi"]).turn()) == ["b"]


# ---- the reference model

RESPONSE: dict[str, Any] = {"id": "resp_1", "status": "in_progress", "output": [], "usage": None}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "t", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "out"}


def events(*more: dict[str, Any]) -> list[dict[str, Any]]:
    frames: list[dict[str, Any]] = [
        {"type": "response.created", "response": RESPONSE},
        {"type": "response.in_progress", "response": RESPONSE},
        {"type": "response.output_item.added", "output_index": 0, "item": dict(CALL, arguments="", status="in_progress")},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc_1", "delta": "{}"},
        {"type": "response.function_call_arguments.done", "output_index": 0, "item_id": "fc_1", "arguments": "{}"},
        {"type": "response.output_item.done", "output_index": 0, "item": dict(CALL, status="completed")},
        *more,
    ]
    return [{**frame, "sequence_number": number} for number, frame in enumerate(frames)]


def rollout(*more: dict[str, Any]) -> Rollout:
    one = Rollout(script({"call": {"name": "t", "arguments": "{}"}}, {"say": "got {{output}}"}))
    for frame in events(*more):
        one.trace.feed(frame)
        one.log.append(frame)
    return one


def send(one: Rollout, *items: dict[str, Any], key: str | None = None, hazy: bool = False) -> tuple[Append, Any]:
    append = Append(list(items), key)
    answers = one.answers(append, hazy=hazy)
    one.appends.append(append)
    return append, answers


def test_what_may_be_answered() -> None:
    one = rollout()
    assert send(one, {**RESULT, "call_id": "c2"})[1].codes == {"tool_call_not_found"}
    assert send(one, {**RESULT, "type": "custom_tool_call_output"})[1].codes == {"tool_output_type_mismatch"}
    assert send(one, RESULT, {**RESULT, "output": "other"})[1].codes == {"tool_output_conflict"}
    assert send(one, {**CALL, "name": "u"})[1].codes == {"echo_mismatch"}
    assert send(one)[1].codes == {"invalid_value"}
    for append in one.appends:
        append.refused = True
    first, answers = send(one, CALL, RESULT)
    assert (answers.codes, answers.duplicate) == ({ACCEPTED}, {False})
    _, racing = send(one, {**RESULT, "output": "other"}, hazy=True)
    assert racing.codes == {ACCEPTED, "tool_output_conflict", "response_not_active"}
    one.appends.pop()
    first.number = 6
    assert send(one, RESULT)[1].duplicate == {True}
    assert send(one, {**RESULT, "output": "other"})[1].codes == {"tool_output_conflict"}


def accepted(**append: Any) -> dict[str, Any]:
    told = {"id": "app_1", "call_ids": ["c1"], "duplicate": False, **append}
    return {"type": "response.append.accepted", "append": told, "pending": []}


def message(text: str) -> list[dict[str, Any]]:
    item = {"type": "message", "id": "msg_1", "role": "assistant"}
    part = {"type": "output_text", "text": text}
    place = {"output_index": 1, "item_id": "msg_1", "content_index": 0}
    return [
        {"type": "response.output_item.added", "output_index": 1, "item": {**item, "status": "in_progress", "content": []}},
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": text},
        {"type": "response.output_text.done", **place, "text": text},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 1, "item": {**item, "status": "completed", "content": [part]}},
    ]


def ended(text: str) -> dict[str, Any]:
    done = message(text)[-1]["item"]
    response = {**RESPONSE, "status": "completed", "output": [{**CALL, "status": "completed"}, done], "error": None}
    return {"type": "response.completed", "response": {**response, "incomplete_details": None}}


@pytest.mark.parametrize(("text", "wrong"), [("got out", None), ("got nothing", "item 1")])
def test_what_must_come_of_it(text: str, wrong: str | None) -> None:
    one = rollout(accepted(), *message(text), ended(text))
    append, _ = send(one, RESULT)
    append.number = 6
    found = one.explain()
    assert found is None if wrong is None else found is not None and found.startswith(wrong)


def test_a_result_that_nobody_sent() -> None:
    one = rollout(accepted(), *message("got out"), ended("got out"))
    assert "without the result" in str(one.explain())


def test_a_story_is_short() -> None:
    story = Story()
    story.name("resp_1", "r0")
    for frame in events():
        story.heard("c0", frame)
    story.sent("c0", "not json")
    story.did("time", "passes: 1 s")
    lines = str(story).splitlines()
    assert len(lines) == 8
    assert lines[0].endswith("c0 <-   0 created r0 in_progress")
    assert max(map(len, lines)) < 230
