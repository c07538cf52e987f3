"""A reference model of the create and http shapes: what a create may be answered, and what a Response must have come to.

It is a description, not an implementation: it knows nothing of sockets, queues or time. Three questions are all that it is
asked.

*What may the answer to this create be?* (``answers``) A Response begins if what it names can be continued, and if in all that
then stands before the model each call has its one output, behind it, of its kind (``pair``). Nothing is repaired.

*Is what came out what had to come out?* (``Link.follow``) The output of a Response is what its script samples until it needs
the client: where its model stood when the Response before it had ended, moved on by the outputs in call order and then by what
the user said. Hosted calls are answered in the same Response.

*May it end like that?* (``Link.follow``, too) By itself it ends as the script says; it is cut only by what was asked for.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import define, field, frozen

from ...grammar import Trace
from ...items import OUTPUT_TYPE_OF
from ..script import HOSTED, Script, Turn, matches, said_by, steps_of, text_of
from ..transport import Frame
from .moves import How

CREATED: Final = "created"
NOT_FOUND: Final = "previous_response_not_found"
PAIRING: Final = frozenset({"tool_output_missing", "tool_call_not_found", "tool_output_conflict", "tool_output_type_mismatch"})
OUTPUT_TYPES: Final = frozenset(OUTPUT_TYPE_OF.values())
HOSTED_CALL: Final = f"{HOSTED}_call"
GOES_ON: Final = ("completed", "incomplete")
"""How a Response has ended that can be continued."""


class Deviation(Exception):
    """The output of a Response, or its end, is not what it must be."""


@define(eq=False)
class Asked:
    """A create that was sent."""

    key: str | None
    input: list[Frame]
    fields: Frame
    """The rest of it."""
    parent: "Link | None" = None
    """The Response that it names."""
    named: str | None = None
    """``previous_response_id``."""
    script: Script | None = None
    """Where the model then stands, unless that follows from the parent."""
    new: Sequence[Frame] = ()
    """The outputs in ``input`` that are the chain's next."""
    said: Sequence[str] = ()
    """What the user says in ``input``, as the script hears it."""
    first: Sequence[str] = ()
    """And what is said before the outputs."""
    how: How = How()
    hosted: bool = False
    remembered: bool = False
    """Whether the connection surely held the parent in memory when this began."""

    @property
    def stored(self) -> bool:
        """Whether the Response is kept."""
        return self.how.store is not False

    def continues(self, link: "Link") -> bool:
        """Whether ``link`` is what it names, or before that."""
        return self.parent is not None and (self.parent is link or self.parent.asked.continues(link))


@frozen
class End:
    """Where the model stands when a Response has ended; ``calls`` are those of its last turn, whose results it has not read."""

    script: Script | None
    calls: tuple[Frame, ...] = ()


@define(eq=False)
class Link:
    """One Response of a chain, as it is known from outside."""

    asked: Asked
    lane: str | None = None
    obeys: bool = True
    """Whether its model does what its script says."""
    trace: Trace = field(factory=Trace)
    log: list[Frame] = field(factory=list)
    """Its events without their lane, by number."""
    final: Frame | None = None
    """The Response as it ended."""
    id: str = "?"
    steers: list["Steered"] = field(factory=list)
    """That were accepted."""
    cancels: int = 0
    """Cancels that may have ended it."""
    dropped: bool = False
    """Its client has gone before it ended: that may have ended it, too."""
    fate: str | None = None
    """How it must have ended, unheard."""
    deleted: bool = False
    listeners: int = 1
    """Streams of its events that are read. Without one it may have ended, and nobody knows."""
    glimpses: list[Sequence[Frame]] = field(factory=list)
    """Its output, as it was seen while it lived."""
    refused: Collection[str] = ()
    """It has begun, and was to be refused with one of these: it must fail."""

    @property
    def status(self) -> str | None:
        """How it has ended, as far as is known."""
        return self.final["status"] if self.final is not None else self.fate

    @property
    def was_to_fail(self) -> bool:
        """Whether its program says so, or may."""
        return self.begins is None or self.begins.turn().reason == "fail"

    @property
    def lives(self) -> bool:
        """Whether it has not ended, and its client is there to hear it end."""
        return self.final is None and not self.dropped

    @property
    def severed(self) -> bool:
        """Whether it, or one that it continues, was deleted."""
        parent = self.asked.parent
        return self.deleted or (parent is not None and parent.severed)

    @property
    def output(self) -> Sequence[Frame]:
        """Its items; those that are whole, while it has not ended."""
        if self.final is not None:
            return list(self.final["output"])
        return [one["item"] for one in self.log if one["type"] == "response.output_item.done"]

    @property
    def context(self) -> list[Frame]:
        """What stands before the model of a Response that continues it."""
        before = self.asked.parent.context if self.asked.parent is not None else []
        return [*before, *self.asked.input, *self.output]

    @property
    def begins(self) -> Script | None:
        """Where its model stands when it begins to sample; None if nobody can know."""
        asked = self.asked
        if asked.script is not None or asked.parent is None:
            return asked.script
        if asked.parent.final is None:
            return None
        return goes_on(asked.parent.end, asked.new, asked.said, asked.first)

    @property
    def end(self) -> End:
        """Where its model stands at its end."""
        try:
            return self.follow()
        except Deviation:
            return End(None)

    def follow(self) -> End:
        """Where its model has come to; raises ``Deviation`` if it can't have come there."""
        script = self.begins
        calls = tuple(item for item in self.output if _is_call(item))
        if script is None:
            return End(None, calls)
        if self.asked.how.warm:
            return self._warm(script)
        if not self.obeys:
            return self._loosely(script.turn(), calls)
        at = 0
        while True:
            turn = script.turn()
            came = self._came(turn, at)
            at += len(came)
            if len(came) < len(turn.items) or (any(map(_is_cut, came)) and not self._cut_at_the_end(turn, came)):
                return self._stopped(script, came, turn)
            calls = tuple(item for item in came if _is_call(item))
            hosted = calls and turn.reason == "tool_calls" and all(item["type"] == HOSTED_CALL for item in calls)
            if not hosted or (at == len(self.output) and self._was_stopped):
                return self._ended(turn, at, calls)
            script = turn.after.read(_outputs(calls, {}), ())

    def _came(self, turn: Turn, at: int) -> Sequence[Frame]:
        came = self.output[at : at + len(turn.items)]
        for number, (expected, item) in enumerate(zip(turn.items, came, strict=False), at):
            if not matches(expected, item, cut=_is_cut(item)):
                raise Deviation(f"item {number}: expected {expected}, got {_shown(item)}")
        return came

    def _cut_at_the_end(self, turn: Turn, came: Sequence[Frame]) -> bool:
        """Whether all was said, and the model stopped in the last item as it should: some call that incomplete."""
        return turn.reason == self._why and all(map(matches, turn.items, came))

    def _stopped(self, script: Script, came: Sequence[Frame], turn: Turn) -> End:
        """It has not sampled all of ``turn``."""
        if not self._was_stopped or (self._why == "steered" and any(map(_is_cut, came))):
            raise Deviation(f"expected {turn.items[len(came) :] or 'whole items'}, but it {self._ending}")
        made = [item for item in came if not (item["type"] == "message" and not said_by(item))]
        calls = tuple(item for item in came if _is_call(item) and not _is_cut(item))
        if any(item["type"] == HOSTED_CALL and item["status"] != "completed" for item in came):
            return End(None, calls)
        return End(script.past(len(made)), calls)

    def _ended(self, turn: Turn, at: int, calls: tuple[Frame, ...]) -> End:
        """It has sampled all of ``turn``, its last."""
        if at < len(self.output):
            raise Deviation(f"item {at}: the script stops here, but there came {_shown(self.output[at])}")
        wanted = {"tool_calls": "completed", "end": "completed", "fail": "failed"}.get(turn.reason, turn.reason)
        if not self._was_stopped and wanted not in (self.status, self._why):
            raise Deviation(f"the script stops here: {turn.reason}, but it {self._ending}")
        return End(turn.after, calls)

    def _warm(self, script: Script) -> End:
        if self.output or (self.status != "completed" and not self._was_stopped):
            raise Deviation(f"a warm-up has put out {[*map(_shown, self.output)]}, and is {self.status}")
        return End(script)

    def _loosely(self, turn: Turn, calls: tuple[Frame, ...]) -> End:
        """Of a model with a will of its own: whether it calls tools, and else says something."""
        if self.status == "completed" and turn.reason in ("tool_calls", "end"):
            if turn.reason == "tool_calls" and not calls:
                raise Deviation(f"expected calls, got {[*map(_shown, self.output)]}")
            if turn.reason == "end" and turn.items and not any(item["type"] == "message" for item in self.output):
                raise Deviation(f"expected a message, got {[*map(_shown, self.output)]}")
        return End(turn.after, calls)

    @property
    def _why(self) -> str | None:
        details = (self.final or {}).get("incomplete_details") or {}
        reason: str | None = details.get("reason")
        return reason

    @property
    def _ending(self) -> str:
        return f"is {self.status} ({self._why})" if self._why else f"is {self.status}"

    @property
    def _was_stopped(self) -> bool:
        """Whether it was cut by what was asked for: anywhere, that is. One that is still going on may be anywhere, too."""
        if self.status == "incomplete":
            return (self._why == "steered" and bool(self.steers)) or (
                self._why == "max_output_tokens" and self.asked.how.most is not None
            )
        return self.final is None or (self.status == "cancelled" and (self.cancels > 0 or self.dropped))


@define(eq=False)
class Steered:
    """A steer that was accepted, and waits for its Response to end."""

    id: str
    items: list[Frame]
    said: list[str]


def answers(
    asked: Asked, remembered: Collection[Link], *, hazy: bool, forgetting: bool = False, strict: bool = True
) -> frozenset[str]:
    """What may be answered to a create that comes now: ``created``, or the code of an error.

    ``remembered`` are the Responses that the connection holds in memory; ``forgetting``: perhaps not the parent any more.
    ``hazy``: more may have happened than is known. Servers that are not ours (``strict``) may remember more than they must,
    and go on from what has failed; and of outputs only that each call needs one, and each one a call, is known to all.
    """
    parent = asked.parent
    if not strict:
        return _may_be_answered(asked)
    if parent is None:
        return _paired([], asked.input) if asked.named is None else frozenset({NOT_FOUND})
    if parent.asked.key != asked.key:
        return frozenset({NOT_FOUND})
    if parent.status is None:
        return frozenset({CREATED, NOT_FOUND, *PAIRING} if hazy or parent.dropped or not parent.listeners else {NOT_FOUND})
    lost = parent not in remembered and (not parent.asked.stored or parent.severed)
    if parent.status not in GOES_ON or lost:
        return frozenset({NOT_FOUND})
    return _paired(parent.context, asked.input) | ({NOT_FOUND} if forgetting and not parent.asked.stored else set())


def _may_be_answered(asked: Asked) -> frozenset[str]:
    """By a server that is not ours."""
    parent = asked.parent
    if (parent is None and asked.named is not None) or (parent is not None and parent.asked.key != asked.key):
        return frozenset({NOT_FOUND})
    codes = _paired(parent.context if parent is not None else [], asked.input)
    told = parent is None or (parent.status in GOES_ON and parent.asked.stored and not parent.deleted)
    must = codes & {"tool_output_missing", "tool_call_not_found"} and told
    return codes if must or (told and codes == {CREATED}) else codes | {CREATED, NOT_FOUND}


def _paired(context: Iterable[Frame], new: Iterable[Frame]) -> frozenset[str]:
    waiting, _ = pair(context, {})
    left, wrong = pair(new, waiting)
    return frozenset(wrong | ({"tool_output_missing"} if left else set()) or {CREATED})


def pair(items: Iterable[Frame], waiting: Mapping[str, Frame]) -> tuple[dict[str, Frame], set[str]]:
    """The calls that wait for their outputs behind ``items``, before which ``waiting`` do; and what is wrong with them."""
    waits, answered, wrong = dict(waiting), set[str](), set[str]()
    for item in items:
        kind, call_id = item.get("type"), str(item.get("call_id"))
        if kind in OUTPUT_TYPE_OF and not _is_cut(item):
            wrong |= {"tool_output_missing"} if call_id in waits else set()
            waits[call_id] = item
            answered.discard(call_id)
        elif kind in OUTPUT_TYPES and call_id in waits:
            answered.add(call_id)
            wrong |= {"tool_output_type_mismatch"} if OUTPUT_TYPE_OF[waits.pop(call_id)["type"]] != kind else set()
        elif kind in OUTPUT_TYPES:
            wrong.add("tool_output_conflict" if call_id in answered else "tool_call_not_found")
    return waits, wrong


def goes_on(end: End, new: Iterable[Frame], said: Sequence[str], first: Sequence[str] = ()) -> Script | None:
    """Where the model stands at ``end`` when it has read ``first``, the outputs in ``new``, and what then was ``said``.

    While calls wait words do not move a program, and one that begins anew knows nothing of them.
    """
    given = {item["call_id"]: text_of(item["output"]) for item in new if item["type"] in OUTPUT_TYPES}
    outputs = _outputs(end.calls, given)
    if end.script is None or not first or not any(call["type"] in OUTPUT_TYPE_OF for call in end.calls):
        return end.script.read(outputs, [*first, *said]) if end.script is not None else None
    programs = [at for at, text in enumerate(first) if steps_of(text) is not None]
    if programs:
        return end.script.read((), first[programs[-1] :]).read((), said)
    turn = end.script.turn()
    if turn.reason not in ("tool_calls", "end") and all(item.type == "reasoning" for item in turn.items):
        return None  # words do move one that has stopped: what it then sees of the outputs, who knows
    return end.script.read(outputs, said)


def _outputs(calls: Iterable[Frame], given: Mapping[str, str]) -> list[tuple[str, str]]:
    """Of each of ``calls`` that has one the tool's name and its output, in call order."""
    found: list[tuple[str, str]] = []
    for call in calls:
        if call["type"] == HOSTED_CALL:
            results = call.get("results") or ()
            found.append((HOSTED, "\n".join(f"{one.get('filename', '')}: {one.get('text', '')}" for one in results)))
        elif call["call_id"] in given:
            found.append((call["name"], given[call["call_id"]]))
    return found


def _is_call(item: Frame) -> bool:
    return item["type"] in OUTPUT_TYPE_OF or item["type"] == HOSTED_CALL


def _is_cut(item: Mapping[str, Any]) -> bool:
    return item.get("status") == "incomplete"


def _shown(item: Mapping[str, Any]) -> str:
    return f"{item['type']} {item.get('name', '')} {(said_by(item) or '')[:60]!r}"
