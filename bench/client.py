"""The client of all benchmarks, the same for both sides: a blocking socket, and as little of RFC 6455 as a client needs.

It is blocking and bare so that it adds little to what it measures, and the same to both sides. Frames from a server are
unmasked; fragments do not occur; pings are answered with nothing, since servers here do not ping.
"""

import json
import os
import socket
from typing import Any, Final

RECEIVE_BYTES: Final = 262_144
"""One read takes what a fast server has written meanwhile."""

TERMINAL: Final = tuple(f'{{"type":"response.{how}"'.encode() for how in ("completed", "incomplete", "failed"))
ERROR: Final = b'{"type":"error"'
TEXT_FRAME: Final = 0x81


class Client:
    """One WebSocket. Raises ``OSError``, and ``RuntimeError`` when the server says what no benchmark expects."""

    def __init__(self, port: int, seconds: float = 120.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self._at = 0
        self._shake_hands()

    def close(self) -> None:
        """Drop the socket, as a client does that has crashed: without a word."""
        self._socket.close()

    def send(self, payload: bytes) -> None:
        """Send one text frame."""
        self._socket.sendall(frame(payload))

    def send_json(self, message: Any) -> None:
        """Send one text frame of JSON."""
        self.send(json.dumps(message).encode())

    def receive(self) -> bytes:
        """The payload of the next frame."""
        while True:
            data, start = self._data, self._at
            have = len(data) - start
            if have >= 2:
                size, head = data[start + 1], 2
                if size == 126 and have >= 4:
                    size, head = int.from_bytes(data[start + 2 : start + 4], "big"), 4
                elif size == 127 and have >= 10:
                    size, head = int.from_bytes(data[start + 2 : start + 10], "big"), 10
                elif size >= 126:
                    head = have + 1  # the size is not here yet
                if have >= head + size:
                    self._at = start + head + size
                    return data[start + head : self._at]
            self._fill()

    def until(self, *prefixes: bytes) -> bytes:
        """The next payload that begins with one of ``prefixes``; what comes before it is read over."""
        while not (payload := self.receive()).startswith(prefixes):
            if payload.startswith(ERROR):
                raise RuntimeError(f"the server answered {payload!r}")
        return payload

    def all(self) -> list[bytes]:
        """All payloads up to the terminal event."""
        payloads = [self.receive()]
        while not payloads[-1].startswith(TERMINAL):
            payloads.append(self.receive())
        return payloads

    def _fill(self) -> None:
        more = self._socket.recv(RECEIVE_BYTES)
        if not more:
            raise RuntimeError("the server closed the connection")
        self._data = self._data[self._at :] + more
        self._at = 0

    def _shake_hands(self) -> None:
        self._socket.sendall(
            b"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            b"OpenAI-Beta: responses_websockets=2026-02-04\r\n\r\n"
        )
        while b"\r\n\r\n" not in self._data:
            self._fill()
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(f"the server refused the handshake: {head!r}")


def frame(payload: bytes) -> bytes:
    """``payload`` as one text frame, masked as a client must."""
    size = len(payload)
    if size < 126:
        head = bytes((TEXT_FRAME, 0x80 | size))
    elif size < 65_536:
        head = bytes((TEXT_FRAME, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((TEXT_FRAME, 0x80 | 127)) + size.to_bytes(8, "big")
    mask = os.urandom(4)
    pad = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ pad).to_bytes(size, "big")
