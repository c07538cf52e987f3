"""The unmodified AI SDK from npm against ``sostenuto serve``, with both of its providers for the Responses API.

It sends the whole history at each step, and writes the arguments of the calls anew in it: other spaces, the same JSON.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from .matrix import shows
from .support.node import run_script
from .support.npm import npm_packages
from .support.served import Served, served

PACKAGES = {"ai": "7.0.173", "@ai-sdk/openai": "4.0.118", "@ai-sdk/open-responses": "2.0.36", "zod": "4.6.7"}
PROVIDERS = ("openai", "open-responses")
SPACED = '{ "a": 1,  "b": 2 }'

CALLS: list[dict[str, Any]] = [
    {"calls": [{"name": "add", "arguments": SPACED}, {"name": "add", "arguments": {"a": 3, "b": 4}}]},
    {"call": {"name": "fail"}},
    {"if": {"contains": "it failed"}, "then": [{"call": {"name": "add", "arguments": {"a": 5, "b": 6}}}]},
    {"say": "The last one: {{output}}."},
]
SPEAKS = [*CALLS[:1], {"reason": "That went well."}, {"say": "Both are added: {{output}}."}, *CALLS[1:]]
"""With reasoning and a message among the calls."""

MADE = [[["add", {"a": 1, "b": 2}], ["add", {"a": 3, "b": 4}]], [["fail", {}]], [["add", {"a": 5, "b": 6}]], []]
RESULTS = [["sum 3", "sum 7"], [], ["sum 11"], []]
"""By step. What fails gives no result, but an error, which the model reads."""


@pytest.fixture
def packages() -> Path:
    """Where they are. Not a matter for the tests themselves: a skip in their tasks would lose its reason."""
    return npm_packages(f"ai-sdk-{PACKAGES['ai']}", *(f"{name}@{version}" for name, version in PACKAGES.items()))


async def run(
    packages: Path, folder: Path, provider: str, how: str, steps: list[dict[str, Any]], **options: Any
) -> tuple[dict[str, Any], Served]:
    """What the script prints, and the server, which has ended."""
    prompt = json.dumps({"program": steps})
    async with served(folder) as server:
        result = await run_script(
            "ai_sdk.mjs", packages, folder, server.url, provider=provider, how=how, prompt=prompt, options=options
        )
    assert server.exit_status == 0
    return result, server


def check(result: dict[str, Any], server: Served, texts: list[str]) -> None:
    assert result["refused"] is None
    assert (result["texts"], result["calls"], result["results"]) == (texts, MADE, RESULTS)
    assert result["finish"] == "stop"
    assert result["deltas"] in (None, "".join(texts))
    rows = server.ledger()
    assert [(row["shape"], row["status"], row["tool_calls"]) for row in rows] == [
        ("http", "completed", len(calls)) for calls in MADE
    ]
    echoed = [item["arguments"] for item in result["inputs"][-1] if item.get("type") == "function_call"]
    assert len(echoed) == 4
    assert echoed[0] != SPACED, "it writes arguments anew"
    assert json.loads(echoed[0]) == json.loads(SPACED)


@shows(
    "AI SDK",
    "http",
    "`generateText`, `streamText`, by `@ai-sdk/openai` and `@ai-sdk/open-responses`: a rollout with parallel calls",
)
@pytest.mark.parametrize("how", ["generate", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_steps_with_parallel_calls(packages: Path, provider: str, how: str, tmp_path: Path) -> None:
    check(*await run(packages, tmp_path, provider, how, CALLS), ["The last one: sum 11."])


@shows("AI SDK", "http", "reasoning and messages among the calls, `store: false`")
@pytest.mark.parametrize("how", ["generate", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_steps_that_reason_and_speak(packages: Path, provider: str, how: str, tmp_path: Path) -> None:
    result, server = await run(packages, tmp_path, provider, how, SPEAKS, store=False)
    check(result, server, ["Both are added: sum 7.", "The last one: sum 11."])


@shows("AI SDK", "http", "reasoning and messages among the calls, named by `item_reference`")
@pytest.mark.parametrize("how", ["generate", "stream"])
async def test_steps_that_name_what_was_said(packages: Path, how: str, tmp_path: Path) -> None:
    """Unless it is told ``store: false``, the provider for OpenAI sends the ids of messages and reasoning instead of them."""
    result, server = await run(packages, tmp_path, "openai", how, SPEAKS)
    assert [item["type"] for item in result["inputs"][-1] if item.get("type") == "item_reference"] == ["item_reference"] * 2
    check(result, server, ["Both are added: sum 7.", "The last one: sum 11."])
