"""Looks for a fault as the kit does: by its search, in generated conversations that are then made short, and by its probes."""

from typing import Final

from attrs import define, frozen

from protocol.conformance.adapters import Scripted
from protocol.conformance.capabilities import ALL
from protocol.conformance.probes import PROBES, run_probe
from protocol.conformance.search import SHRINK_SECONDS, Enough, Findings, Table, search
from protocol.conformance.story import ConformanceError
from protocol.conformance.transport import Books, Frame, Shape, Transport

from .faulty import KEYS, Faulty

EXAMPLES: Final = 2000
"""Each fault must be found within so many conversations."""

SHRINKING: Final = 40
"""How many conversations are tried to make the first one shorter."""

SEED: Final = 4


@frozen(kw_only=True)
class Found:
    """A breach of ``law`` was found, after ``examples`` conversations. ``conversation`` is the shortest that was seen."""

    law: str
    message: str
    examples: int
    conversation: list[Frame]

    @property
    def sent(self) -> int:
        """Frames and requests of the clients."""
        return sum("sent" in frame or "request" in frame for frame in self.conversation)

    @property
    def frames(self) -> int:
        """Frames both ways, until the breach was seen."""
        return sum("did" not in frame and "status" not in frame for frame in self.conversation)


@define
class _Clock:
    """Counts what is played to make a conversation short as time: the search is to end by that, wherever it runs."""

    findings: Findings
    now: float = 0.0
    examples: int = 0

    def __call__(self) -> float:
        return self.now

    def tick(self, shrinking: bool) -> None:
        """Another one was played."""
        if shrinking:
            self.examples = self.examples or self.findings.played
            self.now += SHRINK_SECONDS / SHRINKING
        elif self.findings.failures:
            raise Enough  # one is enough; the kit itself would look for breaches of other laws


def hunt(name: str | None, shape: Shape, *, examples: int = EXAMPLES) -> Found | None:
    """Look for the fault of that name in conversations of ``shape``; None if nothing was found."""
    findings = Findings()
    clock = _Clock(findings)
    chains = shape != "append"
    table = Table(
        runner=Faulty(name=name, network=shape == "http", keys=chains),
        shape=shape,
        adapter=Scripted(),
        capabilities=ALL,
        keys=KEYS if chains else (),
        hosted=True,
    )
    search(table, examples=examples, seed=SEED, clock=clock, deadline=1e9, on_example=clock.tick, findings=findings)
    for law, failure in findings.failures.items():
        return Found(law=law, message=failure.message, examples=clock.examples, conversation=list(failure.conversation))
    return None


class Stranger(Scripted):
    """A server that obeys like ours, and of which only what a probe is about is checked: else the grammar would find it."""

    codes = False


def probe(name: str, fault: str | None, shape: Shape) -> ConformanceError | None:
    """Play the probe of that name to a server with a fault; returns what it finds."""

    async def scene(server: Transport, _: Books) -> None:
        await run_probe(PROBES[name], server, shape, Stranger(), keys=KEYS)

    try:
        Faulty(name=fault, network=True, keys=True).run(scene)
    except ConformanceError as error:
        return error
    return None
