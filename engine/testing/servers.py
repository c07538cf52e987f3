"""A whole server in this process, in virtual time: the same code as over sockets, with the network and the clock replaced.

    async def main():
        async with memory_server(models=[FakeModel(say("hi"), stop())]) as server:
            socket = await server.connect()
            await socket.send({"type": "response.create", "model": "fake", "input": "hello"})
            frames = await socket.until_end()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

``memory_server`` has real WebSockets over ``pipes``; ``direct_server`` has none, a ``Session`` is fed at once, which is faster
by some times. Both have a seeded source of ids, and both raise, when they close, the bugs that the engine reported.
"""

import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio
from attrs import define, field
from protocol.conformance.transport import Closed
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection, wrap_client_stream

from protocol.codec import encode, parse, to_wire
from protocol.limits import HARD_FRAME_BYTES
from tools.spec import HostedTool

from ..config import Config
from ..core import Engine
from ..ledger import MemoryLedger
from ..models.base import Model
from ..models.scripted import ScriptedModel
from ..outbox import Outbox
from ..policy import Policy
from ..server import PATH, SHAPES, Server, tenant_of
from ..services import Services
from ..session import Session
from ..store import MemoryStore
from .pipes import CAPACITY, PipeStream, pipe_pair

TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})
Message = Mapping[str, Any] | str | bytes


def as_frame(message: Message) -> str | bytes:
    """A frame: objects become JSON text, text and bytes stay what they are."""
    return message if isinstance(message, str | bytes) else encode(message).decode()


class _Frames:
    """What all test sockets can do beside sending and receiving."""

    async def receive_text(self) -> str:
        raise NotImplementedError

    async def receive(self) -> dict[str, Any]:
        """The next frame; raises ``Closed``."""
        value = parse(await self.receive_text())
        assert isinstance(value, dict)
        return value

    async def until(self, *types: str) -> list[dict[str, Any]]:
        """Frames up to the first of one of ``types``, that one too."""
        frames = [await self.receive()]
        while frames[-1]["type"] not in types:
            frames.append(await self.receive())
        return frames

    async def until_end(self) -> list[dict[str, Any]]:
        """Frames up to the terminal event, that one too."""
        return await self.until(*TERMINAL)


class MemorySocket(_Frames):
    """A client's WebSocket on a connection in memory. It reads only when asked to."""

    def __init__(self, connection: WebSocketConnection, stream: PipeStream) -> None:
        self._connection = connection
        self.stream = stream

    @property
    def close_code(self) -> int | None:
        """With which code the WebSocket was closed, once it is."""
        reason = self._connection.closed
        return reason.code if reason else None

    async def send(self, message: Message) -> None:
        """Send a frame; raises ``Closed``."""
        try:
            await self._connection.send_message(as_frame(message))
        except ConnectionClosed:
            raise Closed from None

    async def receive_text(self) -> str:
        """The next text frame; raises ``Closed``."""
        try:
            message: str = await self._connection.get_message()
        except ConnectionClosed:
            raise Closed from None
        return message

    async def drop(self) -> None:
        """Reset the connection."""
        self.cut()
        await trio.lowlevel.checkpoint()

    def cut(self) -> None:
        """As ``drop``, from where one cannot wait."""
        self.stream.reset()

    async def aclose(self) -> None:
        """Close politely, in two seconds at most."""
        with trio.move_on_after(2):
            await self._connection.aclose()
        self.stream.close()


class _ListWire:
    """A wire that holds frames until somebody takes them."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.waiting = 0
        self.closed = False
        self.lot = trio.lowlevel.ParkingLot()

    def put(self, frame: bytes) -> None:
        if not self.closed:
            self.frames.append(frame)
            self.waiting += len(frame)
            self.lot.unpark_all()

    def flush(self) -> None:
        """Nothing: who takes the frames was woken when they were put."""


class DirectSocket(_Frames):
    """A client that hands its frames to a ``Session`` itself."""

    def __init__(self, engine: Engine, tenant: str, limit: int, **options: Any) -> None:
        self._wire = _ListWire()
        self._outbox = Outbox(self._wire, limit)
        self._session = Session(engine, tenant, self._outbox, **options)

    async def send(self, message: Message) -> None:
        """Send a frame; raises ``Closed``."""
        if self._wire.closed:
            raise Closed
        self._session.handle(as_frame(message))
        await trio.lowlevel.checkpoint()

    async def receive_text(self) -> str:
        """The next frame; raises ``Closed``."""
        await trio.lowlevel.checkpoint()
        while not self._wire.frames:
            if self._wire.closed:
                raise Closed
            await self._wire.lot.park()
        frame = self._wire.frames.pop(0)
        self._wire.waiting -= len(frame)
        self._outbox.drained()
        return frame.decode()

    def cut(self) -> None:
        """The connection is gone."""
        if not self._wire.closed:
            self._wire.closed = True
            self._wire.frames.clear()
            self._wire.lot.unpark_all()
            self._outbox.close()
            self._session.close()

    async def drop(self) -> None:
        """The connection is gone."""
        self.cut()
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """The same: there is nothing to be polite to."""
        await self.drop()


@define(eq=False)
class TestBooks:
    """What happened inside a server under test, and what is left in it."""

    __test__ = False

    services: Services
    bugs: list[BaseException] = field(factory=list)

    @property
    def ledger(self) -> MemoryLedger:
        """Its rows."""
        assert isinstance(self.services.ledger, MemoryLedger)
        return self.services.ledger

    @property
    def store(self) -> MemoryStore:
        """Its ended Responses."""
        assert isinstance(self.services.store, MemoryStore)
        return self.services.store

    def rows(self, response_id: str) -> Sequence[dict[str, Any]]:
        """The ledger's rows of a Response."""
        return [row.as_dict() for row in self.ledger.rows if row.response_id == response_id]

    def context(self, response_id: str) -> Sequence[dict[str, Any]] | None:
        """The stored context of an ended Response."""
        for stored in self.store.all():
            if stored.response.id == response_id:
                return [to_wire(item) for item in stored.items]
        return None

    def raise_bugs(self) -> None:
        """Raise what the engine reported as bugs of its own."""
        if self.bugs:
            bugs, self.bugs = self.bugs, []
            raise BaseExceptionGroup("bugs that the engine reported", bugs)


def make_services(
    *,
    models: Iterable[Model] = (),
    config: Config | None = None,
    hosted: Mapping[str, HostedTool] | None = None,
    policy: Policy | None = None,
    seed: int = 0,
) -> Services:
    """Services with books in memory, the clock of the loop, and ids that depend on ``seed`` alone."""
    models = tuple(models) or (ScriptedModel(),)
    return Services(
        config=config or Config(),
        models={model.name: model for model in models},
        hosted=hosted or {},
        policy=policy or Policy.empty(),
        wall=lambda: 1_750_000_000 + trio.current_time(),
        entropy=random.Random(seed).randbytes,
    )


class _TestServer:
    """What both servers have. ``services`` may be changed before the first connection."""

    def __init__(self, services: Services, engine: Engine) -> None:
        self.services = services
        self.engine = engine
        self.books = TestBooks(services)
        services.on_bug = self.books.bugs.append

    async def settle(self) -> None:
        """Return when all tasks wait; raises the engine's bugs."""
        await trio.testing.wait_all_tasks_blocked()
        self.books.raise_bugs()

    def leftovers(self) -> list[str]:
        """Live Responses, and tasks of the engine beside its pulse."""
        nursery = self.engine._nursery
        tasks = [] if nursery is None else [task.name for task in nursery.child_tasks]
        return [*self.engine.live, *(f"starting {one.id}" for one in self.engine._starting), *tasks]

    def rows(self, response_id: str) -> Sequence[dict[str, Any]]:
        """The ledger's rows of a Response."""
        return self.books.rows(response_id)

    def context(self, response_id: str) -> Sequence[dict[str, Any]] | None:
        """The stored context of an ended Response."""
        return self.books.context(response_id)


class MemoryServer(_TestServer):
    """A server whose network is in memory."""

    def __init__(self, services: Services, nursery: trio.Nursery) -> None:
        self.server = Server(services)
        super().__init__(services, self.server.engine)
        self.stopped = trio.Event()
        """Set when ``Server.run`` has returned."""
        self._nursery = nursery

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve until ``server.stop`` is called."""
        await self.server.run((), task_status=task_status)
        self.stopped.set()

    async def connect(self, *, key: str | None = None, beta: str | None = None, capacity: int = CAPACITY) -> MemorySocket:
        """A WebSocket; raises ``ConnectionRejected``. ``capacity`` is what each direction of its network buffers."""
        headers = [(b"authorization", f"Bearer {key}".encode())] if key is not None else []
        headers += [(b"openai-beta", beta.encode())] if beta is not None else []
        stream = self.connect_raw(capacity)
        refused: list[ConnectionRejected] = []

        async def live(*, task_status: trio.TaskStatus[WebSocketConnection | None]) -> None:
            try:
                async with trio.open_nursery() as nursery:
                    connection = await wrap_client_stream(
                        nursery,
                        stream,
                        "memory",
                        PATH,
                        extra_headers=headers,
                        max_message_size=2 * HARD_FRAME_BYTES,
                        receive_buffer_size=65536,
                    )
                    task_status.started(connection)
            except* ConnectionRejected as group:
                refused.extend(one for one in group.exceptions if isinstance(one, ConnectionRejected))
                task_status.started(None)

        connection = await self._nursery.start(live)
        if connection is None:
            raise refused[0]
        return MemorySocket(connection, stream)

    def connect_raw(self, capacity: int = CAPACITY) -> PipeStream:
        """A connection on which nothing was said yet."""
        ours, theirs = pipe_pair(capacity)
        self._nursery.start_soon(self.server.serve, theirs)
        return ours


class DirectServer(_TestServer):
    """An engine without network."""

    async def connect(self, *, key: str | None = None, beta: str | None = None, limit: int | None = None) -> DirectSocket:
        """A socket. Of its Responses ``limit`` bytes wait for it to be read, if given, else the config's."""
        config = self.services.config
        tenant = tenant_of(f"Bearer {key}" if key is not None else None, config)
        shape = SHAPES.get(beta) if beta else None
        return DirectSocket(self.engine, tenant, limit or config.outbox_bytes, continuation=shape)


@asynccontextmanager
async def memory_server(services: Services | None = None, **options: Any) -> AsyncIterator[MemoryServer]:
    """A server in memory; ``options`` are those of ``make_services``. At the end it stops gracefully, and raises its bugs."""
    with _unwrapped():
        async with trio.open_nursery() as nursery:
            server = MemoryServer(services or make_services(**options), nursery)
            await nursery.start(server.run)
            yield server
            server.server.stop()
            await server.stopped.wait()
            nursery.cancel_scope.cancel()
    server.books.raise_bugs()


@asynccontextmanager
async def direct_server(services: Services | None = None, **options: Any) -> AsyncIterator[DirectServer]:
    """As ``memory_server``, without a network."""
    services = services or make_services(**options)
    with _unwrapped():
        async with trio.open_nursery() as nursery:
            server = DirectServer(services, Engine(services))
            await nursery.start(server.engine.run)
            yield server
            await server.engine.shutdown()
            nursery.cancel_scope.cancel()
    server.books.raise_bugs()


@contextmanager
def _unwrapped() -> Iterator[None]:
    """A test's one exception comes out as it went in, not in a nursery's group."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None
