"""One port: accept, tell a WebSocket from plain HTTP, a boundary around each connection, and the graceful end.

    accept loop ── nursery ── connection ── boundary: read head, check key, upgrade ── session
    engine ─────── nursery ── Responses (they outlive the connections)

Nothing that a peer sends may end its own boundary with more than its own connection, let alone the server. A bug of ours is
told to ``services.on_bug`` and costs that connection.
"""

import errno
import hmac
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from protocol.errors import ProtocolError
from protocol.requests import Continuation

from .api import Api
from .config import Config
from .conversations_api import Endpoint
from .core import Engine
from .logs import note
from .services import Services
from .session import Session
from .transport.http import Exchange, Handler, HttpConnection, Limits
from .transport.request import Request
from .transport.routes import Routes
from .transport.websocket import Socket, serve_websocket

PATH: Final = "/v1/responses"
HEALTH: Final = "/healthz"
READY: Final = "/readyz"
EVERYBODY: Final = "everybody"
"""The tenant of a server without keys."""

TIMING_HEADER: Final = "x-responsesapi-include-timing-metrics"
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
        self._https: set[HttpConnection] = set()
        self._routes = Routes(self._table(), origins=services.config.cors_origins)
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
            nursery.start_soon(self._beat)
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
        services = self.services
        connection = HttpConnection(stream, _limits(services.config), self._handle, on_bug=services.on_bug, wall=services.wall)
        self._https.add(connection)
        try:
            upgrade = await connection.serve()
        finally:
            self._https.discard(connection)
            del connection
        if upgrade is None:
            return
        config = services.config
        tenant = tenant_of(upgrade.request.get("authorization"), config)
        request = upgrade.request
        make_session = partial(
            Session, self.engine, tenant, continuation=_shape(request), timed=request.get(TIMING_HEADER) == "true"
        )
        head = upgrade.raw
        del upgrade, request  # some KiB, which would stay as long as the socket
        await serve_websocket(stream, head, config, make_session, self._sockets)

    def _table(self) -> list[tuple[str, str, Handler]]:
        own: list[tuple[str, str, Handler]] = [
            ("GET", HEALTH, self._health),
            ("GET", READY, self._ready),
            ("GET", PATH, self._websocket),
        ]
        return own + [
            (method, path, self._for_tenant(answer)) for (method, path), answer in Api(self.engine).endpoints().items()
        ]

    def _for_tenant(self, endpoint: Endpoint) -> Handler:
        async def answer(exchange: Exchange) -> None:
            await endpoint(exchange, tenant_of(exchange.request.get("authorization"), self.services.config))

        return answer

    async def _handle(self, exchange: Exchange) -> None:
        if exchange.request.path not in (HEALTH, READY):
            if self._connections > self.services.config.connections:
                raise ProtocolError("too_many_connections", "the server has as many connections as it takes")
            tenant_of(exchange.request.get("authorization"), self.services.config)
        await self._routes(exchange)

    async def _health(self, exchange: Exchange) -> None:
        await exchange.respond(200, {"status": "ok", "responses": len(self.engine.live)})

    async def _ready(self, exchange: Exchange) -> None:
        if self.engine.closing:
            raise ProtocolError("shutting_down", "the server is shutting down")
        await exchange.respond(200, {"status": "ready"})

    async def _websocket(self, exchange: Exchange) -> None:
        if not exchange.request.wants_websocket:
            message = "GET is for WebSockets here; POST creates a Response"
            raise ProtocolError("upgrade_required", message)
        if not self.services.config.websocket:
            raise ProtocolError("upgrade_required", "WebSockets are off here: use POST, with stream for events")
        if self.engine.closing:
            raise ProtocolError("shutting_down", "the server is shutting down; try another, or again later")
        exchange.upgrade()

    async def _beat(self) -> None:
        """One task for all sockets: a task each would cost more than the rest of an idle socket's housekeeping."""
        while True:
            await trio.sleep(self.services.config.ping_seconds)
            now = trio.current_time()
            for socket in list(self._sockets):
                socket.beat(now)

    async def _close_sockets(self) -> None:
        async with trio.open_nursery() as nursery:
            for socket in list(self._sockets):
                nursery.start_soon(socket.aclose, 1001, "the server is going away")
            for connection in list(self._https):
                nursery.start_soon(self._close_http, connection)

    async def _close_http(self, connection: HttpConnection) -> None:
        with trio.move_on_after(self.services.config.close_seconds):
            await connection.aclose()


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


@asynccontextmanager
async def listening(server: Server, listeners: Sequence[trio.SocketListener] | None = None) -> AsyncIterator[int]:
    """Run ``server`` while the context lasts, and stop it gracefully at its end. Gives the port.

    Without ``listeners``, which it closes in any case, it picks a free port of the loopback address; raises ``OSError`` if it
    can't. An exception or a cancellation inside ends it at once, and comes out in the exception group of a nursery.
    """
    if listeners is None:
        listeners = await open_listeners("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, listeners)
        yield port_of(listeners)
        server.stop()


def port_of(listeners: Sequence[trio.SocketListener]) -> int:
    """The port that was picked."""
    port: int = listeners[0].socket.getsockname()[1]
    return port


def _limits(config: Config) -> Limits:
    return Limits(
        head_bytes=config.head_bytes,
        head_seconds=config.handshake_seconds,
        send_seconds=config.send_seconds,
        close_seconds=config.close_seconds,
    )


def _shape(request: Request) -> Continuation | None:
    for value, shape in SHAPES.items():
        if request.has_token("openai-beta", value):
            return shape
    return None
