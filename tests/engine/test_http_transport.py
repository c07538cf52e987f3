"""HTTP on one connection: whatever bytes come in whatever pieces, the answers are right, or an error that says why."""

import http.client
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import h11
import pytest
import trio
import trio.testing
from attrs import define
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.outbox import Outbox
from engine.testing import pipe_pair, virtually
from engine.transport.answer import Answer
from engine.transport.http import Exchange, HttpConnection, Limits, Upgrade
from engine.transport.routes import Routes
from engine.transport.sse import SseStream, sse_event
from protocol.errors import CODES, ProtocolError

WALL = 1_750_000_000.0
DATE = "Sun, 15 Jun 2025 15:06:40 GMT"
FRAMES = [b'{"type":"response.created","n":1}', b'{"type":"response.output_text.delta","delta":"a\\nb"}']


@define
class Reply:
    """One answer as h11 reads it."""

    status: int
    headers: dict[str, str]
    body: bytes
    informational: int = 0

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        return self.json["error"]["code"]


class Client:
    """A client on any stream, which sends what it is told and reads with h11."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.rest = b""
        self.ended = False

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def reply(self, method: str = "GET") -> Reply:
        parser = h11.Connection(h11.CLIENT)
        parser.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        parser.send(h11.EndOfMessage())
        if self.rest:
            parser.receive_data(self.rest)
        reply, informational = Reply(0, {}, b""), 0
        while not isinstance(event := parser.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                parser.receive_data(await self._read())
            elif isinstance(event, h11.InformationalResponse):
                informational += 1
            elif isinstance(event, h11.Response):
                headers = {name.decode(): value.decode() for name, value in event.headers}
                reply = Reply(event.status_code, headers, b"", informational)
            elif isinstance(event, h11.Data):
                reply.body += bytes(event.data)
            else:
                raise EOFError(event)
        self.rest = parser.trailing_data[0]
        return reply

    async def ask(self, data: bytes, method: str = "GET") -> Reply:
        await self.send(data)
        return await self.reply(method)

    async def everything(self) -> bytes:
        """All bytes up to the end."""
        data = self.rest
        while more := await self._read():
            data += more
        return data

    async def _read(self) -> bytes:
        return bytes(await self.stream.receive_some(65536))


@define
class Served:
    """A connection in memory."""

    client: Client
    connection: HttpConnection
    over: trio.Event
    bugs: list[BaseException]
    result: Upgrade | None = None


Handle = Callable[[Exchange], Awaitable[None]]


@asynccontextmanager
async def served(handle: Handle, limits: Limits | None = None, *, capacity: int = 1 << 20) -> AsyncIterator[Served]:
    """A connection in memory, which ends with the block. Bugs that a test provokes it takes out of ``bugs``."""
    ours, theirs = pipe_pair(capacity)
    bugs: list[BaseException] = []
    connection = HttpConnection(theirs, limits or Limits(), handle, on_bug=bugs.append, wall=lambda: WALL)
    one = Served(Client(ours), connection, trio.Event(), bugs)

    async def serve() -> None:
        one.result = await connection.serve()
        one.over.set()
        if one.result is None:
            theirs.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)  # noqa: ASYNC113 - what the client sends waits for it
        yield one
        nursery.cancel_scope.cancel()
    assert one.bugs == []


async def echo(exchange: Exchange) -> None:
    await exchange.respond(200, {"params": dict(exchange.params), "body": await exchange.json()})


async def show(exchange: Exchange) -> None:
    request = exchange.request
    query = {name: list(values) for name, values in request.query.items()}
    await exchange.respond(200, {"path": request.path, "query": query, "params": dict(exchange.params)})


async def events(exchange: Exchange) -> None:
    async with exchange.sse() as wire:
        for frame in FRAMES:
            wire.put(frame)


async def refuse(exchange: Exchange) -> None:
    await trio.lowlevel.checkpoint()
    (code, *_) = exchange.request.query.get("code", ("",))
    raise ProtocolError(code if code in CODES else "not_found", "no", "field")


TABLE: list[tuple[str, str, Handle]] = [
    ("GET", "/show", show),
    ("GET", "/things/{thing_id}", show),
    ("DELETE", "/things/{thing_id}", show),
    ("POST", "/things/{thing_id}", echo),
    ("POST", "/things/special", show),
    ("GET", "/things/{thing_id}/parts/{part}", show),
    ("POST", "/echo", echo),
    ("GET", "/events", events),
    ("GET", "/refuse", refuse),
]
ROUTES = Routes(TABLE)


def get(target: str, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    lines = [f"{method} {target} HTTP/{version}", "Host: x", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def post(target: str, body: bytes, *headers: str) -> bytes:
    return get(target, f"Content-Length: {len(body)}", *headers, method="POST") + body


def chunked(target: str, pieces: Sequence[bytes], *headers: str) -> bytes:
    body = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nTrailer: x\r\n\r\n"
    return get(target, "Transfer-Encoding: chunked", *headers, method="POST") + body


# ---- whatever the pieces

VARIED: list[tuple[str, bytes, int]] = [
    ("GET", get("/show?a=1&a=2&b=%20"), 200),
    ("POST", post("/echo", b'{"x": [1, 2]}', "Content-Type: application/json; charset=utf-8"), 200),
    ("POST", chunked("/echo", [b'{"x"', b": 1", b"}"]), 200),
    ("GET", get("/nowhere"), 404),
    ("POST", post("/nowhere", b"a body that nobody wanted"), 404),
    ("POST", chunked("/nowhere", [b"nor this", b" one"]), 404),
    ("PATCH", get("/show", method="PATCH"), 405),
    ("HEAD", get("/show", method="HEAD"), 200),
    ("OPTIONS", get("/show", method="OPTIONS"), 204),
    ("POST", post("/echo", b"{"), 400),
    ("POST", post("/echo", b"a=b", "Content-Type: application/x-www-form-urlencoded"), 415),
    ("POST", post("/echo", b"{}", "Content-Encoding: gzip"), 415),
    ("GET", get("/events"), 200),
    ("HEAD", get("/events", method="HEAD"), 200),
    ("GET", get("/refuse?code=queue_full"), 429),
    ("POST", post("/echo", b"{}", "Expect: 100-continue"), 200),
    ("POST", post("/things/a%2Fb", b"1"), 200),
]


async def exchanged(pieces: Sequence[bytes], methods: Sequence[str]) -> list[Reply]:
    """What is answered to ``pieces``, sent one after the other."""
    replies: list[Reply] = []
    async with served(ROUTES) as one, trio.open_nursery() as nursery:

        async def send() -> None:
            for piece in pieces:
                await one.client.send(piece)
                await trio.testing.wait_all_tasks_blocked()

        nursery.start_soon(send)
        for method in methods:
            reply = await one.client.reply(method)
            replies += [reply]
    return replies


def cut(data: bytes, at: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted({cut % len(data) for cut in at} - {0}), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(VARIED), min_size=1, max_size=6), st.lists(st.integers(0, 10_000), max_size=30))
def test_pieces_of_any_size_get_the_same_answers_in_order(requests: list[tuple[str, bytes, int]], at: list[int]) -> None:
    data = b"".join(one for _, one, _ in requests)
    methods = [method for method, _, _ in requests]

    async def main() -> None:
        whole = await exchanged([data], methods)
        assert [reply.status for reply in whole] == [status for _, _, status in requests]
        assert await exchanged(cut(data, at), methods) == whole

    virtually(main)


def test_bytes_one_by_one() -> None:
    async def main() -> None:
        for method, data, status in VARIED:
            [reply] = await exchanged([data[i : i + 1] for i in range(len(data))], [method])
            assert reply.status == status, data

    virtually(main)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_garbage_is_answered_or_ignored_but_never_a_bug(data: st.DataObject) -> None:
    valid = b"".join(one for _, one, _ in data.draw(st.lists(st.sampled_from(VARIED), max_size=2)))
    where = data.draw(st.integers(0, len(valid)))
    bad = valid[:where] + data.draw(st.binary(min_size=1, max_size=60)) + valid[where + data.draw(st.integers(0, 5)) :]

    async def main() -> None:
        async with served(ROUTES) as one:
            for piece in cut(bad, data.draw(st.lists(st.integers(0, 10_000), max_size=3))):
                await one.client.send(piece)
            await one.client.stream.send_eof()
            said = await one.client.everything()
            await one.over.wait()
        assert said == b"" or said.startswith(b"HTTP/1.1 ")

    virtually(main)


# ---- requests that are refused

REFUSED: dict[str, tuple[bytes, int, str, bool]] = {
    "no HTTP": (b"\x16\x03\x01\x02\r\n\r\n", 400, "bad_request", False),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_request", False),
    "bad header": (get("/show", "a b: c"), 400, "bad_request", False),
    "bad length": (get("/echo", "Content-Length: x", method="POST"), 400, "bad_request", False),
    "two lengths": (get("/echo", "Content-Length: 1", "Content-Length: 2", method="POST"), 400, "bad_request", False),
    "smuggled": (get("/echo", "Content-Length: 5", "Transfer-Encoding: chunked", method="POST"), 400, "bad_request", False),
    "bad chunk": (get("/echo", "Transfer-Encoding: chunked", method="POST") + b"zz\r\n", 400, "bad_request", False),
    "bad target": (get("http://[/"), 400, "bad_request", False),
    "coding": (get("/echo", "Transfer-Encoding: gzip", method="POST"), 501, "unsupported_transfer_coding", False),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "unsupported_http_version", False),
    "long head": (get("/" + "x" * 3000), 431, "header_fields_too_large", False),
    "endless head": (b"GET /" + b"x" * 3000, 431, "header_fields_too_large", False),
    "long body": (post("/echo", b"1" * 5000), 413, "message_too_large", False),
    "long chunks": (chunked("/echo", [b"1" * 900] * 5), 413, "message_too_large", False),
    "long body to come": (get("/echo", "Content-Length: 9999999", method="POST"), 413, "message_too_large", False),
    "long body that asks": (
        get("/echo", "Content-Length: 9999999", "Expect: 100-continue", method="POST"),
        413,
        "message_too_large",
        False,
    ),
    "expects more": (get("/echo", "Expect: the-unexpected", method="POST"), 417, "expectation_failed", False),
    "asks in vain": (
        get("/nowhere", "Content-Length: 2", "Expect: 100-continue", method="POST"),
        404,
        "not_found",
        False,
    ),
    "media type": (post("/echo", b"<a/>", "Content-Type: text/xml"), 415, "unsupported_media_type", True),
    "method": (get("/echo"), 405, "method_not_allowed", True),
    "connect": (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 404, "not_found", True),
    "path": (get("/echo/echo"), 404, "not_found", True),
    "empty id": (get("/things//parts/x"), 404, "not_found", True),
    "not JSON": (post("/echo", b"{]"), 400, "invalid_json", True),
    "no body": (get("/echo", method="POST"), 400, "invalid_json", True),
    "not UTF-8": (post("/echo", b'"\xff"'), 400, "invalid_json", True),
}
SMALL = Limits(head_bytes=1000, body_bytes=4000, unread_bytes=500)


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_wrong_is_said_and_the_connection_lives_if_it_can(name: str) -> None:
    data, status, code, lives = REFUSED[name]
    async with served(ROUTES, SMALL) as one:
        reply = await one.client.ask(data, "POST")
        assert (reply.status, reply.code, reply.informational) == (status, code, 0)
        error = reply.json["error"]
        assert set(error) == {"type", "code", "message", "param", "work"}
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["date"] == DATE
        assert reply.headers["server"] == "sostenuto"
        assert ("close" not in reply.headers.get("connection", "")) == lives
        if lives:
            assert (await one.client.ask(get("/show"))).status == 200
        else:
            await one.client.stream.send_eof()
            assert await one.client.everything() == b""
            await one.over.wait()


async def test_the_head_limit_is_exact() -> None:
    async with served(ROUTES, SMALL) as one:
        overhead = len(get("/show?"))
        assert (await one.client.ask(get("/show?" + "x" * (1000 - overhead)))).status == 200
        assert (await one.client.ask(get("/show?" + "x" * (1001 - overhead)))).status == 431


async def test_the_body_limit_is_exact() -> None:
    async with served(ROUTES, SMALL) as one:
        for request in (post("/echo", b" " * 3999 + b"1"), chunked("/echo", [b" " * 3999, b"1"])):
            assert (await one.client.ask(request)).status == 200
        assert (await one.client.ask(post("/echo", b" " * 4000 + b"1"))).status == 413


async def test_100_continue_is_said_when_the_body_is_wanted() -> None:
    async with served(ROUTES) as one:
        await one.client.send(get("/echo", "Content-Length: 2", "Expect: 100-Continue", method="POST"))
        said = await one.client.stream.receive_some(1000)
        assert said == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await one.client.ask(b"{}")).json["body"] == {}
        assert (await one.client.ask(get("/show"))).status == 200


async def test_http_1_0_is_answered_without_chunks_and_closed() -> None:
    async with served(ROUTES) as one:
        await one.client.send(get("/events", "Connection: keep-alive", "Expect: anything", version="1.0"))
        head, _, body = (await one.client.everything()).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head
        assert body == b"".join(sse_event(frame) for frame in FRAMES) + b"data: [DONE]\n\n"


async def test_connection_close_is_obeyed() -> None:
    async with served(ROUTES) as one:
        reply = await one.client.ask(get("/show", "Connection: close") + get("/show"))
        assert reply.headers["connection"] == "close"
        assert await one.client.everything() == b""


@pytest.mark.parametrize("data", [b"GET /sho", post("/echo", b"[1, 2")[:-1], chunked("/echo", [b"1"])[:-3]])
async def test_a_request_that_ends_too_early_is_400(data: bytes) -> None:
    async with served(ROUTES) as one:
        await one.client.ask(get("/show"))
        await one.client.send(data)
        await one.client.stream.send_eof()
        assert (await one.client.reply("POST")).status == 400
        assert await one.client.everything() == b""


# ---- handlers that fail


@pytest.mark.parametrize(
    ("code", "status", "headers"),
    [
        ("queue_full", 429, {"retry-after": "1"}),
        ("shutting_down", 503, {"retry-after": "1"}),
        ("invalid_api_key", 401, {"www-authenticate": "Bearer"}),
        ("upgrade_required", 426, {"upgrade": "websocket", "connection": "Upgrade"}),
        ("response_not_found", 404, {}),
    ],
)
async def test_a_protocol_error_is_the_answer(code: str, status: int, headers: dict[str, str]) -> None:
    async with served(ROUTES) as one:
        reply = await one.client.ask(get(f"/refuse?code={code}"))
        assert (reply.status, reply.code, reply.json["error"]["param"]) == (status, code, "field")
        assert headers.items() <= reply.headers.items()


async def fail(exchange: Exchange) -> None:
    await trio.lowlevel.checkpoint()
    raise ZeroDivisionError


async def in_a_nursery(handle: Handle, exchange: Exchange) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 0)
        nursery.start_soon(handle, exchange)


async def say_nothing(exchange: Exchange) -> None:
    await trio.lowlevel.checkpoint()


async def break_the_line(exchange: Exchange) -> None:
    await exchange.respond(200, None, [("x-id", "a\r\nset-cookie: b")])


@pytest.mark.parametrize("handle", [fail, partial(in_a_nursery, fail), say_nothing, break_the_line])
async def test_a_bug_is_told_and_costs_only_its_request(handle: Handle) -> None:
    async with served(handle) as one:
        for _ in range(2):
            reply = await one.client.ask(get("/"))
            assert (reply.status, reply.code) == (500, "server_error")
            assert "set-cookie" not in reply.headers
        assert len(one.bugs) == 2
        one.bugs.clear()


async def test_a_protocol_error_out_of_a_nursery_is_no_bug() -> None:
    async with served(partial(in_a_nursery, refuse)) as one:
        assert (await one.client.ask(get("/?code=not_found"))).status == 404


async def test_a_second_answer_is_a_bug() -> None:
    async def twice(exchange: Exchange) -> None:
        await exchange.respond(200, 1)
        await exchange.respond(200, 2)

    async with served(twice) as one:
        assert (await one.client.ask(get("/"))).json == 1
        assert (await one.client.ask(get("/"))).json == 1
        assert [type(bug) for bug in one.bugs] == [RuntimeError, RuntimeError]
        one.bugs.clear()


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\0b"])
def test_a_header_cannot_break_out_of_its_line(name: str) -> None:
    for header in ((name, "x"), ("x", name)):
        with pytest.raises(ValueError, match="header"):
            Answer().head(200, [header])


# ---- routes


async def test_paths_are_decoded_after_they_are_split() -> None:
    async with served(ROUTES) as one:
        seen = await one.client.ask(get("/things/a%2Fb%20c/parts/%C3%A9?q=%C3%A9&flag&q=2"))
        assert seen.json["params"] == {"thing_id": "a/b c", "part": "é"}
        assert seen.json["query"] == {"q": ["é", "2"], "flag": [""]}
        assert (await one.client.ask(get("/show/"))).status == 200
        assert (await one.client.ask(get("http://elsewhere/show"))).json["path"] == "/show"
        assert (await one.client.ask(get("/things/special", method="POST"))).json["params"] == {}


async def test_what_is_allowed() -> None:
    async with served(ROUTES) as one:
        for method, status in (("OPTIONS", 204), ("PUT", 405)):
            reply = await one.client.ask(get("/things/x", method=method), method)
            assert (reply.status, reply.headers["allow"]) == (status, "DELETE, GET, HEAD, OPTIONS, POST")
        assert (await one.client.ask(get("*", method="OPTIONS"), "OPTIONS")).status == 204
        assert (await one.client.ask(get("/nowhere", method="OPTIONS"), "OPTIONS")).status == 404


async def test_head_says_what_get_would() -> None:
    async with served(ROUTES) as one:
        whole = await one.client.ask(get("/show"))
        bare = await one.client.ask(get("/show", method="HEAD"), "HEAD")
        assert bare.headers == whole.headers
        assert bare.body == b""


def cors(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("access-control") or name == "vary"}


async def test_a_preflight_is_answered_for_allowed_origins_only() -> None:
    ask = ["Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization, content-type"]
    async with served(Routes(TABLE, origins=["https://good.example"])) as one:
        reply = await one.client.ask(get("/echo", "Origin: https://good.example", *ask, method="OPTIONS"), "OPTIONS")
        assert reply.status == 204
        assert cors(reply.headers) == {
            "access-control-allow-origin": "https://good.example",
            "access-control-allow-methods": "OPTIONS, POST",
            "access-control-allow-headers": "authorization, content-type",
            "access-control-expose-headers": "*",
            "access-control-max-age": "600",
            "vary": "origin",
        }
        reply = await one.client.ask(get("/echo", "Origin: https://bad.example", *ask, method="OPTIONS"), "OPTIONS")
        assert cors(reply.headers) == {"vary": "origin"}


@pytest.mark.parametrize("target", ["/show", "/nowhere", "/refuse?code=queue_full", "/events"])
async def test_every_answer_may_be_read_by_an_allowed_origin(target: str) -> None:
    for origins, allowed in ((["*"], "*"), (["https://a.example"], "https://a.example"), ([], None), (["https://b"], None)):
        async with served(Routes(TABLE, origins=origins)) as one:
            reply = await one.client.ask(get(target, "Origin: https://a.example"))
            assert reply.headers.get("access-control-allow-origin") == allowed


# ---- slow clients

SLOW: dict[str, tuple[bytes, bytes, float, int | None, float]] = {
    "says nothing": (b"", b"", 1.0, None, 10.0),
    "head": (b"GET /show HTTP/1.1\r\nHost: x\r\nX: ", b"x", 1.0, 408, 10.0),
    "body": (get("/echo", "Content-Length: 3000000", method="POST"), b"x" * 1000, 1.0, 408, 10.6),
    "chunks": (get("/echo", "Transfer-Encoding: chunked", method="POST"), b"1\r\n \r\n", 0.5, 408, 10.0),
    "unwanted body": (get("/nowhere", "Content-Length: 30000", method="POST"), b"x", 0.5, 404, 2.0),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_slow_sender_is_cut_off_in_time(name: str) -> None:
    start, drop, pause, status, at_least = SLOW[name]

    async def main() -> None:
        async with served(ROUTES) as one, trio.open_nursery() as nursery:

            async def drip() -> None:
                await one.client.send(start)
                while True:
                    await trio.sleep(pause)
                    await one.client.send(drop)

            if start:
                nursery.start_soon(drip)
            if status is None:
                assert await one.client.everything() == b""
            else:
                reply = await one.client.reply("POST")
                assert (reply.status, reply.headers["connection"]) == (status, "close")
            nursery.cancel_scope.cancel()
            assert at_least <= trio.current_time() <= at_least + 1
            await one.over.wait()

    virtually(main)


def test_a_body_that_comes_fast_enough_may_take_long() -> None:
    async def main() -> None:
        async with served(ROUTES) as one:
            await one.client.send(get("/echo", "Content-Length: 1000001", method="POST"))
            for _ in range(50):
                await trio.sleep(1)
                await one.client.send(b" " * 20_000)
            assert (await one.client.ask(b"1")).json["body"] == 1

    virtually(main)


def test_an_idle_connection_is_closed_quietly_and_a_busy_one_is_not() -> None:
    async def slow(exchange: Exchange) -> None:
        await trio.sleep(1000)
        await exchange.respond(200, 1)

    async def main() -> None:
        async with served(slow) as one:
            await one.client.ask(get("/"))
            await trio.sleep(74)
            await one.client.ask(get("/"))
            idle = trio.current_time()
            assert await one.client.everything() == b""
            assert trio.current_time() == idle + 75

    virtually(main)


async def stalled(handle: Handle) -> None:
    """A client that does not read: its connection ends."""
    async with served(handle, capacity=1000) as one:
        await one.client.send(get("/"))
        await one.over.wait()
        assert trio.current_time() == pytest.approx(30, abs=2)
        read = await one.client.everything()
        assert len(read) == 1000


def test_a_client_that_does_not_read_is_given_up() -> None:
    async def large(exchange: Exchange) -> None:
        await exchange.respond(200, "x" * 10_000)

    async def stream(exchange: Exchange) -> None:
        async with exchange.sse() as wire:
            wire.put(b'{"type":"x","y":"%b"}' % (b"x" * 10_000))
            await trio.sleep_forever()

    async def refused(exchange: Exchange) -> None:
        await trio.lowlevel.checkpoint()
        raise ProtocolError("not_found", "x" * 10_000)

    for handle in (large, stream, refused):
        virtually(partial(stalled, handle))


def test_a_long_answer_may_take_a_slow_reader_long() -> None:
    async def large(exchange: Exchange) -> None:
        await exchange.respond(200, "x" * 2_000_000)

    async def main() -> None:
        async with served(large, capacity=64_000) as one:
            await one.client.send(get("/"))
            count = 0
            while count < 2_000_000:
                await trio.sleep(5)
                count += len(await one.client.stream.receive_some(64_000))
            assert trio.current_time() > 100

    virtually(main)


# ---- clients that drop


class Watched:
    """A handler that waits for ever, and remembers how it ended."""

    def __init__(self, *, detach: bool = False, sse: bool = False, seconds: float = 10_000) -> None:
        self.detach, self.sse, self.seconds = detach, sse, seconds
        self.ended_at = -1.0
        self.done = False

    async def __call__(self, exchange: Exchange) -> None:
        if self.detach:
            exchange.detach()
        try:
            await self._work(exchange)
            self.done = True
        finally:
            self.ended_at = trio.current_time()

    async def _work(self, exchange: Exchange) -> None:
        if not self.sse:
            await trio.sleep(self.seconds)
            await exchange.respond(200, 1)
            return
        async with exchange.sse() as wire:
            for _ in range(int(self.seconds)):
                await trio.sleep(1)
                wire.put(FRAMES[0])


@pytest.mark.parametrize("sse", [False, True])
@pytest.mark.parametrize(("how", "seconds"), [("close", 1), ("reset", 0), ("send_eof", 1)])
def test_a_dropped_client_cancels_its_handler(how: str, seconds: float, sse: bool) -> None:
    async def main() -> None:
        handler = Watched(sse=sse)
        async with served(handler) as one:
            await one.client.send(get("/") + get("/ahead"))
            await trio.sleep(5.5)
            ended = getattr(one.client.stream, how)()
            if ended is not None:
                await ended
            await one.over.wait()
            assert not handler.done
            # A stream of events finds out by its next write, if that is sooner.
            assert 5.5 <= handler.ended_at <= 5.5 + seconds

    virtually(main)


@pytest.mark.parametrize("sse", [False, True])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_detached_handler_goes_on(how: str, sse: bool) -> None:
    async def main() -> None:
        handler = Watched(detach=True, sse=sse, seconds=100)
        async with served(handler) as one:
            await one.client.send(get("/"))
            await trio.sleep(5)
            getattr(one.client.stream, how)()
            await one.over.wait()
            assert handler.done
            assert trio.current_time() >= 100

    virtually(main)


def test_a_half_closed_client_gets_its_answers_if_they_are_quick() -> None:
    async def main() -> None:
        async with served(Watched(seconds=0.6)) as one:
            await one.client.send(get("/") * 3)
            await one.client.stream.send_eof()
            for _ in range(3):
                assert (await one.client.reply()).status == 200
            assert await one.client.everything() == b""

    virtually(main)


async def test_what_is_sent_ahead_is_held_back_beyond_a_bound() -> None:
    go = trio.Event()

    async def wait(exchange: Exchange) -> None:
        await go.wait()
        await exchange.respond(200, exchange.request.path)

    async with served(wait, Limits(ahead_bytes=1000), capacity=1000) as one, trio.open_nursery() as nursery:
        requests = [get(f"/{n}", "X: " + "x" * 500) for n in range(40)]
        nursery.start_soon(one.client.send, b"".join(requests))
        await trio.testing.wait_all_tasks_blocked()
        assert len(one.connection._inlet) <= 2000
        go.set()
        assert [(await one.client.reply()).json for _ in requests] == [f"/{n}" for n in range(40)]


def test_a_write_that_was_cut_ends_the_connection() -> None:
    async def hasty(exchange: Exchange) -> None:
        with trio.move_on_after(3):
            await exchange.respond(200, "x" * 10_000)

    async def main() -> None:
        async with served(hasty, capacity=1000) as one:
            await one.client.send(get("/") * 2)
            await one.over.wait()
            assert trio.current_time() == 3
            assert len(await one.client.everything()) == 1000

    virtually(main)


# ---- server-sent events


async def test_a_stream_of_events_and_the_next_request() -> None:
    async with served(ROUTES) as one:
        for _ in range(2):
            reply = await one.client.ask(get("/events"))
            assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert reply.headers["cache-control"] == "no-cache"
            assert "connection" not in reply.headers
            lines = b"event: response.created\ndata: " + FRAMES[0] + b"\n\n"
            assert reply.body.startswith(lines)
            assert reply.body == b"".join(sse_event(frame) for frame in FRAMES) + b"data: [DONE]\n\n"


async def test_events_go_out_at_once_and_bursts_together() -> None:
    writes: list[bytes] = []
    gate, gates = trio.Event(), 0

    async def write(data: bytes) -> None:
        nonlocal gates
        writes.append(data)
        gates += 1
        if gates == 2:
            await gate.wait()

    stream = SseStream(write)
    drained: list[int] = []
    stream.on_drained(lambda: drained.append(stream.waiting))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.pump)
        await trio.testing.wait_all_tasks_blocked()
        stream.put(FRAMES[0])
        await trio.testing.wait_all_tasks_blocked()
        assert writes == [b"", sse_event(FRAMES[0])]
        for _ in range(3):
            stream.put(FRAMES[1])
        stream.comment()
        assert stream.waiting == len(sse_event(FRAMES[0])) + 3 * len(sse_event(FRAMES[1])) + 3
        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert writes[2:] == [sse_event(FRAMES[1]) * 3 + b":\n\n"]
        stream.close()
        stream.put(FRAMES[0])
    assert writes[3:] == [b"data: [DONE]\n\n"]
    assert (len(drained), drained[-1]) == (4, 0)


def test_the_head_is_sent_before_the_first_event() -> None:
    async def quiet(exchange: Exchange) -> None:
        async with exchange.sse():
            await trio.sleep(1000)

    async def main() -> None:
        async with served(quiet) as one:
            await one.client.send(get("/"))
            head = await one.client.stream.receive_some(10_000)
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert head.endswith(b"\r\n\r\n")
            assert trio.current_time() == 0

    virtually(main)


@pytest.mark.parametrize("error", [ProtocolError("model_not_found", "no"), ZeroDivisionError()])
async def test_an_error_within_a_stream_is_an_event(error: Exception) -> None:
    async def handle(exchange: Exchange) -> None:
        async with exchange.sse() as wire:
            wire.put(FRAMES[0])
            raise error

    async with served(handle) as one:
        reply = await one.client.ask(get("/"))
        first, last, done, rest = reply.body.split(b"\n\n")
        assert first + b"\n\n" == sse_event(FRAMES[0])
        assert last.startswith(b"event: error\ndata: ")
        code = json.loads(last.partition(b"data: ")[2])["code"]
        assert (done, rest) == (b"data: [DONE]", b"")
        is_bug = isinstance(error, ZeroDivisionError)
        assert (code, one.bugs) == (("server_error", [error]) if is_bug else ("model_not_found", []))
        assert (await one.client.ask(get("/"))).status == 200
        one.bugs.clear()


def test_head_of_a_stream_ends_at_once() -> None:
    async def main() -> None:
        async with served(Watched(sse=True)) as one:
            reply = await one.client.ask(get("/", method="HEAD"), "HEAD")
            assert reply.headers["content-type"].startswith("text/event-stream")
            assert (await one.client.ask(get("/", method="HEAD"), "HEAD")).status == 200
            assert trio.current_time() == 0

    virtually(main)


async def test_an_outbox_over_a_stream_is_bounded() -> None:
    put = most = 0

    async def handle(exchange: Exchange) -> None:
        nonlocal put, most
        async with exchange.sse() as wire:
            outbox = Outbox(wire, 2000)
            wire.on_drained(outbox.drained)
            for _ in range(200):
                await outbox.room()
                outbox.put(b'{"type":"x","y":"%b"}' % (b"y" * 80))
                put += 1
                most = max(most, wire.waiting)

    async with served(handle, capacity=500) as one:
        await one.client.send(get("/"))
        await trio.testing.wait_all_tasks_blocked()
        assert put < 30
        reply = await one.client.reply()
        assert reply.body.count(b"event: x\n") == 200
        assert most < 2200


# ---- WebSockets, and the end


async def test_an_upgrade_hands_over_every_byte() -> None:
    async def handle(exchange: Exchange) -> None:
        if exchange.request.wants_websocket:
            exchange.upgrade()
        else:
            await exchange.respond(200, 1)

    handshake = get("/ws", "Connection: Upgrade", "Upgrade: WebSocket") + b"\x81\x01a"
    first = get("/")
    for edges in ([], [len(first)], [len(first) + 9], [len(first) + len(handshake) - 3], range(1, 100)):
        async with served(handle) as one:
            for piece in cut(first + handshake, edges):
                await one.client.send(piece)
                await trio.testing.wait_all_tasks_blocked()
            await one.over.wait()
            assert one.result is not None
            assert one.result.request.path == "/ws"
            not_read = bytes(one.client.stream._outward.data)
            assert one.result.raw + not_read == handshake


async def test_an_upgrade_that_fails_is_an_answer() -> None:
    async def handle(exchange: Exchange) -> None:
        exchange.upgrade()
        await trio.lowlevel.checkpoint()
        raise ProtocolError("shutting_down", "later")

    async with served(handle) as one:
        assert (await one.client.ask(get("/ws", "Connection: Upgrade", "Upgrade: websocket"))).status == 503
        assert (await one.client.ask(get("/ws", "Connection: Upgrade", "Upgrade: websocket"))).status == 503


def test_a_polite_close_waits_for_the_answer_and_takes_no_other_request() -> None:
    async def main() -> None:
        async with served(Watched(seconds=5)) as one:
            await one.client.send(get("/") * 2)
            await trio.sleep(1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.connection.aclose)
                reply = await one.client.reply()
                assert (reply.status, reply.headers["connection"]) == (200, "close")
                assert await one.client.everything() == b""
                one.client.stream.close()
        async with served(show) as one:
            await one.client.ask(get("/"))
            await one.connection.aclose()
            assert await one.client.everything() == b""

    virtually(main)


# ---- on real sockets


@asynccontextmanager
async def listening(handle: Handle) -> AsyncIterator[int]:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await HttpConnection(stream, Limits(half_close_seconds=0.05), handle, on_bug=raise_it).serve()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, serve, listeners)
        with trio.fail_after(30):  # noqa: ASYNC100 - the block has them
            yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


def raise_it(error: BaseException) -> None:
    raise error


async def test_the_standard_librarys_client() -> None:
    def talk(port: int) -> list[Any]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        seen: list[Any] = []
        for method, path, body in (
            ("GET", "/show", None),
            ("POST", "/echo", json.dumps({"x": "y" * 100_000})),
            ("GET", "/events", None),
            ("HEAD", "/show", None),
            ("GET", "/nowhere", None),
        ):
            connection.request(method, path, body)
            answer = connection.getresponse()
            seen.append((answer.status, len(answer.read())))
            assert not answer.will_close
        connection.close()
        return seen

    async with listening(ROUTES) as port:
        seen = await trio.to_thread.run_sync(talk, port)
    assert [status for status, _ in seen] == [200, 200, 200, 200, 404]
    assert seen[1][1] > 100_000
    assert seen[3][1] == 0


async def test_a_refused_upload_reads_its_answer_instead_of_a_reset() -> None:
    async with listening(ROUTES) as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        client = Client(stream)
        await client.send(get("/echo", "Content-Length: 99000000", method="POST"))
        await client.send(b"x" * 3_000_000)
        assert (await client.reply("POST")).status == 413


async def test_a_dropped_tcp_connection_cancels() -> None:
    started, cancelled = trio.Event(), trio.Event()

    async def handle(exchange: Exchange) -> None:
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async with listening(handle) as port:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(get("/"))
            await started.wait()
        await cancelled.wait()
    assert cancelled.is_set()
