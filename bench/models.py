"""The models of the benchmarks: they cost next to nothing, so that what is measured is the engine."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from engine.models.base import CallBegin, CallEnd, CallPieces, Chunk, Plan, Rendered, Stop, Text
from engine.models.pacing import PacedSampler, Utterance
from protocol.items import Item

PIECES: Final = ("The ", "loop", " has", " gone", " on ", "with", " the", " same", " tokens", ", and", " in ", "order", ".\n")
"""As long as tokens are: some four characters."""

BATCHES: Final = (16, 1)
"""How many tokens a model gives at once: a fast one, whose tokens come over some transport, and one that dribbles."""


class _Stream:
    def __init__(self, deltas: int, batch: int) -> None:
        self._left = deltas
        self._batch = batch

    async def receive(self) -> Sequence[Chunk]:
        await trio.lowlevel.checkpoint()
        if not self._left:
            return (Stop("end"),)
        count = min(self._batch, self._left)
        self._left -= count
        start = self._left % len(PIECES)
        pieces = [PIECES[(start + index) % len(PIECES)] for index in range(count)]
        return (Text(pieces, count),)

    async def extend(self, new: Rendered) -> None:
        raise NotImplementedError


class StreamModel:
    """Answers every prompt with ``deltas`` pieces of text, ``batch`` at a time: a fast model in this process."""

    def __init__(self, deltas: int, batch: int) -> None:
        self.name = f"stream-{batch}"
        self._deltas = deltas
        self._batch = batch

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[_Stream]:  # noqa: ARG002
        yield _Stream(self._deltas, self._batch)


class _Instant:
    async def receive(self) -> Sequence[Chunk]:
        await trio.lowlevel.checkpoint()
        return (Text(("Done.",), 2), Stop("end"))

    async def extend(self, new: Rendered) -> None:
        raise NotImplementedError


class InstantModel:
    """Has answered before it is asked, with one word."""

    name = "instant"

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[_Instant]:  # noqa: ARG002
        yield _Instant()


class _Caller:
    def __init__(self, *, says_first: bool) -> None:
        self._turn = -1
        self._said = not says_first

    async def receive(self) -> Sequence[Chunk]:
        await trio.lowlevel.checkpoint()
        if not self._said:
            self._said = True
            return (Text(("Now",), 1),)
        self._turn += 1
        self._said = False
        return (
            CallBegin("look", call_id=f"call_{self._turn}"),
            CallPieces(('{"at"', ':"', "README", '"}'), 4),
            CallEnd(),
            Stop("tool_calls"),
        )

    async def extend(self, new: Rendered) -> None:
        """It does not read."""


class CallModel:
    """Calls a tool, for ever, and never reads. After each result one token of text comes first, at once and by itself;
    with ``says_first``, before the first call too, so that it says the same in each shape."""

    def __init__(self, name: str, *, says_first: bool) -> None:
        self.name = name
        self._says_first = says_first

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[_Caller]:  # noqa: ARG002
        yield _Caller(says_first=self._says_first)


class _TimedWords:
    """When it began, by a clock that all processes of the machine share; then more tokens, ``count`` in all."""

    def __init__(self, count: int) -> None:
        self._began = f"{time.perf_counter():.6f}"
        self._count = self._left = count

    @property
    def cost(self) -> int:
        return 1 if self._left else 0

    def take(self, pieces: int, token_room: int) -> tuple[Sequence[str], int]:
        count = min(pieces, token_room, self._left)
        taken = [" word"] * count
        if count and self._left == self._count:
            taken[0] = self._began
        self._left -= count
        return taken, count


class _Timed:
    """A source that says ``_TimedWords``, and is done."""

    def __init__(self, rate: float, count: int) -> None:
        self.rate: float | None = rate
        self._count = count
        self._said: Utterance | Stop | None = None

    def observe(self, item: Item) -> None:
        """It does not read."""

    def resume(self) -> None:
        """It has nothing to look up."""

    def next(self) -> Utterance | Stop:
        if self._said is None:  # sampling begins
            self._said = Utterance("message", _TimedWords(self._count))
        return self._said

    def begun(self) -> None:
        self._said = Stop("end")


class PacedModel:
    """``count`` tokens at ``rate`` a second, by the clock of the models that Sostenuto has. The first says when it began."""

    def __init__(self, rate: float, count: int) -> None:
        self.name = f"pace-{rate:g}"
        self._rate = rate
        self._count = count

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[PacedSampler]:
        yield PacedSampler(_Timed(self._rate, self._count), plan.max_output_tokens)
