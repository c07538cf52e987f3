"""The HTTP side of the port, parsed by h11: reads a request's head, and answers what is no WebSocket."""

from collections.abc import Iterable
from typing import Any

import h11
import trio
from attrs import frozen

from protocol.codec import encode
from protocol.errors import ErrorEvent, ProtocolError

from .framing import linger


@frozen
class Head:
    """A request's head. ``raw`` is all that was read, so that another parser can read it again."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    raw: bytes

    def get(self, name: str) -> str | None:
        """A header's value, by its lower-case name; several are joined by commas."""
        values = [value for key, value in self.headers if key == name]
        return ", ".join(values) if values else None

    def has_token(self, name: str, token: str) -> bool:
        """Whether a header that is a list of tokens has ``token``."""
        return token in [one.strip().lower() for one in (self.get(name) or "").split(",")]


class BadRequest(Exception):
    """The peer does not speak HTTP, or too much of it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


async def read_head(stream: trio.abc.Stream, limit: int) -> Head | None:
    """Read one request's head; None if the peer closed before it sent any. Raises ``BadRequest``."""
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=limit)
    raw = bytearray()
    while True:
        try:
            event = parser.next_event()
        except h11.RemoteProtocolError as error:
            raise BadRequest(error.error_status_hint, str(error)) from None
        if isinstance(event, h11.Request):
            return _head(event, bytes(raw))
        if event is not h11.NEED_DATA:
            return None
        data = bytes(await stream.receive_some(limit))
        raw += data
        parser.receive_data(data)


def _head(request: h11.Request, raw: bytes) -> Head:
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers)
    target = request.target.decode("latin-1")
    return Head(request.method.decode("latin-1"), target.partition("?")[0], headers, raw)


async def respond(stream: trio.abc.Stream, status: int, body: Any, headers: Iterable[tuple[str, str]] = ()) -> None:
    """Send a JSON answer, the last on its connection, and wait (the caller has a deadline) until the peer has it."""
    content = encode(body)
    fields = [
        ("content-type", "application/json"),
        ("content-length", str(len(content))),
        ("connection", "close"),
        *headers,
    ]
    connection = h11.Connection(h11.SERVER)
    head = connection.send(h11.Response(status_code=status, headers=fields)) or b""
    await stream.send_all(head + content)
    await linger(stream)


async def refuse(stream: trio.abc.Stream, error: ProtocolError, headers: Iterable[tuple[str, str]] = ()) -> None:
    """Send ``error`` in the Responses API's shape."""
    await respond(stream, error.status, {"error": ErrorEvent(error).to_wire()["error"]}, headers)
