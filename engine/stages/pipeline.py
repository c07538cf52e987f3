"""The stages of one Response, in their order: before inference, between (admission of what is appended), and after.

Each full run is once per Response; an append is admitted over its new items only, at a cost that does not grow with the
history (law L1). Every run is counted.
"""

import time
from collections.abc import Sequence

import trio
from attrs import evolve

from protocol.codec import encode
from protocol.errors import ProtocolError
from protocol.items import FileSearchCall, Item, Message, text_of
from protocol.requests import CreateRequest

from ..ledger import Row
from ..models.base import Model, Plan, Rendered
from ..policy import Direction, Verdict
from ..services import Services
from ..store import Stored
from . import rendering, validate
from .counters import Counters


class Stages:
    """The stages of one Response, and what they did."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.counters = Counters()
        self.flags: dict[str, None] = {}
        """Names of the policy's rules that matched."""

    # ---- before inference, once

    async def before(self, request: CreateRequest, previous: Stored | None) -> tuple[Model, Plan]:
        """Validate, route, classify and render; raises ``ProtocolError``.

        ``previous`` is the Response that this one continues.
        """
        held = previous.context if previous else ()
        new = input_items(request)
        with self.counters.full("validate") as count:
            self._validate(request, held, new)
            count.items += len(new)
        with self.counters.full("route"):
            model = self._route(request.model)
        with self.counters.full("classify") as count:
            request, new, verdict = self._classify_request(request, new)
            count.items += verdict.looked_at
            count.bytes += verdict.bytes
        with self.counters.full("render") as count:
            context = (*held, *new)
            stops = frozenset((*previous.stops, len(held))) if previous else None
            ids = await self._render_prompt(request, context, stops)
            count.items += len(context)
            count.tokens += len(ids)
        return model, self._plan(request, Rendered(context, ids))

    def _validate(self, request: CreateRequest, held: Sequence[Item], new: Sequence[Item]) -> None:
        validate.check_request(request)
        validate.check_pairing(held, new)
        if any(tool.type == "file_search" for tool in request.tools) and "file_search" not in self._services.hosted:
            message = "tools: file_search is not offered by this server; start it with a folder to search"
            raise ProtocolError("unsupported_parameter", message, "tools")

    def _route(self, name: str) -> Model:
        model = self._services.models.get(name)
        if model is None:
            known = ", ".join(sorted(self._services.models))
            raise ProtocolError("model_not_found", f"model: no model {name!r}; this server has {known}", "model")
        return model

    async def _render_prompt(
        self, request: CreateRequest, context: Sequence[Item], stops: frozenset[int] | None
    ) -> Sequence[int]:
        if len(request.instructions or "") + _text_size(context) < self._services.config.thread_bytes:
            return rendering.render_prompt(request.instructions, request.tools, context, stops)
        return await trio.to_thread.run_sync(
            rendering.render_prompt, request.instructions, request.tools, context, stops, abandon_on_cancel=True
        )

    def _plan(self, request: CreateRequest, prompt: Rendered) -> Plan:
        cap = self._services.config.output_tokens
        return Plan(
            model=request.model,
            instructions=request.instructions,
            tools=request.tools,
            tool_choice=request.tool_choice or "auto",
            parallel_tool_calls=request.parallel_tool_calls is not False,
            max_output_tokens=min(request.max_output_tokens or cap, cap),
            temperature=1.0 if request.temperature is None else request.temperature,
            top_p=1.0 if request.top_p is None else request.top_p,
            text=request.text or {},
            reasoning=request.reasoning,
            prompt=prompt,
        )

    def _classify_request(
        self, request: CreateRequest, new: tuple[Item, ...]
    ) -> tuple[CreateRequest, tuple[Item, ...], Verdict]:
        """The request and its input as the model may read them: the instructions are looked at like a system message."""
        if not request.instructions:
            verdict = self._classify(new)
            return request, verdict.items, verdict
        verdict = self._classify((Message(role="system", content=request.instructions), *new), first="instructions")
        instructions, *rest = verdict.items
        text = text_of(instructions.content) if isinstance(instructions, Message) else None
        return evolve(request, instructions=text), tuple(rest), verdict

    # ---- between: what is appended

    def screen(self, items: Sequence[Item]) -> Sequence[Item]:
        """Validate and classify appended items, before they are acknowledged; raises ``ProtocolError``."""
        self.counters.incremental("validate", items=len(items))
        started = time.perf_counter()
        verdict = self._classify(items)
        seconds = time.perf_counter() - started
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
        started = time.perf_counter()
        ids: Sequence[int]
        if _text_size(items) < self._services.config.thread_bytes:
            ids = rendering.render_results(items)
        else:
            ids = await trio.to_thread.run_sync(rendering.render_results, items, abandon_on_cancel=True)
        seconds = time.perf_counter() - started
        self.counters.incremental("render", items=len(items), tokens=len(ids), seconds=seconds)
        return Rendered(items, ids)

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

    async def after(self, row: Row, stored: Stored, *, keep: bool) -> None:
        """Bill and store. ``keep`` is false when the client asked that nothing be stored: the stage then keeps nothing."""
        with self.counters.full("bill"), self.counters.full("store"):
            pass  # counted before the row is written, so that the row has them
        await self._services.ledger.write(evolve(row, stages=encode(self.counters.as_json()).decode()))
        if keep:
            await self._services.store.put(stored)


def input_items(request: CreateRequest) -> tuple[Item, ...]:
    """The request's input as items: a string is a message of the user."""
    if isinstance(request.input, str):
        return (Message(role="user", content=request.input),)
    return request.input


def _text_size(items: Sequence[Item]) -> int:
    """A lower bound of the text to render, in characters, found at next to no cost."""
    size = 0
    for item in items:
        for name in ("content", "output", "arguments", "input"):
            value = getattr(item, name, None)
            size += len(value) if isinstance(value, str) else sum(len(getattr(part, "text", "")) for part in value or ())
    return size
