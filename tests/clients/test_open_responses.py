"""Open Responses, the specification of 2026-04-24: what it requires of every frame, and the public acceptance tests.

The checks here are written from its prose. Its own acceptance tests are run from outside, with nothing of them in this
repository, where ``SOSTENUTO_OPEN_RESPONSES`` is the path of a checkout of them whose packages are installed.
"""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import trio
from trio_websocket import WebSocketConnection, open_websocket_url

from .matrix import shows
from .support.npm import npm_package
from .support.served import served

BUN: Final = "1.4.5"
"""The program that runs the acceptance tests, as a package from npm."""

SUITE_SECONDS: Final = 120.0
TESTS: Final = 17

Frame = dict[str, Any]

PROGRAM: Final = [
    {"reason": "First I look."},
    {"say": "I look at both."},
    {
        "calls": [
            {"name": "get_weather", "arguments": {"location": "Bern"}},
            {"name": "get_weather", "arguments": '{ "location":"" }'},
        ]
    },
    {"say": "It is {{output}}."},
]
TOOLS: Final = [{"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}]
PIXEL: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)

# ---- what a frame must have: a key with a type and a None among the types may be null, but never absent

NUMBER: Final = (int, float)
NULL: Final = type(None)

RESPONSE: Final[dict[str, tuple[type, ...]]] = {
    "id": (str,),
    "object": (str,),
    "created_at": (int,),
    "completed_at": (int, NULL),
    "status": (str,),
    "incomplete_details": (dict, NULL),
    "model": (str,),
    "previous_response_id": (str, NULL),
    "instructions": (str, NULL),
    "output": (list,),
    "error": (dict, NULL),
    "tools": (list,),
    "tool_choice": (str, dict),
    "truncation": (str,),
    "parallel_tool_calls": (bool,),
    "text": (dict,),
    "top_p": NUMBER,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "top_logprobs": (int,),
    "temperature": NUMBER,
    "reasoning": (dict, NULL),
    "usage": (dict, NULL),
    "max_output_tokens": (int, NULL),
    "max_tool_calls": (int, NULL),
    "store": (bool,),
    "background": (bool,),
    "service_tier": (str,),
    "metadata": (dict,),
    "safety_identifier": (str, NULL),
    "prompt_cache_key": (str, NULL),
}
ITEM_STATUS: Final = ("in_progress", "completed", "incomplete")
ITEMS: Final[dict[str, dict[str, tuple[type, ...]]]] = {
    "message": {"id": (str,), "status": (str,), "role": (str,), "content": (list,)},
    "function_call": {"id": (str,), "call_id": (str,), "name": (str,), "arguments": (str,), "status": (str,)},
    "function_call_output": {"id": (str,), "call_id": (str,), "output": (str, list), "status": (str,)},
    "reasoning": {"id": (str,), "summary": (list,)},
    "compaction": {"id": (str,), "encrypted_content": (str,)},
}
PARTS: Final[dict[str, dict[str, tuple[type, ...]]]] = {
    "output_text": {"text": (str,), "annotations": (list,)},
    "refusal": {"refusal": (str,)},
    "reasoning_text": {"text": (str,)},
    "summary_text": {"text": (str,)},
    "input_text": {"text": (str,)},
}
OF_ITEM: Final = {"item_id": (str,), "output_index": (int,)}
OF_PART: Final = {**OF_ITEM, "content_index": (int,)}
OF_SUMMARY: Final = {**OF_ITEM, "summary_index": (int,)}
EVENTS: Final[dict[str, dict[str, tuple[type, ...]]]] = {
    **{f"response.{name}": {"response": (dict,)} for name in ("created", "queued", "in_progress")},
    **{f"response.{name}": {"response": (dict,)} for name in ("completed", "failed", "incomplete")},
    **{f"response.output_item.{name}": {"output_index": (int,), "item": (dict,)} for name in ("added", "done")},
    **{f"response.content_part.{name}": {**OF_PART, "part": (dict,)} for name in ("added", "done")},
    "response.output_text.delta": {**OF_PART, "delta": (str,)},
    "response.output_text.done": {**OF_PART, "text": (str,)},
    "response.function_call_arguments.delta": {**OF_ITEM, "delta": (str,)},
    "response.function_call_arguments.done": {**OF_ITEM, "arguments": (str,)},
    **{f"response.reasoning_summary_part.{name}": {**OF_SUMMARY, "part": (dict,)} for name in ("added", "done")},
    "response.reasoning_summary_text.delta": {**OF_SUMMARY, "delta": (str,)},
    "response.reasoning_summary_text.done": {**OF_SUMMARY, "text": (str,)},
    "error": {"error": (dict,)},
}
"""All that the specification has and this server sends."""

TERMINAL: Final = ("response.completed", "response.failed", "response.incomplete")


def check_keys(value: Frame, keys: dict[str, tuple[type, ...]], *, where: str) -> None:
    """All keys are there with a value of one of their types. A boolean is no integer."""
    for key, types in keys.items():
        assert key in value, f"{where} has no {key}"
        assert type(value[key]) in types, f"{where}: {key} is {value[key]!r}"


def check_parts(parts: Sequence[Frame]) -> None:
    for part in parts:
        check_keys(part, PARTS[part["type"]], where=part["type"])
        assert None not in part.values()


def check_item(item: Frame) -> None:
    """One of five kinds; what it has not, it does not have as null."""
    check_keys(item, ITEMS[item["type"]], where=item["type"])
    assert item.get("status", "completed") in ITEM_STATUS
    assert None not in item.values(), item
    for name in ("content", "summary"):
        check_parts(item.get(name, ()))


def check_response(response: Frame) -> None:
    """The whole resource, as it stands in every snapshot."""
    check_keys(response, RESPONSE, where="response")
    assert response["object"] == "response"
    assert response["truncation"] in ("auto", "disabled")
    assert response["text"]["format"]["type"] in ("text", "json_schema", "json_object")
    assert response["text"].get("verbosity", "low") is not None
    if response["reasoning"] is not None:
        assert {"effort", "summary"} <= set(response["reasoning"])
    if response["usage"] is not None:
        check_usage(response["usage"])
    for tool in response["tools"]:
        assert {"type", "name", "description", "parameters", "strict"} <= set(tool)
    for item in response["output"]:
        check_item(item)


def check_usage(usage: Frame) -> None:
    check_keys(usage, dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), (int,)), where="usage")
    check_keys(usage["input_tokens_details"], {"cached_tokens": (int,)}, where="input_tokens_details")
    check_keys(usage["output_tokens_details"], {"reasoning_tokens": (int,)}, where="output_tokens_details")


def check_events(events: Sequence[Frame]) -> Frame:
    """Each is of the specification, and the last one alone ends the Response, which is returned."""
    for number, event in enumerate(events):
        assert event["sequence_number"] == number
        check_keys(event, EVENTS[event["type"]], where=event["type"])
        if "response" in event:
            check_response(event["response"])
        if "item" in event:
            check_item(event["item"])
        check_parts([event["part"]] if "part" in event else ())
    assert [event["type"] for event in events if event["type"] in TERMINAL] == [events[-1]["type"]]
    check_life_cycles(events)
    response: Frame = events[-1]["response"]
    return response


def check_life_cycles(events: Sequence[Frame]) -> None:
    """Items come one after the other, added before done; what was streamed of a text is the text, part, item and output."""
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    added = [event for event in events if event["type"] == "response.output_item.added"]
    assert events[-1]["response"]["output"] == done
    assert [event["output_index"] for event in added] == list(range(len(done)))
    assert [event["item"]["id"] for event in added] == [item["id"] for item in done]
    for item in done:
        deltas = "".join(event["delta"] for event in events if event.get("item_id") == item["id"] and "delta" in event)
        parts = (*item.get("content", ()), *item.get("summary", ()))
        assert deltas == item.get("arguments", "".join(part["text"] for part in parts))


# ---- how to ask


class Client:
    """Over HTTP; ``socket`` opens a WebSocket of the same server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._headers = {"authorization": "Bearer local"}

    async def post(self, path: str, body: Frame) -> httpx2.Response:
        async with httpx2.AsyncClient(trust_env=False, headers=self._headers) as http:
            return await http.post(f"{self._url}/{path}", json=body)

    async def create(self, **body: Any) -> Frame:
        """The Response as JSON, checked."""
        answer = await self.post("responses", {"model": "scripted", **body})
        assert answer.status_code == httpx2.codes.OK, answer.text
        assert answer.headers["content-type"].startswith("application/json")
        response: Frame = answer.json()
        check_response(response)
        return response

    async def stream(self, **body: Any) -> list[Frame]:
        """The events, read from a body whose form is checked too."""
        answer = await self.post("responses", {"model": "scripted", "stream": True, **body})
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "\r" not in answer.text
        *blocks, last, rest = answer.text.split("\n\n")
        assert (last, rest) == ("data: [DONE]", "")
        events = []
        for block in blocks:
            name, data = block.split("\n")
            events.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {events[-1]['type']}"
        return events

    @asynccontextmanager
    async def socket(self) -> AsyncIterator["Socket"]:
        """A WebSocket."""
        url = self._url.replace("http:", "ws:", 1) + "/responses"
        async with open_websocket_url(url, extra_headers=[(b"authorization", b"Bearer local")]) as connection:
            yield Socket(connection)


class Socket:
    def __init__(self, connection: WebSocketConnection) -> None:
        self._connection = connection

    async def turn(self, **body: Any) -> list[Frame]:
        """The events of one create, up to its last one or an error."""
        await self._connection.send_message(json.dumps({"type": "response.create", "model": "scripted", **body}))
        events: list[Frame] = []
        while not events or events[-1]["type"] not in (*TERMINAL, "error"):
            events.append(json.loads(await self._connection.get_message()))
        return events

    async def refused(self, **body: Any) -> str:
        """The code of the error that a create is answered with, and with nothing else."""
        [error] = await self.turn(**body)
        check_keys(error, {"status": (int,), **EVENTS["error"]}, where="error")
        check_keys(error["error"], {"type": (str,), "code": (str,), "message": (str,)}, where="error")
        code: str = error["error"]["code"]
        return code


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with served(tmp_path) as server:
        with trio.fail_after(30):
            yield Client(server.url)


def said(role: str, content: Any, **more: Any) -> Frame:
    return {"type": "message", "role": role, "content": content, **more}


def outputs(response: Frame) -> list[Frame]:
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    return [{"type": "function_call_output", "call_id": call["call_id"], "output": "fine"} for call in calls]


# ---- the checks


HISTORIES: Final = {
    "a message": [said("user", "Say hello in exactly 3 words.")],
    "an answer in phases": [
        said("assistant", "I look it up.", phase="commentary"),
        said("assistant", "It is four.", phase="final_answer"),
        said("user", "Say it again."),
    ],
    "a system message": [said("system", "You are a pirate."), said("user", "Hello")],
    "several turns": [said("user", "I am Ada."), said("assistant", "Hello, Ada."), said("user", "Who am I?")],
    "an image": [
        said("user", [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": PIXEL}]),
    ],
}


async def test_what_is_accepted(client: Client) -> None:
    for history in HISTORIES.values():
        response = await client.create(input=history)
        assert response["status"] == "completed"
        assert response["output"]


async def test_a_function_that_the_question_names_is_called(client: Client) -> None:
    tool = {
        **TOOLS[0],
        "description": "The weather at a place",
        "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
    }
    response = await client.create(input=[said("user", "What's the weather like in Bern?")], tools=[tool])
    [call] = response["output"]
    assert (call["type"], call["name"]) == ("function_call", "get_weather")
    assert list(json.loads(call["arguments"])) == ["location"]


@pytest.mark.parametrize("store", [True, False])
async def test_a_chain_over_each_transport(client: Client, store: bool) -> None:
    """The same program, as JSON, as events, and over a WebSocket: every frame is as it must be, and says the same."""
    first: Frame = {"input": json.dumps({"program": PROGRAM}), "tools": TOOLS, "store": store}
    kinds = ["reasoning", "message", "function_call", "function_call"]
    async with client.socket() as socket:
        response = check_events(await socket.turn(**first))
        assert [item["type"] for item in response["output"]] == kinds
        more = {"input": outputs(response), "tools": TOOLS, "store": store, "previous_response_id": response["id"]}
        last = check_events(await socket.turn(**more))
    texts = [last["output"][0]["content"][0]["text"]]
    for ask in (client.create, client.stream):
        history = [said("user", first["input"])]
        answer = await ask(**{**first, "input": history})
        response = answer if isinstance(answer, dict) else check_events(answer)
        assert [item["type"] for item in response["output"]] == kinds
        history += [*response["output"], *outputs(response)]
        answer = await ask(input=history, tools=TOOLS, store=store)
        response = answer if isinstance(answer, dict) else check_events(answer)
        texts.append(response["output"][0]["content"][0]["text"])
    assert texts == ["It is fine."] * 3


@pytest.mark.parametrize(
    ("steps", "more", "status"),
    [
        ([{"say": {"tokens": 9}}], {"max_output_tokens": 3}, "incomplete"),
        ([{"say": "x"}, {"fail": {}}], {}, "failed"),
    ],
    ids=["incomplete", "failed"],
)
async def test_other_ends(client: Client, steps: list[Frame], more: Frame, status: str) -> None:
    body = {"input": json.dumps({"program": steps}), **more}
    async with client.socket() as socket:
        over_socket = check_events(await socket.turn(**body))
    streamed = check_events(await client.stream(**body))
    for response in (over_socket, streamed):
        assert response["status"] == status
        assert (response["incomplete_details"] is not None) is (status == "incomplete")
        assert (response["error"] is not None) is (status == "failed")
        assert response["output"][-1]["status"] == ("incomplete" if status == "incomplete" else "completed")


async def test_what_is_not_stored_is_the_sockets_own(client: Client) -> None:
    async with client.socket() as socket:
        first = check_events(await socket.turn(input="Remember: cobalt.", store=False))
        second = check_events(await socket.turn(input="What?", store=False, previous_response_id=first["id"]))
        assert second["previous_response_id"] == first["id"]
        async with client.socket() as other:
            code = await other.refused(input="What?", store=False, previous_response_id=second["id"])
            assert code == "previous_response_not_found"
            assert check_events(await other.turn(input="Anew.", store=False))["status"] == "completed"
        assert await socket.refused(input="x", store=False, previous_response_id="resp_x") == "previous_response_not_found"


async def test_a_failed_continuation_loses_what_it_continued(client: Client) -> None:
    async with client.socket() as socket:
        first = check_events(await socket.turn(input="Hello.", store=False))
        output = {"type": "function_call_output", "call_id": "call_nobody", "output": "?"}
        continued = {"store": False, "previous_response_id": first["id"]}
        assert await socket.refused(input=[output], **continued) == "tool_call_not_found"
        assert await socket.refused(input="And now?", **continued) == "previous_response_not_found"


async def test_compaction(client: Client) -> None:
    history = [
        said("user", "We launch on Tuesday."),
        said("assistant", [{"type": "output_text", "text": "Understood."}]),
        said("user", [{"type": "input_text", "text": "Go on."}]),
    ]
    answer = await client.post("responses/compact", {"model": "scripted", "input": history, "prompt_cache_key": "k"})
    assert answer.status_code == httpx2.codes.OK
    compacted = answer.json()
    check_keys(compacted, {"id": (str,), "created_at": (int,), "output": (list,), "usage": (dict,)}, where="compaction")
    check_usage(compacted["usage"])
    assert compacted["object"] == "response.compaction"
    for item in compacted["output"]:
        check_item(item)
    assert [item["type"] for item in compacted["output"]] == ["message", "message", "compaction"]
    assert len({item["id"] for item in compacted["output"]}) == 3
    async with client.socket() as socket:
        window = [*compacted["output"], said("user", "Continue.")]
        assert check_events(await socket.turn(input=window, tools=[], store=False))["status"] == "completed"
    assert (await client.post("responses/compact", {"input": history})).status_code == httpx2.codes.BAD_REQUEST


# ---- the acceptance tests


@pytest.fixture
def suite() -> tuple[Path, Path]:
    """A checkout of the acceptance tests, and what runs them."""
    checkout = os.environ.get("SOSTENUTO_OPEN_RESPONSES")
    if not checkout:
        pytest.skip("SOSTENUTO_OPEN_RESPONSES does not say where a checkout of the Open Responses acceptance tests is")
    return Path(checkout), npm_package("bun", BUN) / "node_modules" / ".bin" / "bun"


@shows("Open Responses suite", "http", "all of its acceptance tests that speak HTTP")
@shows("Open Responses suite", "create", "all of its acceptance tests that speak over a WebSocket")
async def test_the_acceptance_tests_pass(suite: tuple[Path, Path], tmp_path: Path) -> None:
    checkout, bun = suite
    async with served(tmp_path) as server:
        command = [str(bun), "run", "bin/compliance-test.ts", "--base-url", server.url, "--api-key", "local"]
        with trio.fail_after(SUITE_SECONDS):
            ended: subprocess.CompletedProcess[bytes] = await trio.run_process(
                [*command, "--model", "scripted", "--json"],
                cwd=checkout,
                stdin=subprocess.DEVNULL,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
    assert ended.stdout.startswith(b"{"), ended.stderr.decode(errors="replace")
    report = json.loads(ended.stdout)
    assert [(test["id"], test["errors"]) for test in report["results"] if test["status"] == "failed"] == []
    assert report["summary"] == {"passed": TESTS, "failed": 0, "skipped": 0, "total": TESTS}
