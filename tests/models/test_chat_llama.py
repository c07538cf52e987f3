"""Against llama.cpp's own server, with a real model: rollouts in all shapes, forced calls, JSON, and what it refuses."""

from collections.abc import Callable
from typing import Any

import trio

from engine.models.chat import ChatModel
from engine.models.llama import LlamaServer
from engine.models.upstream import Upstream
from engine.testing import create, memory_server, result, user
from protocol.codec import parse

from .chat_play import SHAPES, play

Json = dict[str, Any]
SECONDS = 120
"""For a test: the machine may be busy."""
READ = {
    "type": "function",
    "name": "read_file",
    "description": "Reads a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
EXAMPLES = [
    item
    for place, name in enumerate(("b.txt", "c.txt", "d.txt", "e.txt", "f.txt", "g.txt"))
    for item in (
        user(f"Read {name}"),
        {"type": "function_call", "call_id": f"c{place}", "name": "read_file", "arguments": f'{{"path": "{name}"}}'},
        {"type": "function_call_output", "call_id": f"c{place}", "output": "ok"},
    )
]
"""So small a model calls when it sees how."""
GREEDY = {"temperature": 0, "tools": [READ], "input": [*EXAMPLES, user("Read a.txt")]}


def model_of(llama: LlamaServer) -> ChatModel:
    upstream = llama.upstream
    return ChatModel(Upstream(url=f"{upstream.url}/v1", model=upstream.model, key=upstream.key), "m")


async def talk(llama: LlamaServer, shape: str, answer: Callable[[Json], Json] = result, **fields: Any) -> list[Json]:
    model = model_of(llama)
    with trio.fail_after(SECONDS):
        async with model.running(), memory_server(models=[model]) as server:
            return await play(server, shape, answer=answer, **fields)


async def test_it_says_what_it_is(llama: LlamaServer) -> None:
    model = model_of(llama)
    with trio.fail_after(SECONDS):
        async with model.running():
            assert llama.name in await model.check()


async def test_a_forced_call_then_an_answer_is_the_same_in_all_shapes(llama: LlamaServer) -> None:
    """Law L8, with greedy sampling; but for the length of the answer, since the limit spans an append Response."""
    told = {}
    for shape in SHAPES:
        ended = await talk(llama, shape, **GREEDY, tool_choice="required", max_output_tokens=40)
        call, message = [item for response in ended for item in response["output"]]
        assert (call["type"], call["name"], message["type"]) == ("function_call", "read_file", "message")
        assert isinstance(parse(call["arguments"])["path"], str)
        told[shape] = (call["arguments"], message["content"][0]["text"])
        spent = [response["engine"]["upstream"] for response in ended]
        assert sum(one["output_tokens"] for one in spent) == sum(response["usage"]["output_tokens"] for response in ended)
        assert sum(one["cached_tokens"] for one in spent) > 0
    assert told["create"] == told["http"]
    assert told["append"][0] == told["create"][0]
    assert told["create"][1].startswith(told["append"][1])


async def test_json_of_a_schema(llama: LlamaServer) -> None:
    schema = {
        "type": "object",
        "properties": {"legs": {"type": "integer"}},
        "required": ["legs"],
        "additionalProperties": False,
    }
    form = {"format": {"type": "json_schema", "name": "insect", "schema": schema}}
    [ended] = await talk(llama, "append", temperature=0, text=form, input="How many legs has an ant?", max_output_tokens=60)
    assert ended["status"] == "completed"
    assert isinstance(parse(ended["output"][0]["content"][0]["text"])["legs"], int)


async def test_it_is_cut_at_the_limit(llama: LlamaServer) -> None:
    [ended] = await talk(llama, "append", input="Tell me of ants.", max_output_tokens=5)
    assert (ended["status"], ended["usage"]["output_tokens"]) == ("incomplete", 5)


async def test_a_context_that_is_too_long_is_refused_in_words(llama: LlamaServer) -> None:
    [ended] = await talk(llama, "append", input="ant " * 20_000)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "context_length_exceeded")


async def test_a_cancelled_response_stops_sampling_there(llama: LlamaServer) -> None:
    model = model_of(llama)
    with trio.fail_after(SECONDS):
        async with model.running(), memory_server(models=[model]) as server:
            socket = await server.connect()
            await socket.send(create(model="m", input="Count to a thousand, in words."))
            await socket.until("response.output_text.delta")
            await socket.send({"type": "response.cancel"})
            await socket.until_end()
            async with model._upstream.connected() as http:
                while any(slot["is_processing"] for slot in (await http.get(f"{llama.url}/slots")).json()):
                    await trio.sleep(0.01)


async def test_a_named_call(llama: LlamaServer) -> None:
    other = {**READ, "name": "other"}
    named = {"type": "function", "name": "read_file"}
    [ended] = await talk(llama, "append", **{**GREEDY, "tools": [other, READ]}, tool_choice=named, max_output_tokens=40)
    assert ended["output"][0]["name"] == "read_file"
