"""Looks for a fault: plays generated conversations until one shows it, then lets Hypothesis make that one short."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from attrs import define, field, frozen
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from engine.testing import virtually
from protocol.conformance.append.conversations import conversations
from protocol.conformance.append.machine import play
from protocol.conformance.story import ConformanceError
from protocol.conformance.transport import Shape

from .faulty import Traffic, faulty_server

EXAMPLES: Final = 2000
"""Each fault must be found within so many conversations."""

SHRINKING: Final = 250
"""How many conversations are tried to make the first one shorter."""

SEED: Final = 4


@frozen(kw_only=True)
class Found:
    """A fault was found, after ``examples`` conversations; ``traffic`` is that of the shortest one, until it showed."""

    error: ConformanceError
    examples: int
    traffic: Traffic

    @property
    def frames(self) -> int:
        """Both ways."""
        return self.traffic.sent + self.traffic.got


@define(eq=False)
class Hunt:
    """One search. Each conversation is played once; when enough was tried, all that is new passes for sound."""

    name: str | None
    shape: Shape
    shrinking: int
    tried: int = 0
    examples: int = 0
    failed: list[Any] = field(factory=list)
    found: Found | None = None
    """Of the conversation that failed last; Hypothesis plays the shortest one at its end."""

    def __call__(self, conversation: Any) -> None:
        """Play; raises ``ConformanceError``."""
        if self.found is not None:
            self.tried += 1
            if self.tried > self.shrinking and conversation not in self.failed:
                return
        else:
            self.examples += 1
        traffic = Traffic()
        try:
            self._play(conversation, traffic)
        except ConformanceError as error:
            self.failed.append(conversation)
            self.found = Found(error=error, examples=self.examples, traffic=traffic)
            raise

    def _play(self, conversation: Any, traffic: Traffic) -> None:
        async def main() -> None:
            async with faulty_server(self.name) as server:
                server.traffic = traffic
                await play(conversation, server, books=server.books)

        try:
            virtually(main)
        except* ConformanceError as group:  # the fault may have broken the engine, too
            raise next(_leaves(group)) from None


def hunt(name: str | None, shape: Shape, *, examples: int = EXAMPLES, shrinking: int = SHRINKING) -> Found | None:
    """Look for the fault of that name in conversations of ``shape``; None if it was not found."""
    one = Hunt(name, shape, shrinking)

    @seed(SEED)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(STRATEGIES[shape]())
    def try_all(conversation: Any) -> None:
        one(conversation)

    try:
        try_all()
    except ConformanceError:
        return one.found
    return None


STRATEGIES: Final[dict[Shape, Callable[[], st.SearchStrategy[Any]]]] = {
    "append": lambda: conversations(hosted=True),
}


def _leaves(group: BaseExceptionGroup[ConformanceError]) -> Iterator[ConformanceError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
