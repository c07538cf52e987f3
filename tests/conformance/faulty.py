"""A server with a switch for each fault.

    async with faulty_server("a delta is lost") as server:
        await play(conversation, server, books=server.books)

It is sound but for the one fault, and quite so without one. In memory, for virtual time.
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import trio
from attrs import define

from engine.config import Config
from engine.testing import DirectServer, FakeSearch, direct_server
from protocol.codec import encode, parse
from protocol.conformance.transport import Closed, Frame, Socket
from protocol.errors import ProtocolError

from .faults import attaching, ends, engine, items, lanes, numbers, slots, texts
from .faults.base import FAULTS, Fault, Line

SUBJECTS: Final = (numbers, ends, items, texts, slots, attaching, lanes, engine)
"""Where the faults are; importing them enters them."""

CONFIG: Final = Config(connection_seconds=1e9, finished_seconds=1e9, finished=1000)


@define
class Traffic:
    """How many frames were sent to a server, and how many were got from it."""

    sent: int = 0
    got: int = 0


class FaultySocket:
    """A client's socket of a faulty server."""

    def __init__(self, server: "FaultyServer", socket: Socket) -> None:
        self._server = server
        self._socket = socket
        self._line = Line(server.shared, self._say, self._close)
        self._numbers: dict[str | None, int] = {}
        self._ready: deque[Frame] = deque()
        self._closed = False
        self._waiting = trio.CancelScope()

    async def send(self, message: str | bytes) -> None:
        """Send what the server hears of it; raises ``Closed``."""
        if self._closed:
            raise Closed
        self._server.traffic.sent += 1
        for heard in self._heard(message):
            await self._socket.send(heard)

    def _heard(self, message: str | bytes) -> list[str | bytes]:
        fault = self._server.fault
        frame = _object(message)
        if fault is None or fault.hears is None or frame is None:
            return [message]
        instead = fault.hears(frame, self._line)
        return [encode(one).decode() for one in ([frame] if instead is None else instead)]

    async def receive_text(self) -> str:
        """The next frame; raises ``Closed``. What the server said and the client has not heard yet waits in here."""
        while not self._ready and not self._closed:
            with trio.CancelScope() as self._waiting:
                self._ready.extend(self._said(parse(await self._socket.receive_text())))
        if self._closed:
            raise Closed
        delay, self._line.delay = self._line.delay, 0.0
        if delay:
            await trio.sleep(delay)
        self._server.traffic.got += 1
        return encode(self._ready.popleft()).decode()

    def _said(self, frame: Frame) -> list[Frame]:
        fault = self._server.fault
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


class FaultyServer:
    """A transport. ``fault`` may be None."""

    def __init__(self, server: DirectServer, fault: Fault | None) -> None:
        self.books = server
        self.fault = fault
        self.shared: dict[Any, Any] = {}
        self.traffic = Traffic()
        self._server = server

    @property
    def exact(self) -> bool:
        """Time is virtual."""
        return self._server.exact

    async def connect(self, *, key: str | None = None, beta: str | None = None) -> FaultySocket:
        """A socket."""
        return FaultySocket(self, await self._server.connect(key=key, beta=beta))

    async def settle(self) -> None:
        """All tasks wait."""
        await self._server.settle()


@asynccontextmanager
async def faulty_server(name: str | None = None) -> AsyncIterator[FaultyServer]:
    """A server with the fault of that name, or with none; raises ``KeyError`` for a name that there is not."""
    fault = None if name is None else FAULTS[name]
    with pytest.MonkeyPatch.context() as patch:
        if fault is not None and fault.plants is not None:
            fault.plants(patch)
        async with direct_server(config=CONFIG, hosted={"file_search": FakeSearch(seconds=0.5)}) as server:
            yield FaultyServer(server, fault)


def _object(message: str | bytes) -> Frame | None:
    if isinstance(message, bytes):
        return None  # a binary frame is wrong, whatever is in it
    try:
        value = parse(message)
    except ProtocolError:
        return None
    return value if isinstance(value, dict) else None
