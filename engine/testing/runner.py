"""The built-in engine for the conformance kit: a fresh server in memory for each conversation, in virtual time."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import trio
from attrs import field, frozen

from protocol.conformance.runner import Scene
from protocol.conformance.streams import HttpExchange

from ..config import Config
from .clients import DirectSocket
from .servers import MemoryServer, direct_socket, memory_server, virtually
from .tools import FakeSearch

T = TypeVar("T")

PATIENT: Final = Config(connection_seconds=1e9, finished_seconds=1e9, finished=1000, thread_bytes=2**40)
"""Conversations sleep for longer than connections live, and look for Responses that ended long ago; and virtual time does not
wait for threads."""


@frozen(kw_only=True)
class InMemory:
    """Runs scenes with an engine in this process. ``options`` are those of ``make_services``."""

    config: Config = PATIENT
    direct: bool = False
    """Without WebSockets below the frames: faster. What is below them then goes untried, HTTP is as ever."""
    options: Mapping[str, Any] = field(factory=dict)
    server: str = field(default="the engine in memory", init=False)
    exact: bool = field(default=True, init=False)

    def run(self, scene: Scene[T]) -> T:
        """Run ``scene``, and raise what the engine reports as bugs of its own."""

        async def main() -> T:
            hosted = {"file_search": FakeSearch(seconds=0.5)}
            async with memory_server(config=self.config, **{"hosted": hosted, **self.options}) as server:
                return await scene(_Direct(server) if self.direct else server, server)

        return virtually(main)


@frozen
class _Direct:
    """``server``, of which a socket is a ``Session`` that is fed at once."""

    server: MemoryServer
    exact: bool = field(default=True, init=False)

    async def connect(self, *, key: str | None = None, beta: str | None = None) -> DirectSocket:
        """A socket; raises ``ProtocolError`` for a wrong key."""
        await trio.lowlevel.checkpoint()
        return direct_socket(self.server.engine, key, beta)

    async def request(self, method: str, path: str, body: bytes | None = None, **options: Any) -> HttpExchange:
        """As the server does."""
        return await self.server.request(method, path, body, **options)

    async def settle(self) -> None:
        """As the server does."""
        await self.server.settle()
