"""``turn``: from a tool's output to the first event of what follows, in each shape, with a short and a long history."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from .client import PATH, TERMINAL
from .process import ServerProcess
from .report import Row, Sizes, against, interleaved
from .resume import DELTA, RESULT, SHORT_HISTORY, Parked, history

MODEL: Final = "turn"
CREATED: Final = b'{"type":"response.created"'
ACCEPTED: Final = b'{"type":"response.append.accepted"'

TURNS: Final = 5
"""Turns of a chain, which grows by a call and its output at each; then it begins anew, so that its length stays what it was."""

TURN_ITEMS: Final = 1_000
"""Items of the long history. (``resume`` has the append shape with 10,000.)"""


class Turning(Protocol):
    """A rollout that goes on for ever."""

    def turn(self) -> float:
        """Send an output; returns the seconds until what is waited for has come. The rollout waits for an output again then."""
        ...


class Chain:
    """Responses that continue each other by ``previous_response_id``: a rollout in pieces of ``TURNS`` turns."""

    fields: Mapping[str, Any] = {}
    """What each create says beside."""

    def __init__(self, items: int) -> None:
        self._items = items
        self._left = 0
        self._last = ""

    def turn(self) -> float:
        if not self._left:
            self._begin()
        self._left -= 1
        seconds, self._last = self._ask({**continuation(self._last), **self.fields})
        return seconds

    def _begin(self) -> None:
        """A new chain; its second Response, which continues a fresh one, is not measured."""
        _, first = self._ask({**start(self._items), **self.fields})
        _, self._last = self._ask({**continuation(first), **self.fields})
        self._left = TURNS

    def _ask(self, create: Mapping[str, Any]) -> tuple[float, str]:
        """The seconds until what is waited for has come, and the id of the Response, which has ended."""
        raise NotImplementedError


class CreateChain(Chain):
    """On one socket. ``until`` says which event a turn waits for."""

    fields: Mapping[str, Any] = {"store": False, "continuation": "create"}

    def __init__(self, server: ServerProcess, items: int, until: bytes) -> None:
        super().__init__(items)
        self._client = server.connect()
        self._until = until

    def _ask(self, create: Mapping[str, Any]) -> tuple[float, str]:
        payload = json.dumps({"type": "response.create", **create}).encode()
        started = time.perf_counter()
        self._client.send(payload)
        seen = self._client.until(self._until)
        seconds = time.perf_counter() - started
        ended = self._client.until(*TERMINAL) if not seen.startswith(TERMINAL) else seen
        return seconds, json.loads(ended)["response"]["id"]


class HttpChain(Chain):
    """Over one HTTP connection that is kept, streamed."""

    fields: Mapping[str, Any] = {"stream": True}

    def __init__(self, server: ServerProcess, items: int) -> None:
        super().__init__(items)
        self._client = server.connect_http()

    def _ask(self, create: Mapping[str, Any]) -> tuple[float, str]:
        payload = json.dumps(create).encode()
        started = time.perf_counter()
        self._client.send(PATH, payload)
        body = self._client.first_event()
        seconds = time.perf_counter() - started
        events = self._client.rest(body)
        return seconds, events.partition(b'"response":{')[2].partition(b'"id":"')[2].partition(b'"')[0].decode()


class AppendTurns:
    """One Response for all of the turns."""

    def __init__(self, server: ServerProcess, until: bytes) -> None:
        self._parked = Parked(server, {"type": "response.create", **start(SHORT_HISTORY), "store": False})
        self._until = until

    def turn(self) -> float:
        return self._parked.resume(self._until)


def start(items: int) -> dict[str, Any]:
    """A create with so many items of history."""
    return {"model": MODEL, **history(items)}


def continuation(previous: str) -> dict[str, Any]:
    """The create that answers the one call of ``previous``."""
    output = {"type": "function_call_output", "call_id": "call_0", "output": RESULT}
    return {"model": MODEL, "previous_response_id": previous, "input": [output], "tools": history(1)["tools"]}


def turn(sizes: Sizes) -> Iterator[Row]:
    """The shapes that continue with another Response, long against short; and the append shape against one of them."""
    many = min(sizes.history, TURN_ITEMS)
    with ServerProcess("engine") as server:
        chains: list[tuple[str, float, Callable[[int], Turning]]] = [
            ("create", 1.15, lambda items: CreateChain(server, items, CREATED)),
            ("http", 1.3, lambda items: HttpChain(server, items)),
        ]
        for shape, target, chain in chains:
            what = f"{shape}: output to first event, {many:,} items of history : {SHORT_HISTORY}"
            yield _row(what, sizes.samples, chain(many), chain(SHORT_HISTORY), target)
        for event, until in (("event", (ACCEPTED, CREATED)), ("delta", (DELTA, DELTA))):
            ours, theirs = AppendTurns(server, until[0]), CreateChain(server, SHORT_HISTORY, until[1])
            yield _row(f"append : create, output to first {event}", sizes.samples, ours, theirs, 1.0)


def _row(what: str, samples: int, ours: Turning, theirs: Turning, target: float) -> Row:
    pairs = interleaved(samples, ours.turn, theirs.turn)
    return against("turn", what, pairs, target=target, scale=1e6, unit="µs")
