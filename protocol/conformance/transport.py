"""How the kit reaches a server. Anything with these methods will do: streams in memory, over TCP, or no network at all."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from attrs import frozen

Frame = dict[str, Any]
"""A JSON object, as it is on the wire."""

Shape = Literal["append", "create", "http"]


class Closed(Exception):
    """The connection is closed, by whichever side."""


class Refused(Exception):
    """The handshake of a WebSocket was answered with another status than 101."""

    def __init__(self, status: int, body: bytes = b"") -> None:
        super().__init__(f"the handshake was refused with {status}")
        self.status = status
        self.body = body


class Socket(Protocol):
    """One client's WebSocket."""

    async def send(self, message: str | bytes) -> None:
        """Send one frame; raises ``Closed``."""
        ...

    async def receive_text(self) -> str:
        """The next text frame; raises ``Closed``. Whoever stops calling this has stopped reading."""
        ...

    async def drop(self) -> None:
        """Break the connection without a word."""
        ...

    async def aclose(self) -> None:
        """Close politely."""
        ...


@frozen
class ServerSentEvent:
    """One event of a stream: what its ``event`` line says, if it has one, and its ``data`` lines."""

    data: str
    event: str | None = None


class Exchange(Protocol):
    """An HTTP request that was sent, and the answer, whose head was read. Its connection serves this one only."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The answer's headers, names in small letters."""
        ...

    async def read(self) -> bytes:
        """The whole body; raises ``Closed`` if it ends before its end. Closes the connection."""
        ...

    async def next_event(self) -> ServerSentEvent | None:
        """The next event of a ``text/event-stream``, comments skipped; None at its end. Raises ``Closed``."""
        ...

    async def drop(self) -> None:
        """Break the connection without a word."""
        ...


class Transport(Protocol):
    """A server that can be connected to."""

    @property
    def exact(self) -> bool:
        """Whether after ``settle`` nothing happens but what time brings: true where time is virtual."""
        ...

    async def connect(self, *, key: str | None = None, beta: str | None = None) -> Socket:
        """A new socket. ``key`` is a bearer key, ``beta`` the ``OpenAI-Beta`` header. Raises ``Refused`` and ``OSError``."""
        ...

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        key: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Exchange:
        """Send a request, and read the head of its answer. ``path`` stands behind ``/v1``: ``/responses``, say. A body is JSON
        unless ``headers`` say otherwise. Raises ``Closed`` and ``OSError``; cancelled, it closes the connection."""
        ...

    async def settle(self) -> None:
        """Return when the server has nothing more to do or say for now, as far as can be known."""
        ...


class Books(Protocol):
    """What can be known of a server beside its wire. All of it is optional: a method may return None for *don't know*."""

    def rows(self, response_id: str) -> Sequence[Frame] | None:
        """The ledger's rows of a Response."""
        ...

    def context(self, response_id: str) -> Sequence[Frame] | None:
        """The items of an ended Response's context, in order, on the wire's form."""
        ...

    def leftovers(self) -> Sequence[str] | None:
        """What is still alive in the server, in words, when all Responses have ended and all sockets are closed."""
        ...


class NoBooks:
    """A server of which only the wire is known."""

    def rows(self, response_id: str) -> None:
        """Unknown."""

    def context(self, response_id: str) -> None:
        """Unknown."""

    def leftovers(self) -> None:
        """Unknown."""
