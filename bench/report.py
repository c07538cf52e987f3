"""Rows of results, as a table or as JSON; and the sizes of a run."""

import json
from collections.abc import Callable, Iterable, Sequence
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
    rollouts: int = 40
    """On each side of ``peers``; a fraction of it where they are long, or many at once."""
    kept: int = 60
    """Finished rollouts whose memory is measured, after as many that fill what the process had free: fewer give no figure."""
    turns: tuple[int, int] = (40, 200)
    """Of short and of long rollouts."""
    crowd: int = 100
    """Rollouts at once."""
    peers: bool = True
    """Whether servers of others take part, which are installed where they are not there."""


FULL: Final = Sizes()
QUICK: Final = Sizes(deltas=5_000, rounds=5, samples=300, history=10_000, parked=1_000, conversations=10, rollouts=8)
TINY: Final = Sizes(
    deltas=40,
    rounds=1,
    samples=3,
    history=20,
    parked=4,
    conversations=1,
    rollouts=1,
    kept=2,
    turns=(3, 13),
    crowd=3,
    peers=False,
)
"""Shows that it runs; its figures mean nothing."""


@frozen(kw_only=True)
class Row:
    """One result."""

    name: str
    what: str
    value: float
    unit: str = "×"
    target: float | None = None
    """The most that ``value`` should be; None where nothing is promised."""
    detail: dict[str, Any] = field(factory=dict)
    """The two sides' medians on this machine, how many pairs there were, and ``quiet``: the ratio of the two sides' lowest
    tenths, which other work on the machine disturbs least."""

    @property
    def verdict(self) -> str:
        """``ok``, ``missed``, or nothing."""
        if self.target is None:
            return ""
        return "ok" if self.value <= self.target else "missed"

    def as_json(self) -> str:
        """The row as a line of JSON."""
        return json.dumps({**asdict(self), "value": round(self.value, 4), "ok": self.target is None or self.verdict == "ok"})


Pair = tuple[float, float]


def interleaved(count: int, ours: Callable[[], float], theirs: Callable[[], float]) -> list[Pair]:
    """Measure A B A B …, so that what disturbs the machine disturbs both sides. The first pair warms up and is left out."""
    pairs = [(ours(), theirs()) for _ in range(count + 1)]
    return pairs[1:]


def ratio(pairs: Sequence[Pair]) -> float:
    """The median of the pairs' ratios."""
    return median(ours / theirs for ours, theirs in pairs)


def sides(pairs: Sequence[Pair], scale: float, unit: str) -> dict[str, Any]:
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


def table(rows: Iterable[Row]) -> str:
    """The rows in columns."""
    cells = [("name", "what", "result", "target", "", "quiet", "measured")]
    for row in rows:
        target = "" if row.target is None else f"≤ {row.target:.3g}"
        detail = row.detail
        measured = f"{detail['ours']} : {detail['theirs']} {detail['unit']}" if "ours" in detail else ""
        quiet = f"{detail['quiet']:.3g} ×" if "quiet" in detail else ""
        cells.append((row.name, row.what, f"{row.value:.3g} {row.unit}", target, row.verdict, quiet, measured))
    return columns(cells)


def columns(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells, each column as wide as its widest."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    texts = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join(texts)
