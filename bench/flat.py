"""``flat``: late turns of long rollouts against early ones, in each shape: does a turn cost what is new, or what has been?

From when the tool's output is sent to when the first delta has come, seen by the client. The model costs nothing, so that this
is the engine's own time, and loopback's. An old rollout and a young one of the same shape take turns, so that what disturbs the
one disturbs the other.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from .client import PATH, TERMINAL, Client
from .process import ServerProcess
from .report import Pair, Row, Sizes, against
from .resume import DELTA, DONE, history
from .turns import MODEL

EARLY: Final = range(3, 8)
"""Turns that the last ones, as many, are set against."""

OUTPUT: Final = " the loop goes on with the same tokens in order" * 40
"""A tool's output of 400 tokens. Each begins with the number of its turn."""
HTTP_FULL_SHARE: Final = 5
"""One rollout in so many, where a turn costs the whole history: they take long."""
TASK: Final[dict[str, Any]] = {"type": "message", "role": "user", "content": "Look around."}


class Long(Protocol):
    """A rollout that goes on, turn by turn."""

    def turn(self, number: int) -> float:
        """Send an output; returns the seconds until the first delta has come. The next output is waited for then."""
        ...


def output(number: int, call_id: str) -> dict[str, Any]:
    """What the tool answers in a turn."""
    return {"type": "function_call_output", "call_id": call_id, "output": f"{number}{OUTPUT}"}


class Append:
    """One Response."""

    def __init__(self, server: ServerProcess) -> None:
        self._client = server.connect()
        self._client.send_json({"type": "response.create", "model": MODEL, **history(1), "store": False})
        self._client.until(DONE)

    def turn(self, number: int) -> float:
        payload = json.dumps({"type": "response.append", "input": [output(number, f"call_{number}")]}).encode()
        seconds = _until_delta(self._client, payload)
        self._client.until(DONE)
        return seconds


class Create:
    """A chain on one socket."""

    def __init__(self, server: ServerProcess) -> None:
        self._client = server.connect()
        self._client.send_json({"type": "response.create", **self._fields(), "input": [TASK]})
        self._last = self._end()

    def turn(self, number: int) -> float:
        create = self._fields() | {"previous_response_id": self._last, "input": [output(number, "call_0")]}
        seconds = _until_delta(self._client, json.dumps({"type": "response.create", **create}).encode())
        self._last = self._end()
        return seconds

    def _fields(self) -> dict[str, Any]:
        return {"model": MODEL, "tools": history(1)["tools"], "store": False, "continuation": "create"}

    def _end(self) -> str:
        return str(json.loads(self._client.until(*TERMINAL))["response"]["id"])


class Http:
    """A chain of POSTs on one connection, by ``previous_response_id``; or each with the ``full`` history."""

    def __init__(self, server: ServerProcess, *, full: bool) -> None:
        self._client = server.connect_http()
        self._full = full
        self._last = ""
        self._items: list[dict[str, Any]] = [TASK]
        self._ask(self._items)

    def turn(self, number: int) -> float:
        if not self._full:
            return self._ask([output(number, "call_0")])
        call_id = f"past_{number}"
        self._items += [
            {"type": "message", "role": "assistant", "content": "Now"},
            {"type": "function_call", "call_id": call_id, "name": "look", "arguments": '{"at":"README"}'},
            output(number, call_id),
        ]
        return self._ask(self._items)

    def _ask(self, items: Sequence[dict[str, Any]]) -> float:
        create = {"model": MODEL, "tools": history(1)["tools"], "stream": True, "store": not self._full, "input": items}
        if self._last and not self._full:
            create["previous_response_id"] = self._last
        payload = json.dumps(create).encode()
        started = time.perf_counter()
        self._client.send(PATH, payload)
        body = self._client.first_event(DELTA)
        seconds = time.perf_counter() - started
        events = self._client.rest(body)
        self._last = events.partition(b'"response":{')[2].partition(b'"id":"')[2].partition(b'"')[0].decode()
        return seconds


SHAPES: Final[dict[str, Callable[[ServerProcess], Long]]] = {
    "append": Append,
    "create": Create,
    "http": lambda server: Http(server, full=False),
    "http, full history": lambda server: Http(server, full=True),
}
TARGETS: Final = {"append": 1.1}


def flat(sizes: Sizes) -> Iterator[Row]:
    """Each shape's late turns against its early ones."""
    pairs: dict[str, list[Pair]] = {shape: [] for shape in SHAPES}
    late = range(sizes.turns - len(EARLY), sizes.turns)
    with ServerProcess("engine") as server:
        for number in range(sizes.rollouts):
            for shape, begin in SHAPES.items():
                if shape != "http, full history" or number % HTTP_FULL_SHARE == 0:
                    pairs[shape] += _play(begin(server), begin(server), late)
    for shape, measured in pairs.items():
        what = f"{shape}: output to first delta, turns {late[0]} to {late[-1]} : turns {EARLY[0]} to {EARLY[-1]}"
        yield against("flat", what, measured, target=TARGETS.get(shape), scale=1e6, unit="µs")


def _play(old: Long, young: Long, late: range) -> list[Pair]:
    for number in range(late.start):
        old.turn(number)
    for number in range(EARLY.start):
        young.turn(number)
    return [(old.turn(number), young.turn(other)) for number, other in zip(late, EARLY, strict=True)]


def _until_delta(client: Client, payload: bytes) -> float:
    started = time.perf_counter()
    client.send(payload)
    client.until(DELTA)
    return time.perf_counter() - started
