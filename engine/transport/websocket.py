"""One WebSocket: messages in, frames out, pings, and a close that always closes. The only user of trio-websocket here.

trio-websocket does the handshake, the reading, pongs and the close; what is sent goes through ``framing``.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream

from protocol.limits import HARD_FRAME_BYTES

from ..config import Config
from ..outbox import Outbox
from .framing import FrameStream, close_frame

RECEIVE_BYTES = 65536
"""The library's default of 4 KiB costs a system call for every 4 KiB of a large tool output."""


class Peer(Protocol):
    """Who answers what comes in."""

    @property
    def busy(self) -> bool:
        """Whether the peer waits for something, so that silence is no reason to close."""
        ...

    def handle(self, message: str | bytes) -> None:
        """Take one message; never raises."""
        ...

    def expire(self) -> bool:
        """The socket has reached its age limit: say so, and return True; or False, if it may grow older."""
        ...

    def close(self) -> None:
        """The socket is gone."""
        ...


class Socket:
    """A WebSocket that was accepted."""

    def __init__(self, connection: WebSocketConnection, close_seconds: float) -> None:
        self._connection = connection
        self._close_seconds = close_seconds

    async def aclose(self, code: int, reason: str) -> None:
        """Close politely, within ``close_seconds``."""
        with trio.move_on_after(self._close_seconds):
            await self._connection.aclose(code, reason)


async def serve_websocket(
    raw: trio.abc.Stream,
    head: bytes,
    config: Config,
    make_peer: Callable[[Outbox], Peer],
    sockets: set[Socket],
) -> None:
    """Do the handshake whose request is ``head``, and serve the connection until it ends.

    The socket stands in ``sockets`` while it is open. Whatever ends it, the peer is told and the raw stream is closed.
    Raises exception groups of the library's own errors; the caller is the connection's boundary.
    """
    frames = FrameStream(raw, head, send_seconds=config.send_seconds, close_seconds=config.close_seconds)
    outbox = Outbox(frames, config.outbox_bytes)
    frames.on_drained(outbox.drained)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(frames.write)
            with trio.fail_after(config.handshake_seconds):
                connection = await _accept(nursery, frames)
            frames.on_close(lambda: _farewell(connection))
            peer = make_peer(outbox)
            socket = Socket(connection, config.close_seconds)
            sockets.add(socket)
            try:
                nursery.start_soon(_keep_alive, connection, peer, nursery.cancel_scope, config)
                await _read(connection, peer, config.idle_seconds)
            finally:
                sockets.discard(socket)
                outbox.close()
                peer.close()
            await frames.aclose()
            nursery.cancel_scope.cancel()
    finally:
        await frames.aclose()


async def _accept(nursery: trio.Nursery, frames: FrameStream) -> WebSocketConnection:
    request = await wrap_server_stream(nursery, frames, max_message_size=HARD_FRAME_BYTES, receive_buffer_size=RECEIVE_BYTES)
    return await request.accept()


async def _read(connection: WebSocketConnection, peer: Peer, idle_seconds: float) -> None:
    with suppress(ConnectionClosed):
        while True:
            with trio.move_on_after(idle_seconds) as idle:
                message = await connection.get_message()
            if not idle.cancelled_caught:
                peer.handle(message)
            elif not peer.busy:
                await connection.aclose(1000, "idle")
                return


def _farewell(connection: WebSocketConnection) -> bytes:
    """The close frame that the library owes a peer who broke the rules: RFC 6455, section 7.1.7."""
    reason = connection.closed
    return close_frame(reason.code) if reason is not None and reason.code in (1002, 1007) else b""


async def _keep_alive(connection: WebSocketConnection, peer: Peer, scope: trio.CancelScope, config: Config) -> None:
    """Ping now and then. A peer that does not answer is gone; a socket that is too old is closed."""
    expires = trio.current_time() + config.connection_seconds
    with suppress(ConnectionClosed):
        while True:
            await trio.sleep(min(config.ping_seconds, max(1.0, expires - trio.current_time())))
            if trio.current_time() >= expires and peer.expire():
                await connection.aclose(1001, "too old")
                return
            with trio.move_on_after(config.send_seconds) as patience:
                await connection.ping()
            if patience.cancelled_caught:
                scope.cancel()
                return
