"""The stream below a WebSocket: complete frames go into one FIFO buffer, and from there to the kernel in few writes.

Why. Sending each event by itself costs a lock, a checkpoint and a system call. A burst of events wants to be one write. So
events are put into a buffer, as complete text frames (RFC 6455, 5.2: FIN, opcode 1, unmasked, as servers send), and so are
pongs and the close frame. Whoever has put a burst calls ``flush``, a plain function that hands the kernel what it takes without
waiting: no switch of tasks, no scope, one system call. What the kernel does not take, a task writes that sleeps otherwise.

Only whole frames enter the buffer, and only its front is taken, by the one or by the other and never by both; the task's writes
are shielded. So no frame is ever cut in half but by the socket's own death; after a write that failed or overran its deadline
nothing is written any more. After a close frame no other frame follows it.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

CLOSE_FRAME: Final = 0x88
"""First byte of a close frame: FIN, opcode 8."""

TEXT_FRAME: Final = 0x81
"""First byte of a text frame: FIN, opcode 1."""

POSIX: Final = os.name == "posix"
"""Whether a socket can be read and written like a file."""

PING: Final = b"\x89\x00"
"""A ping without a payload."""


def text_frame(payload: bytes) -> bytes:
    """``payload`` (UTF-8) as one unmasked text frame: RFC 6455, section 5.2."""
    size = len(payload)
    if size < 126:
        return b"%c%c%b" % (TEXT_FRAME, size, payload)
    if size < 65536:
        return b"%c%c%b%b" % (TEXT_FRAME, 126, size.to_bytes(2, "big"), payload)
    return b"%c%c%b%b" % (TEXT_FRAME, 127, size.to_bytes(8, "big"), payload)


def masked(data: bytes, mask: bytes) -> bytes:
    """``data`` with a mask of four bytes put on, or taken off: RFC 6455, section 5.3."""
    size = len(data)
    repeated = mask * (size // 4 + 1)
    return (int.from_bytes(data) ^ int.from_bytes(repeated[:size])).to_bytes(size)


try:
    from websockets.speedups import apply_mask as apply_mask  # lean clients want it, too
except ImportError:  # it comes with the extra ``fast``
    apply_mask = masked  # type: ignore[assignment]


def lone_text(data: bytes) -> str | None:
    """The text of ``data``, if it is one masked text frame, whole and valid, and nothing else: RFC 6455, section 5.2.

    That is how nearly all messages come. What is anything else is for those who know all of the RFC.
    """
    if len(data) < 6 or data[0] != TEXT_FRAME or data[1] < 0x80:
        return None
    size, start = data[1] & 0x7F, 2
    if size > 125:
        start = 4 if size == 126 else 10
        size = int.from_bytes(data[2:start])
        if size < (126 if start == 4 else 65536):
            return None
    if len(data) != start + 4 + size:
        return None
    try:
        return apply_mask(data[start + 4 :], data[start : start + 4]).decode()
    except UnicodeDecodeError:
        return None


def missing_at_end(data: bytes, missing: int = 0) -> int | None:
    """How many bytes the last frame lacks of which ``data`` is a part, if it begins ``missing`` bytes before another one.

    None, if it ends within a frame's head.
    """
    at = missing
    while at < len(data):
        head = data[at : at + 10]
        start = {126: 4, 127: 10}.get(head[1] & 0x7F, 2) if len(head) > 1 else 10
        if len(head) < start:
            return None
        size = int.from_bytes(head[2:start]) if start > 2 else head[1] & 0x7F
        at += start + (4 if head[1] & 0x80 else 0) + size
    return at - len(data)


def close_frame(code: int, reason: str = "") -> bytes:
    """A close frame: RFC 6455, section 5.5.1. ``reason`` has at most 123 bytes."""
    payload = code.to_bytes(2, "big") + reason.encode()
    return b"%c%c%b" % (CLOSE_FRAME, len(payload), payload)


class ReadyStream(trio.abc.HalfCloseableStream):
    """A stream in memory that takes bytes without waiting."""

    def send_nowait(self, data: bytes | bytearray) -> int:
        """Send at once; returns how many bytes were taken, none if the stream is closed or broken."""
        raise NotImplementedError


class FrameStream:
    """A buffered stream of frames on ``raw``."""

    __slots__ = (
        "_broken",
        "_buffer",
        "_close_seconds",
        "_closing",
        "_full",
        "_idle",
        "_on_drained",
        "_raw",
        "_send_seconds",
        "_wake",
        "_writing",
        "received_at",
    )

    def __init__(self, raw: trio.abc.Stream, *, send_seconds: float, close_seconds: float) -> None:
        self._raw = raw
        self._send_seconds = send_seconds
        self._close_seconds = close_seconds
        self._buffer = bytearray()
        self._writing = 0
        self._wake = trio.Event()
        self._idle = trio.lowlevel.ParkingLot()
        self._full = False
        """Whether the kernel has not taken all of a write: until the writer has got rid of the rest, nobody else writes.
        Whatever room there is would be filled with crumbs, which a slow receiver's window drowns in."""
        self._closing = False
        self._broken = False
        self._on_drained: Callable[[], None] = _nothing
        self.received_at = trio.current_time()
        """When something last came, if only a pong."""

    def on_drained(self, notify: Callable[[], None]) -> None:
        """Call ``notify`` after each write."""
        self._on_drained = notify

    @property
    def waiting(self) -> int:
        """Bytes that were put and are not in the kernel yet."""
        return len(self._buffer) + self._writing

    def put(self, payload: bytes) -> None:
        """Send ``payload`` as a text frame with the next ``flush``; does nothing once the stream is closing."""
        if not (self._closing or self._broken):
            self._buffer += text_frame(payload)

    def put_control(self, frame: bytes) -> None:
        """Send ``frame``, which is not text, now; never blocks. After a close frame nothing is put."""
        if not (self._closing or self._broken):
            self._closing = frame[0] == CLOSE_FRAME
            self._buffer += frame
            self.flush()

    def ping(self) -> None:
        """Ask the peer whether it is there: RFC 6455, section 5.5.2. Whatever comes then shows in ``received_at``."""
        self.put_control(PING)

    def close(self, code: int, reason: str = "") -> None:
        """Begin the closing handshake; nothing is put after it. The peer's answer ends the connection."""
        self.put_control(close_frame(code, reason))

    def flush(self) -> None:
        """Write now what the kernel takes without waiting, and leave the rest to the writer; never blocks."""
        if self._full or self._writing or not self._buffer or self._broken:
            return
        sent = self._write_some()
        self._full = sent < len(self._buffer)
        if sent:
            del self._buffer[:sent]
            self._on_drained()
        if self._buffer:
            self._wake.set()

    def _write_some(self) -> int:
        """How many bytes the kernel took at once. An error shows again when the writer writes."""
        if not isinstance(self._raw, trio.SocketStream):
            # One of another kind, TLS for example, can only be awaited.
            return self._raw.send_nowait(self._buffer) if isinstance(self._raw, ReadyStream) else 0
        try:
            return os.write(self._raw.socket.fileno(), self._buffer)
        except OSError:
            return 0

    async def receive_some(self, max_bytes: int) -> bytes | bytearray:
        """What the peer sent; nothing, when the connection is gone. Cancellation loses nothing."""
        try:
            data = await receive(self._raw, max_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""
        self.received_at = trio.current_time()
        return data

    async def write(self) -> None:
        """The writer: run it as a task for as long as the connection lives.

        Returns when a write failed or took too long; the raw stream is closed then. Cancellation lets a write that has
        begun end, within ``send_seconds``.
        """
        while not self._broken:
            await self._wake.wait()
            self._wake = trio.Event()
            await self._flush()

    async def aclose(self) -> None:
        """Write what waits, within ``close_seconds``, then close the raw stream, whatever happens."""
        try:
            self._closing = True
            with trio.move_on_after(self._close_seconds, shield=True):
                while self.waiting and not self._broken:
                    await self._flush()
                if not self._broken:
                    await linger(self._raw)
        finally:
            self._broken = True
            self._wake.set()
            await trio.aclose_forcefully(self._raw)

    async def _flush(self) -> None:
        if self._writing:
            await self._idle.park()
            return
        while self._buffer and not self._broken:
            data, self._buffer = self._buffer, bytearray()
            self._writing = len(data)
            try:
                await self._send(data)
            finally:
                self._writing = 0
                self._idle.unpark_all()
            self._on_drained()
        self._full = False

    async def _send(self, data: bytearray) -> None:
        with trio.move_on_after(self._send_seconds, shield=True) as scope:
            try:
                await self._raw.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._broken = True
        if scope.cancelled_caught:
            self._broken = True
            await trio.aclose_forcefully(self._raw)


async def receive(stream: trio.abc.Stream, max_bytes: int) -> bytes | bytearray:
    """As ``stream.receive_some``, for a peer that has mostly nothing to say yet.

    trio reads a socket before it waits for it: where nothing has come, that is a system call and an exception for nothing,
    at every message. Raises and leaves behind what ``receive_some`` does.
    """
    if not POSIX or not isinstance(stream, trio.SocketStream):
        return await stream.receive_some(max_bytes)
    while True:
        await trio.lowlevel.wait_readable(stream.socket)
        try:
            return os.read(stream.socket.fileno(), max_bytes)
        except BlockingIOError:
            continue
        except OSError as error:
            raise trio.BrokenResourceError from error


async def linger(stream: trio.abc.Stream) -> None:
    """Let the peer read our last words: closing with unread input would reset the connection and lose them.

    Returns when the peer has closed too; the caller sets a deadline.
    """
    if isinstance(stream, trio.abc.HalfCloseableStream):
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            await stream.send_eof()
            while await stream.receive_some(65536):
                pass


def _nothing() -> None:
    """What is called after a write while nobody wants to know."""
