"""A client of the two shapes that the world uses: one rollout as a chain of Responses, over one WebSocket, or over HTTP.

``client`` is for the append shape, in which a rollout is one Response. Here each turn is a Response of its own: its
``response.completed`` ends the turn, the client runs the calls that it holds, and the next create names it by
``previous_response_id``.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, Protocol

import httpx2
import trio
from attrs import field, frozen

from protocol.client import Frame
from protocol.codec import encode, parse
from protocol.events import TERMINAL
from protocol.items import OUTPUT_TYPE_OF

from .client import ConnectionLost, RolloutError
from .transport.dialing import MAX_MESSAGE_CHARS, Door, Socket

CREATE_BETA = b"responses_websockets=2026-02-06"
"""The ``OpenAI-Beta`` of the create shape."""

OnEvent = Callable[[Frame], object]


class Wire(Protocol):
    """How a create gets to the server, and its events back."""

    bytes_up: int
    bytes_down: int

    async def turn(self, body: Mapping[str, Any], on_event: OnEvent) -> Frame:
        """Send a create, hand on its events, and return its Response at the end. Raises as ``run_chain`` does."""
        ...


class SocketWire:
    """Creates over one WebSocket."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self.bytes_up = 0
        self.bytes_down = 0

    async def turn(self, body: Mapping[str, Any], on_event: OnEvent) -> Frame:
        text = encode({"type": "response.create", **body})
        self.bytes_up += len(text)
        await self._socket.send(text.decode())
        while True:
            message = await self._socket.receive()
            if message is None:
                raise ConnectionLost(f"the socket has closed: {self._socket.gone}")
            self.bytes_down += len(message.encode() if isinstance(message, str) else message)
            response = _digest(parse(message), on_event)
            if response is not None:
                return response


class HttpWire:
    """Creates as ``POST``, answered by server-sent events."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self.bytes_up = 0
        self.bytes_down = 0

    async def turn(self, body: Mapping[str, Any], on_event: OnEvent) -> Frame:
        content = encode({**body, "stream": True})
        self.bytes_up += len(content)
        headers = {"content-type": "application/json"}
        try:
            async with self._http.stream("POST", "responses", content=content, headers=headers) as answer:
                if answer.status_code != httpx2.codes.OK:
                    raise RolloutError.of(parse(await answer.aread()), answer.status_code)
                response = None
                events = httpx2.EventSource(answer, max_event_size=MAX_MESSAGE_CHARS)
                async for event in events:  # to the end, so that the connection serves the next turn, too
                    response = self._take(event.data, on_event) or response
                self.bytes_down += answer.num_bytes_downloaded
        except httpx2.TransportError as error:
            raise ConnectionLost(f"{type(error).__name__}: {error}") from error
        if response is None:
            raise ConnectionLost("the stream ended before the Response did")
        return response

    def _take(self, data: str, on_event: OnEvent) -> Frame | None:
        return _digest(parse(data), on_event) if data.startswith("{") else None


def _digest(frame: Frame, on_event: OnEvent) -> Frame | None:
    if frame["type"] == "error":
        raise RolloutError.of(frame)
    on_event(frame)
    response: Frame | None = frame["response"] if frame["type"] in TERMINAL else None
    return response


@asynccontextmanager
async def open_wire(
    url: str, shape: Literal["create", "http"], *, api_key: str | None = None
) -> AsyncIterator[SocketWire | HttpWire]:
    """A connection to the server at ``url`` for chains of one shape. Raises ``ValueError``, ``OSError``, ``ConnectionLost``."""
    if shape == "http":
        headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        base = url if url.endswith("/") else f"{url}/"
        async with httpx2.AsyncClient(base_url=base, headers=headers, timeout=None, trust_env=False) as http:
            yield HttpWire(http)
        return
    door = Door.at(url, api_key, None, CREATE_BETA)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            socket = await nursery.start(Socket.hold, door)
            try:
                yield SocketWire(socket)
            finally:
                socket.close()
        except Exception as error:  # goes out as it is, not in the nursery's group
            failure = error
    if failure is not None:
        raise failure


@frozen(kw_only=True)
class ChainResult:
    """A rollout that has ended."""

    responses: Sequence[Frame] = field(repr=False)
    """As their terminal events have them."""

    @property
    def items(self) -> list[Frame]:
        """All output items, in order."""
        return [item for response in self.responses for item in response["output"]]

    @property
    def status(self) -> str:
        """The last Response's."""
        return str(self.responses[-1]["status"])


async def run_chain(
    wire: Wire,
    body: Mapping[str, Any],
    *,
    answer: Callable[[Frame], Awaitable[Mapping[str, Any]]],
    next_input: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]] | None = None,
    full_history: bool = False,
    on_event: OnEvent = lambda _: None,
) -> ChainResult:
    """Run a rollout to its end: ``answer`` gives the output item of a call; all calls of a turn run side by side.

    When the model has answered, ``next_input`` gives what the user says next; nothing ends the rollout. With ``full_history``
    each create carries all that was said instead of ``previous_response_id``. Raises ``RolloutError`` and ``ConnectionLost``.
    """
    responses: list[Frame] = []
    history = list(body.get("input", ()))
    following: dict[str, Any] = {**body}
    while True:
        response = await wire.turn(following, on_event)
        responses.append(response)
        more = await _answers(response, answer)
        if not more and next_input is not None:
            more = [*await next_input()]
        if not more or response["status"] == "failed":
            return ChainResult(responses=responses)
        history += [*response["output"], *more]
        if full_history:
            following = {**body, "input": history}
        else:
            following = {**body, "input": more, "previous_response_id": response["id"]}


async def _answers(response: Frame, answer: Callable[[Frame], Awaitable[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    calls = [item for item in response["output"] if item["type"] in OUTPUT_TYPE_OF and item.get("status") != "incomplete"]
    outputs: dict[int, Mapping[str, Any]] = {}

    async def run(place: int) -> None:
        outputs[place] = await answer(calls[place])

    async with trio.open_nursery() as nursery:
        for place in range(len(calls)):
            nursery.start_soon(run, place)
    return [outputs[place] for place in range(len(calls))]
