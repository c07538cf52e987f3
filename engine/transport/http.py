"""HTTP/1.1 on one connection, parsed by h11: requests in, answers out, in order, until one side has had enough.

    HttpConnection.serve ── nursery ─┬─ Inlet.run            reads ahead, and notices the client's end
                                     └─ one request at a time: head, handler, answer
                                            Exchange.sse ── nursery ── SseStream.pump    the writer of a stream of events

A request is handed on when its head is there: a handler asks for the body when it wants it, so that a bad key or path is
refused before a long body is sent, and ``Expect: 100-continue`` gets its answer then.

*The client's end.* A handler whose client is gone is cancelled, unless it said ``detach``. A reset says so at once. An end of
file may come from a client that has closed its sending half and waits for the answer, and TCP does not tell the two apart; so
the answer has ``half_close_seconds`` from there on.

*Writing.* One task writes at any time. A write that was cut (by an error, its deadline, or a cancellation) leaves half an
answer on the connection: nothing is written after it, and the client is as good as gone.

*Fault.* What the client did wrong is a ``ProtocolError``, and its answer. Any other exception of a handler is a bug of ours:
it is told to ``on_bug``, and the client reads ``server_error``.
"""

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Final

import h11
import trio
from attrs import field, frozen

from protocol.codec import encode, parse
from protocol.errors import RETRY_AFTER_SECONDS, RETRY_LATER, ErrorEvent, ProtocolError
from protocol.limits import SOFT_FRAME_BYTES

from .answer import CONTINUE, Answer, Headers
from .inlet import Inlet
from .request import Request, request_of
from .sse import HEADERS as SSE_HEADERS
from .sse import SseStream

Handler = Callable[["Exchange"], Awaitable[None]]

SERVER: Final = "sostenuto"
JSON: Final = "application/json"
WRITE_BYTES: Final = 256 * 1024
"""Written at once, each time with the whole deadline: a long answer may take a slow network a while."""
QUOTED_BYTES: Final = 200
"""Of the parser's complaints, which quote the line that they are about."""


@frozen(kw_only=True)
class Limits:
    """What one connection may cost. Times are seconds."""

    head_bytes: int = 64 * 1024
    """A request's head. Codex sends 2 KiB; cookies and tracing headers can add tens."""
    head_seconds: float = 10.0
    """From a head's first byte to its last, and from connecting to the first byte. Real clients send it at once."""
    body_bytes: int = SOFT_FRAME_BYTES
    """As large as a frame of a WebSocket may be."""
    body_seconds: float = 10.0
    """How long a body may take, and on top of it a second for each ``body_rate`` bytes."""
    body_rate: int = 16 * 1024
    """Slower than any network that an agent lives on; it bounds how long one body can hold its memory."""
    idle_seconds: float = 75.0
    """Between requests: longer than clients and balancers keep a connection, so that they are the first to close it."""
    ahead_bytes: int = 64 * 1024
    """What is read ahead of pipelined requests while one is answered."""
    unread_bytes: int = 64 * 1024
    """A body that nobody wanted is read and forgotten up to this size; for a longer one the connection is closed."""
    half_close_seconds: float = 1.0
    """How long an answer may take after the client's end of file. Most have simply gone."""
    send_seconds: float = 30.0
    """A write that the client's TCP does not take for so long: it is gone or stuck."""
    close_seconds: float = 2.0
    """How long a close waits until the client has read our last words, and for what it still sends."""


@frozen
class Upgrade:
    """A connection that goes on as a WebSocket. ``raw`` is all that was read, for another parser to read again."""

    request: Request
    raw: bytes = field(repr=False)


class Exchange:
    """One request, and the one answer that its handler gives: ``respond``, ``sse`` or ``upgrade``."""

    def __init__(self, connection: "HttpConnection", request: Request) -> None:
        self._connection = connection
        self.request = request
        self.params: Mapping[str, str] = {}
        """What the route's path left open."""
        self.headers: list[tuple[str, str]] = []
        """Sent with the answer, whatever it is."""
        self._body: bytes | None = None

    async def body(self) -> bytes:
        """The request's body. Raises ``ProtocolError``: it is too large, too slow, or broken. Cancelled, it can't be had."""
        if self._body is None:
            self._body = await self._connection.read_body(self.request)
        return self._body

    async def json(self) -> Any:
        """The body's JSON, as ``body``. A request that says that it is something else is refused, unread."""
        kind = self.request.get("content-type") or JSON
        if kind != JSON and (kind := kind.partition(";")[0].strip().lower()) != JSON:
            raise ProtocolError("unsupported_media_type", f"the body must be application/json, not {kind}")
        if [one for one in self.request.tokens("content-encoding") if one != "identity"]:
            raise ProtocolError("unsupported_media_type", "the body must not be compressed")
        return parse(await self.body())

    async def respond(self, status: int, body: Any = None, headers: Headers = ()) -> None:
        """Answer. ``body`` is JSON values, or bytes (JSON too, unless ``headers`` has a content-type), or None.

        When the client is gone the handler is cancelled here, or, ``detach``ed, goes on.
        """
        await self._connection.answer(status, body, [*self.headers, *headers])

    @asynccontextmanager
    async def sse(self) -> AsyncIterator[SseStream]:
        """Answer with server-sent events: those that the block puts, as soon as they are there; at its end ``[DONE]``.

        An exception of the block is told to the client as an ``error`` event before ``[DONE]``, and goes on its way. For a
        client that is gone the block is cancelled; ``detach``ed it goes on, and its events go nowhere. Where the request
        was HEAD the block is cancelled too.
        """
        connection, failure = self._connection, None
        await connection.begin(200, [*SSE_HEADERS, *self.headers])
        if connection.to_head:
            await connection.end()
            await connection.skip_rest()
        async with trio.open_nursery() as nursery:
            stream = SseStream(connection.write)
            nursery.start_soon(stream.pump)
            try:
                yield stream
            except Exception as error:
                failure = error
                stream.put(encode(ErrorEvent(as_answer(error)).to_wire()))
            stream.close()
        await connection.end()
        if failure is not None:
            raise failure

    def upgrade(self) -> None:
        """Answer nothing: when the handler has returned, ``serve`` returns the connection. The body must not be read."""
        self._connection.upgrade(self.request)

    def detach(self) -> None:
        """Let the handler go on to its end even if the client drops. What it answers then goes nowhere.

        To be said before the answer begins.
        """
        self._connection.detach()


class HttpConnection:
    """One connection. ``handle`` is called for each request; ``wall`` is Unix time, for the ``date`` header."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        limits: Limits,
        handle: Handler,
        *,
        on_bug: Callable[[BaseException], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._stream = stream
        self._limits = limits
        self._handle = handle
        self._on_bug = on_bug
        self._wall = wall
        self._parser = self._new_parser()
        self._inlet = Inlet(stream, limits.ahead_bytes, self._client_ended)
        self._raw = bytearray()
        self._fed_all = False
        self._pending = b""
        self._answer = Answer(chunks=False)
        self._upgraded: Request | None = None
        self._scope: trio.CancelScope | None = None
        self._until = math.inf
        self._handling = False
        self._detached = False
        self._broken = False
        self._last = False
        self._over = trio.Event()

    async def serve(self) -> Upgrade | None:
        """Serve requests until the connection is over (None), or becomes a WebSocket. The caller closes the stream.

        Raises nothing of the client's. Cancelled, it may leave half an answer on the stream.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._inlet.run)
            try:
                first = True
                while await self._serve_one(self._limits.head_seconds if first else self._limits.idle_seconds):
                    first = False
            finally:
                self._over.set()
                nursery.cancel_scope.cancel()
        if self._upgraded is None:
            return None
        return Upgrade(self._upgraded, bytes(self._raw) + self._inlet.take())

    async def aclose(self) -> None:
        """Let the request that is being answered be the last, and wait until its answer is sent.

        Whoever runs ``serve`` should cancel it when this takes too long. Cancelled, this leaves the connection closing.
        """
        self._last = True
        self._inlet.nudge()
        await self._over.wait()

    # ---- one exchange

    async def _serve_one(self, patience: float) -> bool:
        """One request and its answer; whether another may follow."""
        exchange: Exchange | None = None
        failure: Exception | None = None
        try:
            with trio.CancelScope(deadline=trio.current_time() + patience) as scope:
                self._scope = scope
                request = await self._next_request(scope)
                if request is None:
                    return False
                exchange = Exchange(self, request)
                self._begin_handling(scope)
                await self._handle(exchange)
        except Exception as error:
            failure = error
        finally:
            self._handling, self._scope = False, None
        if exchange is None:
            return await self._give_up(failure)
        await self._settle(exchange, failure, cancelled=scope.cancelled_caught)
        return await self._may_go_on()

    def _begin_handling(self, scope: trio.CancelScope) -> None:
        self._handling, self._detached = True, False
        self._until = scope.deadline = math.inf
        if self._inlet.ended:
            self._client_ended()

    async def _give_up(self, failure: Exception | None) -> bool:
        """There was no request, or none that could be read."""
        self._last = True
        if failure is None and not self._raw:
            return False
        await self._refuse(failure or ProtocolError("request_timeout", "the request's head took too long"))
        return await self._may_go_on()

    async def _settle(self, exchange: Exchange, failure: Exception | None, *, cancelled: bool) -> None:
        """The handler has ended: see to it that there is an answer, unless the client is gone."""
        if failure is not None:
            self._upgraded = None
            await self._refuse(failure, exchange.headers)
        elif self._upgraded is None and not self._answer.begun:
            if cancelled:
                self._broken = True
            else:
                request = exchange.request
                await self._refuse(RuntimeError(f"the handler of {request.method} {request.path} gave no answer"))

    async def _refuse(self, failure: Exception, headers: Headers = ()) -> None:
        """Answer with an error, if there is no answer yet, and tell of a bug."""
        error = as_answer(failure)
        if error.code == "server_error":
            self._on_bug(failure)
        if not self._answer.begun:
            body = {"error": ErrorEvent(error).to_wire()["error"]}
            await self.answer(error.status, body, [*headers_of(error), *headers])

    async def _may_go_on(self) -> bool:
        """After an answer: whether another request may follow. If not, let the client read the answer."""
        if self._broken or self._upgraded is not None or not self._answer.ended:
            return False
        if self._last:
            await self._linger()
        return not self._last

    async def _linger(self) -> None:
        """Closing with unread input would reset the connection, and lose our last words: read until the client's end."""
        if not isinstance(self._stream, trio.abc.HalfCloseableStream):
            return
        with trio.move_on_after(self._limits.close_seconds):
            try:
                await self._stream.send_eof()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            await self._inlet.discard()

    # ---- reading

    async def _next_request(self, scope: trio.CancelScope) -> Request | None:
        """The next request's head, or None when there is none. Raises ``ProtocolError``.

        The deadline of ``scope`` is for its first byte, and is moved if the rest is not there with that.
        """
        if self._answer.begun:
            self._begin_cycle()
        while not (self._raw or self._fed_all):
            if self._last:
                return None
            self._raw += await self._feed()
        begun = False
        while (event := self._next_event()) is h11.NEED_DATA:
            if self._fed_all:
                return None
            if not begun:
                begun, scope.deadline = True, trio.current_time() + self._limits.head_seconds
            self._raw += await self._feed()
        return self._accepted(event) if isinstance(event, h11.Request) else None

    def _new_parser(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head_bytes)

    def _begin_cycle(self) -> None:
        """What was sent ahead is the beginning of the next request."""
        ahead, _ = self._parser.trailing_data
        self._parser, self._raw, self._answer = self._new_parser(), bytearray(ahead), Answer(chunks=False)
        if ahead:
            self._parser.receive_data(ahead)
        if self._fed_all:
            self._parser.receive_data(b"")

    def _accepted(self, event: h11.Request) -> Request:
        version = event.http_version
        self._answer = Answer(to_head=event.method == b"HEAD", chunks=version != b"1.0")
        limit = self._limits.head_bytes
        if len(self._raw) - len(self._parser.trailing_data[0]) > limit:
            raise ProtocolError("header_fields_too_large", f"the request's head has more than {limit:,} bytes")
        request = request_of(event)
        if version == b"1.0" or request.has_token("connection", "close"):
            self._last = True
        return request

    def _next_event(self) -> Any:
        try:
            return self._parser.next_event()
        except h11.RemoteProtocolError as error:
            self._last = True
            code = {431: "header_fields_too_large", 501: "unsupported_transfer_coding"}.get(error.error_status_hint)
            raise ProtocolError(code or "bad_request", f"not HTTP/1.1: {str(error)[:QUOTED_BYTES]}") from None

    async def _feed(self) -> bytes:
        """Wait for what the client sends, and give it to the parser; so too its end."""
        await self._inlet.wait()
        data = self._inlet.take()
        if data or self._inlet.ended:
            self._fed_all = not data
            self._parser.receive_data(data)
        return data

    async def read_body(self, request: Request) -> bytes:
        """The body of the request under way; see ``Exchange.body``."""
        length = request.get("content-length")
        if length is not None and int(length) > self._limits.body_bytes:
            raise self._too_large()
        if self._parser.they_are_waiting_for_100_continue:
            await self._send(CONTINUE)
        body = bytearray()
        if not self._take_body(body):
            await self._wait_for_body(body)
        return bytes(body)

    async def _wait_for_body(self, body: bytearray) -> None:
        limits, start = self._limits, trio.current_time()
        with trio.move_on_after(limits.body_seconds) as scope:
            while not self._take_body(body):
                scope.deadline = start + limits.body_seconds + len(body) / limits.body_rate
                await self._feed()
            return
        self._last = True
        raise ProtocolError("request_timeout", "the request's body took too long")

    def _take_body(self, body: bytearray) -> bool:
        """Add to ``body`` what the parser has; whether it was the last. Raises ``ProtocolError``."""
        while isinstance(event := self._next_event(), h11.Data):
            body += event.data
            if len(body) > self._limits.body_bytes:
                raise self._too_large()
        return event is not h11.NEED_DATA

    def _too_large(self) -> ProtocolError:
        self._last = True
        return ProtocolError("message_too_large", f"the request's body has more than {self._limits.body_bytes:,} bytes")

    async def _forget_body(self) -> bool:
        """Read what is left of a body that nobody wanted; False if that is not worth it."""
        if self._parser.their_state is not h11.SEND_BODY:
            return self._parser.their_state is not h11.ERROR
        if self._last or self._parser.they_are_waiting_for_100_continue:
            return False
        budget = self._limits.unread_bytes
        with trio.move_on_after(self._limits.close_seconds):
            while budget >= 0:
                try:
                    event = self._next_event()
                except ProtocolError:
                    return False
                if isinstance(event, h11.Data):
                    budget -= len(event.data)
                elif event is h11.NEED_DATA:
                    await self._feed()
                else:
                    return True
        return False

    # ---- writing

    async def answer(self, status: int, body: Any, headers: Headers) -> None:
        """A whole answer; see ``Exchange.respond``."""
        fields = list(headers)
        content = b"" if body is None else body if isinstance(body, bytes) else encode(body)
        if body is not None and not any(name == "content-type" for name, _ in fields):
            fields.append(("content-type", JSON))
        if status != 204:
            fields.append(("content-length", str(len(content))))
        await self.begin(status, fields)
        self._pending += self._answer.body(content)
        await self.end()

    async def begin(self, status: int, headers: Headers) -> None:
        """Begin an answer: its head goes out with what follows first. Raises ``RuntimeError`` if there was one already."""
        if self._answer.begun:
            raise RuntimeError("a request has one answer")
        if not await self._forget_body():
            self._last = True
        fields = [*headers, ("date", _http_date(int(self._wall()))), ("server", SERVER)]
        if self._last:
            fields.append(("connection", "close"))
        self._pending = self._answer.head(status, fields)

    async def write(self, data: bytes) -> None:
        """Some of the answer's body, and before it what is pending."""
        await self._send(self._pending + self._answer.body(data))

    async def end(self) -> None:
        """The answer's end."""
        await self._send(self._pending + self._answer.end())

    @property
    def to_head(self) -> bool:
        """The request is HEAD: its answer has no body."""
        return self._answer.to_head

    async def skip_rest(self) -> None:
        """The answer is there: cancel its handler."""
        if self._scope is not None:
            self._scope.cancel()
        await trio.sleep_forever()

    async def _send(self, data: bytes) -> None:
        self._pending = b""
        for start in range(0, len(data), WRITE_BYTES):
            if not self._broken:
                await self._send_piece(memoryview(data)[start : start + WRITE_BYTES])

    async def _send_piece(self, piece: memoryview) -> None:
        self._broken = True  # until all of it is written
        seconds, scope = self._limits.send_seconds, self._scope
        if scope is None or self._detached:
            with trio.move_on_after(seconds):
                await self._send_all(piece)
        else:  # a scope of its own would cost three times as much
            scope.deadline = min(self._until, trio.current_time() + seconds)
            await self._send_all(piece)
            scope.deadline = self._until
        if self._broken:
            await trio.aclose_forcefully(self._stream)

    async def _send_all(self, piece: memoryview) -> None:
        try:
            await self._stream.send_all(piece)
            self._broken = False
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            if self._scope is not None and not self._detached:
                self._scope.cancel()
            await trio.lowlevel.checkpoint()

    # ---- what else may happen

    def upgrade(self, request: Request) -> None:
        """See ``Exchange.upgrade``."""
        self._upgraded = request

    def detach(self) -> None:
        """See ``Exchange.detach``."""
        self._detached = True
        if self._scope is not None:
            self._until = self._scope.deadline = math.inf

    def _client_ended(self) -> None:
        """The client sends no more: its handler has only so long."""
        if self._scope is None or not self._handling or self._detached:
            return
        if self._inlet.broken:
            self._scope.cancel()
        else:
            self._until = trio.current_time() + self._limits.half_close_seconds
            self._scope.deadline = min(self._scope.deadline, self._until)


def as_answer(error: Exception) -> ProtocolError:
    """What the client is told of ``error``: a ``ProtocolError`` as it is, also out of the groups of a handler's nurseries."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, ProtocolError) else ProtocolError("server_error", "the server has made a mistake")


def headers_of(error: ProtocolError) -> list[tuple[str, str]]:
    """The headers that belong to an error's answer."""
    if error.code == "upgrade_required":
        return [("upgrade", "websocket"), ("connection", "Upgrade")]
    if error.code == "invalid_api_key":
        return [("www-authenticate", "Bearer")]
    return [("retry-after", str(RETRY_AFTER_SECONDS))] if error.status in RETRY_LATER else []


@lru_cache(maxsize=1)
def _http_date(wall: int) -> str:
    return formatdate(wall, usegmt=True)
