"""The Responses API over HTTP: what each endpoint asks of the engine, and how the engine's answers become HTTP.

A Response lives in the engine; a request only starts it, looks at it, or changes it. Whoever starts one over HTTP holds it like
a socket does: when the client drops, the Response is cancelled, unless it was asked to run in the background, or is of the
append shape, which outlives its connections.
"""

from collections.abc import Iterable
from typing import Any, Final

import trio
from attrs import evolve

from protocol.codec import encode, encode_response, from_wire, to_wire
from protocol.errors import ProtocolError
from protocol.ids import Entropy, new_id
from protocol.items import InputText, Item, Message, OtherItem, text_of
from protocol.requests import AppendRequest, CreateRequest

from .account import Shape
from .conversations_api import ConversationsApi, Endpoint
from .core import Engine
from .log import check_cursor
from .outbox import Outbox, Subscription
from .paging import flag, number, page_of, shown
from .references import NOTHING
from .replayed import ReplayedLog
from .rollout import Rollout
from .stages.pipeline import Prepared, Stages
from .transport.http import Exchange

SUMMARY_CHARS: Final = 4_000
"""How much of what was said a compaction keeps."""


class Api:
    """The endpoints of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._services = engine.services

    def endpoints(self) -> dict[tuple[str, str], Endpoint]:
        """By method and path."""
        responses = "/v1/responses"
        return {
            ("POST", responses): self.create,
            ("POST", f"{responses}/input_tokens"): self.input_tokens,
            ("POST", f"{responses}/compact"): self.compact,
            ("GET", f"{responses}/{{id}}"): self.retrieve,
            ("DELETE", f"{responses}/{{id}}"): self.delete,
            ("POST", f"{responses}/{{id}}/cancel"): self.cancel,
            ("POST", f"{responses}/{{id}}/append"): self.append,
            ("GET", f"{responses}/{{id}}/input_items"): self.input_items,
            ("GET", "/v1/models"): self.models,
            ("GET", "/v1/models/{id}"): self.model,
            **ConversationsApi(self._engine).endpoints(),
        }

    # ---- Responses

    async def create(self, exchange: Exchange, tenant: str) -> None:
        """``POST /v1/responses``: a Response as JSON when it has ended, or as events while it goes on."""
        request = await _create_request(exchange)
        if request.background and request.store is False:
            raise ProtocolError(
                "invalid_value", "background: a Response in the background is stored; store: must not be false", "store"
            )
        shape: Shape = "append" if request.continuation == "append" else "http"
        own = shape == "http" and not (request.background or request.idempotency_key)
        rollout = await self._begin(request, tenant, shape, in_place=own)
        try:
            await self._answer(exchange, request, rollout)
        finally:
            if rollout.in_place:
                self._engine.settle(rollout)

    async def _answer(self, exchange: Exchange, request: CreateRequest, rollout: Rollout) -> None:
        if request.stream:
            await self._stream(exchange, rollout, -1, holds=True)
        elif request.background:
            await exchange.respond(200, to_wire(rollout.snapshot()))
        else:
            await (rollout.answer() if rollout.in_place else self._until_it_rests(rollout))
            await exchange.respond(200, _shown(rollout))

    async def retrieve(self, exchange: Exchange, tenant: str) -> None:
        """``GET /v1/responses/{id}``; with ``stream=true``, its events behind ``starting_after``."""
        response_id, cursor = exchange.params["id"], number(exchange, "starting_after", -1, least=-1)
        if flag(exchange, "stream"):
            await self._replay(exchange, tenant, response_id, cursor)
            return
        rollout = self._engine.held(tenant, response_id)
        if rollout is not None:
            rollout.touch()
            await exchange.respond(200, _shown(rollout))
        else:
            await exchange.respond(200, to_wire((await self._engine.stored(tenant, response_id)).response))

    async def delete(self, exchange: Exchange, tenant: str) -> None:
        """``DELETE /v1/responses/{id}``: it is forgotten; if it is live it is cancelled first."""
        response_id = exchange.params["id"]
        await self._engine.delete(tenant, response_id)
        await exchange.respond(200, {"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, exchange: Exchange, tenant: str) -> None:
        """``POST /v1/responses/{id}/cancel``: of a background Response, or one of the append shape; again is no error."""
        response_id = exchange.params["id"]
        rollout = self._engine.held(tenant, response_id)
        if rollout is None:
            response = (await self._engine.stored(tenant, response_id)).response
            _check_cancellable(response.background, (response.engine or {}).get("shape"))
            await exchange.respond(200, to_wire(response))
            return
        _check_cancellable(bool(rollout.request.background), rollout.shape)
        if rollout.live:
            rollout.cancel()
        await rollout.over()
        await exchange.respond(200, _shown(rollout))

    async def append(self, exchange: Exchange, tenant: str) -> None:
        """``POST /v1/responses/{id}/append``: as ``response.append`` over a WebSocket; answers with the acknowledgement."""
        body = await exchange.json()
        size = len(await exchange.body())
        request = from_wire(_object(body), AppendRequest)
        rollout = self._engine.find(tenant, exchange.params["id"])
        accepted = rollout.append(request, size=size)
        place = rollout.log.last
        rollout.touch()
        await exchange.respond(200, {**to_wire(accepted), "sequence_number": place})

    async def input_items(self, exchange: Exchange, tenant: str) -> None:
        """``GET /v1/responses/{id}/input_items``: what came from outside, in pages."""
        response_id = exchange.params["id"]
        rollout = self._engine.held(tenant, response_id)
        items = rollout.outside if rollout else (await self._engine.stored(tenant, response_id)).input
        await exchange.respond(200, page_of([shown(item, response_id, n) for n, item in enumerate(items)], exchange))

    # ---- beside them

    async def input_tokens(self, exchange: Exchange, tenant: str) -> None:
        """``POST /v1/responses/input_tokens``: how many tokens the same create would render."""
        body = {"model": next(iter(self._services.models)), **_object(await exchange.json())}
        prepared = await self._prepared(from_wire(body, CreateRequest), tenant)
        count = len(prepared.plan.prompt.ids)
        await exchange.respond(200, {"object": "response.input_tokens", "input_tokens": count})

    async def compact(self, exchange: Exchange, tenant: str) -> None:
        """``POST /v1/responses/compact``: a shorter window to begin another chain with.

        It keeps every user message, and one compaction item with an excerpt of the rest.
        """
        prepared = await self._prepared(await _create_request(exchange), tenant)
        output = _compacted(prepared.history.items, self._services.entropy)
        tokens = len(prepared.plan.prompt.ids)
        usage = {
            "input_tokens": tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens,
        }
        answer = {
            "id": f"resp_{self._services.entropy(16).hex()}",
            "object": "response.compaction",
            "created_at": int(self._services.wall()),
            "output": to_wire(output),
            "usage": usage,
        }
        await exchange.respond(200, answer)

    async def models(self, exchange: Exchange, tenant: str) -> None:  # noqa: ARG002 - all tenants have the same
        """``GET /v1/models``."""
        await exchange.respond(200, {"object": "list", "data": [_model(name) for name in self._services.models]})

    async def model(self, exchange: Exchange, tenant: str) -> None:  # noqa: ARG002
        """``GET /v1/models/{id}``."""
        name = exchange.params["id"]
        if name not in self._services.models:
            raise ProtocolError("model_not_found", f"no model {name!r}", "model")
        await exchange.respond(200, _model(name))

    # ---- inside

    async def _begin(self, request: CreateRequest, tenant: str, shape: Shape, *, in_place: bool) -> Rollout:
        """Start a Response and wait until it has begun; raises what it is refused with.

        Cancelled, because the client is gone: the Response is cancelled too, if its shape says so, and no retry can ask for it.
        """
        waiting = _Waiting(keeps=request.idempotency_key is not None)
        self._engine.create(request, tenant, waiting, shape=shape, in_place=in_place)
        try:
            return await waiting.rollout()
        except trio.Cancelled:
            waiting.give_up()
            raise

    async def _prepared(self, request: CreateRequest, tenant: str) -> Prepared:
        """What the stages before inference make of ``request``, which is never begun; raises ``ProtocolError``."""
        previous = None
        if request.previous_response_id:
            previous = await self._engine.previous(tenant, request.previous_response_id)
        elif request.conversation is not None:
            previous = await self._engine.conversations.context(tenant, request.conversation)
        request = await self._engine.references.in_request(tenant, request, NOTHING)
        return await Stages(self._services).before(request, previous, "http")

    async def _until_it_rests(self, rollout: Rollout) -> None:
        """Hold ``rollout`` until it has ended, or parked. Whoever holds it and goes, cancels it if its shape says so."""
        subscription = Subscription(rollout.log, Outbox(_NoWire(), 1))
        subscription.close()
        rollout.attach(subscription)
        try:
            await rollout.rests()
        finally:
            rollout.detach(subscription)

    async def _replay(self, exchange: Exchange, tenant: str, response_id: str, cursor: int) -> None:
        rollout = self._engine.held(tenant, response_id)
        if rollout is not None:
            check_cursor(cursor, rollout.log.last)
            await self._stream(exchange, rollout, cursor, holds=False)
            return
        log = ReplayedLog((await self._engine.stored(tenant, response_id)).events)
        check_cursor(cursor, log.last)
        async with exchange.sse() as wire:
            for frame in log.frames_after(cursor):
                wire.put(frame)

    async def _stream(self, exchange: Exchange, rollout: Rollout, cursor: int, *, holds: bool) -> None:
        """Send the events of ``rollout`` behind ``cursor`` until its last; ``holds``: as the client that it answers to."""
        async with exchange.sse() as wire:
            outbox = Outbox(wire, self._services.config.outbox_bytes)
            wire.on_drained(outbox.drained)
            subscription = Subscription(rollout.log, outbox, cursor=cursor)
            if holds or (rollout.shape == "append" and not rollout.controlled):
                rollout.attach(subscription)
            else:
                rollout.listen(subscription)
            subscription.start()
            try:
                await (rollout.answer() if holds and rollout.in_place else rollout.over())
                await subscription.all_sent()
            finally:
                outbox.close()
                rollout.detach(subscription)


class _Waiting:
    """Waits for a Response to begin. ``keeps``: the Response may be asked for again, so it stays when nobody waits."""

    def __init__(self, *, keeps: bool) -> None:
        self._settled: trio.Event | None = None
        self._found: Rollout | ProtocolError | None = None
        self._keeps = keeps
        self._gone = False

    async def rollout(self) -> Rollout:
        """The Response; raises what it is refused with."""
        if self._found is None:
            self._settled = trio.Event()
            await self._settled.wait()
        if not isinstance(self._found, Rollout):
            raise self._found or RuntimeError("neither begun nor refused")
        return self._found

    def give_up(self) -> None:
        """The client is gone."""
        self._gone = True
        if isinstance(self._found, Rollout) and not self._keeps:
            self._found.abandon()

    def refused(self, error: ProtocolError) -> None:
        self._settle(error)

    def created(self, rollout: Rollout) -> None:
        self._settle(rollout)
        if self._gone:
            self.give_up()

    joined = created

    def _settle(self, found: Rollout | ProtocolError) -> None:
        self._found = found
        if self._settled is not None:
            self._settled.set()

    def ended(self, rollout: Rollout) -> None:
        """Nothing to do: whoever waits for the end waits for the Response itself."""


class _NoWire:
    """Where the events of a Response go that is asked for as JSON: there is always room."""

    waiting = 0

    def put(self, frame: bytes) -> None:
        """Nowhere."""

    def flush(self) -> None:
        """Nothing."""


async def _create_request(exchange: Exchange) -> CreateRequest:
    return from_wire(_object(await exchange.json()), CreateRequest)


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise ProtocolError("invalid_frame", "the body is a JSON object")
    return body


def _shown(rollout: Rollout) -> bytes:
    """The Response as JSON; with what it waits for, if it has parked."""
    response = rollout.snapshot()
    assert response is not None
    if rollout.required_input:
        return encode({**to_wire(response), "required_input": to_wire(rollout.required_input)})
    return encode_response(response)


def _check_cancellable(background: bool, shape: str | None) -> None:
    if not background and shape != "append":
        message = "only a background Response can be cancelled like this; of another one drop the connection"
        raise ProtocolError("invalid_value", message, "response_id")


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "sostenuto"}


# ---- compaction


def _compacted(items: Iterable[Item], entropy: Entropy) -> list[Item]:
    users: list[Item] = []
    said: list[str] = []
    for item in items:
        if isinstance(item, Message) and item.role == "user":
            users.append(_as_output(item, entropy))
        elif isinstance(item, Message):
            said.append(f"{item.role}: {text_of(item.content)}")
        elif hasattr(item, "output"):
            said.append(f"{item.type}: {text_of(item.output) if not isinstance(item.output, tuple) else ''}")
    excerpt = "\n".join(said)[-SUMMARY_CHARS:]
    return [*users, OtherItem(type="compaction", id=f"cmp_{entropy(16).hex()}", extra={"encrypted_content": excerpt})]


def _as_output(message: Message, entropy: Entropy) -> Message:
    """A message with all that the Responses API gives one: a client may send it without an id, and its text alone."""
    content = (InputText(text=message.content),) if isinstance(message.content, str) else message.content
    return evolve(message, id=message.id or new_id("message", entropy), status=message.status or "completed", content=content)
