"""The ``scripted`` model: its program comes with the request, in the last user message that holds one.

So any client, in any language, can make the server do anything: say, reason, call tools and react to what they return,
fail, stop, at a pace. ``docs/scripted.md`` describes programs. Without one the model looks around with a shell that the request
offers, and reports. How it finds its place in the program is told in ``engine.models.mind``, how it speaks in
``engine.models.pacing``.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from .base import Plan
from .mind import Mind, malformed
from .pacing import PacedSampler, observe_all

NAME: Final = "scripted"


class ScriptedModel:
    """``tokens_per_second`` is the pace of programs that have none of their own; None is as fast as can be."""

    def __init__(self, name: str = NAME, tokens_per_second: float | None = None) -> None:
        self._name = name
        self._rate = tokens_per_second

    @property
    def name(self) -> str:
        """What requests call it."""
        return self._name

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[PacedSampler]:
        """A sampler that stands where the context says. Raises ``ModelError`` for a program that can't be read."""
        mind = Mind(plan, self._rate)
        await observe_all(mind, plan.prompt.items)
        if mind.error is not None:
            raise malformed(mind.error)
        yield PacedSampler(mind, plan.max_output_tokens)
