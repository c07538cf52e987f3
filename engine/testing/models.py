"""Models that do as a test says: ``FakeModel`` plays chunks, waits and failures; ``RecordingModel`` notes what it was given."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Literal

import trio
from attrs import define, field, frozen

from ..models.base import (
    CallBegin,
    CallEnd,
    CallPieces,
    Chunk,
    Model,
    ModelError,
    Plan,
    Reasoning,
    Rendered,
    Sampler,
    Stop,
    StopReason,
    Text,
)


@frozen
class Delay:
    """Wait so many seconds."""

    seconds: float


HANG: Final = Delay(float("inf"))
"""Never go on."""

Step = Sequence[Chunk] | Delay | trio.Event | BaseException
"""What a fake model does next: give out a batch, wait, wait for an event, or raise."""


def say(*pieces: str) -> list[Chunk]:
    """A piece of a message for each of ``pieces``."""
    return [Text(pieces, len(pieces))]


def think(*pieces: str) -> list[Chunk]:
    """As ``say``, of reasoning."""
    return [Reasoning(pieces, len(pieces))]


def call(name: str, arguments: str = "{}", call_id: str | None = None, *, custom: bool = False) -> list[Chunk]:
    """A whole call."""
    kind: Literal["function_call", "custom_tool_call"] = "custom_tool_call" if custom else "function_call"
    return [CallBegin(name, kind, call_id), CallPieces((arguments,), 1), CallEnd()]


def stop(reason: StopReason = "end") -> list[Chunk]:
    """Sampling stops."""
    return [Stop(reason)]


def wait() -> list[Chunk]:
    """Sampling stops for the results of calls."""
    return [Stop("tool_calls")]


@define(eq=False)
class Life:
    """What one sampler was given, and whether its state was freed."""

    prompt: Rendered
    extended: list[Rendered] = field(factory=list)
    closed: bool = False

    @property
    def ids(self) -> list[int]:
        """All token ids that came from outside."""
        return [number for given in (self.prompt, *self.extended) for number in given.ids]


class FakeModel:
    """Plays ``steps``, the same for each Response. ``lives`` has one entry per Response, in the order of opening."""

    def __init__(self, *steps: Step, name: str = "fake") -> None:
        self.name = name
        self.steps = steps
        self.lives: list[Life] = []

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[Sampler]:
        """A sampler that plays the steps."""
        life = Life(plan.prompt)
        self.lives.append(life)
        try:
            yield _FakeSampler(self.steps, life)
        finally:
            life.closed = True


class _FakeSampler:
    def __init__(self, steps: Iterable[Step], life: Life) -> None:
        self._steps = iter(steps)
        self._life = life

    async def receive(self) -> Sequence[Chunk]:
        await trio.lowlevel.checkpoint()
        for step in self._steps:
            if isinstance(step, Delay):
                await trio.sleep(step.seconds)
            elif isinstance(step, trio.Event):
                await step.wait()
            elif isinstance(step, BaseException):
                raise step
            else:
                return step
        raise ModelError("the fake model has no more steps")

    async def extend(self, new: Rendered) -> None:
        await trio.lowlevel.checkpoint()
        self._life.extended.append(new)


class RecordingModel:
    """Another model, with a note of what each of its samplers was given."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.lives: list[Life] = []

    @property
    def name(self) -> str:
        """The model's own."""
        return self._model.name

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[Sampler]:
        """The model's own sampler."""
        life = Life(plan.prompt)
        self.lives.append(life)
        try:
            async with self._model.open(plan) as sampler:
                yield _RecordingSampler(sampler, life)
        finally:
            life.closed = True


class _RecordingSampler:
    def __init__(self, sampler: Sampler, life: Life) -> None:
        self._sampler = sampler
        self._life = life

    async def receive(self) -> Sequence[Chunk]:
        return await self._sampler.receive()

    async def extend(self, new: Rendered) -> None:
        self._life.extended.append(new)
        await self._sampler.extend(new)
