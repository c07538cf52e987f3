"""A recording relay between a client and a server: it changes nothing, and notes the head and the frames of each WebSocket.

What passes is also given to wsproto's frame parser, the one that reads it on the other side; the bytes themselves go on as
they came.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import trio
from attrs import Factory, define
from wsproto.frame_protocol import FrameProtocol, Opcode

Frame = dict[str, Any]


class Tap:
    """Reads one direction of a connection: an HTTP head, then WebSocket frames."""

    def __init__(self, *, from_client: bool) -> None:
        self.head = ""
        self.frames: list[Frame] = []
        self._before_head_ends = bytearray()
        self._parser = FrameProtocol(client=not from_client, extensions=[])
        self._pieces: list[str] = []

    def feed(self, data: bytes) -> None:
        """Take note of what passes."""
        if not self.head:
            self._before_head_ends += data
            head, end, data = bytes(self._before_head_ends).partition(b"\r\n\r\n")
            if not end:
                return
            self.head = head.decode("latin-1")
        if "upgrade: websocket" not in self.head.lower():
            return
        self._parser.receive_bytes(data)
        for frame in self._parser.received_frames():
            if frame.opcode is Opcode.TEXT:
                self._pieces.append(str(frame.payload))
                if frame.message_finished:
                    self.frames.append(json.loads("".join(self._pieces)))
                    self._pieces.clear()


@define(eq=False)
class Connection:
    """What was said on one connection. Heads are as they came, frames are JSON values."""

    up: Tap = Factory(lambda: Tap(from_client=True))
    down: Tap = Factory(lambda: Tap(from_client=False))

    @property
    def is_websocket(self) -> bool:
        """Whether the server agreed to the upgrade."""
        return self.down.head.startswith("HTTP/1.1 101")


class Relay:
    """Connections in the order in which they came. ``url`` is what the client is told."""

    def __init__(self, server_url: str) -> None:
        self._server = urlsplit(server_url)
        self.url = ""
        self.connections: list[Connection] = []

    def sent(self, kind: str) -> list[Frame]:
        """The client's frames of a type, over all connections."""
        return [frame for one in self.connections for frame in one.up.frames if frame["type"] == kind]

    def received(self, kind: str) -> list[Frame]:
        """The server's frames of a type, over all connections."""
        return [frame for one in self.connections for frame in one.down.frames if frame["type"] == kind]

    async def carry(self, client: trio.SocketStream) -> None:
        """One connection, until both sides have closed it, or one has broken it."""
        connection = Connection()
        self.connections.append(connection)
        server = await trio.open_tcp_stream(self._server.hostname or "", self._server.port or 80)
        async with client, server, trio.open_nursery() as nursery:
            nursery.start_soon(_pump, client, server, connection.up, nursery.cancel_scope)
            nursery.start_soon(_pump, server, client, connection.down, nursery.cancel_scope)


async def _pump(source: trio.SocketStream, target: trio.SocketStream, tap: Tap, broken: trio.CancelScope) -> None:
    try:
        async for data in source:
            tap.feed(bytes(data))
            await target.send_all(data)
        await target.send_eof()
    except trio.BrokenResourceError:
        broken.cancel()


@asynccontextmanager
async def relay_to(server_url: str) -> AsyncIterator[Relay]:
    """A relay to the server at ``server_url`` while the context lasts; at its end all connections are cut."""
    relay = Relay(server_url)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, relay.carry, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        relay.url = f"http://127.0.0.1:{port}{urlsplit(server_url).path}"
        yield relay
        nursery.cancel_scope.cancel()
