"""The stages of one Response, in their order: before inference, between (admission of what is appended), and after.

Each full run is once per Response; an append is admitted over its new items only, at a cost that does not grow with the
history (law L1). Every run is counted.
"""

import time
from array import array
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

import trio
from attrs import evolve, frozen

from protocol.codec import encode
from protocol.errors import ProtocolError
from protocol.items import FileSearchCall, Item, Message, text_of
from protocol.requests import CreateRequest

from ..history import History, history_of
from ..ledger import Row
from ..models.base import Format, Model, Plan, Rendered
from ..policy import Direction, Verdict
from ..services import Services
from ..store import Stored
from . import rendering, validate
from .counters import Count, Counters

T = TypeVar("T")


@frozen
class Previous:
    """The Response that another one continues: its context, and what can be reused of it."""

    history: History
    instructions: str | None = None
    """As they were sent; as the model read them they are in ``history.key``. None too if it was read back from a store."""
    model: Model | None = None
    stored: bool = True
    """Whether the store has it, so that its continuation need only store what is new."""
    began: int = 0
    """Where in ``history`` its own items begin."""


@frozen
class Prepared:
    """What the stages before inference have made of a request."""

    model: Model
    plan: Plan
    history: History
    """The context, with the request's input at its end."""
    new: tuple[Item, ...]
    """The request's own input."""
    cached_tokens: int


class Stages:
    """The stages of one Response, and what they did."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._reuse = services.config.reuse
        self.counters = Counters(time.perf_counter if services.price is None else trio.current_time)
        self.format: Format = rendering
        """How the model that was chosen wants its prompts."""
        self.flags: dict[str, None] = {}
        """Names of the policy's rules that matched."""
        self._took = 0.0
        """What was slept of the price."""

    async def take_time(self, *, shielded: bool = False) -> None:
        """Where time is virtual, work takes none: sleep as long as what was done since the last time is said to take."""
        price = self._services.price
        if price is not None:
            took, self._took = self._took, price(self.counters)
            with trio.move_on_after(self._took - took, shield=shielded):
                await trio.sleep_forever()

    # ---- before inference, once

    def takes_long(self, request: CreateRequest, previous: Previous | None) -> bool:
        """Whether ``before`` has to wait, for a thread for one; if it does not, it can be run ``at_once``."""
        history = previous.history.items if previous and not previous.history.rendered else ()
        own = len(request.input) if isinstance(request.input, str) else text_size(request.input)
        size = len(request.instructions or "") + own + text_size(history)
        if size >= self._services.config.thread_bytes or self._services.price is not None:
            return True
        return previous is not None and "tokens" not in self._reuse

    async def before(self, request: CreateRequest, previous: Previous | None, shape: str) -> Prepared:
        """Validate, route, classify and render; raises ``ProtocolError``."""
        history = previous.history.child() if previous else History()
        new = input_items(request)
        with self.counters.full("validate") as count:
            count.items += self._validate(request, shape, history, new)
        with self.counters.full("route") as count:
            model = self._route(request, previous, count)
            self.format = getattr(model, "format", rendering)
        with self.counters.full("classify") as count:
            request, new = self._classify_request(request, previous, new, count)
        with self.counters.full("render") as count:
            cached = await self._render(request, history, new, count)
        await self.take_time()
        plan = self._plan(request, Rendered(history.items.snapshot(), history.ids.snapshot()))
        if shape == "append" or (shape == "http" and request.store is False):
            history.forget_ids()  # the sampler has them, and nobody else will go on from them
        return Prepared(model, plan, history, new, cached)

    def _validate(self, request: CreateRequest, shape: str, history: History, new: Sequence[Item]) -> int:
        """Returns how many items were looked at."""
        validate.check_request(request, shape)
        if any(tool.type == "file_search" for tool in request.tools) and "file_search" not in self._services.hosted:
            message = "tools: file_search is not offered by this server; start it with a folder to search"
            raise ProtocolError("unsupported_parameter", message, "tools")
        if "validation" in self._reuse:
            validate.check_pairing(history.open, new)
            return len(new)
        validate.check_pairing(history_of(history.items).open, new)
        return len(history.items) + len(new)

    def _route(self, request: CreateRequest, previous: Previous | None, count: Count) -> Model:
        if "routing" in self._reuse and previous and previous.model and previous.model.name == request.model:
            return previous.model
        count.items += 1
        model = self._services.models.get(request.model)
        if model is None:
            known = ", ".join(sorted(self._services.models))
            message = f"model: no model {request.model!r}; this server has {known}"
            raise ProtocolError("model_not_found", message, "model")
        return model

    def _classify_request(
        self, request: CreateRequest, previous: Previous | None, new: tuple[Item, ...], count: Count
    ) -> tuple[CreateRequest, tuple[Item, ...]]:
        """The request and its input as the model may read them: the instructions are looked at like a system message."""
        reuses = "classification" in self._reuse
        if previous and not reuses:
            again = self._check(previous.history.items, "input")
            count.items += again.looked_at
            count.bytes += again.bytes
        if not request.instructions:
            verdict = self._classify(new)
        elif previous and reuses and previous.instructions == request.instructions:
            verdict = self._classify(new)
            request = evolve(request, instructions=previous.history.key[0] if previous.history.key else None)
        else:
            verdict = self._classify((Message(role="system", content=request.instructions or ""), *new), first="instructions")
            instructions = verdict.items[0]
            request = evolve(request, instructions=text_of(getattr(instructions, "content", "")))
        count.items += verdict.looked_at
        count.bytes += verdict.bytes
        return request, verdict.items[len(verdict.items) - len(new) :]

    async def _render(self, request: CreateRequest, history: History, new: tuple[Item, ...], count: Count) -> int:
        """Bring ``history`` up to ``new``; returns how many tokens were there already."""
        key = (request.instructions, request.tools)
        if history.rendered_as is self.format and history.key == key and "tokens" in self._reuse:
            cached = len(history.ids)
            ids = await self._in_thread_if_long(text_size(new), self.format.render_next, history.unread, new)
            count.items += len(history.unread) + len(new)
        else:
            cached = 0
            history.forget_ids()
            context, stops = (*history.items, *new), frozenset((*history.stops, len(history.items)))
            size = len(request.instructions or "") + text_size(context)
            render, known = self.format.render_prompt, stops if history.items else None
            ids = await self._in_thread_if_long(size, render, *key, context, known)
            count.items += len(context)
        history.add(new)
        history.ids.extend(ids)
        history.rendered_as, history.key, history.unread = self.format, key, ()
        count.tokens += len(ids)
        return cached

    async def _in_thread_if_long(self, size: int, render: Callable[..., Sequence[int]], *args: Any) -> Sequence[int]:
        if size < self._services.config.thread_bytes:
            return render(*args)
        return await trio.to_thread.run_sync(render, *args, abandon_on_cancel=True)

    def _plan(self, request: CreateRequest, prompt: Rendered) -> Plan:
        cap = self._services.config.output_tokens
        return Plan(
            model=request.model,
            instructions=request.instructions,
            tools=request.tools,
            tool_choice=request.tool_choice or "auto",
            parallel_tool_calls=request.parallel_tool_calls is not False,
            max_output_tokens=min(request.max_output_tokens or cap, cap),
            asked_output_tokens=request.max_output_tokens and min(request.max_output_tokens, cap),
            temperature=1.0 if request.temperature is None else request.temperature,
            top_p=1.0 if request.top_p is None else request.top_p,
            text=request.text or {},
            reasoning=request.reasoning,
            prompt=prompt,
        )

    # ---- between: what is appended

    def screen(self, items: Sequence[Item]) -> Sequence[Item]:
        """Validate and classify appended items, before they are acknowledged; raises ``ProtocolError``."""
        self.counters.incremental("validate", items=len(items))
        started = self.counters.clock()
        verdict = self._classify(items)
        seconds = self.counters.clock() - started
        self.counters.incremental("classify", items=verdict.looked_at, size=verdict.bytes, seconds=seconds)
        return verdict.items

    def screen_hosted(self, item: FileSearchCall) -> FileSearchCall:
        """Classify what a hosted tool has found, before the model reads it: what is blocked is not shown."""
        verdict = self._check((item,), "input")
        screened = verdict.items[0]
        if verdict.blocked or not isinstance(screened, FileSearchCall):
            return evolve(item, status="failed", results=None)
        return screened

    async def admit(self, items: tuple[Item, ...]) -> Rendered:
        """Render what the model reads next: results and user messages."""
        started = self.counters.clock()
        ids = await self._in_thread_if_long(text_size(items), self.format.render_results, items)
        seconds = self.counters.clock() - started
        self.counters.incremental("render", items=len(items), tokens=len(ids), seconds=seconds)
        await self.take_time()  # that of their screening, too
        return Rendered(items, array("I", ids))

    def _classify(self, items: Sequence[Item], first: str | None = None) -> Verdict:
        """``first``: the name of the field that the first item stands for, if it is not of the input."""
        verdict = self._check(items, "input")
        if verdict.blocked:
            match = verdict.blocked[0]
            shift = 1 if first else 0
            param = first if first and match.index == 0 else f"input[{match.index - shift}].{match.path}"
            names = ", ".join(sorted({match.rule for match in verdict.blocked}))
            raise ProtocolError("content_policy_violation", f"{param}: refused by the policy ({names})", param)
        return verdict

    def _check(self, items: Sequence[Item], direction: Direction) -> Verdict:
        verdict = self._services.policy.check(items, direction)
        for match in (*verdict.flagged, *verdict.blocked):
            self.flags[match.rule] = None
        return verdict

    # ---- after inference, once

    def classify_output(self, items: Sequence[Item]) -> Verdict:
        """Look at all that the Response has put out."""
        with self.counters.full("classify_output") as count:
            verdict = self._check(items, "output")
            count.items += verdict.looked_at
            count.bytes += verdict.bytes
        return verdict

    async def after(self, row: Row, stored: Stored | None) -> None:
        """Bill and store. ``stored`` is None when the client asked that nothing be stored: the stage then keeps nothing."""
        with self.counters.full("bill"), self.counters.full("store"):
            pass  # counted before the row is written, so that the row has them
        await self.take_time()
        await self._services.ledger.write(evolve(row, stages=encode(self.counters.as_json()).decode()))
        if stored is not None:
            await self._services.store.put(stored)


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    coroutine.close()
    raise RuntimeError("this coroutine waits")


def input_items(request: CreateRequest) -> tuple[Item, ...]:
    """The request's input as items: a string is a message of the user."""
    if isinstance(request.input, str):
        return (Message(role="user", content=request.input),)
    return request.input


def text_size(items: Sequence[Item]) -> int:
    """A lower bound of the text to render, in characters, found at next to no cost."""
    size = 0
    for item in items:
        for name in ("content", "output", "arguments", "input"):
            value = getattr(item, name, None)
            size += len(value) if isinstance(value, str) else sum(len(getattr(part, "text", "")) for part in value or ())
    return size
