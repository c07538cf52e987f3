"""Another server of the Responses API, on a real socket, which says what a test says.

    async with fake_responses([*message("hello"), completed()]) as upstream:
        model = RelayModel.at(upstream.url, model="any")

Each create, over a WebSocket or by ``POST``, is answered by the next script: frames, as objects or as JSON text, times to wait,
``HANG``, or ``DROP``, at which the connection is gone. ``asked`` has the bodies of the creates, with ``over`` beside them.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import trio
from attrs import define, field
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Message, Ping, Request, TextMessage
from wsproto.utilities import RemoteProtocolError

from protocol.codec import encode, parse

from .models import HANG, Delay

Frame = Mapping[str, Any]


class Dropped(Exception):
    """The fake drops the connection."""


DROP: Final = Dropped()
"""A step: the connection is gone."""
Step = Frame | str | Delay | Dropped
READ_BYTES: Final = 65536


# ---- frames


def message(text: str, index: int = 0, **fields: Any) -> list[Frame]:
    """A message, streamed as one piece."""
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": f"msg_{index}", "role": "assistant", "status": "completed", "content": [part], **fields}
    where = {"item_id": item["id"], "output_index": index, "content_index": 0}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", "delta": text, **where},
        item_done(item, index),
    ]


def function_call(call_id: str, name: str = "f", arguments: str = "{}", index: int = 0) -> list[Frame]:
    """A function call, streamed as one piece."""
    item = {"type": "function_call", "id": f"fc_{index}", "call_id": call_id, "name": name, "arguments": arguments}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "delta": arguments, "output_index": index},
        item_done({**item, "status": "completed"}, index),
    ]


def item_done(item: Frame, index: int = 0) -> Frame:
    """An item is whole."""
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def ended(status: str = "completed", *, response_id: str = "resp_1", output: Sequence[Frame] = (), **fields: Any) -> Frame:
    """The terminal event."""
    response = {"id": response_id, "object": "response", "status": status, "output": output, **fields}
    return {"type": f"response.{status}", "response": response}


def error(code: str, status: int = 400, **fields: Any) -> Frame:
    """An ``error`` frame."""
    return {"type": "error", "status": status, "error": {"code": code, "message": f"this is {code}"}, **fields}


# ---- the server


@define(eq=False)
class FakeResponses:
    """The server. ``upgrade`` is what it answers to WebSockets: 101, or a status that refuses them."""

    scripts: list[Iterable[Step]]
    upgrade: int = 101
    streams: bool = True
    """Whether a ``POST`` is answered by events; else a script has one frame, of whose ``response`` the answer is made."""
    url: str = ""
    asked: list[dict[str, Any]] = field(factory=list)
    heads: list[str] = field(factory=list)
    """Of the requests."""
    connections: int = 0
    upgrades: int = 0
    dropped: int = 0
    """Connections that the client left in the midst of an answer."""

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection, until either side ends it."""
        self.connections += 1
        data = b""
        try:
            while b"\r\n\r\n" not in data:
                received = await stream.receive_some(READ_BYTES)
                if not received:
                    return
                data += received
            self.heads.append(data.partition(b"\r\n\r\n")[0].decode("latin-1"))
            if b"upgrade: websocket" in data.lower():
                await self._upgraded(stream, data)
            else:
                await self._posted(stream, data)
        except* (Dropped, trio.BrokenResourceError, RemoteProtocolError):
            pass
        finally:
            await trio.aclose_forcefully(stream)

    async def _upgraded(self, stream: trio.SocketStream, data: bytes) -> None:
        self.upgrades += 1
        if self.upgrade != 101:
            await stream.send_all(b"HTTP/1.1 %d No\r\ncontent-length: 0\r\n\r\n" % self.upgrade)
            return
        websocket = WSConnection(ConnectionType.SERVER)

        async def send(frame: Frame | str) -> None:
            await stream.send_all(websocket.send(TextMessage(_json(frame))))

        text = ""
        while True:
            websocket.receive_data(data)
            for event in websocket.events():
                if isinstance(event, Request):
                    await stream.send_all(websocket.send(AcceptConnection()))
                elif isinstance(event, Ping | CloseConnection):
                    await stream.send_all(websocket.send(event.response()))
                elif isinstance(event, Message):
                    text += str(event.data)
                    if event.message_finished:
                        body, text = parse(text), ""
                        await self._answer({**body, "over": "websocket"}, send, stream)
            data = bytes(await stream.receive_some(READ_BYTES))
            if not data:
                return

    async def _posted(self, stream: trio.SocketStream, data: bytes) -> None:
        head, _, rest = data.partition(b"\r\n\r\n")
        if not head.startswith(b"POST"):
            body = encode({"object": "list", "data": [{"id": "the-only-one"}]})
            await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            return
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        while len(rest) < int(lines[b"content-length"]):
            rest += await stream.receive_some(READ_BYTES)
        begun = False

        async def send(frame: Frame | str) -> None:
            nonlocal begun
            if isinstance(frame, Mapping) and frame["type"] == "error" and not begun:
                body = encode(frame)
                answer = b"HTTP/1.1 %d No\r\nretry-after: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
                later = str(frame.get("headers", {}).get("retry-after", "")).encode()
                await stream.send_all(answer % (frame["status"], later, len(body), body))
                raise Dropped
            if isinstance(frame, Mapping) and not self.streams:
                body = encode(frame["response"])
                head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                await stream.send_all(head % (len(body), body))
                return
            if not begun:
                begun = True
                await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            await stream.send_all(b"data: %b\r\n\r\n" % _json(frame).encode())

        await self._answer({**parse(rest), "over": "http"}, send, stream)

    async def _answer(self, body: dict[str, Any], send: Any, stream: trio.SocketStream) -> None:
        self.asked.append(body)
        script = self.scripts.pop(0) if self.scripts else [error("no_more_scripts")]
        async with trio.open_nursery() as nursery:
            if any(step is HANG for step in script):
                nursery.start_soon(self._watch, stream, nursery.cancel_scope)
            for step in script:
                if isinstance(step, Dropped):
                    raise Dropped
                if isinstance(step, Delay):
                    await trio.sleep(step.seconds)
                else:
                    await send(step)
            nursery.cancel_scope.cancel()

    async def _watch(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        """Notice that the client has gone."""
        try:
            gone = not await stream.receive_some(READ_BYTES)
        except trio.BrokenResourceError:
            gone = True
        if gone:
            self.dropped += 1
            scope.cancel()


def _json(frame: Frame | str) -> str:
    return frame if isinstance(frame, str) else encode(frame).decode()


@asynccontextmanager
async def fake_responses(*scripts: Iterable[Step], upgrade: int = 101, streams: bool = True) -> AsyncIterator[FakeResponses]:
    """The server, on a free port of the loopback, while the context lasts."""
    fake = FakeResponses(list(scripts), upgrade, streams)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        fake.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
        await nursery.start(trio.serve_listeners, fake.serve, [listener])
        yield fake
        nursery.cancel_scope.cancel()
