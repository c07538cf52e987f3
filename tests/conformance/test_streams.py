"""What the kit speaks with: WebSockets, HTTP and server-sent events, in memory and over TCP, with good servers and with bad."""

import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Config
from engine.server import Server, listening
from engine.testing import create, make_services, memory_server, pipe_pair, virtually
from engine.testing.profile import examples
from protocol.conformance.sockets import Address, TooManyConnections, socket_transport
from protocol.conformance.streams import ClientSocket, EventStream, Line, StreamTransport
from protocol.conformance.transport import Closed, Refused, ServerSentEvent

BODY = json.dumps({"model": "scripted", "input": "hello"}).encode()
STREAM = json.dumps({"model": "scripted", "input": "hello", "stream": True}).encode()


# ---- our server


async def speak(transport: StreamTransport) -> None:
    socket = await transport.connect()
    await socket.send(create({"say": "hi"}))
    assert (await socket.until_end())[-1]["type"] == "response.completed"
    await socket.ping()
    await socket.aclose()
    answer = await transport.request("POST", "/responses", BODY)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert json.loads(await answer.read())["status"] == "completed"
    answer = await transport.request("POST", "/responses", STREAM)
    events = []
    while (event := await answer.next_event()) is not None:
        events.append(event)
    assert [events[0].event, events[-2].event, events[-1].data] == ["response.created", "response.completed", "[DONE]"]
    answer = await transport.request("GET", "/responses/resp_none")
    assert answer.status == 404
    await answer.drop()


def test_in_memory() -> None:
    async def main() -> None:
        async with memory_server() as server:
            await speak(server)

    virtually(main)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/responses"])
async def test_over_tcp(path: str) -> None:
    with trio.fail_after(30):
        async with listening(Server(make_services())) as port, socket_transport(f"ws://127.0.0.1:{port}{path}") as transport:
            await speak(transport)


def test_a_refused_handshake_has_its_status_and_body() -> None:
    async def main() -> None:
        async with memory_server(config=Config(keys=("k",))) as server:
            with pytest.raises(Refused) as refused:
                await server.connect(key="wrong")
            assert refused.value.status == 401
            assert json.loads(refused.value.body)["error"]["code"] == "invalid_api_key"

    virtually(main)


async def test_the_key_of_the_transport_is_for_all_that_say_none() -> None:
    server = Server(make_services(config=Config(keys=("k",))))
    with trio.fail_after(30):
        async with listening(server) as port, socket_transport(f"http://127.0.0.1:{port}", key="k") as transport:
            await speak(transport)
            assert (await transport.request("POST", "/responses", BODY, key="other")).status == 401


async def test_there_are_no_more_connections_than_may_be() -> None:
    few = {"connections": 2, "crowd_seconds": 0.1}
    with trio.fail_after(30):
        async with listening(Server(make_services())) as port, socket_transport(f"http://127.0.0.1:{port}", **few) as transport:
            first = await transport.connect()
            await transport.request("POST", "/responses", STREAM)
            with pytest.raises(TooManyConnections):
                await transport.connect()
            await first.drop()
            await transport.connect()


async def test_it_is_quiet_when_nothing_was_heard_for_a_while() -> None:
    heard: list[str] = []

    async def listen(socket: ClientSocket) -> None:
        while True:
            heard.append((await socket.receive())["type"])

    async with listening(Server(make_services())) as port, socket_transport(f"http://127.0.0.1:{port}") as transport:
        socket = await transport.connect()
        await socket.send(create({"say": {"tokens": 40}}, tokens_per_second=200))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen, socket)
            with trio.fail_after(30):
                await transport.settle()
            nursery.cancel_scope.cancel()
        assert heard[-1] == "response.completed"


# ---- other servers

Serve = Callable[[trio.abc.Stream], Awaitable[None]]


def against(serve: Serve, client: Callable[[StreamTransport], Awaitable[None]]) -> None:
    """Run ``client`` with a server that does ``serve`` on each connection."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def dial() -> Line:
                ours, theirs = pipe_pair()
                nursery.start_soon(serve, theirs)
                await trio.lowlevel.checkpoint()
                return Line(ours, ours.reset)

            with trio.fail_after(1000):
                await client(StreamTransport(dial, nursery))
            nursery.cancel_scope.cancel()

    virtually(main)


def says(text: bytes, *, then_waits: bool = False) -> Serve:
    async def serve(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        await stream.send_all(text)
        if then_waits:
            await trio.sleep_forever()
        await stream.aclose()

    return serve


@pytest.mark.parametrize(
    ("serve", "error"),
    [
        (says(b""), OSError),
        (says(b"", then_waits=True), TimeoutError),
        (says(b"no such thing as HTTP\r\n\r\n"), OSError),
        (says(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"), Refused),
        (says(b"HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n", then_waits=True), Refused),
    ],
)
def test_a_handshake_that_comes_to_nothing_ends(serve: Serve, error: type[Exception]) -> None:
    async def client(transport: StreamTransport) -> None:
        with pytest.raises(error):
            await transport.connect()

    against(serve, client)


@pytest.mark.parametrize(
    "text", [b"", b"gibberish\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", b"HTTP/1.1 200 OK\r\nx"]
)
def test_an_answer_that_is_cut_off_is_told_as_such(text: bytes) -> None:
    async def client(transport: StreamTransport) -> None:
        with pytest.raises(Closed):
            await (await transport.request("GET", "/models")).read()

    against(says(text), client)


def test_an_answer_that_comes_before_all_was_sent_is_read() -> None:
    async def client(transport: StreamTransport) -> None:
        answer = await transport.request("POST", "/responses", b"x" * 1_000_000)
        assert (answer.status, await answer.read()) == (413, b"{}")

    against(says(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}", then_waits=True), client)


# ---- server-sent events

LINES = ["data: a", "data:b", "data", "event: x", ": a comment", "id: 7", "retry: 5", "unknown: x", "data: é🎹", ""]


def read_whole(text: str) -> list[ServerSentEvent]:
    """What the standard says, of a whole text at once."""
    events, data, event = [], [], None
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]:
        name, _, value = line.partition(":")
        if not line:
            events += [ServerSentEvent("\n".join(data), event)] if data else []
            data, event = [], None
        data += [value.removeprefix(" ")] if name == "data" else []
        event = value.removeprefix(" ") if name == "event" else event
    return events


@examples(200)
@given(st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(["\n", "\r", "\r\n"]))), st.lists(st.integers(0, 200)))
def test_events_are_the_same_however_they_are_cut(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    text = "".join(line + end for line, end in lines)
    data = text.encode()
    stream, events = EventStream(), []
    for begin, end in pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
        stream.feed(data[begin:end])
        while (event := stream.next()) is not None:
            events.append(event)
    stream.feed(b"x")  # a carriage return at the very end could be half a line's end
    while (event := stream.next()) is not None:
        events.append(event)
    assert events == read_whole(text)


# ---- addresses


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "secure", "authority"),
    [
        ("http://localhost:8080", "localhost", 8080, "/v1", False, "localhost:8080"),
        ("https://api.example.com/v1/", "api.example.com", 443, "/v1", True, "api.example.com"),
        ("wss://example.com:8443/v1/responses", "example.com", 8443, "/v1", True, "example.com:8443"),
        ("ws://[::1]:9/openai", "::1", 9, "/openai/v1", False, "[::1]:9"),
        ("http://example.com:80/deep/v1", "example.com", 80, "/deep/v1", False, "example.com"),
    ],
)
def test_an_address_is_read_from_its_url(url: str, host: str, port: int, path: str, secure: bool, authority: str) -> None:
    address = Address.of(url)
    assert address == Address(host=host, port=port, path=path, secure=secure)
    assert address.authority == authority


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://x", "http://", "/v1"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not a URL"):
        Address.of(url)


# ---- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1, signed by itself."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here to make a certificate")
    path = tmp_path_factory.mktemp("tls") / "pair.pem"
    request = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", str(path.with_suffix(".crt"))]
    subprocess.run([*request, *files], check=True, capture_output=True, timeout=60)
    path.write_text(path.read_text() + path.with_suffix(".crt").read_text())
    return path


@asynccontextmanager
async def secured(certificate: Path) -> AsyncIterator[int]:
    """Our server behind TLS; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = Server(make_services())
    listeners = await trio.open_ssl_over_tcp_listeners(0, context, host="127.0.0.1", https_compatible=True)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, ())
        await nursery.start(trio.serve_listeners, server.serve, listeners)
        yield listeners[0].transport_listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def test_over_tls(certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=certificate.with_suffix(".crt"))
    with trio.fail_after(30):
        async with secured(certificate) as port, socket_transport(f"https://127.0.0.1:{port}", tls=trusting) as transport:
            await speak(transport)


async def test_a_certificate_that_is_not_trusted_is_refused(certificate: Path) -> None:
    with trio.fail_after(30):
        async with secured(certificate) as port, socket_transport(f"wss://127.0.0.1:{port}") as transport:
            with pytest.raises(ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
                await transport.connect()
            with pytest.raises(ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
                await transport.request("GET", "/models")
