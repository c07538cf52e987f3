"""``kv``: a real model's state: held in a park, lost and read again, or found by chance; and the event loop beside it."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from statistics import quantiles
from typing import Any, Final

import trio
from attrs import define, field

from engine.chains import open_wire
from engine.client import Client, connect
from engine.models.local import LocalModel
from engine.server import Server, listening
from engine.services import Services
from engine.testing.local import model_file
from protocol.codec import from_wire
from protocol.items import FunctionCall
from protocol.requests import CreateRequest

from .ours import CONFIG
from .process import unpinned
from .report import TINY, NotHere, Row, Sizes, against

HISTORIES: Final = {512: 6.0, 2_048: 15.0, 6_144: 35.0}
"""Tokens before a tool's result, and how many times sooner the first token comes if their state was held."""
RESULT_TOKENS: Final = 64
SLOTS: Final = 4
CONTEXT: Final = 7_168
"""Of each slot, in tokens: the longest history, the result, an answer."""
MODEL: Final = "smollm2"
SAID_TOKENS: Final = 8
"""Of the answer: what is measured is its first. A call may be cut into some more tokens than the last time."""
PASSER_TOKENS: Final = 8
"""So long answer others, that those who come together are there together."""
LATENESS_TOKENS: Final = 120
TICK_SECONDS: Final = 0.002
LATE_MS: Final = 10.0

LOOK: Final = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"enum": ["src"]}}, "required": ["at"]},
}
FORCED: Final = {"tool_choice": {"type": "function", "name": "look"}}
ARGUMENTS: Final = '{"at": "src"}'
CALL: Final = FunctionCall(call_id="call", name="look", arguments=ARGUMENTS)
EARLIER: Final = (
    {"type": "message", "role": "user", "content": "Look into src."},
    {"type": "function_call", "call_id": "earlier", "name": "look", "arguments": ARGUMENTS},
    {"type": "function_call_output", "call_id": "earlier", "output": "north rain table seven green"},
    {"type": "message", "role": "assistant", "content": "north rain table seven green."},
)
"""What was said before. Such a small model repeats what it sees: a word, and not a tag, which would be held back until it is
sure that no call begins."""
WORDS: Final = " north rain table seven green paper often river stone music early"
"""Each of them is a token."""

Json = dict[str, Any]
Between = Callable[[], Awaitable[None]]
Way = tuple[str, str]
"""A shape, and what happens while its tool runs."""

WAYS: Final[Sequence[Way]] = tuple(
    (shape, meanwhile) for meanwhile in ("nothing", "others") for shape in ("append", "create", "http")
)
LOST: Final[Way] = ("append", "a crowd")


def kv(sizes: Sizes) -> Iterator[Row]:
    """What holding a real model's state is worth, and how late the event loop is beside it. Wants SmolLM2 and ``xllamacpp``."""
    try:
        model = LocalModel.load(model_file(), MODEL, f"slots={SLOTS}&context={CONTEXT}")
    except Exception as error:
        raise NotHere(str(error)) from error
    histories = list(HISTORIES)[:1] if sizes is TINY else list(HISTORIES)
    with unpinned():  # the model's process inherits what we run on
        times, late = trio.run(_measure, model, histories, sizes.prefills)
    for size in histories:
        for way in WAYS:
            yield _row(size, way, times[size])
    yield Row(
        name="kv", what=f"lateness of the event loop while {SLOTS} Responses sample, p99", value=late, unit="ms", target=LATE_MS
    )


def _row(size: int, way: Way, times: dict[Way, list[float]]) -> Row:
    shape, meanwhile = way
    held = " with its state held" if shape == "append" else ""
    crowd = "" if meanwhile == "nothing" else f", while {SLOTS} others came by"
    what = f"{shape}{held}{crowd} : its state lost, {size:,} tokens of history"
    pairs = list(zip(times[way], times[LOST], strict=True))
    target = 1 / HISTORIES[size] if way == WAYS[0] else None
    return against("kv", what, pairs, target=target, scale=1e3, unit="ms")


async def _measure(model: LocalModel, histories: Sequence[int], rounds: int) -> tuple[dict[int, dict[Way, list[float]]], float]:
    times: dict[int, dict[Way, list[float]]] = {size: {way: [] for way in (*WAYS, LOST)} for size in histories}
    server = Server(Services(config=CONFIG, models={MODEL: model}))
    async with model.running(), listening(server) as port, _house(f"http://127.0.0.1:{port}/v1", model) as house:
        for size in histories:
            history = house.history(size)
            for number in range(rounds + 1):
                for way in (*WAYS, LOST):
                    seconds = await house.play(history, *way)
                    if number:  # the first round warms up
                        times[size][way].append(seconds)
        return times, await house.lateness()


@asynccontextmanager
async def _house(url: str, model: LocalModel) -> AsyncIterator["_House"]:
    async with connect(url) as client:
        yield _House(url, model, client)


@define(eq=False)
class _House:
    """A server with the model, and what is played there."""

    url: str
    model: LocalModel
    client: Client
    _numbers: Iterator[int] = field(factory=lambda: count(1))

    def history(self, tokens: int) -> str:
        """What a user says, so that there are ``tokens`` up to the end of the model's call."""
        form, asked = self.model.format, from_wire(_body(""), CreateRequest)
        around = len(form.render_prompt(None, asked.tools, asked.input)) + len(form.render_calls((CALL,)))
        words = (WORDS * (tokens // 11 + 1)).split(" ")[1:]
        return " ".join(words[: tokens - around])

    async def play(self, history: str, shape: str, meanwhile: str) -> float:
        """Seconds from a tool's result to the first token of what follows."""
        between = {"nothing": self._nothing, "others": self._others, "a crowd": self._crowd}[meanwhile]
        if shape == "append":
            return await self._append(history, between, kept=meanwhile != "a crowd")
        return await self._chain(history, shape, between)

    # ---- shapes

    async def _append(self, history: str, between: Between, *, kept: bool) -> float:
        fields: Json = {**_body(history), **FORCED, "max_output_tokens": await self._call_tokens(history) + SAID_TOKENS}
        clock = _Clock()
        async with self.client.rollout(**fields) as rollout:
            async for event in rollout:
                clock.hear(event.frame)
                if event.type == "response.done":
                    await between()
                    clock.start()
                    await rollout.append(_output(event.frame["required_input"][0]["call_id"]))
        response = rollout.result().response
        report = response["engine"]
        if (report.get("kv_kept"), report.get("kv_lost")) != (int(kept), int(not kept)):
            raise RuntimeError(f"the state was to be {'kept' if kept else 'lost'}: {response}")
        return clock.seconds

    async def _chain(self, history: str, shape: Any, between: Between) -> float:
        clock = _Clock()
        async with open_wire(self.url, shape) as wire:
            first = await wire.turn({**_body(history), **FORCED}, clock.hear)
            call = first["output"][0]
            await between()
            if shape == "create":
                more: Json = {"input": [_output(call["call_id"])], "previous_response_id": first["id"]}
            else:
                more = {"input": [*_body(history)["input"], call, _output(call["call_id"])], "store": False}
            clock.start()
            await wire.turn({**_body(history), **more, "max_output_tokens": SAID_TOKENS}, clock.hear)
        return clock.seconds

    async def _call_tokens(self, history: str) -> int:
        """How many tokens the call has: those that ``max_output_tokens`` leaves for the answer come behind it."""
        if history not in self._known:
            async with open_wire(self.url, "http") as wire:
                first = await wire.turn({**_body(history), **FORCED}, lambda _: None)
            self._known[history] = first["usage"]["output_tokens"]
        return self._known[history]

    _known: dict[str, int] = field(factory=dict)

    # ---- meanwhile

    async def _nothing(self) -> None:
        await trio.lowlevel.checkpoint()

    async def _others(self) -> None:
        """As many others as there are slots, one after the other."""
        for _ in range(SLOTS):
            await self._other()

    async def _crowd(self) -> None:
        """As many others at once: no slot is left to whoever is parked."""
        async with trio.open_nursery() as nursery:
            for _ in range(SLOTS):
                nursery.start_soon(self._other)

    async def _other(self, tokens: int = PASSER_TOKENS) -> None:
        text = f"{next(self._numbers)} is a number; tell me all about numbers of that kind, and what they are good for."
        async with open_wire(self.url, "http") as wire:
            body = {"model": MODEL, "input": text, "temperature": 0, "max_output_tokens": tokens, "store": False}
            await wire.turn(body, lambda _: None)

    # ---- the event loop

    async def lateness(self) -> float:
        """Milliseconds by which a sleep is late, the 99th percentile, while all slots sample."""
        late: list[float] = []

        async def watch() -> None:
            while True:
                until = trio.current_time() + TICK_SECONDS
                await trio.sleep_until(until)
                late.append(trio.current_time() - until)

        async with trio.open_nursery() as watching:
            watching.start_soon(watch)
            async with trio.open_nursery() as nursery:
                for _ in range(SLOTS):
                    nursery.start_soon(self._other, LATENESS_TOKENS)
            watching.cancel_scope.cancel()
        return quantiles(late, n=100)[-1] * 1e3


@define
class _Clock:
    """Hears events, and stops at the first token after it was started."""

    seconds: float = 0.0
    _started: float | None = None

    def start(self) -> None:
        self._started = time.perf_counter()

    def hear(self, event: Any) -> None:
        if self._started is not None and event["type"].endswith(".delta"):
            self.seconds = time.perf_counter() - self._started
            self._started = None


def _body(history: str) -> Json:
    said = {"type": "message", "role": "user", "content": history}
    return {"model": MODEL, "input": [*EARLIER, said], "tools": [LOOK], "parallel_tool_calls": False, "temperature": 0}


def _output(call_id: str) -> Json:
    words = WORDS.split(" ")[1:]
    text = " ".join(words[number % len(words)] for number in range(RESULT_TOKENS))
    return {"type": "function_call_output", "call_id": call_id, "output": text}
