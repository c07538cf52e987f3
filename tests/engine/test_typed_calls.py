"""Calls of client tools that are known by their type: ``shell``, ``local_shell``, ``apply_patch``."""

from typing import Any

import pytest

from .socket_support import CREATE, client, serving

SHELL = {"name": "shell", "arguments": {"commands": ["ls", "pwd"], "timeout_ms": 50}}
LOCAL = {"name": "local_shell", "arguments": {"type": "exec", "command": ["ls"], "env": {"A": "b"}}}
PATCH = {"name": "apply_patch", "arguments": {"type": "create_file", "path": "a", "diff": "+a"}}
TOOLS = [{"type": "shell"}, {"type": "local_shell"}, {"type": "apply_patch"}]
PRINTED = {"stdout": "out", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}


def answer(call: dict[str, Any]) -> dict[str, Any]:
    fields = {
        "shell_call": {"output": [PRINTED]},
        "local_shell_call": {"output": "out"},
        "apply_patch_call": {"status": "failed", "output": "no such file"},
    }
    return {"type": f"{call['type']}_output", "call_id": call["call_id"], **fields[call["type"]]}


async def test_each_is_announced_whole_and_answered() -> None:
    steps = (
        {"calls": [SHELL, LOCAL, PATCH]},
        {
            "if": {"output_of": "apply_patch", "failed": True},
            "then": [{"say": "{{output_of:shell}}, {{output_of:local_shell}}"}],
        },
    )
    async with serving() as (_, port), client(port) as raw:
        await raw.create(*steps, tools=TOOLS)
        frames = [await raw.frame()]
        while frames[-1]["type"] != "response.done":
            frames.append(await raw.frame())
        done = frames[-1]
        stubs = [(stub["type"], "name" in stub) for stub in done["required_input"]]
        kinds = ["shell_call", "local_shell_call", "apply_patch_call"]
        assert stubs == [(f"{kind}_output", False) for kind in kinds]
        items = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
        added = [frame["item"] for frame in frames if frame["type"] == "response.output_item.added"]
        assert [item["type"] for item in items] == kinds
        assert added == [{**item, "status": "in_progress"} for item in items]
        asked = [item.get("action") or item["operation"] for item in items]
        assert asked == [call["arguments"] for call in (SHELL, LOCAL, PATCH)]
        await raw.say({"type": "response.append", "input": [answer(item) for item in items]})
        response = (await raw.until("response.completed"))["response"]
        assert response["output"][:3] == items
        assert response["output"][3]["content"][0]["text"] == "out, out"


@pytest.mark.parametrize("store", [True, False])
async def test_a_chain_goes_on_with_their_outputs(store: bool) -> None:
    async with serving() as (_, port), client(port, **CREATE) as raw:
        response = await first(raw, store)
        await go_on(raw, response, answer(response["output"][0]), store)
        response = (await raw.until("response.completed"))["response"]
        assert response["output"][0]["content"][0]["text"] == "out"


async def test_a_chain_refuses_outputs_of_another_kind() -> None:
    async with serving() as (_, port), client(port, **CREATE) as raw:
        response = await first(raw, True)
        wrong = {"type": "function_call_output", "call_id": response["output"][0]["call_id"], "output": "x"}
        await go_on(raw, response, wrong, True)
        assert (await raw.until("error"))["code"] == "tool_output_type_mismatch"


async def first(raw: Any, store: bool) -> dict[str, Any]:
    """A Response that ends with a call of the shell."""
    await raw.create({"call": SHELL}, {"say": "{{output}}"}, tools=TOOLS, store=store)
    response: dict[str, Any] = (await raw.until("response.completed"))["response"]
    return response


async def go_on(raw: Any, response: dict[str, Any], output: dict[str, Any], store: bool) -> None:
    body = {"model": "scripted", "previous_response_id": response["id"], "input": [output], "tools": TOOLS, "store": store}
    await raw.say({"type": "response.create", **body})


async def test_a_function_of_that_name_comes_first() -> None:
    async with serving() as (_, port), client(port) as raw:
        await raw.create({"call": SHELL}, tools=[{"type": "shell"}, {"type": "function", "name": "shell"}])
        assert (await raw.until("response.output_item.done"))["item"]["type"] == "function_call"


async def test_tool_choice_is_a_limit_for_them_too() -> None:
    async with serving() as (_, port), client(port) as raw:
        await raw.create({"calls": [SHELL, PATCH]}, tools=TOOLS, tool_choice={"type": "apply_patch"})
        assert (await raw.until("response.output_item.done"))["item"]["type"] == "apply_patch_call"
        assert len((await raw.until("response.done"))["required_input"]) == 1


@pytest.mark.parametrize(
    ("call", "where"),
    [
        ({**SHELL, "arguments": {"commands": "ls"}}, "action.commands"),
        ({**SHELL, "arguments": "ls"}, "not valid JSON"),
        ({**PATCH, "arguments": {"type": "move_file", "path": "a"}}, "operation.type"),
    ],
)
async def test_one_that_is_none_fails_the_response(call: dict[str, Any], where: str) -> None:
    async with serving() as (_, port), client(port) as raw:
        await raw.create({"call": call}, tools=TOOLS)
        response = (await raw.until("response.failed"))["response"]
        assert response["output"] == []
        assert response["error"]["code"] == "server_error"
        assert where in response["error"]["message"]


async def test_one_that_is_cut_is_never_announced() -> None:
    async with serving() as (_, port), client(port) as raw:
        await raw.create({"say": "one"}, {"call": SHELL}, tools=TOOLS, max_output_tokens=5)
        response = (await raw.until("response.incomplete"))["response"]
        assert [item["type"] for item in response["output"]] == ["message"]
        assert response["usage"]["output_tokens"] == 5
