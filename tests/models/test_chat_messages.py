"""How a context becomes a chat, and tools become functions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.models.base import ModelError
from engine.models.chat.tools import Offered
from engine.models.chat.transcript import Transcript
from protocol.codec import item_from_wire, parse
from protocol.items import Item
from protocol.requests import Tool

from .chat_support import LOOK, plan


def told(*items: dict[str, Any], instructions: str | None = None, reasoning: str | None = None) -> list[dict[str, Any]]:
    return Transcript(instructions, [item_from_wire(item) for item in items]).told(reasoning)


def says(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def calls(call_id: str, arguments: str = "{}", name: str = "look") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def returns(call_id: str, output: Any = "ok") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def called(call_id: str, arguments: str = "{}", name: str = "look") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def answered(call_id: str, content: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_what_the_developer_says_at_the_beginning_is_one_system_message() -> None:
    messages = told(says("developer", "Be brief."), says("user", "Hi"), says("system", "And kind."), instructions="Be good.")
    assert messages == [
        {"role": "system", "content": "Be good.\n\nBe brief."},
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": "And kind."},
    ]


def test_neighbours_of_one_role_are_one_message() -> None:
    parts = [{"type": "input_text", "text": "b"}, {"type": "input_text", "text": "c"}]
    assert told(says("user", "a"), says("user", parts)) == [{"role": "user", "content": "a\n\nb\nc"}]


def test_a_turn_with_its_calls_is_one_message() -> None:
    messages = told(
        says("user", "Go"),
        says("assistant", [{"type": "output_text", "text": "Well."}]),
        calls("1", '{"at": "a"}'),
        calls("2"),
        returns("2", "two"),
        returns("1", "one"),
        says("assistant", "Done."),
    )
    assert messages == [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": "Well.", "tool_calls": [called("1", '{"at": "a"}'), called("2")]},
        answered("2", "two"),
        answered("1", "one"),
        {"role": "assistant", "content": "Done."},
    ]


def test_what_is_said_while_calls_are_open_waits_for_their_answers() -> None:
    messages = told(calls("1"), calls("2"), returns("1"), says("user", "Hurry"), returns("2"), says("user", "Now"))
    assert messages == [
        {"role": "assistant", "content": None, "tool_calls": [called("1"), called("2")]},
        answered("1"),
        answered("2"),
        {"role": "user", "content": "Hurry\n\nNow"},
    ]


def test_a_call_that_was_cut_short_is_left_out() -> None:
    assert told(says("user", "Go"), {**calls("1", '{"at'), "status": "incomplete"}) == [{"role": "user", "content": "Go"}]


def test_arguments_that_are_no_json_are_told_as_json() -> None:
    message = told(calls("1", '{"at'), returns("1"))[0]
    assert parse(message["tool_calls"][0]["function"]["arguments"]) == {"malformed": '{"at'}


def test_reasoning_is_told_under_the_servers_name_for_it_or_not_at_all() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    items = (says("user", "Go"), thought, calls("1"), returns("1"))
    assert "reasoning" not in told(*items)[1]
    assert told(*items, reasoning="reasoning")[1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [called("1")],
        "reasoning": "Hm.",
    }


def test_images_and_files_of_a_user() -> None:
    parts = [
        {"type": "input_text", "text": "See"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"},
        {"type": "input_file", "file_data": "data:text/plain;base64,QQ==", "filename": "a.txt"},
    ]
    assert told(says("user", parts))[0]["content"] == [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        {"type": "file", "file": {"file_data": "data:text/plain;base64,QQ==", "filename": "a.txt"}},
    ]


def test_an_image_that_a_tool_returns_follows_in_a_message() -> None:
    output = [{"type": "input_text", "text": "a picture"}, {"type": "input_image", "image_url": "http://x/a.png"}]
    messages = told(calls("1"), calls("2"), returns("1", output), returns("2"))
    assert messages[1:3] == [answered("1", "a picture"), answered("2")]
    assert messages[3]["role"] == "user"
    assert messages[3]["content"][1] == {"type": "image_url", "image_url": {"url": "http://x/a.png"}}


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"type": "input_image", "file_id": "file_1"}, "input_image.file_id"),
        ({"type": "input_file", "file_id": "file_1"}, "input_file.file_id"),
        ({"type": "input_file", "file_url": "http://x/a.pdf"}, "input_file.file_url"),
    ],
)
def test_what_no_chat_server_takes_is_refused_by_name(part: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=named) as caught:
        told(says("user", [part]))
    assert (caught.value.fault, caught.value.code) == ("request", "invalid_prompt")


def test_tools_that_are_known_by_their_type_and_custom_ones_are_functions() -> None:
    messages = told(
        {"type": "custom_tool_call", "call_id": "1", "name": "sql", "input": "select 1"},
        {"type": "custom_tool_call_output", "call_id": "1", "output": "1"},
        {"type": "shell_call", "call_id": "2", "action": {"commands": ["ls"]}},
        {
            "type": "shell_call_output",
            "call_id": "2",
            "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
        {"type": "apply_patch_call", "call_id": "3", "operation": {"type": "delete_file", "path": "a"}},
        {"type": "apply_patch_call_output", "call_id": "3", "status": "failed", "output": "no such file"},
    )
    functions = [message["tool_calls"][0]["function"] for message in messages if "tool_calls" in message]
    assert [(function["name"], parse(function["arguments"])) for function in functions] == [
        ("sql", {"input": "select 1"}),
        ("shell", {"commands": ["ls"]}),
        ("apply_patch", {"type": "delete_file", "path": "a"}),
    ]
    assert [message["content"] for message in messages if message["role"] == "tool"] == [
        "1",
        '[{"stdout":"a","stderr":"","outcome":{"type":"exit","exit_code":0}}]',
        "failed\nno such file",
    ]


def test_hosted_searches_stand_with_the_calls_of_their_turn() -> None:
    search = {"type": "file_search_call", "id": "fs_1", "queries": ["x"], "status": "completed", "results": []}
    messages = told(says("user", "Go"), search, calls("1"), returns("1"), says("assistant", "Done."))
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["fs_1", "1"]
    assert messages[2:4] == [answered("fs_1", "No results."), answered("1")]


# ---- whatever the context, the chat is in order

TEXTS = st.sampled_from(["a", "b"])
SAYING = st.builds(says, st.sampled_from(["user", "assistant", "developer", "system"]), TEXTS)
THINKING = st.builds(lambda text: {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}, TEXTS)


@st.composite
def contexts(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Batches of calls, whose answers come in any order, with messages and reasoning anywhere."""
    items: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, 4))):
        ids = [f"{number}.{place}" for place in range(draw(st.integers(0, 3)))]
        ordered = [returns(call_id) for call_id in draw(st.permutations(ids))]
        for one in [*map(calls, ids), *ordered]:
            items += [*draw(st.lists(SAYING | THINKING, max_size=1)), one]
        items += draw(st.lists(SAYING | THINKING, max_size=2))
    return items


@given(contexts(), st.sampled_from([None, "reasoning"]))
def test_a_chat_is_in_order(items: list[dict[str, Any]], reasoning: str | None) -> None:
    messages = told(*items, reasoning=reasoning)
    waiting: list[str] = []
    for before, message in zip([{"role": None}, *messages], messages, strict=False):
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting
            assert message["role"] != before["role"]
            waiting = [call["id"] for call in message.get("tool_calls", [])]
    assert not waiting
    made = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    assert made == [item["call_id"] for item in items if item["type"] == "function_call"]


@given(contexts(), st.data())
def test_a_chat_grows_as_the_context_does(items: list[dict[str, Any]], data: st.DataObject) -> None:
    read: list[Item] = [item_from_wire(item) for item in items]
    parts = data.draw(st.integers(0, len(read)))
    grown = Transcript(None, read[:parts])
    for item in read[parts:]:
        grown.add(item)
    grown.settle()
    assert grown.told("reasoning") == Transcript(None, read).told("reasoning")


# ---- tools

SQL = Tool(type="custom", name="sql", description="Asks.", extra={"format": {"syntax": "lark", "definition": "start: /x/"}})


def names(offered: Offered) -> list[str]:
    return [wire["function"]["name"] for wire in offered.functions]


def test_every_tool_that_can_be_called_is_a_function() -> None:
    tools = [LOOK, SQL, *(Tool(type=kind) for kind in ("shell", "local_shell", "apply_patch", "file_search", "web_search"))]
    offered = Offered.of(plan(tools=tools))
    assert names(offered) == ["look", "sql", "shell", "local_shell", "apply_patch", "file_search"]
    assert offered.left_out == ("web_search",)
    sql = offered.functions[1]["function"]
    assert sql["description"] == "Asks.\n\nThe input is text of this grammar (lark):\nstart: /x/"
    assert sql["parameters"]["required"] == ["input"]
    assert dict(offered.kinds)["shell"] == "shell_call"


@pytest.mark.parametrize(
    ("choice", "offered", "told_choice"),
    [
        ("auto", ["look", "sql"], "auto"),
        ("none", ["look", "sql"], "none"),
        ("required", ["look", "sql"], "required"),
        ({"type": "function", "name": "look"}, ["look"], "required"),
        ({"type": "custom", "name": "sql"}, ["sql"], "required"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]}, ["look"], "auto"),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "sql"}]}, ["sql"], "required"),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, [], None),
    ],
)
def test_tool_choice(choice: Any, offered: list[str], told_choice: str | None) -> None:
    found = Offered.of(plan(tools=[LOOK, SQL], tool_choice=choice))
    assert (names(found), found.choice) == (offered, told_choice)


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "name": "nothing"},
        {"type": "web_search"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]},
        {"type": "allowed_tools", "mode": "auto", "tools": [3]},
    ],
)
def test_a_choice_of_what_is_not_offered_is_refused_by_name(choice: Any) -> None:
    with pytest.raises(ModelError, match="tool_choice: names"):
        Offered.of(plan(tools=[LOOK, Tool(type="web_search")], tool_choice=choice))


def test_a_call_that_is_required_of_no_tool_is_refused() -> None:
    with pytest.raises(ModelError, match="tool_choice: required"):
        Offered.of(plan(tools=[], tool_choice="required"))
