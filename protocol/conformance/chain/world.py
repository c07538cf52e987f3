"""What the machine knows of a conversation in the create shape: who asked what, and what every Response has said. No I/O.

Theory. On a socket each create is answered in its turn on its lane: by ``response.created``, or by an error with the lane's
name. What may be answered depends on what is true when the create is started; so while it waits, whatever could have become
true is added to its possible answers (``_reconsider``). While everything that was sent is answered and everything that was
said is read, the world knows exactly what comes next, and expects that. In between it is *hazy*, and allows each order in
which things may have happened.

Whatever is wrong raises ``ConformanceError``: the law, what happened, and the conversation as it went.
"""

from collections.abc import Collection
from typing import Final

from attrs import define, evolve, field

from ...errors import CODES
from ...grammar import GrammarError
from ..story import ConformanceError, Story
from ..transport import Frame
from .audit import check_final
from .model import CREATED, GOES_ON, PAIRING, Asked, Link, Steered, answers, pair

DONE: Final = "done"
"""The answer of a cancel that is not refused: none of its own, but for the Response's end."""
TOLD: Final = "response.cancel.accepted"
"""And what a client hears that is not the one the Response answers to."""
ACCEPTED: Final = "accepted"
NOT_ACTIVE: Final = frozenset({"response_not_active"})
UNKNOWN: Final = frozenset({"response_not_found", "previous_response_not_found"})


@define(eq=False)
class Request:
    """A frame that was sent, and what may answer it."""

    client: "Client"
    kind: str
    codes: frozenset[str]
    lane: str | None = None
    response_id: str | None = None
    link: Link | None = None
    asked: Asked | None = None
    steered: Steered | None = None
    sure: bool = False
    """Whether ``codes`` are not to be thought over."""


@define(eq=False)
class Client:
    """What is known of one socket."""

    name: str
    key: str | None = None
    pending: list[Request] = field(factory=list)
    feeds: dict[str | None, Link] = field(factory=dict)
    """By lane, the newest."""
    memory: dict[str | None, Link] = field(factory=dict)
    """What the connection remembers: of each lane the Response that ended last, and can be continued."""
    waiting: dict[str, list[Steered]] = field(factory=dict)
    """Steers that wait for the client's create, by the id of the Response that it has to name."""
    gone: bool = False

    def creates(self, lane: str | None) -> list[Request]:
        """What was asked for on ``lane``, and has not begun."""
        return [one for one in self.pending if one.kind == "create" and one.lane == lane]

    def is_free(self, lane: str | None) -> bool:
        """Whether nothing is under way on ``lane``."""
        feed = self.feeds.get(lane)
        return not self.creates(lane) and (feed is None or feed.final is not None)


class World:
    """Everything that is known of one conversation. ``strict``: the server has the error codes and the frames of ours."""

    def __init__(self, *, strict: bool = True, obeys: bool = True) -> None:
        self.story = Story()
        self.clients: list[Client] = []
        self.links: list[Link] = []
        self.failure: ConformanceError | None = None
        self.hazy = False
        self.strict = strict
        self.obeys = obeys

    def fail(self, law: str, message: str) -> ConformanceError:
        """A breach, to be raised. The first one counts."""
        error = ConformanceError(law, message, self.story)
        self.failure = self.failure or error
        return error

    # ---- what is sent

    def expect(self, request: Request) -> None:
        """``request`` is being sent."""
        self.hazy = True
        if not request.client.gone:
            request.client.pending.append(request)

    def may_create(self, client: Client, lane: str | None, asked: Asked) -> Request:
        """The request of a create that ``client`` sends now."""
        sure = not self.hazy and client.is_free(lane)
        asked.remembered = sure and asked.parent in client.memory.values()
        return Request(client, "create", self._answers(client, asked, hazy=not sure), lane, asked=asked, sure=sure)

    def may_cancel(self, client: Client, link: Link, *, named: bool) -> Request:
        """The request of a cancel that ``client`` sends now."""
        own = link in client.feeds.values()
        if link.asked.key != client.key:
            codes = frozenset({"response_not_found"})
        elif link.status is not None:
            codes = NOT_ACTIVE
        else:
            codes = frozenset({DONE if own else TOLD}) | (NOT_ACTIVE if self.hazy or link.dropped else frozenset())
        return Request(client, "cancel", codes, link.lane, link.id if named else None, link)

    def may_steer(self, client: Client, link: Link, steered: Steered, *, bad: bool) -> Request:
        """The request of a steer that ``client`` sends now."""
        ended = frozenset({"response_already_completed", "response_not_found"})
        if link not in client.feeds.values():
            codes = frozenset({"response_not_found"}) | (ended if link.lane in client.feeds else frozenset())
        elif link.status is not None:
            codes = ended
        else:
            codes = frozenset({ACCEPTED}) | (ended if self.hazy else frozenset())
        codes = (codes - {ACCEPTED}) | {"invalid_input"} if bad else codes
        return Request(client, "steer", codes, link.lane, link.id, link, steered=steered)

    def lose(self, client: Client) -> None:
        """Its socket is gone: what it had is cancelled."""
        if client.gone:
            return
        client.gone = True
        for link in client.feeds.values():
            if link.lives:
                link.dropped = True
                link.fate = None if self.hazy else "cancelled"
        self.hazy = True
        client.pending.clear()
        client.memory.clear()
        client.waiting.clear()

    def _answers(self, client: Client, asked: Asked, *, hazy: bool = True) -> frozenset[str]:
        remembered = set(client.memory.values())
        parent = asked.parent
        forgetting = hazy and parent in remembered and parent is not None and self._may_forget(client, parent)
        return answers(asked, remembered, hazy=hazy, forgetting=forgetting, strict=self.strict)

    def _may_forget(self, client: Client, parent: Link) -> bool:
        """Whether something is under way that may make the connection forget ``parent``."""
        lanes = [lane for lane, link in client.memory.items() if link is parent]
        return any(not client.is_free(lane) for lane in lanes)

    def _reconsider(self, ended: Link | None = None) -> None:
        """Something has changed: what was not sure may be answered in another way, too. What continues the one that has
        ``ended`` on its lane waited for that, and has seen nothing else."""
        for client in self.clients:
            for request in client.pending:
                if request.asked is not None and not request.sure:
                    codes = self._answers(client, request.asked)
                    waited = ended is not None and client.feeds.get(request.lane) is request.asked.parent is ended
                    request.codes = codes if waited else codes | request.codes
                    request.asked.remembered = waited

    # ---- what is known

    def overdue(self) -> list[Request]:
        """What should have been answered by now, since the server has said all that it has to say."""
        for client in self.clients:
            client.pending = [one for one in client.pending if not self._is_done(one)]
        return [one for client in self.clients for one in client.pending if not self._may_wait(one)]

    def clear_up(self) -> None:
        """All that was sent is answered, and all that was said is heard."""
        self.hazy = False

    def _is_done(self, request: Request) -> bool:
        """A cancel that was not refused by now has ended its Response."""
        if DONE not in request.codes or request.link is None or request.link.final is None:
            return False
        if request.link.status != "cancelled":
            raise self.fail("L10", f"the cancel of {request.link.id} was not refused; it is {request.link.status}")
        return True

    def _may_wait(self, request: Request) -> bool:
        feed = request.client.feeds.get(request.lane)
        return request.kind == "create" and feed is not None and feed.final is None

    # ---- what is heard

    def hear(self, client: Client, frame: Frame) -> None:
        """A frame came; raises ``ConformanceError``."""
        self.story.heard(client.name, frame)
        if client.gone:
            return
        kind = str(frame.get("type"))
        if kind == "error":
            self._hear_error(client, frame)
        elif kind in ("response.steer.failed", "response.steer.pending"):
            self._hear_of_steer(client, kind, frame)
        elif kind == TOLD and "sequence_number" not in frame:
            self._take(client, "cancel", {TOLD}, frame.get("response_id"))
        elif "sequence_number" in frame:
            self._hear_event(client, frame)
        else:
            raise self.fail("L3", f"a frame of type {kind} without a number")

    def _take(self, client: Client, kind: str, codes: Collection[str], response_id: str | None) -> Request:
        """The request of ``client`` that is answered with one of ``codes``."""
        for request in client.pending:
            if request.kind == kind and request.codes & set(codes) and request.response_id == response_id:
                client.pending.remove(request)
                return request
        law = "L10" if kind == "cancel" else "L12"
        raise self.fail(law, f"{client.name} was told {', '.join(codes)} of {response_id}; waiting for {self._wanted(client)}")

    def _wanted(self, client: Client) -> str:
        return "; ".join(f"{one.kind} on {one.lane}: {', '.join(sorted(one.codes))}" for one in client.pending) or "nothing"

    def _hear_error(self, client: Client, frame: Frame) -> None:
        code = frame.get("code") if self.strict else (frame.get("error") or {}).get("code")
        if self.strict and (code not in CODES or frame.get("error", {}).get("code") != code):
            raise self.fail("L12", f"an error frame with the code {code}")
        if code == "server_error" and self.strict:
            raise self.fail("L2", f"the server failed: {frame.get('message')}")
        fitting = [one for one in client.pending if self._fits(one, code, frame)]
        request = next(iter(fitting), None)
        if request is not None and request.kind == "cancel":
            request = [one for one in fitting if one.kind == "cancel"][-1]  # of several only the first can have been in time
        live = client.feeds.get(frame.get("stream_id"))
        if not self.strict and (request is None or request.kind == "create") and live is not None and live.lives:
            self._broken_off(client, live, frame)
            return
        if request is None:
            hidden = any(one.codes <= UNKNOWN for one in client.pending)
            law = "L14" if code in PAIRING else "L13" if code in UNKNOWN or hidden else "L12"
            raise self.fail(law, f"{client.name} got the error {code}; waiting for {self._wanted(client)}")
        client.pending.remove(request)
        if request.asked is not None:
            self._refused(client, request.lane, request.asked)

    def _broken_off(self, client: Client, link: Link, frame: Frame) -> None:
        """An error ends a Response that has begun, as Open Responses has it on WebSockets, instead of ``response.failed``."""
        link.final = {"id": link.id, "status": "failed", "output": link.output, "error": frame.get("error")}
        self._ended(client, link.lane, link)

    def _fits(self, request: Request, code: object, frame: Frame) -> bool:
        if request.kind == "create":
            lane = frame.get("stream_id") == request.lane or (not self.strict and "stream_id" not in frame)
            return lane and request is request.client.creates(request.lane)[0] and self._may_be(request, code)
        named = request.kind != "cancel" or frame.get("response_id") == request.response_id or not self.strict
        return request.kind != "steer" and named and self._may_be(request, code)

    def _may_be(self, request: Request, code: object) -> bool:
        return code in request.codes if self.strict else bool(request.codes - {CREATED, DONE, TOLD})

    def _refused(self, client: Client, lane: str | None, asked: Asked) -> None:
        self._evict(client, lane, asked)
        self._reconsider()

    def _evict(self, client: Client, lane: str | None, asked: Asked) -> None:
        """A continuation has failed: its lane forgets what it named."""
        if asked.parent is not None and client.memory.get(lane) is asked.parent:
            del client.memory[lane]

    def _hear_event(self, client: Client, frame: Frame) -> None:
        lane = frame.get("stream_id")
        link = client.feeds.get(lane)
        if frame["type"] == "response.created" and not (link is not None and link.final is None and not link.log):
            link = self._begin(client, lane, frame)
        if link is None or link.final is not None:
            raise self.fail(
                "L13" if link is None else "L2", f"{client.name} got {frame['type']} on lane {lane}: nothing is live"
            )
        final = self.learn(link, {key: value for key, value in frame.items() if key != "stream_id"})
        if frame["type"] == "response.steer.accepted":
            self._accepted(client, link, frame)
        if final is not None:
            link.final = final
            self._ended(client, lane, link)

    def _begin(self, client: Client, lane: str | None, frame: Frame) -> Link:
        former = client.feeds.get(lane)
        if former is not None and former.final is None:
            raise self.fail("L13", f"{client.name}: two Responses on lane {lane} at once")
        request = next(iter(client.creates(lane)), None)
        if request is None or request.asked is None:
            raise self.fail("L13", f"{client.name} got a new Response on lane {lane}, and had not asked")
        client.pending.remove(request)
        link = self.add(client, lane, request.asked, frame)
        if CREATED not in request.codes:
            link.refused = request.codes
        if link.refused and self.strict:
            raise self._not_refused(link, "has begun")
        return link

    def _not_refused(self, link: Link, done: str) -> ConformanceError:
        law = "L5" if PAIRING & set(link.refused) else "L13"
        return self.fail(law, f"a Response {done} on lane {link.lane} that was to be refused: {', '.join(link.refused)}")

    def add(self, client: Client, lane: str | None, asked: Asked, frame: Frame) -> Link:
        """A Response has begun: it is in ``frame``."""
        waiting = client.waiting.pop(asked.named or "", [])
        asked.input = [*(item for one in waiting for item in one.items), *asked.input]
        asked.first = [*(text for one in waiting for text in one.said), *asked.first]
        link = Link(asked, lane, self.obeys, id=str((frame.get("response") or {}).get("id")))
        if any(one.id == link.id for one in self.links):
            raise self.fail("L13", f"two Responses are called {link.id}")
        self.links.append(link)
        self.story.name(link.id, f"r{len(self.links) - 1}")
        client.feeds[lane] = link
        return link

    def learn(self, link: Link, frame: Frame) -> Frame | None:
        """An event of ``link``: a new one, or one that was heard before. Returns the Response if it is the terminal one."""
        number = frame["sequence_number"]
        if isinstance(number, int) and 0 <= number < len(link.log):
            if link.log[number] != frame:
                raise self.fail("L9", f"event {number} of {link.id} was {link.log[number]}, and is now {frame}")
            return None
        try:
            link.trace.feed(frame)
        except GrammarError as error:
            raise self.fail(error.law, error.message) from None
        link.log.append(frame)
        return dict(link.trace.response or {}) if link.trace.ended else None

    def _ended(self, client: Client, lane: str | None, link: Link) -> None:
        """Its terminal event came: it can be continued, and its lane goes on."""
        if link.status in GOES_ON:
            client.memory[lane] = link
        else:
            self._evict(client, lane, link.asked)
        if link.steers:
            self._steer_on(client, lane, link)
        self.conclude(link)

    def conclude(self, link: Link) -> None:
        """It is known how ``link`` has ended."""
        if link.refused and link.status != "failed":
            raise self._not_refused(link, f"is {link.status}")
        wrong = check_final(link, strict=self.strict) if not link.refused else None
        if wrong is not None:
            raise self.fail(*wrong)
        self._reconsider(link)

    # ---- steers

    def _accepted(self, client: Client, link: Link, frame: Frame) -> None:
        steer = frame.get("steer") or {}
        request = self._take(client, "steer", {ACCEPTED}, link.id)
        if steer.get("previous_response_id") != link.id or not steer.get("id") or request.steered is None:
            raise self.fail("L12", f"a steer of {link.id} was accepted as {steer}")
        request.steered.id = steer["id"]
        link.steers.append(request.steered)

    def _steer_on(self, client: Client, lane: str | None, link: Link) -> None:
        """What becomes of the steers of ``link``, which has ended."""
        kind, code = "steer.pending", ACCEPTED
        if link.status not in GOES_ON:
            kind, code = "steer.failed", "successor_creation_failed"
        elif not pair(link.context, {})[0]:
            items = [item for one in link.steers for item in one.items]
            said = [text for one in link.steers for text in one.said]
            how = evolve(link.asked.how, warm=False)
            asked = Asked(link.asked.key, items, link.asked.fields, link, link.id, said=said, how=how, hosted=link.asked.hosted)
            client.pending.insert(0, Request(client, "create", frozenset({CREATED}), lane, asked=asked, sure=True))
            return
        else:
            client.waiting[link.id] = link.steers
        for one in link.steers:
            client.pending.insert(0, Request(client, kind, frozenset({code}), lane, one.id, link))

    def _hear_of_steer(self, client: Client, kind: str, frame: Frame) -> None:
        steer = frame.get("steer") or {}
        if kind == "response.steer.pending":
            request = self._take(client, "steer.pending", {ACCEPTED}, steer.get("id"))
            wanted = list(pair(request.link.context, {})[0]) if request.link else []
            asked = [stub.get("call_id") for stub in frame.get("required_input") or ()]
            if asked != wanted:
                raise self.fail("L14", f"the steer waits for {asked}; open are {wanted}")
            return
        code = str((frame.get("error") or {}).get("code"))
        if "id" in steer:
            self._take(client, "steer.failed", {code}, steer["id"])
        else:
            self._take(client, "steer", {code}, steer.get("previous_response_id"))
