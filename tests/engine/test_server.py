"""The server on real sockets: its door, bad frames of every kind, and its end."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
from wsproto.events import BytesMessage, Ping, TextMessage

from engine import Config
from engine.ledger import MemoryLedger
from engine.server import check_door
from protocol.limits import HARD_FRAME_BYTES, SOFT_FRAME_BYTES

from .http_support import CALL
from .socket_support import client, serving

KEYS = ("alice-key", "bob-key")


async def http(port: int, request: bytes) -> tuple[int, dict[str, str], Any]:
    """One plain HTTP exchange."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request)
        await stream.send_eof()
        data = b"".join([chunk async for chunk in stream])
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(status.split()[1]), headers, json.loads(body) if body else None


# ---- bad frames

OUTPUT = {"type": "function_call_output", "call_id": "call_unknown", "output": "x"}


def text(value: Any) -> list[Any]:
    return [TextMessage(value if isinstance(value, str) else json.dumps(value))]


BAD: dict[str, tuple[Callable[[], list[Any]], str]] = {
    "not JSON": (lambda: text("{not json"), "invalid_json"),
    "NaN": (lambda: text('{"type": "response.append", "input": NaN}'), "invalid_json"),
    "deep": (lambda: text("[" * 20_000), "invalid_json"),
    "lone surrogate": (lambda: text(r'{"type": "response.cancel", "response_id": "\udc00"}'), "invalid_json"),
    "not an object": (lambda: text([1, 2]), "invalid_frame"),
    "binary": (lambda: [BytesMessage(b"\x00\x01")], "invalid_frame"),
    "no type": (lambda: text({"model": "m"}), "missing_required_parameter"),
    "unknown type": (lambda: text({"type": "response.explode"}), "unknown_event"),
    "unknown response": (
        lambda: text({"type": "response.append", "response_id": "resp_none", "input": [OUTPUT]}),
        "response_not_found",
    ),
    "unknown call": (lambda: text({"type": "response.append", "input": [OUTPUT]}), "tool_call_not_found"),
    "empty append": (lambda: text({"type": "response.append", "input": []}), "invalid_value"),
    "10,000 outputs": (lambda: text({"type": "response.append", "input": [OUTPUT] * 10_000}), "invalid_value"),
    "10,000 calls": (
        lambda: text(
            {
                "type": "response.create",
                "model": "scripted",
                "stream_id": "bad",
                "input": [
                    {"type": "function_call", "call_id": f"call_{n}", "name": "f", "arguments": "{}"} for n in range(10_000)
                ],
            }
        ),
        "tool_output_missing",
    ),
    "unknown model": (
        lambda: text({"type": "response.create", "model": "oracle", "stream_id": "bad"}),
        "model_not_found",
    ),
    "bad lane": (
        lambda: text({"type": "response.create", "model": "scripted", "stream_id": "no spaces"}),
        "invalid_stream_id",
    ),
    "16 MiB and one byte more": (lambda: [TextMessage(" " * (SOFT_FRAME_BYTES + 1))], "message_too_large"),
    "fragments": (
        lambda: [
            TextMessage('{"type": ', message_finished=False),
            TextMessage('"response.', message_finished=False),
            TextMessage('shatter"}', message_finished=True),
        ],
        "unknown_event",
    ),
    "nothing live in the lane": (
        lambda: text({"type": "response.append", "stream_id": "quiet", "input": [OUTPUT]}),
        "response_not_active",
    ),
    "cursor from the future": (
        lambda: text({"type": "response.attach", "response_id": "$RESPONSE", "starting_after": 10**9}),
        "invalid_cursor",
    ),
    "wrong kind of output": (
        lambda: text(
            {
                "type": "response.append",
                "input": [{"type": "custom_tool_call_output", "call_id": "$CALL", "output": "x"}],
            }
        ),
        "tool_output_type_mismatch",
    ),
    "one good output, one bad": (
        lambda: text({"type": "response.append", "input": [{**OUTPUT, "call_id": "$CALL"}, {**OUTPUT, "call_id": "call_x"}]}),
        "tool_call_not_found",
    ),
    "an item that is no result": (
        lambda: text({"type": "response.append", "input": [{"role": "assistant", "content": "I never said this"}]}),
        "echo_mismatch",
    ),
}


def filled_in(event: Any, names: dict[str, str]) -> Any:
    if isinstance(event, TextMessage):
        data = event.data
        for name, value in names.items():
            data = data.replace(name, value)
        return TextMessage(data, message_finished=event.message_finished)
    return event


async def conversation(bad: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """A parked Response on the default lane, one that streams on lane ``steady``, and the bad frames in between.

    Returns the frames of lane ``steady``, those of the default lane, and the error frames.
    """
    steady: list[dict[str, Any]] = []
    parked: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []

    def sort(frame: dict[str, Any]) -> None:
        if frame["type"] == "error":
            errors.append(frame)
        else:
            (steady if frame.get("stream_id") == "steady" else parked).append(frame)

    async with serving() as (_, port), client(port) as raw:
        await raw.create(CALL, {"say": "Thanks."})
        while not parked or parked[-1]["type"] != "response.done":
            sort(await raw.frame())
        names = {"$RESPONSE": parked[0]["response"]["id"], "$CALL": parked[-1]["required_input"][0]["call_id"]}
        await raw.create({"say": {"tokens": 400}}, pace=400, stream_id="steady")
        while not steady or steady[-1]["type"] != "response.output_text.delta":
            sort(await raw.frame())
        for name in bad:
            for event in BAD[name][0]():
                await raw.send(filled_in(event, names))
            seen = len(errors)
            while len(errors) == seen:
                sort(await raw.frame())
        await raw.append(names["$CALL"])
        while not (steady and steady[-1]["type"] == parked[-1]["type"] == "response.completed"):
            sort(await raw.frame())
    return steady, parked, errors


def timeless(frames: list[dict[str, Any]]) -> str:
    """The frames but for what the clock says: byte for byte."""
    for frame in frames:
        frame.get("response", {}).pop("engine", None)
    return json.dumps(frames)


async def test_bad_frames_get_their_error_and_change_nothing() -> None:
    calm = await conversation([])
    stormy = await conversation(list(BAD))
    assert [error["code"] for error in stormy[2]] == [code for _, code in BAD.values()]
    assert all(error["status"] >= 400 and error["error"]["code"] == error["code"] for error in stormy[2])
    assert timeless(stormy[0]) == timeless(calm[0])
    assert timeless(stormy[1]) == timeless(calm[1])


async def test_only_the_hard_limit_closes_with_1009() -> None:
    async with serving() as (server, port), client(port) as raw:
        await raw.create(CALL)
        done = await raw.until("response.done")
        await raw.send(TextMessage("x" * (HARD_FRAME_BYTES + 1)))
        assert await raw.until_closed() == 1009
        rollout = server.engine.live[done["response"]["id"]]
        assert rollout.phase == "parked"


async def test_an_append_to_a_finished_response() -> None:
    async with serving() as (_, port), client(port) as raw:
        await raw.create({"say": "Done."})
        completed = await raw.until("response.completed")
        await raw.append("call_1", response_id=completed["response"]["id"])
        assert (await raw.frame())["code"] == "response_not_active"
        await raw.append("call_1")
        assert (await raw.frame())["code"] == "response_not_active"


async def test_two_appends_race_on_two_sockets_and_one_wins() -> None:
    async with serving() as (_, port), client(port) as one, client(port) as two:
        await one.create(CALL, {"say": "{{output}}"})
        done = await one.until("response.done")
        call_id = done["required_input"][0]["call_id"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: one.append(call_id, "of one", response_id=done["response"]["id"]))
            nursery.start_soon(lambda: two.append(call_id, "of two", response_id=done["response"]["id"]))
        seen = [await one.frame()]
        while seen[-1]["type"] != "response.completed":
            seen.append(await one.frame())
        accepted = [frame for frame in seen if frame["type"] == "response.append.accepted"]
        assert [frame["append"]["call_ids"] for frame in accepted] == [[call_id]]
        said = seen[-1]["response"]["output"][-1]["content"][0]["text"]
        assert said in ("of one", "of two")
        refused = [frame for frame in seen if frame["type"] == "error"] if said == "of two" else [await two.frame()]
        assert [frame["code"] in ("tool_output_conflict", "response_not_active") for frame in refused] == [True]


async def test_a_strangers_response_is_as_unknown_as_none() -> None:
    async with serving(keys=KEYS) as (_, port):
        alice = client(port, authorization="Bearer alice-key")
        bob = client(port, authorization="Bearer bob-key")
        async with alice as one, bob as two:
            await one.create(CALL)
            theirs = (await one.until("response.done"))["response"]["id"]
            for kind in ("append", "cancel", "finish", "attach"):
                fields = {"input": [OUTPUT]} if kind == "append" else {}
                answers = []
                for response_id in (theirs, theirs[:-1] + "x"):
                    await two.say({"type": f"response.{kind}", "response_id": response_id, **fields})
                    answers.append(json.dumps(await two.frame()).replace(response_id, "ID"))
                assert answers[0] == answers[1]
                assert "response_not_found" in answers[0]
            previous = []
            for response_id in (theirs, theirs[:-1] + "x"):
                await two.create({"say": "x"}, previous_response_id=response_id)
                previous.append(json.dumps(await two.frame()).replace(response_id, "ID"))
            assert previous[0] == previous[1]


async def test_pings_are_answered_while_a_response_is_parked() -> None:
    async with serving() as (_, port), client(port) as raw:
        await raw.create(CALL)
        await raw.until("response.done")
        for _ in range(3):
            await raw.send(Ping(b"x"))
        while raw.pongs < 3:
            await raw._read()


async def test_a_dropped_socket_leaves_the_response_and_another_goes_on() -> None:
    async with serving() as (_, port):
        async with client(port) as raw:
            await raw.create(CALL, {"say": "Back."})
            done = await raw.until("response.done")
        async with client(port) as raw:
            response_id = done["response"]["id"]
            await raw.say({"type": "response.attach", "response_id": response_id, "starting_after": 3})
            assert (await raw.frame())["type"] == "response.attach.accepted"
            rest = [await raw.frame() for _ in range(4, done["sequence_number"] + 1)]
            assert [frame["sequence_number"] for frame in rest] == list(range(4, done["sequence_number"] + 1))
            assert rest[-1] == done
            await raw.append(done["required_input"][0]["call_id"])
            assert (await raw.until("response.completed"))["response"]["status"] == "completed"


# ---- the door


@pytest.fixture
def upgrade() -> bytes:
    return (
        b"GET /v1/responses HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    )


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (b"GET /v1/responses HTTP/1.1\r\nHost: x\r\n\r\n", 426, "upgrade_required"),
        (b"DELETE /v1/responses HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method_not_allowed"),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n", 404, "not_found"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "bad_request"),
        (b"GET /" + b"x" * 100_000, 431, "header_fields_too_large"),
    ],
    ids=["no upgrade", "method", "path", "no host", "TLS hello", "endless head"],
)
async def test_what_is_no_websocket_gets_an_answer(request_: bytes, status: int, code: str) -> None:
    async with serving() as (_, port):
        got, _, body = await http(port, request_)
        assert (got, body["error"]["code"]) == (status, code)


async def test_health() -> None:
    async with serving() as (_, port):
        status, _, body = await http(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (status, body["status"]) == (200, "ok")


@pytest.mark.parametrize("key", [b"", b"Authorization: Bearer wrong\r\n", b"Authorization: Basic alice-key\r\n"])
async def test_a_wrong_key_is_401(upgrade: bytes, key: bytes) -> None:
    async with serving(keys=KEYS) as (_, port):
        status, headers, body = await http(port, upgrade + key + b"\r\n")
        assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        assert headers["www-authenticate"] == "Bearer"


async def test_connections_beyond_the_cap_are_503(upgrade: bytes) -> None:
    async with serving(connections=1) as (_, port), client(port):
        status, headers, body = await http(port, upgrade + b"\r\n")
        assert (status, body["error"]["code"], headers["retry-after"]) == (503, "too_many_connections", "1")


def test_a_server_that_others_reach_needs_keys() -> None:
    check_door("127.0.0.1", Config())
    check_door("0.0.0.0", Config(keys=("k",)))
    with pytest.raises(ValueError, match="key"):
        check_door("0.0.0.0", Config())


# ---- the end


async def test_a_graceful_end_tells_every_response_and_closes_with_1001() -> None:
    async with serving() as (server, port), client(port) as raw:
        await raw.create(CALL)
        await raw.until("response.done")
        server.stop()
        last = await raw.until("response.incomplete")
        assert last["response"]["incomplete_details"] == {"reason": "server_shutdown"}
        assert await raw.until_closed() == 1001
    ledger = server.services.ledger
    assert isinstance(ledger, MemoryLedger)
    assert [row.reason for row in ledger.rows] == ["server_shutdown"]


async def test_a_response_that_samples_may_end_before_the_server_does() -> None:
    async with serving() as (server, port), client(port) as raw:
        await raw.create({"say": {"tokens": 60}}, pace=200)
        await raw.until("response.output_text.delta")
        server.stop()
        assert (await raw.until("response.completed"))["response"]["status"] == "completed"
        assert await raw.until_closed() == 1001


# ---- who is told what


async def test_the_same_create_twice_at_once_makes_one_response() -> None:
    async with serving() as (server, port), client(port) as one, client(port) as two:
        for raw, lane in ((one, "a"), (two, "b")):
            await raw.create(CALL, idempotency_key="k", stream_id=lane)
        first = await one.frame()
        second = await two.until("response.created", "b")
        assert list(server.engine.live) == [second["response"]["id"]]
        # The later one is the client that the Response answers to; the earlier one is told, if it came so early.
        assert first.get("code") == "attached_elsewhere" or first["response"]["id"] == second["response"]["id"]


async def test_a_refused_create_is_told_to_all_who_sent_it_and_may_be_sent_again() -> None:
    async with serving() as (_, port), client(port) as raw:
        for _ in range(2):
            await raw.create({"say": "x"}, model="oracle", idempotency_key="k")
            assert (await raw.frame())["code"] == "model_not_found"


async def test_the_same_key_with_another_body_is_a_conflict() -> None:
    async with serving() as (_, port), client(port) as raw:
        await raw.create({"say": "x"}, idempotency_key="k")
        await raw.until("response.completed")
        await raw.create({"say": "y"}, idempotency_key="k")
        assert (await raw.frame())["code"] == "idempotency_conflict"


async def test_who_is_not_attached_is_answered_all_the_same() -> None:
    async with serving() as (_, port), client(port) as one, client(port) as two:
        await one.create(CALL, CALL)
        done = await one.until("response.done")
        await two.append(done["required_input"][0]["call_id"], response_id=done["response"]["id"])
        theirs = await two.until("response.append.accepted")
        heard = await one.until("response.append.accepted")
        assert (theirs["append"], theirs["response_id"]) == (heard["append"], done["response"]["id"])
        assert "sequence_number" not in theirs
        await two.say({"type": "response.cancel", "response_id": done["response"]["id"]})
        assert (await two.until("response.cancel.accepted"))["response_id"] == done["response"]["id"]
        await one.until("response.incomplete")


async def test_an_error_says_which_append_was_refused() -> None:
    async with serving() as (_, port), client(port) as raw:
        await raw.create(CALL)
        await raw.until("response.done")
        await raw.append("call_nobody", idempotency_key="k")
        assert (await raw.frame())["append"] == {"call_ids": ["call_nobody"], "idempotency_key": "k"}
        await raw.append("call_nobody", idempotency_key="k" * 300)
        assert (await raw.frame())["param"] == "idempotency_key"


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"\x81\x82\x00\x00\x00\x00\xff\xfe", 1007), (b"\x83\x80\x00\x00\x00\x00", 1002), (b"\x81\x01x", 1002)],
    ids=["not UTF-8", "unknown opcode", "not masked"],
)
async def test_who_breaks_the_rules_of_websockets_is_told_how(data: bytes, code: int) -> None:
    async with serving() as (_, port), client(port) as raw:
        await raw.stream.send_all(data)
        assert await raw.until_closed() == code
