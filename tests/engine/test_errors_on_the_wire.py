"""Each error code, provoked for real wherever it can occur: its form over HTTP, in a stream of events, and over a WebSocket."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from wsproto.events import TextMessage

from engine.outbox import Subscription
from engine.policy import Policy, Rule
from protocol.errors import CODES, RETRY_LATER
from protocol.limits import SOFT_FRAME_BYTES, STREAM_IDS

from .http_support import CALL, NEVER, Json, Served, body, events, ok, output, post, request_bytes, served
from .socket_support import RawClient, client

SAID: dict[str, tuple[int, str]] = {
    "invalid_json": (400, "not_started"),
    "invalid_frame": (400, "not_started"),
    "unknown_event": (400, "not_started"),
    "message_too_large": (413, "not_started"),
    "invalid_type": (400, "not_started"),
    "invalid_value": (400, "not_started"),
    "missing_required_parameter": (400, "not_started"),
    "unsupported_parameter": (400, "not_started"),
    "invalid_stream_id": (400, "not_started"),
    "websocket_stream_limit_reached": (400, "not_started"),
    "websocket_connection_limit_reached": (400, "not_started"),
    "model_not_found": (404, "not_started"),
    "content_policy_violation": (400, "not_started"),
    "response_not_found": (404, "not_started"),
    "previous_response_not_found": (400, "not_started"),
    "item_not_found": (404, "not_started"),
    "conversation_not_found": (404, "not_started"),
    "conversation_locked": (409, "not_started"),
    "response_not_active": (409, "not_started"),
    "response_ambiguous": (400, "not_started"),
    "stale_epoch": (409, "not_started"),
    "tool_call_not_found": (404, "not_started"),
    "tool_output_conflict": (409, "not_started"),
    "tool_output_type_mismatch": (400, "not_started"),
    "tool_output_missing": (400, "not_started"),
    "echo_mismatch": (409, "not_started"),
    "idempotency_conflict": (409, "not_started"),
    "invalid_cursor": (400, "not_started"),
    "bad_request": (400, "not_started"),
    "request_timeout": (408, "not_started"),
    "unsupported_media_type": (415, "not_started"),
    "expectation_failed": (417, "not_started"),
    "header_fields_too_large": (431, "not_started"),
    "unsupported_transfer_coding": (501, "not_started"),
    "unsupported_http_version": (505, "not_started"),
    "invalid_api_key": (401, "not_started"),
    "not_found": (404, "not_started"),
    "method_not_allowed": (405, "not_started"),
    "upgrade_required": (426, "not_started"),
    "queue_full": (429, "not_started"),
    "too_many_connections": (503, "not_started"),
    "shutting_down": (503, "not_started"),
    "attached_elsewhere": (409, "started"),
    "server_error": (500, "unknown"),
}
"""What clients are written against: status, and whether work had begun. Other than the table in the code, by intention."""

APPEND = {"continuation": "append"}
EVIL = Policy((Rule(name="evil", pattern=re.compile("evil"), action="block"),))
CONFIG: dict[str, Json] = {
    "websocket_connection_limit_reached": {"connection_seconds": 0.05, "ping_seconds": 0.05},
    "invalid_api_key": {"keys": ("right",)},
    "queue_full": {"responses": 1, "lane_queue": 0},
    "too_many_connections": {"connections": 0},
    "request_timeout": {"handshake_seconds": 0.05},
}
"""What the server is made with, for codes that need it."""


@asynccontextmanager
async def serving(code: str) -> AsyncIterator[Served]:
    bugs: list[BaseException] = []
    async with served(policy=EVIL, on_bug=bugs.append, **CONFIG.get(code, {})) as it:
        yield it
    assert bool(bugs) == (code == "server_error")


def fault(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a bug")


def check_form(error: Json, code: str) -> None:
    status, work = SAID[code]
    assert set(error) == {"type", "code", "message", "param", "work"}
    assert (error["code"], error["work"], error["type"]) == (code, work, CODES[code].type)
    assert CODES[code].status == status
    assert error["message"]


def check_frame(frame: Json, code: str) -> None:
    check_form(frame["error"], code)
    assert frame["type"] == "error"
    assert frame["status"] == SAID[code][0]
    assert all(frame[name] == frame["error"][name] for name in ("code", "message", "param", "work"))
    assert ("headers" in frame) == (SAID[code][0] in RETRY_LATER)
    assert set(frame) <= {"type", "status", "code", "message", "param", "work", "error", "headers", *ATTRIBUTED}


ATTRIBUTED = ("response_id", "stream_id", "append")
"""What an error frame has beside, where it can say whose error it is."""


# ---- over HTTP

Asked = tuple[int, dict[str, str], Any]
Http = Callable[[Served], Awaitable[Asked]]
HTTP: dict[str, Http] = {}


def over_http(code: str) -> Callable[[Http], Http]:
    def register(provoke: Http) -> Http:
        HTTP[code] = provoke
        return provoke

    return register


async def raw(it: Served, *parts: bytes) -> Asked:
    head, _, content = (await it.raw(*parts)).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(status.split()[1]), headers, json.loads(content)


async def ask(it: Served, method: str, path: str, content: Any = None) -> Asked:
    return await raw(it, request_bytes(method, f"/v1/{path}", content))


def simply(code: str, method: str, path: str, content: Any = None) -> None:
    HTTP[code] = lambda it: ask(it, method, path, content)


def as_bytes(code: str, *parts: bytes) -> None:
    HTTP[code] = lambda it: raw(it, *parts)


POST = b"POST /v1/responses HTTP/1.1\r\nHost: x\r\n"
as_bytes("invalid_json", POST + b"Content-Length: 1\r\n\r\n{")
as_bytes("message_too_large", POST + b"Content-Length: %d\r\n\r\n" % (SOFT_FRAME_BYTES + 1))
as_bytes("bad_request", b"hello\r\n\r\n")
as_bytes("unsupported_media_type", POST + b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}")
as_bytes("expectation_failed", POST + b"Expect: wonders\r\nContent-Length: 2\r\n\r\n{}")
as_bytes("header_fields_too_large", POST + b"X: " + b"x" * 100_000)
as_bytes("unsupported_transfer_coding", POST + b"Transfer-Encoding: gzip\r\n\r\n")
as_bytes("unsupported_http_version", b"GET /v1/models HTTP/2.0\r\nHost: x\r\n\r\n")
simply("invalid_frame", "POST", "responses", [])
simply("invalid_type", "POST", "responses", {"model": 7})
simply("invalid_value", "POST", "responses", body({"say": "x"}, temperature=3))
simply("missing_required_parameter", "POST", "responses", {})
simply("unsupported_parameter", "POST", "responses", body({"say": "x"}, stream_id="a"))
simply("model_not_found", "POST", "responses", {"model": "oracle"})
simply("content_policy_violation", "POST", "responses", {"model": "scripted", "input": "evil"})
simply("response_not_found", "GET", "responses/resp_none")
simply("previous_response_not_found", "POST", "responses", body({"say": "x"}, previous_response_id="resp_none"))
simply("item_not_found", "POST", "responses", {"model": "scripted", "input": [{"id": "msg_none"}]})
simply("conversation_not_found", "GET", "conversations/conv_none")
simply(
    "tool_output_missing",
    "POST",
    "responses",
    {"model": "scripted", "input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}]},
)
simply("invalid_api_key", "GET", "models")
simply("not_found", "GET", "respond")
simply("method_not_allowed", "PUT", "responses", {})
simply("upgrade_required", "GET", "responses")
simply("too_many_connections", "GET", "models")


@over_http("request_timeout")
async def too_slow(it: Served) -> Asked:
    async with await trio.open_tcp_stream("127.0.0.1", it.port) as stream:
        await stream.send_all(POST)
        data = b"".join([bytes(chunk) async for chunk in stream])
    head, _, content = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), {}, json.loads(content)


async def parked(it: Served) -> tuple[str, str]:
    """A parked Response, and the call that it waits for."""
    async with it.client() as http:
        response = await post(http, "responses", body(CALL, CALL, {"say": "End."}, **APPEND))
    return response["id"], response["required_input"][0]["call_id"]


async def append(it: Served, *items: Json, times: int = 1) -> Asked:
    """Append ``items`` to a Response, in which CALL is its call's id; the last answer of ``times``."""
    response_id, call_id = await parked(it)
    content = json.loads(json.dumps({"input": items}).replace("CALL", call_id))
    for _ in range(times - 1):
        assert (await ask(it, "POST", f"responses/{response_id}/append", content))[0] == 200
    return await ask(it, "POST", f"responses/{response_id}/append", content)


def by_append(code: str, *items: Json) -> None:
    HTTP[code] = lambda it: append(it, *items)


ECHO: Json = {"role": "assistant", "content": "I never said this."}
by_append("tool_call_not_found", output("call_none"))
by_append("tool_output_conflict", output("CALL", "one"), output("CALL", "two"))
by_append("tool_output_type_mismatch", {**output("CALL"), "type": "custom_tool_call_output"})
by_append("echo_mismatch", ECHO)


@over_http("response_not_active")
async def after_the_end(it: Served) -> Asked:
    response_id, call_id = await parked(it)
    assert (await ask(it, "POST", f"responses/{response_id}/cancel"))[0] == 200
    return await ask(it, "POST", f"responses/{response_id}/append", {"input": [output(call_id)]})


@over_http("invalid_cursor")
async def from_the_future(it: Served) -> Asked:
    response_id, _ = await parked(it)
    return await ask(it, "GET", f"responses/{response_id}?stream=true&starting_after=99")


@over_http("idempotency_conflict")
async def another_body(it: Served) -> Asked:
    assert (await ask(it, "POST", "responses", body({"say": "x"}, idempotency_key="k")))[0] == 200
    return await ask(it, "POST", "responses", body({"say": "y"}, idempotency_key="k"))


@over_http("conversation_locked")
async def while_another_is_in_it(it: Served) -> Asked:
    _, _, made = await ask(it, "POST", "conversations", {})
    sent = body(NEVER, pace=100, background=True, conversation=made["id"])
    assert (await ask(it, "POST", "responses", sent))[0] == 200
    return await ask(it, "POST", "responses", sent)


@over_http("queue_full")
async def one_too_many(it: Served) -> Asked:
    assert (await ask(it, "POST", "responses", body(NEVER, pace=100, background=True)))[0] == 200
    return await ask(it, "POST", "responses", body({"say": "x"}))


@over_http("shutting_down")
async def at_the_end(it: Served) -> Asked:
    it.server.engine.closing = True
    return await ask(it, "POST", "responses", body({"say": "x"}))


@over_http("server_error")
async def our_fault(it: Served) -> Asked:
    it.server.engine.create = fault  # type: ignore[method-assign]
    return await ask(it, "POST", "responses", body({"say": "x"}))


@pytest.mark.parametrize("code", HTTP)
async def test_over_http(code: str) -> None:
    async with serving(code) as it:
        status, headers, content = await HTTP[code](it)
    assert set(content) == {"error"}
    check_form(content["error"], code)
    assert status == SAID[code][0]
    if headers:
        assert headers["content-type"] == "application/json"
        assert (headers.get("retry-after") == "1") == (status in RETRY_LATER)


# ---- in a stream of events: what is refused at the beginning is answered as over HTTP, before there is a stream

STREAMED: dict[str, Callable[[Served, pytest.MonkeyPatch], Awaitable[None]]] = {}


@pytest.mark.parametrize(
    ("code", "sent"),
    [
        ("invalid_value", {"temperature": 3}),
        ("model_not_found", {"model": "oracle"}),
        ("content_policy_violation", {"instructions": "evil"}),
        ("previous_response_not_found", {"previous_response_id": "resp_none"}),
        ("item_not_found", {"input": [{"type": "item_reference", "id": "msg_none"}]}),
        ("conversation_not_found", {"conversation": "conv_none"}),
    ],
)
async def test_what_is_refused_is_no_stream(code: str, sent: Json) -> None:
    async with serving(code) as it:
        status, headers, content = await ask(it, "POST", "responses", {**body({"say": "x"}), **sent, "stream": True})
    assert (status, headers["content-type"]) == (SAID[code][0], "application/json")
    check_form(content["error"], code)


async def taken_over(it: Served, _: pytest.MonkeyPatch) -> None:
    async with client(it.port) as socket:
        (response_id,) = it.server.engine.live
        await socket.say({"type": "response.attach", "response_id": response_id})
        await socket.until("response.done")
        await socket.say({"type": "response.cancel", "response_id": response_id})
        await socket.until("response.incomplete")


async def our_fault_in_a_stream(it: Served, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Subscription, "all_sent", fault)
    (rollout,) = it.server.engine.live.values()
    rollout.cancel()


STREAMED["attached_elsewhere"] = taken_over
STREAMED["server_error"] = our_fault_in_a_stream


@pytest.mark.parametrize("code", STREAMED)
async def test_in_a_stream(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = body(CALL, {"say": "End."}, **APPEND, stream=True)
    async with serving(code) as it, it.client() as http, events(http, "POST", "responses", json=sent) as stream:
        await stream.until("response.done")
        await STREAMED[code](it, monkeypatch)
        check_frame(await stream.until("error"), code)
        assert await stream.rest() == []
        assert stream.done


# ---- over a WebSocket

Socket = Callable[[Served, RawClient], Awaitable[None]]
SOCKET: dict[str, Socket] = {}


def over_a_socket(code: str) -> Callable[[Socket], Socket]:
    def register(provoke: Socket) -> Socket:
        SOCKET[code] = provoke
        return provoke

    return register


def by_frame(code: str, frame: Any) -> None:
    SOCKET[code] = lambda _, socket: socket.say(frame)


def by_create(code: str, **fields: Any) -> None:
    by_frame(code, {"type": "response.create", "model": "scripted", "input": "x", **fields})


def by_append_frame(code: str, *items: Json) -> None:
    async def provoke(_: Served, socket: RawClient) -> None:
        await socket.create(CALL)
        done = await socket.until("response.done")
        text = json.dumps({"type": "response.append", "input": items})
        await socket.say(json.loads(text.replace("CALL", done["required_input"][0]["call_id"])))

    SOCKET[code] = provoke


by_frame("invalid_frame", [])
by_frame("unknown_event", {"type": "response.explode"})
by_frame("message_too_large", {"type": "x" * SOFT_FRAME_BYTES})
by_frame("response_not_found", {"type": "response.cancel", "response_id": "resp_none"})
by_frame("response_not_active", {"type": "response.append", "stream_id": "quiet", "input": [output("call_1")]})
by_create("invalid_type", model=7)
by_create("invalid_value", temperature=3)
by_frame("missing_required_parameter", {"type": "response.create"})
by_create("unsupported_parameter", background=True)
by_create("invalid_stream_id", stream_id="no spaces")
by_create("model_not_found", model="oracle")
by_create("content_policy_violation", input="evil")
by_create("previous_response_not_found", previous_response_id="resp_none")
by_create("item_not_found", input=[{"type": "item_reference", "id": "msg_none"}])
by_create("conversation_not_found", conversation="conv_none", continuation="create")
by_create("tool_output_missing", input=[{"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}])
by_create("queue_full")
by_append_frame("tool_call_not_found", output("call_none"))
by_append_frame("tool_output_conflict", output("CALL", "one"), output("CALL", "two"))
by_append_frame("tool_output_type_mismatch", {**output("CALL"), "type": "custom_tool_call_output"})
by_append_frame("echo_mismatch", ECHO)


@over_a_socket("invalid_json")
async def no_json(_: Served, socket: RawClient) -> None:
    await socket.send(TextMessage("{"))


@over_a_socket("websocket_stream_limit_reached")
async def too_many_lanes(_: Served, socket: RawClient) -> None:
    for number in range(STREAM_IDS + 1):
        await socket.create({"say": "x"}, stream_id=f"lane_{number}")


@over_a_socket("websocket_connection_limit_reached")
async def too_old(_: Served, socket: RawClient) -> None:
    await trio.lowlevel.checkpoint()


@over_a_socket("conversation_locked")
async def two_in_one(it: Served, socket: RawClient) -> None:
    async with it.client() as http:
        made = ok(await http.post("conversations"))
    for lane in ("a", "b"):
        fields = {"stream_id": lane, "conversation": made["id"], "continuation": "create"}
        await socket.create(NEVER, pace=100, **fields)


@over_a_socket("response_ambiguous")
async def which_of_them(it: Served, socket: RawClient) -> None:
    for response_id in [(await parked(it))[0] for _ in range(2)]:
        await socket.say({"type": "response.attach", "response_id": response_id})
    await socket.say({"type": "response.cancel"})


@over_a_socket("stale_epoch")
async def no_longer_ours(it: Served, socket: RawClient) -> None:
    await taken(it, socket)
    assert (await socket.until("error"))["code"] == "attached_elsewhere"
    await socket.say({"type": "response.cancel"})


@over_a_socket("attached_elsewhere")
async def taken(it: Served, socket: RawClient) -> None:
    await socket.create(CALL)
    response_id = (await socket.until("response.done"))["response"]["id"]
    async with client(it.port) as other:
        await other.say({"type": "response.attach", "response_id": response_id})
        await other.until("response.done")


@over_a_socket("idempotency_conflict")
async def with_another_body(_: Served, socket: RawClient) -> None:
    await socket.create({"say": "x"}, idempotency_key="k")
    await socket.until("response.completed")
    await socket.create({"say": "y"}, idempotency_key="k")


@over_a_socket("invalid_cursor")
async def from_later(it: Served, socket: RawClient) -> None:
    response_id, _ = await parked(it)
    await socket.say({"type": "response.attach", "response_id": response_id, "starting_after": 99})


@over_a_socket("shutting_down")
async def when_all_ends(it: Served, socket: RawClient) -> None:
    it.server.engine.closing = True
    await socket.create({"say": "x"})


@over_a_socket("server_error")
async def by_our_fault(it: Served, socket: RawClient) -> None:
    it.server.engine.create = fault  # type: ignore[method-assign]
    await socket.create({"say": "x"})


@pytest.mark.parametrize("code", SOCKET)
async def test_over_a_websocket(code: str) -> None:
    async with serving(code) as it, client(it.port) as socket:
        await SOCKET[code](it, socket)
        frame = await socket.frame()
        while frame["type"] != "error":
            frame = await socket.frame()
        check_frame(frame, code)


# ---- all of them

ONLY_HTTP = {
    "bad_request",
    "request_timeout",
    "unsupported_media_type",
    "expectation_failed",
    "header_fields_too_large",
    "unsupported_transfer_coding",
    "unsupported_http_version",
    "invalid_api_key",
    "not_found",
    "method_not_allowed",
    "upgrade_required",
    "too_many_connections",
}
"""What is wrong with HTTP itself, and what is said at the door. A WebSocket that can't be is told so over HTTP."""
ONLY_SOCKETS = {
    "unknown_event",
    "invalid_stream_id",
    "websocket_stream_limit_reached",
    "websocket_connection_limit_reached",
    "response_ambiguous",
    "stale_epoch",
}
"""What needs frames with a type, lanes, or a socket that stays."""


def test_every_code_is_provoked_wherever_it_can_occur() -> None:
    assert set(SAID) == set(CODES)
    assert set(HTTP) == set(CODES) - ONLY_SOCKETS - {"attached_elsewhere"}  # a whole answer has no time to be taken over
    assert set(SOCKET) == set(CODES) - ONLY_HTTP
    assert set(STREAMED) == {"attached_elsewhere", "server_error"}  # whatever else is wrong is wrong before the stream


def test_what_may_be_sent_again_says_when() -> None:
    assert {code for code, (status, _) in SAID.items() if status in RETRY_LATER} == {
        "queue_full",
        "too_many_connections",
        "shutting_down",
    }
