"""What is played: recorded rollouts, and rollouts made up from parameters and a seed.

Both are ``trajectories.Rollout`` records, so that whatever plays the one plays the other, and both can be written as
files that the ``trajectory`` model reads. The same parameters and seed give the same file, byte for byte, in every
version of Python: all chance comes from ``random.Random.random()``, and seconds are rounded to microseconds.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal

from attrs import evolve, field, frozen

from protocol.codec import encode

from .. import tokens
from ..models.pacing import RandomWords
from ..trajectories import AssistantRecord, Record, RecordedCall, Rollout, ToolRecord, UserRecord

Chance = Callable[[], float]
"""Gives numbers from 0 up to 1."""
MICROSECONDS: Final = 6
"""Digits of seconds that are kept: more than a timer has."""


@frozen(kw_only=True)
class Spread:
    """A number that varies. ``value`` is all there is to ``constant``, the mean of ``exponential``, the median of
    ``lognormal``; ``sigma`` is of the logarithm. ``recorded`` leaves what was recorded, and ``value`` stands where nothing
    was."""

    distribution: Literal["constant", "exponential", "lognormal", "recorded"] = "constant"
    value: float = 0.0
    sigma: float = 1.0

    def draw(self, chance: Chance) -> float:
        """The next number."""
        if self.distribution == "exponential":
            return -self.value * math.log(1.0 - chance())
        if self.distribution == "lognormal":
            normal = math.sqrt(-2.0 * math.log(1.0 - chance())) * math.cos(2.0 * math.pi * chance())
            return self.value * math.exp(self.sigma * normal)
        return self.value


RECORDED: Final = Spread(distribution="recorded")


@frozen(kw_only=True)
class Synthetic:
    """A made-up rollout: an agent that calls tools, ``parallel`` of them in each turn, and answers at the end. Sizes are
    tokens."""

    calls: int = 8
    parallel: int = 1
    call_tokens: int = 20
    """The arguments of one call."""
    message_tokens: int = 0
    """What the model says in front of the calls of a turn."""
    reasoning_tokens: int = 0
    """What it thinks before that."""
    answer_tokens: int = 40
    output_tokens: Spread = field(factory=lambda: Spread(value=200))
    """What a tool answers."""
    user_tokens: int = 60
    instructions_tokens: int = 500
    tools: int = 6
    """Tools that are defined."""
    tool_tokens: int = 60
    """The description of one of them."""

    def rollout(self, tool_seconds: Spread, seed: int) -> Rollout:
        """The rollout of this seed."""
        return _Maker(self, tool_seconds, random.Random(f"{seed} rollout")).make()


class _Maker:
    def __init__(self, sizes: Synthetic, tool_seconds: Spread, source: random.Random) -> None:
        self._sizes = sizes
        self._seconds = tool_seconds
        self._chance = source.random

    def make(self) -> Rollout:
        sizes = self._sizes
        return Rollout(
            source="synthetic",
            license="Apache-2.0",
            instructions=self._words(sizes.instructions_tokens) or None,
            tools=tuple(self._tool(number) for number in range(sizes.tools)),
            records=(UserRecord(self._words(sizes.user_tokens)), *self._work(), self._answer()),
        )

    def _work(self) -> Iterator[Record]:
        sizes = self._sizes
        for first in range(0, sizes.calls, sizes.parallel):
            numbers = range(first, min(first + sizes.parallel, sizes.calls))
            said = self._words(sizes.message_tokens)
            yield AssistantRecord(said, tuple(map(self._call, numbers)), reasoning=self._words(sizes.reasoning_tokens))
            for number in numbers:
                output = self._words(max(1, round(sizes.output_tokens.draw(self._chance))))
                yield ToolRecord(_call_id(number), output, round(self._seconds.draw(self._chance), MICROSECONDS))

    def _answer(self) -> Record:
        return AssistantRecord(self._words(self._sizes.answer_tokens) or "Done.")

    def _call(self, number: int) -> RecordedCall:
        name = int(self._chance() * self._sizes.tools) if self._sizes.tools else 0
        around = tokens.count(_arguments(""))
        return RecordedCall(_call_id(number), _tool_name(name), _arguments(self._words(self._sizes.call_tokens - around)))

    def _tool(self, number: int) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
        name, described = _tool_name(number), self._words(self._sizes.tool_tokens)
        return {"type": "function", "name": name, "description": described, "parameters": schema}

    def _words(self, count: int) -> str:
        words = RandomWords(max(0, count), repr(self._chance()))
        return "".join(words.take(count, count)[0]) if count > 0 else ""


def _call_id(number: int) -> str:
    return f"call_{number}"


def _tool_name(number: int) -> str:
    return f"tool_{number}"


def _arguments(query: str) -> str:
    return encode({"query": query}).decode()


def with_tool_seconds(rollout: Rollout, seconds: Spread, seed: int) -> Rollout:
    """The same rollout, whose tools take other times."""
    chance = random.Random(f"{seed} tools").random

    def retimed(record: Record) -> Record:
        if not isinstance(record, ToolRecord):
            return record
        if seconds.distribution == "recorded":
            return evolve(record, seconds=seconds.value if record.seconds is None else record.seconds)
        return evolve(record, seconds=round(seconds.draw(chance), MICROSECONDS))

    return evolve(rollout, records=tuple(map(retimed, rollout.records)))


# ---- what it amounts to


@frozen(kw_only=True)
class Turn:
    """What the model samples at one go, between two things that come from outside."""

    history: int
    """Tokens of the text in front of it."""
    items: int
    """Messages, thoughts and calls."""
    tokens: int
    """Tokens that are sampled."""
    calls: int
    tool_seconds: float
    """The longest of its tools: they run side by side."""


@frozen
class Workload:
    """A rollout with a name to show."""

    name: str
    rollout: Rollout = field(repr=False)

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """Its turns. One that samples nothing is the last, where the recording ends on what came from outside."""
        return tuple(_turns(self.rollout))

    @property
    def parks(self) -> int:
        """How often the model has to wait for a result, or for the user."""
        return len(self.turns) - 1

    @property
    def tokens(self) -> int:
        """Tokens that are sampled."""
        return sum(turn.tokens for turn in self.turns)

    @property
    def tool_seconds(self) -> float:
        """How long the client's tools take, those of one turn side by side."""
        return sum(turn.tool_seconds for turn in self.turns)

    def floor(self, tokens_per_second: float, rtt: float) -> float:
        """The least that it can take, in seconds: its tokens, its tools, and one round trip per park."""
        return self.tokens / tokens_per_second + self.tool_seconds + rtt * self.parks


def _turns(rollout: Rollout) -> Iterator[Turn]:
    history = _size(rollout.instructions or "", *(encode(tool).decode() for tool in rollout.tools))
    times = _times(rollout)
    for outside, said in _groups(rollout.records):
        history += _size(*(record.text if isinstance(record, UserRecord) else record.output for record in outside))
        texts = [text for record in said for text in _texts(record)]
        calls = [call for record in said for call in record.calls]
        sampled = _size(*texts)
        yield Turn(
            history=history,
            items=len(texts),
            tokens=sampled,
            calls=len(calls),
            tool_seconds=_longest(times, calls),
        )
        history += sampled


def tool_seconds(rollout: Rollout) -> float:
    """How long the tools take, those of one turn side by side: as ``Workload.tool_seconds``, without a look at the texts."""
    times = _times(rollout)
    return sum(_longest(times, [call for record in said for call in record.calls]) for _, said in _groups(rollout.records))


def _times(rollout: Rollout) -> dict[str, float]:
    return {record.call_id: record.seconds or 0.0 for record in rollout.records if isinstance(record, ToolRecord)}


def _longest(times: Mapping[str, float], calls: Sequence[RecordedCall]) -> float:
    return max((times.get(call.call_id, 0.0) for call in calls), default=0.0)


def _groups(records: Sequence[Record]) -> list[tuple[list[UserRecord | ToolRecord], list[AssistantRecord]]]:
    """What comes from outside, and what the model says to it."""
    groups: list[tuple[list[UserRecord | ToolRecord], list[AssistantRecord]]] = [([], [])]
    for record in records:
        if isinstance(record, AssistantRecord):
            groups[-1][1].append(record)
        else:
            if groups[-1][1]:
                groups.append(([], []))
            groups[-1][0].append(record)
    return groups


def _texts(record: AssistantRecord) -> list[str]:
    said = [text for text in (record.reasoning, record.text) if text]
    return [*said, *(call.arguments for call in record.calls)]


def _size(*texts: str) -> int:
    return sum(tokens.count(text) for text in texts)
