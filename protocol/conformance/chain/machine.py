"""Plays conversations of the create and http shapes with a server, and checks every frame as it comes: ``play``.

The machine does what the moves say, and tells the ``world`` what it sends and hears; the world judges. At the end it waits for
every Response to end, or cancels it; then somebody who knew nothing reads each back, and the ``audit`` checks what it has come
to. When all connections are closed nothing may be left.
"""

from collections.abc import Sequence
from typing import Any, Final

import trio

from ...codec import encode, parse
from ..adapters import Adapter, Scripted
from ..capabilities import ALL, Capabilities
from ..player import SocketPlayer, play_all
from ..sayings import user
from ..story import ConformanceError
from ..transport import Books, Frame, NoBooks, Shape, Socket, Transport
from . import moves as mv
from .audit import check_books, check_final
from .composing import begun, continued, heard
from .http import HttpMachine
from .model import Link, Steered
from .world import Client, Request, World

__all__ = ["ConformanceError", "play"]

BETA: Final = "responses_websockets=2026-02-06"
"""Asks servers that have several shapes for this one."""

ROUNDS: Final = 60
"""How often the finale waits for what is live to end."""

LONGEST: Final = 100.0
"""Seconds between two such waits."""

REPLAY_SECONDS: Final = 60.0
"""In which a Response that has ended must be heard again."""


async def play(
    conversation: mv.Conversation,
    transport: Transport,
    *,
    shape: Shape = "create",
    adapter: Adapter | None = None,
    capabilities: Capabilities = ALL,
    books: Books | None = None,
    keys: Sequence[str | None] = (None,),
) -> list[Link]:
    """Play ``conversation``; raises ``ConformanceError``. Returns the Responses as they were at their end.

    Client number n has the n-th of ``keys``, counted round: what belongs to one key is a stranger's to the others. What is not
    in ``capabilities`` is not asked of the server when it is audited; which moves there are is the conversation's affair.
    """
    parts = (transport, adapter or Scripted(), capabilities, books or NoBooks(), keys)
    machine: Machine | HttpMachine = HttpMachine(*parts) if shape == "http" else Machine(*parts)
    await play_all(machine, conversation.moves, conversation.finale)
    return machine.world.links


class Machine(SocketPlayer[Client, Request]):
    """One conversation of the create shape. ``play`` above is its door."""

    world: World

    def __init__(
        self,
        transport: Transport,
        adapter: Adapter,
        capabilities: Capabilities,
        books: Books,
        keys: Sequence[str | None],
    ) -> None:
        super().__init__(transport, books)
        self.world = World(strict=adapter.codes, obeys=adapter.obeys)
        self._adapter = adapter
        self._capabilities = capabilities
        self._keys = keys
        self._moves = {
            mv.Begin: self._begin,
            mv.Go: self._go,
            mv.Steer: self._steer,
            mv.Cancel: self._cancel,
            mv.Stranger: self._stranger,
            mv.Drop: self._drop,
            mv.Pause: self._pause,
            mv.Resume: self._resume,
            mv.Bad: self._bad,
            mv.Sleep: self._sleep,
            mv.Settle: lambda _: self._settle(),
        }

    # ---- sockets

    async def _client(self, number: int) -> Client:
        """The client of that number, connected when it is first wanted."""
        while len(self.world.clients) <= number:
            self.world.clients.append(await self._connect(self._keys[len(self.world.clients) % len(self._keys)]))
        return self.world.clients[number]

    async def _owner(self, by: int | None, link: Link) -> Client:
        """The client of that number; by default the one that has ``link``, or another of its key."""
        if by is not None:
            return await self._client(by)
        clients = self.world.clients
        has = (client for client in clients if link in client.feeds.values())
        return next(has, None) or next(client for client in clients if client.key == link.asked.key)

    async def _connect(self, key: str | None) -> Client:
        client = Client(f"c{len(self._sockets)}", key)
        return self._open(client, await self._transport.connect(key=key, beta=BETA))

    # ---- moves

    def _pick(self, number: int) -> Link | None:
        links = self.world.links
        return links[-1 - number % len(links)] if links else None

    async def _begin(self, move: mv.Begin) -> None:
        client = await self._client(move.by)
        lane = None if move.lane == 0 else f"lane-{move.lane}"
        await self._create(self.world.may_create(client, lane, begun(move, self._adapter, client.key)))

    async def _go(self, move: mv.Go) -> None:
        link = self._pick(move.link)
        if link is None:
            return
        client = await self._owner(move.by, link)
        lane = link.lane if move.lane is None else None if move.lane == 0 else f"lane-{move.lane}"
        await self._create(self.world.may_create(client, lane, continued(move, link, self._adapter, client.key)))

    async def _create(self, request: Request) -> None:
        assert request.asked is not None
        frame = {"type": "response.create", **request.asked.fields, "input": request.asked.input}
        frame |= {"previous_response_id": request.asked.named} if request.asked.named else {}
        frame |= {"stream_id": request.lane} if request.lane else {}
        await self._send(frame, request)

    async def _steer(self, move: mv.Steer) -> None:
        link = self._pick(move.link)
        if link is None:
            return
        client = await self._owner(move.by, link)
        items = [user(one) if isinstance(one, str) else self._adapter.saying(one) for one in move.say]
        steered = Steered("", items, heard(move.say))
        said: Any = [{"type": "message", "role": "assistant", "content": "I said no such thing"}] if move.bad else items
        frame = {"type": "response.steer", "previous_response_id": link.id, "input": said}
        await self._send(frame, self.world.may_steer(client, link, steered, bad=move.bad))

    async def _cancel(self, move: mv.Cancel) -> None:
        link = self._pick(move.link)
        if link is None:
            return
        client = await self._owner(move.by, link)
        named = move.named or client.feeds.get(link.lane) is not link or bool(client.creates(link.lane))
        request = self.world.may_cancel(client, link, named=named)
        if request.codes & {"done", "response.cancel.accepted"}:
            link.cancels += 1
        frame: Frame = {"type": "response.cancel"}
        frame |= {"response_id": link.id} if named else {"stream_id": link.lane} if link.lane else {}
        await self._send(frame, request)

    async def _stranger(self, move: mv.Stranger) -> None:
        client, unknown = await self._client(move.by), "resp_of_a_stranger"
        if move.kind == "create":
            asked = begun(mv.Begin(({"say": "Hello?"},)), self._adapter, client.key)
            asked.named = unknown
            await self._create(self.world.may_create(client, "strange", asked))
        elif move.kind in ("cancel", "steer"):
            name = "response_id" if move.kind == "cancel" else "previous_response_id"
            frame: Frame = {"type": f"response.{move.kind}", name: unknown}
            frame |= {"input": "hello?"} if move.kind == "steer" else {}
            await self._send(frame, Request(client, move.kind, frozenset({"response_not_found"}), None, unknown))

    async def _drop(self, move: mv.Drop) -> None:
        clients = self.world.clients
        if not clients:
            return
        client = clients[move.by % len(clients)]
        self.world.story.did(client.name, "closes" if move.politely else "drops")
        socket = self._sockets[client]
        self.world.lose(client)
        await (socket.aclose() if move.politely else socket.drop())
        self._reading[client].set()
        clients[move.by % len(clients)] = await self._connect(client.key)

    async def _pause(self, move: mv.Pause) -> None:
        self._stop_reading(await self._client(move.by))

    async def _resume(self, move: mv.Resume) -> None:
        self._reading[await self._client(move.by)].set()

    async def _bad(self, move: mv.Bad) -> None:
        await self._send(move.frame, Request(await self._client(move.by), "bad", move.codes))

    async def _sleep(self, move: mv.Sleep) -> None:
        self.world.hazy = True
        await super()._sleep(move)

    # ---- the end

    async def finale(self, how: str) -> None:
        """Bring everything to its end, check it, close all sockets; raises ``ConformanceError``."""
        for client in self.world.clients:
            self._reading[client].set()
        await self._settle()
        await self._bring_all_to_end(how)
        await self._audit()
        for client in self.world.clients:
            self.world.lose(client)
            await self._sockets[client].aclose()

    async def _bring_all_to_end(self, how: str) -> None:
        for attempt in range(ROUNDS):
            live = [link for link in self.world.links if link.lives]
            if not live and not any(one.kind == "create" for client in self.world.clients for one in client.pending):
                return
            if how == "cancel" or attempt >= ROUNDS // 2:
                await self._cancel_all(live)
            await self._sleep(mv.Sleep(min(2.0**attempt, LONGEST) if self._transport.exact else 0.2))
        raise self.world.fail("L12", f"not ended: {[link.id for link in self.world.links if link.lives]}")

    async def _cancel_all(self, live: Sequence[Link]) -> None:
        for number, client in enumerate(self.world.clients):
            for link in live:
                if link in client.feeds.values():
                    await self._cancel(mv.Cancel(len(self.world.links) - 1 - self.world.links.index(link), number))

    async def _audit(self) -> None:
        """Somebody who knew nothing reads each Response from its beginning."""
        sockets: dict[str | None, Socket] = {}
        if self._capabilities.attach:
            self.world.story.did("audit", "attaches to all Responses")
        for link in self.world.links:
            key = link.asked.key
            if self._capabilities.attach:
                if key not in sockets:
                    sockets[key] = await self._transport.connect(key=key, beta=BETA)
                await self._hear_again(sockets[key], link)
            wrong = check_final(link) if link.dropped and link.final else None
            wrong = wrong or (check_books(link, self._books) if link.final else None)
            if wrong is not None:
                raise self.world.fail(*wrong)
        for socket in sockets.values():
            await socket.aclose()

    async def _hear_again(self, socket: Socket, link: Link) -> None:
        frame = {"type": "response.attach", "response_id": link.id, "stream_id": f"audit-{self.world.links.index(link)}"}
        await socket.send(encode(frame).decode())
        number = -1
        with trio.move_on_after(REPLAY_SECONDS):
            while number < link.trace.last_sequence_number or not link.trace.ended:
                heard = parse(await socket.receive_text())
                if heard["type"] == "error":
                    raise self.world.fail("L9", f"the replay of {link.id} is refused: {heard.get('code')}")
                if "sequence_number" in heard:
                    number += 1
                    if heard["sequence_number"] != number or heard.pop("stream_id", None) != frame["stream_id"]:
                        raise self.world.fail("L9", f"the replay of {link.id} has {heard} where {number} should be")
                    link.final = self.world.learn(link, heard) or link.final
        if not link.trace.ended or number < link.trace.last_sequence_number:
            raise self.world.fail("L9", f"the replay of {link.id} ends at {number}")
        if link.fate is not None and link.status != link.fate:
            raise self.world.fail("L10", f"{link.id} was live when its client went; it is {link.status}")
