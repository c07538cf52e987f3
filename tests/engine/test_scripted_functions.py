"""The scripted model without a program and without a shell: it calls the function that the user's message names."""

import json
from typing import Any

import pytest
import trio

from engine.models.base import CallBegin, CallPieces, Chunk, Plan, Rendered, Stop, Text
from engine.models.scripted import ScriptedModel
from protocol import items
from protocol.items import Item
from protocol.requests import Tool

ADDRESS = {"type": "object", "properties": {"street": {"type": "string"}, "no": {"type": "integer"}}, "required": ["street"]}


def function(name: str, required: dict[str, Any] | None = None, **optional: Any) -> Tool:
    schema = {"type": "object", "properties": {**(required or {}), **optional}, "required": [*(required or {})]}
    return Tool(type="function", name=name, parameters=schema)


WEATHER = function("get_weather", {"location": {"type": "string"}}, unit={"type": "string"})


def ask(context: list[Item], *tools: Tool, **settings: Any) -> list[Chunk]:
    """What the model samples until it stops."""
    chunks: list[Chunk] = []

    async def main() -> None:
        plan = Plan(model="scripted", tools=tools, prompt=Rendered(tuple(context), ()), **settings)
        async with ScriptedModel().open(plan) as sampler:
            while not chunks or not isinstance(chunks[-1], Stop):
                chunks.extend(await sampler.receive())

    trio.run(main)
    return chunks


def call_in(chunks: list[Chunk]) -> tuple[str, Any] | None:
    """The name and arguments of the one call, if there is one."""
    begins = [chunk for chunk in chunks if isinstance(chunk, CallBegin)]
    if not begins:
        return None
    [begin] = begins
    return begin.name, json.loads("".join(piece for chunk in chunks if isinstance(chunk, CallPieces) for piece in chunk.pieces))


def text_in(chunks: list[Chunk]) -> str:
    return "".join(piece for chunk in chunks if isinstance(chunk, Text) for piece in chunk.pieces)


def user(text: str) -> items.Message:
    return items.Message(role="user", content=text)


@pytest.mark.parametrize(
    ("message", "tools", "called"),
    [
        ("What's the weather like?", (WEATHER,), "get_weather"),
        ("WEATHER, please", (function("lookUpPlace"), WEATHER), "get_weather"),
        ("Look up the place.", (WEATHER, function("lookUpPlace")), "lookUpPlace"),
        ("weather of the place", (function("place"), WEATHER), "place"),
        ("How do I get there, for all the others?", (WEATHER,), None),
        ("What's the weather like?", (Tool(type="custom", name="weather"), Tool(type="web_search")), None),
        ("What's the weather like?", (), None),
        ("", (WEATHER,), None),
    ],
)
def test_it_calls_the_first_function_with_a_word_of_the_message(
    message: str, tools: tuple[Tool, ...], called: str | None
) -> None:
    chunks = ask([user(message)], *tools)
    found = call_in(chunks)
    assert (found and found[0]) == called
    assert (chunks[-1] == Stop("tool_calls")) is (called is not None)
    assert ("offers no shell" in text_in(chunks)) is (called is None)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "thing"),
        ({"type": "string", "enum": ["b", "a"]}, "b"),
        ({"type": "string", "default": ""}, ""),
        ({"type": "integer", "default": 7}, 7),
        ({"type": "integer"}, 1),
        ({"type": "boolean"}, False),
        ({"type": ["string", "null"]}, None),
        ({"type": "array", "items": {"type": "string"}}, []),
        (ADDRESS, {"street": "street"}),
        ({"type": "object"}, {}),
        ({}, None),
        (True, None),
    ],
)
def test_arguments_are_made_from_the_schema(schema: Any, value: Any) -> None:
    tool = function("weather", {"thing": schema}, other={"type": "string"})
    assert call_in(ask([user("the weather")], tool)) == ("weather", {"thing": value})


@pytest.mark.parametrize("parameters", [None, {}, {"properties": 1, "required": ["x"]}, {"properties": {}, "required": "x"}])
def test_a_schema_that_says_nothing(parameters: Any) -> None:
    tool = Tool(type="function", name="weather", parameters=parameters)
    assert call_in(ask([user("the weather")], tool)) == ("weather", {})


def test_a_deep_schema_ends_somewhere() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(100):
        schema = {"type": "object", "properties": {"inner": schema}, "required": ["inner"]}
    found = call_in(ask([user("the weather")], Tool(type="function", name="weather", parameters=schema)))
    assert found is not None
    assert 0 < json.dumps(found[1]).count("inner") < 20


def test_it_reports_what_came_back() -> None:
    call = items.FunctionCall(call_id="1", name="get_weather", arguments="{}")
    output = items.FunctionCallOutput(call_id="1", output="12 degrees")
    chunks = ask([user("the weather"), call, output], WEATHER)
    assert call_in(chunks) is None
    assert "get_weather" in text_in(chunks)
    assert "12 degrees" in text_in(chunks)


def test_it_may_not_call() -> None:
    assert "could not" in text_in(ask([user("the weather")], WEATHER, tool_choice="none"))


def test_a_shell_comes_first() -> None:
    shell = function("bash", {"command": {"type": "string"}})
    assert call_in(ask([user("the weather")], WEATHER, shell)) == ("bash", {"command": "ls -la"})
