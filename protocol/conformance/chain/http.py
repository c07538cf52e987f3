"""Plays conversations of the http shape. Each request has a connection of its own; those that last run beside the conversation.

What is asked of the world is the same as on a socket, with less to remember: no lanes, no memory of a connection, no steers.
Instead a Response may be had again: as it is, its events behind any cursor, its input in pages. All of it must agree.
"""

from collections.abc import Sequence
from typing import Any, Final

import trio
from attrs import define, field

from ...codec import encode, parse
from ..adapters import Adapter
from ..capabilities import Capabilities
from ..player import PATIENCE, Player
from ..story import ConformanceError
from ..transport import Books, Closed, Exchange, Frame, Transport
from . import moves as mv
from .audit import check_books, check_final, check_listed
from .composing import begun, continued
from .model import CREATED, PAIRING, Asked, Link
from .model import NOT_FOUND as UNKNOWN_PARENT
from .world import Client, Request, World

LONGEST: Final = 100.0
"""Seconds between two looks at what is live."""

ROUNDS: Final = 60
DONE: Final = "[DONE]"
NOT_FOUND: Final = frozenset({"response_not_found"})
OK: Final = "ok"
"""The answer of a request that is not refused."""


@define(eq=False)
class Heard:
    """An answer that is a stream, while it is read."""

    link: Link | None
    exchange: Exchange
    dropped: bool = False


@define(eq=False)
class Posted:
    """A create that was sent and has not been answered, or whose stream is read."""

    request: Request
    asked: Asked
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    heard: Heard | None = None


class HttpMachine(Player[Client]):
    """One conversation of the http shape."""

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
        self._posted: list[Posted] = []
        self._stalled: set[Client] = set()
        """Those that have stopped reading once: a server may have closed their connections, for which it waited in vain."""
        self._moves = {
            mv.Begin: self._begin,
            mv.Go: self._go,
            mv.Cancel: self._cancel,
            mv.Stranger: self._stranger,
            mv.Look: self._look,
            mv.Replay: self._replay,
            mv.Pages: self._pages,
            mv.Delete: self._delete,
            mv.Leave: self._leave,
            mv.Drop: self._drop,
            mv.Pause: self._pause,
            mv.Resume: self._resume,
            mv.Bad: self._bad,
            mv.Sleep: self._sleep,
            mv.Settle: lambda _: self._settle(),
        }

    # ---- clients

    def _client(self, number: int) -> Client:
        clients = self.world.clients
        while len(clients) <= number:
            clients.append(Client(f"c{len(clients)}", self._keys[len(clients) % len(self._keys)]))
            self._read_on(clients[-1])
        return clients[number]

    def _owner(self, by: int | None, link: Link) -> Client:
        if by is not None:
            return self._client(by)
        return next(client for client in self.world.clients if client.key == link.asked.key)

    def _pick(self, number: int) -> Link | None:
        links = self.world.links
        return links[-1 - number % len(links)] if links else None

    async def _ask(self, client: Client, method: str, path: str, body: Frame | bytes | None = None) -> Exchange:
        """A request, and the head of its answer; raises ``Closed``."""
        data = encode(body) if isinstance(body, dict) else body
        self.world.story.sent(client.name, f"{method} {path} {(data or b'').decode('utf-8', 'replace')}")
        return await self._transport.request(method, path, data, key=client.key)

    async def _answer(
        self, client: Client, method: str, path: str, body: Frame | bytes | None = None, *, codes: frozenset[str]
    ) -> Frame | None:
        """The body of an answer that comes at once, or None if it was refused; which it is must be one of ``codes``."""
        try:
            exchange = await self._ask(client, method, path, body)
            answer = parse(await exchange.read())
        except Closed:
            raise self.world.fail("L12", f"{method} {path} was not answered") from None
        self.world.story.did(client.name, f"<- {exchange.status} {str(answer)[:200]}")
        code = OK if exchange.status == 200 else self._code(answer)
        self._judge(f"{method} {path}", code, codes)
        return answer if code == OK else None

    def _code(self, answer: Any) -> str:
        error = answer.get("error") if isinstance(answer, dict) else None
        if not isinstance(error, dict) or not isinstance(error.get("message"), str):
            raise self.world.fail("L12", f"an error is answered with {str(answer)[:100]}")
        return str(error.get("code"))

    def _judge(self, what: str, code: str, codes: frozenset[str]) -> None:
        if code == "server_error" and self.world.strict:
            raise self.world.fail("L2", f"{what}: the server failed")
        fits = code in codes if self.world.strict else (code in (OK, CREATED)) in {one in (OK, CREATED) for one in codes}
        if not fits:
            law = "L14" if {code, *codes} & PAIRING else "L13" if "not_found" in f"{code} {' '.join(codes)}" else "L12"
            raise self.world.fail(law, f"{what} was answered with {code}, not with {', '.join(sorted(codes))}")

    # ---- creates

    async def _begin(self, move: mv.Begin) -> None:
        client = self._client(move.by)
        self._post(client, begun(move, self._adapter, client.key))

    async def _go(self, move: mv.Go) -> None:
        link = self._pick(move.link)
        if link is not None:
            client = self._owner(move.by, link)
            self._post(client, continued(move, link, self._adapter, client.key))

    def _post(self, client: Client, asked: Asked) -> None:
        request = self.world.may_create(client, None, asked)
        if asked.how.background and not asked.stored:
            request.codes = frozenset({"invalid_value"})
            request.sure = True
        self.world.expect(request)
        posted = Posted(request, asked)
        self._posted.append(posted)
        self.nursery.start_soon(self._create, posted)

    async def _create(self, posted: Posted) -> None:
        asked, how, client = posted.asked, posted.asked.how, posted.request.client
        body = {**asked.fields, "input": asked.input}
        body |= {"previous_response_id": asked.named} if asked.named else {}
        body |= {"stream": True} if how.stream else {}
        body |= {"background": True} if how.background else {}
        exchange: Exchange | None = None
        try:
            with posted.scope:
                exchange = await self._ask(client, "POST", "/responses", body)
                if exchange.status == 200 and how.stream:
                    posted.heard = Heard(None, exchange)
                    await self._hear(client, posted.heard, -1, posted)
                else:
                    answer = parse(await exchange.read())
                    self.world.story.did(client.name, f"<- {exchange.status} {str(answer)[:200]}")
                    self._answered(posted, exchange.status, answer)
            if posted.scope.cancelled_caught and exchange is not None:
                await exchange.drop()  # its head came just when the connection was to break
        except Closed:
            heard = posted.heard
            if heard is not None and client in self._stalled:
                self._lose(heard)
            elif heard is None or not heard.dropped:
                self.world.fail("L12", "a create was not answered to its end")
        except ConformanceError:
            pass  # the world remembers it, and whoever plays raises it
        finally:
            if posted in self._posted:
                self._posted.remove(posted)

    def _answered(self, posted: Posted, status: int, answer: Frame) -> None:
        """A create's answer that is no stream."""
        if status != 200:
            fails = not self.world.strict and Link(posted.asked).was_to_fail  # other servers answer with the failure
            self._judge("a create", self._code(answer), posted.request.codes | ({"failed"} if fails else set()))
            posted.request.client.pending.remove(posted.request)
            return
        link = self._begun(posted, answer)
        link.listeners = 0
        if posted.asked.how.background and answer.get("status") in ("queued", "in_progress"):
            return
        self._ended(link, answer)

    def _begun(self, posted: Posted, response: Frame) -> Link:
        codes = posted.request.codes
        if self.world.strict:
            self._judge("a create", CREATED, codes)
        posted.request.client.pending.remove(posted.request)
        link = self.world.add(posted.request.client, None, posted.asked, {"response": response})
        link.refused = codes if CREATED not in codes else ()
        return link

    def _ended(self, link: Link, final: Frame) -> None:
        """It was seen as it has ended."""
        if link.final is not None:
            if link.final != final:
                raise self.world.fail("L9", f"{link.id} ended as {link.final}, and is now {final}")
            return
        if final.get("status") not in ("completed", "incomplete", "failed", "cancelled"):
            raise self.world.fail("L2", f"{link.id} is {final.get('status')} at its end")
        link.final = final
        self.world.conclude(link)

    # ---- streams

    async def _hear(self, client: Client, heard: Heard, cursor: int, posted: Posted | None = None) -> None:
        """Read a stream of events behind ``cursor`` to its end; raises ``Closed`` and ``ConformanceError``."""
        number = cursor
        while True:
            await self._reading[client].wait()
            event = await heard.exchange.next_event()
            if event is None or event.data == DONE:
                break
            frame = parse(event.data)
            self.world.story.heard(client.name, frame)
            if event.event != frame.get("type") and self.world.strict:
                raise self.world.fail("L4", f"the event {event.event} has the type {frame.get('type')}")
            if posted is not None and heard.link is None:
                heard.link = self._begun(posted, frame.get("response") or {})
            number += 1
            if frame.get("sequence_number") != number:
                raise self.world.fail("L9" if posted is None else "L3", f"event {frame.get('sequence_number')}, not {number}")
            assert heard.link is not None
            final = self.world.learn(heard.link, frame)
            if final is not None:
                self._ended(heard.link, final)
        if event is None and self.world.strict:
            raise self.world.fail("L2", f"a stream ends without {DONE}")
        if heard.link is None or heard.link.final is None or number < heard.link.trace.last_sequence_number:
            raise self.world.fail("L2", "a stream ends before its Response has")
        await heard.exchange.drop()

    async def _listen(self, client: Client, link: Link, cursor: int, exchange: Exchange) -> None:
        heard = Heard(link, exchange)
        link.listeners += 1
        try:
            await self._hear(client, heard, cursor)
        except Closed:
            if client not in self._stalled:
                self.world.fail("L9", f"the replay of {link.id} breaks off")
            link.listeners -= 1
        except ConformanceError:
            pass

    # ---- what else is asked

    def _may_see(self, client: Client, link: Link) -> frozenset[str]:
        """Whether ``client`` sees ``link``."""
        if client.key != link.asked.key or link.deleted:
            return NOT_FOUND
        if link.asked.stored:
            return frozenset({OK})
        if link.final is not None or link.fate is not None:
            return NOT_FOUND
        return frozenset({OK, *NOT_FOUND}) if self.world.hazy or link.dropped else frozenset({OK})

    async def _look(self, move: mv.Look) -> None:
        link = self._pick(move.link)
        if link is not None:
            client = self._owner(move.by, link)
            await self._see(client, link)

    async def _see(self, client: Client, link: Link) -> None:
        lives = link.status is None and not self.world.hazy and not link.dropped and link.listeners > 0
        answer = await self._answer(client, "GET", f"/responses/{link.id}", codes=self._may_see(client, link))
        if answer is not None:
            self._glimpse(link, answer, lives=lives)

    def _glimpse(self, link: Link, answer: Frame, *, lives: bool = False) -> None:
        """It was seen as it is. ``lives``: it surely has not ended."""
        if answer.get("id") != link.id:
            raise self.world.fail("L13", f"{link.id} was asked for, and {answer.get('id')} came")
        if answer.get("status") not in ("queued", "in_progress"):
            if lives:
                raise self.world.fail("L14", f"{link.id} lives, and is {answer.get('status')}")
            self._ended(link, answer)
        elif link.status is not None:
            raise self.world.fail("L14", f"{link.id} is {link.status}, and now {answer.get('status')}")
        else:
            link.glimpses.append(answer["output"])

    async def _replay(self, move: mv.Replay) -> None:
        link = self._pick(move.link)
        if link is None:
            return
        client, known = self._owner(move.by, link), link.trace.last_sequence_number
        cursor = 10_000_000 if move.beyond else -1 if move.back is None else max(-1, known - move.back)
        path = f"/responses/{link.id}?stream=true&starting_after={cursor}"
        codes = self._may_see(client, link)
        codes = frozenset("invalid_cursor" if move.beyond and one == OK else one for one in codes)
        exchange = await self._ask(client, "GET", path)
        if exchange.status == 200:
            self._judge(path, OK, codes)
            self.world.hazy = True
            self.nursery.start_soon(self._listen, client, link, cursor, exchange)
        else:
            self._judge(path, self._code(parse(await exchange.read())), codes)

    async def _pages(self, move: mv.Pages) -> None:
        link = self._pick(move.link)
        if link is None:
            return
        await self._list(self._owner(move.by, link), link, move.limit, ascending=move.ascending)

    async def _list(self, client: Client, link: Link, limit: int, *, ascending: bool) -> None:
        path = f"/responses/{link.id}/input_items?limit={limit}&order={'asc' if ascending else 'desc'}"
        items: list[Frame] = []
        after, more = "", True
        while more:
            page = await self._answer(client, "GET", path + after, codes=self._may_see(client, link))
            if page is None:
                return
            items += page["data"]
            more = page["has_more"]
            if page["data"] and (len(page["data"]) > limit or page["last_id"] != items[-1]["id"]):
                raise self.world.fail("L14", f"a page of {limit} is {page}")
            if more and not page["data"]:
                raise self.world.fail("L12", "an empty page, and there are more")
            after = f"&after={items[-1]['id']}" if items else ""
        wrong = check_listed(link, items if ascending else items[::-1], exact=self.world.obeys)
        if wrong is not None:
            raise self.world.fail(*wrong)

    async def _cancel(self, move: mv.Cancel) -> None:
        link = self._pick(move.link)
        if link is not None:
            await self._end(self._owner(move.by, link), link)

    async def _end(self, client: Client, link: Link) -> None:
        codes = self._may_see(client, link)
        if OK in codes and not link.asked.how.background:
            codes = codes - {OK} | {"invalid_value"}
        lived = link.status is None and not self.world.hazy and link.listeners > 0
        link.cancels += OK in codes
        self.world.hazy = True
        answer = await self._answer(client, "POST", f"/responses/{link.id}/cancel", codes=codes)
        if answer is not None:
            self._glimpse(link, answer)
            if lived and link.status != "cancelled":
                raise self.world.fail("L10", f"{link.id} was live when it was cancelled; it is {link.status}")

    async def _delete(self, move: mv.Delete) -> None:
        link = self._pick(move.link)
        if link is None:
            return
        client = self._owner(move.by, link)
        codes = self._may_see(client, link)
        link.cancels += OK in codes
        self.world.hazy = True
        for posted in self._posted:  # what is under way may come behind it
            if OK in codes and posted.asked.continues(link):
                posted.request.codes |= {UNKNOWN_PARENT}
        if await self._answer(client, "DELETE", f"/responses/{link.id}", codes=codes) is not None:
            link.deleted = True
            link.dropped = link.dropped or link.final is None

    async def _stranger(self, move: mv.Stranger) -> None:
        client, path = self._client(move.by), "/responses/resp_of_a_stranger"
        methods = {"get": ("GET", ""), "replay": ("GET", "?stream=true"), "delete": ("DELETE", "")}
        methods |= {"cancel": ("POST", "/cancel"), "input_items": ("GET", "/input_items")}
        if move.kind in methods:
            method, rest = methods[move.kind]
            await self._answer(client, method, path + rest, codes=NOT_FOUND)
        elif move.kind == "create":
            asked = begun(mv.Begin(({"say": "Hello?"},)), self._adapter, client.key)
            asked.named = "resp_of_a_stranger"
            self._post(client, asked)

    async def _bad(self, move: mv.Bad) -> None:
        if isinstance(move.frame, str):
            await self._answer(self._client(move.by), "POST", "/responses", move.frame.encode(), codes=move.codes)

    # ---- connections

    async def _leave(self, move: mv.Leave) -> None:
        link = self._pick(move.link)
        posted = next((one for one in self._posted if one.heard is not None and one.heard.link is link), None)
        if posted is not None and link is not None:
            await self._break(posted)

    async def _drop(self, move: mv.Drop) -> None:
        """The connection of a client's newest create breaks."""
        client = self._client(move.by)
        posted = next((one for one in reversed(self._posted) if one.request.client is client), None)
        if posted is not None:
            await self._break(posted)

    async def _break(self, posted: Posted) -> None:
        client, heard = posted.request.client, posted.heard
        self.world.story.did(client.name, "drops a create's connection")
        if posted.request in client.pending:
            client.pending.remove(posted.request)
        if heard is not None:
            self._lose(heard)
        self.world.hazy = True
        self._posted.remove(posted)
        posted.scope.cancel()
        if heard is not None:
            heard.dropped = True
            await heard.exchange.drop()

    def _lose(self, heard: Heard) -> None:
        """The connection of a create is gone, on which its Response was heard."""
        link = heard.link
        if link is None:
            return
        link.listeners -= 1
        if not link.asked.how.background and link.final is None:
            link.dropped = True
            link.fate = None if self.world.hazy else "cancelled"

    async def _pause(self, move: mv.Pause) -> None:
        client = self._client(move.by)
        self._stalled.add(client)
        self._stop_reading(client)

    async def _resume(self, move: mv.Resume) -> None:
        self._reading[self._client(move.by)].set()

    async def _sleep(self, move: mv.Sleep) -> None:
        self.world.hazy = True
        await super()._sleep(move)

    async def _settle(self) -> None:
        for _ in range(1 if self._transport.exact else PATIENCE):
            await self._transport.settle()
            self._raise_failure()
            if not all(event.is_set() for event in self._reading.values()):
                return
            late = [one for one in self._posted if self._is_late(one)]
            if not late:
                break
        if late:
            raise self.world.fail("L12", f"{late[0].request.client.name}'s create was not answered")
        waits = any(one.request in one.request.client.pending for one in self._posted)
        if self._transport.exact and not waits:
            self.world.clear_up()

    def _is_late(self, posted: Posted) -> bool:
        """One that is to be answered at once, and was not."""
        how = posted.asked.how
        begins = how.stream or how.background or CREATED not in posted.request.codes
        return begins and posted.request in posted.request.client.pending

    # ---- the end

    async def finale(self, how: str) -> None:
        """Bring everything to its end, and check it; raises ``ConformanceError``."""
        for event in self._reading.values():
            event.set()
        await self._settle()
        await self._bring_all_to_end(how)
        self.world.story.did("audit", "reads all Responses back")
        for link in self.world.links:
            await self._audit(link)
        self._raise_failure()

    async def _bring_all_to_end(self, how: str) -> None:
        for attempt in range(ROUNDS):
            live = [link for link in self.world.links if link.lives]
            for link in live:
                client = self._owner(None, link)
                if link.asked.how.background and (how == "cancel" or attempt >= ROUNDS // 2):
                    await self._end(client, link)
                elif link.asked.how.background:
                    await self._see(client, link)
            if not live and not self._posted:
                return
            await self._sleep(mv.Sleep(min(2.0**attempt, LONGEST) if self._transport.exact else 0.2))
        raise self.world.fail("L12", f"not ended: {[link.id for link in self.world.links if link.lives]}, {len(self._posted)}")

    async def _audit_stored(self, client: Client, link: Link) -> None:
        if self._capabilities.input_items:
            await self._list(client, link, 100, ascending=True)
        if self._capabilities.attach:
            await self._hear_again(client, link, -1)
            await self._hear_again(client, link, link.trace.last_sequence_number // 2)

    async def _audit(self, link: Link) -> None:
        client = self._owner(None, link)
        if self._capabilities.store:
            await self._see(client, link)
            if link.asked.stored and not link.deleted:
                await self._audit_stored(client, link)
        if link.fate is not None and link.final is not None and link.final["status"] != link.fate:
            raise self.world.fail("L10", f"{link.id} was live when its client went; it is {link.status}")
        if link.final is not None:
            wrong = (None if link.refused else check_final(link, strict=self.world.strict)) or check_books(link, self._books)
            if wrong is not None:
                raise self.world.fail(*wrong)

    async def _hear_again(self, client: Client, link: Link, cursor: int) -> None:
        exchange = await self._ask(client, "GET", f"/responses/{link.id}?stream=true&starting_after={cursor}")
        if exchange.status != 200:
            raise self.world.fail("L9", f"the replay of {link.id} is refused with {exchange.status}")
        await self._hear(client, Heard(link, exchange), cursor)
