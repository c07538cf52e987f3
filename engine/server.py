"""One port: accept, tell a WebSocket from plain HTTP, a boundary around each connection, and the graceful end.

    accept loop ── nursery ── connection ── boundary: read head, check key, upgrade ── session
    engine ─────── nursery ── Responses (they outlive the connections)

Nothing that a peer sends may end its own boundary with more than its own connection, let alone the server. A bug of ours is
told to ``services.on_bug`` and costs that connection.
"""

import errno
import hmac
from collections.abc import Sequence
from typing import Final

import trio

from protocol.errors import ProtocolError
from protocol.requests import Continuation

from .config import Config
from .core import Engine
from .logs import note
from .outbox import Outbox
from .services import Services
from .session import Session
from .transport import http
from .transport.websocket import Socket, serve_websocket

PATH: Final = "/v1/responses"
EVERYBODY: Final = "everybody"
"""The tenant of a server without keys."""

SHAPES: Final[dict[str, Continuation]] = {
    "responses_websockets=2026-02-04": "append",
    "responses_websockets=2026-02-06": "create",
}
"""What ``OpenAI-Beta`` says of the shape."""

LOOPBACK: Final = ("127.", "::1", "localhost")
ACCEPT_AGAIN: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED, errno.EPROTO}
"""Errors of ``accept`` that pass: out of file descriptors for now, or the peer was gone before we took it."""


class Server:
    """A server on some listeners. ``run`` serves until ``stop``; ``engine`` is what it serves."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.engine = Engine(services)
        self._sockets: set[Socket] = set()
        self._connections = 0
        self._stop = trio.Event()

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return self._connections

    def stop(self) -> None:
        """Begin the graceful end: ``run`` returns when it is over."""
        self._stop.set()

    async def run(
        self,
        listeners: Sequence[trio.abc.Listener[trio.SocketStream]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve ``listeners``, which are closed at the end, until ``stop`` is called or until cancelled.

        After ``stop``: no connection is accepted, Responses that sample may park or end, all get their terminal event and
        their row, and sockets are closed with 1001. Cancellation does the last two only.
        """
        async with trio.open_nursery() as nursery:
            await nursery.start(self.engine.run)
            async with trio.open_nursery() as accepting:
                for listener in listeners:
                    accepting.start_soon(self._accept, listener, nursery)
                task_status.started()
                await self._stop.wait()
                accepting.cancel_scope.cancel()
            await self.engine.shutdown()
            await self._close_sockets()
            nursery.cancel_scope.cancel()

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection on ``stream``, which is closed at the end: the boundary. Raises nothing of the peer's."""
        self._connections += 1
        try:
            await self._connection(stream)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            pass  # the peer is gone, or never spoke
        except* Exception as group:
            self.services.on_bug(group)
        finally:
            self._connections -= 1
            await trio.aclose_forcefully(stream)

    # ---- inside

    async def _accept(self, listener: trio.abc.Listener[trio.SocketStream], nursery: trio.Nursery) -> None:
        async with listener:
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:
                    if error.errno not in ACCEPT_AGAIN:
                        raise
                    await trio.sleep(0.05)
                    continue
                nursery.start_soon(self.serve, stream)

    async def _connection(self, stream: trio.abc.Stream) -> None:
        config = self.services.config
        with trio.fail_after(config.handshake_seconds):
            head = await self._read_head(stream)
            if head is None:
                return
            try:
                tenant = self._admit(head)
            except ProtocolError as error:
                await http.refuse(stream, error, _headers_for(error))
                return
            if tenant is None:
                await http.respond(stream, 200, {"status": "ok", "responses": len(self.engine.live)})
                return
        continuation = _shape(head)

        def make_session(outbox: Outbox) -> Session:
            return Session(self.engine, tenant, outbox, continuation=continuation)

        await serve_websocket(stream, head.raw, config, make_session, self._sockets)

    async def _read_head(self, stream: trio.abc.Stream) -> http.Head | None:
        try:
            return await http.read_head(stream, self.services.config.head_bytes)
        except http.BadRequest as error:
            body = {"error": {"type": "invalid_request_error", "code": "bad_request", "message": error.message}}
            await http.respond(stream, error.status, body)
            return None

    def _admit(self, head: http.Head) -> str | None:
        """The tenant of a WebSocket's handshake, or None where only health is asked; raises ``ProtocolError``."""
        if head.path == "/healthz" and head.method == "GET":
            return None
        if self._connections > self.services.config.connections:
            raise ProtocolError("too_many_connections", "the server has as many connections as it takes")
        tenant = tenant_of(head.get("authorization"), self.services.config)
        if head.path.rstrip("/") != PATH:
            raise ProtocolError("not_found", f"nothing is served at {head.path}; try {PATH}")
        if head.method != "GET":
            raise ProtocolError("method_not_allowed", f"{head.method} is not served here: connect with a WebSocket")
        if not head.has_token("upgrade", "websocket"):
            raise ProtocolError("upgrade_required", f"{PATH} is served over a WebSocket")
        if self.engine.closing:
            raise ProtocolError("shutting_down", "the server is shutting down; try another, or again later")
        return tenant

    async def _close_sockets(self) -> None:
        async with trio.open_nursery() as nursery:
            for socket in list(self._sockets):
                nursery.start_soon(socket.aclose, 1001, "the server is going away")


def tenant_of(authorization: str | None, config: Config) -> str:
    """Whose connection it is; raises ``invalid_api_key``. Each key is a tenant; without keys everybody is one."""
    if not config.keys:
        return EVERYBODY
    scheme, _, given = (authorization or "").partition(" ")
    for index, key in enumerate(config.keys):
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), key.encode()):
            return f"key-{index}"
    raise ProtocolError("invalid_api_key", "no such key; send it as 'Authorization: Bearer KEY'")


def check_door(host: str, config: Config) -> None:
    """A server that others can reach needs keys: raises ``ValueError``."""
    if not config.keys and not host.startswith(LOOPBACK):
        raise ValueError(f"{host} can be reached from outside: give at least one key, or listen on 127.0.0.1")


async def open_listeners(host: str, port: int) -> list[trio.SocketListener]:
    """Listen on ``host``; port 0 picks one, the same for each address of the host. Raises ``OSError``."""
    listeners = await trio.open_tcp_listeners(port, host=host)
    note("server.listening", host=host, port=port_of(listeners))
    return listeners


def port_of(listeners: Sequence[trio.SocketListener]) -> int:
    """The port that was picked."""
    port: int = listeners[0].socket.getsockname()[1]
    return port


def _shape(head: http.Head) -> Continuation | None:
    for value, shape in SHAPES.items():
        if head.has_token("openai-beta", value):
            return shape
    return None


def _headers_for(error: ProtocolError) -> list[tuple[str, str]]:
    if error.code == "upgrade_required":
        return [("upgrade", "websocket"), ("connection", "Upgrade")]
    if error.code == "method_not_allowed":
        return [("allow", "GET")]
    if error.code == "invalid_api_key":
        return [("www-authenticate", "Bearer")]
    return [("retry-after", "1")] if error.status in (429, 503) else []
