"""The plain sides: ``python -m bench.plain SIDE OPTIONS``. They load nothing of the engine.

``loop`` is a trio-websocket server that answers each create with given frames, by ``send_message``, one by one; ``echo`` is a
bare echo. ``http`` is an HTTP server of h11 on trio that reads a request and answers with a given body. ``pace`` sends ready
frames to raw sockets, each when its token is due, with a timer for each.
"""

import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import h11
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, serve_websocket

from .child import answer

Talk = Callable[[WebSocketConnection], Awaitable[None]]


def loop(options: dict[str, Any]) -> Talk:
    """Talks as the loop does."""
    payloads = [line.decode() for line in Path(options["frames"]).read_bytes().splitlines()]

    async def talk(connection: WebSocketConnection) -> None:
        while True:
            message = json.loads(await connection.get_message())
            if message["type"] == "response.create":
                for payload in payloads:
                    await connection.send_message(payload)

    return talk


def echo(_: dict[str, Any]) -> Talk:
    """Talks as the echo does."""

    async def talk(connection: WebSocketConnection) -> None:
        while True:
            await connection.send_message(await connection.get_message())

    return talk


async def websockets(talk: Talk) -> None:
    """Serve until standard input ends."""

    async def handle(request: WebSocketRequest) -> None:
        connection = await request.accept()
        with suppress(ConnectionClosed):
            await talk(connection)

    async with trio.open_nursery() as nursery:
        server = await nursery.start(serve_websocket, handle, "127.0.0.1", 0, None)
        await answer(server.port)
        nursery.cancel_scope.cancel()


async def http(options: dict[str, Any]) -> None:
    """Serve until standard input ends."""
    body = b" " * options["size"]

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, partial(_exchanges, body), 0)
        await answer(listeners[0].socket.getsockname()[1])
        nursery.cancel_scope.cancel()


async def _exchanges(body: bytes, stream: trio.SocketStream) -> None:
    """One connection: requests and answers until the client's end."""
    parser = h11.Connection(h11.SERVER)
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
    while await _request(parser, stream):
        events = (h11.Response(status_code=200, headers=headers), h11.Data(data=body), h11.EndOfMessage())
        await stream.send_all(b"".join(parser.send(event) or b"" for event in events))
        parser.start_next_cycle()


async def _request(parser: h11.Connection, stream: trio.SocketStream) -> bool:
    """Read a request to its end; whether there was one."""
    while not isinstance(event := parser.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
        if event is h11.NEED_DATA:
            parser.receive_data(await stream.receive_some(65536))
    return isinstance(event, h11.EndOfMessage)


async def pace(_: dict[str, Any]) -> None:
    """Serve until standard input ends."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, _paced, 0)
        await answer(listeners[0].socket.getsockname()[1])
        nursery.cancel_scope.cancel()


SWITCHING: Final = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"


async def _paced(stream: trio.SocketStream) -> None:
    """One connection: a create that says how fast and how much, and the answer to it; until the client's end."""
    await stream.receive_some(65536)  # the handshake, in one piece over loopback
    await stream.send_all(SWITCHING)
    with suppress(trio.BrokenResourceError):
        while head := await stream.receive_some(65536):
            rate, count, frame, last = _asked(head)
            began, clock = trio.current_time(), time.perf_counter()
            await trio.sleep_until(began + 1 / rate)
            await stream.send_all(text_frame(b'{"type":"response.output_text.delta","delta":"%.6f"}' % clock))
            for number in range(2, count + 1):
                await trio.sleep_until(began + number / rate)
                await stream.send_all(frame)
            await stream.send_all(last)


def _asked(data: bytes) -> tuple[float, int, bytes, bytes]:
    """The rate, how many tokens, the frame of each, and the last frame."""
    size = data[1] & 0x7F
    start = {126: 4, 127: 10}.get(size, 2)
    mask, masked = data[start : start + 4], data[start + 4 :]
    request = json.loads(bytes(byte ^ mask[index % 4] for index, byte in enumerate(masked)))
    delta = b'{"type":"response.output_text.delta","pad":"%b","delta":" word"}' % (b"x" * (request["bytes"] - 62))
    return request["rate"], request["count"], text_frame(delta), text_frame(b'{"type":"response.completed"}')


def text_frame(payload: bytes) -> bytes:
    """An unmasked text frame of less than 64 KiB."""
    size = len(payload)
    return (bytes((0x81, size)) if size < 126 else bytes((0x81, 126)) + size.to_bytes(2, "big")) + payload


async def main(side: str, options: dict[str, Any]) -> None:
    """Serve one side."""
    if side in ("http", "pace"):
        await {"http": http, "pace": pace}[side](options)
    else:
        await websockets({"loop": loop, "echo": echo}[side](options))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], json.loads(sys.argv[2]))
