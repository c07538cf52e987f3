"""Connections to the other server: WebSockets, of which each live Response holds one, else HTTP.

A WebSocket remembers the Response that ended on it last, also with ``store: false``. Over HTTP nothing is remembered: nothing
is to be stored on another server that nobody asked to be stored, so each turn sends the whole history. Which of the two it is
is found out by asking for the upgrade, and again some time after that was refused.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from ssl import SSLContext
from typing import Any, Final, Protocol

import httpx2
import trio

from protocol.codec import encode, parse
from protocol.errors import ProtocolError

from ...chains import CREATE_BETA
from ...transport.dialing import CLOSE_SECONDS, MAX_MESSAGE_CHARS, Door, NotOpened, Socket, open_socket
from ..base import ModelError
from ..upstream import SILENCE_SECONDS, Upstream
from .asking import Frame
from .faults import Forgotten, Passing, failure, unreadable
from .reading import ENDS

REFUSED_SECONDS: Final = 300.0
"""So long after an upgrade was refused the next one is tried: somebody may have put another server there."""
PASSING_STATUS: Final = frozenset({401, 403, 408, 429, 500, 502, 503, 504})
"""Of a refused upgrade: it says nothing about WebSockets. HTTP is asked this once, and says what is wrong."""
AGE_SECONDS: Final = 50 * 60.0
"""A connection lives for an hour in this API: one that is older than this does not begin another rollout."""
IDLE: Final = 64
"""Connections that wait for another rollout: one takes some 0.1 s to open, which a burst may pay again."""
DRAIN_SECONDS: Final = 0.5
"""For ``[DONE]`` and the end of a stream, which follow a Response's end at once."""


class Line(Protocol):
    """A connection to the other server, for one Response after the other."""

    remembers: bool
    """Whether what ended on it last can be continued by its id."""

    async def ask(self, body: Frame) -> None:
        """Send a create. Raises ``ModelError``; cancelled, the line is to be dropped."""
        ...

    async def receive(self) -> Frame:
        """The next event. Raises ``ModelError``; cancelled, the line is to be dropped."""
        ...

    async def drop(self) -> None:
        """Give it up, whatever it is doing: the other server hears that nobody listens. Within a deadline, whatever is
        cancelled."""
        ...


class SocketLine:
    """A WebSocket in the create shape."""

    remembers = True

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self._opened = trio.current_time()

    @property
    def fresh(self) -> bool:
        """Whether it may be used for another rollout."""
        return self.socket.gone is None and trio.current_time() < self._opened + AGE_SECONDS

    async def ask(self, body: Frame) -> None:
        if not await self.socket.send(encode({"type": "response.create", **body}).decode()):
            raise self._lost()

    async def receive(self) -> Frame:
        with trio.move_on_after(SILENCE_SECONDS):
            message = await self.socket.receive()
            if message is None:
                raise self._lost()
            return _frame(message)
        raise Passing(f"the model's server has said nothing for {SILENCE_SECONDS:.0f} s")

    async def drop(self) -> None:
        self.socket.abort()

    def _lost(self) -> ModelError:
        return Forgotten(f"the connection to the model's server is gone: {self.socket.gone or 'dropped'}")


class HttpLine:
    """A ``POST`` for each turn, answered by server-sent events, or by JSON where a server can't stream."""

    remembers = False

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self._answer: httpx2.Response | None = None
        self._events: AsyncIterator[Any] | None = None
        self._ended = False

    async def ask(self, body: Frame) -> None:
        await self.drop()
        self._ended = False
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        request = self._http.build_request("POST", "/responses", content=encode({**body, "stream": True}), headers=headers)
        try:
            self._answer = answer = await self._http.send(request, stream=True)
            if answer.is_error:
                text = (await answer.aread()).decode(errors="replace")
                raise _refusal(answer, text)
        except httpx2.HTTPError as error:
            raise self._lost(error) from error
        if not answer.headers.get("content-type", "").startswith("application/json"):
            self._events = aiter(httpx2.EventSource(answer, max_event_size=MAX_MESSAGE_CHARS))

    async def receive(self) -> Frame:
        assert self._answer is not None
        try:
            if self._events is None:
                return _ended(_frame(await self._answer.aread()))
            while True:
                event = await anext(self._events)
                if event.data and event.data != "[DONE]":
                    frame = _frame(event.data)
                    self._ended = frame.get("type") in ENDS
                    return frame
        except httpx2.HTTPError as error:
            raise self._lost(error) from error
        except StopAsyncIteration:
            raise Passing("the model's server ended its stream before its Response") from None

    async def drop(self) -> None:
        answer, self._answer = self._answer, None
        events, self._events = self._events, None
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS):
            if events is not None:
                await self._leave(events)
            if answer is not None:
                await answer.aclose()

    async def _leave(self, events: AsyncIterator[Any]) -> None:
        """Read what follows the end of a Response, so that its connection serves the next one, too. Before the end there is
        no time for that: the read is cut, which ends the generators that httpx2 has inside each other, where closing the
        outermost would leave the others to the garbage collector."""
        with trio.move_on_after(DRAIN_SECONDS if self._ended else 0), suppress(httpx2.HTTPError):
            async for _ in events:
                pass

    def _lost(self, error: Exception) -> ModelError:
        return Passing(f"the model's server {self._http.base_url} is not there: {error!r}")


class Lines:
    """What there is of connections to ``upstream``."""

    def __init__(self, upstream: Upstream, http: httpx2.AsyncClient, nursery: trio.Nursery, tls: SSLContext | None) -> None:
        self._door = Door.at(upstream.url, upstream.key, tls, CREATE_BETA)
        self._http = http
        self._nursery = nursery
        self._idle: list[SocketLine] = []
        self._refused_until = 0.0

    async def open(self) -> Line:
        """An idle connection, or a new one. Raises ``ModelError``; cancelled, it leaves nothing."""
        while self._idle:
            line = self._idle.pop()
            if line.fresh:
                return line
            line.socket.close()
        if trio.current_time() < self._refused_until:
            return HttpLine(self._http)
        try:
            return SocketLine(await open_socket(self._nursery, self._door))
        except NotOpened as refused:
            if refused.status is None:
                raise Passing(f"the model's server {self._door.url} is not there: {refused}") from refused
            if refused.status not in PASSING_STATUS:
                self._refused_until = trio.current_time() + REFUSED_SECONDS
            return HttpLine(self._http)

    def give_back(self, line: Line) -> bool:
        """Keep a connection, on which nothing is going on, for another rollout; false if it is to be dropped."""
        if isinstance(line, SocketLine) and line.fresh and len(self._idle) < IDLE:
            self._idle.append(line)
            return True
        return False

    def close(self) -> None:
        """Close what is idle, politely."""
        while self._idle:
            self._idle.pop().socket.close()


def _frame(text: str | bytes) -> Frame:
    try:
        frame = parse(text)
    except ProtocolError as error:
        frame = _cut(text)
        if frame is None:
            raise unreadable(error.message) from None
    if not isinstance(frame, Mapping):
        raise unreadable(frame)
    return frame


def _cut(text: str | bytes) -> Any:
    """A delta with half of a surrogate pair: some servers cut a text anywhere, in UTF-16. ``Reading`` puts it together."""
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return frame if isinstance(frame, dict) and str(frame.get("type")).endswith(".delta") else None


def _ended(response: Frame) -> Frame:
    """The terminal event of a Response that was not streamed."""
    kind = f"response.{response.get('status')}"
    if kind not in ENDS:
        raise unreadable(response)
    return {"type": kind, "response": response}


def _refusal(answer: httpx2.Response, text: str) -> ModelError:
    try:
        body = _frame(text)
    except ModelError:
        body = {"code": f"http_{answer.status_code}", "message": text.strip()}
    return failure(body, answer.status_code, answer.headers)
