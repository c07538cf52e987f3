"""The client's end of a WebSocket: a task that opens it, holds it, and closes it whatever happens.

trio-websocket does the handshake, pings and the close handshake, in a reader task of its own. That task, and the raw
stream, belong to ``Socket.hold`` here, which a user starts in a nursery that outlives the socket's use. So a socket
ends in one place: politely when there is time, by force when it is cancelled, when a frame could not be sent whole,
or when the peer is silent.
"""

import ssl
from typing import Any, Final
from urllib.parse import urlsplit

import trio
from attrs import frozen
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection, wrap_client_stream

from ..logs import note

BETA: Final = b"responses_websockets=2026-02-04"
"""The ``OpenAI-Beta`` of the append shape."""
MAX_MESSAGE_CHARS: Final = 64 * 1024 * 1024
"""A terminal event holds the whole output, which may be long; ten times what clients have been seen to manage is
enough."""
RECEIVE_BYTES: Final = 64 * 1024
"""Read at once from a socket: large frames come in few reads."""
CONNECT_SECONDS: Final = 10.0
"""For TCP, TLS and the upgrade, each."""
SEND_SECONDS: Final = 30.0
"""For one frame. A socket that has not taken it by then is given up: half a frame may be on it."""
CLOSE_SECONDS: Final = 2.0
"""For a polite close; then by force."""
SILENCE_SECONDS: Final = 30.0
"""After that long without a frame the server is asked with a ping whether it is still there."""
PONG_SECONDS: Final = 20.0


@frozen(kw_only=True)
class Door:
    """Where the server is, and what is said when it is entered."""

    url: str
    host: str
    port: int
    path: str
    tls: ssl.SSLContext | None
    headers: list[tuple[bytes, bytes]]

    @classmethod
    def at(cls, url: str, api_key: str | None, tls: ssl.SSLContext | None, beta: bytes = BETA) -> "Door":
        parts = urlsplit(url)
        secure = parts.scheme in ("https", "wss")
        if not parts.hostname or (not secure and parts.scheme not in ("http", "ws")):
            raise ValueError(f"not a URL with http, https, ws or wss and a host: {url!r}")
        path = parts.path.rstrip("/")
        path = path if path.endswith("/responses") else f"{path}/responses"
        headers = [(b"openai-beta", beta)]
        if api_key is not None:
            headers.append((b"authorization", b"Bearer " + api_key.encode()))
        return cls(
            url=url,
            host=parts.hostname,
            port=parts.port or (443 if secure else 80),
            path=f"{path}?{parts.query}" if parts.query else path,
            tls=(tls or ssl.create_default_context()) if secure else None,
            headers=headers,
        )

    async def dial(self) -> trio.abc.Stream:
        """TCP, and TLS. Raises ``OSError``, ``trio.BrokenResourceError``, ``trio.TooSlowError``; cancelled, it leaves
        nothing."""
        with trio.fail_after(CONNECT_SECONDS):
            stream = await trio.open_tcp_stream(self.host, self.port)
            if self.tls is None:
                return stream
            secured = trio.SSLStream(stream, self.tls, server_hostname=self.host, https_compatible=True)
            try:
                await secured.do_handshake()
            except BaseException:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS):
                    await trio.aclose_forcefully(secured)
                raise
            return secured

    async def enter(self, stream: Any, nursery: trio.Nursery) -> WebSocketConnection:
        """The upgrade. Its reader runs in ``nursery``, and raises ``ConnectionRejected`` there.

        Raises ``trio.TooSlowError``; cancelled, it leaves ``stream`` to be closed.
        """
        with trio.fail_after(CONNECT_SECONDS):
            return await wrap_client_stream(
                nursery,
                stream,
                f"{self.host}:{self.port}",
                self.path,
                extra_headers=self.headers,
                max_message_size=MAX_MESSAGE_CHARS,
                receive_buffer_size=RECEIVE_BYTES,
            )


class NotOpened(Exception):
    """A WebSocket was not to be had. ``status`` is what the upgrade was answered with, None if it was not answered."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def _refusal_in(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Why the upgrade failed, out of its nursery's group; the group itself when it is something else."""
    known = group.subgroup((ConnectionRejected, trio.TooSlowError))
    return group if known is None else known.exceptions[0]


class Socket:
    """A WebSocket that a task of its own holds (``hold``): whoever has it may send, receive and close."""

    def __init__(self, websocket: WebSocketConnection, scope: trio.CancelScope) -> None:
        self._websocket = websocket
        self._scope = scope
        self._closing = trio.Event()

    @classmethod
    async def hold(cls, door: Door, *, task_status: trio.TaskStatus["Socket"] = trio.TASK_STATUS_IGNORED) -> None:
        """Connect, report the socket, and keep it until it is closed. Cancelled, it is closed by force.

        Before it reports: raises as ``Door.dial`` does, and ``ConnectionRejected`` when the upgrade was refused.
        """
        stream = await door.dial()
        socket: Socket | None = None
        try:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    socket = cls(await door.enter(stream, nursery), scope)
                    task_status.started(socket)
                    await socket._closing.wait()
                    with trio.move_on_after(CLOSE_SECONDS):
                        await socket._websocket.aclose()
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if socket is None:
                raise _refusal_in(group) from None
            broken, rest = group.split(Exception)  # what a peer can make trio-websocket raise ends this socket only
            if rest is not None:
                raise rest from None
            note("socket.broken", host=door.host, error=repr(broken))
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS):
                await trio.aclose_forcefully(stream)

    @property
    def gone(self) -> str | None:
        """Why it is closed, or None while it is not known to be."""
        reason = self._websocket.closed
        return None if reason is None else f"closed with {reason.code} {reason.reason or reason.name}"

    def close(self) -> None:
        """Let its task close it, politely."""
        self._closing.set()

    def abort(self) -> None:
        """Let its task close it by force."""
        self._scope.cancel()

    async def send(self, text: str) -> bool:
        """Send a frame, whole or never: a cancellation waits. False when the socket is gone."""
        with trio.move_on_after(SEND_SECONDS, shield=True):
            try:
                await self._websocket.send_message(text)
            except ConnectionClosed:
                return False
            return True
        self.abort()
        return False

    async def receive(self) -> str | bytes | None:
        """The next frame; None when the socket is gone. Cancelled, it has lost nothing."""
        try:
            while True:
                with trio.move_on_after(SILENCE_SECONDS):
                    return await self._websocket.get_message()
                with trio.move_on_after(PONG_SECONDS) as patience:
                    await self._websocket.ping()
                if patience.cancelled_caught:
                    self.abort()
                    return None
        except ConnectionClosed:
            return None


async def open_socket(nursery: trio.Nursery, door: Door) -> Socket:
    """A socket that a task in ``nursery`` holds, whatever its peer does. Raises ``NotOpened``; cancelled, it leaves nothing."""
    try:
        socket: Socket = await nursery.start(Socket.hold, door)
    except ConnectionRejected as rejected:
        raise NotOpened(f"the upgrade was refused with {rejected.status_code}", rejected.status_code) from None
    except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
        raise NotOpened(f"{type(error).__name__}: {error.__cause__ or error}") from error
    except Exception as error:  # trio-websocket has no end of exceptions for a peer that speaks something else
        raise NotOpened(f"no WebSocket: {error!r}") from error
    return socket
