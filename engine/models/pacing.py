"""How models of ours speak: what they say, in token-sized pieces, at a pace.

A ``Source`` knows what is to be sampled next: one ``Utterance`` (a message, reasoning or a call) after the other. The
``PacedSampler`` makes chunks of them: it cuts them into pieces, counts them against ``max_output_tokens``, and gives them
out in time. The schedule is absolute, token n is due n / rate seconds after sampling began, so that sleeping late is made
up for in the next batch; after every ``extend`` it begins anew. Without a rate all is due at once, in batches of bounded
size.

Text is cut as it is spoken, a slice at a time, so that no batch costs more than a slice, however long the text is.
"""

import random
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final, Literal, Protocol

import trio
from attrs import frozen

from protocol.items import Item

from .. import tokens
from .base import (
    CallBegin,
    CallEnd,
    CallPieces,
    Chunk,
    MessageEnd,
    ModelError,
    Reasoning,
    Rendered,
    Stop,
    Text,
)
from .pacemaker import sleep_until

BATCH_PIECES: Final = 64
"""Pieces that one ``receive`` gives at most: enough that the cost of a batch doesn't show, few enough that others run."""

BATCH_CHUNKS: Final = 128
"""Chunks of one ``receive``, for utterances without text."""

SLICE_CHARS: Final = 16_384
"""How much text is cut at once: some 4 ms."""

ITEMS_PER_TICK: Final = 500
"""Items that are observed between two checkpoints: some milliseconds."""

_SLICE_END: Final = re.compile(r"[a-z](?= [a-z])")
"""Where tokens surely end, so that slices have the tokens of the whole text."""


# ---- words


class Words(Protocol):
    """A text that is spoken piece by piece."""

    @property
    def cost(self) -> int:
        """How many tokens the next piece is; 0 when there is none."""
        ...

    def take(self, pieces: int, token_room: int) -> tuple[Sequence[str], int]:
        """The next pieces, within both limits, and how many tokens they are."""
        ...


class TextWords:
    """A given text, in its tokens."""

    def __init__(self, text: str) -> None:
        self._slices = _slices(text)
        self._pieces, self._tokens = tokens.cut(next(self._slices))
        self._at = 0

    @property
    def cost(self) -> int:
        return self._tokens[self._at] if self._at < len(self._tokens) else 0

    def take(self, pieces: int, token_room: int) -> tuple[Sequence[str], int]:
        start = end = self._at
        most = min(len(self._tokens), start + pieces)
        total = 0
        while end < most and total + self._tokens[end] <= token_room:
            total += self._tokens[end]
            end += 1
        taken = self._pieces[start:end]
        self._at = end
        if end == len(self._tokens):
            self._next_slice()
        return taken, total

    def _next_slice(self) -> None:
        following = next(self._slices, None)
        if following is not None:
            self._at = 0
            self._pieces, self._tokens = tokens.cut(following)


def _slices(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > SLICE_CHARS:
        found = _SLICE_END.search(text, start + SLICE_CHARS, start + 2 * SLICE_CHARS)
        end = found.end() if found else start + SLICE_CHARS
        yield text[start:end]
        start = end
    yield text[start:]


# One token each, with a space before them and without.
_WORDS: Final = (
    "the of and to in is that for it as was with be by on not he his but at are this have an had they you were their one "
    "all we can her has there been if more when will would who so no said what up its about into than them only other new "
    "some could time these two may then do first any my now such like our over man me even most made after also did many "
    "before must through back years where much your way well down should because each just those people how too little "
    "state good very make world still own see men work long get here between both life being under never day same another "
    "know while last might us great old year off come since against go came right used take three"
)
VOCABULARY: Final = tuple(_WORDS.split())


class RandomWords:
    """So many tokens of text, the same for the same seed."""

    def __init__(self, count: int, seed: str) -> None:
        self._left = count
        self._random = random.Random(seed)
        self._space = ""

    @property
    def cost(self) -> int:
        return 1 if self._left else 0

    def take(self, pieces: int, token_room: int) -> tuple[Sequence[str], int]:
        count = min(pieces, token_room, self._left)
        taken = [f" {self._word()}" for _ in range(count)]
        if taken and not self._space:  # the first word
            taken[0] = taken[0][1:]
            self._space = " "
        self._left -= count
        return taken, count

    def _word(self) -> str:
        # Only ``random()`` gives the same numbers in every version of Python.
        return VOCABULARY[int(self._random.random() * len(VOCABULARY))]


# ---- utterances


@frozen
class Utterance:
    """What is sampled next. A call has ``begin``, and its arguments as words."""

    kind: Literal["message", "reasoning", "call"]
    words: Words
    begin: CallBegin | None = None


class Source(Protocol):
    """Knows what to say next. It is told what the context holds, item by item, and what is being said."""

    @property
    def rate(self) -> float | None:
        """Tokens per second; None is as fast as can be."""
        ...

    def observe(self, item: Item) -> None:
        """An item of the context, in order."""
        ...

    def resume(self) -> None:
        """All new items were observed; sampling begins or goes on."""
        ...

    def next(self) -> Utterance | Stop | ModelError:
        """What comes next. Asked again without anything between, it says the same."""
        ...

    def begun(self) -> None:
        """The utterance that ``next`` gave is in the context from now on."""
        ...


async def observe_all(source: Source, items: Sequence[Item]) -> None:
    """Show ``items`` to ``source``. A checkpoint now and then; cancellation leaves the source useless."""
    for index, item in enumerate(items):
        source.observe(item)
        if index % ITEMS_PER_TICK == ITEMS_PER_TICK - 1:
            await trio.lowlevel.checkpoint()
    source.resume()


class _Pace:
    """The schedule of one turn: how many tokens are due."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._start = trio.current_time()
        self._spent = 0

    async def wait_for(self, cost: int) -> int:
        """Wait until the next ``cost`` tokens are due, and return how many are by then. Always a checkpoint."""
        if self._rate is None:
            await trio.lowlevel.checkpoint()
            return sys.maxsize
        due_at = self._start + (self._spent + cost) / self._rate
        if cost == 0 or due_at <= trio.current_time():
            await trio.lowlevel.checkpoint()
        else:
            await sleep_until(due_at)
        due = int((trio.current_time() - self._start) * self._rate) - self._spent
        return max(due, cost)  # rounding must not lose what was waited for

    def spend(self, count: int) -> None:
        self._spent += count


class PacedSampler:
    """Samples what a source says. ``max_tokens`` is for the whole life of the sampler."""

    def __init__(self, source: Source, max_tokens: int | None) -> None:
        self._source = source
        self._left = sys.maxsize if max_tokens is None else max_tokens
        self._next: Utterance | Stop | ModelError | None = None
        self._speaking: Utterance | None = None
        self._stop: Stop | None = None
        self._pace: _Pace | None = None

    async def receive(self) -> Sequence[Chunk]:
        """The next chunks. Raises ``ModelError``. Cancellation loses nothing. After a ``Stop`` it is given again."""
        if self._stop is not None:
            await trio.lowlevel.checkpoint()
            return [self._stop]
        if self._pace is None:
            self._pace = _Pace(self._source.rate)
        room = await self._pace.wait_for(self._cost())
        chunks, spent = self._sample(room)
        self._pace.spend(spent)
        return chunks

    async def extend(self, new: Rendered) -> None:
        """Take in what is new. An utterance that was cut short counts as said."""
        self._next = self._speaking = self._stop = self._pace = None
        await observe_all(self._source, new.items)

    def _cost(self) -> int:
        """How many tokens must be due before there is anything to give."""
        ahead = self._speaking or self._peek()
        cost = ahead.words.cost if isinstance(ahead, Utterance) else 0
        return cost if cost <= self._left else 0

    def _peek(self) -> Utterance | Stop | ModelError:
        if self._next is None:
            self._next = self._source.next()
        return self._next

    def _sample(self, room: int) -> tuple[list[Chunk], int]:
        """Chunks of what is due, and how many tokens they are."""
        chunks: list[Chunk] = []
        pieces, spent = BATCH_PIECES, 0
        while pieces > 0 and len(chunks) < BATCH_CHUNKS and self._stop is None:
            speaking = self._speaking or self._begin(chunks, room - spent)
            if speaking is None:
                break
            taken, count = speaking.words.take(pieces, min(room - spent, self._left))
            pieces -= len(taken)
            spent += count
            self._left -= count
            if taken:
                chunks.append(_chunk(speaking, taken, count))
            if speaking.words.cost == 0:
                chunks.append(MessageEnd() if speaking.begin is None else CallEnd())
                self._speaking = None
            elif speaking.words.cost > self._left:
                self._stop_with(Stop("max_output_tokens"), chunks)
            elif speaking.words.cost > room - spent:
                break
        return chunks, spent

    def _begin(self, chunks: list[Chunk], room: int) -> Utterance | None:
        """Begin what comes next; None if there is nothing, or it is not due."""
        ahead = self._peek()
        if isinstance(ahead, ModelError):
            if not chunks:
                raise ahead
            return None
        if isinstance(ahead, Stop):
            self._stop_with(ahead, chunks)
            return None
        if self._left == 0 or ahead.words.cost > self._left:
            self._stop_with(Stop("max_output_tokens"), chunks)
            return None
        if ahead.words.cost > room:
            return None
        self._source.begun()
        self._next, self._speaking = None, ahead
        if ahead.begin is not None:
            chunks.append(ahead.begin)
        return ahead

    def _stop_with(self, stop: Stop, chunks: list[Chunk]) -> None:
        self._stop = stop
        chunks.append(stop)


def _chunk(speaking: Utterance, pieces: Sequence[str], count: int) -> Chunk:
    if speaking.kind == "call":
        return CallPieces(pieces, count)
    return Text(pieces, count) if speaking.kind == "message" else Reasoning(pieces, count)
