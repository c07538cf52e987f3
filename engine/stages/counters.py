"""What each stage did, counted per Response. These numbers are the experiment's result.

A stage runs *in full* over a whole input, or *incrementally* over what is new. It counts its runs of both kinds, and its
units: items, tokens, bytes.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final, Literal

from attrs import define

Stage = Literal["validate", "route", "classify", "render", "classify_output", "bill", "store"]
STAGES: Final[tuple[Stage, ...]] = ("validate", "route", "classify", "render", "classify_output", "bill", "store")
"""In the order in which they run."""


@define(eq=False)
class Count:
    """One stage's counts. As a context it times one run, by ``clock``."""

    clock: Callable[[], float]
    full: int = 0
    incremental: int = 0
    items: int = 0
    tokens: int = 0
    bytes: int = 0
    seconds: float = 0.0
    """On the engine's own thread."""
    _started: float = 0.0

    def __enter__(self) -> "Count":
        self._started = self.clock()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += self.clock() - self._started


class Counters:
    """All stages' counts of one Response."""

    __slots__ = ("_counts", "clock")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._counts: dict[Stage, Count] = {}

    def __getitem__(self, stage: Stage) -> Count:
        return self._counts.get(stage) or self._counts.setdefault(stage, Count(self.clock))

    def full(self, stage: Stage) -> Count:
        """One run over the whole input."""
        count = self[stage]
        count.full += 1
        return count

    def incremental(self, stage: Stage, *, items: int = 0, tokens: int = 0, size: int = 0, seconds: float = 0) -> None:
        """One run over what is new."""
        count = self[stage]
        count.incremental += 1
        count.items += items
        count.tokens += tokens
        count.bytes += size
        count.seconds += seconds

    def full_runs(self) -> dict[str, int]:
        """Full runs of each stage, those that never ran too."""
        return {stage: self._counts[stage].full if stage in self._counts else 0 for stage in STAGES}

    def units(self) -> Iterator[tuple[Stage, Count]]:
        """Each stage that has run, and what it did."""
        return iter(self._counts.items())

    def as_json(self) -> dict[str, dict[str, int | float]]:
        """All counts, for the ledger and the terminal event."""
        return {
            stage: {
                "full": count.full,
                "incremental": count.incremental,
                "items": count.items,
                "tokens": count.tokens,
                "bytes": count.bytes,
                "seconds": round(count.seconds, 6),
            }
            for stage in STAGES
            if (count := self._counts.get(stage)) is not None
        }
