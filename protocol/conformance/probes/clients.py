"""Who speaks in a probe: a client with a WebSocket, or one that sends POSTs. Both know the same words."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

import trio
from attrs import evolve, frozen

from ...events import TERMINAL
from ...grammar import Trace
from ...items import OUTPUT_TYPE_OF
from ..script import Script, Step, calls_in, text_of
from ..transport import Exchange, Frame, Shape, Socket
from .notes import Notes
from .turn import Refusal, Turn

BETA: Final[Mapping[Shape, str]] = {
    "append": "responses_websockets=2026-02-04",
    "create": "responses_websockets=2026-02-06",
}
BESIDE: Final = ("response.steer.failed", "response.steer.pending")
"""Numbered, but no events of a Response."""


class Client:
    """One client. Its words return a ``Turn`` of the model; what is refused, unless that was expected, is a failure."""

    def __init__(self, notes: Notes, name: str, key: str | None) -> None:
        self.notes = notes
        self.name = name
        self.key = key

    # ---- words

    async def begin(self, *steps: Step, behind: Sequence[Frame] = (), **fields: Any) -> Turn:
        """A new rollout, of which the model must do ``steps`` up to its first wait. ``behind`` is what follows in its
        input."""
        turn = await self.open(*steps, behind=behind, **fields)
        wanted = [item.name for item in Script(steps).turn().items if item.type in OUTPUT_TYPE_OF]
        if not behind and len(turn.calls) < len(wanted):
            raise self.notes.beyond(f"call {', '.join(map(str, wanted))}")
        return turn

    async def open(self, *steps: Step, behind: Sequence[Frame] = (), **fields: Any) -> Turn:
        """As ``begin``, whatever the model then does."""
        frame = self.opening(*steps, behind=behind, **fields)
        turn = self._turn_of(await self.ask(frame), steps, fields)
        return evolve(turn, context=(*frame["input"], *turn.items))

    async def go_on(self, turn: Turn, *items: Frame, **fields: Any) -> Turn:
        """The rollout goes on behind ``turn`` with ``items``: an append, or a create that names the Response before, or
        has the whole history where none can be named."""
        script = _read(turn, items)
        after = self._accepted(await self.ask(self.following(turn, *items, **fields)))
        context = (*turn.context, *items, *after.items)
        return evolve(after, script=script.turn().after, tools=turn.tools, context=context)

    async def refused(
        self, turn: Turn, *items: Frame, codes: Collection[str], documented: bool = False, **fields: Any
    ) -> Refusal:
        """As ``go_on``, but it must be refused."""
        return self.must_refuse(await self.ask(self.following(turn, *items, **fields)), codes, documented=documented)

    async def refused_opening(
        self, *steps: Step, codes: Collection[str], documented: bool = False, behind: Sequence[Frame] = (), **fields: Any
    ) -> Refusal:
        """As ``open``, but it must be refused."""
        answer = await self.ask(self.opening(*steps, behind=behind, **fields))
        return self.must_refuse(answer, codes, documented=documented)

    async def still_lives(self) -> None:
        """Whatever was before: a rollout can be had."""
        turn = await self.open({"say": "Still here."})
        self.notes.need(turn.status == "completed", f"a rollout of one answer ended as {turn.status}", "L12")

    # ---- frames

    def opening(
        self, *steps: Step, behind: Sequence[Frame] = (), tokens_per_second: float | None = None, **fields: Any
    ) -> Frame:
        """A create."""
        own = self.notes.adapter.opening(steps, tokens_per_second=tokens_per_second)
        body = {"tools": tools_of(steps), **own, **fields}
        if behind:
            body["input"] = [*body["input"], *behind]
        return {"type": "response.create", **body}

    def following(self, turn: Turn, *items: Frame, **fields: Any) -> Frame:
        """What goes on behind ``turn``."""
        if self.notes.appends:
            return {"type": "response.append", "response_id": turn.response_id, "input": list(items), **fields}
        own = {"tools": list(turn.tools), **self.notes.adapter.following(_read(turn, items))}
        rest: Frame = {"previous_response_id": turn.response_id, "input": list(items)}
        if not self.notes.capabilities.chain:
            rest = {"input": [*turn.context, *items]}
        return {"type": "response.create", **own, **rest, **fields}

    async def ask(self, frame: Frame | str) -> Turn | Refusal:
        """Send ``frame``, or a text that may be none, and hear what comes of it."""
        raise NotImplementedError

    def sent(self, frame: Frame) -> Frame:
        """``frame`` as it is sent."""
        return frame

    def size_of(self, frame: Frame) -> int:
        """Of the message that ``frame`` is sent as, in bytes."""
        return len(encoded(self.sent(frame)).encode())

    async def aclose(self) -> None:
        """Go away."""
        raise NotImplementedError

    def must_refuse(self, answer: Turn | Refusal, codes: Collection[str], *, documented: bool = False) -> Refusal:
        """The refusal that ``answer`` must be."""
        if isinstance(answer, Turn) and answer.status == "failed" and not self.notes.strict:
            answer = Refusal(frame=answer.response or {})
        if isinstance(answer, Turn):
            raise self.notes.failure("what must be refused was accepted")
        self.notes.check_refusal(answer, codes, documented=documented)
        return answer

    def _accepted(self, answer: Turn | Refusal) -> Turn:
        if isinstance(answer, Refusal):
            raise self.notes.failure(f"refused: {answer.code}: {answer.message}")
        return answer

    def _turn_of(self, answer: Turn | Refusal, steps: Sequence[Step], fields: Mapping[str, Any]) -> Turn:
        after = Script(tuple(steps)).turn().after
        return evolve(self._accepted(answer), script=after, tools=fields.get("tools", tools_of(steps)))

    def parsed(self, text: str) -> Frame:
        """A frame that was heard."""
        try:
            frame = json.loads(text, parse_constant=_no_json)
        except ValueError as error:
            raise self.notes.failure(f"{self.name} got what is no JSON ({error}): {text[:80]}", "L4") from None
        self.notes.need(isinstance(frame, dict), f"{self.name} got no object: {text[:80]}", "L4")
        self.notes.story.heard(self.name, frame)
        return dict(frame)


class SocketClient(Client):
    """A client with a WebSocket. It reads only when asked to."""

    def __init__(self, notes: Notes, name: str, key: str | None, socket: Socket) -> None:
        super().__init__(notes, name, key)
        self.socket = socket
        self._traces: dict[str | None, Trace | None] = {}
        """By lane; None where the beginning was not heard, or there is no more to check."""

    async def send(self, frame: Frame | str | bytes) -> None:
        """Send a frame; raises ``Closed``."""
        self.notes.story.sent(self.name, frame)
        await self.socket.send(frame if isinstance(frame, str | bytes) else encoded(frame))

    async def hear(self) -> Frame:
        """The next frame; raises ``Closed``."""
        frame = self.parsed(await self.socket.receive_text())
        lane = frame.get("stream_id")
        if frame.get("type") == "response.created":
            self._traces[lane] = Trace(append_shape=self.notes.appends)
        elif frame.get("type") == "response.attach.accepted":
            self._traces[lane] = None
        trace = self._traces.get(lane)
        if trace is not None and frame.get("type") not in BESIDE and not self.notes.feed(trace, frame):
            self._traces[lane] = None
        return frame

    async def until(self, *kinds: str, times: int = 1) -> list[Frame]:
        """Frames up to the last of ``times`` of these types, that one too."""
        frames: list[Frame] = []
        with self.notes.patience(f"{self.name} waits for {' or '.join(kinds)}"):
            while times:
                frames.append(await self.hear())
                times -= frames[-1].get("type") in kinds
        return frames

    async def ends(self, *, times: int = 1) -> list[Frame]:
        """Frames up to that many terminal events."""
        return await self.until(*TERMINAL, times=times)

    async def quiet(self) -> list[Frame]:
        """What comes in a moment; nothing must come, mostly."""
        frames: list[Frame] = []
        with trio.move_on_after(self.notes.moment):
            while True:
                frames.append(await self.hear())
        return frames

    async def ask(self, frame: Frame | str) -> Turn | Refusal:
        """Send ``frame``; then all up to where the model waits or ends, or an error."""
        await self.send(frame)
        return await self.answer(None if isinstance(frame, str) else frame.get("response_id"))

    async def answer(self, response_id: str | None = None) -> Turn | Refusal:
        """All up to where the model waits or ends, or an error."""
        events: list[Frame] = []
        with self.notes.patience(f"{self.name} waits for an answer"):
            while True:
                frame = await self.hear()
                kind = frame.get("type")
                if kind == "error":
                    return Refusal(frame=frame, status=frame.get("status"))
                events.append(frame)
                if kind in TERMINAL or kind == "response.done" or frame.get("pending"):
                    return turn_of(events, response_id)

    async def drop(self) -> None:
        """Break the connection without a word."""
        self.notes.story.did(self.name, "drops its socket")
        await self.socket.drop()

    async def aclose(self) -> None:
        await self.socket.aclose()


@frozen
class Answer:
    """An answer over HTTP."""

    status: int
    headers: Mapping[str, str]
    json: Frame


class HttpClient(Client):
    """A client that sends POSTs. It asks for events where the server offers them."""

    def __init__(self, notes: Notes, name: str, key: str | None) -> None:
        super().__init__(notes, name, key)
        self._exchanges: list[Exchange] = []

    async def request(self, method: str, path: str, body: Frame | bytes | None = None) -> Exchange:
        """Send a request; ``path`` stands behind ``/v1``."""
        self.notes.story.did(self.name, f"{method} /v1{path}")
        if body is not None:
            self.notes.story.sent(self.name, body)
        data = encoded(body).encode() if isinstance(body, dict) else body
        with self.notes.patience(f"{method} {path}"):
            exchange = await self.notes.transport.request(method, path, data, key=self.key)
        self._exchanges.append(exchange)
        self.notes.story.did(self.name, f"is answered with {exchange.status}")
        return exchange

    async def call(self, method: str, path: str, body: Frame | bytes | None = None) -> Answer:
        """Send a request, and read its answer, which is JSON."""
        return await self.read(await self.request(method, path, body))

    async def read(self, exchange: Exchange) -> Answer:
        """The whole answer, which is JSON."""
        with self.notes.patience(f"{self.name} reads an answer"):
            content = await exchange.read()
        return Answer(exchange.status, exchange.headers, self.parsed(content.decode() or "{}"))

    async def get(self, path: str) -> Frame:
        """What is at ``path``; raises ``ConformanceError`` if nothing is."""
        answer = await self.call("GET", path)
        self.notes.need(answer.status == 200, f"GET {path} was answered with {answer.status}")
        return answer.json

    async def until_ended(self, response_id: str, *, gone: bool = False) -> Frame:
        """Poll a Response until it has ended; it may be ``gone`` altogether."""
        with self.notes.patience(f"the end of {response_id}"):
            while True:
                answer = await self.call("GET", f"/responses/{response_id}")
                found = answer.status == 200 or (gone and answer.status == 404)
                self.notes.need(found, f"GET was answered with {answer.status}")
                if answer.json.get("status") not in ("queued", "in_progress"):
                    return answer.json
                await trio.sleep(self.notes.moment)

    def sent(self, frame: Frame) -> Frame:
        """A body has no ``type``; and asks for events, where they are offered."""
        events = {"stream": True} if self.notes.capabilities.stream else {}
        return {**events, **{name: value for name, value in frame.items() if name != "type"}}

    async def ask(self, frame: Frame | str) -> Turn | Refusal:
        """POST ``frame``; then its JSON or its events, to the end."""
        body = frame.encode() if isinstance(frame, str) else self.sent(frame)
        exchange = await self.request("POST", "/responses", body)
        if exchange.status < 400 and "event-stream" in exchange.headers.get("content-type", ""):
            return await self.events(exchange)
        answer = await self.read(exchange)
        if answer.status >= 400:
            return Refusal(frame=answer.json, status=answer.status)
        return Turn(response_id=str(answer.json.get("id")), response=answer.json)

    async def events(self, exchange: Exchange) -> Turn | Refusal:
        """The events of a stream, to its end."""
        events: list[Frame] = []
        trace = Trace()
        whole = True
        with self.notes.patience(f"{self.name} reads a stream"):
            while (event := await exchange.next_event()) is not None and event.data != "[DONE]":
                frame = self.parsed(event.data)
                if frame.get("type") == "error" and not events:
                    return Refusal(frame=frame)
                events.append(frame)
                whole = whole and events[0]["type"] == "response.created" and self.notes.feed(trace, frame)
        with trio.move_on_after(self.notes.moment):
            more = event and await exchange.next_event()
            self.notes.need(more is None, f"behind [DONE] came {more}", "L2")
        await exchange.drop()
        return turn_of(events)

    async def aclose(self) -> None:
        """Break what is left of connections whose answers were not read to their end."""
        for exchange in self._exchanges:
            await exchange.drop()


def encoded(frame: Frame) -> str:
    """``frame`` as text, with nothing escaped that need not be."""
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))


def turn_of(events: Sequence[Frame], response_id: str | None = None) -> Turn:
    """What ``events`` tell of one Response."""
    last = events[-1] if events else {}
    ids = [
        frame["response"]["id"] for frame in events if isinstance(frame.get("response"), dict) and frame["response"].get("id")
    ]
    return Turn(
        response_id=str(next(iter(ids), response_id)),
        events=tuple(events),
        response=last["response"] if last.get("type") in TERMINAL else None,
        pending=[stub["call_id"] for stub in last.get("required_input", ()) if "call_id" in stub] or last.get("pending", ()),
    )


def _read(turn: Turn, items: Sequence[Frame]) -> Script:
    names = {call["call_id"]: call.get("name", "") for call in turn.calls}
    outputs = [(names.get(item["call_id"], ""), text_of(item["output"])) for item in items if "output" in item]
    return turn.script.read(outputs, [text_of(item["content"]) for item in items if item.get("role") == "user"])


def tools_of(steps: Sequence[Step]) -> list[Frame]:
    """The tools that ``steps`` call, as a client offers them."""
    tools: dict[str, Frame] = {}
    for item in calls_in(steps):
        kind = item.get("kind", "function_call").removesuffix("_call").removesuffix("_tool")
        schema = {"parameters": {"type": "object", "properties": {}}} if kind == "function" else {}
        tools[item["name"]] = {"type": kind, "name": item["name"], "description": f"Does {item['name']}.", **schema}
    return list(tools.values())


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
