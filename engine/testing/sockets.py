"""A server anywhere, over TCP: the same socket as in memory, and no knowledge of when it is quiet but by listening."""

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import trio

from .clients import ClientSocket, headers_for, open_websocket

QUIET_SECONDS: Final = 0.05
"""A server on the same machine that says nothing for so long has nothing to say."""

RESET: Final = struct.pack("ii", 1, 0)
"""``SO_LINGER``: on, for no time: a close is a reset."""


class SocketTransport:
    """A server at ``url``, ``http://127.0.0.1:8080`` for example."""

    exact = False

    def __init__(self, url: str, nursery: trio.Nursery, quiet_seconds: float = QUIET_SECONDS) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or 80
        self._nursery = nursery
        self._quiet_seconds = quiet_seconds

    async def connect(self, *, key: str | None = None, beta: str | None = None) -> ClientSocket:
        """A WebSocket; raises ``ConnectionRejected`` and ``OSError``."""
        stream = await trio.open_tcp_stream(self._host, self._port)

        def reset() -> None:
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            stream.socket.close()

        return await open_websocket(self._nursery, stream, self._host, headers_for(key, beta), reset)

    async def settle(self) -> None:
        """Wait a moment. Nobody can know more of a server that is elsewhere."""
        await trio.sleep(self._quiet_seconds)


@asynccontextmanager
async def socket_transport(url: str) -> AsyncIterator[SocketTransport]:
    """A ``SocketTransport`` with the tasks that its sockets need."""
    async with trio.open_nursery() as nursery:
        yield SocketTransport(url, nursery)
        nursery.cancel_scope.cancel()
