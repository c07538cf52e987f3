"""A Response's state at a server that takes token ids: all of its ids, and the slot that has read them.

    prompt, opening, [sampled], closing, results, opening, [sampled], closing, …

What was sampled is kept as it was sampled, and never made into text and back. Each turn is one request with all ids; where
the server still has the state of those that it was sent before, it reads only what is new. A request is sent again only if
nothing was sampled for it: the connection broke, or the server is busy or still loading its model.
"""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import httpx2
import trio
from attrs import define, evolve

from protocol.fields import Json

from ..base import Chunk, ModelError, Plan, Rendered, Stop
from ..chat.answer import Answer, NotThere
from ..chat.sse import Payload
from ..formats.base import ModelFormat
from ..upstream import Upstream, persistently
from .dialects import Ask, Dialect, Reading
from .slots import Slot, Slots
from .turn import Turn

PAUSES_SECONDS: Final = (0.1, 0.3, 1.0)
"""Before each further try, while nothing was sampled."""
MANY_TOKENS: Final = 1 << 20
"""More than any context has, where neither the request nor the server says how many."""


class Keeper(Protocol):
    """Who looks after a server's process."""

    async def ready(self) -> None:
        """Wait until it answers; raises ``ModelError``."""
        ...

    async def trouble(self) -> ModelError | None:
        """Why a connection to it broke, if that is because its process ended."""
        ...


@define(eq=False, kw_only=True)
class Server:
    """A server that was found, and how to talk with it."""

    upstream: Upstream
    http: httpx2.AsyncClient
    dialect: Dialect
    form: ModelFormat
    context: int | None
    """Tokens of a prompt and its answer."""
    slots: Slots | None
    keeper: Keeper | None = None
    seed: int | None = None


@define
class Kept:
    """What became of a Response's state in its parks."""

    kept: int = 0
    lost: int = 0
    reused: int = 0
    read: int = 0
    said: bool = False
    """Whether the server says it."""

    def count(self, reading: Reading, parked_with: int | None) -> None:
        """One turn. ``parked_with``: so many ids it had when it was parked; None if it was not."""
        if reading.reused is None:
            return
        self.said = True
        self.reused += reading.reused
        self.read += reading.evaluated or 0
        if parked_with is not None:
            here = reading.reused >= parked_with - 1  # the last one that was sampled need not have been read
            self.kept, self.lost = self.kept + here, self.lost + (not here)


class CompletionsSampler:
    """Samples one Response. ``aclose`` frees what it holds."""

    def __init__(self, server: Server, plan: Plan) -> None:
        self._server = server
        self._plan = plan
        self._ids = array("I", plan.prompt.ids)
        self._left = plan.max_output_tokens
        self._opened: int | None = None
        """Where in the ids the turn begins; None before the first one."""
        self._parked_with: int | None = None
        self._turn: Turn | None = None
        self._answer: Answer | None = None
        self._slot: Slot | None = None
        self._stop: Stop | None = None
        self._failure: ModelError | None = None
        self._kept = Kept()

    async def receive(self) -> Sequence[Chunk]:
        """The next chunks. Raises ``ModelError``; what came last, a ``Stop`` or an error, comes again. Cancelled, the sampler
        can only be closed."""
        await trio.lowlevel.checkpoint()
        if self._failure is not None:
            raise self._failure
        if self._stop is not None:
            return (self._stop,)
        try:
            return await self._next()
        except ModelError as error:
            self._failure = error
            await self._let_go()  # noqa: ASYNC120 - shielded
            raise

    async def extend(self, new: Rendered) -> None:
        """Take in what is new behind the turn."""
        await trio.lowlevel.checkpoint()
        self._parked_with = len(self._ids)
        self._ids.extend((*self._server.form.closing, *new.ids))
        self._plan = evolve(self._plan, tool_choice=_later(self._plan.tool_choice))
        self._turn = self._stop = None

    def turn_ids(self) -> Sequence[int]:
        """What opens the turn, what was sampled, what closes it. Nothing before the first turn."""
        return () if self._opened is None else (*self._ids[self._opened :], *self._server.form.closing)

    def report(self) -> Mapping[str, Any]:
        """How often its state was still there after a park (``kv_kept``) or was not (``kv_lost``); how many tokens of prompts
        were there (``kv_tokens_reused``), and how many were read. Nothing if the server does not say."""
        kept = self._kept
        counts = {"kv_kept": kept.kept, "kv_lost": kept.lost, "kv_tokens_reused": kept.reused, "kv_tokens_read": kept.read}
        return counts if kept.said else {}

    async def aclose(self) -> None:
        """Stop sampling, and leave the slot to others. Also when cancelled."""
        await self._let_go()
        if self._server.slots is not None:
            self._server.slots.end(self)

    # ---- a turn

    async def _next(self) -> Sequence[Chunk]:
        if self._turn is None:
            self._open()
            if self._left is not None and self._left <= 0:
                return self._stopped([Stop("max_output_tokens")])
            if self._server.slots is not None:
                self._slot = await self._server.slots.take(self, self._ids)
            chunks = await self._take(await self._ask())
        else:
            chunks = []
        while not chunks:
            chunks = await self._take(await self._receive())
        return chunks

    def _open(self) -> None:
        """Begin a turn. Raises ``ModelError`` if there is no room for it."""
        self._opened = len(self._ids)
        self._ids.extend(self._server.form.opening)
        context, size = self._server.context, len(self._ids)
        if context is not None and size >= context:
            message = f"the conversation has {size} tokens, and the model takes {context} at most, its answer included"
            raise ModelError(message, code="context_length_exceeded", fault="request")

    async def _take(self, payloads: Sequence[Payload] | None) -> Sequence[Chunk]:
        """Chunks of what came in; perhaps none. ``payloads`` is None where nothing more comes."""
        turn = self._turn
        assert turn is not None
        known = len(turn.sampled)
        try:
            chunks = [chunk for payload in payloads or () if payload is not None for chunk in turn.feed(payload)]
        finally:
            self._ids.extend(turn.sampled[known:])
        done = payloads is not None and (None in payloads or self._server.dialect.over(turn.reading))
        if done or turn.enough or payloads is None:
            chunks += await self._end(turn, whole=done)
            return self._stopped(chunks)
        return chunks

    async def _end(self, turn: Turn, *, whole: bool) -> Sequence[Chunk]:
        """The turn is over. ``whole``: so is the answer, and its connection can be used again."""
        if not turn.over:
            raise ModelError("the model's server has ended its answer in the middle")
        answer, self._answer = self._answer, None
        assert answer is not None
        await (answer.finish() if whole else answer.aclose())
        self._kept.count(turn.reading, self._parked_with)
        if self._left is not None:
            self._left -= turn.tokens
        if self._slot is not None and self._server.slots is not None:
            self._server.slots.park(self._slot, self._ids)
            self._slot = None
        return turn.finish()

    def _stopped(self, chunks: list[Chunk]) -> Sequence[Chunk]:
        assert isinstance(chunks[-1], Stop)
        self._stop = chunks[-1]
        return chunks

    # ---- the server

    async def _ask(self) -> Sequence[Payload] | None:
        """Ask, again if that may help, and read what comes first. Raises ``ModelError``."""
        return await persistently(self._try, PAUSES_SECONDS, lambda error, pause: pause if _may_pass(error) else None)

    async def _try(self) -> Sequence[Payload] | None:
        server = self._server
        if server.keeper is not None:
            await server.keeper.ready()
        self._turn = Turn(server.form, self._plan, server.dialect.reading())
        self._answer = await Answer.ask(server.http, server.dialect.body(self._asked()), server.dialect.path)
        return await self._receive()

    async def _receive(self) -> Sequence[Payload] | None:
        assert self._answer is not None
        assert self._turn is not None
        try:
            return await self._answer.receive(over=self._turn.over)
        except ModelError as error:
            await self._answer.aclose()
            keeper = self._server.keeper
            raise (keeper and await keeper.trouble()) or error from error.__cause__

    def _asked(self) -> Ask:
        plan, server = self._plan, self._server
        room = None if server.context is None else server.context - len(self._ids)
        return Ask(
            ids=self._ids.tolist(),
            tokens=min((most for most in (self._left, room) if most is not None), default=MANY_TOKENS),
            slot=None if self._slot is None else self._slot.number,
            temperature=plan.temperature,
            top_p=plan.top_p,
            seed=server.seed,
            grammar=server.form.grammar(plan),
            stops=sorted(server.form.stops),
        )

    async def _let_go(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            await answer.aclose()
        if self._slot is not None and self._server.slots is not None:
            self._server.slots.leave(self._slot, self._ids)
            self._slot = None


def _later(choice: str | Json) -> str | Json:
    """The ``tool_choice`` of the turns behind the first one: a call that has to be made is made there."""
    if isinstance(choice, str):
        return choice if choice == "none" else "auto"
    return {**choice, "mode": "auto"} if choice.get("type") == "allowed_tools" else "auto"


def _may_pass(error: ModelError) -> bool:
    """Whether it may help to ask once more: there was no connection, or it broke, or the server has no time."""
    return isinstance(error.__cause__, httpx2.HTTPError) or isinstance(error, NotThere) or error.fault == "busy"
