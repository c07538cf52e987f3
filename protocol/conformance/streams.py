"""How the kit speaks on a connection, whatever is below it: WebSockets, HTTP/1.1, server-sent events. ``StreamTransport``.

A *line* is a stream and a way to break it. Whoever can dial one has a transport: in memory (``engine.testing``), over TCP
(``sockets``). Each exchange over HTTP has a line of its own, so that what one does to it disturbs no other.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import h11
import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection, wrap_client_stream
from wsproto.utilities import LocalProtocolError

from ..codec import encode, parse
from ..events import TERMINAL
from ..limits import HARD_FRAME_BYTES
from .transport import Closed, Refused, ServerSentEvent

Message = Mapping[str, Any] | str | bytes
Headers = Sequence[tuple[bytes, bytes]]

RECEIVE_BYTES: Final = 64 * 1024
HEAD_BYTES: Final = 256 * 1024
"""An answer's head that is larger than this is no answer."""
HANDSHAKE_SECONDS: Final = 15.0
CLOSE_SECONDS: Final = 2.0
"""For a polite close; then by force."""
LINE_END: Final = re.compile(rb"\r\n|\n|\r(?!\Z)")
GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)

REFUSALS: Final = (ConnectionRejected, OSError, LocalProtocolError, h11.LocalProtocolError)
"""How a handshake fails. The library wants to answer what is not HTTP, as a server would, and cannot."""


def as_frame(message: Message) -> str | bytes:
    """A frame: objects become JSON text, text and bytes stay what they are."""
    return message if isinstance(message, str | bytes) else encode(message).decode()


def _nothing() -> None:
    pass


class Line(trio.abc.Stream):
    """A connection on which nothing was said yet. ``reset`` breaks it without waiting.

    ``on_data`` is called when something was heard, ``on_close`` once, when this end is closed or broken.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        reset: Callable[[], None],
        *,
        on_data: Callable[[], None] = _nothing,
        on_close: Callable[[], None] = _nothing,
    ) -> None:
        self._stream = stream
        self._reset = reset
        self._on_data = on_data
        self._on_close = on_close
        self.on_end: Callable[[], None] = _nothing
        """Called when nothing more will be heard."""

    def reset(self) -> None:
        """Break the connection."""
        self._reset()
        self._closed()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """As a stream does."""
        try:
            await self._stream.send_all(data)
        except GONE:
            self.on_end()
            raise

    async def wait_send_all_might_not_block(self) -> None:
        """As a stream does."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """As a stream does."""
        try:
            data = bytes(await self._stream.receive_some(max_bytes))
        except GONE:
            self.on_end()
            raise
        self._on_data()
        if not data:
            self.on_end()
        return data

    async def aclose(self) -> None:
        """As a stream does."""
        try:
            await self._stream.aclose()
        finally:
            self._closed()

    def _closed(self) -> None:
        on_close, self._on_close = self._on_close, _nothing
        on_close()
        self.on_end()


class StreamTransport:
    """A server that is reached by ``dial``. Its ``path`` is that of the API, ``/v1``; ``nursery`` keeps its WebSockets.

    ``key`` is the bearer key of those that say none. What ``dial`` raises, ``connect`` and ``request`` raise.
    """

    def __init__(
        self,
        dial: Callable[[], Awaitable[Line]],
        nursery: trio.Nursery,
        *,
        host: str = "memory",
        path: str = "/v1",
        key: str | None = None,
    ) -> None:
        self._dial = dial
        self._nursery = nursery
        self._host = host
        self._path = path
        self._key = key

    async def connect(self, *, key: str | None = None, beta: str | None = None) -> "ClientSocket":
        """A WebSocket; raises ``Refused``, and ``OSError`` if nothing came of the handshake. Cancelled, it leaves nothing."""
        line = await self._dial()
        headers = [*self._headers(key), *([(b"openai-beta", beta.encode())] if beta is not None else [])]
        return await open_websocket(self._nursery, line, self._host, f"{self._path}/responses", headers)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        key: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> "HttpExchange":
        """Send a request, and read the head of its answer. Raises ``Closed``; cancelled, it closes the connection."""
        line = await self._dial()
        own = [(b"host", self._host.encode()), (b"connection", b"close"), *self._headers(key)]
        own += [(name.lower().encode(), value.encode()) for name, value in headers]
        if body is not None:
            own.append((b"content-length", str(len(body)).encode()))
            own += [] if any(name == b"content-type" for name, _ in own) else [(b"content-type", b"application/json")]
        try:
            return await HttpExchange.ask(line, method, self._path + path, own, body or b"")
        except BaseException:
            line.reset()
            raise

    def _headers(self, key: str | None) -> list[tuple[bytes, bytes]]:
        key = self._key if key is None else key
        return [] if key is None else [(b"authorization", f"Bearer {key}".encode())]


# ---- WebSockets


class Frames:
    """What all sockets of tests can do beside sending and receiving."""

    async def receive_text(self) -> str:
        raise NotImplementedError

    async def receive(self) -> dict[str, Any]:
        """The next frame; raises ``Closed``."""
        value = parse(await self.receive_text())
        assert isinstance(value, dict)
        return value

    async def until(self, *types: str) -> list[dict[str, Any]]:
        """Frames up to the first of one of ``types``, that one too."""
        frames = [await self.receive()]
        while frames[-1]["type"] not in types:
            frames.append(await self.receive())
        return frames

    async def until_end(self) -> list[dict[str, Any]]:
        """Frames up to the terminal event, that one too."""
        return await self.until(*TERMINAL)


class ClientSocket(Frames):
    """A client's WebSocket. It reads only when asked to."""

    def __init__(self, connection: WebSocketConnection, line: Line) -> None:
        self._connection = connection
        self._line = line

    @property
    def close_code(self) -> int | None:
        """With which code the WebSocket was closed, once it is."""
        reason = self._connection.closed
        return reason.code if reason else None

    async def send(self, message: Message) -> None:
        """Send a frame; raises ``Closed``."""
        try:
            await self._connection.send_message(as_frame(message))
        except ConnectionClosed:
            raise Closed from None

    async def ping(self, payload: bytes | None = None) -> None:
        """Send a ping, and wait for its pong; raises ``Closed``."""
        try:
            await self._connection.ping(payload)
        except ConnectionClosed:
            raise Closed from None

    async def receive_text(self) -> str:
        """The next frame, as text; raises ``Closed``."""
        try:
            message = await self._connection.get_message()
        except ConnectionClosed:
            raise Closed from None
        return message if isinstance(message, str) else message.decode()

    async def drop(self) -> None:
        """Reset the connection."""
        self.cut()
        await trio.lowlevel.checkpoint()

    def cut(self) -> None:
        """As ``drop``, from where one cannot wait."""
        self._line.reset()

    async def aclose(self) -> None:
        """Close politely, in two seconds at most."""
        with trio.move_on_after(CLOSE_SECONDS):
            await self._connection.aclose()
        await trio.aclose_forcefully(self._line)


async def open_websocket(nursery: trio.Nursery, line: Line, host: str, path: str, headers: Headers) -> ClientSocket:
    """Shake hands on ``line``; raises ``Refused`` and ``OSError``. The library's reader runs in ``nursery``."""
    failures: list[Exception] = []

    async def live(*, task_status: trio.TaskStatus[WebSocketConnection | None] = trio.TASK_STATUS_IGNORED) -> None:
        connection = None
        try:
            async with trio.open_nursery() as inner:
                connection = await _shake_hands(inner, line, host, path, headers)
                task_status.started(connection)
        except* (
            REFUSALS
        ) as group:  # once it is open it may be the library's: a ping that comes after it has said that it closes
            failures.extend(one for one in group.exceptions if isinstance(one, Exception))
            if connection is None:
                task_status.started(None)
        finally:
            await trio.aclose_forcefully(line)

    connection = await nursery.start(live)
    if connection is not None:
        return ClientSocket(connection, line)
    match failures[0]:
        case ConnectionRejected() as rejected:
            raise Refused(rejected.status_code, rejected.body or b"")
        case OSError() as error:
            raise error
        case error:
            raise ConnectionError(f"the handshake was not answered in HTTP: {error}")


async def _shake_hands(nursery: trio.Nursery, line: Any, host: str, path: str, headers: Headers) -> WebSocketConnection:
    """The library waits for ever when the peer goes away in the midst of it; ``line`` tells."""
    with trio.move_on_after(HANDSHAKE_SECONDS) as scope:
        line.on_end = scope.cancel
        connection = await wrap_client_stream(
            nursery,
            line,
            host,
            path,
            extra_headers=list(headers),
            max_message_size=2 * HARD_FRAME_BYTES,
            receive_buffer_size=RECEIVE_BYTES,
        )
    line.on_end = _nothing
    if scope.cancelled_caught:
        late = trio.current_time() >= scope.deadline
        raise TimeoutError("no handshake in time") if late else ConnectionResetError("closed in the handshake")
    return connection


# ---- HTTP


class HttpExchange:
    """A request that was sent on a line of its own, and the answer, whose head was read."""

    status: int
    headers: Mapping[str, str]

    def __init__(self, line: Line) -> None:
        self._line = line
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        self._events = EventStream()
        self._over = False

    @classmethod
    async def ask(cls, line: Line, method: str, target: str, headers: Headers, body: bytes) -> "HttpExchange":
        """Send, and read the head. Raises ``Closed``. What was not yet sent when the answer comes is not sent any more."""
        exchange, failures = cls(line), []
        head = h11.Request(method=method, target=target, headers=list(headers))
        parts = (head, *([h11.Data(data=body)] if body else []), h11.EndOfMessage())
        data = b"".join(exchange._parser.send(part) or b"" for part in parts)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange._send, data)
            try:
                await exchange._read_head()
            except Closed as error:
                failures.append(error)
            nursery.cancel_scope.cancel()
        if failures:
            raise failures[0]
        return exchange

    async def read(self) -> bytes:
        """The whole body, or what ``next_event`` has left of it; raises ``Closed``. Closes the connection."""
        data = self._events.rest()
        while not self._over:
            data += await self._more()
        return data

    async def next_event(self) -> ServerSentEvent | None:
        """The next event, ``[DONE]`` too; None at the stream's end. Raises ``Closed``."""
        while (event := self._events.next()) is None and not self._over:
            self._events.feed(await self._more())
        return event

    async def drop(self) -> None:
        """Reset the connection."""
        self._line.reset()
        await trio.lowlevel.checkpoint()

    async def _send(self, data: bytes) -> None:
        with suppress(*GONE):  # it may have answered all the same, and whoever reads hears if not
            await self._line.send_all(data)

    async def _read_head(self) -> None:
        head = await self._next()
        while isinstance(head, h11.InformationalResponse):
            head = await self._next()
        if not isinstance(head, h11.Response):
            raise Closed("closed without an answer")
        self.status = head.status_code
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}

    async def _more(self) -> bytes:
        event = await self._next()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        self._over = True
        await trio.aclose_forcefully(self._line)
        return b""

    async def _next(self) -> object:
        try:
            while (event := self._parser.next_event()) is h11.NEED_DATA:
                self._parser.receive_data(await self._line.receive_some(RECEIVE_BYTES))
        except GONE:
            raise Closed("broken in the midst of an answer") from None
        except h11.RemoteProtocolError as error:
            raise Closed(f"not HTTP: {error}") from None
        return event


class EventStream:
    """Reads ``text/event-stream``, as the HTML standard has it: bytes in, events out. No I/O."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._lines: list[bytes | bytearray] = []
        self._event: str | None = None
        self._data: list[str] = []

    def feed(self, data: bytes) -> None:
        """Bytes came. A carriage return at their end may be half of a line's end."""
        held = self._bytes.endswith(b"\r")
        self._bytes += data
        if held or LINE_END.search(data):
            *lines, rest = LINE_END.split(self._bytes)
            self._bytes = bytearray(rest)
            self._lines += lines

    def next(self) -> ServerSentEvent | None:
        """The next whole event, if there is one."""
        for at, line in enumerate(self._lines):
            event = self._take(line.decode("utf-8", "replace"))
            if event is not None:
                del self._lines[: at + 1]
                return event
        self._lines.clear()
        return None

    def rest(self) -> bytes:
        """What was fed and is not part of an event yet."""
        lines = [*self._lines, self._bytes]
        self._lines, self._bytes = [], bytearray()
        return b"\n".join(lines)

    def _take(self, line: str) -> ServerSentEvent | None:
        if not line:
            data, event, self._data, self._event = self._data, self._event, [], None
            return ServerSentEvent("\n".join(data), event) if data else None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        return None
