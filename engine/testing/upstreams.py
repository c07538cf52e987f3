"""A server of models that sends the bytes it is told to: for tests of what reads them. In memory, or on a socket.

    upstream = FakeUpstream(Reply(chunk(content="Hi"), chunk(finish_reason="stop"), DONE))
    model = ChatModel(Upstream(url="http://memory/v1", model="m", transport=upstream))

It answers one request after the other with its ``replies``, the last of them again and again; ``requests`` has what it was
asked. ``GET …/models`` lists one model, ``m``. ``listening`` serves the same over TCP.
"""

import socket
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import httpx2
import trio
from attrs import frozen

from protocol.codec import encode, parse

from .models import Delay

DONE: Final = b"data: [DONE]\n\n"
MODEL: Final = "m"
"""The one that it lists."""
RECEIVE_BYTES: Final = 64 * 1024


@frozen
class Cut:
    """The connection breaks."""


@frozen
class Refused:
    """In place of a reply: there is no connection. On a socket it is closed without an answer."""


Step = bytes | Delay | trio.Event | Cut


class Reply:
    """An answer: what is sent, step by step, and its head. Each ``bytes`` is sent by itself."""

    def __init__(self, *steps: Step, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.steps = steps
        self.status = status
        self.headers = {"content-type": "text/event-stream", **(headers or {})}


def event(payload: Mapping[str, Any]) -> bytes:
    """An event as servers mostly write it."""
    return b"data: " + encode(payload) + b"\n\n"


def chunk(*, finish_reason: str | None = None, usage: Mapping[str, Any] | None = None, **delta: Any) -> bytes:
    """An event with a chunk of a chat's answer."""
    payload: dict[str, Any] = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}
    payload["choices"][0]["finish_reason"] = finish_reason
    return event(payload if usage is None else {**payload, "usage": usage})


def usage(prompt: int, completion: int, **more: Any) -> bytes:
    """An event with the usage alone."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}
    return event({"object": "chat.completion.chunk", "choices": [], "usage": counts})


class FakeUpstream(httpx2.AsyncBaseTransport):
    """Answers with ``replies``. As a transport of httpx2 it needs no network."""

    def __init__(self, *replies: Reply | Refused) -> None:
        self.replies: list[Reply | Refused] = list(replies)
        self.requests: list[dict[str, Any]] = []
        """The bodies of what it was asked, but for lists of models."""
        self.headers: list[Mapping[str, str]] = []
        """The headers of the same requests, with small letters."""
        self.connections = 0
        """How many there were, on sockets."""
        self.dropped = 0
        """Answers whose client went away before their end."""

    def _next(self, method: str, body: bytes, headers: Mapping[str, str]) -> Reply | Refused:
        if method == "GET":
            listed = encode({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
            return Reply(listed, headers={"content-type": "application/json"})
        self.requests.append(parse(body))
        self.headers.append(headers)
        return self.replies[min(len(self.requests), len(self.replies)) - 1]

    # ---- in memory

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """As a transport does."""
        await trio.lowlevel.checkpoint()
        body = await request.aread()
        reply = self._next(request.method, body, {name.lower(): value for name, value in request.headers.items()})
        if isinstance(reply, Refused):
            raise httpx2.ConnectError("connection refused", request=request)
        return httpx2.Response(reply.status, headers=reply.headers, stream=_Steps(self, reply.steps))

    # ---- on a socket

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Serve on loopback while the context lasts; gives the base of its URLs."""
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(partial(trio.serve_tcp, self._serve, 0, host="127.0.0.1"))
            yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"
            nursery.cancel_scope.cancel()

    async def _serve(self, stream: trio.SocketStream) -> None:
        rest = b""
        self.connections += 1
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async with stream:
                while request := await _read_request(stream, rest):
                    method, headers, body, rest = request
                    reply = self._next(method, body, headers)
                    if isinstance(reply, Refused) or not await self._answer(stream, reply):
                        return

    async def _answer(self, stream: trio.SocketStream, reply: Reply) -> bool:
        """Whether the connection lives on."""
        whole = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, stream, nursery.cancel_scope)
            await stream.send_all(_head(reply))
            for step in reply.steps:
                if isinstance(step, bytes):
                    await stream.send_all(b"%x\r\n%s\r\n" % (len(step), step) if step else b"")
                elif isinstance(step, Cut):
                    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
                else:
                    await _wait(step)
            else:
                await stream.send_all(b"0\r\n\r\n")
                whole = True
            nursery.cancel_scope.cancel()
        return whole

    async def _watch(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        """A client that asks one thing after the other says nothing while it is answered, or goes away."""
        with suppress(trio.BrokenResourceError):
            await trio.lowlevel.wait_readable(stream.socket)
            self.dropped += 1
        scope.cancel()


class _Steps(httpx2.AsyncByteStream):
    def __init__(self, upstream: FakeUpstream, steps: Sequence[Step]) -> None:
        self._upstream = upstream
        self._steps = iter(steps)
        self._over = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for step in self._steps:
            if isinstance(step, bytes):
                await trio.lowlevel.checkpoint()
                yield step
            elif isinstance(step, Cut):
                self._over = True
                raise httpx2.RemoteProtocolError("peer closed connection without sending complete message body")
            else:
                await _wait(step)
        self._over = True

    async def aclose(self) -> None:
        if not self._over:
            self._over = True
            self._upstream.dropped += 1


async def _wait(step: Delay | trio.Event) -> None:
    if isinstance(step, trio.Event):
        await step.wait()
    else:
        await trio.sleep(step.seconds)


def _head(reply: Reply) -> bytes:
    headers = {**reply.headers, "transfer-encoding": "chunked"}
    lines = [f"HTTP/1.1 {reply.status} So", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode()


async def _read_request(stream: trio.SocketStream, rest: bytes) -> tuple[str, dict[str, str], bytes, bytes] | None:
    """A request's method, headers and body, and what stands behind it; None if the client goes away."""
    while b"\r\n\r\n" not in rest:
        data = await stream.receive_some(RECEIVE_BYTES)
        if not data:
            return None
        rest += data
    head, _, rest = rest.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    size = int(headers.get("content-length", "0"))
    while len(rest) < size:
        data = await stream.receive_some(RECEIVE_BYTES)
        if not data:
            return None
        rest += data
    return first.split()[0], headers, rest[:size], rest[size:]
