"""One WebSocket: messages in, frames out, pings, and a close that always closes.

wsproto knows RFC 6455 and does no I/O: it takes the peer's bytes, the handshake's first, and gives events. A message that comes
alone and whole, as nearly all do, goes past it. What is sent goes through ``framing``. One task reads and hands each message on
by a plain call, another one writes: an idle socket has these two tasks and nothing else, and a message is taken in the tick in
which its bytes were read.
"""

from collections.abc import Callable
from typing import Any, Protocol

import trio
from wsproto import ConnectionType
from wsproto.connection import Connection, ConnectionState
from wsproto.events import AcceptConnection, CloseConnection, Message, Ping, RejectConnection
from wsproto.handshake import H11Handshake
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from protocol.limits import HARD_FRAME_BYTES

from ..config import Config
from ..outbox import Outbox
from .framing import FrameStream, lone_text, missing_at_end

RECEIVE_BYTES = 65536
"""Read at once: 4 KiB would cost a system call for every 4 KiB of a large tool output."""


HEAD_END = b"\r\n\r\n"


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
        "_missing",
        "_outbox",
        "_over",
        "_parts",
        "_peer",
        "_scope",
        "_size",
    )

    def __init__(
        self,
        connection: Connection,
        frames: FrameStream,
        outbox: Outbox,
        peer: Peer,
        scope: trio.CancelScope,
        config: Config,
        *,
        missing: int | None = 0,
    ) -> None:
        self._connection = connection
        self._frames = frames
        self._outbox = outbox
        self._peer = peer
        self._scope = scope
        self._config = config
        self._expires = trio.current_time() + config.connection_seconds
        self._over = trio.Event()
        self._parts: list[Any] = []
        """Of a message that is not whole yet."""
        self._size = 0
        self._missing = missing
        """Bytes of the frame of which wsproto has a part; None, if nobody knows."""

    async def read(self) -> None:
        """Hand on what the peer says, until it ends the connection, or has to be sent away. The caller closes it."""
        try:
            more = await self._take_all()
            while more and (data := await self._next()):
                text = lone_text(data) if self._missing == 0 and not self._parts else None
                if text is not None:
                    self._peer.handle(text)
                    more = not self._outbox.overrun
                else:
                    self._missing = None if self._missing is None else missing_at_end(data, self._missing)
                    self._connection.receive_data(data)
                    more = await self._take_all()
        finally:
            self._over.set()

    async def aclose(self, code: int, reason: str) -> None:
        """Close politely, within ``close_seconds``."""
        self._frames.close(code, reason)
        with trio.move_on_after(self._config.close_seconds):
            await self._over.wait()

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

    async def _next(self) -> bytes:
        """The next bytes of the peer. What its messages were answered with is sent before."""
        self._frames.flush()
        return bytes(await self._frames.receive_some(RECEIVE_BYTES))

    async def _take_all(self) -> bool:
        """Take what the peer has said so far; whether it may say more."""
        taken = 0
        for event in self._connection.events():
            if isinstance(event, Message):
                if taken:
                    await trio.lowlevel.checkpoint()  # others get their turn, however much came at once
                taken += 1
                if not self._take(event):
                    return False
            elif isinstance(event, Ping):
                self._frames.put_control(self._connection.send(event.response()))
            elif isinstance(event, CloseConnection):
                self._answer_close(event)
                return False
        return True

    def _take(self, event: Message[Any]) -> bool:
        """Take a message, or a part of one; false if it is too long, or if the peer asks and asks and reads no answers."""
        self._size += len(event.data)
        if self._size > HARD_FRAME_BYTES:
            self._frames.close(1009, f"a message has at most {HARD_FRAME_BYTES} bytes")
            return False
        if event.message_finished and not self._parts:
            self._size = 0
            self._peer.handle(event.data)
            return not self._outbox.overrun
        self._parts.append(event.data)
        if event.message_finished:
            whole = event.data[:0].join(self._parts)
            self._parts, self._size = [], 0
            self._peer.handle(whole)
        return not self._outbox.overrun

    def _answer_close(self, event: CloseConnection) -> None:
        """The peer closes; or has broken the rules, and is told which: RFC 6455, section 7.1.7."""
        if self._connection.state is ConnectionState.REMOTE_CLOSING:
            self._frames.put_control(self._connection.send(event.response()))
        else:
            self._frames.close(event.code)


async def serve_websocket(
    raw: trio.abc.Stream,
    head: bytes,
    config: Config,
    make_peer: Callable[[Outbox], Peer],
    sockets: set[Socket],
) -> None:
    """Do the handshake whose request is ``head``, and serve the connection until it ends.

    The socket stands in ``sockets`` while it is open. Whatever ends it, the peer is told and the raw stream is closed.
    Raises exception groups of the stream's own errors; the caller is the connection's boundary.
    """
    frames = FrameStream(raw, send_seconds=config.send_seconds, close_seconds=config.close_seconds)
    outbox = Outbox(frames, config.outbox_bytes)
    frames.on_drained(outbox.drained)
    try:
        connection, answer = shake_hands(head)
        frames.put_control(answer)
        if connection is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(frames.write)
            peer = make_peer(outbox)
            missing = missing_at_end(head.partition(HEAD_END)[2])
            socket = Socket(connection, frames, outbox, peer, nursery.cancel_scope, config, missing=missing)
            sockets.add(socket)
            try:
                await socket.read()
            finally:
                sockets.discard(socket)
                outbox.close()
                peer.close()
            await frames.aclose()
            nursery.cancel_scope.cancel()
    finally:
        await frames.aclose()


def shake_hands(data: bytes) -> tuple[Connection | None, bytes]:
    """The connection that the request which ``data`` begins with asks for, and the answer; None, if it is refused.

    What follows the request was sent by a client that did not wait for the answer; it is not lost.
    """
    head, border, rest = data.partition(HEAD_END)
    handshake = H11Handshake(ConnectionType.SERVER)
    try:
        handshake.receive_data(head + border)
        answer = handshake.send(AcceptConnection())
    except RemoteProtocolError as error:
        return None, handshake.send(error.event_hint or RejectConnection())
    except (LocalProtocolError, UnicodeError):  # a host or a target that is none
        return None, handshake.send(RejectConnection())
    connection = handshake.connection
    assert connection is not None
    connection.receive_data(rest)
    return connection, answer
