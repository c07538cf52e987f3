"""One rollout in each of the three shapes: in memory, in virtual time, with a note of all that the models were given.

Four ways, since HTTP has two: ``append`` and ``create`` through a socket's ``Session``, ``http`` through the endpoint of
``POST /v1/responses`` with ``previous_response_id``, and ``history``, the same with all that was said sent anew each time.
Beside them are the ways of ``NAMED``, which are ``history`` again, but name what the model has put out by its ids.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import trio
from attrs import define, evolve, field, frozen

from engine.api import Api
from engine.core import Engine
from engine.ledger import Ledger, MemoryLedger, Row
from engine.models.base import CallBegin, Chunk, Model, Plan, Rendered, Sampler
from engine.stages.rendering import render_calls, render_prompt, render_results
from engine.store import MemoryStore, Stored
from engine.testing import DirectServer, DirectSocket, direct_server, make_services, user
from engine.testing.clients import TERMINAL
from protocol.client import output_for
from protocol.codec import encode, parse
from protocol.items import CALL_CLASSES, OUTPUT_TYPE_OF, FileSearchCall, Item

Json = dict[str, Any]
TENANT = "somebody"
CHAINS = ("create", "http")
WAYS = ("append", *CHAINS, "history")
NAMED = ("named http", "named create")


# ---- a model that is watched


@define(eq=False)
class Life:
    """One sampler: its prompt, and what it was extended with; and the ids as they were when they were given."""

    plan: Plan
    given: list[Rendered] = field(factory=list)
    ids_then: list[Sequence[int]] = field(factory=list)

    def note(self, rendered: Rendered) -> None:
        self.given.append(rendered)
        self.ids_then.append(rendered.ids[:])

    @property
    def ids(self) -> list[int]:
        """All that came from outside."""
        return [number for ids in self.ids_then for number in ids]


class WatchedModel:
    """Another model, with a note of what its samplers are given. It names the client's calls, if ``hosted`` is given: those
    without a name of their own by their place in the rollout, so that shapes can be compared to the token."""

    def __init__(self, model: Model, hosted: Iterable[str] | None = None) -> None:
        self._model = model
        self._hosted = None if hosted is None else frozenset(hosted)
        self.lives: list[Life] = []

    @property
    def name(self) -> str:
        return self._model.name

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[Sampler]:
        life = Life(plan)
        life.note(plan.prompt)
        self.lives.append(life)
        made = sum(isinstance(item, CALL_CLASSES) for item in plan.prompt.items)
        async with self._model.open(plan) as sampler:
            yield _WatchedSampler(sampler, life, self._hosted, made)


class _WatchedSampler:
    def __init__(self, sampler: Sampler, life: Life, hosted: frozenset[str] | None, made: int) -> None:
        self._sampler = sampler
        self._life = life
        self._hosted = hosted
        self._made = made

    async def receive(self) -> Sequence[Chunk]:
        return [self._named(chunk) for chunk in await self._sampler.receive()]

    async def extend(self, new: Rendered) -> None:
        self._life.note(new)
        await self._sampler.extend(new)

    def _named(self, chunk: Chunk) -> Chunk:
        if not isinstance(chunk, CallBegin) or self._hosted is None or chunk.name in self._hosted:
            return chunk
        self._made += 1
        return evolve(chunk, call_id=f"call_{self._made:03}")


# ---- an engine without a network


class SlowBooks(MemoryStore):
    """A ledger and a store that take their time, and say when they are done."""

    def __init__(self, seconds: float, told: Callable[[str], None]) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self._seconds = seconds
        self._told = told

    async def write(self, row: Row) -> None:
        await trio.sleep(self._seconds)
        self.rows.append(row)
        self._told("bill")

    async def put(self, stored: Stored) -> None:
        await trio.sleep(self._seconds)
        await super().put(stored)
        self._told("store")


@define(eq=False)
class House:
    """An engine and its books. ``told`` is what happened, in order: ``end`` for a terminal event that was received."""

    server: DirectServer
    model: WatchedModel
    told: list[str] = field(factory=list)

    @property
    def engine(self) -> Engine:
        return self.server.engine

    @property
    def rows(self) -> Sequence[Row]:
        return cast(MemoryLedger, self.engine.services.ledger).rows

    @property
    def store(self) -> MemoryStore:
        return cast(MemoryStore, self.engine.services.store)


@asynccontextmanager
async def house(model: WatchedModel, *, slow: float = 0.0, **options: Any) -> AsyncIterator[House]:
    """A ``direct_server`` with ``options``. ``slow``: seconds that its ledger and its store take, each."""
    told: list[str] = []
    books = SlowBooks(slow, told.append)
    services = make_services(models=[model], seed=1, **options)
    services.ledger, services.store = cast(Ledger, books), books
    async with direct_server(services) as server:
        yield House(server, model, told)


async def received(socket: DirectSocket) -> Json:
    frame: Json = await socket.receive()
    assert frame["type"] != "error", frame
    return frame


class _Exchange:
    """An HTTP request that was read, and its answer."""

    def __init__(self, body: Json) -> None:
        self._body = encode(body)
        self.answer: Any = None

    async def json(self) -> Any:
        return parse(self._body)

    async def respond(self, status: int, body: Any = None) -> None:
        assert status == 200, body
        self.answer = parse(body if isinstance(body, bytes) else encode(body))


# ---- a client


@frozen
class Client:
    """What a client does: answers calls by their number, says something with the outputs of some turns, and something more
    when the model has answered."""

    outputs: Sequence[str] = ("ok",)
    beside: Sequence[str | None] = (None,)
    more: Sequence[str] = ()

    def begin(self) -> "_Going":
        return _Going(self, iter(self.more))


@define
class _Going:
    client: Client
    more: Iterator[str]
    calls: int = 0
    turns: int = 0

    def answers(self, calls: Sequence[Json]) -> list[Json]:
        """The outputs of a turn's calls, and perhaps a message."""
        outputs, beside = self.client.outputs, self.client.beside
        items = [output_for(call, outputs[(self.calls + place) % len(outputs)]) for place, call in enumerate(calls)]
        self.calls += len(calls)
        said = beside[self.turns % len(beside)]
        self.turns += 1
        return items if said is None else [*items, user(said)]

    def next_input(self) -> list[Json]:
        text = next(self.more, None)
        return [] if text is None else [user(text)]


Turn = Callable[[Json], Awaitable[Json]]


async def _append(house: House, body: Json, going: _Going) -> list[Json]:
    """One Response to the end."""
    socket = await house.server.connect(limit=1 << 30)
    await socket.send({"type": "response.create", "continuation": "append", "hold": "conversation", **body})
    calls: list[Json] = []
    while (frame := await received(socket))["type"] not in TERMINAL:
        if frame["type"] == "response.output_item.done" and frame["item"]["type"] in OUTPUT_TYPE_OF:
            calls.append(frame["item"])
        elif frame["type"] == "response.done":
            more = going.answers(calls) if calls else going.next_input()
            await socket.send({"type": "response.append", "input": more} if more else {"type": "response.finish"})
            calls = []
    house.told.append("end")
    return [frame["response"]]


def reference(item: Json) -> Json:
    return {"type": "item_reference", "id": item["id"]}


async def _chain(house: House, turn: Turn, body: Json, going: _Going, *, full: bool, named: bool) -> list[Json]:
    """A Response a turn, as long as they complete."""
    responses: list[Json] = []
    said = list(body["input"])
    following = body
    while True:
        response = await turn(following)
        house.told.append("end")
        responses.append(response)
        calls = [item for item in response["output"] if item["type"] in OUTPUT_TYPE_OF]
        more = going.answers(calls) if calls else going.next_input()
        if response["status"] != "completed" or not more:
            return responses
        said += [*(map(reference, response["output"]) if named else response["output"]), *more]
        changed = {"input": said} if full else {"input": more, "previous_response_id": response["id"]}
        following = {**body, **changed}


async def _turns_over_a_socket(house: House) -> Turn:
    socket = await house.server.connect(limit=1 << 30)

    async def turn(body: Json) -> Json:
        await socket.send({"type": "response.create", "continuation": "create", **body})
        while (frame := await received(socket))["type"] not in TERMINAL:
            assert frame["type"] != "response.done"
        response: Json = frame["response"]
        return response

    return turn


def _turns_over_http(house: House) -> Turn:
    async def turn(body: Json) -> Json:
        exchange = _Exchange(body)
        await Api(house.engine).create(cast(Any, exchange), TENANT)
        response: Json = exchange.answer
        return response

    return turn


@frozen(kw_only=True)
class Played:
    """A rollout that has ended, in one of the ways."""

    responses: Sequence[Json]
    lives: Sequence[Life]
    rows: Sequence[Row]
    context: Sequence[Item]
    """All of it, in order, from the store; empty if nothing was stored."""
    stops: Sequence[int]
    told: Sequence[str]

    @property
    def items(self) -> list[Json]:
        """All output, but for what the engine names."""
        return [bare(item) for response in self.responses for item in response["output"]]

    @property
    def ending(self) -> Json:
        return {name: self.responses[-1][name] for name in ("status", "error", "incomplete_details")}

    def usage(self, *path: str) -> list[int]:
        """A number of each Response's usage."""
        found = []
        for response in self.responses:
            value = response["usage"]
            for name in path:
                value = value[name]
            found.append(value)
        return found

    @property
    def fresh(self) -> list[int]:
        """Of each Response, the input tokens that were not reused."""
        cached = self.usage("input_tokens_details", "cached_tokens")
        return [tokens - reused for tokens, reused in zip(self.usage("input_tokens"), cached, strict=True)]

    def counts(self, stage: str, unit: str) -> list[int]:
        """A stage's count, of each Response's ledger row."""
        return [parse(row.stages)[stage][unit] for row in self.rows]


def bare(item: Json) -> Json:
    return {name: value for name, value in item.items() if name not in ("id", "call_id")}


async def play(house: House, way: str, body: Json, client: Client) -> Played:
    """One rollout; ``body`` is the create's, its input items."""
    going = client.begin()
    known = len(house.rows)
    if way == "append":
        responses = await _append(house, body, going)
    else:
        turn = await _turns_over_a_socket(house) if way.endswith("create") else _turns_over_http(house)
        named = way in NAMED
        responses = await _chain(house, turn, body, going, full=named or way == "history", named=named)
    await trio.sleep(60)  # virtual ones: until all is billed and stored
    assert not house.engine.live
    context, stops = context_of(house.store, responses[-1]["id"])
    return Played(
        responses=responses,
        lives=house.model.lives,
        rows=house.rows[known:],
        context=context,
        stops=stops,
        told=list(house.told),
    )


def context_of(store: MemoryStore, response_id: str) -> tuple[list[Item], list[int]]:
    """The whole context of a Response, and where sampling stopped in it."""
    by_id = {stored.response.id: stored for stored in store.all()}
    parts: list[Stored] = []
    wanted: str | None = response_id
    while wanted in by_id:
        parts.append(by_id[wanted])
        wanted = parts[-1].previous_id
    items: list[Item] = []
    stops: list[int] = []
    for part in reversed(parts):
        stops += [len(items) + stop for stop in part.stops]
        items += part.items
    return items, stops


# ---- what models should have been given


def whole_rendering(played: Played) -> list[int]:
    """The context, rendered without an interruption."""
    plan = played.lives[0].plan
    return render_prompt(plan.instructions, plan.tools, played.context, played.stops)


def lived_rendering(life: Life, played: Played) -> list[int]:
    """What a sampler had before it at its end: what it was given, and what it sampled itself."""
    ids = list(life.ids_then[0])
    at = len(life.given[0].items)
    stops = [stop for stop in played.stops if stop >= at]
    for extension, then, stop in zip([*life.given[1:], None], [*life.ids_then[1:], []], stops, strict=False):
        ids += render_calls(played.context[at:stop])
        at = stop
        if extension is not None:
            ids += then
            at += sum(not isinstance(item, FileSearchCall) for item in extension.items)
    return ids


def left_unread(played: Played) -> list[int]:
    """The results of hosted calls behind which nobody sampled on."""
    last = played.stops[-2] if len(played.stops) > 1 else 0
    return render_results(item for item in played.context[last:] if isinstance(item, FileSearchCall))
