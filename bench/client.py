"""The clients of all benchmarks, the same for both sides: a blocking socket, and as little of RFC 6455 or of HTTP as one needs.

They are blocking and bare so that they add little to what they measure, and the same to both sides. Frames from a server are
unmasked; fragments do not occur; pings are answered with nothing, since servers here do not ping.
"""

import json
import os
import re
import socket
from typing import Any, Final

PATH: Final = "/v1/responses"
RECEIVE_BYTES: Final = 65_536
"""One read takes what a fast server has written meanwhile. (More, and each read would ask the system for fresh memory.)"""

TERMINAL: Final = tuple(f'{{"type":"response.{how}"'.encode() for how in ("completed", "incomplete", "failed"))
ERROR: Final = b'{"type":"error"'
TEXT_FRAME: Final = 0x81


class Client:
    """One WebSocket. Raises ``OSError``, and ``RuntimeError`` when the server says what no benchmark expects."""

    headers = b""
    """What the handshake says beside."""

    def __init__(self, port: int, seconds: float = 120.0) -> None:
        self._socket = dial(port, seconds)
        self._data = b""
        self._at = 0
        self._shake_hands()

    @property
    def connection(self) -> socket.socket:
        """The socket, for who reads it himself."""
        return self._socket

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
        while (payload := self._whole()) is None:
            self._fill()
        return payload

    def _whole(self) -> bytes | None:
        """The payload of the next frame, if it has come."""
        data, start = self._data, self._at
        have = len(data) - start
        if have < 2:
            return None
        size, head = data[start + 1], 2
        if size == 126 and have >= 4:
            size, head = int.from_bytes(data[start + 2 : start + 4], "big"), 4
        elif size == 127 and have >= 10:
            size, head = int.from_bytes(data[start + 2 : start + 10], "big"), 10
        elif size >= 126:
            return None  # the size is not here yet
        if have < head + size:
            return None
        self._at = start + head + size
        return data[start + head : self._at]

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
            b"OpenAI-Beta: responses_websockets=2026-02-04\r\n" + self.headers + b"\r\n"
        )
        while b"\r\n\r\n" not in self._data:
            self._fill()
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(f"the server refused the handshake: {head!r}")


class HttpClient:
    """One HTTP connection that is kept: POSTs JSON. Raises ``OSError``, and ``RuntimeError`` for an answer that is an error."""

    def __init__(self, port: int, seconds: float = 120.0) -> None:
        self._socket = dial(port, seconds)

    def post(self, path: str, payload: bytes) -> bytes:
        """The body of the answer, whose length its head says."""
        self.send(path, payload)
        head, body = self._head()
        size = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]
        while len(body) < size:
            body += self._receive()
        return body

    def send(self, path: str, payload: bytes) -> None:
        """Send a POST, and leave its answer to ``first_event`` and ``rest``."""
        self._socket.sendall(post(path, payload))

    def first_event(self, mark: bytes = b"\n\n") -> bytes:
        """What has come when the first server-sent event is whole; or one that has ``mark`` in it."""
        _, body = self._head()
        while mark not in body:
            body += self._receive()
        return body

    def rest(self, body: bytes) -> bytes:
        """All of the events, of which ``body`` has come: the body of an answer in chunks."""
        while not body.endswith(b"\r\n0\r\n\r\n"):
            body += self._receive()
        return body

    def _head(self) -> tuple[bytes, bytes]:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        head, _, body = data.partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(f"the server answered {data!r}")
        return head, body

    def _receive(self) -> bytes:
        data = self._socket.recv(RECEIVE_BYTES)
        if not data:
            raise RuntimeError("the server closed the connection")
        return data


def dial(port: int, seconds: float) -> socket.socket:
    """A connection; each operation on it may take ``seconds``."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def post(path: str, payload: bytes) -> bytes:
    """A POST of ``payload``, which is JSON."""
    head = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (path.encode(), len(payload)) + payload


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
