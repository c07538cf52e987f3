"""Plays conversations with a server, and checks every frame as it comes: ``play``.

The machine does what the moves say, and tells the ``world`` what it sends and hears; the world judges. At the end it brings
every Response that is still live to its end; then a client that knew nothing attaches to each, must get all of its events, and
the ``audit`` checks what it has come to. When all sockets are closed nothing may be left.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import trio

from ..player import SocketPlayer, play_all
from ..sayings import bare, result_of, user
from ..script import HOSTED, beginning, message_of
from ..story import ConformanceError
from ..transport import Books, Frame, NoBooks, Transport
from . import moves as mv
from .audit import check_ended
from .model import ACCEPTED, Answers, Append, Rollout
from .world import DONE, Client, Request, World

__all__ = ["ConformanceError", "play"]

ROUNDS: Final = 60
"""How often the finale tries to bring what is live to its end."""

LET_GO: Final = 400.0
"""Seconds after which a server has let go of Responses that nobody is attached to: more than ``detach_seconds``."""

TIRING: Final = 30.0
"""Seconds of silence after which a server may close a connection."""

QUIET: Final = 20.0
"""Seconds: a Response that says nothing for so long waits for somebody. Less than the signs of life are apart."""

FEW_LANES: Final = 30
"""Of the 32 names that a socket may have."""


async def play(
    conversation: mv.Conversation, transport: Transport, *, books: Books | None = None, model: str = "scripted"
) -> list[Rollout]:
    """Play ``conversation``; raises ``ConformanceError``. Returns the Responses as they were at their end."""
    machine = Machine(transport, books or NoBooks(), model)
    await play_all(machine, conversation.moves, conversation.finale)
    return machine.world.rollouts


class Machine(SocketPlayer[Client, Request]):
    """One conversation. ``play`` above is its door."""

    world: World

    def __init__(self, transport: Transport, books: Books, model: str) -> None:
        super().__init__(transport, books)
        self.world = World()
        self._model = model
        self._keys = 0
        self._lanes = 0
        self._tired = False
        """Whether a server may have closed a connection that was slow or silent."""
        self._moves = {
            mv.Create: self._create,
            mv.Answer: self._answer,
            mv.Again: self._again,
            mv.Wrong: self._wrong,
            mv.Race: self._race,
            mv.Say: self._say,
            mv.Cancel: lambda move: self._end(move.by, move.rollout, "cancel"),
            mv.Finish: lambda move: self._end(move.by, move.rollout, "finish"),
            mv.Attach: self._attach,
            mv.Drop: self._drop,
            mv.Pause: self._pause,
            mv.Resume: self._resume,
            mv.Bad: self._bad,
            mv.Stranger: self._stranger,
            mv.Sleep: self._sleep,
            mv.Settle: lambda _: self._settle(),
        }

    # ---- sockets

    async def _client(self, number: int) -> Client:
        """The client of that number, connected when it is first wanted."""
        while len(self.world.clients) <= number:
            self.world.clients.append(await self._connect())
        return self.world.clients[number]

    async def _connect(self) -> Client:
        client = Client(f"c{len(self._sockets)}")
        return self._open(client, await self._transport.connect())

    def _closed(self, client: Client) -> None:
        with suppress(ConformanceError):
            self.world.close(client, excused=self._tired)

    # ---- moves

    def _pick(self, number: int) -> Rollout | None:
        rollouts = self.world.rollouts
        return rollouts[number % len(rollouts)] if rollouts else None

    async def _create(self, move: mv.Create) -> None:
        client = await self._client(move.by)
        lane = None if move.lane == 0 else f"lane-{move.lane}"
        if lane in client.joined:  # a Response that was attached to is not in the lane's queue
            lane = f"lane-{move.lane}"
        text = message_of(move.steps, move.tokens_per_second)
        frame: Frame = {"type": "response.create", "model": self._model, "input": text, "continuation": "append"}
        frame |= {"hold": "conversation"} if move.hold else {}
        frame |= {"stream_id": lane} if lane else {}
        frame |= {"tools": [{"type": HOSTED}]} if move.hosted else {}
        client.used.add(lane)
        created = Answers(frozenset({"created"}))
        await self._send(frame, Request(client, "create", created, lane, script=beginning(text)))

    async def _answer(self, move: mv.Answer) -> None:
        rollout = self._pick(move.rollout)
        if rollout is None:
            return
        client = await self._client(move.by)
        calls = list(rollout.trace.open_calls.values())
        chosen = [calls[which % len(calls)] for which in move.which] if calls and move.which else calls
        chosen = list({call["call_id"]: call for call in chosen}.values())
        groups = [[call] for call in chosen] if move.split else [chosen]
        for number, group in enumerate(groups):
            items = [*map(bare, group)] if move.echo else []
            items += map(result_of, group)
            items += map(user, move.say if number == len(groups) - 1 else ())
            if items:
                await self._append(client, rollout, items, named=move.named, keyed=move.keyed)

    async def _append(
        self, client: Client, rollout: Rollout, items: list[Frame], *, named: bool = True, keyed: bool = False
    ) -> None:
        self._keys += keyed
        await self._send_append(client, rollout, Append(items, f"key-{self._keys}" if keyed else None), named=named)

    async def _send_append(self, client: Client, rollout: Rollout, append: Append, *, named: bool = True) -> None:
        frame: Frame = {"type": "response.append", "input": list(append.items)}
        frame |= {"idempotency_key": append.key} if append.key else {}
        on = client.lane_of(rollout)
        lane = on[0] if on else None
        if named or on is None or rollout.ended or self.world.creates_wait(client, lane):
            frame["response_id"] = rollout.id
        frame |= {"stream_id": lane} if lane else {}
        answers = self.world.answers(client, rollout, append)
        append.possible = ACCEPTED in answers.codes
        rollout.appends.append(append)
        await self._send(frame, Request(client, "append", answers, lane, frame.get("response_id"), rollout, append))

    async def _again(self, move: mv.Again) -> None:
        rollout = self._pick(move.rollout)
        sent = [one for one in rollout.appends if not one.refused] if rollout else []
        if rollout is not None and sent:
            former = sent[move.call % len(sent)]
            await self._send_append(await self._client(move.by), rollout, Append(former.items, former.key))

    async def _wrong(self, move: mv.Wrong) -> None:
        rollout = self._pick(move.rollout)
        if rollout is None:
            return
        calls = list(rollout.trace.calls.values())
        bad = _wrong_items(move.kind, rollout, calls[move.call % len(calls)] if calls else None)
        good = [result_of(call) for call in rollout.trace.open_calls.values()] if move.after_good and bad else []
        if bad is not None:
            await self._append(await self._client(move.by), rollout, [*good, *bad])

    async def _race(self, move: mv.Race) -> None:
        rollout = self._pick(move.rollout)
        calls = list(rollout.trace.open_calls.values()) if rollout else []
        if rollout is None or not calls or move.by == move.other:
            return
        good = result_of(calls[move.call % len(calls)])
        self.world.hazy = True
        await self._append(await self._client(move.by), rollout, [good])
        racing = rollout.appends[-1:]
        other = {**good, "output": f"the other result of {good['call_id']}"}
        await self._append(await self._client(move.other), rollout, [other])
        self.world.widen([*racing, rollout.appends[-1]])
        await self._settle()

    async def _say(self, move: mv.Say) -> None:
        rollout = self._pick(move.rollout)
        if rollout is not None:
            text = move.text if move.steps is None else message_of(move.steps)
            await self._append(await self._client(move.by), rollout, [user(text)], keyed=True)

    async def _end(self, by: int, number: int, kind: str) -> None:
        rollout = self._pick(number)
        if rollout is None:
            return
        client = await self._client(by)
        answers = self.world.answers(client, rollout)
        must_end = kind == "cancel" or rollout.trace.asks_user
        rollout.cancelled |= kind == "cancel" and DONE in answers.codes
        frame = {"type": f"response.{kind}", "response_id": rollout.id}
        await self._send(frame, Request(client, kind, answers, None, rollout.id, rollout))
        if answers.codes == {DONE} and must_end and not self._paused():
            await self._settle()
            status = (rollout.trace.response or {}).get("status")
            if self.world.is_watched(rollout) and status != ENDS_AS[kind]:
                raise self.world.fail("L10", f"{rollout.id} was live at the {kind} of {client.name}; it is {status}")

    async def _attach(self, move: mv.Attach) -> None:
        rollout = self._pick(move.rollout)
        if rollout is None:
            return
        client = await self._client(move.by)
        lane = None
        if client.used or client.joined:
            self._lanes += 1
            lane = f"attach-{self._lanes}"
        cursor = -1 if move.back is None else max(-1, rollout.trace.last_sequence_number - move.back)
        request = Request(client, "attach", Answers(frozenset({"attached"})), lane, rollout.id, rollout, cursor=cursor)
        if move.beyond:
            cursor = 10_000_000 if move.back else -2
            request = Request(client, "attach", Answers(frozenset({"invalid_cursor"})), lane, rollout.id)
        frame = {"type": "response.attach", "response_id": rollout.id, "starting_after": cursor}
        client.joined.add(lane)
        await self._send(frame | ({"stream_id": lane} if lane else {}), request)

    async def _drop(self, move: mv.Drop) -> None:
        clients = self.world.clients
        if not clients:
            return
        client = clients[move.by % len(clients)]
        self.world.story.did(client.name, "closes" if move.politely else "drops")
        client.leaving = True
        socket = self._sockets[client]
        await (socket.aclose() if move.politely else socket.drop())
        self.world.lose(client)
        self._reading[client].set()
        clients[move.by % len(clients)] = await self._connect()

    async def _pause(self, move: mv.Pause) -> None:
        client = await self._client(move.by)
        self._tired = True
        self._stop_reading(client)

    async def _resume(self, move: mv.Resume) -> None:
        self._reading[await self._client(move.by)].set()

    async def _bad(self, move: mv.Bad) -> None:
        await self._send(move.frame, Request(await self._client(move.by), "bad", Answers(move.codes)))

    async def _stranger(self, move: mv.Stranger) -> None:
        unknown = "resp_of_a_stranger"
        frame: Frame = {"type": f"response.{move.kind}", "response_id": unknown}
        frame |= {"input": [user("hello?")]} if move.kind == "append" else {}
        not_found = Answers(frozenset({"response_not_found"}))
        await self._send(frame, Request(await self._client(move.by), "bad", not_found, None, unknown))

    async def _sleep(self, move: mv.Sleep) -> None:
        self._tired |= move.seconds >= TIRING
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
            client.leaving = True
            await self._sockets[client].aclose()
            self.world.lose(client)

    async def _bring_all_to_end(self, how: str) -> None:
        for attempt in range(ROUNDS):
            live = [one for one in self.world.rollouts if not one.ended]
            if not live and not any(one.kind == "create" for client in self.world.clients for one in client.pending):
                return
            for rollout in live:
                await self._bring_to_end(rollout, how if attempt < ROUNDS // 2 else "cancel")
            await self._settle()
            await self._sleep(mv.Sleep(1.0 if self._transport.exact else 0.1))
        raise self.world.fail("L12", f"not ended: {[one.id for one in self.world.rollouts if not one.ended]}")

    async def _bring_to_end(self, rollout: Rollout, how: str) -> None:
        number, clients = self.world.rollouts.index(rollout), self.world.clients
        at = next((index for index, one in enumerate(clients) if self.world.controls(one, rollout)), None)
        if at is None:
            at = len(clients)
            await self._attach(mv.Attach(at, number))
            await self._settle()
        await self._rest(rollout)
        if rollout.ended:
            return
        if how == "cancel":
            await self._end(at, number, "cancel")
        elif rollout.trace.open_calls:
            await self._answer(mv.Answer(at, number))
        elif rollout.trace.parked:
            await self._end(at, number, "finish")

    async def _rest(self, rollout: Rollout) -> None:
        """Wait until it has parked or ended. As long as it speaks it may take its time."""
        while self._transport.exact and not rollout.ended and not rollout.trace.parked:
            said = len(rollout.log)
            await self._sleep(mv.Sleep(QUIET))
            if len(rollout.log) == said:
                raise self.world.fail("L12", f"{rollout.id} neither goes on, nor asks for anything, nor ends")

    async def _audit(self) -> None:
        """A client that knew nothing reads each Response from its beginning."""
        self.world.story.did("audit", "attaches to all Responses")
        auditor: Client | None = None
        for number, rollout in enumerate(self.world.rollouts):
            if auditor is None or number % FEW_LANES == 0:
                auditor = await self._client(len(self.world.clients))
            lane = f"audit-{number}"
            frame = {"type": "response.attach", "response_id": rollout.id, "stream_id": lane}
            attached = Answers(frozenset({"attached"}))
            await self._send(frame, Request(auditor, "attach", attached, lane, rollout.id, rollout))
            await self._settle()
            last = rollout.trace.last_sequence_number
            if auditor.feeds[lane].cursor != last:
                raise self.world.fail("L9", f"the replay of {rollout.id} ends at {auditor.feeds[lane].cursor}, not {last}")
            check_ended(self.world, rollout, self._books)

    async def after(self) -> None:
        """As of any machine; what nobody has seen must be let go of before."""
        if self._transport.exact and self.world.unseen:
            self._raise_failure()
            await trio.sleep(LET_GO)
        await super().after()


ENDS_AS: Final = {"cancel": "cancelled", "finish": "completed"}


def _wrong_items(kind: str, rollout: Rollout, call: Mapping[str, Any] | None) -> list[Frame] | None:
    """Items that an append may not hold; empty for one that holds none; None where there is nothing to do wrong."""
    if kind == "unknown":
        return [{"type": "function_call_output", "call_id": "call_nobody_made", "output": "?"}]
    if kind == "assistant":
        return [{"type": "message", "role": "assistant", "content": "I said no such thing"}]
    if kind == "empty":
        return []
    if call is None:
        return None
    good = result_of(call)
    other = {**good, "output": f"another result of {call['call_id']}"}
    if kind == "conflict":
        return [other] if rollout.result(call["call_id"]) else None
    if kind == "twice":
        return [good, other]
    if kind == "mismatch":
        kinds = {"function_call_output": "custom_tool_call_output", "custom_tool_call_output": "function_call_output"}
        return [{**good, "type": kinds[good["type"]]}]
    return [{**bare(call), "name": "another_name"}]
