"""A conversation, without a terminal: one Response that is held from the first word to the last.

    ┌────────────> the person says something ──create, then append──> the model speaks
    │                                                                   │        ^
    │ parked for the user                     parked for results ───────┤        │ append
    └───────────────────────────────────────────────────────────────────┘     tools run

Whatever ends the Response before the person does (Ctrl-C, a model that fails, a server that forgot it, a park of hours), the
next word begins another one with all that was said, which the conversation keeps. A word that a Response ended without
having heard is said again to the next one.
"""

import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

import trio
from attrs import define, field, frozen

from protocol.client import Acknowledged, AskUser, Frame, RunCall, output_for

from ...client import Client, ConnectionLost, Event, Rollout, RolloutError, background
from .transcript import Transcript

DENIED: Final = "error: the user did not allow this call"
"""What the model reads of a call that was not run."""
STOP_SECONDS: Final = 5.0
"""For the terminal event of a Response that was cancelled or finished; a server that is there takes milliseconds."""


class Person(Protocol):
    """Who talks with the model."""

    async def next_words(self) -> str | None:
        """What they say next; None when they leave."""


class Hands(Protocol):
    """The tools, and whoever allows them."""

    @property
    def definitions(self) -> list[Frame]:
        """As the model is told of them."""

    def asks_first(self, call: Frame) -> bool:
        """Whether a person is asked before ``call`` runs. Such calls run alone, in their order."""

    async def allows(self, call: Frame) -> bool:
        """Ask, if need be. Cancelled, nothing is allowed."""

    async def answer(self, call: Frame) -> Frame:
        """Run ``call``; the output item that answers it."""


class Audience(Protocol):
    """Who watches. All of it is told in order, one at a time."""

    def said(self, words: str) -> None:
        """The person's words are on their way; the model's are awaited."""

    def event(self, frame: Frame) -> None:
        """The server has sent an event."""

    def result(self, call: Frame, output: Frame, seconds: float) -> None:
        """A tool has answered."""

    def note(self, text: str) -> None:
        """Something happened that changes nothing."""

    def failed(self, error: RolloutError | ConnectionLost) -> None:
        """What was said was refused, or nobody is there."""

    def over(self, counts: "Counts") -> None:
        """It is the person's turn."""


@frozen(kw_only=True)
class Counts:
    """What it has taken so far. ``parks`` are those for tools and for the person; tokens are as ``usage`` has them; ``kept``
    and ``lost`` is what became of the model's state in parks, of Responses that have ended and models that say it."""

    responses: int = 0
    parks: int = 0
    reconnects: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    kept: int = 0
    lost: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in Counts.__annotations__})

    @classmethod
    def of(cls, rollout: Rollout) -> "Counts":
        """Those of one Response, as last heard."""
        usage: Mapping[str, Any] = rollout.state.usage or {}
        engine = (rollout.state.response or {}).get("engine") or {}
        return cls(
            responses=rollout.state.response_id is not None,
            parks=rollout.state.parks,
            reconnects=max(0, rollout.connections - 1),
            input_tokens=usage.get("input_tokens") or 0,
            cached_tokens=(usage.get("input_tokens_details") or {}).get("cached_tokens") or 0,
            output_tokens=usage.get("output_tokens") or 0,
            reasoning_tokens=(usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0,
            kept=engine.get("kv_kept") or 0,
            lost=engine.get("kv_lost") or 0,
        )


@define(eq=False)
class Conversation:
    """With one model. ``body`` has the fields of each create but for ``input``: the model, instructions and so on."""

    client: Client
    body: Mapping[str, Any]
    hands: Hands
    person: Person
    audience: Audience
    transcript: Transcript = field(factory=Transcript, init=False)
    failed: bool = field(default=False, init=False)
    """Whether what was said last was refused, or the model has failed."""
    _past: Counts = field(factory=Counts, init=False)
    _rollout: Rollout | None = field(default=None, init=False)
    _connections: int = field(default=0, init=False)
    _turn_scope: trio.CancelScope | None = field(default=None, init=False)
    _unheard: Frame | None = field(default=None, init=False)
    _anew: bool = field(default=False, init=False)

    @property
    def counts(self) -> Counts:
        """What it has taken so far."""
        return self._past + Counts.of(self._rollout) if self._rollout else self._past

    async def run(self) -> None:
        """Until the person leaves. Cancelled, tools and the Response are cancelled."""
        words = await self.person.next_words()
        while words is not None:
            words = await self._respond(words)

    def interrupt(self) -> None:
        """Cut short what is being said, and tools that run. Nothing happens if it is the person's turn."""
        if self._turn_scope is not None:
            self._turn_scope.cancel()

    def begin_anew(self) -> None:
        """Forget what was said: the person's next words begin another Response."""
        self.transcript = Transcript()
        self._anew = True

    # ---- one Response

    async def _respond(self, words: str) -> str | None:
        """One Response, from these words to its end; what the next one begins with, or None."""
        self._anew, self._connections = False, 0
        body = {**self.body, "input": [*self.transcript.items(), self._say(words)], "tools": self.hands.definitions or None}
        try:
            async with self.client.rollout(hold="conversation", **body) as rollout:
                self._rollout = rollout
                try:
                    following = await self._talk(rollout)
                finally:
                    self._past, self._rollout = self.counts, None
        except (RolloutError, ConnectionLost) as error:
            if (again := self._not_heard(begun=rollout.state.response_id is not None)) is None:
                self.failed = True
                self.audience.failed(error)
                self.audience.over(self.counts)
                return await self.person.next_words()
            return again
        return following

    async def _talk(self, rollout: Rollout) -> str | None:
        """Take turns until the Response or the person ends it."""
        while await self._turn(rollout):
            words = await self.person.next_words()
            if words is None or self._anew:
                await self._end(rollout)
                return words
            await rollout.append(self._say(words))
        if (again := self._not_heard()) is not None:
            return again
        self.audience.over(self.counts)
        return await self.person.next_words()

    def _say(self, words: str) -> Frame:
        self.failed = False
        self._unheard = {"type": "message", "role": "user", "content": words}
        self.audience.said(words)
        return self._unheard

    def _not_heard(self, *, begun: bool = True) -> str | None:
        """Words that a Response which had begun ended without having heard; they are said again, once."""
        message, self._unheard = self._unheard, None
        if message is None or not begun:
            return None
        self.audience.note("the Response had ended: a new one goes on with what was said")
        return str(message["content"])

    async def _end(self, rollout: Rollout) -> None:
        await rollout.finish()
        await self._drain(rollout)

    async def _drain(self, rollout: Rollout) -> None:
        with trio.move_on_after(STOP_SECONDS):
            async for event in rollout:
                self._hear(event)

    # ---- one turn

    async def _turn(self, rollout: Rollout) -> bool:
        """The model speaks, and tools run, until the Response waits for the person: true, or has ended."""
        with trio.CancelScope() as self._turn_scope:
            waits = await self._listen(rollout)
        cut, self._turn_scope = self._turn_scope.cancelled_caught, None
        if cut:
            self._heard_words()
            await rollout.cancel()
            await self._drain(rollout)
            return False
        if waits:
            self.audience.over(self.counts)
        return waits

    async def _listen(self, rollout: Rollout) -> bool:
        calls: list[Frame] = []
        async with background() as tools:
            async for event in rollout:
                self._hear(event)
                for notice in event.notices:
                    if isinstance(notice, RunCall):
                        calls.append(notice.item)
                    elif isinstance(notice, AskUser):
                        return True
                if calls and rollout.state.parked:
                    tools.start_soon(self._answer_all, rollout, calls)
                    calls = []
        return False

    def _hear(self, event: Event) -> None:
        rollout = self._rollout
        if rollout is not None and rollout.connections > self._connections:
            if self._connections:
                self.audience.note("the connection was lost, and is there again")
            self._connections = rollout.connections
        if event.type == "response.created" or Acknowledged((), False) in event.notices:
            self._heard_words()
        elif event.type == "response.output_item.done":
            self.transcript.heard(event.frame["item"])
        self.failed = event.type == "response.failed"
        self.audience.event(event.frame)

    def _heard_words(self) -> None:
        if self._unheard is not None:
            self.transcript.said(self._unheard)
            self._unheard = None

    # ---- tools

    async def _answer_all(self, rollout: Rollout, calls: list[Frame]) -> None:
        """Those that nobody is asked about side by side, then the others."""
        async with trio.open_nursery() as nursery:
            for call in calls:
                if not self.hands.asks_first(call):
                    nursery.start_soon(self._answer, rollout, call)
        for call in calls:
            if self.hands.asks_first(call):
                await self._answer(rollout, call)

    async def _answer(self, rollout: Rollout, call: Frame) -> None:
        allowed = await self.hands.allows(call)
        started = time.perf_counter()
        output = await self.hands.answer(call) if allowed else output_for(call, DENIED, failed=True)
        self.transcript.answered(output)
        self.audience.result(call, output, time.perf_counter() - started)
        await rollout.append(output)
