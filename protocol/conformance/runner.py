"""How conversations are played: each in an event loop of its own, since Hypothesis calls plain functions."""

import ssl
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import trio
from attrs import field, frozen

from .sockets import CONNECTIONS, QUIET_SECONDS, socket_transport
from .transport import Books, NoBooks, Transport

T = TypeVar("T")
Scene = Callable[[Transport, Books], Awaitable[T]]


class TooLong(TimeoutError):
    """A scene was not over in its time."""


class Runner(Protocol):
    """Runs scenes with a server: always the same, or a fresh one for each."""

    @property
    def server(self) -> str:
        """Which, in words."""
        ...

    @property
    def exact(self) -> bool:
        """Whether time is virtual: then all waiting is free, and conversations may be long."""
        ...

    def run(self, scene: Scene[T]) -> T:
        """Run ``scene`` to its end, in an event loop of its own; raises what it raises."""
        ...


@frozen(kw_only=True)
class AtUrl:
    """A server at ``url``. ``connections`` is the most that there are at once, ``seconds`` how long a scene may take."""

    url: str
    key: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    connections: int = CONNECTIONS
    quiet_seconds: float = QUIET_SECONDS
    seconds: float = 120.0
    exact: bool = field(default=False, init=False)

    @property
    def server(self) -> str:
        """Its URL."""
        return self.url

    def run(self, scene: Scene[T]) -> T:
        """Run ``scene``, with its own connections; raises ``TooLong``."""

        async def main() -> T:
            options = {"key": self.key, "tls": self.tls, "connections": self.connections, "quiet_seconds": self.quiet_seconds}
            try:
                with trio.fail_after(self.seconds):
                    async with socket_transport(self.url, **options) as transport:
                        return await scene(transport, NoBooks())
            except trio.TooSlowError:
                raise TooLong(f"a conversation was not over in {self.seconds:g} s") from None

        return trio.run(main)


def run_plainly(runner: Runner, scene: Scene[T]) -> T:
    """Run ``scene``; of a group of errors the one that matters is raised."""
    try:
        return runner.run(scene)
    except BaseExceptionGroup as group:
        raise plain(group) from None


def plain(error: BaseException) -> BaseException:
    """The error that matters of a group: an interrupt before all others."""
    while isinstance(error, BaseExceptionGroup):
        interrupt = error.subgroup(KeyboardInterrupt)
        error = (interrupt or error).exceptions[0]
    return error
