"""A server on real sockets, and a WebSocket client that sends what no library would."""

import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import CloseConnection, Message, Pong, Request, TextMessage

from engine import Config, Server, Services, listening
from engine.models import load_model

from .http_support import fail_loudly

CREATE = {"openai_beta": "responses_websockets=2026-02-06"}
"""Headers that ask for the create shape."""


@asynccontextmanager
async def serving(**config: Any) -> AsyncIterator[tuple[Server, int]]:
    services = Services(
        models={"scripted": load_model("scripted")},
        config=Config(**config),
        on_bug=fail_loudly,
        entropy=Random(1).randbytes,
        wall=lambda: 1_000_000.0,
    )
    server = Server(services)
    async with listening(server) as port:
        with trio.fail_after(60):
            yield server, port


class RawClient:
    """A WebSocket client that can send what no library would."""

    def __init__(self, stream: trio.abc.Stream, port: int) -> None:
        self.stream = stream
        self.port = port
        self.ws = WSConnection(ConnectionType.CLIENT)
        self.frames: deque[bytes] = deque()
        self.closed: int | None = None
        self.pongs = 0
        self._text = ""

    async def handshake(self, path: str = "/v1/responses", **headers: str) -> None:
        extra = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        await self.send(Request(host=f"127.0.0.1:{self.port}", target=path, extra_headers=extra))
        await self._read()

    async def send(self, event: Any) -> None:
        await self.stream.send_all(self.ws.send(event))

    async def say(self, frame: dict[str, Any]) -> None:
        await self.send(TextMessage(json.dumps(frame)))

    async def create(self, *steps: dict[str, Any], model: str = "scripted", pace: float = 0, **fields: Any) -> None:
        program: dict[str, Any] = {"program": list(steps)} | ({"tokens_per_second": pace} if pace else {})
        await self.say({"type": "response.create", "model": model, "input": json.dumps(program), **fields})

    async def append(self, call_id: str, output: Any = "result", **fields: Any) -> None:
        item = {"type": "function_call_output", "call_id": call_id, "output": output}
        await self.say({"type": "response.append", "input": [item], **fields})

    async def frame(self) -> dict[str, Any]:
        """The next frame; ``closed`` ones raise."""
        while not self.frames:
            if self.closed is not None:
                raise EOFError(f"closed with {self.closed}")
            await self._read()
        parsed: dict[str, Any] = json.loads(self.frames.popleft())
        return parsed

    async def until(self, kind: str, stream_id: str | None = None) -> dict[str, Any]:
        while True:
            frame = await self.frame()
            if frame["type"] == kind and frame.get("stream_id") == stream_id:
                return frame

    async def until_closed(self) -> int:
        while self.closed is None:
            await self._read()
        return self.closed

    async def _read(self) -> None:
        data = await self.stream.receive_some(65536)
        if not data:
            self.closed = self.closed or 1006
            return
        self.ws.receive_data(bytes(data))
        for event in self.ws.events():
            self._take(event)

    def _take(self, event: Any) -> None:
        if isinstance(event, Message):
            self._text += str(event.data)
            if event.message_finished:
                self.frames.append(self._text.encode())
                self._text = ""
        elif isinstance(event, CloseConnection):
            self.closed = event.code
        elif isinstance(event, Pong):
            self.pongs += 1


@asynccontextmanager
async def client(port: int, **headers: str) -> AsyncIterator[RawClient]:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        raw = RawClient(stream, port)
        await raw.handshake(**headers)
        yield raw
