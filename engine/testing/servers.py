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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

import trio
import trio.testing
from attrs import define, field

from protocol.codec import to_wire
from protocol.conformance.streams import ClientSocket, HttpExchange, Line, StreamTransport
from tools.spec import HostedTool

from ..config import Config
from ..core import Engine
from ..ledger import MemoryLedger
from ..models.base import Model
from ..models.scripted import ScriptedModel
from ..policy import Policy
from ..server import SHAPES, Server, tenant_of
from ..services import Services
from ..store import MemoryStore
from .clients import DirectSocket
from .pipes import CAPACITY, PipeStream, pipe_pair


@define(eq=False)
class TestBooks:
    """What happened inside a server under test, and what is left in it."""

    __test__ = False

    services: Services
    engine: Engine
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
        """The stored context of an ended Response, with all that came before it; None if that is not all there."""
        by_id = {stored.response.id: stored for stored in self.store.all()}
        items: list[dict[str, Any]] = []
        wanted: str | None = response_id
        while wanted is not None:
            if wanted not in by_id:
                return None
            items[:0] = [to_wire(item) for item in by_id[wanted].items]
            wanted = by_id[wanted].previous_id
        return items

    def leftovers(self) -> list[str]:
        """Live Responses, and tasks of the engine."""
        nursery = self.engine._nursery
        tasks = [] if nursery is None else [task.name for task in nursery.child_tasks]
        return [*self.engine.live, *(f"starting {one.id}" for one in self.engine._starting), *tasks]

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

    exact = True

    def __init__(self, services: Services, engine: Engine) -> None:
        self.services = services
        self.engine = engine
        self.books = TestBooks(services, engine)
        services.on_bug = self.books.bugs.append

    async def settle(self) -> None:
        """Return when all tasks wait; raises the engine's bugs."""
        await trio.testing.wait_all_tasks_blocked()
        self.books.raise_bugs()

    def leftovers(self) -> list[str]:
        """Live Responses, and tasks of the engine."""
        return self.books.leftovers()

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
        self.capacity = CAPACITY
        """Of connections, where they don't say."""
        self._nursery = nursery

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until ``server.stop`` is called."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.server.run, ())
            task_status.started()
        self.stopped.set()

    async def connect(self, *, key: str | None = None, beta: str | None = None, capacity: int | None = None) -> ClientSocket:
        """A WebSocket; raises ``Refused`` and ``OSError``. ``capacity`` is what each direction of its network buffers."""
        return await self._transport(capacity).connect(key=key, beta=beta)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        key: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> HttpExchange:
        """Send a request, and read the head of its answer; ``path`` stands behind ``/v1``. Raises ``Closed``."""
        return await self._transport().request(method, path, body, key=key, headers=headers)

    def connect_raw(self, capacity: int | None = None) -> PipeStream:
        """A connection on which nothing was said yet."""
        ours, theirs = pipe_pair(capacity or self.capacity)
        self._nursery.start_soon(self.server.serve, theirs)
        return ours

    def _transport(self, capacity: int | None = None) -> StreamTransport:
        async def dial() -> Line:
            await trio.lowlevel.checkpoint()
            stream = self.connect_raw(capacity)
            return Line(stream, stream.reset)

        return StreamTransport(dial, self._nursery)


class DirectServer(_TestServer):
    """An engine without network."""

    async def connect(self, *, key: str | None = None, beta: str | None = None, limit: int | None = None) -> DirectSocket:
        """A socket. Of its Responses ``limit`` bytes wait for it to be read, if given, else the config's."""
        return direct_socket(self.engine, key, beta, limit)


def direct_socket(engine: Engine, key: str | None, beta: str | None, limit: int | None = None) -> DirectSocket:
    """A client of ``engine`` without network; raises ``ProtocolError`` for a key that it does not know."""
    config = engine.services.config
    tenant = tenant_of(f"Bearer {key}" if key is not None else None, config)
    shape = SHAPES.get(beta) if beta else None
    return DirectSocket(engine, tenant, limit or config.outbox_bytes, continuation=shape)


Result = TypeVar("Result")
LONG: Final = 200_000.0
"""Longer than the longest deadline of a server, which is a day."""


def virtually(main: Callable[[], Awaitable[Result]], *instruments: trio.abc.Instrument) -> Result:
    """Run ``main`` in virtual time: whenever all tasks wait, the clock jumps to the next deadline.

    Raises ``TooSlowError`` when it takes ``LONG`` seconds: a test that waits for what never comes must not jump for ever.
    """

    async def within_reason() -> Result:
        with trio.fail_after(LONG):
            return await main()

    return trio.run(within_reason, clock=trio.testing.MockClock(autojump_threshold=0), instruments=instruments)


async def eventually(condition: Callable[[], bool], every: float = 0.01) -> None:
    """Wait until ``condition`` holds, in steps of ``every`` seconds."""
    while not condition():  # noqa: ASYNC110 - whatever it is, it has no event
        await trio.sleep(every)


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
        raise error from None  # noqa: ASYNC123 - the group has this one exception only
