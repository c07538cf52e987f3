"""The clients of ``compare``: as little between the socket and the clock as can be, and as little in each shape.

A measuring client must not be what is measured. One that reads each event through a library's layers takes some 50 to 200 µs
for it, which at 4,000 tokens a second is most of a processor. Here all frames of a read are taken at once, a delta is known
by its first bytes, and only what matters is parsed: 5 µs.

So they speak with servers of ours only: text frames unmasked and whole, event streams in chunks, answers with a length.
"""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import trio
from attrs import define, field

from protocol.client import Frame
from protocol.codec import encode, parse
from protocol.events import TERMINAL
from protocol.items import OUTPUT_TYPE_OF

from ..chains import OnEvent
from ..client import ConnectionLost, RolloutError, background
from ..transport.framing import apply_mask
from .play import Play, Played, Player, Way, play_chain

RECEIVE_BYTES: Final = 256 * 1024
TYPE: Final = b'{"type":"'
TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA
UPGRADE: Final = (
    "GET /v1/responses HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
POST: Final = "POST /v1/responses HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"


@asynccontextmanager
async def open_play(url: str, way: Way, **body: Any) -> AsyncIterator[Play]:
    """As ``play.open_play``, for measuring. Raises ``OSError``, and ``ConnectionLost`` if the server is none of ours."""
    place = urlsplit(url)
    stream = await trio.open_tcp_stream(place.hostname or "", place.port or 80)
    async with play_on(stream, place.netloc, way, **body) as play:
        yield play


@asynccontextmanager
async def play_on(stream: trio.abc.Stream, host: str, way: Way, **body: Any) -> AsyncIterator[Play]:
    """The same on a connection, which is closed at the end. Raises ``ConnectionLost``."""
    try:
        if way in ("append", "create"):
            socket = _Socket(_Bytes(stream))
            await socket.shake_hands(host)
            body = {**body, "continuation": way}
            yield partial(_play_held, socket, body) if way == "append" else partial(play_chain, socket, body, False)
        else:
            yield partial(play_chain, _Http(_Bytes(stream), host), body, way == "http-full")
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1.0):
            await trio.aclose_forcefully(stream)


async def _play_held(socket: "_Socket", body: dict[str, Any], player: Player, model: str) -> Played:
    up, down = socket.bytes_up, socket.bytes_down
    parks = 0
    async with background() as nursery:
        await socket.send({"type": "response.create", "model": model, "hold": player.hold, **player.request(), **body})
        while True:
            for frame in await socket.frames():
                player.watcher.event(frame)
                kind = frame["type"]
                if kind == "response.output_item.done" and frame["item"]["type"] in OUTPUT_TYPE_OF:
                    nursery.start_soon(_answer, socket, player, frame["item"])
                elif kind == "response.done":
                    parks += 1
                    if any(stub["type"] == "message" for stub in frame["required_input"]):
                        await _speak(socket, player)
                elif kind in TERMINAL:
                    response = frame["response"]
                    return Played(response["output"], [response], parks, socket.bytes_up - up, socket.bytes_down - down)


async def _answer(socket: "_Socket", player: Player, call: Frame) -> None:
    await socket.send({"type": "response.append", "input": [await player.output(call)]})


async def _speak(socket: "_Socket", player: Player) -> None:
    more = await player.next_input()
    await socket.send({"type": "response.append", "input": more} if more else {"type": "response.finish"})


# ---- bytes


@define(eq=False)
class _Bytes:
    """What has come on a stream, and was not used."""

    stream: trio.abc.Stream
    data: bytearray = field(factory=bytearray)

    async def more(self) -> None:
        """Wait for more. Raises ``ConnectionLost`` when there is none."""
        try:
            some = await self.stream.receive_some(RECEIVE_BYTES)
        except trio.BrokenResourceError as error:
            raise ConnectionLost(f"the connection broke: {error.__cause__}") from error
        if not some:
            raise ConnectionLost("the server has closed the connection")
        self.data += some

    async def send(self, data: bytes) -> None:
        """Send. Raises ``ConnectionLost``."""
        try:
            await self.stream.send_all(data)
        except trio.BrokenResourceError as error:
            raise ConnectionLost(f"the connection broke: {error.__cause__}") from error

    async def until(self, mark: bytes) -> bytes:
        """Take what stands in front of ``mark``, and the mark."""
        while (end := self.data.find(mark)) < 0:
            await self.more()
        return self.take(end + len(mark))

    async def exactly(self, size: int) -> bytes:
        """Take so many bytes."""
        while len(self.data) < size:
            await self.more()
        return self.take(size)

    def take(self, size: int) -> bytes:
        taken = bytes(self.data[:size])
        del self.data[:size]
        return taken


def _read(payload: bytes) -> Frame:
    """A frame; of a delta nothing but its type. Raises ``RolloutError`` for an error."""
    kind = payload[len(TYPE) : payload.find(b'"', len(TYPE))]
    if kind.endswith(b".delta"):
        return {"type": kind.decode()}
    frame: Frame = parse(payload)
    if frame["type"] == "error":
        raise RolloutError.of(frame)
    return frame


# ---- WebSocket


@define(eq=False)
class _Socket:
    """A WebSocket, and a ``chains.Wire`` of the create shape."""

    _bytes: _Bytes
    bytes_up: int = 0
    bytes_down: int = 0
    _lock: trio.Lock = field(factory=trio.Lock)

    async def shake_hands(self, host: str) -> None:
        await self._bytes.send(UPGRADE.format(host=host).encode())
        head = await self._bytes.until(b"\r\n\r\n")
        if b" 101 " not in head.partition(b"\r\n")[0]:
            raise ConnectionLost("the upgrade was refused")

    async def send(self, message: Mapping[str, Any]) -> None:
        payload = encode(message)
        self.bytes_up += len(payload)
        async with self._lock:
            await self._bytes.send(_masked(TEXT, payload))

    async def frames(self) -> list[Frame]:
        """All that have come, at least one."""
        while True:
            pongs: list[bytes] = []
            frames = [_read(payload) for payload in self._payloads(pongs)]
            for pong in pongs:
                async with self._lock:
                    await self._bytes.send(pong)
            if frames:
                return frames
            await self._bytes.more()

    async def turn(self, body: Mapping[str, Any], on_event: OnEvent) -> Frame:
        """As ``chains.Wire``."""
        await self.send({"type": "response.create", **body})
        while True:
            for frame in await self.frames():
                on_event(frame)
                if frame["type"] in TERMINAL:
                    response: Frame = frame["response"]
                    return response

    def _payloads(self, pongs: list[bytes]) -> Iterator[bytes]:
        """The payloads of all whole text frames. Pings leave what answers them in ``pongs``."""
        data, at = self._bytes.data, 0
        while (found := _frame_at(data, at)) is not None:
            code, start, end = found
            payload, at = bytes(data[start:end]), end
            if code == CLOSE:
                raise ConnectionLost("the server has closed the socket")
            if code == PING:
                pongs.append(_masked(PONG, payload))
            elif code == TEXT:
                self.bytes_down += len(payload)
                yield payload
        del data[:at]


def _frame_at(data: bytearray, at: int) -> tuple[int, int, int] | None:
    """The code of the frame that begins at ``at``, and where its payload begins and ends; None if it is not whole yet."""
    have = len(data)
    if have < at + 2:
        return None
    size, start = data[at + 1], at + 2
    if size > 125:
        start = at + (4 if size == 126 else 10)
        if have < start:
            return None
        size = int.from_bytes(data[at + 2 : start])
    return None if have < start + size else (data[at] & 0xF, start, start + size)


def _masked(code: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | code, 0x80 | size))
    elif size < 65_536:
        head = bytes((0x80 | code, 0xFE)) + size.to_bytes(2)
    else:
        head = bytes((0x80 | code, 0xFF)) + size.to_bytes(8)
    mask = os.urandom(4)
    return head + mask + apply_mask(payload, mask)


# ---- HTTP


@define(eq=False)
class _Http:
    """An HTTP connection that is kept: a ``chains.Wire`` of the http shape."""

    _bytes: _Bytes
    _host: str
    bytes_up: int = 0
    bytes_down: int = 0

    async def turn(self, body: Mapping[str, Any], on_event: OnEvent) -> Frame:
        """As ``chains.Wire``."""
        content = encode({**body, "stream": True})
        self.bytes_up += len(content)
        await self._bytes.send(POST.format(host=self._host, size=len(content)).encode() + content)
        head = (await self._bytes.until(b"\r\n\r\n")).lower()
        if b" 200 " not in head.partition(b"\r\n")[0]:
            size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            raise RolloutError.of(parse(await self._bytes.exactly(size)), int(head.split(b" ")[1]))
        response: Frame | None = None
        text = b""
        while chunk := await self._chunk():
            self.bytes_down += len(chunk)
            *events, text = (text + chunk).split(b"\n\n")
            for event in events:
                payload = event.partition(b"\ndata: ")[2]
                if payload:
                    frame = _read(payload)
                    on_event(frame)
                    response = frame["response"] if frame["type"] in TERMINAL else response
        if response is None:
            raise ConnectionLost("the stream ended before the Response did")
        return response

    async def _chunk(self) -> bytes:
        """The next chunk of the body; nothing at its end."""
        size = int(await self._bytes.until(b"\r\n"), 16)
        return (await self._bytes.exactly(size + 2))[:size]
