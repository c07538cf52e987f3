"""What is measured on each side: turns of rollouts that are played alone, many at once, and what is kept of them.

The sides take their turns within each round, in an order that is drawn anew: what disturbs the machine disturbs all.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from attrs import frozen

from .catalog import Side
from .play import Turn, alone, crowd
from .turn import ARGUMENTS, OUTPUT, TASK, TEXT

WINDOW: Final = 10
"""Turns at the beginning and at the end of a rollout that are compared."""
FIRST_TURNS: Final = 2
"""Of a rollout, not compared: what is done once is done there."""
SLOWER: Final = 10
"""So many times fewer turns are asked of a slow side."""


@frozen
class Played:
    """A rollout."""

    turns: Sequence[Turn]
    cpu: float
    """Seconds of processor that the server took for each turn, its beginning and end included."""

    def median_of(self, what: str) -> float:
        """Seconds: the turns' median."""
        return median(getattr(turn, what) for turn in self.turns)

    @property
    def early(self) -> float:
        """Seconds to the last event at the beginning."""
        return median(turn.last for turn in self.turns[FIRST_TURNS : FIRST_TURNS + WINDOW])

    @property
    def late(self) -> float:
        """Seconds to the last event at the end."""
        return median(turn.last for turn in self.turns[-WINDOW:])


def rollouts(sides: Sequence[Side], turns: int, rounds: int) -> Mapping[str, list[Played]]:
    """Play a rollout on each side, ``rounds`` times; the round before them warms up."""
    played: dict[str, list[Played]] = {side.name: [] for side in sides}
    for number, side in _rounds(sides, rounds + 1):
        one = _play(side, turns // SLOWER if side.slow else turns)
        if number:
            played[side.name].append(one)
    return played


def crowds(sides: Sequence[Side], turns: int, rounds: int, many: int) -> Mapping[str, list[float]]:
    """Turns a second with so ``many`` rollouts at once, ``rounds`` times."""
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    for _, side in _rounds(sides, rounds):
        asked = max(1, turns // SLOWER) if side.slow else turns
        rates[side.name].append(crowd(side.connect, [side.new_rollout(asked) for _ in range(many)], asked))
    return rates


def kept(side: Side, turns: int, count: int) -> float:
    """Bytes that the server holds for each finished rollout, when others like it have come and gone."""
    for _ in range(count):
        _play(side, turns)
    before = side.memory
    for _ in range(count):
        _play(side, turns)
    return (side.memory - before) / count


def raw_bytes(turns: int) -> int:
    """What was said in a rollout: the task, the words, the calls' arguments, and the outputs."""
    return len(TASK) + (turns + 1) * (len(TEXT) + len(ARGUMENTS)) + turns * len(OUTPUT)


def _play(side: Side, turns: int) -> Played:
    wire = side.connect()
    before = side.cpu
    try:
        played = alone(wire, side.new_rollout(turns), turns)
    finally:
        wire.close()
    return Played(played, (side.cpu - before) / len(played))


def _rounds(sides: Sequence[Side], rounds: int) -> Iterator[tuple[int, Side]]:
    """Each side once in each round, in any order."""
    order = list(sides)
    for number in range(rounds):
        random.shuffle(order)
        yield from ((number, side) for side in order)
