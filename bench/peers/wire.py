"""The client of this benchmark, the same for every side: one read of a socket at a time, and what events it brought.

A rollout is played on one of these alone, by waiting; and a hundred side by side, each read when its socket has something.
"""

import socket
from collections.abc import Iterator
from typing import Final, Protocol

from ..client import PATH, RECEIVE_BYTES, Client, dial, frame, post

KEY: Final = "sk-" + "0123456789abcdef" * 2
"""A key, since litellm opens its WebSocket to nobody without. The others ask for none."""
DATA: Final = b"data: "
END: Final = b"\r\n0\r\n\r\n"
"""What ends an answer in chunks."""


class Wire(Protocol):
    """A connection on which a rollout is played."""

    def fileno(self) -> int:
        """The socket's."""
        ...

    def packed(self, payload: bytes) -> bytes:
        """A request, which is JSON, as it goes over the connection."""
        ...

    def put(self, packed: bytes) -> None:
        """Send a request that was packed."""
        ...

    def read(self) -> bytes:
        """Wait for bytes, once. Raises ``RuntimeError`` if the server has closed the connection."""
        ...

    def events(self, data: bytes) -> Iterator[bytes]:
        """The events that are whole with ``data``, as JSON."""
        ...

    @property
    def free(self) -> bool:
        """Whether all of the last answer has come."""
        ...

    def close(self) -> None:
        """Drop it."""
        ...


class Socket(Client):
    """A WebSocket."""

    headers = f"Authorization: Bearer {KEY}\r\n".encode()
    free = True

    def fileno(self) -> int:
        return self._socket.fileno()

    def packed(self, payload: bytes) -> bytes:
        return frame(payload)

    def put(self, packed: bytes) -> None:
        self._socket.sendall(packed)

    def read(self) -> bytes:
        return _received(self._socket)

    def events(self, data: bytes) -> Iterator[bytes]:
        self._data = self._data[self._at :] + data
        self._at = 0
        while (payload := self._whole()) is not None:
            yield payload


class Http:
    """An HTTP connection that is kept, with answers in server-sent events."""

    def __init__(self, port: int, seconds: float = 120.0) -> None:
        self._socket = dial(port, seconds)
        self._data = b""
        self.free = True

    def fileno(self) -> int:
        return self._socket.fileno()

    def packed(self, payload: bytes) -> bytes:
        return post(PATH, payload)

    def put(self, packed: bytes) -> None:
        self.free = False
        self._socket.sendall(packed)

    def read(self) -> bytes:
        return _received(self._socket)

    def events(self, data: bytes) -> Iterator[bytes]:
        whole = self._data + data
        if whole.startswith(b"HTTP/1.1 ") and not whole.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"the server answered {whole!r}")
        if whole.endswith(END):
            self.free = True
        *events, self._data = whole.split(b"\n\n")
        if self.free:
            self._data = b""
        for event in events:
            payload = event.partition(DATA)[2]
            if payload:
                yield payload

    def close(self) -> None:
        self._socket.close()


def _received(connection: socket.socket) -> bytes:
    more = connection.recv(RECEIVE_BYTES)
    if not more:
        raise RuntimeError("the server closed the connection")
    return more
