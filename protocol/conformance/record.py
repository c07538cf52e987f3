"""A transport that notes all that passes through it: a conversation as frames that one can paste, and what it could show.

Each connection is a client: ``c0``, ``c1``, … as they were opened; each request over HTTP is one, too: ``h0``, ``h1``, ….
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..events import TERMINAL
from ..items import OUTPUT_TYPE_OF
from .transport import Exchange, Frame, ServerSentEvent, Socket, Transport

Note = tuple[str, str, Any]
"""Who, what (``sent``, ``got``, ``did``, ``asked``, ``answered``), and the frame, the words, or the request."""

OUTPUTS: Final = frozenset(OUTPUT_TYPE_OF.values())


class Recorder:
    """``transport``, and ``notes`` of what passes through it. ``key`` is the bearer key of those who say none."""

    def __init__(self, transport: Transport, key: str | None = None) -> None:
        self._transport = transport
        self._key = key
        self._sockets = 0
        self._exchanges = 0
        self.notes: list[Note] = []

    @property
    def exact(self) -> bool:
        """That of the transport."""
        return self._transport.exact

    async def connect(self, *, key: str | None = None, beta: str | None = None) -> Socket:
        """As the transport does."""
        name = f"c{self._sockets}"
        self._sockets += 1
        return _Socket(await self._transport.connect(key=self._key if key is None else key, beta=beta), name, self.notes)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        key: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Exchange:
        """As the transport does."""
        name = f"h{self._exchanges}"
        self._exchanges += 1
        self.notes.append((name, "asked", (f"{method} /v1{path}", body)))
        key = self._key if key is None else key
        exchange = await self._transport.request(method, path, body, key=key, headers=headers)
        self.notes.append((name, "answered", exchange.status))
        return _Exchange(exchange, name, self.notes)

    async def settle(self) -> None:
        """As the transport does."""
        await self._transport.settle()

    def frames(self) -> list[Frame]:
        """The conversation as JSON has it: who ``sent``, ``got`` or ``did`` what."""
        return list(_frames(self.notes))


class _Socket:
    def __init__(self, socket: Socket, name: str, notes: list[Note]) -> None:
        self._socket = socket
        self._name = name
        self._notes = notes

    async def send(self, message: str | bytes) -> None:
        self._notes.append((self._name, "sent", message))
        await self._socket.send(message)

    async def receive_text(self) -> str:
        text = await self._socket.receive_text()
        self._notes.append((self._name, "got", text))
        return text

    async def ping(self) -> None:
        """Send a ping, and wait for its pong, where the socket can."""
        self._notes.append((self._name, "did", "pings"))
        ping: Any = self._socket
        await ping.ping()

    async def drop(self) -> None:
        self._notes.append((self._name, "did", "drops the connection"))
        await self._socket.drop()

    async def aclose(self) -> None:
        self._notes.append((self._name, "did", "closes"))
        await self._socket.aclose()


class _Exchange:
    def __init__(self, exchange: Exchange, name: str, notes: list[Note]) -> None:
        self._exchange = exchange
        self._name = name
        self._notes = notes
        self.status = exchange.status
        self.headers = exchange.headers

    async def read(self) -> bytes:
        data = await self._exchange.read()
        self._notes.append((self._name, "got", data))
        return data

    async def next_event(self) -> ServerSentEvent | None:
        event = await self._exchange.next_event()
        if event is not None:
            self._notes.append((self._name, "got", event.data))
        return event

    async def drop(self) -> None:
        self._notes.append((self._name, "did", "drops the connection"))
        await self._exchange.drop()


def _frames(notes: Sequence[Note]) -> Iterator[Frame]:
    for who, what, how in notes:
        if what == "asked":
            request, body = how
            yield {"client": who, "request": request, **({} if body is None else {"sent": _shown(body)})}
        elif what == "answered":
            yield {"client": who, "status": how}
        else:
            yield {"client": who, what: how if what == "did" else _shown(how)}


def _shown(message: str | bytes) -> Any:
    """An object if it is one, the text if not, and the bytes of what is no text."""
    value = read(message)
    if value is not None:
        return value
    if isinstance(message, str):
        return message
    try:
        return message.decode()
    except UnicodeDecodeError:
        return {"bytes": message.hex()}


def read(message: str | bytes | None) -> Frame | None:
    """The object that a frame is; None if it is none. The same text would be made of it, whitespace aside."""
    try:
        value = json.loads(message or b"", parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


# ---- which laws a conversation could have broken


def could_break(notes: Sequence[Note], *, obeys: bool, books: bool) -> set[str]:
    """The laws that were at stake: those of which a breach could have been seen, with the server's ``books`` open or not."""
    seen = _see(notes)
    began, ended = "response.created" in seen or "object" in seen, bool(seen & {*TERMINAL, "ended"})
    stake = {
        "L1": ended and "engine" in seen,
        "L2": began,
        "L3": "numbered" in seen,
        "L4": "response.output_item.added" in seen,
        "L5": "output" in seen,
        "L6": "several" in seen and "error" in seen,
        "L7": "several" in seen,
        "L8": obeys and ended,
        "L9": bool(seen & {"response.attach", "replay"}),
        "L10": bool(seen & {"response.cancel", "cancel"}) or "drops" in seen,
        "L11": books or "drops" in seen,
        "L12": began or "error" in seen,
        "L13": bool(seen & {"error", "stream_id"}),
        "L14": books or bool(seen & {"output", "previous_response_id", "input_items"}),
        "L15": ended and (books or "usage" in seen),
        "L16": "large" in seen,
    }
    return {law for law, at_stake in stake.items() if at_stake}


LARGE: Final = 1_000_000
"""Bytes of what is large."""


def _see(notes: Sequence[Note]) -> set[str]:
    seen: set[str] = set()
    for _, what, how in notes:
        if what == "did":
            seen.add("drops" if "drops" in how else how)
        elif what == "answered":
            seen |= {"error"} if how >= 400 else set()
        elif what == "got":
            seen |= _see_got(read(how) or {})
        elif what == "sent":
            seen |= _see_sent(how)
        else:
            request, body = how
            seen |= _see_request(request) | (_see_sent(body) if body is not None else set())
    return seen


def _see_request(request: str) -> set[str]:
    marks = {"cancel": "/cancel", "input_items": "/input_items", "replay": "starting_after="}
    return {name for name, mark in marks.items() if mark in request}


def _see_sent(message: str | bytes) -> set[str]:
    frame = read(message)
    seen = {"large"} if len(message) > LARGE else set()
    if frame is None:
        return seen | {"error"}
    items = frame.get("input")
    outputs = [one for one in items if isinstance(one, dict) and one.get("type") in OUTPUTS] if isinstance(items, list) else []
    seen |= {str(frame.get("type"))} | {name for name in ("stream_id", "previous_response_id") if frame.get(name)}
    return seen | ({"output"} if outputs else set()) | ({"several"} if len(outputs) > 1 else set())


def _see_got(frame: Mapping[str, Any]) -> set[str]:
    response = frame["response"] if isinstance(frame.get("response"), dict) else frame
    seen = {str(frame.get("type"))}
    seen |= {"numbered"} if "sequence_number" in frame else set()
    seen |= {"object"} if response.get("object") == "response" else set()
    seen |= {"ended"} if response.get("status") in ("completed", "incomplete", "failed", "cancelled") else set()
    return seen | {name for name in ("usage", "engine") if response.get(name)}
