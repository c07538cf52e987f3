"""The smallest agent that fastresponses can serve: a word and a call, at once. Loaded by ``fastresponses serve``."""

from collections.abc import AsyncIterator
from itertools import count
from typing import Any

from fastresponses import AgentAdapter, AgentRun, ItemDone, TextDelta, UsageDelta
from fastresponses.models import FunctionCallItem

NUMBERS = count()


class Instant(AgentAdapter):  # type: ignore[misc]  # fastresponses is not there when types are checked
    """Does not read."""

    name = "bench"
    default_model = "gpt-5"

    async def run(self, run: AgentRun) -> AsyncIterator[Any]:  # noqa: ARG002
        """One turn."""
        number = next(NUMBERS)
        yield TextDelta("Now")
        yield ItemDone(
            FunctionCallItem(
                id=f"fc_{number:024}",
                call_id=f"call_{number:024}",
                name="look",
                arguments='{"at":"README"}',
                status="completed",
            )
        )
        yield UsageDelta(input_tokens=600, output_tokens=6, total_tokens=606)


adapter = Instant()
