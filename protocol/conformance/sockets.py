"""A server anywhere, by its URL: TCP and TLS, and no knowledge of when it is quiet but by listening. ``socket_transport``."""

import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import trio
from attrs import frozen

from .streams import Line, StreamTransport

QUIET_SECONDS: Final = 0.05
"""A server on the same machine that says nothing for so long has nothing to say."""

NOISE_SECONDS: Final = 5.0
"""One that talks for so long is not waited for."""

CONNECT_SECONDS: Final = 10.0
"""For TCP and TLS, each."""

CROWD_SECONDS: Final = 5.0
"""How long a connection waits for another to be closed, where there are as many as may be."""

CONNECTIONS: Final = 16
"""At once. The kit's conversations have three clients, who come back as new ones when their connections break."""

RESET: Final = struct.pack("ii", 1, 0)
"""``SO_LINGER``: on, for no time: a close is a reset."""


class TooManyConnections(OSError):
    """The conversation wants more connections at once than the transport may have."""


@frozen(kw_only=True)
class Address:
    """Where a server is. ``path`` is that of the API: ``/v1``, or what stands before it too."""

    host: str
    port: int
    path: str
    secure: bool

    @classmethod
    def of(cls, url: str) -> "Address":
        """Raises ``ValueError`` for what is not a URL with http, https, ws or wss and a host."""
        parts = urlsplit(url)
        secure = parts.scheme in ("https", "wss")
        if not parts.hostname or (not secure and parts.scheme not in ("http", "ws")):
            raise ValueError(f"not a URL with http, https, ws or wss and a host: {url!r}")
        path = parts.path.rstrip("/").removesuffix("/responses")
        path = path if path.endswith("/v1") else f"{path}/v1"
        return cls(host=parts.hostname, port=parts.port or (443 if secure else 80), path=path, secure=secure)

    @property
    def authority(self) -> str:
        """Host and port, as the header ``Host`` has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


class SocketTransport(StreamTransport):
    """A server at ``url``, ``http://127.0.0.1:8080`` for example, with ``/v1`` or without.

    ``connections`` is how many there may be at once, ``crowd_seconds`` how long one waits for another to be closed;
    ``quiet_seconds`` is how long nothing must be heard until it is quiet.
    Raises ``ValueError`` for a URL that is none.
    """

    exact = False

    def __init__(
        self,
        url: str,
        nursery: trio.Nursery,
        *,
        key: str | None = None,
        tls: ssl.SSLContext | None = None,
        connections: int = CONNECTIONS,
        quiet_seconds: float = QUIET_SECONDS,
        crowd_seconds: float = CROWD_SECONDS,
    ) -> None:
        self._at = Address.of(url)
        self._tls = (tls or ssl.create_default_context()) if self._at.secure else None
        self._quiet_seconds = quiet_seconds
        self._crowd_seconds = crowd_seconds
        self._limiter = trio.CapacityLimiter(connections)
        self._heard_at = trio.current_time()
        self._lines: set[Line] = set()
        super().__init__(self._dial_socket, nursery, host=self._at.authority, path=self._at.path, key=key)

    async def settle(self) -> None:
        """Wait until nothing was heard on any connection for a while. Nobody can know more of a server that is elsewhere."""
        began = quiet_since = trio.current_time()
        while trio.current_time() < min(quiet_since + self._quiet_seconds, began + NOISE_SECONDS):
            await trio.sleep_until(quiet_since + self._quiet_seconds)
            quiet_since = max(quiet_since, self._heard_at)

    def close(self) -> None:
        """Break all its connections."""
        for line in list(self._lines):
            line.reset()

    async def _dial_socket(self) -> Line:
        """Raises ``OSError``; cancelled, it leaves nothing."""
        holder = object()
        with trio.move_on_after(self._crowd_seconds) as scope:
            await self._limiter.acquire_on_behalf_of(holder)
        if scope.cancelled_caught:
            raise TooManyConnections(f"more than {self._limiter.total_tokens:.0f} connections at once are wanted")
        try:
            return await self._open(lambda: self._limiter.release_on_behalf_of(holder))
        except BaseException:
            self._limiter.release_on_behalf_of(holder)
            raise

    async def _open(self, on_close: Callable[[], None]) -> Line:
        try:
            with trio.fail_after(CONNECT_SECONDS):
                tcp = await trio.open_tcp_stream(self._at.host, self._at.port)
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = tcp if self._tls is None else await self._secured(tcp, self._tls)
        except trio.TooSlowError:
            raise TimeoutError(f"{self._at.authority} does not answer") from None

        def reset() -> None:
            if tcp.socket.fileno() != -1:
                tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            tcp.socket.close()

        def closed() -> None:
            self._lines.discard(line)
            on_close()

        line = Line(stream, reset, on_data=self._note, on_close=closed)
        self._lines.add(line)
        return line

    async def _secured(self, tcp: trio.SocketStream, tls: ssl.SSLContext) -> trio.abc.Stream:
        stream = trio.SSLStream(tcp, tls, server_hostname=self._at.host, https_compatible=True)
        secured = False
        try:
            with trio.fail_after(CONNECT_SECONDS):
                await stream.do_handshake()
            secured = True
        except trio.BrokenResourceError as error:
            raise ConnectionError(f"no TLS with {self._at.authority}: {error.__cause__ or error}") from error
        finally:
            if not secured:
                tcp.socket.close()
        return stream

    def _note(self) -> None:
        self._heard_at = trio.current_time()


@asynccontextmanager
async def socket_transport(url: str, **options: Any) -> AsyncIterator[SocketTransport]:
    """A ``SocketTransport`` with the tasks that its sockets need. At the end its connections are closed by force."""
    async with trio.open_nursery() as nursery:
        transport = SocketTransport(url, nursery, **options)
        try:
            yield transport
        finally:
            transport.close()
        nursery.cancel_scope.cancel()
