"""Plays conversations with a server, and checks every frame as it comes: ``play``.

Theory. The machine sends what the moves say, and keeps three accounts:

- of each *client*: the requests that it sent and that are not answered, in order. Each must be answered once, by one of the
  answers that the reference model allows; whatever else comes must belong to a stream that it attached to, at its cursor.
- of each *Response*: its events in their order, from whichever client they were seen first. Each new one must be a legal next
  event (``grammar``); each one seen again must be the same.
- of the *facts*: at the end a client that knew nothing attaches to each Response and must get all of its events; its items
  must be what its script samples (``model``); and where the server's books are open, they must agree.

While everything that was sent is answered and everything that was said is read, the machine knows exactly what comes next,
and expects that. In between it is *hazy*, and allows each order in which things may have happened.

Whatever is wrong raises ``ConformanceError``: the law, what happened, and the conversation as it went.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import trio
from attrs import define, evolve, field

from ..codec import canonical, encode, parse
from ..errors import CODES
from ..grammar import GrammarError
from ..items import OUTPUT_TYPE_OF
from . import moves as mv
from .model import ACCEPTED, Answers, Append, Rollout
from .script import HOSTED, beginning, message_of
from .story import Story
from .transport import Books, Closed, NoBooks, Socket, Transport

Frame = dict[str, Any]
TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
UNATTACHED: Final = frozenset({"response.append.accepted", "response.cancel.accepted", "response.finish.accepted"})
"""Answers without a number: to clients that are not attached, and hear no log."""
ROUNDS: Final = 60
"""How often the finale tries to bring what is live to its end."""

LET_GO: Final = 400.0
"""Seconds after which a server has let go of Responses that nobody is attached to: more than ``detach_seconds``."""


class ConformanceError(AssertionError):
    """A server broke a law. Its text is the law, what happened, and the conversation so far."""

    def __init__(self, law: str, message: str, story: Story) -> None:
        super().__init__(f"{law}: {message}\n{story}")
        self.law = law


@define(eq=False)
class Request:
    """A frame that was sent, and what may answer it."""

    client: "Client"
    kind: str
    answers: Answers
    lane: str | None = None
    response_id: str | None = None
    """As the frame named it: an error names it again."""
    rollout: Rollout | None = None
    append: Append | None = None
    cursor: int = -1
    script: tuple[Any, bool] | None = None
    serial: int = 0


@define(eq=False)
class Feed:
    """One client's stream of one Response, on a lane."""

    rollout: Rollout
    cursor: int
    open: bool = True


@define(eq=False)
class Client:
    """A socket, and what the machine knows of it."""

    name: str
    socket: Socket
    pending: list[Request] = field(factory=list)
    feeds: dict[str | None, Feed] = field(factory=dict)
    """By lane, the newest."""
    used: set[str | None] = field(factory=set)
    """Lanes that creates were sent on."""
    joined: set[str | None] = field(factory=set)
    """Lanes that attaches were sent on."""
    reading: trio.Event = field(factory=trio.Event)
    gone: bool = False

    def feed_of(self, rollout: Rollout) -> Feed | None:
        """Its open stream of ``rollout``."""
        return next((feed for feed in self.feeds.values() if feed.rollout is rollout and feed.open), None)


async def play(
    conversation: mv.Conversation, transport: Transport, *, books: Books | None = None, model: str = "scripted"
) -> list[Rollout]:
    """Play ``conversation``; raises ``ConformanceError``. Returns the Responses as they were at their end."""
    machine = Machine(transport, books or NoBooks(), model)
    try:
        async with trio.open_nursery() as nursery:
            machine.nursery = nursery
            for move in conversation.moves:
                await machine.play(move)
                machine.raise_failure()
            await machine.finale(conversation.finale)
            nursery.cancel_scope.cancel()
        machine.raise_failure()
        await machine.after()
    except ConformanceError:
        raise
    except Exception as error:
        machine.raise_failure()
        error.add_note(str(machine.story))
        raise
    return machine.rollouts


class Machine:
    """One conversation. ``play`` above is its door."""

    nursery: trio.Nursery

    def __init__(self, transport: Transport, books: Books, model: str) -> None:
        self.transport = transport
        self.books = books
        self.model = model
        self.story = Story()
        self.clients: list[Client] = []
        self.rollouts: list[Rollout] = []
        self.failure: ConformanceError | None = None
        self._connected = 0
        self._sent = 0
        self._keys = 0
        self._hazy = False
        self._controllers: dict[Rollout, Client] = {}
        """Who attached last."""
        self._attached: dict[tuple[Client, Rollout], bool] = {}
        self._given: dict[Request, tuple[Frame, Client | Rollout]] = {}
        """Which frame was taken for whose answer, since the last time that all was known."""
        self._lost: list[Request] = []
        """Appends that were lost with their sockets: perhaps they arrived."""
        self._lanes = 0
        self._unseen = False
        """Whether a create was lost with its socket: perhaps there are Responses that nobody has seen."""
        self._moves: dict[type, Callable[[Any], Any]] = {
            mv.Create: self._create,
            mv.Answer: self._answer,
            mv.Again: self._again,
            mv.Wrong: self._wrong,
            mv.Race: self._race,
            mv.Say: self._say,
            mv.Cancel: self._cancel,
            mv.Finish: self._finish,
            mv.Attach: self._attach,
            mv.Drop: self._drop,
            mv.Pause: self._pause,
            mv.Resume: self._resume,
            mv.Bad: self._bad,
            mv.Stranger: self._stranger,
            mv.Sleep: self._sleep,
            mv.Settle: self._settle_move,
        }

    # ---- outcome

    def fail(self, law: str, message: str) -> ConformanceError:
        """A breach. The first one counts."""
        error = ConformanceError(law, message, self.story)
        self.failure = self.failure or error
        return error

    def raise_failure(self) -> None:
        """Raise what a reader found."""
        if self.failure is not None:
            raise self.failure

    # ---- clients

    async def client(self, number: int) -> Client:
        """The client of that number, connected when it is first wanted."""
        while len(self.clients) <= number:
            self.clients.append(await self._connect())
        return self.clients[number]

    async def _connect(self) -> Client:
        client = Client(f"c{self._connected}", await self.transport.connect())
        self._connected += 1
        client.reading.set()
        self.nursery.start_soon(self._listen, client)
        return client

    async def _listen(self, client: Client) -> None:
        try:
            while True:
                await client.reading.wait()
                text = await client.socket.receive_text()
                self._hear(client, parse(text))
        except Closed:
            self._lose(client)
        except ConformanceError as error:
            self.failure = self.failure or error

    def _lose(self, client: Client) -> None:
        client.gone = True
        for feed in client.feeds.values():
            feed.open = False
        for request in client.pending:
            if request.rollout is not None and request.append is not None and ACCEPTED in request.answers.codes:
                request.rollout.lost = True
                request.answers = Answers(request.answers.codes, frozenset({True, False}))
                self._lost.append(request)
            self._unseen |= request.kind == "create"
        client.pending.clear()

    async def _send(self, client: Client, frame: Frame | str | bytes, request: Request | None) -> None:
        raw = frame if isinstance(frame, str | bytes) else encode(frame).decode()
        self.story.sent(client.name, frame)
        if request is not None:
            self._sent += 1
            request.serial = self._sent
            client.pending.append(request)
        try:
            await client.socket.send(raw)
        except Closed:
            self._lose(client)
        self._hazy = True

    # ---- moves

    async def play(self, move: mv.Move) -> None:
        """One move."""
        await self._moves[type(move)](move)

    def _pick(self, number: int) -> Rollout | None:
        return self.rollouts[number % len(self.rollouts)] if self.rollouts else None

    async def _create(self, move: mv.Create) -> None:
        client = await self.client(move.by)
        lane = None if move.lane == 0 else f"lane-{move.lane}"
        text = message_of(move.steps, move.tokens_per_second)
        frame = {"type": "response.create", "model": self.model, "input": text, "continuation": "append"}
        frame |= {"hold": "conversation"} if move.hold else {}
        frame |= {"stream_id": lane} if lane else {}
        frame |= {"tools": [{"type": HOSTED}]} if move.hosted else {}
        if lane in client.joined:  # a Response that was attached to is not in the lane's queue
            lane = frame["stream_id"] = f"lane-{move.lane}"
        client.used.add(lane)
        request = Request(client, "create", Answers(frozenset({"created"})), lane=lane)
        request.script = (beginning(text), move.hold)
        await self._send(client, frame, request)

    async def _answer(self, move: mv.Answer) -> None:
        rollout = self._pick(move.rollout)
        if rollout is None:
            return
        client = await self.client(move.by)
        calls = list(rollout.trace.open_calls.values())
        chosen = [calls[which % len(calls)] for which in move.which] if calls and move.which else calls
        chosen = list({call["call_id"]: call for call in chosen}.values())
        says = [{"type": "message", "role": "user", "content": text} for text in move.say]
        groups = [[call] for call in chosen] if move.split else [chosen]
        for group in groups:
            items = [*map(_bare, group)] if move.echo else []
            items += [self.output(call) for call in group]
            if group is groups[-1]:
                items += says
            if items:
                await self._append(client, rollout, items, named=move.named, keyed=move.keyed)

    def output(self, call: Frame) -> Frame:
        """The result of ``call``: each call has one, always the same, and no two the same."""
        number = int(call["call_id"].encode().hex(), 16) % 9973
        name = call["name"]
        texts = [f"{name} returned {number}", f'{{"exit": 0, "of": "{name}", "n": {number}}}', f"ok ✓ {name} 🎹 {number}"]
        text: Any = texts[number % 3]
        if number % 5 == 0:
            text = [{"type": "input_text", "text": text}, {"type": "input_text", "text": " and more"}]
        return {"type": OUTPUT_TYPE_OF[call["type"]], "call_id": call["call_id"], "output": text}

    async def _append(
        self, client: Client, rollout: Rollout, items: list[Frame], *, named: bool = True, keyed: bool = False
    ) -> None:
        self._keys += keyed
        append = Append(items, f"key-{self._keys}" if keyed else None)
        await self._send_append(client, rollout, append, named=named)

    async def _send_append(self, client: Client, rollout: Rollout, append: Append, *, named: bool) -> None:
        frame: Frame = {"type": "response.append", "input": list(append.items)}
        frame |= {"idempotency_key": append.key} if append.key else {}
        lane = self._lane_of(client, rollout)
        hazy = self._is_hazy(rollout)
        answers = rollout.answers(append, hazy=hazy)
        may_be_left_out = lane is not None and not named and not rollout.ended and not self._creates_wait(client, lane[0])
        frame |= {} if may_be_left_out else {"response_id": rollout.id}
        frame |= {"stream_id": lane[0]} if lane and lane[0] else {}
        answers = self._with_epoch(client, rollout, answers)
        rollout.appends.append(append)
        request = Request(client, "append", answers, lane[0] if lane else None, frame.get("response_id"), rollout, append)
        await self._send(client, frame, request)

    def _lane_of(self, client: Client, rollout: Rollout) -> tuple[str | None] | None:
        return next(((lane,) for lane, feed in client.feeds.items() if feed.rollout is rollout and feed.open), None)

    def _creates_wait(self, client: Client, lane: str | None) -> bool:
        return any(one.kind == "create" and one.lane == lane for one in client.pending)

    def _is_hazy(self, rollout: Rollout) -> bool:
        """Whether more may have happened to it than is known."""
        return self._hazy or not self._is_watched(rollout)

    def _is_watched(self, rollout: Rollout | None) -> bool:
        return rollout is None or any(client.feed_of(rollout) for client in self.clients)

    def _with_epoch(self, client: Client, rollout: Rollout, answers: Answers) -> Answers:
        """A client that attached, and was not the last to, is refused as stale, whatever it says."""
        controller = self._controllers.get(rollout)
        stale = (client, rollout) in self._attached and controller is not client
        if rollout.ended:
            return answers
        attaching = any(one.kind == "attach" and one.rollout is rollout for other in self.clients for one in other.pending)
        if attaching or (self._hazy and stale):
            return Answers(answers.codes | {"stale_epoch"}, answers.duplicate)
        if stale:
            return Answers(frozenset({"stale_epoch"}))
        return answers

    async def _again(self, move: mv.Again) -> None:
        rollout = self._pick(move.rollout)
        sent = [one for one in rollout.appends if not one.refused] if rollout else []
        if rollout is not None and sent:
            former = sent[move.call % len(sent)]
            await self._send_append(await self.client(move.by), rollout, Append(former.items, former.key), named=True)

    async def _wrong(self, move: mv.Wrong) -> None:
        rollout = self._pick(move.rollout)
        if rollout is None:
            return
        calls = list(rollout.trace.calls.values())
        call = calls[move.call % len(calls)] if calls else None
        items = [self.output(one) for one in rollout.trace.open_calls.values()] if move.after_good else []
        bad = self._wrong_items(move.kind, rollout, call)
        if bad is not None:
            await self._append(await self.client(move.by), rollout, [] if move.kind == "empty" else [*items, *bad])

    def _wrong_items(self, kind: str, rollout: Rollout, call: Frame | None) -> list[Frame] | None:
        if kind == "unknown":
            return [{"type": "function_call_output", "call_id": "call_nobody_made", "output": "?"}]
        if kind == "assistant":
            return [{"type": "message", "role": "assistant", "content": "I said no such thing"}]
        if kind == "empty":
            return []
        if call is None:
            return None
        good = self.output(call)
        other = {**good, "output": f"another result of {call['call_id']}"}
        if kind == "conflict":
            return [other] if rollout.result(call["call_id"]) else None
        if kind == "twice":
            return [good, other]
        if kind == "mismatch":
            kinds = {"function_call_output": "custom_tool_call_output", "custom_tool_call_output": "function_call_output"}
            return [{**good, "type": kinds[good["type"]]}]
        return [{**_bare(call), "name": "another_name"}]

    async def _race(self, move: mv.Race) -> None:
        rollout = self._pick(move.rollout)
        calls = list(rollout.trace.open_calls.values()) if rollout else []
        if rollout is None or not calls or move.by == move.other:
            return
        call = calls[move.call % len(calls)]
        good = self.output(call)
        self._hazy = True
        await self._append(await self.client(move.by), rollout, [good])
        other = {**good, "output": f"the other result of {call['call_id']}"}
        appends = rollout.appends[-1:]
        await self._append(await self.client(move.other), rollout, [other])
        self._widen([*appends, rollout.appends[-1]])
        await self._settle()

    def _widen(self, racing: Sequence[Append]) -> None:
        """What was sent first may come second."""
        for client in self.clients:
            for request in client.pending:
                if request.append in racing and ACCEPTED in request.answers.codes:
                    request.answers = evolve(request.answers, codes=request.answers.codes | {"tool_output_conflict"})

    async def _say(self, move: mv.Say) -> None:
        rollout = self._pick(move.rollout)
        if rollout is not None:
            text = move.text if move.steps is None else message_of(move.steps)
            item = {"type": "message", "role": "user", "content": text}
            await self._append(await self.client(move.by), rollout, [item], keyed=True)

    async def _cancel(self, move: mv.Cancel) -> None:
        await self._end(move.by, move.rollout, "cancel")

    async def _finish(self, move: mv.Finish) -> None:
        await self._end(move.by, move.rollout, "finish")

    async def _end(self, by: int, number: int, kind: str) -> None:
        rollout = self._pick(number)
        if rollout is None:
            return
        client = await self.client(by)
        certain = Answers(frozenset({"response_not_active"} if rollout.ended else {"done"}))
        if self._is_hazy(rollout) and not rollout.ended:
            certain = Answers(frozenset({"done", "response_not_active"}))
        answers = self._with_epoch(client, rollout, certain)
        request = Request(client, kind, answers, None, rollout.id, rollout)
        if "done" in answers.codes:
            rollout.cancelled |= kind == "cancel"
        exact = answers.codes == {"done"}
        await self._send(client, {"type": f"response.{kind}", "response_id": rollout.id}, request)
        if exact and kind == "cancel" and not self._paused():
            await self._settle()
            self._must_be_cancelled(rollout, client)

    def _must_be_cancelled(self, rollout: Rollout, client: Client) -> None:
        watched = any(one.feed_of(rollout) for one in self.clients)
        status = (rollout.trace.response or {}).get("status")
        if watched and status != "cancelled":
            raise self.fail("L10", f"{rollout.id} was live when it was cancelled by {client.name}; it is {status}")

    async def _attach(self, move: mv.Attach) -> None:
        rollout = self._pick(move.rollout)
        if rollout is None:
            return
        client = await self.client(move.by)
        last = rollout.trace.last_sequence_number
        cursor = -1 if move.back is None else max(-1, last - move.back)
        lane = None
        if client.used or client.joined:
            self._lanes += 1
            lane = f"attach-{self._lanes}"
        frame: Frame = {"type": "response.attach", "response_id": rollout.id, "starting_after": cursor}
        if move.beyond:
            frame["starting_after"] = 10_000_000 if move.back else -2
            request = Request(client, "attach", Answers(frozenset({"invalid_cursor"})), lane, rollout.id)
        else:
            request = Request(client, "attach", Answers(frozenset({"attached"})), lane, rollout.id, rollout, cursor=cursor)
        await self._send(client, frame | ({"stream_id": lane} if lane else {}), request)
        client.joined.add(lane)

    async def _drop(self, move: mv.Drop) -> None:
        if not self.clients:
            return
        number = move.by % len(self.clients)
        client = self.clients[number]
        self.story.did(client.name, "closes" if move.politely else "drops")
        await (client.socket.aclose() if move.politely else client.socket.drop())
        self._lose(client)
        client.reading.set()
        self.clients[number] = await self._connect()
        self._hazy = True

    async def _pause(self, move: mv.Pause) -> None:
        client = await self.client(move.by)
        if client.reading.is_set():
            client.reading = trio.Event()
            self._hazy = True
            self.story.did(client.name, "stops reading")

    async def _resume(self, move: mv.Resume) -> None:
        (await self.client(move.by)).reading.set()

    async def _bad(self, move: mv.Bad) -> None:
        client = await self.client(move.by)
        await self._send(client, move.frame, Request(client, "bad", Answers(move.codes)))

    async def _stranger(self, move: mv.Stranger) -> None:
        client = await self.client(move.by)
        unknown = "resp_of_a_stranger"
        frame: Frame = {"type": f"response.{move.kind}", "response_id": unknown}
        if move.kind == "append":
            frame["input"] = [{"type": "message", "role": "user", "content": "hello?"}]
        await self._send(client, frame, Request(client, "bad", Answers(frozenset({"response_not_found"})), None, unknown))

    async def _sleep(self, move: mv.Sleep) -> None:
        self.story.did("time", f"passes: {move.seconds:g} s")
        await trio.sleep(move.seconds)
        await self._settle()

    async def _settle_move(self, _: mv.Settle) -> None:
        await self._settle()

    def _paused(self) -> bool:
        return any(not client.reading.is_set() for client in self.clients)

    async def _settle(self) -> None:
        await self.transport.settle()
        self.raise_failure()
        if self._paused():
            return
        for client in self.clients:
            client.pending = [one for one in client.pending if not self._is_settled(one)]
            for request in client.pending:
                if not self._may_wait(client, request):
                    raise self.fail("L12", f"{client.name}'s {request.kind} was not answered")
        if not self.transport.exact:
            return
        self._hazy = False
        self._given = {one: given for one, given in self._given.items() if not self._is_watched(one.rollout)}

    def _is_settled(self, request: Request) -> bool:
        """A cancel or a finish that was not refused by now has done what it does."""
        return "done" in request.answers.codes and self._is_watched(request.rollout)

    def _may_wait(self, client: Client, request: Request) -> bool:
        """A create waits for its lane; of what a Response that nobody watches is told, nobody hears."""
        if request.kind == "create":
            feed = client.feeds.get(request.lane)
            return feed is not None and not feed.rollout.ended
        return request.rollout is not None and request.kind != "attach" and not self._is_watched(request.rollout)

    # ---- what comes

    def _hear(self, client: Client, frame: Frame) -> None:
        self.story.heard(client.name, frame)
        if client.gone:
            return
        kind = frame.get("type")
        if kind == "error":
            self._hear_error(client, frame)
        elif kind == "response.attach.accepted":
            self._hear_attached(client, frame)
        elif "sequence_number" in frame:
            self._hear_event(client, frame)
        elif kind in UNATTACHED:
            self._hear_answer(client, frame)
        else:
            raise self.fail("L3", f"a frame of type {kind} without a number")

    def _hear_error(self, client: Client, frame: Frame) -> None:
        code, response_id = frame.get("code"), frame.get("response_id")
        if code not in CODES or frame.get("error", {}).get("code") != code:
            raise self.fail("L12", f"an error frame with the code {code}")
        if code == "server_error":
            raise self.fail("L2", f"the server failed: {frame.get('message')}")
        if code == "attached_elsewhere":
            self._displace(client, response_id)
            return
        if not self._assign(frame, client, set()):
            wanted = [f"{one.kind}: {', '.join(sorted(one.answers.codes))}" for one in client.pending]
            raise self.fail(_law_of(code), f"{client.name} got the error {code}; waiting for {wanted or 'nothing'}")

    def _displace(self, client: Client, response_id: str | None) -> None:
        for feed in client.feeds.values():
            if feed.rollout.id == response_id and feed.open:
                feed.open = False
                return
        raise self.fail("L9", f"{client.name} lost a stream that it did not have: {response_id}")

    def _hear_answer(self, client: Client, frame: Frame) -> None:
        """What a client that is not attached is told of what it asked for; those who are hear it from the log."""
        asked = [request for request in (*client.pending, *self._given, *self._lost) if request.client is client]
        if not any(request.rollout and request.rollout.id == frame.get("response_id") for request in asked):
            raise self.fail("L13", f"{client.name} was told {frame}, and had not asked")

    def _hear_attached(self, client: Client, frame: Frame) -> None:
        lane, response_id = frame.get("stream_id"), frame.get("response_id")
        for request in client.pending:
            if request.kind == "attach" and request.response_id == response_id and request.rollout is not None:
                break
        else:
            raise self.fail("L9", f"{client.name} was attached to {response_id}, and had not asked")
        client.pending.remove(request)
        if lane != request.lane or frame.get("starting_after") != request.cursor:
            raise self.fail("L9", f"{client.name} attached on {request.lane} at {request.cursor}, got {frame}")
        for former in client.feeds.values():
            former.open &= former.rollout is not request.rollout
        epoch = frame.get("epoch")
        if type(epoch) is not int or epoch in request.rollout.epochs:
            raise self.fail("L9", f"{client.name} attached with the epoch {epoch}; there were {request.rollout.epochs}")
        self._join(client, lane, Feed(request.rollout, request.cursor), epoch)

    def _join(self, client: Client, lane: str | None, feed: Feed, epoch: int) -> None:
        """``client`` has a stream now. Of those that attach at once the one with the highest epoch controls."""
        client.feeds[lane] = feed
        self._attached[client, feed.rollout] = True
        if epoch > max(feed.rollout.epochs, default=-1):
            self._controllers[feed.rollout] = client
        feed.rollout.epochs.add(epoch)

    def _hear_event(self, client: Client, frame: Frame) -> None:
        lane = frame.get("stream_id")
        feed = client.feeds.get(lane)
        if frame["type"] == "response.created" and not (feed and feed.open and feed.cursor == -1):
            feed = self._begin(client, lane, frame)
        if feed is None or not feed.open:
            raise self.fail("L13", f"{client.name} got an event on lane {lane}, where it has no stream: {frame['type']}")
        number = frame["sequence_number"]
        if number != feed.cursor + 1:
            law = "L3" if feed.cursor == feed.rollout.trace.last_sequence_number else "L9"
            raise self.fail(law, f"{client.name} got event {number} of {feed.rollout.id} after {feed.cursor}")
        feed.cursor = number
        self._learn(feed.rollout, {key: value for key, value in frame.items() if key != "stream_id"})

    def _begin(self, client: Client, lane: str | None, frame: Frame) -> Feed:
        former = client.feeds.get(lane)
        if former is not None and former.open and not former.rollout.ended:
            raise self.fail("L13", f"{client.name}: two Responses on lane {lane} at once")
        request = next((one for one in client.pending if one.kind == "create" and one.lane == lane), None)
        if request is None or request.script is None:
            raise self.fail("L13", f"{client.name} got a new Response on lane {lane}, and had not asked")
        client.pending.remove(request)
        rollout = Rollout(*request.script)
        self.rollouts.append(rollout)
        self.story.name(frame.get("response", {}).get("id"), f"r{len(self.rollouts) - 1}")
        feed = Feed(rollout, -1)
        self._join(client, lane, feed, 0)
        return feed

    def _learn(self, rollout: Rollout, frame: Frame) -> None:
        number = frame["sequence_number"]
        if number < len(rollout.log):
            if rollout.log[number] != frame:
                raise self.fail("L9", f"event {number} of {rollout.id} was {rollout.log[number]}, and is now {frame}")
            return
        try:
            rollout.trace.feed(frame)
        except GrammarError as error:
            raise self.fail(error.law, error.message) from None
        rollout.log.append(frame)
        if frame["type"] == "response.append.accepted":
            self._accept(rollout, frame)

    def _accept(self, rollout: Rollout, frame: Frame) -> None:
        if self._assign(frame, rollout, set()):
            return
        call_ids, duplicate = frame["append"]["call_ids"], frame["append"]["duplicate"]
        waiting = [one for one in self._waiting() if one.rollout is rollout and one.append]
        wanted = [f"{one.append.call_ids}, duplicate {set(one.answers.duplicate)}" for one in waiting if one.append]
        raise self.fail("L5", f"accepted {call_ids} (duplicate: {duplicate}); waiting for {wanted or 'nothing'}")

    # ---- which answer is of which request

    def _waiting(self) -> list[Request]:
        """What is not answered, in the order in which it was sent; then what may end without a word, and what was lost."""
        waiting = [request for client in self.clients for request in client.pending]
        return [*sorted(waiting, key=lambda one: ("done" in one.answers.codes, one.serial)), *self._lost]

    def _assign(self, frame: Frame, source: Client | Rollout, tried: set[Request]) -> bool:
        """Find the request that ``frame`` answers. Answers do not name their request, so others that were assigned since all
        was known may have to change theirs."""
        refused = [one for one, (given, _) in self._given.items() if given.get("code") == "response_not_active"]
        likely = self._waiting()
        if "code" not in frame:  # of one client's appends it is the last that found a Response which had ended
            likely = sorted([*likely, *refused], key=lambda one: (one in self._lost, one.serial))
        for request in [*likely, *self._given]:
            if request in tried or not _fits(request, frame, source):
                continue
            if request not in self._given:
                self._give(request, frame, source)
                (self._lost if request in self._lost else request.client.pending).remove(request)
                return True
            tried.add(request)
            former, former_source = self._given[request]
            self._give(request, frame, source)
            if self._assign(former, former_source, tried):
                return True
            self._give(request, former, former_source)
        return False

    def _give(self, request: Request, frame: Frame, source: Client | Rollout) -> None:
        self._given[request] = frame, source
        if request.append is not None:
            request.append.refused = isinstance(source, Client)
            request.append.number = frame.get("sequence_number")

    # ---- the end

    async def finale(self, how: str) -> None:
        """Bring everything to its end, check the facts, close all sockets."""
        for client in self.clients:
            client.reading.set()
        await self._settle()
        for attempt in range(ROUNDS):
            live = [one for one in self.rollouts if not one.ended]
            waiting = any(one.kind == "create" for client in self.clients for one in client.pending)
            if not live and not waiting:
                break
            for rollout in live:
                await self._bring_to_end(rollout, how if attempt < ROUNDS // 2 else "cancel")
            await self._settle()
            await self._sleep(mv.Sleep(1.0))
        else:
            raise self.fail("L12", f"not ended: {[one.id for one in self.rollouts if not one.ended]}")
        await self._audit()
        for client in self.clients:
            await client.socket.aclose()
            self._lose(client)

    async def _bring_to_end(self, rollout: Rollout, how: str) -> None:
        number = self.rollouts.index(rollout)
        at = next((index for index, one in enumerate(self.clients) if self._controls(one, rollout)), None)
        if at is None:
            at = len(self.clients)
            await self._attach(mv.Attach(at, number))
            await self._settle()
        if rollout.ended:
            return
        if how == "cancel":
            await self._end(at, number, "cancel")
        elif rollout.trace.open_calls:
            await self._answer(mv.Answer(at, number))
        elif rollout.trace.parked:
            await self._end(at, number, "finish")

    def _controls(self, client: Client, rollout: Rollout) -> bool:
        return self._controllers.get(rollout) is client and client.feed_of(rollout) is not None

    async def _audit(self) -> None:
        """A client that knew nothing reads each Response from its beginning."""
        self.story.did("audit", "attaches to all Responses")
        auditor = await self._connect()
        self.clients.append(auditor)
        for number, rollout in enumerate(self.rollouts):
            if number % 30 == 29:
                auditor = await self._connect()
                self.clients.append(auditor)
            frame = {"type": "response.attach", "response_id": rollout.id, "stream_id": f"audit-{number}"}
            request = Request(auditor, "attach", Answers(frozenset({"attached"})), f"audit-{number}", rollout.id, rollout)
            await self._send(auditor, frame, request)
            await self._settle()
            feed = auditor.feeds[f"audit-{number}"]
            if feed.cursor != rollout.trace.last_sequence_number:
                raise self.fail(
                    "L9", f"the replay of {rollout.id} ends at {feed.cursor}, not {rollout.trace.last_sequence_number}"
                )
            self._check(rollout)

    def _check(self, rollout: Rollout) -> None:
        response = rollout.trace.response or {}
        status = response.get("status")
        if status == "cancelled" and not rollout.cancelled:
            raise self.fail("L10", f"{rollout.id} is cancelled, and nobody did")
        context = self.books.context(rollout.id)
        if rollout.lost and context is not None:
            self._find_lost(rollout, context)
        wrong = rollout.explain()
        if wrong is not None:
            raise self.fail("L7", f"{rollout.id}: {wrong}")
        self._check_books(rollout, response, context)

    def _find_lost(self, rollout: Rollout, context: Sequence[Frame]) -> None:
        """Of what was lost with its socket and accepted all the same, the books tell which it was."""
        kept = [item["content"] for item in context if item.get("role") == "user"][1:]
        mute = [one for one in rollout.accepted() if one.messages and not one.call_ids]
        unsure = [one for one in rollout.appends if one.messages and not one.call_ids and not one.refused]
        numbers = [one.number for one in mute if not rollout.log[one.number or 0]["append"]["duplicate"]]
        for one in mute:
            one.number = None
        texts = [text for text in kept if any([text] == one.messages for one in unsure)]
        for number, text in zip(numbers, texts, strict=False):
            found = next((one for one in unsure if one.messages == [text] and one.number is None), None)
            if found is not None:
                found.number = number

    def _check_books(self, rollout: Rollout, response: Frame, context: Sequence[Frame] | None) -> None:
        rows = self.books.rows(rollout.id)
        if rows is not None and len(rows) != 1:
            raise self.fail("L15", f"{rollout.id} has {len(rows)} rows")
        if rows:
            usage = response.get("usage") or {}
            row = {name: rows[0][name] for name in ("status", "input_tokens", "output_tokens")}
            told = {"status": response.get("status"), **{name: usage.get(name) for name in ("input_tokens", "output_tokens")}}
            if row != told:
                raise self.fail("L15", f"the row of {rollout.id} says {row}, its end {told}")
        if context is not None:
            self._check_context(rollout, response, context)

    def _check_context(self, rollout: Rollout, response: Frame, context: Sequence[Frame]) -> None:
        """What was acknowledged is there, once, as it was sent; and nothing else."""
        outputs = [item for item in context if item["type"] in OUTPUT_TYPE_OF.values()]
        acknowledged = [found for call_id in rollout.trace.calls if (found := rollout.result(call_id)) is not None]
        if [canonical(item) for item in outputs] != [canonical(item) for item in acknowledged]:
            raise self.fail(
                "L14", f"{rollout.id} has kept the results {outputs}, acknowledged in call order were {acknowledged}"
            )
        said = [item["content"] for item in context if item.get("role") == "user"][1:]
        heard = [text for _, text in rollout.facts()[0]]
        if said != heard:
            raise self.fail("L14", f"{rollout.id} has kept the messages {said}, acknowledged were {heard}")
        made = [item for item in context if item.get("role") != "user" and item not in outputs]
        if made != list(response["output"]):
            raise self.fail("L14", f"{rollout.id} has not kept its own items as it sent them")

    async def after(self) -> None:
        """All sockets are closed, all Responses have ended: nothing may be left."""
        if self._unseen:
            await trio.sleep(LET_GO)
        await self.transport.settle()
        left = self.books.leftovers()
        if left:
            raise self.fail("L11", f"left behind: {', '.join(left)}")


def _fits(request: Request, frame: Frame, source: Client | Rollout) -> bool:
    """Whether ``frame`` may answer ``request``: an error that a client got, or an event of a Response."""
    codes = request.answers.codes
    if isinstance(source, Client):
        named = request.response_id in (None, frame.get("response_id"))
        return request.client is source and frame.get("code") in codes and named
    if request.rollout is not source or request.append is None:
        return False
    told = frame["append"]
    fits = ACCEPTED in codes and told["duplicate"] in request.answers.duplicate
    return fits and request.append.call_ids == told["call_ids"]


def _bare(call: Frame) -> Frame:
    """A call as some clients send it again."""
    return {key: value for key, value in call.items() if key not in ("id", "status")}


def _law_of(code: str) -> str:
    return {"tool_output_conflict": "L5", "tool_call_not_found": "L5", "stale_epoch": "L9"}.get(code, "L12")
