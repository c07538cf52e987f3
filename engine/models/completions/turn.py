"""One turn of a model, read from what the server says of it."""

from collections.abc import Mapping
from typing import Any

from ..base import Chunk, Counted, Plan, Stop, StopReason
from ..formats.base import ModelFormat
from .dialects import Reading


class Turn:
    """Ids become chunks, and are kept."""

    def __init__(self, form: ModelFormat, plan: Plan, reading: Reading) -> None:
        self.reading = reading
        self.sampled: list[int] = []
        """Without the stop token."""
        self.enough = False
        """The model has said what it may: the server need not go on."""
        self._stops = form.stops
        self._parser = form.parser(plan)
        self._parallel = plan.parallel_tool_calls
        self._stopped = False

    @property
    def tokens(self) -> int:
        """How many were sampled."""
        return len(self.sampled) + self.reading.unknown

    @property
    def over(self) -> bool:
        """No more ids come, but there may be something to be said of the turn."""
        return self._stopped or self.enough or self.reading.ended is not None

    def feed(self, payload: Mapping[str, Any]) -> list[Chunk]:
        """One event. Raises ``ModelError``."""
        chunks: list[Chunk] = []
        for token in self.reading.feed(payload):
            if self._stopped or self.enough:
                self.enough = True  # the server does not stop where the format does
                break
            if token in self._stops:
                self._stopped = True
                continue
            self.sampled.append(token)
            chunks += self._parser.feed((token,))
            self.enough = self._parser.called and not self._parallel
        return chunks

    def finish(self) -> list[Chunk]:
        """What was held back, and the ``Stop``."""
        unknown = [Counted(self.reading.unknown)] if self.reading.unknown else []
        return [*self._parser.finish(), *unknown, Stop(self._reason())]

    def _reason(self) -> StopReason:
        if self.reading.ended == "length" and not self._stopped:
            return "max_output_tokens"
        return "tool_calls" if self._parser.called else "end"
