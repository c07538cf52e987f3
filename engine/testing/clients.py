"""Clients of a server under test: a real WebSocket on any stream, and one that needs no network at all."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection, wrap_client_stream
from wsproto.utilities import LocalProtocolError

from protocol.codec import encode, parse
from protocol.conformance.transport import Closed
from protocol.events import TERMINAL
from protocol.limits import HARD_FRAME_BYTES

from ..core import Engine
from ..outbox import Outbox
from ..server import PATH
from ..session import Session

Message = Mapping[str, Any] | str | bytes
Headers = Sequence[tuple[bytes, bytes]]


def as_frame(message: Message) -> str | bytes:
    """A frame: objects become JSON text, text and bytes stay what they are."""
    return message if isinstance(message, str | bytes) else encode(message).decode()


class _Frames:
    """What all test sockets can do beside sending and receiving."""

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


class ClientSocket(_Frames):
    """A client's WebSocket. It reads only when asked to. ``stream`` is what is below it, ``reset`` breaks that."""

    def __init__(self, connection: WebSocketConnection, stream: trio.abc.Stream, reset: Callable[[], None]) -> None:
        self._connection = connection
        self._reset = reset
        self.stream = stream

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

    async def receive_text(self) -> str:
        """The next text frame; raises ``Closed``."""
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
        self._reset()

    async def aclose(self) -> None:
        """Close politely, in two seconds at most."""
        with trio.move_on_after(2):
            await self._connection.aclose()
        await trio.aclose_forcefully(self.stream)


async def open_websocket(
    nursery: trio.Nursery, stream: trio.abc.Stream, host: str, headers: Headers, reset: Callable[[], None]
) -> ClientSocket:
    """Shake hands on ``stream``; raises ``ConnectionRejected``. The library's reader runs in ``nursery``."""
    below: Any = stream  # the library takes any stream, and says that it wants a socket's
    refused: list[ConnectionRejected] = []

    async def live(*, task_status: trio.TaskStatus[WebSocketConnection | None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            async with trio.open_nursery() as inner:
                connection = await wrap_client_stream(
                    inner,
                    below,
                    host,
                    PATH,
                    extra_headers=list(headers),
                    max_message_size=2 * HARD_FRAME_BYTES,
                    receive_buffer_size=65536,
                )
                task_status.started(connection)
        except* ConnectionRejected as group:
            refused.extend(one for one in group.exceptions if isinstance(one, ConnectionRejected))
            task_status.started(None)
        except* LocalProtocolError:
            pass  # the library's: a ping that comes after it has said that it closes
        finally:
            await trio.aclose_forcefully(stream)

    connection = await nursery.start(live)
    if connection is None:
        raise refused[0]
    return ClientSocket(connection, stream, reset)


def headers_for(key: str | None, beta: str | None) -> list[tuple[bytes, bytes]]:
    """The headers of a handshake: a bearer key, and ``OpenAI-Beta``."""
    headers = [(b"authorization", f"Bearer {key}".encode())] if key is not None else []
    return headers + ([(b"openai-beta", beta.encode())] if beta is not None else [])


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


class DirectSocket(_Frames):
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
