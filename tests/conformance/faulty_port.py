"""The faulty server on a port of loopback, for whatever speaks to servers by their URL:

    python -m tests.conformance.faulty_port "a delta is lost" --port 8080
    sostenuto conform http://127.0.0.1:8080

A relay: each connection is carried to a server in memory, whose answers are changed on their way (``faulty``). One request a
connection; it is no server for daily use.
"""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import h11
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from protocol.conformance.transport import Closed, Refused

from .faulty import FAULTS, FaultyExchange, FaultyServer, FaultySocket, faulty_server

PREFIX = "/v1"
HOP_BY_HOP = ("connection", "content-length", "transfer-encoding", "keep-alive")
CHUNK = 65_536


@asynccontextmanager
async def faulty_port(name: str | None = None, port: int = 0) -> AsyncIterator[int]:
    """A server with that fault on ``port`` (0: any); gives the port. It ends with the block, and so do its connections."""
    async with faulty_server(name, network=True) as server, trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, partial(_carry, server), port, host="127.0.0.1")
        listeners: list[trio.SocketListener] = await nursery.start(serve)
        yield int(listeners[0].socket.getsockname()[1])
        nursery.cancel_scope.cancel()


async def _carry(server: FaultyServer, stream: trio.SocketStream) -> None:
    """One connection, to its end. Clients may be gone at any time."""
    try:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                data = await stream.receive_some(CHUNK)
                if not data:
                    return
                head += data
            carry = _carry_websocket if b"upgrade: websocket" in head.lower() else _carry_request
            await carry(server, stream, head)
    except* (trio.BrokenResourceError, trio.ClosedResourceError, Closed, h11.RemoteProtocolError, RemoteProtocolError):
        pass


# ---- HTTP


async def _carry_request(server: FaultyServer, stream: trio.SocketStream, data: bytes) -> None:
    http = h11.Connection(h11.SERVER)
    http.receive_data(data)
    request, body = None, b""
    while type(event := http.next_event()) is not h11.EndOfMessage:
        if event is h11.NEED_DATA:
            http.receive_data(await stream.receive_some(CHUNK))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
    assert request is not None
    headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
    path, kinds = request.target.decode().removeprefix(PREFIX), [("content-type", headers.get("content-type", ""))]
    key = _key(headers.get("authorization"))
    exchange = await server.request(request.method.decode(), path, body or None, key=key, headers=kinds if body else ())
    try:
        await _answer(http, stream, exchange)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await exchange.drop()


async def _answer(http: h11.Connection, stream: trio.SocketStream, exchange: FaultyExchange) -> None:
    kept = [(name, value) for name, value in exchange.headers.items() if name not in HOP_BY_HOP]
    body = None if exchange.is_stream else await exchange.read()
    await stream.send_all(http.send(h11.Response(status_code=exchange.status, headers=[*kept, ("connection", "close")])) or b"")
    if body is not None:
        await stream.send_all(http.send(h11.Data(data=body)) or b"")
    else:
        while (event := await exchange.next_event()) is not None:
            line = f"event: {event.event}\n" if event.event else ""
            await stream.send_all(http.send(h11.Data(data=f"{line}data: {event.data}\n\n".encode())) or b"")
    await stream.send_all(http.send(h11.EndOfMessage()) or b"")


# ---- WebSockets


class _Frames:
    """The relay's side of a client's WebSocket."""

    def __init__(self, stream: trio.SocketStream, head: bytes) -> None:
        self.websocket = WSConnection(ConnectionType.SERVER)
        self.websocket.receive_data(head)
        self._stream = stream
        self._turn = trio.Lock()

    async def send(self, event: Event) -> None:
        async with self._turn:
            try:
                data = self.websocket.send(event)
            except LocalProtocolError:
                raise Closed from None  # the client has said that it closes
            await self._stream.send_all(data)

    async def hear(self) -> list[Event]:
        data = await self._stream.receive_some(CHUNK)
        self.websocket.receive_data(data or None)
        return list(self.websocket.events())


async def _carry_websocket(server: FaultyServer, stream: trio.SocketStream, head: bytes) -> None:
    client = _Frames(stream, head)
    asked = next(event for event in client.websocket.events() if isinstance(event, Request))
    headers = {name.decode().lower(): value.decode() for name, value in asked.extra_headers}
    try:
        socket = await server.connect(key=_key(headers.get("authorization")), beta=headers.get("openai-beta"))
    except Refused as refused:
        await client.send(RejectConnection(status_code=refused.status))
        return
    await client.send(AcceptConnection())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_carry_down, client, socket)
        await _carry_up(client, socket)
        nursery.cancel_scope.cancel()


async def _carry_down(client: _Frames, socket: FaultySocket) -> None:
    try:
        while True:
            await client.send(TextMessage(data=await socket.receive_text()))
    except Closed:
        with suppress(Closed):
            await client.send(CloseConnection(code=1000))


async def _carry_up(client: _Frames, socket: FaultySocket) -> None:
    pieces: list[str] = []
    try:
        while True:
            for event in await client.hear():
                if isinstance(event, TextMessage):
                    pieces.append(event.data)
                    if event.message_finished:
                        await socket.send("".join(pieces))
                        pieces.clear()
                elif isinstance(event, BytesMessage):
                    await socket.send(bytes(event.data))
                elif isinstance(event, Ping):
                    await client.send(event.response())
                elif isinstance(event, CloseConnection):
                    await client.send(event.response())
                    return
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await socket.drop()


def _key(authorization: str | None) -> str | None:
    return authorization.removeprefix("Bearer ") if authorization else None


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description="A server with a fault.", epilog="Faults: " + "; ".join(FAULTS))
    parser.add_argument("fault", nargs="?", choices=list(FAULTS), metavar="FAULT")
    parser.add_argument("--port", type=int, default=8080)
    given = parser.parse_args()

    async def serve() -> None:
        async with faulty_port(given.fault, given.port) as port:
            print(f"listening on http://127.0.0.1:{port}/v1", flush=True)  # noqa: T201
            await trio.sleep_forever()

    with suppress(KeyboardInterrupt):
        trio.run(serve)


if __name__ == "__main__":
    main()
