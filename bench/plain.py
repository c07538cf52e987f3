"""The plain sides: ``python -m bench.plain SIDE OPTIONS``. They load nothing of the engine.

``loop`` is a trio-websocket server that answers each create with given frames, by ``send_message``, one by one; ``echo`` is a
bare echo.
"""

import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

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


async def main(talk: Talk) -> None:
    """Serve until standard input ends."""

    async def handle(request: WebSocketRequest) -> None:
        connection = await request.accept()
        with suppress(ConnectionClosed):
            await talk(connection)

    async with trio.open_nursery() as nursery:
        server = await nursery.start(serve_websocket, handle, "127.0.0.1", 0, None)
        await answer(server.port)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, {"loop": loop, "echo": echo}[sys.argv[1]](json.loads(sys.argv[2])))
