"""Which event may follow which: checks any trace of one Response, of any server, frame by frame.

Theory. A trace is the numbered events of one Response in their order, whatever shape it has and over however many
sockets it came. Three machines run side by side, and a frame must be a legal move in all that it
concerns:

- the Response (``RESPONSE``): created, in progress, parked, ended;
- each item: added, what is inside, done. Items that are sampled (messages, reasoning, a client's calls) come one
  after the other, since one model speaks; hosted calls may go on beside them, and during a park;
- each text (``TEXT``) of an item, a content part's or a call's arguments: deltas, the whole, closed.

What is said twice must agree, byte for byte: the deltas with the whole, that with the part, the part with the item,
the items with the output of the terminal event. An item that was cut (``incomplete``) may leave out what would have
closed its texts, but has what its deltas said; no item begins after it, and its Response is not ``completed``.

Of the append shape: a call is open from its ``response.output_item.done`` until its result is acknowledged, here as
on the wire. ``response.done`` asks for exactly the open calls, or for the user; nothing is sampled until it got them;
and ``pending`` of each acknowledgement is what then remains open.

Frames without a number are not part of a trace: ``error``, ``response.attach.accepted`` and ``response.steer.*`` are
skipped, so that all that a socket said can be fed; any other is a breach of L3. A server that numbers them is counted
along.

A trace that was replayed after a cursor is checked together with what came before it: ``check_replay``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, NoReturn

from attrs import define, field

from .items import OUTPUT_TYPE_OF
from .lifecycle import TERMINAL_EVENTS, IllegalMove, Table

Frame = Mapping[str, Any]
"""An event as JSON values."""


class GrammarError(Exception):
    """A trace breaks a law: ``L2`` one end, ``L3`` gap-free, ``L4`` grammar, ``L5`` write-once, ``L9`` replay."""

    def __init__(self, law: str, message: str, frame: Frame | None = None) -> None:
        super().__init__(f"{law}: {message}")
        self.law = law
        self.message = message
        self.frame = frame


class State(StrEnum):
    """Where a trace is."""

    EMPTY = "not created"
    CREATED = "created"
    LIVE = "in progress"
    PARKED = "parked"
    ENDED = "ended"


RESPONSE: Final = Table[State](
    "Response",
    {
        (State.EMPTY, "created"): State.CREATED,
        (State.CREATED, "queued"): State.CREATED,
        (State.CREATED, "in_progress"): State.LIVE,
        (State.CREATED, "cut"): State.ENDED,
        (State.LIVE, "in_progress"): State.LIVE,
        (State.LIVE, "begin"): State.LIVE,
        (State.LIVE, "inside"): State.LIVE,
        (State.LIVE, "park"): State.PARKED,
        (State.LIVE, "accepted"): State.LIVE,
        (State.LIVE, "completed"): State.ENDED,
        (State.LIVE, "cut"): State.ENDED,
        (State.PARKED, "in_progress"): State.PARKED,
        (State.PARKED, "inside"): State.PARKED,
        (State.PARKED, "accepted"): State.PARKED,
        (State.PARKED, "wake"): State.LIVE,
        (State.PARKED, "completed"): State.ENDED,
        (State.PARKED, "cut"): State.ENDED,
    },
)
"""``begin`` an item; ``inside`` one; ``cut``: incomplete or failed; ``wake`` has no event: what was asked for is
there."""


class TextState(StrEnum):
    """Where a text is. A call's arguments are not closed: the item's end closes them."""

    OPEN = "open"
    WHOLE = "whole"
    CLOSED = "closed"


TEXT: Final = Table[TextState](
    "text",
    {
        (TextState.OPEN, "delta"): TextState.OPEN,
        (TextState.OPEN, "done"): TextState.WHOLE,
        (TextState.WHOLE, "close"): TextState.CLOSED,
    },
)


class TextRule(NamedTuple):
    """Where a text is.

    ``item`` is the type of its item, ``counter`` what counts the parts there and ``part`` the type of its part (both
    empty for calls); ``name`` is the field that it stands in as a whole: in its done event, in the part, in the item.
    """

    item: str
    counter: str
    part: str
    name: str


TEXTS: Final = {
    "response.output_text": TextRule("message", "content_index", "output_text", "text"),
    "response.refusal": TextRule("message", "content_index", "refusal", "refusal"),
    "response.reasoning_text": TextRule("reasoning", "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text": TextRule("reasoning", "summary_index", "summary_text", "text"),
    "response.function_call_arguments": TextRule("function_call", "", "", "arguments"),
    "response.custom_tool_call_input": TextRule("custom_tool_call", "", "", "input"),
}
PARTS: Final = {"response.content_part": "content_index", "response.reasoning_summary_part": "summary_index"}
LISTS: Final = {"content_index": "content", "summary_index": "summary"}
"""What counts the parts, and where the item has them."""

SAMPLED: Final = frozenset({"message", "reasoning", *OUTPUT_TYPE_OF})
"""The types of item that the model speaks, one after the other. All others are hosted."""

ACCEPTED: Final = "response.append.accepted"
"""Without a number it is the answer to a client that is not attached, and part of no trace."""
UNNUMBERED: Final = (
    "error",
    "response.attach.accepted",
    "response.cancel.accepted",
    "response.finish.accepted",
    "response.steer.",
    "responsesapi.",
)
"""What types begin with that are not part of a trace."""


@define
class _Text:
    rule: TextRule
    state: TextState = TextState.OPEN
    pieces: list[str] = field(factory=list)
    part: Frame | None = None

    @property
    def value(self) -> str:
        return "".join(self.pieces)


@define
class _Item:
    index: int
    item: Frame
    """As it was added; as it is done, once it is."""
    texts: dict[str, list[_Text]] = field(factory=dict)
    """By what counts them."""

    @property
    def type(self) -> Any:
        return self.item["type"]


class Trace:
    """The trace of one Response so far. After a ``GrammarError`` it is of no more use.

    ``append_shape``: it is known to have that shape, so that a Response with open calls is not completed. Without it, the
    first event that only this shape has tells. ``replacement_ok``: the text may hold U+FFFD in earnest. Without it, one
    means that a character was split.
    """

    def __init__(self, *, append_shape: bool = False, replacement_ok: bool = False) -> None:
        self.append_shape = append_shape
        self.replacement_ok = replacement_ok
        self.state = State.EMPTY
        self.response_id: str | None = None
        self.last_sequence_number = -1
        self.usage: Frame | None = None
        self.response: Frame | None = None
        """The Response of the terminal event."""
        self.calls: dict[str, Frame] = {}
        """The client's calls that were made, whole, by call id."""
        self.open_calls: dict[str, Frame] = {}
        """Those whose results were not acknowledged."""
        self.parks = 0
        self._items: list[_Item] = []
        self._open_items: dict[int, _Item] = {}
        self._item_ids: set[str] = set()
        self._frame: Frame | None = None
        self._asks_user = False
        self._cut = False

    # ---- reading

    @property
    def ended(self) -> bool:
        """Whether the terminal event was seen."""
        return self.state is State.ENDED

    @property
    def parked(self) -> bool:
        """Whether the Response waits for what ``response.done`` asked for, or for hosted calls beside it."""
        return self.state is State.PARKED

    @property
    def items(self) -> list[Frame]:
        """The output items: as done, or as added while they are not."""
        return [item.item for item in self._items]

    @property
    def text(self) -> str:
        """All output text so far."""
        texts = (text for item in self._items for text in item.texts.get("content_index", ()))
        return "".join(text.value for text in texts if text.rule.part == "output_text")

    # ---- feeding

    def feed(self, frame: Frame) -> None:
        """Take the next frame; raises ``GrammarError`` when it may not stand here."""
        self._frame = frame
        kind = self._get(frame, "type", str)
        skipped = kind.startswith(UNNUMBERED)
        if (skipped or kind == ACCEPTED) and "sequence_number" not in frame:
            return
        if self.ended:
            self._fail("L2", f"{kind} after the terminal event")
        self._count(frame)
        if skipped:
            return
        move, handler = self._rule(kind)
        self._move(move)
        try:
            handler(self, frame)
        except (AttributeError, KeyError, TypeError) as error:
            self._fail("L4", f"{kind} is malformed: {error!r}")

    def close(self) -> None:
        """Say that no frame follows; raises ``GrammarError`` when there was no terminal event."""
        if not self.ended:
            self._fail("L2", f"the trace ends while the Response is {self.state}")

    def _fail(self, law: str, message: str) -> NoReturn:
        raise GrammarError(law, message, self._frame)

    def _need(self, condition: object, message: str, law: str = "L4") -> None:
        if not condition:
            self._fail(law, message)

    def _get(self, source: Frame, name: str, *types: type) -> Any:
        value = source.get(name)
        if type(value) not in types:
            self._fail("L4", f"{name} is missing or of the wrong kind: {value!r:.80}")
        return value

    def _count(self, frame: Frame) -> None:
        number = frame.get("sequence_number")
        expected = self.last_sequence_number + 1
        self._need(type(number) is int and number == expected, f"sequence_number {number!r}, not {expected}", "L3")
        self.last_sequence_number = expected

    def _rule(self, kind: str) -> "_Rule":
        if kind in _RULES:
            return _RULES[kind]
        hosted = any(kind.startswith(f"response.{item.type}") for item in self._open_items.values())
        self._need(hosted, f"{kind}: no such event, or not here")
        return "inside", Trace._progress

    def _move(self, move: str) -> None:
        try:
            self.state = RESPONSE.next(self.state, move)
        except IllegalMove:
            what = "no item begins" if move == "begin" else f"no move {move!r}"
            self._fail("L4", f"{what} while the Response is {self.state}")

    # ---- the Response

    def _snapshot(self, frame: Frame) -> Frame:
        response: Frame = self._get(frame, "response", dict)
        self._need(self._get(response, "id", str) == self.response_id, "the id of the Response has changed")
        if response.get("usage") is not None:
            self._count_usage(self._get(response, "usage", dict))
        return response

    def _count_usage(self, usage: Frame) -> None:
        numbers = _usage_numbers(usage)
        good = all(type(number) is int and number >= 0 for number in numbers)
        self._need(good, f"usage is not whole: {usage!r:.120}")
        inputs, outputs, total, cached, reasoning = numbers
        self._need(total == inputs + outputs, "usage: total_tokens is not the sum")
        self._need(cached <= inputs and reasoning <= outputs, "usage: the details are more than the whole")
        before = _usage_numbers(self.usage) if self.usage else (0, 0, 0, 0, 0)
        self._need(all(map(int.__ge__, numbers, before)), "usage has decreased")
        self.usage = usage

    def _created(self, frame: Frame) -> None:
        response: Frame = self._get(frame, "response", dict)
        self.response_id = self._get(response, "id", str)
        self._need(self.response_id, "the Response has an empty id")
        self._need(response.get("status") in ("queued", "in_progress"), "a Response is created queued or in_progress")
        self._need(self._get(response, "output", list) == [], "a Response is created with output")
        self._snapshot(frame)

    def _heartbeat(self, frame: Frame) -> None:
        status = "queued" if frame["type"] == "response.queued" else "in_progress"
        self._need(self._snapshot(frame).get("status") == status, f"the status is not {status}")

    def _ended(self, frame: Frame) -> None:
        response = self._snapshot(frame)
        status = response.get("status")
        self._need(TERMINAL_EVENTS.get(str(status)) == frame["type"], f"{frame['type']} with status {status!r}")
        self._need((response.get("error") is not None) == (status == "failed"), "error and status disagree")
        reason = response.get("incomplete_details")
        self._need(status != "incomplete" or reason is not None, "incomplete without a reason")
        self._need(status != "completed" or reason is None, "completed with a reason to be incomplete")
        self._need(not self._open_items, f"the Response ends before its items {[*self._open_items]} are done")
        self._need(self._get(response, "output", list) == self.items, "the final output is not the items that are done")
        if status == "completed":
            self._need(not self._cut, "completed with an incomplete item")
            self._need(not (self.append_shape and self.open_calls), "completed with open calls")
        self.response = response

    # ---- items

    def _item_added(self, frame: Frame) -> None:
        self._need(not self._cut, "an item begins after one that was cut")
        self._need(not self._speaking(), f"an item begins before item {self._speaking()} is done")
        index = self._get(frame, "output_index", int)
        self._need(index == len(self._items), f"output_index {index}, not {len(self._items)}")
        added: Frame = self._get(frame, "item", dict)
        kind, item_id = self._get(added, "type", str), self._get(added, "id", str)
        self._need(item_id and item_id not in self._item_ids, "an item without an id of its own")
        status = added.get("status", "in_progress")
        self._need(kind not in SAMPLED or status == "in_progress", f"an item is added with status {status!r}")
        self._need(kind != "message" or added.get("role") == "assistant", "a message of another role than assistant")
        item = _Item(index, added)
        for rule in TEXTS.values():
            if rule.item == kind:
                where = LISTS.get(rule.counter, rule.name)
                self._need(not added.get(where), f"an item is added with {where}")
                item.texts[rule.counter] = [] if rule.counter else [_Text(rule)]
        self._items.append(item)
        self._open_items[index] = item
        self._item_ids.add(item_id)

    def _speaking(self) -> list[int]:
        return [item.index for item in self._open_items.values() if item.type in SAMPLED]

    def _find(self, frame: Frame, item_id: object) -> _Item:
        index = self._get(frame, "output_index", int)
        self._need(index in self._open_items, f"item {index} was not added, or is done")
        item = self._open_items[index]
        self._need(item.item["id"] == item_id, f"the id of item {index} has changed")
        return item

    def _item_done(self, frame: Frame) -> None:
        done: Frame = self._get(frame, "item", dict)
        item = self._find(frame, done.get("id"))
        for name in ("type", "call_id", "name", "role"):
            same = name not in item.item or done.get(name) == item.item[name]
            self._need(same, f"the {name} of item {item.index} has changed")
        status = done.get("status", "completed")
        allowed = ("completed", "incomplete") if item.type in SAMPLED else ("completed", "incomplete", "failed")
        self._need(status in allowed, f"an item is done with status {status!r}")
        for counter, texts in item.texts.items():
            self._check_texts(counter, texts, done, cut=status == "incomplete")
        item.item = done
        del self._open_items[item.index]
        self._cut |= status == "incomplete"
        if item.type in OUTPUT_TYPE_OF and status == "completed":
            self._open(done)
        self._wake()

    def _open(self, call: Frame) -> None:
        call_id = self._get(call, "call_id", str)
        self._need(call_id not in self.calls, f"two calls are {call_id}", "L5")
        self.calls[call_id] = self.open_calls[call_id] = call

    def _check_texts(self, counter: str, texts: list[_Text], done: Frame, *, cut: bool) -> None:
        last = TextState.CLOSED if counter else TextState.WHOLE
        self._need(cut or all(text.state is last for text in texts), "an item is done before its text")
        if not counter:
            self._need(done.get(texts[0].rule.name) == texts[0].value, "the item is not what its deltas say")
            return
        parts = done.get(LISTS[counter]) or []
        self._need(len(parts) == len(texts), f"{len(parts)} parts are done, {len(texts)} were added")
        for text, part in zip(texts, parts, strict=True):
            same = part.get("type") == text.rule.part and part.get(text.rule.name) == text.value
            self._need(same and text.part in (None, part), "the item is not what its parts say")

    def _progress(self, frame: Frame) -> None:
        item = self._find(frame, frame.get("item_id"))
        fits = frame["type"].startswith(f"response.{item.type}") and not item.texts
        self._need(fits, f"{frame['type']} of a {item.type}")

    # ---- parts and texts

    def _part_added(self, frame: Frame) -> None:
        item = self._find(frame, frame.get("item_id"))
        counter = PARTS[frame["type"].removesuffix(".added")]
        part: Frame = self._get(frame, "part", dict)
        rules = [rule for rule in TEXTS.values() if (rule.item, rule.counter) == (item.type, counter)]
        rule = next((rule for rule in rules if rule.part == part.get("type")), None)
        if rule is None:
            self._fail("L4", f"a part {part.get('type')!r} in a {item.type}")
        self._need(part.get(rule.name) == "", "a part is added with text")
        unclosed = [text for texts in item.texts.values() for text in texts if text.state is not TextState.CLOSED]
        self._need(not unclosed, "a part begins before the one before it is done")
        texts = item.texts[counter]
        self._need(frame.get(counter) == len(texts), f"{counter} {frame.get(counter)}, not {len(texts)}")
        texts.append(_Text(rule))

    def _part_done(self, frame: Frame) -> None:
        counter = PARTS[frame["type"].removesuffix(".done")]
        text = self._text_at(frame, counter)
        self._speak(text, "close")
        part: Frame = self._get(frame, "part", dict)
        self._need(part.get("type") == text.rule.part, "the type of a part has changed")
        self._need(part.get(text.rule.name) == text.value, "the part is not what its deltas say")
        text.part = part

    def _text_at(self, frame: Frame, counter: str) -> _Text:
        item = self._find(frame, frame.get("item_id"))
        texts = item.texts.get(counter, [])
        number = self._get(frame, counter, int) if counter else 0
        self._need(0 <= number < len(texts), f"no such part in item {item.index}")
        return texts[number]

    def _text_of(self, frame: Frame, suffix: str) -> _Text:
        rule = TEXTS[frame["type"].removesuffix(suffix)]
        text = self._text_at(frame, rule.counter)
        self._need(text.rule == rule, f"{frame['type']} of another kind of text")
        return text

    def _speak(self, text: _Text, move: str) -> None:
        try:
            text.state = TEXT.next(text.state, move)
        except IllegalMove:
            self._fail("L4", f"{move} of a text that is {text.state}")

    def _delta(self, frame: Frame) -> None:
        text = self._text_of(frame, ".delta")
        self._speak(text, "delta")
        delta = self._get(frame, "delta", str)
        self._need(not any("\ud800" <= char <= "\udfff" for char in delta), "a lone surrogate")
        self._need(self.replacement_ok or "\ufffd" not in delta, "U+FFFD: a character was split")
        text.pieces.append(delta)

    def _text_done(self, frame: Frame) -> None:
        text = self._text_of(frame, ".done")
        self._speak(text, "done")
        self._need(frame.get(text.rule.name) == text.value, "the whole is not what its deltas say")
        if text.rule.item == "function_call" and "name" in frame:
            call = self._items[frame["output_index"]].item
            self._need(frame["name"] == call.get("name"), "the name of the call has changed")

    def _annotation(self, frame: Frame) -> None:
        text = self._text_at(frame, "content_index")
        self._need(text.state is not TextState.CLOSED, "an annotation of a part that is done")

    # ---- the append shape

    def _parked(self, frame: Frame) -> None:
        self.append_shape = True
        self.parks += 1
        response = self._snapshot(frame)
        self._need(response.get("status") == "in_progress", "a parked Response is in_progress")
        self._need(not self._cut, "parked after an item that was cut")
        self._need(not self._speaking(), f"parked before item {self._speaking()} is done")
        stubs: list[Frame] = self._get(frame, "required_input", list)
        self._asks_user = not self.open_calls
        if self._asks_user:
            asks = len(stubs) == 1 and (stubs[0].get("type"), stubs[0].get("role")) == ("message", "user")
            self._need(asks, "parked with no open call, and it does not ask for the user")
            return
        wanted = [(call_id, OUTPUT_TYPE_OF[call["type"]]) for call_id, call in self.open_calls.items()]
        asked = [(str(stub.get("call_id")), str(stub.get("type"))) for stub in stubs]
        self._need(sorted(wanted) == sorted(asked), f"required_input is {asked}, open are {wanted}")
        for stub in stubs:
            name = self.open_calls[stub["call_id"]].get("name")
            self._need(stub.get("name") in (None, name), f"required_input: the name of {stub['call_id']} is {name}")

    def _accepted(self, frame: Frame) -> None:
        self.append_shape = True
        append: Frame = self._get(frame, "append", dict)
        call_ids: list[str] = self._get(append, "call_ids", list)
        duplicate = self._get(append, "duplicate", bool)
        unknown = [call_id for call_id in call_ids if call_id not in self.calls]
        self._need(not unknown, f"accepted results of no known call: {unknown}", "L5")
        self._need(len(set(call_ids)) == len(call_ids), "accepted one call twice", "L5")
        fresh = [call_id for call_id in call_ids if self.open_calls.pop(call_id, None) is not None]
        self._need(not (duplicate and fresh), f"the first result of {fresh} is called a duplicate", "L5")
        pending: list[str] = self._get(frame, "pending", list)
        still = sorted(self.open_calls)
        self._need(sorted(pending) == still, f"pending is {pending}, open: {still}", "L5")
        self._asks_user &= duplicate
        self._wake()

    def _wake(self) -> None:
        """A park is over when all that it asked for is there, and the hosted calls beside it are done too."""
        if self.parked and not (self.open_calls or self._asks_user or self._open_items):
            self._move("wake")


_Rule = tuple[str, Callable[[Trace, Frame], None]]
_RULES: Final[dict[str, _Rule]] = {
    "response.created": ("created", Trace._created),
    "response.queued": ("queued", Trace._heartbeat),
    "response.in_progress": ("in_progress", Trace._heartbeat),
    "response.completed": ("completed", Trace._ended),
    "response.incomplete": ("cut", Trace._ended),
    "response.failed": ("cut", Trace._ended),
    "response.output_item.added": ("begin", Trace._item_added),
    "response.output_item.done": ("inside", Trace._item_done),
    "response.output_text.annotation.added": ("inside", Trace._annotation),
    "response.done": ("park", Trace._parked),
    "response.append.accepted": ("accepted", Trace._accepted),
    **{f"{name}.added": ("inside", Trace._part_added) for name in PARTS},
    **{f"{name}.done": ("inside", Trace._part_done) for name in PARTS},
    **{f"{name}.delta": ("inside", Trace._delta) for name in TEXTS},
    **{f"{name}.done": ("inside", Trace._text_done) for name in TEXTS},
}
"""Each event's move in ``RESPONSE``, and what else it must agree with."""


def _usage_numbers(usage: Frame) -> tuple[Any, Any, Any, Any, Any]:
    inputs, outputs = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return (
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        usage.get("total_tokens"),
        inputs.get("cached_tokens", 0),
        outputs.get("reasoning_tokens", 0),
    )


def check(frames: Iterable[Frame], *, append_shape: bool = False, replacement_ok: bool = False) -> Trace:
    """The trace of ``frames``, which must be whole; raises ``GrammarError`` at the first frame that is wrong."""
    trace = Trace(append_shape=append_shape, replacement_ok=replacement_ok)
    for frame in frames:
        trace.feed(frame)
    trace.close()
    return trace


def check_replay(
    seen: Sequence[Frame], starting_after: int, replayed: Iterable[Frame], *, replacement_ok: bool = False
) -> Trace:
    """What a client got in all when it saw ``seen``, lost its socket, and attached with ``starting_after``.

    The replay begins right behind the cursor, has each event as it was when it was seen (but for ``stream_id``, which
    is the lane's), and together they are one whole trace. Raises ``GrammarError``, ``L9`` for a replay that differs.
    """
    numbered = [frame for frame in seen if "sequence_number" in frame]
    rest = [frame for frame in replayed if "sequence_number" in frame]
    for number, frame in enumerate(rest, starting_after + 1):
        if frame["sequence_number"] != number:
            raise GrammarError("L9", f"the replay has event {frame['sequence_number']}, not {number}", frame)
        if number < len(numbered) and _without_lane(frame) != _without_lane(numbered[number]):
            raise GrammarError("L9", f"event {number} differs when it is replayed", frame)
    return check([*numbered[: starting_after + 1], *rest], replacement_ok=replacement_ok)


def _without_lane(frame: Frame) -> Frame:
    return {key: value for key, value in frame.items() if key != "stream_id"}
