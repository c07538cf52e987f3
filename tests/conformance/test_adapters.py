"""What the adapters make of a program."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given

from protocol.conformance.adapters import Adapter, Program, RealModel, Scripted
from protocol.conformance.aimock import PROGRAMS, Aimock, fixtures
from protocol.conformance.script import beginning, message_of
from protocol.conformance.strategies import programs

SEARCH: Program = (
    {"say": "Let me see."},
    {"call": {"name": "read", "arguments": '{"path": "a"}'}},
    {"calls": [{"name": "read", "arguments": "{}"}, {"name": "note", "arguments": "x", "kind": "custom_tool_call"}]},
    {"say": "It says {{output}}."},
)


def test_all_are_adapters() -> None:
    adapters: Sequence[Adapter] = [Scripted(), RealModel("m"), Aimock()]
    assert [adapter.obeys for adapter in adapters] == [True, False, True]
    assert [adapter.codes for adapter in adapters] == [True, False, False]


def test_a_real_model_is_asked_in_words_and_made_to_call() -> None:
    frame = RealModel("m", {"max_output_tokens": 99}).opening(SEARCH)
    assert frame["input"][0]["content"] == (
        'Say exactly this, and nothing else: Let me see. Call the tool `read` once with this: {"path": "a"}.'
    )
    assert frame["tool_choice"] == {"type": "function", "name": "read"}
    assert [(tool["type"], tool["name"]) for tool in frame["tools"]] == [("function", "read"), ("custom", "note")]
    assert (frame["model"], frame["max_output_tokens"]) == ("m", 99)


def test_a_real_model_has_its_tools_again_in_each_turn() -> None:
    model, script = RealModel("m"), beginning(message_of(SEARCH)).turn().after.read([("read", "1")], [])
    both = model.following(script)
    assert (both["tool_choice"], len(both["tools"])) == ("required", 2)
    script = script.turn().after.read([("read", "2"), ("note", "3")], [])
    assert "tools" not in model.following(script)  # nothing is called any more


@given(programs(hosted=True))
def test_any_program_can_be_put_to_a_real_model(steps: Program) -> None:
    frame = RealModel("m").opening(steps)
    assert frame["input"][0]["content"]
    names = {tool["name"] for tool in frame.get("tools", ())}
    choice = frame.get("tool_choice", "none")
    assert choice in ("none", "required") or choice["name"] in names


def test_the_fixtures_do_each_program_to_its_end() -> None:
    known = [(one["match"], one["response"]) for one in fixtures()["fixtures"]]
    for steps in PROGRAMS:
        script, asked = beginning(message_of(steps)), {"userMessage": message_of(steps), "hasToolResult": False}
        while True:
            (response,) = [response for match, response in known if match == asked]
            turn = script.turn()
            said = [item.text for item in turn.items if item.type != "reasoning"]
            assert [block.get("text", block.get("arguments")) for block in response["blocks"]] == said
            calls = [block for block in response["blocks"] if block["type"] == "toolCall"]
            if not calls:
                break
            asked = {"toolCallId": calls[-1]["id"]}
            script = turn.after.read([(call["name"], "") for call in calls], [])
    assert json.loads(json.dumps(known)) == [list(one) for one in known]


def test_each_call_of_the_fixtures_has_an_id_of_its_own() -> None:
    matches = [json.dumps(one["match"], sort_keys=True) for one in fixtures()["fixtures"]]
    assert len(set(matches)) == len(matches)


@pytest.mark.parametrize("step", [{"say": {"tokens": 5}}, {"call": {"name": "t", "kind": "custom_tool_call", "arguments": ""}}])
def test_what_aimock_cannot_do_is_refused(step: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="can't be told"):
        fixtures([(step,)])
