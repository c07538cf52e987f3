"""A server on real sockets, and clients of its HTTP side: whole answers, streams of events, and bytes that no library sends."""

import json
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import h11
import httpx2
import trio
from attrs import define

from engine import Config, Server, Services, listening
from engine.database import Database
from engine.models import load_model
from engine.models.base import Model
from engine.policy import Policy

CALL = {"call": {"name": "f", "arguments": {}}}
NEVER = {"say": {"tokens": 100_000}}
"""With a pace, a Response that goes on for longer than any test."""
Json = dict[str, Any]


def fail_loudly(error: BaseException) -> None:
    raise error


def program(*steps: Json, pace: float = 0) -> str:
    return json.dumps({"program": list(steps)} | ({"tokens_per_second": pace} if pace else {}))


def body(*steps: Json, pace: float = 0, **fields: Any) -> Json:
    """A create for the scripted model."""
    return {"model": "scripted", "input": program(*steps, pace=pace), **fields}


def output(call_id: str, text: str = "result") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def said(response: Json) -> str:
    """The text of a Response's last message."""
    text: str = response["output"][-1]["content"][0]["text"]
    return text


@define
class Served:
    server: Server
    port: int

    def client(self, key: str | None = None) -> httpx2.AsyncClient:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return httpx2.AsyncClient(base_url=self.url("/v1/"), headers=headers, timeout=30, trust_env=False)

    async def raw(self, *parts: bytes) -> bytes:
        """Send ``parts``, with a breath between them, and read to the end."""
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            for part in parts:
                await stream.send_all(part)
                await trio.sleep(0.01)
            await stream.send_eof()
            return b"".join([bytes(chunk) async for chunk in stream])

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@asynccontextmanager
async def served(
    *models: Model,
    data: Path | None = None,
    policy: Policy | None = None,
    on_bug: Callable[[BaseException], None] = fail_loudly,
    seed: int = 1,
    **config: Any,
) -> AsyncIterator[Served]:
    """A server; with ``data``, its books are in that SQLite file."""
    database = Database(data) if data else None
    books: Json = {"ledger": database, "store": database} if database else {}
    services = Services(
        models={model.name: model for model in (load_model("scripted"), *models)},
        config=Config(**{"grace_seconds": 0.1, **config}),
        policy=policy or Policy.empty(),
        on_bug=on_bug,
        entropy=Random(seed).randbytes,
        wall=lambda: 1_000_000.0,
        **books,
    )
    server = Server(services)
    try:
        async with listening(server) as port:
            with trio.fail_after(60):
                yield Served(server, port)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None
    finally:
        if database is not None:
            database.close()


class Events:
    """A stream of server-sent events, read one by one. ``texts`` are those that were read, byte for byte.

    It is not httpx2's: what is left in the midst of a stream there is left to the garbage collector.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._parser = h11.Connection(h11.CLIENT)
        self._text = b""
        self._over = False
        self.headers: dict[str, str] = {}
        self.texts: list[str] = []
        self.done = False
        """``[DONE]`` was read."""

    async def ask(self, method: str, target: str, headers: dict[str, str], content: bytes) -> None:
        fields = [*headers.items(), ("host", "x"), ("content-length", str(len(content)))]
        data = self._parser.send(h11.Request(method=method, target=target, headers=fields)) or b""
        data += self._parser.send(h11.Data(data=content)) or b""
        await self._stream.send_all(data + (self._parser.send(h11.EndOfMessage()) or b""))
        answer = await self._next()
        assert isinstance(answer, h11.Response)
        self.headers = {name.decode(): value.decode() for name, value in answer.headers}
        if answer.status_code != 200:
            while not self._over:
                await self._more()
            raise AssertionError(f"{answer.status_code}: {self._text.decode()}")
        assert self.headers["content-type"] == "text/event-stream; charset=utf-8"

    async def next(self) -> Json | None:
        """The next event; None for the stream's end, which is ``[DONE]`` and then nothing."""
        while b"\n\n" not in self._text and not self._over:
            await self._more()
        if not self._text:
            return None
        event, _, self._text = self._text.partition(b"\n\n")
        assert not self.done
        if event == b"data: [DONE]":
            self.done = True
            return await self.next()
        kind, data = event.decode().split("\n")
        self.texts.append(data.removeprefix("data: "))
        frame: Json = json.loads(self.texts[-1])
        assert kind == f"event: {frame['type']}"
        return frame

    async def until(self, kind: str) -> Json:
        while (frame := await self.next()) is not None:
            if frame["type"] == kind:
                return frame
        raise EOFError(kind)

    async def rest(self) -> list[Json]:
        frames = []
        while (frame := await self.next()) is not None:
            frames.append(frame)
        return frames

    async def _more(self) -> None:
        event = await self._next()
        if isinstance(event, h11.Data):
            self._text += bytes(event.data)
        else:
            self._over = True

    async def _next(self) -> Any:
        while (event := self._parser.next_event()) is h11.NEED_DATA:
            self._parser.receive_data(await self._stream.receive_some())
        return event


async def reset(stream: trio.SocketStream) -> None:
    """Drop the connection, so that the server hears of it at once."""
    stream.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, struct.pack("ii", 1, 0))
    await stream.aclose()


def request_bytes(method: str, path: str, content: Any = None, *, key: str | None = None) -> bytes:
    """A request with a JSON body."""
    data = json.dumps(content).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    return (head + (f"Authorization: Bearer {key}\r\n" if key else "") + "\r\n").encode() + data


@asynccontextmanager
async def events(
    http: httpx2.AsyncClient, method: str, path: str, *, params: Json | None = None, json: Any = None
) -> AsyncIterator[Events]:
    """A stream of events on a connection of its own, which is closed at the end, whatever was read."""
    request = http.build_request(method, path, params=params, json=json)
    kept = {name: value for name, value in request.headers.items() if name in ("authorization", "content-type")}
    async with await trio.open_tcp_stream("127.0.0.1", request.url.port or 0) as stream:
        found = Events(stream)
        await found.ask(method, request.url.raw_path.decode(), kept, request.content)
        yield found


async def get(http: httpx2.AsyncClient, path: str, **query: Any) -> Json:
    return ok(await http.get(path, params=query))


async def post(http: httpx2.AsyncClient, path: str, content: Any = None) -> Json:
    return ok(await http.post(path, json=content))


def ok(answer: httpx2.Response) -> Json:
    assert answer.status_code == 200, answer.text
    parsed: Json = answer.json()
    return parsed


def refused(answer: httpx2.Response) -> tuple[int, str]:
    """Status and code of an error, whose form is checked."""
    error = answer.json()["error"]
    assert {"type", "code", "message", "param", "work"} == set(error)
    return answer.status_code, error["code"]
