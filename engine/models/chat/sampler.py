"""A Response's state at a chat server: the messages so far, and the answer that is being read.

A chat server holds nothing between requests. So each turn is a request with the whole conversation; what is kept of it is
the server's affair. A request is sent again only if nothing was sampled for it: the connection was refused, or the server
said that it is busy, or that it does not know a field that we, not the client, have put in.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx2
import trio
from attrs import define

from protocol.items import OUTPUT_CLASSES, FileSearchCall, Item, answered_call_id

from ..base import Chunk, ModelError, Plan, Rendered, Stop
from ..upstream import persistently
from .answer import Answer, NotThere
from .ids import CallIds
from .request import Body, Dialect, body, structured
from .tools import Offered
from .transcript import Transcript
from .turn import Turn

PAUSES_SECONDS: Final = (0.25, 0.5, 1.0)
"""Before each further try, where the server does not say how long."""
PAUSE_MOST_SECONDS: Final = 10.0
"""A server that is busy for longer is the client's to wait for."""


@define
class Spent:
    """What the upstream says that a Response has cost, over all of its requests."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def add(self, usage: Mapping[str, Any]) -> None:
        """The usage of one request."""
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("prompt_cache_hit_tokens")
        self.input_tokens += _whole(usage.get("prompt_tokens"))
        self.cached_tokens += _whole(cached)
        self.output_tokens += _whole(usage.get("completion_tokens"))


class ChatSampler:
    """Samples one Response. ``model`` is its name there. Raises ``ModelError`` for a plan that no chat server can do."""

    def __init__(self, http: httpx2.AsyncClient, model: str, plan: Plan, dialect: Dialect) -> None:
        self._http = http
        self._model = model
        self._plan = plan
        self._dialect = dialect
        self._offered = Offered.of(plan)
        self._ids = CallIds(plan.prompt.items)
        self._transcript = Transcript(plan.instructions, plan.prompt.items)
        self._left = plan.max_output_tokens
        self._first = True
        self._answer: Answer | None = None
        self._turn = self._new_turn()
        self._failure: ModelError | None = None
        self._stop: Stop | None = None
        self._spent = Spent()

    async def receive(self) -> Sequence[Chunk]:
        """The next chunks. Raises ``ModelError``, when all that came before it was given out; what it gave last, a ``Stop`` or
        an error, it gives again. Cancelled, the sampler can only be closed."""
        if self._stop is not None or self._failure is not None:
            await trio.lowlevel.checkpoint()
            return self._verdict()
        if self._left is not None and self._left <= 0:
            self._stop = Stop("max_output_tokens")
            return await self.receive()
        if self._answer is None:
            self._answer = await self._ask()
        chunks: list[Chunk] = []
        while not chunks:
            chunks = await self._read(self._answer)
        return chunks

    async def extend(self, new: Rendered) -> None:
        """Take in what is new behind the turn. Raises ``ModelError`` for what no chat server takes."""
        await trio.lowlevel.checkpoint()
        self._tell_turn(new.items)
        self._turn, self._stop, self._first = self._new_turn(), None, False

    def report(self) -> Mapping[str, Any]:
        """What the upstream has charged, and which tools it was not told of."""
        spent = self._spent
        upstream = {"model": self._model} | {name: getattr(spent, name) for name in Spent.__slots__ if not name.startswith("_")}
        left_out = {"left_out": list(self._offered.left_out)} if self._offered.left_out else {}
        return {"upstream": upstream | left_out}

    async def aclose(self) -> None:
        """Drop the connection, if an answer is being read. Also when cancelled."""
        answer, self._answer = self._answer, None
        if answer is not None:
            await answer.aclose()

    # ---- asking

    def _new_turn(self) -> Turn:
        return Turn(self._offered.kinds, self._ids.own, parallel=self._plan.parallel_tool_calls)

    def _body(self) -> Body:
        messages = self._transcript.told(self._dialect.reasoning)
        return body(self._model, self._plan, self._offered, messages, self._dialect, self._left, self._first)

    async def _ask(self) -> Answer:
        """Ask, again if it is worth it. Raises ``ModelError``; cancellation drops the connection."""
        return await persistently(self._try, PAUSES_SECONDS, self._worth)

    async def _try(self) -> Answer:
        self._spent.requests += 1
        return await Answer.ask(self._http, self._body())

    def _worth(self, error: ModelError, pause: float) -> float | None:
        """How long to wait before asking again; None if it is not worth it."""
        if error.code == "invalid_prompt":
            return 0.0 if self._dialect.learn(error.message) else None
        if isinstance(error, NotThere):
            return pause
        if error.fault != "busy" or (error.retry_after or 0.0) > PAUSE_MOST_SECONDS:
            return None
        return pause if error.retry_after is None else error.retry_after

    # ---- reading

    async def _read(self, answer: Answer) -> list[Chunk]:
        chunks: list[Chunk] = []
        try:
            payloads = await answer.receive(over=self._turn.reason is not None)
            for payload in [None] if payloads is None else payloads:
                if payload is None:
                    chunks += await self._end(answer, done=payloads is not None)
                    break
                chunks += self._turn.feed(payload)
        except ModelError as error:
            await self.aclose()
            self._failure = error
        return chunks or ([] if self._failure is None and self._stop is None else list(self._verdict()))

    async def _end(self, answer: Answer, *, done: bool) -> list[Chunk]:
        """The answer is over, with ``[DONE]`` or without."""
        turn = self._turn
        await (answer.finish() if done else answer.aclose())
        self._answer = None
        self._dialect.reasoning = turn.reasoning_field or self._dialect.reasoning
        self._spent.add(turn.usage)
        if turn.silent or (turn.reason is None and not done):
            raise ModelError("the model's server has ended its answer in the middle")
        chunks = turn.finish()
        correction = turn.correction()
        if self._left is not None:
            self._left -= turn.tokens
        self._stop = turn.stop(structured=structured(self._plan))
        if self._stop.reason == "end" and self._first and self._offered.must_call:
            raise ModelError("tool_choice: the model's server does not keep to it: the model has answered without the call")
        return [*chunks, *([correction] if correction else []), self._stop]

    def _verdict(self) -> Sequence[Chunk]:
        if self._failure is not None:
            raise self._failure
        assert self._stop is not None
        return [self._stop]

    # ---- what was said

    def _tell_turn(self, items: Sequence[Item]) -> None:
        """The turn, and what answers it. Calls without an answer were not let through: they are as if never sampled."""
        turn, transcript = self._turn, self._transcript
        answered = {answered_call_id(item) for item in items if isinstance(item, OUTPUT_CLASSES)}
        searches = iter([item for item in items if isinstance(item, FileSearchCall)])
        transcript.think(turn.thoughts)
        transcript.say(turn.text)
        for call in turn.calls.made:
            if call.id in answered:
                transcript.call(call.id, call.name, call.arguments)
            elif call.name == "file_search" and (search := next(searches, None)) is not None:
                transcript.add(search)
        for item in items:
            if not isinstance(item, FileSearchCall):
                transcript.add(item)
        transcript.settle()


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0
