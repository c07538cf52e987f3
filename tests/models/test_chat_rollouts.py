"""Whole rollouts with a model behind a chat server, in all shapes: most in memory and in virtual time."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from engine.models.base import ModelError
from engine.models.chat import ChatModel
from engine.models.upstream import Upstream
from engine.testing import Delay, FakeSearch, MemoryServer, create, memory_server, user, virtually
from engine.testing.upstreams import DONE, Cut, FakeUpstream, Refused, Reply, chunk, event, usage
from protocol.codec import encode, parse

from .chat_play import ENDS, SHAPES, Json, play
from .chat_streams import A, B, call, calls
from .chat_support import hear, model_at, plan, saying

LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
SQL = {"type": "custom", "name": "sql"}
STOP = chunk(finish_reason="stop")
HELLO = Reply(chunk(content="Hi there"), STOP, usage(7, 2), DONE)
LOOKS = Reply(calls(call("look", A, index=0, call_id="one")), chunk(finish_reason="tool_calls"), usage(20, 5), DONE)


@asynccontextmanager
async def served(upstream: FakeUpstream, **options: Any) -> AsyncIterator[MemoryServer]:
    model = model_at(upstream)
    async with model.running(), memory_server(models=[model], **options) as server:
        yield server


def talk(upstream: FakeUpstream, shape: str = "append", **fields: Any) -> list[Json]:
    """``play`` with a server of its own."""

    async def main() -> list[Json]:
        async with served(upstream) as server:
            return await play(server, shape, **fields)

    return virtually(main)


# ---- a rollout


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tool_rollout(shape: str) -> None:
    upstream = FakeUpstream(
        Reply(
            chunk(reasoning_content="Hm."),
            chunk(content="I look."),
            calls(call("look", A, index=0, call_id="one"), call("sql", '{"input": "select 1"}', index=1, call_id="two")),
            chunk(finish_reason="tool_calls"),
            usage(20, 5),
            DONE,
        ),
        HELLO,
    )
    ended = talk(upstream, shape, tools=[LOOK, SQL], instructions="Be good.")
    assert [response["status"] for response in ended] == ["completed"] * len(ended)
    output = [item for response in ended for item in response["output"]]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "custom_tool_call", "message"]
    assert (output[2]["arguments"], output[3]["input"]) == (A, "select 1")
    first, second = (request["messages"] for request in upstream.requests)
    assert first == [{"role": "system", "content": "Be good."}, {"role": "user", "content": "Go"}]
    asked = second[2]["tool_calls"][1]["function"]["arguments"]
    assert parse(asked) == {"input": "select 1"}
    # law L8: what the model is told is the same in every shape
    assert second == [
        *first,
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "one", "type": "function", "function": {"name": "look", "arguments": A}},
                {
                    "id": "two",
                    "type": "function",
                    "function": {"name": "sql", "arguments": second[2]["tool_calls"][1]["function"]["arguments"]},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "one", "content": "ok"},
        {"role": "tool", "tool_call_id": "two", "content": "ok"},
    ]
    assert sum(response["usage"]["output_tokens"] for response in ended) == 7
    spent = [response["engine"]["upstream"] for response in ended]
    assert sum(one["requests"] for one in spent) == 2
    assert (sum(one["input_tokens"] for one in spent), sum(one["output_tokens"] for one in spent)) == (27, 7)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_hosted_search_is_a_function_too(shape: str) -> None:
    async def main() -> list[Json]:
        async with served(upstream, hosted={"file_search": FakeSearch()}) as server:
            return await play(server, shape, tools=[{"type": "file_search"}, LOOK])

    found = calls(call("file_search", '{"query": "x"}', index=0), call("look", A, index=1, call_id="one"))
    upstream = FakeUpstream(Reply(found, chunk(finish_reason="tool_calls"), DONE), HELLO)
    ended = virtually(main)
    assert [item["type"] for response in ended for item in response["output"]] == [
        "file_search_call",
        "function_call",
        "message",
    ]
    messages = upstream.requests[1]["messages"]
    assert [entry["function"]["name"] for entry in messages[1]["tool_calls"]] == ["file_search", "look"]
    assert [message["tool_call_id"] for message in messages[2:]] == [entry["id"] for entry in messages[1]["tool_calls"]]
    assert "found x" in messages[2]["content"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_call_that_is_not_let_through_is_as_if_never_sampled(shape: str) -> None:
    two = calls(call("look", A, index=0, call_id="one"), call("look", B, index=1, call_id="two"))
    upstream = FakeUpstream(Reply(two, chunk(finish_reason="tool_calls"), DONE), HELLO)
    talk(upstream, shape, tools=[LOOK], max_tool_calls=1)
    turn = upstream.requests[1]["messages"][1]
    assert [entry["id"] for entry in turn["tool_calls"]] == ["one"]


def test_calls_one_at_a_time_if_the_request_says_so() -> None:
    two = calls(call("look", A, index=0, call_id="one"), call("look", B, index=1, call_id="two"))
    upstream = FakeUpstream(Reply(two, chunk(finish_reason="tool_calls"), DONE), HELLO)
    [ended] = talk(upstream, tools=[LOOK], parallel_tool_calls=False)
    assert [item.get("call_id") for item in ended["output"]] == ["one", None]
    assert upstream.requests[0]["parallel_tool_calls"] is False


def test_ids_that_the_server_uses_again_are_told_apart() -> None:
    upstream = FakeUpstream(LOOKS, LOOKS, HELLO)
    [ended] = talk(upstream, tools=[LOOK])
    ids = [item["call_id"] for item in ended["output"] if item["type"] == "function_call"]
    assert ids[0] == "one"
    assert len(set(ids)) == 2
    messages = upstream.requests[2]["messages"]
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == ids


def test_tools_that_nobody_runs_here_are_left_out_and_named() -> None:
    upstream = FakeUpstream(HELLO)
    [ended] = talk(upstream, tools=[{"type": "web_search"}])
    assert "tools" not in upstream.requests[0]
    assert ended["engine"]["upstream"]["left_out"] == ["web_search"]


# ---- what is asked


def test_what_the_client_asks_is_asked() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    upstream = FakeUpstream(Reply(chunk(content='{"x": 1}'), STOP, DONE))
    [ended] = talk(
        upstream,
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=50,
        reasoning={"effort": "low"},
        text={"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}, "verbosity": "low"},
    )
    assert ended["status"] == "completed"
    assert upstream.requests[0] == {
        "model": "m",
        "messages": [{"role": "user", "content": "Go"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 50,
        "temperature": 0.5,
        "top_p": 0.9,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}},
        "verbosity": "low",
        "reasoning_effort": "low",
    }


def test_what_the_client_does_not_ask_is_left_to_the_server() -> None:
    upstream = FakeUpstream(HELLO)
    talk(upstream)
    assert set(upstream.requests[0]) == {"model", "messages", "stream", "stream_options"}


def test_a_call_is_forced_in_the_first_turn_only() -> None:
    upstream = FakeUpstream(LOOKS, HELLO)
    [ended] = talk(upstream, tools=[LOOK], tool_choice="required")
    assert ended["status"] == "completed"
    assert [request.get("tool_choice") for request in upstream.requests] == ["required", None]


def test_a_server_that_does_not_keep_to_tool_choice_fails_by_name() -> None:
    [ended] = talk(FakeUpstream(HELLO), tools=[LOOK], tool_choice="required")
    assert ended["status"] == "failed"
    assert ended["error"]["message"].startswith("tool_choice")
    assert ended["output"][0]["content"][0]["text"] == "Hi there"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tool_choice": {"type": "web_search"}, "tools": [{"type": "web_search"}]}, "tool_choice"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input_image.file_id"),
    ],
)
def test_what_no_chat_server_can_do_is_refused_by_name(fields: Json, named: str) -> None:
    upstream = FakeUpstream(HELLO)
    [ended] = talk(upstream, **fields)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "invalid_prompt")
    assert named in ended["error"]["message"]
    assert not upstream.requests


def test_the_limit_of_tokens_is_for_the_whole_response() -> None:
    upstream = FakeUpstream(LOOKS, LOOKS, HELLO)
    [ended] = talk(upstream, tools=[LOOK], max_output_tokens=10)
    assert [request["max_tokens"] for request in upstream.requests] == [10, 5]
    assert (ended["status"], ended["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert ended["usage"]["output_tokens"] == 10


# ---- misfortune


@pytest.mark.parametrize("shape", SHAPES)
def test_a_broken_upstream_is_a_failed_response_and_nothing_is_lost(shape: str) -> None:
    upstream = FakeUpstream(LOOKS, Reply(chunk(content="Hi"), Cut()), HELLO)
    ended = talk(upstream, shape, tools=[LOOK])
    last = ended[-1]
    assert (last["status"], last["error"]["code"]) == ("failed", "server_error")
    assert "peer closed" in last["error"]["message"]
    assert last["output"][-1]["content"][0]["text"] == "Hi"
    assert last["output"][-1]["status"] == "incomplete"
    assert sum(response["usage"]["output_tokens"] for response in ended) == 6
    assert len(upstream.requests) == 2  # nothing is sent again when something was sampled


def test_what_came_before_a_failed_response_can_be_continued() -> None:
    async def main() -> Json:
        async with served(FakeUpstream(HELLO, Reply(Cut()), HELLO)) as server:
            [first] = await play(server, "create")
            [failed] = await play(server, "create", previous_response_id=first["id"])
            assert failed["status"] == "failed"
            [again] = await play(server, "create", previous_response_id=first["id"])
            return again

    assert virtually(main)["status"] == "completed"


BUSY = event({"error": {"message": "too many", "code": "rate_limited"}})


def status(code: int, body: Any = None, **headers: str) -> Reply:
    sent = body if isinstance(body, bytes) else encode(body or {"error": {"message": "no luck"}})
    return Reply(sent, status=code, headers={"content-type": "application/json", **headers})


@pytest.mark.parametrize(
    ("first", "seconds"),
    [
        ([Refused()], 0.25),
        ([Refused(), Refused(), Refused()], 1.75),
        ([status(429)], 0.25),
        ([status(429, **{"retry-after": "3"})], 3.0),
        ([status(503, b"<html>busy</html>", **{"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"})], 0.25),
        ([Refused(), status(503)], 0.75),
    ],
)
def test_what_was_not_begun_is_asked_again(first: Sequence[Any], seconds: float) -> None:
    async def main() -> float:
        heard = await hear(upstream)
        assert heard.items == [["text", "Hi there"]]
        return trio.current_time() - began

    async def timed() -> float:
        nonlocal began
        began = trio.current_time()
        return await main()

    began = 0.0
    upstream = FakeUpstream(*first, HELLO)
    assert virtually(timed) == pytest.approx(seconds)
    assert len(upstream.requests) == len(first) + 1


@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        (status(400), "invalid_prompt", "400: no luck"),
        (status(301, b"elsewhere"), "server_error", "301: elsewhere"),
        (status(401), "server_error", "401: no luck"),
        (status(404, b"not found"), "server_error", "/v1"),
        (status(422, {"detail": [{"msg": "bad"}]}), "invalid_prompt", "bad"),
        (status(500, {"error": "no luck"}), "server_error", "500: no luck"),
        (status(500, b""), "server_error", "500"),
        (status(429, **{"retry-after": "3600"}), "rate_limit_exceeded", "try again in 3600 s"),
        (status(429, {"error": {"code": "insufficient_quota", "message": "pay"}}), "insufficient_quota", "pay"),
        (
            status(400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "long"}}),
            "context_length_exceeded",
            "long",
        ),
        (status(400, {"message": "maximum context length is 5", "object": "error"}), "context_length_exceeded", "is 5"),
    ],
)
def test_a_refusal_is_told_once(reply: Reply, code: str, said: str) -> None:
    upstream = FakeUpstream(reply)
    heard = virtually(lambda: hear(upstream))
    assert heard.error is not None
    assert heard.error.code == code
    assert said in heard.error.message
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("reply", [Refused(), status(429)])
def test_trying_again_has_an_end(reply: Any) -> None:
    upstream = FakeUpstream(reply)
    heard = virtually(lambda: hear(upstream))
    assert heard.error is not None
    assert len(upstream.requests) == 4


def test_a_field_of_ours_that_a_server_does_not_know_is_left_out_from_then_on() -> None:
    no_options = status(400, {"error": {"message": "Unknown field: stream_options"}})
    other_name = status(400, {"error": {"message": "'max_tokens' is not supported. Use 'max_completion_tokens' instead."}})

    async def main() -> None:
        async with served(upstream) as server:
            for _ in range(2):
                [ended] = await play(server, "create", max_output_tokens=50)
                assert ended["status"] == "completed"

    upstream = FakeUpstream(no_options, other_name, HELLO)
    virtually(main)
    assert len(upstream.requests) == 4
    assert [sorted({"max_tokens", "max_completion_tokens", "stream_options"} & set(one)) for one in upstream.requests[1:]] == [
        ["max_tokens"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
    ]


def test_reasoning_that_a_server_wants_back_is_given_back() -> None:
    wants = status(400, {"error": {"message": "The `reasoning_content` in the thinking mode must be passed back to the API."}})
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    upstream = FakeUpstream(wants, HELLO)
    items = [user("Go"), thought, {"type": "message", "role": "assistant", "content": "Hi"}, user("On")]
    [ended] = talk(upstream, input=items)
    assert ended["status"] == "completed"
    assert upstream.requests[1]["messages"][1] == {"role": "assistant", "content": "Hi", "reasoning_content": "Hm."}


def test_a_usage_that_does_not_come_is_not_waited_for_for_long() -> None:
    upstream = saying(chunk(content="Hi there"), STOP, Delay(float("inf")))
    heard = virtually(lambda: hear(upstream))
    assert (heard.stop, heard.error) == ("end", None)
    assert upstream.dropped == 1


def test_a_connection_that_stays_open_behind_the_end_is_let_go() -> None:
    upstream = saying(chunk(content="Hi there"), STOP, DONE, Delay(float("inf")))
    heard = virtually(lambda: hear(upstream))
    assert heard.stop == "end"
    assert upstream.dropped == 1


def test_a_refusal_of_json_is_no_json() -> None:
    refused = saying(chunk(refusal="I can't."), STOP, DONE)
    heard = virtually(lambda: hear(refused, plan(text={"format": {"type": "json_object"}})))
    assert (heard.items, heard.stop) == ([["text", "I can't."]], "content_filter")


def test_tools_by_type_and_cut_custom_calls() -> None:
    shell = calls(call("shell", '{"commands": ["ls"]}', index=0), call("sql", '{"input": "sel', index=1))
    upstream = FakeUpstream(Reply(shell, chunk(finish_reason="length"), DONE))
    [ended] = talk(upstream, tools=[{"type": "shell"}, SQL])
    assert [(item["type"], item["status"]) for item in ended["output"]] == [
        ("shell_call", "completed"),
        ("custom_tool_call", "incomplete"),
    ]
    assert ended["output"][0]["action"] == {"commands": ["ls"]}


# ---- cancelling, on real sockets


async def until_dropped(upstream: FakeUpstream) -> None:
    while not upstream.dropped:  # noqa: ASYNC110 - a count
        await trio.sleep(0.005)


async def test_a_cancelled_response_drops_the_connection_at_once() -> None:
    upstream = FakeUpstream(Reply(chunk(content="Hi"), Delay(float("inf"))))
    with trio.fail_after(10):
        async with upstream.listening() as url:
            model = ChatModel(Upstream(url=url), "m")
            async with model.running(), memory_server(models=[model]) as server:
                socket = await server.connect()
                await socket.send(create(model="m"))
                await socket.until("response.output_text.delta")
                await socket.send({"type": "response.cancel"})
                frames = await socket.until_end()
                assert frames[-1]["response"]["status"] == "cancelled" or frames[-1]["type"] in ENDS
                await until_dropped(upstream)


async def test_a_client_that_goes_away_drops_the_connection_too() -> None:
    upstream = FakeUpstream(Reply(chunk(content="Hi"), Delay(float("inf"))))
    with trio.fail_after(10):
        async with upstream.listening() as url:
            model = ChatModel(Upstream(url=url), "m")
            async with model.running(), memory_server(models=[model]) as server:
                socket = await server.connect(beta="responses_websockets=2026-02-06")
                await socket.send({"type": "response.create", "model": "m", "input": "Go"})
                await socket.until("response.output_text.delta")
                await socket.drop()
                await until_dropped(upstream)


async def test_rollouts_over_tcp_use_one_connection_again() -> None:
    upstream = FakeUpstream(LOOKS, LOOKS, HELLO)
    with trio.fail_after(10):
        async with upstream.listening() as url:
            model = ChatModel(Upstream(url=url, key="secret"), "m")
            async with model.running(), memory_server(models=[model]) as server:
                [ended] = await play(server, "append", tools=[LOOK])
                assert ended["status"] == "completed"
                assert ended["engine"]["upstream"]["model"] == "m"
    assert upstream.connections == 1
    assert {headers["authorization"] for headers in upstream.headers} == {"Bearer secret"}


async def test_a_drop_over_tcp_in_the_middle() -> None:
    upstream = FakeUpstream(Reply(chunk(content="Hi"), Cut()))
    with trio.fail_after(10):
        async with upstream.listening() as url:
            model = ChatModel(Upstream(url=url), "m")
            async with model.running(), memory_server(models=[model]) as server:
                [ended] = await play(server, "append")
    assert ended["status"] == "failed"
    assert ended["output"][0]["content"][0]["text"] == "Hi"


# ---- what is there


def test_what_is_served_there() -> None:
    async def main(model: str | None) -> str:
        served_there = ChatModel(Upstream(url="http://memory/v1", model=model, transport=FakeUpstream(HELLO)))
        async with served_there.running():
            return await served_there.check()

    assert virtually(lambda: main(None)) == "m, one of 1"
    assert "does not list other" in virtually(lambda: main("other"))


def test_nothing_is_there() -> None:
    async def main() -> None:
        model = ChatModel(Upstream(url="http://127.0.0.1:9/v1", model="m"))
        async with model.running():
            with pytest.raises(ModelError, match="not there"):
                await model.check()

    trio.run(main)
