"""One WebSocket: messages in, frames out, pings, and a close that always closes. The only user of trio-websocket here.

trio-websocket does the handshake, the reading, pongs and the close; what is sent goes through ``framing``.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream
from wsproto.utilities import LocalProtocolError

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

    @property
    def asked_at(self) -> float:
        """When the last message came, by the loop's clock."""
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
    """A WebSocket that was accepted. ``beat`` is called now and then, by one task for all sockets."""

    __slots__ = (
        "_config",
        "_connection",
        "_expires",
        "_frames",
        "_peer",
        "_scope",
    )

    def __init__(
        self, connection: WebSocketConnection, frames: FrameStream, peer: Peer, scope: trio.CancelScope, config: Config
    ) -> None:
        self._connection = connection
        self._frames = frames
        self._peer = peer
        self._scope = scope
        self._config = config
        self._expires = trio.current_time() + config.connection_seconds

    async def aclose(self, code: int, reason: str) -> None:
        """Close politely, within ``close_seconds``."""
        with trio.move_on_after(self._config.close_seconds):
            await self._connection.aclose(code, reason)

    def beat(self, now: float) -> None:
        """Ping; and close the socket if its peer does not answer, if it is too old, or if it has been idle for too long."""
        config, frames = self._config, self._frames
        if now - frames.received_at > config.ping_seconds + config.send_seconds:
            self._scope.cancel()  # nothing came, not even a pong: the peer is gone
        elif now >= self._expires and self._peer.expire():
            frames.close(1001)
        elif not self._peer.busy and now - self._peer.asked_at > config.idle_seconds:
            frames.close(1000)
        else:
            frames.ping()


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
            socket = Socket(connection, frames, peer, nursery.cancel_scope, config)
            sockets.add(socket)
            try:
                await _read(connection, peer, outbox)
            finally:
                sockets.discard(socket)
                outbox.close()
                peer.close()
            await frames.aclose()
            nursery.cancel_scope.cancel()
    except* LocalProtocolError:
        pass  # the library's: a ping of the peer that crossed our close (its issue 184); all is closed by now
    finally:
        await frames.aclose()


async def _accept(nursery: trio.Nursery, frames: FrameStream) -> WebSocketConnection:
    request = await wrap_server_stream(nursery, frames, max_message_size=HARD_FRAME_BYTES, receive_buffer_size=RECEIVE_BYTES)
    return await request.accept()


async def _read(connection: WebSocketConnection, peer: Peer, outbox: Outbox) -> None:
    with suppress(ConnectionClosed):
        while not outbox.overrun:
            peer.handle(await connection.get_message())


def _farewell(connection: WebSocketConnection) -> bytes:
    """The close frame that the library owes a peer who broke the rules: RFC 6455, section 7.1.7."""
    reason = connection.closed
    return close_frame(reason.code) if reason is not None and reason.code in (1002, 1007) else b""
