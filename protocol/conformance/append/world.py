"""What the machine knows: who asked what, who may hear what, and what every Response has said. No I/O: ``World.hear`` a frame.

Theory. Three accounts are kept:

- of each *client*: the requests that it sent and that are not answered. Each must be answered once, by one of the answers that
  the reference model allows; whatever else comes must belong to a stream that it attached to, at its cursor.
- of each *Response*: its events in their order, from whichever client they were seen first. Each new one must be a legal next
  event (``grammar``); each one that is seen again must be the same.
- of *answers*: a frame does not name the request that it answers. While several may be meant, one is taken for now, and changed
  for another when a later frame leaves no other way.

While everything that was sent is answered and everything that was said is read, the world knows exactly what comes next, and
expects that. In between it is *hazy*, and allows each order in which things may have happened.

Whatever is wrong raises ``ConformanceError``: the law, what happened, and the conversation as it went.
"""

from collections.abc import Sequence
from typing import Final

from attrs import define, evolve, field

from ...errors import CODES
from ...grammar import GrammarError
from ..script import Script
from ..story import ConformanceError, Story
from ..transport import Frame
from .model import ACCEPTED, Answers, Append, Rollout

UNATTACHED: Final = frozenset({"response.append.accepted", "response.cancel.accepted", "response.finish.accepted"})
"""Answers without a number: to clients that are not attached, and hear no log."""

DONE: Final = "done"
"""The answer of a cancel or a finish that is not refused: none of its own."""


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
    script: Script | None = None
    serial: int = 0
    told: bool = False
    """The client, which is not attached, has heard that this was accepted; the log has yet to show it."""


@define(eq=False)
class Feed:
    """One client's stream of one Response, on a lane."""

    rollout: Rollout
    cursor: int
    open: bool = True


@define(eq=False)
class Client:
    """What is known of one socket."""

    name: str
    pending: list[Request] = field(factory=list)
    feeds: dict[str | None, Feed] = field(factory=dict)
    """By lane, the newest."""
    used: set[str | None] = field(factory=set)
    """Lanes that creates were sent on."""
    joined: set[str | None] = field(factory=set)
    """Lanes that attaches were sent on."""
    leaving: bool = False
    """It closes its socket itself."""
    gone: bool = False

    def lane_of(self, rollout: Rollout) -> tuple[str | None] | None:
        """The lane of its open stream of ``rollout``, if it has one."""
        return next(((lane,) for lane, feed in self.feeds.items() if feed.rollout is rollout and feed.open), None)


Source = Client | Rollout
"""Where an answer came from: an error to a client, an acknowledgement from a Response's log."""


class World:
    """Everything that is known of one conversation."""

    def __init__(self) -> None:
        self.story = Story()
        self.clients: list[Client] = []
        self.rollouts: list[Rollout] = []
        self.failure: ConformanceError | None = None
        self.hazy = False
        """Whether something was sent, or may have been said, that is not known of yet."""
        self.unseen = False
        """Whether a create was lost with its socket: perhaps there are Responses that nobody has seen."""
        self._sent = 0
        self._controllers: dict[Rollout, Client] = {}
        """Who attached last."""
        self._attached: set[tuple[Client, Rollout]] = set()
        self._given: dict[Request, tuple[Frame, Source]] = {}
        """Which frame was taken for whose answer, since the last time that all was known."""
        self._usurped: set[Rollout] = set()
        """Responses to which a client perhaps attached whose socket was gone before it heard so."""
        self._claims: dict[str, Client] = {}
        """Whose appends were accepted, where a client that is not attached was told so."""
        self._lost: list[Request] = []
        """Appends that were lost with their sockets: perhaps they arrived."""

    def fail(self, law: str, message: str) -> ConformanceError:
        """A breach, to be raised. The first one counts."""
        error = ConformanceError(law, message, self.story)
        self.failure = self.failure or error
        return error

    # ---- what is sent

    def expect(self, request: Request) -> None:
        """``request`` is being sent."""
        self._sent += 1
        request.serial = self._sent
        if request.append is not None:
            self._may_overtake(request)
        request.client.pending.append(request)
        self.hazy = True

    def _may_overtake(self, request: Request) -> None:
        """What another client has sent before, and answers the same, may come second: then it adds nothing."""
        assert request.append is not None
        for other in self._waiting():
            if other.client is request.client or other.rollout is not request.rollout or other.append is None:
                continue
            answered = not set(other.append.call_ids).isdisjoint(request.append.call_ids)
            if ACCEPTED in other.answers.codes and answered and not other.append.messages:
                other.answers = evolve(other.answers, duplicate=frozenset({True, False}))

    def close(self, client: Client, *, excused: bool) -> None:
        """Its socket is closed; raises ``ConformanceError`` if the server did so, and is not ``excused``."""
        asked = {one.kind for one in client.pending}
        left = client.leaving or client.gone
        self.lose(client)
        if not left and not excused:
            raise self.fail("L13" if "bad" in asked else "L12", f"the server has closed {client.name}'s connection")

    def lose(self, client: Client) -> None:
        """Its socket is gone."""
        client.gone = True
        self.hazy = True
        for feed in client.feeds.values():
            feed.open = False
        for request in client.pending:
            if request.rollout is not None and request.append is not None and ACCEPTED in request.answers.codes:
                request.rollout.muddled = True
                request.answers = Answers(request.answers.codes, frozenset({True, False}))
                self._lost.append(request)
            if request.kind == "attach" and request.rollout is not None:
                self._usurped.add(request.rollout)
            self.unseen |= request.kind == "create"
        client.pending.clear()

    def answers(self, client: Client, rollout: Rollout, append: Append | None = None) -> Answers:
        """What may answer an append that ``client`` sends now; without one, a cancel or a finish."""
        hazy = self.hazy or not self.is_watched(rollout)
        if append is not None:
            answers = rollout.answers(append, hazy=hazy)
        elif rollout.ended:
            answers = Answers(frozenset({"response_not_active"}))
        else:
            answers = Answers(frozenset({DONE, "response_not_active"} if hazy else {DONE}))
        return answers if rollout.ended else self._with_epoch(client, rollout, answers)

    def _with_epoch(self, client: Client, rollout: Rollout, answers: Answers) -> Answers:
        """A client that attached, and was not the last to, is refused as stale, whatever it says."""
        stale = (client, rollout) in self._attached and self._controllers.get(rollout) is not client
        attaching = any(one.kind == "attach" and one.rollout is rollout for other in self.clients for one in other.pending)
        if attaching or rollout in self._usurped or (self.hazy and stale):
            return Answers(answers.codes | {"stale_epoch"}, answers.duplicate)
        return Answers(frozenset({"stale_epoch"})) if stale else answers

    def widen(self, racing: Sequence[Append]) -> None:
        """Of ``racing``, what was sent first may come second."""
        for request in self._waiting():
            if request.append in racing and ACCEPTED in request.answers.codes:
                request.answers = evolve(request.answers, codes=request.answers.codes | {"tool_output_conflict"})

    # ---- what is known

    def is_watched(self, rollout: Rollout | None) -> bool:
        """Whether somebody hears what ``rollout`` says."""
        return rollout is None or any(client.lane_of(rollout) for client in self.clients)

    def controls(self, client: Client, rollout: Rollout) -> bool:
        """Whether ``client`` was the last to attach, and is still there."""
        return self._controllers.get(rollout) is client and client.lane_of(rollout) is not None

    def creates_wait(self, client: Client, lane: str | None) -> bool:
        """Whether a create on ``lane`` was sent and has not begun."""
        return any(one.kind == "create" and one.lane == lane for one in client.pending)

    def overdue(self) -> list[Request]:
        """What should have been answered by now, since the server has said all that it has to say."""
        for client in self.clients:
            client.pending = [one for one in client.pending if not self._is_settled(one)]
        late = [one for client in self.clients for one in client.pending if not self._may_wait(one)]
        return [one for one in late if not self._was_taken(one)]

    def _was_taken(self, request: Request) -> bool:
        """Whether what was taken for the answer of a client that is gone answers ``request``: that one's may be lost."""
        for other, (frame, source) in list(self._given.items()):
            lost = other.client.gone and other.append is not None and len(other.answers.codes) > 1
            if lost and _fits(request, frame, source) and not self._is_anothers(request, frame):
                self._lost.append(other)
                self._take_back(other)
                request.client.pending.remove(request)
                self._give(request, frame, source)
                return True
        return False

    def clear_up(self) -> None:
        """All that was sent is answered, and all that was said is heard; raises ``ConformanceError``."""
        self.hazy = False
        self._given = {one: given for one, given in self._given.items() if not self.is_watched(one.rollout)}
        for client in self.clients:
            for rollout in (feed.rollout for feed in client.feeds.values() if feed.open and not feed.rollout.ended):
                if self._controllers.get(rollout) is not client:
                    raise self.fail("L9", f"{client.name} was replaced as {rollout.id}'s client, and was not told")

    def _is_settled(self, request: Request) -> bool:
        """A cancel or a finish that was not refused by now has done what it does."""
        return DONE in request.answers.codes and self.is_watched(request.rollout)

    def _may_wait(self, request: Request) -> bool:
        """A create waits for its lane; of what a Response that nobody watches is told, nobody hears."""
        if request.kind == "create":
            feed = request.client.feeds.get(request.lane)
            return feed is not None and not feed.rollout.ended
        return request.rollout is not None and request.kind != "attach" and not self.is_watched(request.rollout)

    # ---- what is heard

    def hear(self, client: Client, frame: Frame) -> None:
        """A frame came; raises ``ConformanceError``."""
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
        code = frame.get("code")
        if code not in CODES or frame.get("error", {}).get("code") != code:
            raise self.fail("L12", f"an error frame with the code {code}")
        if code == "server_error":
            raise self.fail("L2", f"the server failed: {frame.get('message')}")
        if code == "attached_elsewhere":
            self._displace(client, frame.get("response_id"))
        elif not self._assign(frame, client, set()):
            wanted = [f"{one.kind}: {', '.join(sorted(one.answers.codes))}" for one in client.pending]
            law = LAW_OF_CODE.get(code, "L12")
            raise self.fail(law, f"{client.name} got the error {code}; waiting for {wanted or 'nothing'}")

    def _displace(self, client: Client, response_id: str | None) -> None:
        for feed in client.feeds.values():
            if feed.rollout.id == response_id and feed.open:
                feed.open = False
                return
        raise self.fail("L9", f"{client.name} lost a stream that it did not have: {response_id}")

    def _hear_answer(self, client: Client, frame: Frame) -> None:
        """What a client that is not attached is told of what it asked for; those who are hear it from the log."""
        asked = (request for request in (*client.pending, *self._given, *self._lost) if request.client is client)
        rollouts = (request.rollout for request in asked)
        rollout = next((one for one in rollouts if one is not None and one.id == frame.get("response_id")), None)
        if rollout is None:
            raise self.fail("L13", f"{client.name} was told {frame}, and had not asked")
        if "append" not in frame:
            return
        duplicate, call_ids = frame["append"]["duplicate"], set(frame["append"]["call_ids"])
        if not duplicate:
            self._claims[frame["append"]["id"]] = client
        if any(event.get("append") == frame["append"] for event in rollout.log):
            return  # who is attached told of it first, and a request that it answers was found
        for request in client.pending:  # one client's appends are answered in their order
            if request.told or not request.append or set(request.append.call_ids) != call_ids:
                continue
            if ACCEPTED in request.answers.codes and duplicate in request.answers.duplicate:
                request.told, request.answers = True, Answers(frozenset({ACCEPTED}), frozenset({duplicate}))
                return
        heard = (one for one, (given, _) in self._given.items() if one.client is client and "append" in given)
        if not any(one.append and set(one.append.call_ids) == call_ids for one in heard):
            raise self.fail("L5", f"{client.name} was told {frame['append']}, which was not to be accepted")

    def _hear_attached(self, client: Client, frame: Frame) -> None:
        lane, response_id, epoch = frame.get("stream_id"), frame.get("response_id"), frame.get("epoch")
        asked = [one for one in client.pending if one.kind == "attach" and one.response_id == response_id]
        request = next((one for one in asked if one.rollout is not None), None)
        if request is None or request.rollout is None:
            raise self.fail("L9", f"{client.name} was attached to {response_id}, and had not asked")
        client.pending.remove(request)
        if lane != request.lane or frame.get("starting_after") != request.cursor:
            raise self.fail("L9", f"{client.name} attached on {request.lane} at {request.cursor}, got {frame}")
        if type(epoch) is not int or epoch in request.rollout.epochs:
            raise self.fail("L9", f"{client.name} attached with the epoch {epoch}; there were {request.rollout.epochs}")
        for former in client.feeds.values():
            former.open &= former.rollout is not request.rollout
        self._join(client, lane, Feed(request.rollout, request.cursor), epoch)

    def _join(self, client: Client, lane: str | None, feed: Feed, epoch: int) -> None:
        """``client`` has a stream now. Of those that attach at once the one with the highest epoch controls."""
        client.feeds[lane] = feed
        self._attached.add((client, feed.rollout))
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
        rollout = Rollout(request.script)
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
        if frame["type"] == "response.append.accepted" and not self._assign(frame, rollout, set()):
            waiting = [one for one in self._waiting() if one.rollout is rollout and one.append]
            wanted = [f"{one.append.call_ids}, duplicate {set(one.answers.duplicate)}" for one in waiting if one.append]
            raise self.fail("L5", f"accepted {frame['append']}; waiting for {wanted or 'nothing'}")

    # ---- which answer is of which request

    def _waiting(self) -> list[Request]:
        """What is not answered, in the order in which it was sent; then what may end without a word, and what was lost."""
        waiting = [request for client in self.clients for request in client.pending]
        return [*sorted(waiting, key=lambda one: (DONE in one.answers.codes, one.serial)), *self._lost]

    def _assign(self, frame: Frame, source: Source, tried: set[Request]) -> bool:
        """Find the request that ``frame`` answers; others that were found since all was known may have to change theirs."""
        likely = self._waiting()
        if "code" not in frame:  # of one client's appends it is the last that found a Response which had ended
            refused = [one for one, (given, _) in self._given.items() if given.get("code") == "response_not_active"]
            likely = sorted([*likely, *refused], key=lambda one: (one in self._lost, one.serial))
        for request in [*likely, *self._given]:
            if request in tried or not _fits(request, frame, source) or self._is_anothers(request, frame):
                continue
            former = self._given.get(request)
            self._give(request, frame, source)
            if former is None:
                (self._lost if request in self._lost else request.client.pending).remove(request)
                return True
            tried.add(request)
            if self._assign(*former, tried):
                if request.rollout is not None:
                    request.rollout.muddled = True
                return True
            self._give(request, *former)
        return False

    def _is_anothers(self, request: Request, frame: Frame) -> bool:
        """Whether the append that ``frame`` accepts is known to be another client's."""
        append = frame.get("append", {})
        return not append.get("duplicate") and self._claims.get(append.get("id"), request.client) is not request.client

    def _take_back(self, request: Request) -> None:
        """What was taken for its answer was none."""
        del self._given[request]
        if request.append is not None and request.rollout is not None:
            request.append.number, request.append.refused, request.rollout.muddled = None, False, True

    def _give(self, request: Request, frame: Frame, source: Source) -> None:
        self._given[request] = frame, source
        if request.append is not None:
            request.append.refused = isinstance(source, Client)
            request.append.number = frame.get("sequence_number")


LAW_OF_CODE: Final = {"tool_output_conflict": "L5", "tool_call_not_found": "L5", "stale_epoch": "L9"}
"""Which law an error breaks that should not have come."""


def _fits(request: Request, frame: Frame, source: Source) -> bool:
    """Whether ``frame`` may answer ``request``: an error that a client got, or an event of a Response."""
    codes = request.answers.codes
    if isinstance(source, Client):
        named = request.response_id in (None, frame.get("response_id"))
        return request.client is source and frame.get("code") in codes and named
    if request.rollout is not source or request.append is None:
        return False
    told: Frame = frame["append"]
    fits = ACCEPTED in codes and told["duplicate"] in request.answers.duplicate
    return fits and request.append.call_ids == told["call_ids"]
