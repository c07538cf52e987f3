"""What all machines have in common: a world that judges, moves that are done one by one, readers that stop and go on.

``Player`` is what every machine is, ``SocketPlayer`` one whose clients have a WebSocket each. ``play_all`` plays a conversation
from its first move to the last look at the server.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import trio

from ..codec import encode, parse
from .moves import Sleep
from .story import ConformanceError, Story
from .transport import Books, Closed, Frame, Socket, Transport

PATIENCE: Final = 100
"""How often a server of which we only hear is given a moment to answer."""

Moves = Mapping[type, Callable[[Any], Awaitable[None]]]


class Named(Protocol):
    """A client."""

    name: str


Who = TypeVar("Who", bound=Named)
WhoSent = TypeVar("WhoSent", bound=Named, covariant=True)


class Sent(Protocol[WhoSent]):
    """A request that was sent."""

    @property
    def client(self) -> WhoSent: ...

    @property
    def kind(self) -> str: ...


What = TypeVar("What", bound=Sent[Any])


class Judge(Protocol):
    """What is known while a conversation is played."""

    story: Story
    failure: ConformanceError | None
    hazy: bool

    def fail(self, law: str, message: str) -> ConformanceError: ...


class SocketJudge(Judge, Protocol[Who, What]):
    """The same, where clients have WebSockets."""

    clients: list[Who]

    def expect(self, request: What) -> None: ...

    def hear(self, client: Who, frame: Frame) -> None: ...

    def lose(self, client: Who) -> None: ...

    def overdue(self) -> Sequence[What]: ...

    def clear_up(self) -> None: ...


class Player(ABC, Generic[Who]):
    """One conversation. Its nursery is that of ``play_all``."""

    nursery: trio.Nursery
    world: Judge
    _moves: Moves

    def __init__(self, transport: Transport, books: Books) -> None:
        self._transport = transport
        self._books = books
        self._reading: dict[Who, trio.Event] = {}

    async def play(self, move: Any) -> None:
        """One move; raises ``ConformanceError``."""
        await self._moves[type(move)](move)
        self._raise_failure()

    @abstractmethod
    async def finale(self, how: str) -> None:
        """Bring everything to its end, check it, close all connections; raises ``ConformanceError``."""

    async def after(self) -> None:
        """All connections are closed, all Responses have ended: nothing may be left."""
        self._raise_failure()
        if not self._transport.exact:
            return
        await self._transport.settle()
        left = self._books.leftovers()
        if left:
            raise self.world.fail("L11", f"left behind: {', '.join(left)}")

    def _raise_failure(self) -> None:
        if self.world.failure is not None:
            raise self.world.failure

    # ---- readers

    def _read_on(self, client: Who) -> None:
        """``client`` is new, and reads."""
        self._reading[client] = trio.Event()
        self._reading[client].set()

    def _stop_reading(self, client: Who) -> None:
        if self._reading[client].is_set():
            self._reading[client] = trio.Event()
            self.world.hazy = True
            self.world.story.did(client.name, "stops reading")

    # ---- time

    async def _sleep(self, move: Sleep) -> None:
        self.world.story.did("time", f"passes: {move.seconds:g} s")
        await trio.sleep(move.seconds)
        await self._settle()

    @abstractmethod
    async def _settle(self) -> None:
        """Let the server say what it has to say. What must be answered is answered then, and all is known."""


class SocketPlayer(Player[Who], Generic[Who, What]):
    """One conversation over WebSockets."""

    world: SocketJudge[Who, What]

    def __init__(self, transport: Transport, books: Books) -> None:
        super().__init__(transport, books)
        self._sockets: dict[Who, Socket] = {}

    def _open(self, client: Who, socket: Socket) -> Who:
        """``client`` has ``socket``, and is heard."""
        self._sockets[client] = socket
        self._read_on(client)
        self.nursery.start_soon(self._listen, client)
        return client

    async def _listen(self, client: Who) -> None:
        try:
            while True:
                await self._reading[client].wait()
                self.world.hear(client, parse(await self._sockets[client].receive_text()))
        except Closed:
            self._closed(client)
        except ConformanceError:
            pass  # the world remembers it, and whoever plays raises it

    def _closed(self, client: Who) -> None:
        """Its socket is closed, by whichever side."""
        self.world.lose(client)

    async def _send(self, frame: Frame | str | bytes, request: What) -> None:
        self.world.story.sent(request.client.name, frame)
        self.world.expect(request)
        try:
            await self._sockets[request.client].send(frame if isinstance(frame, str | bytes) else encode(frame).decode())
        except Closed:
            self.world.lose(request.client)

    def _paused(self) -> bool:
        return any(not self._reading[client].is_set() for client in self.world.clients)

    async def _settle(self) -> None:
        overdue: Sequence[What] = ()
        for _ in range(1 if self._transport.exact else PATIENCE):
            await self._transport.settle()
            self._raise_failure()
            if self._paused():
                return
            overdue = self.world.overdue()
            if not overdue:
                break
        for request in overdue:
            raise self.world.fail("L12", f"{request.client.name}'s {request.kind} was not answered")
        if self._transport.exact:
            self.world.clear_up()


async def play_all(machine: Player[Any], moves: Sequence[Any], finale: str) -> None:
    """Play ``moves``, then the finale; raises ``ConformanceError``. What else is raised has the story as its note."""
    world = machine.world
    try:
        async with trio.open_nursery() as nursery:
            machine.nursery = nursery
            for move in moves:
                await machine.play(move)
            await machine.finale(finale)
            nursery.cancel_scope.cancel()
        await machine.after()
    except Exception as error:
        if world.failure is not None and error is not world.failure:
            raise world.failure from None
        if world.failure is None:
            error.add_note(str(world.story))
        raise
