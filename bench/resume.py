"""``resume``: from an append to the first delta of the Response that goes on."""

import json
import time
from collections.abc import Iterator
from typing import Any, Final

from .client import Client
from .process import ServerProcess
from .report import Row, Sizes, against, interleaved

RESULT: Final = "README.md  src  tests  pyproject.toml\n" * 7
"""A tool's result of some 256 characters."""

DONE: Final = b'{"type":"response.done"'
DELTA: Final = b'{"type":"response.output_text.delta"'
SHORT_HISTORY: Final = 10


class Parked:
    """A Response that is parked on a call, and its client."""

    def __init__(self, server: ServerProcess, request: dict[str, Any]) -> None:
        self.client = server.connect()
        self.client.send_json(request)
        self._turn = -1
        self._wait()

    def resume(self, until: bytes = DELTA) -> float:
        """Append the call's result; returns the seconds until the first delta, or what ``until`` says. The Response is
        parked again then."""
        payload = append(self._turn)
        started = time.perf_counter()
        self.client.send(payload)
        self.client.until(until)
        seconds = time.perf_counter() - started
        self._wait()
        return seconds

    def _wait(self) -> None:
        self.client.until(DONE)
        self._turn += 1


def create(items: int) -> dict[str, Any]:
    """A create with so many items of history."""
    return {"type": "response.create", "model": "call", **history(items), "store": False}


def history(count: int) -> dict[str, Any]:
    """So many items of input, a task, then calls and their results; and the tool that is called."""
    items: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": "Look around."}]
    for number in range((count - 1) // 2):
        call_id = f"past_{number}"
        items += [
            {"type": "function_call", "call_id": call_id, "name": "look", "arguments": '{"at":"src"}'},
            {"type": "function_call_output", "call_id": call_id, "output": "engine.py"},
        ]
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}]
    return {"input": items, "tools": tools}


def append(turn: int) -> bytes:
    """The append that answers the call of ``turn``."""
    output = {"type": "function_call_output", "call_id": f"call_{turn}", "output": RESULT}
    return json.dumps({"type": "response.append", "input": [output]}).encode()


def resume(sizes: Sizes) -> Iterator[Row]:
    """A resume against an echo, and with a long history against one with a short."""
    with ServerProcess("engine") as engine, ServerProcess("echo") as echo:
        parked, bare = Parked(engine, create(SHORT_HISTORY)), echo.connect()
        pairs = interleaved(sizes.samples, parked.resume, lambda: _echo(bare))
        what = "append to first delta : a bare echo of a message of that size"
        yield against("resume", what, pairs, target=2.0, scale=1e6, unit="µs", aim=1.5)
        long = Parked(engine, create(sizes.history))
        pairs = interleaved(sizes.samples, long.resume, parked.resume)
        what = f"append to first delta, {sizes.history:,} items of history : {SHORT_HISTORY}"
        yield against("resume", what, pairs, target=1.1, scale=1e6, unit="µs")


def _echo(client: Client) -> float:
    payload = append(0)
    started = time.perf_counter()
    client.send(payload)
    client.receive()
    return time.perf_counter() - started
