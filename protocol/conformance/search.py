"""The search for conversations that break a law: Hypothesis generates them, and makes short what it finds.

Theory. One run of Hypothesis looks for one law: the first one that is broken is its *target*, and what it then plays to make
the conversation short must break the same. Conversations that break a law which is known to be broken end there, and are not
judged. With each target the search begins anew, with another seed that follows from the first, and with the examples that
are left. All stops at once, by an exception that Hypothesis does not catch, when time is up.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import trio
from attrs import define, evolve, field, frozen
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from . import machines
from .adapters import Adapter
from .capabilities import Capabilities
from .record import Recorder, could_break
from .report import Failure
from .runner import Runner, TooLong, run_plainly
from .show import sayable
from .sockets import TooManyConnections
from .story import ConformanceError
from .transport import Books, Closed, Frame, Refused, Shape, Transport

SHRINK_SECONDS: Final = 30.0
"""For making one conversation short. It is readable long before."""

SETTINGS: Final[Mapping[str, Any]] = {
    "database": None,
    "deadline": None,
    "phases": (Phase.generate, Phase.shrink),
    "print_blob": False,
    "report_multiple_bugs": False,
    "suppress_health_check": list(HealthCheck),
    "verbosity": Verbosity.quiet,
}


class Enough(BaseException):
    """Time is up. Hypothesis lets it pass."""


class _Broken(Exception):
    """The target was broken again."""


@frozen(kw_only=True)
class Played:
    """What came of one conversation: the laws that were at stake, and the one that was broken."""

    stake: frozenset[str] = frozenset()
    law: str | None = None
    message: str = ""
    frames: Sequence[Frame] = ()
    unreachable: bool = False


@frozen(kw_only=True)
class Table:
    """Where conversations of one shape are played."""

    runner: Runner
    shape: Shape
    adapter: Adapter
    capabilities: Capabilities
    keys: Sequence[str] = ()
    hosted: bool = False

    def conversations(self) -> st.SearchStrategy[Any]:
        """What may be played."""
        return machines.conversations(self.shape, self.adapter, self.capabilities, exact=self.runner.exact, hosted=self.hosted)

    def play(self, conversation: Any) -> Played:
        """Play one; raises ``KeyboardInterrupt``."""
        recorders: list[Recorder] = []
        are_open: list[bool] = []

        async def scene(transport: Transport, books: Books) -> None:
            recorder = Recorder(transport, next(iter(self.keys), None))
            recorders.append(recorder)
            are_open.append(books.rows("") is not None)
            await machines.play(
                self.shape,
                conversation,
                recorder,
                books,
                adapter=self.adapter,
                capabilities=self.capabilities,
                keys=self.keys,
            )

        try:
            run_plainly(self.runner, scene)
        except Exception as error:
            slow = isinstance(error, TooLong) and not self.adapter.obeys  # a model may take all the time that it likes
            law, message = (None, "") if slow else verdict(error)
            frames = recorders[0].frames() if recorders else []
            unreachable = isinstance(error, OSError) and not isinstance(error, TimeoutError)
            return Played(law=law, message=message, frames=frames, unreachable=unreachable) if law else Played()
        notes = recorders[0].notes
        return Played(stake=frozenset(could_break(notes, obeys=self.adapter.obeys, books=are_open[0])))

    def can_be_reached(self) -> bool:
        """Whether the server is there, whatever it says."""

        async def scene(transport: Transport, _: Books) -> None:
            await (await transport.request("GET", "/models")).drop()

        try:
            run_plainly(self.runner, scene)
        except Exception as error:
            return not isinstance(error, OSError)
        return True


def verdict(error: Exception) -> tuple[str | None, str]:
    """Which law ``error`` says is broken, and how; None if the conversation can't be judged."""
    match error:
        case ConformanceError():
            return error.law, sayable(error.message)
        case TooManyConnections():
            return None, ""
        case trio.TooSlowError() | TimeoutError() | Closed() | Refused():
            return "L12", str(error) or type(error).__name__
        case OSError():
            return "L12", f"the server can't be reached: {error}"
        case _:
            return "L4", f"what came can't be understood: {type(error).__name__}: {error}"


@define
class Findings:
    """What a search has found."""

    played: int = 0
    stakes: Counter[str] = field(factory=Counter)
    """For each law, how many conversations could have broken it."""
    failures: dict[str, Failure] = field(factory=dict)
    gone: bool = False
    """Whether the server could not be reached any more."""


@define
class _Hunt:
    """One run of Hypothesis."""

    table: Table
    findings: Findings
    seed: int
    clock: Callable[[], float]
    deadline: float
    on_example: Callable[[bool], None]
    target: str | None = None
    best: tuple[Any, Played] | None = None

    def run(self, examples: int) -> None:
        """Play so many, or fewer if one breaks a law that is not known to be broken; raises ``Enough``."""

        @seed(self.seed)
        @settings(max_examples=examples, **SETTINGS)
        @given(self.table.conversations())
        def hunt(conversation: Any) -> None:
            self._one(conversation)

        try:
            hunt()
        except (_Broken, Flaky):
            pass
        except Enough:
            if self.target is None:
                raise

    def enter(self) -> None:
        """What was found becomes a finding."""
        if self.best is not None and self.target is not None:
            _, played = self.best
            failure = Failure(shape=self.table.shape, message=played.message, conversation=played.frames, seed=self.seed)
            self.findings.failures[self.target] = failure

    def replay(self) -> None:
        """Play the shortest conversation once more."""
        if self.best is not None and self.target is not None:
            again = self.table.play(self.best[0]).law == self.target
            self.findings.failures[self.target] = evolve(self.findings.failures[self.target], reproducible=again)

    def _one(self, conversation: Any) -> None:
        if self.clock() > self.deadline:
            raise Enough
        played = self.table.play(conversation)
        if self.target is None:
            self._tally(played)
        self.on_example(self.target is not None)
        hit = self.target is not None and played.law == self.target
        if hit and (self.best is None or len(played.frames) <= len(self.best[1].frames)):
            self.best = conversation, played
        if played.unreachable and not self.table.can_be_reached():
            self.findings.gone = True
            raise Enough
        if hit:
            raise _Broken

    def _tally(self, played: Played) -> None:
        self.findings.played += 1
        self.findings.stakes.update({played.law} if played.law else played.stake)
        if played.law is not None and played.law not in self.findings.failures:
            self.target = played.law
            self.deadline = self.clock() + SHRINK_SECONDS


def search(
    table: Table,
    *,
    examples: int,
    seed: int,
    clock: Callable[[], float],
    deadline: float,
    on_example: Callable[[bool], None],
    findings: Findings,
) -> None:
    """Play ``examples`` conversations, or until ``deadline`` by ``clock``, and enter in ``findings`` what was found, as it is.

    ``on_example`` is told of each that was played, and whether it was played to make another one short. Raises
    ``KeyboardInterrupt``.
    """
    for number in range(examples):  # more often there is nothing left to be found
        left = examples - findings.played
        if left <= 0:
            return
        hunt = _Hunt(table, findings, seed + number, clock, deadline, on_example)
        try:
            hunt.run(left)
        except Enough:
            return
        finally:
            hunt.enter()
        if hunt.target is None or findings.gone:
            return
        hunt.replay()
