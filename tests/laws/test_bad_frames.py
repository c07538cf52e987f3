"""Bad frames of every kind, down to the WebSocket's own: each gets its error and changes nothing, and the server goes on."""

import os
import struct
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Config
from engine.testing import MemoryServer, PipeStream, append, calls_in, create, memory_server, result, virtually
from engine.testing.profile import examples

KEY = b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"
HEAD = b"GET /v1/responses HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n" + KEY + b"\r\n"
TEXT, BINARY, CONTINUED, CLOSE, PING = 1, 2, 0, 8, 9


def ws(opcode: int, payload: bytes, *, fin: bool = True, masked: bool = True, reserved: int = 0) -> bytes:
    """A client's frame, or what a client must not send."""
    size, mask = len(payload), os.urandom(4) if masked else b""
    first = bytes([(0x80 if fin else 0) | reserved << 4 | opcode])
    bit = 0x80 if masked else 0
    if size < 126:
        length = bytes([bit | size])
    elif size < 65536:
        length = bytes([bit | 126]) + struct.pack(">H", size)
    else:
        length = bytes([bit | 127]) + struct.pack(">Q", size)
    body = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)) if masked else payload
    return first + length + mask + body


async def shake(server: MemoryServer) -> PipeStream:
    stream = server.connect_raw()
    await stream.send_all(HEAD)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += await stream.receive_some()
    assert answer.startswith(b"HTTP/1.1 101")
    return stream


async def all_of(stream: PipeStream) -> bytes:
    """All that comes until the end, in a minute."""
    heard = b""
    try:
        with trio.move_on_after(60):
            while data := await stream.receive_some():
                heard += data
            return heard + b"<end>"
    except trio.BrokenResourceError:
        return heard + b"<reset>"
    return heard


async def is_well(server: MemoryServer) -> None:
    """The server serves others, and noticed no bug of its own."""
    await server.settle()
    socket = await server.connect()
    await socket.send(create({"say": "alive"}))
    assert (await socket.until_end())[-1]["response"]["status"] == "completed"
    await socket.aclose()


BROKEN: dict[str, tuple[list[bytes], int]] = {
    "unmasked": ([ws(TEXT, b"{}", masked=False)], 1002),
    "reserved bits": ([ws(TEXT, b"{}", reserved=4)], 1002),
    "unknown opcode": ([ws(3, b"{}")], 1002),
    "continued from nothing": ([ws(CONTINUED, b"{}")], 1002),
    "text within text": ([ws(TEXT, b"{", fin=False), ws(TEXT, b"}")], 1002),
    "invalid UTF-8": ([ws(TEXT, b'{"type": "\xff"}')], 1007),
    "UTF-8 that ends early": ([ws(TEXT, "é".encode()[:1], fin=False), ws(CONTINUED, b"x")], 1007),
    "a long ping": ([ws(PING, b"x" * 126)], 1002),
    "a close code that is none": ([ws(CLOSE, struct.pack(">H", 999))], 1002),
}


"""What a close frame would say; trio-websocket sends none when it fails a connection (RFC 6455, 7.1.7: it may)."""


@pytest.mark.parametrize("name", list(BROKEN))
def test_what_breaks_the_websocket_closes_it(name: str) -> None:
    frames, code = BROKEN[name]

    async def main() -> None:
        async with memory_server() as server:
            stream = await shake(server)
            for frame in frames:
                await stream.send_all(frame)
            heard = await all_of(stream)
            assert heard.removesuffix(b"<end>") in (b"", ws(CLOSE, struct.pack(">H", code), masked=False))
            assert heard.endswith(b"<end>")
            await stream.aclose()
            await server.settle()
            assert server.server.connections == 0
            await is_well(server)

    virtually(main)


def test_fragments_are_one_frame() -> None:
    payload = b'{"type": "response.attach", "response_id": "resp_x\xc3\xa9"}'

    async def main() -> None:
        async with memory_server() as server:
            stream = await shake(server)
            pieces = [payload[at : at + 1] for at in range(len(payload))]  # also in the middle of the é
            for at, piece in enumerate(pieces):
                await stream.send_all(ws(CONTINUED if at else TEXT, piece, fin=at == len(pieces) - 1))
                await stream.send_all(ws(PING, b"p"))
            heard = await all_of(stream)
            assert heard.count(b"response_not_found") == 2, "flat and nested"
            assert "resp_xé".encode() in heard
            await is_well(server)

    virtually(main)


@examples(40)
@given(st.binary(max_size=200), st.booleans())
def test_garbage_on_the_wire(garbage: bytes, after_handshake: bool) -> None:
    async def main() -> None:
        async with memory_server(config=Config(handshake_seconds=5, ping_seconds=10, send_seconds=10)) as server:
            stream = await shake(server) if after_handshake else server.connect_raw()
            await stream.send_all(garbage)
            await stream.send_eof()
            await all_of(stream)
            await trio.sleep(30)
            assert server.server.connections == 0
            await is_well(server)

    virtually(main)


REFUSED: dict[str, tuple[bytes, bytes]] = {
    "plain GET": (b"GET /v1/responses HTTP/1.1\r\nhost: x\r\n\r\n", b" 426 "),
    "another path": (HEAD.replace(b"/v1/responses", b"/v2"), b" 404 "),
    "another method": (HEAD.replace(b"GET", b"PUT"), b" 405 "),
    "no key": (HEAD.replace(KEY, b""), b" 4"),
    "an old version": (HEAD.replace(b"version: 13", b"version: 7"), b" 4"),
    "no host": (HEAD.replace(b"host: x\r\n", b""), b" 400 "),
    "no HTTP": (b"hello\r\n\r\n", b" 400 "),
    "a long head": (b"GET /v1/responses HTTP/1.1\r\nhost: x\r\nx: " + b"x" * 200_000, b" 431 "),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_is_no_handshake_is_refused(name: str) -> None:
    head, status = REFUSED[name]

    async def main() -> None:
        async with memory_server() as server:
            stream = server.connect_raw()
            try:
                await stream.send_all(head)
                await stream.send_eof()
            except trio.BrokenResourceError:
                assert name == "a long head"
            heard = await all_of(stream)
            assert heard[:16].startswith(b"HTTP/1.1" + status), heard[:200]
            assert heard.endswith((b"<end>", b"<reset>"))
            await is_well(server)

    virtually(main)


def test_pings_that_cross_a_close() -> None:
    """A ping behind the peer's own close, and one that crosses ours: no bug, and the connection ends."""

    async def main() -> None:
        async with memory_server(config=Config(idle_seconds=5)) as server:
            stream = await shake(server)
            await stream.send_all(ws(CLOSE, struct.pack(">H", 1000)) + ws(PING, b"late") + ws(TEXT, b"{}"))
            assert (await all_of(stream)).endswith((b"<end>", b"<reset>"))
            stream = await shake(server)
            await trio.sleep(5.5)  # the server has sent its close
            await stream.send_all(ws(PING, b"crossing") + ws(CLOSE, struct.pack(">H", 1000)))
            assert (await all_of(stream)).endswith((b"<end>", b"<reset>"))
            await trio.sleep(10)
            assert server.server.connections == 0
            await is_well(server)

    virtually(main)


def test_an_append_to_what_has_ended() -> None:
    async def main() -> None:
        async with memory_server() as server:
            socket = await server.connect()
            await socket.send(create({"call": {"name": "a"}}, {"say": "done"}))
            frames = await socket.until("response.done")
            (one,), response_id = calls_in(frames), frames[0]["response"]["id"]
            await socket.send(append(result(one)))
            end = (await socket.until_end())[-1]
            await server.settle()
            for frame in (
                append(result(one), response_id=response_id),
                append(result(one)),
                {"type": "response.cancel", "response_id": response_id},
                {"type": "response.finish"},
            ):
                await socket.send(frame)
                assert (await socket.receive())["code"] == "response_not_active"
            await socket.send({"type": "response.attach", "response_id": response_id})
            await socket.receive()
            assert (await socket.until_end())[-1] == end
            assert len(server.rows(response_id)) == 1

    virtually(main)


def test_a_frame_without_an_id_needs_one_live_response() -> None:
    async def main() -> None:
        async with memory_server() as server:
            socket = await server.connect()
            ids: list[Any] = []
            for lane in ("a", "b"):
                await socket.send(create({"call": {"name": "x"}}, {"say": "done"}, stream_id=lane))
                ids.append((await socket.until("response.done"))[0]["response"]["id"])
            await socket.send({"type": "response.cancel"})
            assert (await socket.receive())["code"] == "response_not_active", "the default lane has none"
            await socket.send({"type": "response.attach", "response_id": ids[0], "stream_id": "b"})
            await socket.until("response.done")
            await socket.send({"type": "response.cancel", "stream_id": "b"})
            error = await socket.receive()
            assert error["code"] == "response_ambiguous"
            assert all(one in error["message"] for one in ids)
            await socket.send({"type": "response.cancel", "stream_id": "b", "response_id": ids[1]})
            assert (await socket.until_end())[-1]["response"]["id"] == ids[1]

    virtually(main)
