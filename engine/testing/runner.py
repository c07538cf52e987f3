"""The built-in engine for the conformance kit: a fresh server in memory for each conversation, in virtual time."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from attrs import field, frozen

from protocol.conformance.runner import Scene

from ..config import Config
from .servers import memory_server, virtually
from .tools import FakeSearch

T = TypeVar("T")

PATIENT: Final = Config(connection_seconds=1e9, finished_seconds=1e9, finished=1000)
"""Conversations sleep for longer than connections live, and look for Responses that ended long ago."""


@frozen(kw_only=True)
class InMemory:
    """Runs scenes with an engine in this process. ``options`` are those of ``make_services``."""

    config: Config = PATIENT
    options: Mapping[str, Any] = field(factory=dict)
    server: str = field(default="the engine in memory", init=False)
    exact: bool = field(default=True, init=False)

    def run(self, scene: Scene[T]) -> T:
        """Run ``scene``, and raise what the engine reports as bugs of its own."""

        async def main() -> T:
            hosted = {"file_search": FakeSearch(seconds=0.5)}
            async with memory_server(config=self.config, **{"hosted": hosted, **self.options}) as server:
                return await scene(server, server)

        return virtually(main)
