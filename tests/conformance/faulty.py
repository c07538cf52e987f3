"""A server with a switch for each fault.

    async with faulty_server("a delta is lost") as server:
        await play(conversation, server, books=server.books)

It is sound but for the one fault, and quite so without one. In memory, for virtual time.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import pytest
import trio
from attrs import field, frozen

from engine.config import Config
from engine.testing import FakeSearch, direct_server, memory_server, virtually
from protocol.codec import encode, parse
from protocol.conformance.record import read
from protocol.conformance.runner import Scene
from protocol.conformance.story import ConformanceError
from protocol.conformance.transport import Closed, Exchange, Frame, ServerSentEvent, Socket
from protocol.lifecycle import TERMINAL_EVENTS

from .faults import attaching, chains, ends, engine, items, lanes, numbers, requests, slots, texts
from .faults.base import FAULTS, Fault, Line

T = TypeVar("T")

SUBJECTS: Final = (numbers, ends, items, texts, slots, attaching, lanes, chains, requests, engine)
"""Where the faults are; importing them enters them."""

KEYS: Final = ("ours", "a-strangers")
CONFIG: Final = Config(connection_seconds=1e9, finished_seconds=1e9, finished=1000, thread_bytes=2**40)
CONFIG_WITH_KEYS: Final = Config(keys=KEYS, connection_seconds=1e9, finished_seconds=1e9, finished=1000, thread_bytes=2**40)


class _Wire:
    """What a fault does to what passes on one connection."""

    def __init__(self, server: "FaultyServer", line: Line) -> None:
        self._fault = server.fault
        self._line = line
        self._numbers: dict[str | None, int] = {}

    def read(self, message: str | bytes) -> str | bytes:
        """What the server takes ``message`` for."""
        reads = self._fault and self._fault.reads
        return reads(message) if reads and isinstance(message, str) else message

    def heard(self, frame: Frame) -> list[Frame]:
        """What the server hears of ``frame``."""
        instead = self._fault.hears(frame, self._line) if self._fault and self._fault.hears else None
        return [frame] if instead is None else instead

    def said(self, frame: Frame) -> list[Frame]:
        """What the client hears of ``frame``."""
        fault = self._fault
        if fault is None or fault.says is None:
            return [frame]
        frame = {**frame}
        instead = fault.says(frame, self._line)
        frames = [frame] if instead is None else instead
        return [self._renumbered(one) for one in frames] if fault.renumber else frames

    def _renumbered(self, frame: Frame) -> Frame:
        lane = frame.get("stream_id")
        if frame["type"] == "response.attach.accepted":
            self._numbers[lane] = frame["starting_after"]
        if "sequence_number" not in frame:
            return frame
        number = -1 if frame["type"] == "response.created" else self._numbers.get(lane, -1)
        self._numbers[lane] = number + 1
        return {**frame, "sequence_number": number + 1}


class FaultySocket:
    """A client's socket of a faulty server."""

    def __init__(self, server: "FaultyServer", socket: Socket) -> None:
        self._socket = socket
        self._line = Line(server.shared, self._say, self._close)
        self._wire = _Wire(server, self._line)
        self._ready: deque[Frame] = deque()
        self._closed = False
        self._waiting = trio.CancelScope()

    async def send(self, message: str | bytes) -> None:
        """Send what the server hears of it; raises ``Closed``."""
        if self._closed:
            raise Closed
        message = self._wire.read(message)
        frame = read(message) if isinstance(message, str) else None
        for heard in [None] if frame is None else self._wire.heard(frame):
            await self._socket.send(message if heard in (None, read(message)) else _text(heard))

    async def receive_text(self) -> str:
        """The next frame; raises ``Closed``. What the server said and the client has not heard yet waits in here."""
        while not self._ready and not self._closed:
            with trio.CancelScope() as self._waiting:
                self._ready.extend(self._wire.said(parse(await self._socket.receive_text())))
        if self._closed:
            raise Closed
        delay, self._line.delay = self._line.delay, 0.0
        if delay:
            await trio.sleep(delay)
        return _text(self._ready.popleft())

    def _say(self, frame: Frame) -> None:
        self._ready.append(frame)
        self._waiting.cancel()

    def _close(self) -> None:
        self._closed = True
        self._waiting.cancel()

    async def drop(self) -> None:
        """Break the connection."""
        await self._socket.drop()

    async def aclose(self) -> None:
        """Close it."""
        await self._socket.aclose()


class FaultyExchange:
    """An answer of a faulty server over HTTP. A fault sees a Response as the event that would show it, an error as a frame."""

    def __init__(self, exchange: Exchange, wire: _Wire, status: int, headers: Mapping[str, str]) -> None:
        self._exchange = exchange
        self._wire = wire
        self._ready: deque[ServerSentEvent] = deque()
        self.status = status
        self.headers = headers
        self.is_stream = exchange.headers.get("content-type", "").startswith("text/event-stream")

    async def read(self) -> bytes:
        """The whole body; raises ``Closed``."""
        body = await self._exchange.read()
        value = read(body)
        if value is None:
            return body
        if value.get("object") == "response":
            kind = TERMINAL_EVENTS.get(str(value.get("status")), "response.in_progress")
            said = self._wire.said({"type": kind, "response": value})
            return encode(said[0]["response"] if said else {})
        if isinstance(value.get("error"), dict):
            said = self._wire.said({"type": "error", "code": value["error"].get("code"), **value})
            return encode({key: one for key, one in said[0].items() if key in value} if said else {})
        return body

    async def next_event(self) -> ServerSentEvent | None:
        """The next event, or None; raises ``Closed``."""
        while not self._ready:
            event = await self._exchange.next_event()
            if event is None:
                return None
            frame = read(event.data) or {"type": event.data}
            for said in self._wire.said(frame):
                line = said.pop("event:", said["type"])
                data = said["type"] if len(said) == 1 else _text(said)
                self._ready.append(ServerSentEvent(data, line if event.event else None))
        return self._ready.popleft()

    async def drop(self) -> None:
        """Break the connection."""
        await self._exchange.drop()


class FaultyServer:
    """A transport. ``fault`` may be None; ``books`` are the server's."""

    def __init__(self, server: Any, fault: Fault | None) -> None:
        self.books = server
        self.fault = fault
        self.shared: dict[Any, Any] = {}
        self._server = server

    @property
    def exact(self) -> bool:
        """Time is virtual."""
        return bool(self._server.exact)

    async def connect(self, *, key: str | None = None, beta: str | None = None) -> FaultySocket:
        """A socket; raises what the server's raises."""
        return FaultySocket(self, await self._server.connect(key=self._key(key), beta=beta))

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        key: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> FaultyExchange:
        """Send what the server hears of a request; raises what the server's raises."""
        wire = _Wire(self, Line(self.shared, _nothing, _nothing))
        if body is not None and self.fault is not None and self.fault.reads is not None:
            body = self.fault.reads(body.decode()).encode()
        frame = read(body)
        if frame is not None and path.startswith("/responses"):
            kind = "response.create" if path == "/responses" else f"response.{path.rpartition('/')[2]}"
            body = _body(wire.heard({"type": kind, **frame}), frame, body)
        if self.fault is not None and self.fault.asked is not None:
            method, path = self.fault.asked(method, path)
        exchange = await self._server.request(method, path, body, key=self._key(key), headers=headers)
        status, told = exchange.status, exchange.headers
        if self.fault is not None and self.fault.answers is not None:
            status, told = self.fault.answers(status, dict(told))
        return FaultyExchange(exchange, wire, status, told)

    def _key(self, key: str | None) -> str | None:
        return key if self.fault is None or self.fault.keys is None else self.fault.keys(key)

    async def settle(self) -> None:
        """All tasks wait."""
        await self._server.settle()


@asynccontextmanager
async def faulty_server(name: str | None = None, *, network: bool = False, keys: bool = False) -> AsyncIterator[FaultyServer]:
    """A server with the fault of that name, or with none; raises ``KeyError`` for a name that there is not.

    ``network``: with one in memory, so that there is HTTP. ``keys``: with two tenants, of ``KEYS``.
    """
    fault = None if name is None else FAULTS[name]
    options: dict[str, Any] = {
        "config": CONFIG_WITH_KEYS if keys else CONFIG,
        "hosted": {"file_search": FakeSearch(seconds=0.5)},
    }
    with pytest.MonkeyPatch.context() as patch:
        if fault is not None and fault.plants is not None:
            fault.plants(patch)
        async with memory_server(**options) if network else direct_server(**options) as server:
            yield FaultyServer(server, fault)


@frozen(kw_only=True)
class Faulty:
    """The same as the kit's search and its doors want it: a fresh server for each conversation, in virtual time."""

    name: str | None
    network: bool = False
    keys: bool = False
    exact: bool = field(default=True, init=False)

    @property
    def server(self) -> str:
        """In words."""
        return f"the engine in memory: {self.name or 'sound'}"

    def run(self, scene: Scene[T]) -> T:
        """Run ``scene``. If the fault has broken the engine, too, what the conversation showed is told."""

        async def main() -> T:
            async with faulty_server(self.name, network=self.network, keys=self.keys) as server:
                return await scene(server, server.books)

        try:
            return virtually(main)
        except BaseExceptionGroup as group:
            for error in _leaves(group):
                if isinstance(error, ConformanceError):
                    raise error from None
            raise


def _leaves(group: BaseExceptionGroup) -> Iterator[BaseException]:
    for error in group.exceptions:
        yield from _leaves(error) if isinstance(error, BaseExceptionGroup) else (error,)


def _body(heard: Sequence[Frame], frame: Frame, body: bytes | None) -> bytes | None:
    """What is sent where ``heard`` took the place of ``frame``, which ``body`` says."""
    bodies = [{name: one for name, one in said.items() if name != "type" or "type" in frame} for said in heard]
    return body if bodies in ([], [read(body)]) else encode(bodies[0])


def _text(frame: Frame) -> str:
    return encode(frame).decode()


def _nothing(*_: object) -> None:
    """There is no connection on which something else could be said."""
