"""The ``trajectory`` model: replays a recorded rollout, its turns, texts and calls, byte for byte.

Theory. The assistant's records are flattened to lines, each a thought, a message or a call. Records with nothing of the user
or of tools between them are one turn; at its end the model stops, for its calls or because it has answered, and goes on with
the next turn when there is something new. Where it is, it knows from the context alone: each thought, each assistant's
message and each call there is a line that was said. What the messages and outputs hold is not looked at, so a context that
deviates from the recording is followed by position. After the last turn it has nothing more to say.

It is a recording: ``tool_choice`` and ``parallel_tool_calls`` don't change it. ``max_output_tokens`` cuts it.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from os import PathLike
from typing import Self

from attrs import frozen

from protocol.items import CALL_CLASSES, Item, Message, Reasoning, text_of

from ..trajectories import AssistantRecord, RecordedCall, Rollout, read_rollout
from .base import CallBegin, ModelError, Plan, Stop
from .offers import Offers
from .pacing import PacedSampler, TextWords, Utterance, observe_all


@frozen
class Thought:
    """Reasoning."""

    text: str


@frozen
class Line:
    """One thought, message or call, and the number of its turn."""

    turn: int
    said: Thought | str | RecordedCall


@frozen
class Recording:
    """What the model says, line by line; and the line of each call, by its id."""

    lines: tuple[Line, ...]
    line_of_call: dict[str, int]

    @classmethod
    def of(cls, rollout: Rollout) -> Self:
        """The lines of a rollout."""
        lines: list[Line] = []
        turn = 0
        for record in rollout.records:
            if isinstance(record, AssistantRecord):
                lines += [Line(turn, Thought(record.reasoning))] if record.reasoning else []
                lines += [Line(turn, record.text)] if record.text else []
                lines += [Line(turn, call) for call in record.calls]
            elif lines and lines[-1].turn == turn:
                turn += 1
        line_of_call = {line.said.call_id: at for at, line in enumerate(lines) if isinstance(line.said, RecordedCall)}
        return cls(tuple(lines), line_of_call)


class TrajectoryModel:
    """Replays ``rollout``. ``tokens_per_second`` None is as fast as can be."""

    def __init__(self, rollout: Rollout, name: str, tokens_per_second: float | None = None) -> None:
        self._recording = Recording.of(rollout)
        self._name = name
        self._rate = tokens_per_second

    @classmethod
    def load(cls, path: str | PathLike[str], tokens_per_second: float | None = None, name: str | None = None) -> Self:
        """Replay the rollout in a file; its name is ``trajectory:PATH`` by default. Raises as ``read_rollout`` does."""
        return cls(read_rollout(path), name or f"trajectory:{path}", tokens_per_second)

    @property
    def name(self) -> str:
        """What requests call it."""
        return self._name

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[PacedSampler]:
        """A sampler that stands where the context says."""
        replay = _Replay(self._recording, plan, self._rate)
        await observe_all(replay, plan.prompt.items)
        yield PacedSampler(replay, plan.max_output_tokens)


class _Replay:
    """A ``Source``: a place in the recording."""

    def __init__(self, recording: Recording, plan: Plan, rate: float | None) -> None:
        self.rate = rate
        self._recording = recording
        self._offers = Offers(plan.tools)
        self._at = 0
        self._turn = 0
        self._has_called = False

    def observe(self, item: Item) -> None:
        if isinstance(item, Message):
            if item.role == "assistant" and text_of(item.content):
                self._pass(self._next_of(str))
        elif isinstance(item, Reasoning):
            self._pass(self._next_of(Thought))
        elif isinstance(item, CALL_CLASSES):
            known = self._recording.line_of_call.get(item.call_id)
            self._pass(self._next_of(RecordedCall) if known is None else known)

    def resume(self) -> None:
        lines = self._recording.lines
        self._turn = lines[self._at].turn if self._at < len(lines) else -1
        self._has_called = False

    def next(self) -> Utterance | Stop | ModelError:
        lines = self._recording.lines
        if self._at == len(lines) or lines[self._at].turn != self._turn:
            return Stop("tool_calls" if self._has_called else "end")
        said = lines[self._at].said
        if isinstance(said, Thought):
            return Utterance("reasoning", TextWords(said.text))
        if isinstance(said, str):
            return Utterance("message", TextWords(said))
        begin = CallBegin(said.name, self._offers.kind_of(said.name), said.call_id)
        return Utterance("call", TextWords(said.arguments), begin)

    def begun(self) -> None:
        self._has_called |= isinstance(self._recording.lines[self._at].said, RecordedCall)
        self._at += 1

    def _next_of(self, kind: type[Thought | str | RecordedCall]) -> int | None:
        lines: Sequence[Line] = self._recording.lines
        return next((at for at in range(self._at, len(lines)) if isinstance(lines[at].said, kind)), None)

    def _pass(self, at: int | None) -> None:
        if at is not None and at >= self._at:
            self._at = at + 1
