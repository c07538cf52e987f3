"""The create shape over a WebSocket: chains, the connection's cache, forks, warm-ups."""

import json
from typing import Any

import pytest
import trio

from engine.config import Config
from engine.testing import create, direct_server, virtually

from .http_support import CALL, output
from .socket_support import CREATE, client, serving


async def go_on(raw: Any, previous: dict[str, Any], *items: dict[str, Any], **fields: Any) -> None:
    await raw.say(
        {"type": "response.create", "model": "scripted", "previous_response_id": previous["id"], "input": list(items), **fields}
    )


async def first_call(raw: Any, *steps: dict[str, Any], **fields: Any) -> tuple[dict[str, Any], str]:
    await raw.create(CALL, *steps, **fields)
    response = (await raw.until("response.completed", fields.get("stream_id")))["response"]
    return response, response["output"][-1]["call_id"]


@pytest.mark.parametrize("store", [True, False])
async def test_a_rollout_is_a_chain(store: bool) -> None:
    async with serving() as (server, port), client(port, **CREATE) as raw:
        response, call_id = await first_call(raw, CALL, {"say": "{{output}}"}, store=store)
        usages = [response["usage"]]
        for text in ("one", "two"):
            await go_on(raw, response, output(call_id, text), store=store)
            response = (await raw.until("response.completed"))["response"]
            usages.append(response["usage"])
            call_id = response["output"][-1].get("call_id")
        assert response["output"][-1]["content"][0]["text"] == "two"
        fresh = [usage["input_tokens"] - usage["input_tokens_details"]["cached_tokens"] for usage in usages]
        assert fresh[0] > fresh[1] == fresh[2]
        assert [row.shape for row in server.services.ledger.rows] == ["create"] * 3


async def test_store_false_ends_with_its_socket() -> None:
    async with serving() as (_, port):
        async with client(port, **CREATE) as raw:
            response, call_id = await first_call(raw, store=False)
        async with client(port, **CREATE) as raw:
            await go_on(raw, response, output(call_id))
            error = await raw.frame()
            assert error["error"]["code"] == "previous_response_not_found"
            assert error["error"]["message"] == f"Previous response with id '{response['id']}' not found."
            await raw.create({"say": "still here"})
            await raw.until("response.completed")


async def test_store_true_goes_on_over_another_socket() -> None:
    async with serving() as (_, port):
        async with client(port, **CREATE) as raw:
            response, call_id = await first_call(raw, {"say": "{{output}}"})
        async with client(port, **CREATE) as raw:
            await go_on(raw, response, output(call_id, "hello"))
            response = (await raw.until("response.completed"))["response"]
            assert response["output"][-1]["content"][0]["text"] == "hello"


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ([], "tool_output_missing"),
        ([output("call_nobody")], "tool_call_not_found"),
        (["CALL", "CALL"], "tool_output_conflict"),
        ([{"type": "custom_tool_call_output", "call_id": "CALL", "output": "x"}], "tool_output_type_mismatch"),
        ([{"role": "user", "content": "never mind"}], "tool_output_missing"),
    ],
)
async def test_a_continuation_answers_every_call_once(items: list[Any], code: str) -> None:
    async with serving() as (_, port), client(port, **CREATE) as raw:
        response, call_id = await first_call(raw, store=False)
        text = json.dumps([output("CALL") if item == "CALL" else item for item in items]).replace("CALL", call_id)
        await go_on(raw, response, *json.loads(text))
        error = await raw.frame()
        assert error["code"] == code
        if code in ("tool_output_missing", "tool_call_not_found"):
            assert call_id in error["message"]
        await go_on(raw, response, output(call_id))
        assert (await raw.frame())["code"] == "previous_response_not_found"  # the failure has evicted it


async def test_a_fork_that_fails_leaves_the_parent_alone() -> None:
    async with serving() as (_, port), client(port, **CREATE) as raw:
        response, call_id = await first_call(raw, {"say": "{{output}}"}, store=False, stream_id="main")
        await go_on(raw, response, output("call_nobody"), stream_id="fork", store=False)
        assert (await raw.until("error", "fork"))["code"] == "tool_call_not_found"
        for lane, text in (("fork", "forked"), ("main", "on")):
            await go_on(raw, response, output(call_id, text), stream_id=lane, store=False)
            completed = (await raw.until("response.completed", lane))["response"]
            assert completed["output"][-1]["content"][0]["text"] == text


async def test_only_the_latest_of_a_lane_is_cached() -> None:
    async with serving() as (_, port), client(port, **CREATE) as raw:
        await raw.create({"say": "one"}, store=False)
        one = (await raw.until("response.completed"))["response"]
        await raw.create({"say": "two"}, store=False)
        await raw.until("response.completed")
        await go_on(raw, one, {"role": "user", "content": "again"})
        assert (await raw.frame())["code"] == "previous_response_not_found"


async def test_a_warm_up_can_be_continued() -> None:
    async with serving() as (_, port), client(port, **CREATE) as raw:
        await raw.create({"say": "warm"}, store=False, generate=False)
        warm = (await raw.until("response.completed"))["response"]
        assert warm["output"] == []
        assert warm["usage"]["output_tokens"] == 0
        assert warm["usage"]["input_tokens"] > 0
        await go_on(raw, warm, store=False)
        done = (await raw.until("response.completed"))["response"]
        assert done["output"][0]["content"][0]["text"] == "warm"
        assert done["usage"]["input_tokens_details"]["cached_tokens"] == warm["usage"]["input_tokens"]


async def test_no_done_is_ever_sent() -> None:
    async with serving() as (_, port), client(port, **CREATE) as raw:
        await raw.create(CALL)
        kinds = [(await raw.frame())["type"]]
        while kinds[-1] != "response.completed":
            kinds.append((await raw.frame())["type"])
        assert "response.done" not in kinds
        await raw.say({"type": "response.append", "input": [output("call_x")]})
        assert (await raw.frame())["code"] == "response_not_active"


async def test_a_dropped_socket_cancels() -> None:
    async with serving() as (server, port):
        async with client(port, **CREATE) as raw:
            await raw.create({"say": {"tokens": 10_000}}, pace=100)
            await raw.until("response.output_text.delta")
        while server.engine.live:
            await trio.sleep(0.01)
        assert [row.status for row in server.services.ledger.rows] == ["cancelled"]


async def test_background_is_refused() -> None:
    async with serving() as (_, port), client(port, **CREATE) as raw:
        await raw.create({"say": "x"}, background=True)
        error = await raw.frame()
        assert (error["code"], error["param"]) == ("unsupported_parameter", "background")


# ---- steering


async def steer(raw: Any, response_id: str, text: str = "and now this") -> None:
    await raw.say({"type": "response.steer", "previous_response_id": response_id, "input": text})


async def test_a_steered_response_ends_and_another_goes_on() -> None:
    async with serving() as (_, port), client(port, **CREATE) as raw:
        await raw.create({"say": "one"}, {"say": {"tokens": 50}}, {"say": "never"}, pace=200)
        first = (await raw.until("response.created"))["response"]["id"]
        await raw.until("response.output_text.delta")
        await steer(raw, first)
        accepted = await raw.until("response.steer.accepted")
        assert accepted["steer"]["previous_response_id"] == first
        ended = await raw.until("response.incomplete")
        assert ended["response"]["incomplete_details"] == {"reason": "steered"}
        following = (await raw.until("response.created"))["response"]
        assert following["previous_response_id"] == first
        assert following["id"] != first
        await raw.until("response.completed")


async def test_a_steer_waits_for_the_outputs_of_open_calls() -> None:
    async with serving() as (_, port), client(port, **CREATE) as raw:
        long = {"call": {"name": "f", "arguments": {"text": "word " * 100}}}
        await raw.create(long, {"say": "{{output}}"}, pace=300)
        first = (await raw.until("response.created"))["response"]["id"]
        await raw.until("response.function_call_arguments.delta")
        await steer(raw, first, "hurry")
        accepted = await raw.until("response.steer.accepted")
        response = (await raw.until("response.completed"))["response"]
        pending = await raw.until("response.steer.pending")
        assert pending["steer"] == accepted["steer"]
        assert pending["reason"] == "waiting_for_required_input"
        call_id = response["output"][-1]["call_id"]
        assert pending["required_input"] == [{"type": "function_call_output", "call_id": call_id, "name": "f"}]
        await go_on(raw, response, output(call_id, "done"))
        response = (await raw.until("response.completed"))["response"]
        assert response["output"][0]["content"][0]["text"] == "done"


async def test_a_steer_outlives_a_create_that_is_refused() -> None:
    async with serving() as (server, port), client(port, **CREATE) as raw:
        await raw.create({"call": {"name": "f", "arguments": {"text": "word " * 100}}}, pace=300)
        first = (await raw.until("response.created"))["response"]["id"]
        await raw.until("response.function_call_arguments.delta")
        await steer(raw, first, "and this")
        await raw.until("response.steer.accepted")
        await raw.say({"type": "response.create", "model": "scripted", "previous_response_id": first, "stream_id": "b"})
        assert (await raw.until("error", "b"))["code"] == "previous_response_not_found"  # it is live
        response = (await raw.until("response.completed"))["response"]
        await raw.until("response.steer.pending")
        await go_on(raw, response)
        assert (await raw.until("error"))["code"] == "tool_output_missing"
        await go_on(raw, response, output(response["output"][-1]["call_id"]))
        await raw.until("response.completed")
        while server.engine.live:
            await trio.sleep(0.01)
        _, following = server.services.store.all()
        assert [item.type for item in following.input] == ["message", "function_call_output"]


def test_a_refusal_comes_in_its_turn_on_its_lane() -> None:
    """Or else nobody could tell which of the creates is refused: a slow reader would hear of it first."""

    async def main() -> None:
        async with direct_server(config=Config(outbox_bytes=700)) as server:
            socket = await server.connect()
            ask: dict[str, Any] = {"continuation": "create", "store": False}
            await socket.send(create({"say": "one"}, tokens_per_second=10, **ask))
            first = (await socket.until("response.created"))[-1]["response"]["id"]
            following = {"type": "response.create", "model": "scripted", "previous_response_id": first, "input": [], **ask}
            await socket.send(following)
            await socket.send(following)  # the one before it has taken its place in the connection's memory
            await trio.sleep(5)
            kinds = [frame["type"] for frame in await socket.until("error")]
            assert kinds.index("response.completed") < kinds.index("response.created") < kinds.index("error")

    virtually(main)


@pytest.mark.parametrize(
    ("target", "text", "code"),
    [("resp_none", "x", "response_not_found"), ("", [], "invalid_input"), ("", "x", "response_already_completed")],
)
async def test_a_steer_that_cannot_be_fails_by_name(target: str, text: Any, code: str) -> None:
    async with serving() as (_, port), client(port, **CREATE) as raw:
        await raw.create({"say": "done"})
        response = (await raw.until("response.completed"))["response"]
        await steer(raw, target or response["id"], text)
        failed = await raw.until("response.steer.failed")
        assert failed["error"]["code"] == code
        assert failed["steer"] == {"input": text, "previous_response_id": target or response["id"]}


async def test_the_append_shape_takes_messages_and_no_steers() -> None:
    async with serving() as (_, port), client(port) as raw:
        await raw.create(CALL)
        done = await raw.until("response.done")
        await steer(raw, done["response"]["id"])
        assert (await raw.until("response.steer.failed"))["error"]["code"] == "steering_not_supported"


# ---- what the request says


@pytest.mark.parametrize(
    ("choice", "called"),
    [
        ("auto", ["f", "g"]),
        ("none", []),
        ({"type": "function", "name": "g"}, ["g"]),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}, ["f"]),
    ],
)
async def test_tool_choice_is_a_hard_limit(choice: Any, called: list[str]) -> None:
    calls = {"calls": [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]}
    async with serving() as (_, port), client(port, **CREATE) as raw:
        await raw.create(calls, tool_choice=choice)
        response = (await raw.until("response.completed"))["response"]
        assert [item["name"] for item in response["output"]] == called


async def test_what_include_asks_for_is_given_or_refused_by_name() -> None:
    async with serving() as (_, port), client(port, **CREATE) as raw:
        for include, sealed in ([], False), (["reasoning.encrypted_content"], True):
            await raw.create({"reason": "hm"}, {"say": "x"}, include=include)
            response = (await raw.until("response.completed"))["response"]
            assert ("encrypted_content" in response["output"][0]) is sealed
        await raw.create({"say": "x"}, include=["message.output_text.logprobs"])
        assert (await raw.frame())["param"] == "include"
        await raw.create({"say": "x"}, service_tier="priority")
        assert (await raw.frame())["param"] == "service_tier"


async def test_an_answer_of_another_format_than_asked_for_is_a_failure() -> None:
    wanted = {"type": "json_schema", "name": "n", "schema": {"type": "object", "required": ["a"]}}
    async with serving() as (_, port), client(port, **CREATE) as raw:
        await raw.create({"say": '{"a": 1}'}, text={"format": wanted})
        await raw.until("response.completed")
        await raw.create({"say": '{"b": 1}'}, text={"format": wanted})
        failed = await raw.until("response.failed")
        assert "'a' is a required property" in failed["response"]["error"]["message"]
        await raw.create({"say": "x"}, text={"format": {**wanted, "schema": {"type": 5}}})
        assert (await raw.frame())["param"] == "text.format.schema"


async def test_calls_beyond_max_tool_calls_are_as_if_never_sampled() -> None:
    calls = {"calls": [{"name": name, "arguments": {}} for name in "fgh"]}
    async with serving() as (_, port), client(port, **CREATE) as raw:
        await raw.create(calls, max_tool_calls=2)
        response = (await raw.until("response.completed"))["response"]
        assert [item["name"] for item in response["output"]] == ["f", "g"]
