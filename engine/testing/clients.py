"""A client of an engine under test that needs no network at all. Those that do are in ``protocol.conformance.streams``."""

from typing import Any

import trio

from protocol.conformance.streams import Frames, Message, as_frame
from protocol.conformance.transport import Closed

from ..core import Engine
from ..outbox import Outbox
from ..session import Session


class _ListWire:
    """A wire that holds frames until somebody takes them."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.waiting = 0
        self.closed = False
        self.lot = trio.lowlevel.ParkingLot()

    def put(self, frame: bytes) -> None:
        if not self.closed:
            self.frames.append(frame)
            self.waiting += len(frame)
            self.lot.unpark_all()

    def flush(self) -> None:
        """Nothing: a frame that is put can be taken at once."""


class DirectSocket(Frames):
    """A client that hands its frames to a ``Session`` itself."""

    def __init__(self, engine: Engine, tenant: str, limit: int, **options: Any) -> None:
        self._wire = _ListWire()
        self._outbox = Outbox(self._wire, limit)
        self._session = Session(engine, tenant, self._outbox, **options)

    async def send(self, message: Message) -> None:
        """Send a frame; raises ``Closed``."""
        if self._wire.closed:
            raise Closed
        self._session.handle(as_frame(message))
        await trio.lowlevel.checkpoint()

    async def receive_text(self) -> str:
        """The next frame; raises ``Closed``."""
        await trio.lowlevel.checkpoint()
        while not self._wire.frames:
            if self._wire.closed:
                raise Closed
            await self._wire.lot.park()
        frame = self._wire.frames.pop(0)
        self._wire.waiting -= len(frame)
        self._outbox.drained()
        return frame.decode()

    def cut(self) -> None:
        """The connection is gone."""
        if not self._wire.closed:
            self._wire.closed = True
            self._wire.frames.clear()
            self._wire.lot.unpark_all()
            self._outbox.close()
            self._session.close()

    async def drop(self) -> None:
        """The connection is gone."""
        self.cut()
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """The same: there is nothing to be polite to."""
        await self.drop()
