"""How the machine reaches a server. Anything with these methods will do: sockets in memory, over TCP, or no sockets at all."""

from collections.abc import Sequence
from typing import Any, Protocol


class Closed(Exception):
    """The socket is closed, by whichever side."""


class Socket(Protocol):
    """One client's socket."""

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


class Transport(Protocol):
    """A server that can be connected to."""

    @property
    def exact(self) -> bool:
        """Whether after ``settle`` nothing happens but what time brings: true where time is virtual."""
        ...

    async def connect(self, *, key: str | None = None, beta: str | None = None) -> Socket:
        """A new socket. ``key`` is a bearer key, ``beta`` the ``OpenAI-Beta`` header."""
        ...

    async def settle(self) -> None:
        """Return when the server has nothing more to do or say for now, as far as can be known."""
        ...


class Books(Protocol):
    """What can be known of a server beside its wire. All of it is optional: a method may return None for *don't know*."""

    def rows(self, response_id: str) -> Sequence[dict[str, Any]] | None:
        """The ledger's rows of a Response."""
        ...

    def context(self, response_id: str) -> Sequence[dict[str, Any]] | None:
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
