"""A relay to a server that says odd things, forgets, refuses, breaks: what the client of this server is told."""

from typing import Any

import pytest
import trio

from engine.models import load_model
from engine.models.base import ModelError
from engine.models.responses import RelayModel, sampler
from engine.testing import HANG, append, calls_in, create, direct_server, eventually, result, user
from engine.testing.fake_responses import DROP, ended, error, fake_responses, function_call, item_done, message

from .relay_support import FAST, PARKED_OR_ENDED, TOOLS, play, relay_to

CALL = [*function_call("call_1"), ended(response_id="resp_a")]
ANSWER = [*message("done"), ended(response_id="resp_b")]
ASK = create(model="relay", tools=TOOLS)
USAGE = {"input_tokens": 100, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 60}}


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "BACKOFF_SECONDS", FAST)


async def test_only_what_is_new_is_sent() -> None:
    async with fake_responses(CALL, ANSWER) as upstream, relay_to(upstream.url) as here:
        await play(here, {**ASK, "instructions": "be brief", "temperature": 0.5})
        first, second = upstream.asked
        repeated = {"model": "scripted", "store": False, "instructions": "be brief", "temperature": 0.5}
        assert repeated.items() <= first.items()
        assert repeated.items() <= second.items()
        assert [tool["name"] for tool in second["tools"]] == ["f", "g"]
        assert first["input"] == [{"type": "message", "role": "user", "content": "hello"}]
        assert second["previous_response_id"] == "resp_a"
        assert second["input"] == [{"type": "function_call_output", "call_id": "call_1", "output": "ok"}]
        assert not {"max_output_tokens", "tool_choice", "top_p", "include", "text", "parallel_tool_calls"} & first.keys()


@pytest.mark.parametrize(
    "forgets",
    [
        [error("previous_response_not_found")],
        [error("websocket_connection_limit_reached")],
        [DROP],
        [{"type": "response.created", "response": {"id": "resp_x"}}, DROP],
    ],
    ids=["not found", "too old", "gone", "gone when it had begun"],
)
async def test_what_was_forgotten_is_said_again(forgets: list[Any]) -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VjcmV0", "more": 1}
    called = [item_done(reasoning), *function_call("call_1", index=1), ended()]
    async with fake_responses(called, forgets, ANSWER) as upstream, relay_to(upstream.url) as here:
        response = (await play(here, {**ASK, "reasoning": {"effort": "low"}}))[-1]["response"]
        assert upstream.asked[0]["include"] == ["reasoning.encrypted_content"]
        assert response["output"][0]["encrypted_content"] == "c2VjcmV0"
        again = upstream.asked[-1]
        assert "previous_response_id" not in again
        call = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}", "status": "completed"}
        output = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
        assert again["input"] == [{"type": "message", "role": "user", "content": "hello"}, reasoning, call, output]
        assert (response["engine"]["kv_kept"], response["engine"]["kv_lost"]) == (0, 1)
        assert response["engine"]["upstream"]["requests"] == 3
        assert upstream.connections == 2


async def test_a_server_without_websockets_is_asked_over_http_and_not_for_websockets_again() -> None:
    for status in (404, 405, 426):
        scripts = (CALL, ANSWER, CALL, ANSWER)
        async with fake_responses(*scripts, upgrade=status) as upstream, relay_to(upstream.url) as here:
            for _ in range(2):
                response = (await play(here, ASK))[-1]["response"]
                assert response["status"] == "completed"
                assert response["engine"]["kv_lost"] == 1
            assert upstream.upgrades == 1
            assert [body["over"] for body in upstream.asked] == ["http"] * 4
            assert not any("previous_response_id" in body for body in upstream.asked)


async def test_a_server_that_does_not_stream_is_relayed_too() -> None:
    turns = [ended(output=[frame["item"] for frame in one if "done" in frame["type"]]) for one in (CALL[:-1], ANSWER[:-1])]
    nonsense = {"type": "nothing", "response": {"status": "in_progress"}}
    scripts = [[turns[0]], [turns[1]], [nonsense]]
    async with fake_responses(*scripts, upgrade=404, streams=False) as upstream, relay_to(upstream.url) as here:
        response = (await play(here, ASK))[-1]["response"]
        assert [item["type"] for item in response["output"]] == ["function_call", "message"]
        assert "can't be read" in (await play(here, ASK))[-1]["response"]["error"]["message"]


async def test_a_busy_upgrade_says_nothing_about_websockets() -> None:
    async with fake_responses(ANSWER, ANSWER, upgrade=503) as upstream, relay_to(upstream.url) as here:
        for _ in range(2):
            assert (await play(here, ASK))[-1]["response"]["status"] == "completed"
        assert upstream.upgrades == 2


@pytest.mark.parametrize("upgrade", [101, 426])
async def test_a_busy_server_is_asked_again_when_it_says(upgrade: int) -> None:
    busy = [error("rate_limit_exceeded", 429, headers={"retry-after": "0.05"})]
    async with fake_responses(busy, busy, ANSWER, upgrade=upgrade) as upstream, relay_to(upstream.url) as here:
        assert (await play(here, ASK))[-1]["response"]["status"] == "completed"
        assert len(upstream.asked) == 3


REFUSALS = [
    ([error("rate_limit_exceeded", 429, headers={"retry-after": "600"})], "rate_limit_exceeded", 1),
    ([error("insufficient_quota", 429)], "rate_limit_exceeded", 1),
    ([error("invalid_api_key", 401)], "server_error", 1),
    ([error("unsupported_parameter", 400)], "invalid_prompt", 1),
    ([error("server_error", 500)], "server_error", 1 + len(FAST)),
]


@pytest.mark.parametrize(("script", "code", "attempts"), REFUSALS)
@pytest.mark.parametrize("upgrade", [101, 426])
async def test_a_refusal_is_told(script: list[Any], code: str, attempts: int, upgrade: int) -> None:
    async with fake_responses(*[script] * 9, upgrade=upgrade) as upstream, relay_to(upstream.url) as here:
        failure = (await play(here, ASK))[-1]["response"]["error"]
        assert failure["code"] == code
        assert script[0]["error"]["code"] in failure["message"]
        assert len(upstream.asked) == attempts


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([*message("half")[:2], DROP], "is gone|not there|ended its stream"),
        ([*message("half")[:2], error("server_error", 500)], "server_error"),
        ([*message("half")[:2], ended("failed", error={"code": "model_melted", "message": "it is hot"})], "it is hot"),
        ([*message("half")[:2], {"type": "response.output_text.delta", "output_index": 0, "delta": 7}], "can't be read"),
        ([*message("half"), item_done({"type": "computer_call", "call_id": "c", "id": "cu_1"}, 1)], "a computer_call"),
        ([*message("half")[:2], "{nonsense"], "can't be read"),
        ([*message("half")[:2], '{"type": "x.delta", "output_index": 0, "delta": "\\udfb9"}', "[]"], "can't be read"),
        ([*message("half")[:2], item_done({"type": "message", "content": "whole"})], "not what its deltas say"),
        ([*message("half")[:2], ended("incomplete", incomplete_details={"reason": "steered"})], "steered"),
    ],
    ids=["drop", "error", "failed", "nonsense", "no json", "no object", "not carried", "two ways", "ended"],
)
@pytest.mark.parametrize("upgrade", [101, 426])
async def test_what_breaks_in_the_midst_fails_the_response_and_is_not_tried_again(
    script: list[Any], reason: str, upgrade: int
) -> None:
    async with fake_responses(script, ANSWER, ANSWER, upgrade=upgrade) as upstream, relay_to(upstream.url) as here:
        response = (await play(here, ASK))[-1]["response"]
        assert response["status"] == "failed"
        assert any(one in response["error"]["message"] for one in reason.split("|"))
        assert response["output"][0]["content"][0]["text"] == "half"
        assert len(upstream.asked) == 1
        assert (await play(here, ASK))[-1]["response"]["status"] == "completed"  # the next one is none the worse


@pytest.mark.parametrize("upgrade", [101, 426])
async def test_who_cancels_lets_go_of_the_other_server(upgrade: int) -> None:
    async with fake_responses([*message("half")[:2], HANG], upgrade=upgrade) as upstream, relay_to(upstream.url) as here:
        socket = await here.connect()
        await socket.send(ASK)
        await socket.until("response.output_text.delta")
        await socket.send({"type": "response.cancel"})
        assert (await socket.until_end())[-1]["response"]["status"] == "cancelled"
        await eventually(lambda: upstream.dropped == 1)


@pytest.mark.parametrize("upgrade", [101, 426])
async def test_a_character_that_was_cut_is_put_together(upgrade: int) -> None:
    added, _, done = message("\U0001f3b9\u2028!")
    begun = '{"type": "response.output_text.delta", "output_index": 0, "delta": '
    halves = [begun + half + "}" for half in (r'"\ud83c"', r'"\udfb9"')]
    async with fake_responses([added, *halves, done, ended()], upgrade=upgrade) as upstream, relay_to(upstream.url) as here:
        response = (await play(here, ASK))[-1]["response"]
        assert response["output"][0]["content"][0]["text"] == "\U0001f3b9\u2028!"


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
async def test_reasons_to_be_incomplete_are_passed_on(reason: str) -> None:
    cut = message("half", status="incomplete")
    script = [*cut, ended("incomplete", incomplete_details={"reason": reason}, usage=USAGE)]
    async with fake_responses(script) as upstream, relay_to(upstream.url) as here:
        response = (await play(here, ASK))[-1]["response"]
        assert response["incomplete_details"] == {"reason": reason}
        assert response["output"][0]["status"] == "incomplete"


async def test_usage_is_what_the_other_server_says() -> None:
    scripts = ([*CALL[:-1], ended(usage=USAGE)], [*message("done"), ended(usage=USAGE)])
    async with fake_responses(*scripts) as upstream, relay_to(upstream.url) as here:
        response = (await play(here, ASK))[-1]["response"]
        assert response["usage"]["output_tokens"] == 18
        told = {"requests": 2, "input_tokens": 200, "cached_tokens": 120, "output_tokens": 18}
        assert response["engine"]["upstream"] == told


async def test_what_a_server_of_tools_puts_out_is_carried() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "tea"}}
    refused = {"type": "refusal", "refusal": "No."}
    script = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**search, "status": "in_progress"}},
        {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"},
        item_done(search),
        *message("I look.", 1, phase="commentary"),
        item_done({"type": "message", "id": "msg_2", "role": "assistant", "status": "completed", "content": [refused]}, 2),
        {"type": "keepalive"},
        ended(),
    ]
    tools = [*TOOLS, {"type": "web_search", "search_context_size": "low"}]
    async with fake_responses(script) as upstream, relay_to(upstream.url) as here:
        response = (await play(here, create(model="relay", tools=tools)))[-1]["response"]
        assert upstream.asked[0]["tools"][2] == tools[2]
        found, said, refusal = response["output"]
        assert found == search
        assert said["phase"] == "commentary"
        assert refusal["content"][0]["text"] == "No."


async def test_a_call_that_is_not_let_through_is_not_spoken_of_again() -> None:
    script = [*function_call("call_1"), *function_call("call_2", "g", index=1), ended()]
    async with fake_responses(script, ANSWER) as upstream, relay_to(upstream.url) as here:
        response = (await play(here, {**ASK, "max_tool_calls": 1}))[-1]["response"]
        assert response["status"] == "completed"
        again = upstream.asked[1]
        assert "previous_response_id" not in again
        assert [item.get("call_id") for item in again["input"]] == [None, "call_1", "call_1"]


@pytest.mark.parametrize(
    ("choice", "later"),
    [
        ("required", None),
        ("none", "none"),
        ({"type": "function", "name": "f"}, None),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]},
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        ),
    ],
)
async def test_a_forced_call_is_forced_once(choice: Any, later: Any) -> None:
    turn = ANSWER if choice == "none" else CALL
    async with fake_responses(turn, ANSWER, ANSWER) as upstream, relay_to(upstream.url) as here:
        socket = await here.connect()
        await socket.send({**ASK, "tool_choice": choice, "hold": "conversation"})
        frames = await socket.until("response.done")
        if calls_in(frames):
            await socket.send(append(result(calls_in(frames)[0])))
            frames = await socket.until("response.done")
        await socket.send(append(user("go on")))
        await socket.until(*PARKED_OR_ENDED)
        assert upstream.asked[0]["tool_choice"] == choice
        assert {repr(body.get("tool_choice")) for body in upstream.asked[1:]} == {repr(later)}


async def test_the_only_model_there_is_found_and_checked() -> None:
    for upgrade, how in ((101, "over a WebSocket"), (404, "over HTTP")):
        async with fake_responses(ANSWER, upgrade=upgrade) as upstream:
            relay = RelayModel.at(upstream.url)
            with trio.fail_after(10):
                async with relay.running():
                    assert await relay.check() == f"the-only-one {how}"


def test_it_is_named_on_the_command_line() -> None:
    assert load_model("responses:http://127.0.0.1:1/v1#some/model").name == "some/model"
    assert load_model("mine=responses:http://127.0.0.1:1/v1#some/model").name == "mine"
    assert load_model("responses:http://127.0.0.1:1/v1").name == "responses"
    with pytest.raises(ValueError, match="responses needs an address"):
        load_model("responses:")


@pytest.mark.parametrize("upgrade", [101, 426])
async def test_the_key_of_the_environment_is_sent(upgrade: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOSTENUTO_UPSTREAM_KEY", "sk-elsewhere")
    async with fake_responses(ANSWER, upgrade=upgrade) as upstream:
        relay = load_model(f"relay=responses:{upstream.url}#any")
        assert isinstance(relay, RelayModel)
        async with relay.running(), direct_server(models=[relay]) as here:
            assert (await play(here, ASK))[-1]["response"]["status"] == "completed"
        assert all("bearer sk-elsewhere" in head.lower() for head in upstream.heads)
        assert "sk-elsewhere" not in repr(relay)


async def test_what_goes_wrong_while_it_runs_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with RelayModel.at("http://127.0.0.1:1/v1").running():
            raise ZeroDivisionError


async def test_a_server_that_is_not_there_is_told() -> None:
    async with relay_to("http://127.0.0.1:1/v1") as here:
        response = (await play(here, ASK))[-1]["response"]
        assert response["status"] == "failed"
        assert "http://127.0.0.1:1/v1 is not there" in response["error"]["message"]
    relay = RelayModel.at("http://127.0.0.1:1/v1", model="any")
    async with relay.running():
        with pytest.raises(ModelError, match="is not there"):
            await relay.check()
