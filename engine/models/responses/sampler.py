"""One Response here, as a chain of Responses there.

receive: ask (again, while nothing was sampled) ──events──> chunks … Stop
extend:  what the other server put out, and what is new, is history; the next ask says what is new
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from protocol.items import OUTPUT_CLASSES, Item, answered_call_id

from ..base import Chunk, Plan, Rendered, Stop
from .asking import UNLIMITED_TOKENS, Frame, as_input, said_again, settings, tool_choice
from .faults import Passing
from .lines import Line, Lines
from .reading import Reading, usage_of

BACKOFF_SECONDS: Final = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Before each further attempt: a server that is started again is back after some seconds."""
PATIENCE_SECONDS: Final = 20.0
"""A server that says to come back later than this is not waited for."""


class RelaySampler:
    """A ``ReportingSampler`` whose state is the other server's."""

    def __init__(self, lines: Lines, plan: Plan, model: str) -> None:
        self._lines = lines
        self._plan = plan
        self._settings = settings(plan, model)
        self._said: list[Item | Frame] = [*plan.prompt.items]
        """All that was said: what came from here as items, what the other server put out as it put it out."""
        self._new: Sequence[Item] = ()
        self._line: Line | None = None
        self._previous: str | None = None
        """The Response that the line remembers."""
        self._reading: Reading | None = None
        self._called = self._parked = self._continues = False
        self._kept = self._lost = self._requests = 0
        self._usage = dict.fromkeys(("input_tokens", "cached_tokens", "output_tokens"), 0)

    async def receive(self) -> Sequence[Chunk]:
        """See ``Sampler``. Before anything was sampled it tries again; cancelled, the other server's Response is dropped
        when the sampler is left."""
        if self._reading is not None:
            return await self._next(self._reading)
        if self._left() == 0:
            await trio.lowlevel.checkpoint()
            return [Stop("max_output_tokens")]
        for pause in BACKOFF_SECONDS:
            try:
                return await self._first()
            except Passing as error:
                wait = max(pause, error.retry_after or 0.0)
                if wait > PATIENCE_SECONDS:
                    raise
            await self._drop()
            await trio.sleep(wait)
        return await self._first()

    async def extend(self, new: Rendered) -> None:
        """See ``Sampler``. What is new is sent when it is asked for what comes next."""
        reading, self._reading = self._reading, None
        assert reading is not None
        answered = {answered_call_id(item) for item in new.items if isinstance(item, OUTPUT_CLASSES)}
        output = [reading.output[index] for index in sorted(reading.output)]
        if not answered.issuperset(reading.calls):  # calls that this server has not let through
            self._previous = None
            output = [item for item in output if item.get("call_id") is None or item["call_id"] in answered]
        self._called = self._called or bool(reading.calls)
        self._said += [*said_again(output), *new.items]
        self._new = new.items
        self._parked = True
        await trio.lowlevel.checkpoint()

    def report(self) -> Mapping[str, Any]:
        """See ``ReportingSampler``: how often the other server still knew, and what it says that it took."""
        return {"kv_kept": self._kept, "kv_lost": self._lost, "upstream": {"requests": self._requests, **self._usage}}

    async def aclose(self) -> None:
        """Let the line go: for another rollout, or, if the other server is still at it, for good."""
        quiet = self._reading is None or self._reading.response is not None
        if self._line is not None and quiet and self._lines.give_back(self._line):
            self._line = None
        await self._drop()

    # ---- inside

    async def _first(self) -> Sequence[Chunk]:
        """Ask, and take what is sampled first."""
        chunks = await self._next(await self._ask())
        if self._parked:  # whatever was tried, this is how it went on
            self._kept, self._lost = self._kept + self._continues, self._lost + (not self._continues)
            self._parked = False
        return chunks

    async def _ask(self) -> Reading:
        if self._line is None:
            self._line = await self._lines.open()
        self._continues = self._previous is not None
        await self._line.ask(self._body())
        self._requests += 1
        self._reading = reading = Reading()
        return reading

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = {**self._settings}
        choice = tool_choice(self._plan, called=self._called)
        if choice != "auto":
            body["tool_choice"] = choice
        left = self._left()
        if left is not None:
            body["max_output_tokens"] = left
        if self._previous is not None:
            return {**body, "previous_response_id": self._previous, "input": as_input(self._new)}
        return {**body, "input": self._history()}

    def _history(self) -> list[Frame]:
        sent: list[Frame] = []
        for one in self._said:
            sent += [one] if isinstance(one, Mapping) else as_input((one,))
        return sent

    def _left(self) -> int | None:
        """How many tokens may still be sampled; None where nobody has set a limit."""
        most = self._plan.max_output_tokens
        if most is None or most >= UNLIMITED_TOKENS:
            return None
        return max(0, most - self._usage["output_tokens"])

    async def _next(self, reading: Reading) -> Sequence[Chunk]:
        assert self._line is not None
        while True:
            try:
                chunks = reading.feed(await self._line.receive())
            finally:
                if reading.response is not None:
                    self._ended(reading.response)
            if chunks:
                return chunks

    def _ended(self, response: Frame) -> None:
        usage = usage_of(response)
        for name in self._usage:
            self._usage[name] += usage[name]
        remembers = self._line is not None and self._line.remembers
        self._previous = str(response.get("id")) if remembers else None

    async def _drop(self) -> None:
        line, self._line = self._line, None
        self._previous = self._reading = None
        if line is not None:
            await line.drop()
