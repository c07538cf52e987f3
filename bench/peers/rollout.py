"""A rollout as each side wants to hear it: what begins it, and what carries a tool's output to it."""

import json
from collections.abc import Callable
from typing import Any, Final, Protocol

from ..client import ERROR, TERMINAL
from .turn import ARGUMENTS, MODEL, OUTPUT, TASK, TEXT, TOOL, TOOL_NAME, encoded

MESSAGE: Final = {"type": "message", "role": "user", "content": TASK}
DELTA: Final = b'{"type":"response.output_text.delta"'
PARKED: Final = b'{"type":"response.done"'
ENDS: Final = (*TERMINAL, PARKED)
"""The last event of a turn."""
FAILED: Final = (ERROR, b'{"type":"response.failed"')
OUTPUT_JSON: Final = json.dumps(OUTPUT)


class Rollout(Protocol):
    """What a client says."""

    held: bool
    """Whether it is one Response, which a last output brings to its end; or Responses, each of which has ended."""

    def begin(self) -> bytes:
        """The first request."""
        ...

    def turn(self, call_id: str, response_id: str) -> bytes:
        """The request that brings the output of a call of a Response."""
        ...


class Held:
    """The append shape: one Response, which the model ends after one output more than ``turns``."""

    held = True

    def __init__(self, turns: int) -> None:
        self._model = f"rollout-{turns}"

    def begin(self) -> bytes:
        return encoded({"type": "response.create", "continuation": "append", **_opening(self._model)})

    def turn(self, call_id: str, response_id: str) -> bytes:  # noqa: ARG002
        return b'{"type":"response.append","input":[%b]}' % _output(call_id)


class Chained:
    """Responses that continue each other by ``previous_response_id``."""

    held = False

    def __init__(self, model: str, **fields: Any) -> None:
        self._opening = encoded({**fields, **_opening(model)})
        self._head = encoded({**fields, "model": model, "store": True, "tools": [TOOL]})[:-1]

    def begin(self) -> bytes:
        return self._opening

    def turn(self, call_id: str, response_id: str) -> bytes:
        return b'%b,"previous_response_id":"%b","input":[%b]}' % (self._head, response_id.encode(), _output(call_id))


class Repeated:
    """The whole history in each request, for a server that remembers nothing."""

    held = False

    def __init__(self, model: str, **fields: Any) -> None:
        self._head = encoded({**fields, "model": model, "store": True, "tools": [TOOL]})[:-1]
        self._history = encoded(MESSAGE)

    def begin(self) -> bytes:
        return self._request()

    def turn(self, call_id: str, response_id: str) -> bytes:  # noqa: ARG002
        spoken = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": TEXT}]}
        called = {"type": "function_call", "call_id": call_id, "name": TOOL_NAME, "arguments": ARGUMENTS}
        self._history += b",%b,%b,%b" % (encoded(spoken), encoded(called), _output(call_id))
        return self._request()

    def _request(self) -> bytes:
        return b'%b,"input":[%b]}' % (self._head, self._history)


def append(turns: int) -> Rollout:
    """Sostenuto's append shape."""
    return Held(turns)


def create(_: int) -> Rollout:
    """Sostenuto's create shape."""
    return Chained("rollout", type="response.create", continuation="create")


def http(_: int) -> Rollout:
    """Sostenuto over HTTP."""
    return Chained("rollout", stream=True)


def chained_socket(_: int) -> Rollout:
    """Another's WebSocket that knows the Response before."""
    return Chained(MODEL, type="response.create")


def repeated_socket(_: int) -> Rollout:
    """Another's WebSocket that does not."""
    return Repeated(MODEL, type="response.create")


def chained_http(_: int) -> Rollout:
    """Another's HTTP, by the Response before."""
    return Chained(MODEL, stream=True)


NewRollout = Callable[[int], Rollout]


def _opening(model: str) -> dict[str, Any]:
    return {"model": model, "input": [MESSAGE], "store": True, "tools": [TOOL]}


def _output(call_id: str) -> bytes:
    return b'{"type":"function_call_output","call_id":"%b","output":%b}' % (call_id.encode(), OUTPUT_JSON.encode())


def call_id_of(event: bytes) -> str | None:
    """The call that an event is about."""
    return event.partition(b'"call_id":"')[2].partition(b'"')[0].decode() or None


def response_id_of(event: bytes) -> str:
    """The Response whose terminal event this is."""
    return event.partition(b'"response":{')[2].partition(b'"id":"')[2].partition(b'"')[0].decode()
