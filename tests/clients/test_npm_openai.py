"""The unmodified ``openai`` package from npm against ``sostenuto serve``: JSON, events, its stream helper, its WebSocket."""

import json
from pathlib import Path
from typing import Any

import pytest

from .matrix import shows
from .support.node import run_script
from .support.npm import npm_packages
from .support.served import served

OPENAI = "7.59.0"
WS = "8.23.0"

STEPS = [
    {"calls": [{"name": "add", "arguments": '{ "a": 1,  "b": 2 }'}, {"name": "add", "arguments": {"a": 3, "b": 4}}]},
    {"reason": "That went well."},
    {"say": "Both are added: {{output}}."},
    {"call": {"name": "fail"}},
    {"if": {"failed": True}, "then": [{"call": {"name": "add", "arguments": {"a": 5, "b": 6}}}]},
    {"say": "The last one: {{output}}."},
]
TEXTS = ["Both are added: sum 7.", "The last one: sum 11."]
CALLS = [["add", {"a": 1, "b": 2}], ["add", {"a": 3, "b": 4}], ["fail", {}], ["add", {"a": 5, "b": 6}]]
TURNS = [2, 1, 1, 0]
"""Calls of each Response."""

WAYS = {
    "json": "http",
    "chain": "http",
    "stream": "http",
    "helper": "http",
    "helper chain": "http",
    "socket": "create",
}
"""How the client asks, and the shape that this is."""

EVENTS = {
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.output_item.done",
    "response.content_part.added",
    "response.content_part.done",
    "response.output_text.delta",
    "response.output_text.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.completed",
}


@pytest.fixture
def packages() -> Path:
    """Where they are. Not a matter for the tests themselves: a skip in their tasks would lose its reason."""
    return npm_packages(f"openai-{OPENAI}", f"openai@{OPENAI}", f"ws@{WS}")


@shows("openai npm", "http", "`create`, `create({stream: true})`, `stream()`: a rollout with parallel calls")
@shows("openai npm", "http", "with the whole history each time, `store: false`, or by `previous_response_id`")
@shows("openai npm", "create", "`ResponsesWS`: a rollout with parallel calls")
@pytest.mark.parametrize("how", WAYS)
async def test_a_rollout_with_parallel_calls(packages: Path, how: str, tmp_path: Path) -> None:
    prompt = json.dumps({"program": STEPS})
    async with served(tmp_path) as server:
        result = await run_script("openai.mjs", packages, tmp_path, server.url, how=how, prompt=prompt)
    assert server.exit_status == 0
    assert (result["texts"], result["calls"], result["answers"]) == (TEXTS, CALLS, len(TURNS))
    rows = server.ledger()
    assert [(row["shape"], row["status"], row["tool_calls"]) for row in rows] == [
        (WAYS[how], "completed", calls) for calls in TURNS
    ]
    assert set(result["seen"]) == (EVENTS if how in ("stream", "socket") else set())


async def test_without_a_program_it_calls_what_the_message_names(packages: Path, tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        result = await run_script("openai.mjs", packages, tmp_path, server.url, how="json", prompt="When does it fail?")
    assert result["calls"] == [["fail", {}]]
    assert "error: it failed" in result["texts"][-1]


@shows("openai npm", "http", "`retrieve`, as JSON and as a stream; `inputItems`, `delete`; `background: true`")
@shows("openai npm", "http", "`models`, `inputTokens.count`, `compact`; errors")
@shows("openai npm", "create", "errors")
async def test_errors_and_the_other_endpoints(packages: Path, tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        result = await run_script("openai_errors.mjs", packages, tmp_path, server.url)
    assert "hello" in result["text"]
    assert result["same"]
    assert [(item["role"], item["type"]) for item in result["items"]] == [("user", "message")]
    assert result["replayed"][0] == "response.created"
    assert result["replayed"][-1] == "response.completed"
    assert result["counted"] > 0
    assert result["compacted"] == ["message", "compaction"]
    assert result["background"] in ("queued", "in_progress", "completed")
    assert result["models"] == ["scripted"]
    assert {name: _brief(result[name]) for name in ("deleted", "model", "previous", "temperature")} == {
        "deleted": ("NotFoundError", 404, "response_not_found", "response_id"),
        "model": ("NotFoundError", 404, "model_not_found", "model"),
        "previous": ("BadRequestError", 400, "previous_response_not_found", "previous_response_id"),
        "temperature": ("BadRequestError", 400, "invalid_type", "temperature"),
    }
    assert result["socket"]["code"] == "previous_response_not_found"


def _brief(error: dict[str, Any]) -> tuple[Any, ...]:
    assert error["type"] == "invalid_request_error"
    return error["name"], error["status"], error["code"], error["param"]
