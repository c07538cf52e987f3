"""What a benchmark finds: rows, each a figure with its target; and the sizes of a run."""

import json
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Any, Final

from attrs import asdict, field, frozen


@frozen(kw_only=True)
class Sizes:
    """How much a run does. More narrows the noise, not the result."""

    deltas: int = 20_000
    """Streamed events of one Response."""
    rounds: int = 15
    """Pairs of Responses of which CPU is measured."""
    samples: int = 2_000
    """Pairs of which a latency is measured."""
    history: int = 10_000
    """Items of the long history."""
    parked: int = 10_000
    """Responses that are parked."""
    conversations: int = 20
    """Of the conformance kit, in each of a pair."""
    pace_seconds: float = 3.0
    """How long a paced stream lasts."""
    rollouts: int = 30
    """Long rollouts of each shape, of which turns are compared."""
    turns: int = 153
    """Of each: the last of them are compared."""
    simulated: int = 1_000
    """Rollouts that are simulated."""
    repetitions: int = 5
    """Of each cell of ``compare``."""
    calls: int = 24
    """Of the rollouts that it plays; the long one has more."""
    prefills: int = 7
    """Of each length of history, by a real model, in each way."""


FULL: Final = Sizes()
QUICK: Final = Sizes(
    deltas=5_000,
    rounds=5,
    samples=300,
    parked=1_000,
    conversations=10,
    pace_seconds=1.0,
    rollouts=8,
    simulated=200,
    repetitions=3,
    prefills=3,
)
TINY: Final = Sizes(
    deltas=40,
    rounds=1,
    samples=3,
    history=20,
    parked=4,
    conversations=1,
    pace_seconds=0.02,
    rollouts=1,
    turns=16,
    simulated=2,
    repetitions=1,
    calls=2,
    prefills=1,
)
"""Shows that it runs; its figures mean nothing."""


@frozen(kw_only=True)
class Row:
    """One result."""

    name: str
    what: str
    value: float
    unit: str = "×"
    spread: tuple[float, float] | None = None
    """The quartiles of what ``value`` is the median of; None where it was measured once."""
    target: float | None = None
    """The most that ``value`` should be; None where nothing is promised."""
    at_least: bool = False
    """Whether ``target`` is the least instead."""
    detail: dict[str, Any] = field(factory=dict)
    """The two sides' medians on this machine, how many pairs there were, and ``quiet``: the ratio of the two sides' lowest
    tenths, which other work on the machine disturbs least."""

    @property
    def verdict(self) -> str:
        """``met``, ``missed``, or nothing."""
        if self.target is None:
            return ""
        met = self.value >= self.target if self.at_least else self.value <= self.target
        return "met" if met else "missed"

    def as_json(self) -> str:
        """The row as a line of JSON."""
        return json.dumps({**asdict(self), "value": round(self.value, 6), "met": self.verdict != "missed"})


Pair = tuple[float, float]


class NotHere(Exception):
    """A benchmark, or a part of it, that can't run on this machine; the message says what it wants."""


def interleaved(count: int, ours: Callable[[], float], theirs: Callable[[], float]) -> list[Pair]:
    """Measure A B A B …, so that what disturbs the machine disturbs both sides. The first pair warms up and is left out."""
    pairs = [(ours(), theirs()) for _ in range(count + 1)]
    return pairs[1:]


def against(name: str, what: str, pairs: Sequence[Pair], *, target: float | None, scale: float, unit: str, **more: Any) -> Row:
    """The row of ours against theirs: the median of the pairs' ratios. ``scale`` and ``unit`` are for showing the sides."""
    ratios = [ours / theirs for ours, theirs in pairs]
    detail = _sides(pairs, scale, unit) | more
    return Row(name=name, what=what, value=median(ratios), spread=quartiles(ratios), target=target, detail=detail)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The lower and the upper one; of one value, both are it."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def _sides(pairs: Sequence[Pair], scale: float, unit: str) -> dict[str, Any]:
    """Each side's median, times ``scale``, in ``unit``; and the ratio of their quiet moments."""
    ours, theirs = ([one * scale for one in side] for side in zip(*pairs, strict=True))
    return {
        "ours": round(median(ours), 3),
        "theirs": round(median(theirs), 3),
        "unit": unit,
        "pairs": len(pairs),
        "quiet": round(_low(ours) / _low(theirs), 3),
    }


def _low(values: Sequence[float]) -> float:
    """The lowest tenth's border: what else runs on the machine adds to a time, and takes nothing from it."""
    return quantiles(values, n=10)[0] if len(values) > 9 else min(values)
