"""A reference model of the append shape: what a server may answer, and what a Response must have come to.

It is a description, not an implementation: it knows nothing of tasks, queues or time. Two questions are all that it is asked.

*What may the answer to this frame be?* (``Rollout.answers``) A Response is known by its events (``grammar.Trace``) and by what
was sent to it. A frame is accepted when all of its items fit; else it is refused with the code of one that does not. While
frames are under way, or events unread, more than one answer is possible, and ``hazy`` says so.

*Is what came out what had to come out?* (``explain``) The items of a Response must be those that its script samples when it
reads, at each stop, the acknowledged results in call order and then the messages in order of arrival, each once. A
message that arrives just at a stop may be read there or at the next; any consistent reading will do.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import define, field, frozen

from ...codec import canonical
from ...grammar import Trace
from ...items import OUTPUT_TYPE_OF
from ..script import Script, matches, said_by, text_of
from ..transport import Frame

ACCEPTED: Final = "accepted"
OUTPUT_TYPES: Final = frozenset(OUTPUT_TYPE_OF.values())


@define(eq=False)
class Append:
    """An append that was sent: in flight, accepted (``number`` is its event's), refused, or lost with its socket."""

    items: Sequence[Frame]
    key: str | None = None
    number: int | None = None
    refused: bool = False
    possible: bool = True
    """Whether it might have been accepted, by what was known when it was sent."""

    @property
    def call_ids(self) -> list[str]:
        """The calls that it answers, each once, in the order of its items."""
        return list(dict.fromkeys(item["call_id"] for item in self.items if item.get("type") in OUTPUT_TYPES))

    @property
    def messages(self) -> list[str]:
        """The user messages in it."""
        return [item["content"] for item in self.items if item.get("role") == "user"]

    def body_for(self, call_id: str) -> Frame | None:
        """Its result of ``call_id``."""
        return next((item for item in self.items if item.get("call_id") == call_id and item.get("type") in OUTPUT_TYPES), None)


@frozen
class Answers:
    """What may be answered: error codes, or ``accepted``; and if so, what ``duplicate`` may be."""

    codes: frozenset[str]
    duplicate: frozenset[bool] = frozenset()


@define(eq=False)
class Rollout:
    """One Response, as it is known from outside."""

    script: Script
    trace: Trace = field(factory=lambda: Trace(append_shape=True))
    log: list[Frame] = field(factory=list)
    """Its events without their lane, by number."""
    appends: list[Append] = field(factory=list)
    epochs: set[int] = field(factory=set)
    """Of those that attached."""
    cancelled: bool = False
    """Whether a cancel was sent."""
    muddled: bool = False
    """Whether nobody could tell for sure which appends were acknowledged: one was lost with its socket, or several alike
    were under way."""

    @property
    def id(self) -> str:
        """The Response's id, once it is created."""
        return self.trace.response_id or "?"

    @property
    def ended(self) -> bool:
        """Whether its terminal event was seen."""
        return self.trace.ended

    # ---- what may be answered

    def answers(self, append: Append, *, hazy: bool) -> Answers:
        """What may be answered to ``append``, by what is known now."""
        if self.ended:
            return Answers(frozenset({"response_not_active"}))
        before = [one for one in self.appends if append.key and one.key == append.key and one is not append]
        doubtful = {"response_not_active"} if hazy else set()
        if any(one.number is not None for one in before):
            return Answers(frozenset({ACCEPTED, *doubtful}), frozenset({True, not hazy}))
        wrong = self._wrong(append)
        if wrong:
            return Answers(frozenset(wrong | doubtful))
        fresh = bool(append.messages) or not all(self.result(call_id) for call_id in append.call_ids)
        rivals = self._rivals(append) if hazy else []
        duplicate = {not fresh}
        if any(agree for _, agree in rivals) and (before or not append.messages):
            duplicate = {True, False}
        contested = any(not agree for _, agree in rivals)
        return Answers(frozenset({ACCEPTED, *doubtful, *({"tool_output_conflict"} if contested else ())}), frozenset(duplicate))

    def _wrong(self, append: Append) -> set[str]:
        codes = set() if append.items else {"invalid_value"}
        seen: dict[str, Frame] = {}
        for item in append.items:
            kind, call = item.get("type", "message"), self.trace.calls.get(str(item.get("call_id")))
            if kind in OUTPUT_TYPES:
                if call is None:
                    codes.add("tool_call_not_found")
                elif OUTPUT_TYPE_OF[call["type"]] != kind:
                    codes.add("tool_output_type_mismatch")
                else:
                    held = self.result(item["call_id"]) or seen.setdefault(item["call_id"], item)
                    codes |= set() if same(held, item) else {"tool_output_conflict"}
            elif _is_false_echo(item, kind, call):
                codes.add("echo_mismatch")
        return codes

    def _rivals(self, append: Append) -> list[tuple[Append, bool]]:
        """Appends that may yet be accepted, and answer a call of ``append`` too (or have its key): do they agree?"""
        others = [one for one in self.appends if one is not append and one.number is None and not one.refused]
        rivals = [(one, True) for one in others if append.key is not None and one.key == append.key]
        for call_id in append.call_ids:
            mine = append.body_for(call_id)
            for one in others:
                body = one.body_for(call_id)
                if body is not None and mine is not None:
                    rivals.append((one, same(body, mine)))
        return rivals

    def result(self, call_id: str) -> Frame | None:
        """The acknowledged result of ``call_id``."""
        for append in self.appends:
            if append.number is not None and (body := append.body_for(call_id)) is not None:
                return body
        return None

    def accepted(self) -> list[Append]:
        """The appends that were accepted, in their order."""
        return sorted((one for one in self.appends if one.number is not None), key=lambda one: one.number or 0)

    # ---- what it must have come to

    def explain(self) -> str | None:
        """None if the items are what they must be; else what is wrong."""
        attempt = _Explanation(self)
        if attempt.fits(self.script, 0, 0, -1):
            return None
        return attempt.best_reason

    def facts(self) -> tuple[list[tuple[int, str]], list[tuple[int, int, Frame]]]:
        """The accepted messages with their numbers, and the items with those of their beginning and end."""
        messages = [
            (append.number or 0, text)
            for append in self.accepted()
            if not self.log[append.number or 0]["append"]["duplicate"]
            for text in append.messages
        ]
        begun = {one["output_index"]: one for one in self.log if one["type"] == "response.output_item.added"}
        done = {one["output_index"]: one for one in self.log if one["type"] == "response.output_item.done"}
        items = [
            (begun[index]["sequence_number"], done[index]["sequence_number"], done[index]["item"])
            for index in sorted(begun)
            if index in done
        ]
        return messages, items


class _Explanation:
    """The search for a reading of the script that gives a Response's items."""

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout
        self._messages, self._items = rollout.facts()
        response = rollout.trace.response or {}
        self._status = response.get("status", "in_progress")
        self._why = (response.get("incomplete_details") or {}).get("reason")
        self._furthest = -1
        self.best_reason = "nothing fits"

    def _no(self, at: int, why: str) -> bool:
        if at > self._furthest:
            self._furthest, self.best_reason = at, f"item {at}: {why}"
        return False

    def fits(self, script: Script, at: int, heard: int, since: int) -> bool:
        """Whether the items from ``at`` on are the script's, of which ``heard`` messages were read."""
        turn = script.turn()
        came = self._items[at : at + len(turn.items)]
        for index, (expected, (_, _, item)) in enumerate(zip(turn.items, came, strict=False)):
            cut = item.get("status") == "incomplete"
            if not matches(expected, item, cut=cut):
                return self._no(at + index, f"expected {expected}, got {_shown(item)}")
        if len(came) < len(turn.items):
            broken = self._status in ("cancelled", "incomplete", "in_progress")
            return broken or self._no(at + len(came), f"expected {turn.items[len(came)]}, but it {self._status}")
        if any(item.get("status") == "incomplete" for _, _, item in came):
            return self._status in ("cancelled", "incomplete")
        return self._goes_on(turn.reason, turn.after, at + len(turn.items), came, heard, since)

    def _goes_on(
        self, reason: str, script: Script, at: int, came: Sequence[tuple[int, int, Frame]], heard: int, since: int
    ) -> bool:
        if reason == "fail":
            ends = self._status == "failed" or self._status in ("cancelled", "incomplete")
            return (ends and at == len(self._items)) or self._no(at, f"the script fails here, but it {self._status}")
        if reason not in ("tool_calls", "end"):
            ends = self._why == reason or self._status == "cancelled" or self._why is not None
            return (ends and at == len(self._items)) or self._no(at, f"the script stops here: {reason}")
        outputs: list[tuple[str, str]] = []
        low = max([since, *(done for _, done, _ in came)])
        for _, _, item in came:
            found = self._output_of(item)
            if found is None and self._is_call(item):
                ends = at == len(self._items) and self._status in ("cancelled", "incomplete", "in_progress")
                return ends or self._no(at, f"it went on without the result of {item.get('call_id')}")
            if found is not None:
                low = max(low, found[0])
                outputs.append((found[1], found[2]))
        return self._reads(script, at, outputs, heard, low, has_calls=bool(outputs))

    def _reads(
        self, script: Script, at: int, outputs: Sequence[tuple[str, str]], heard: int, low: int, *, has_calls: bool
    ) -> bool:
        high = self._items[at][0] if at < len(self._items) else len(self._rollout.log)
        sure = [text for number, text in self._messages[heard:] if number <= low]
        maybe = [text for number, text in self._messages[heard:] if low < number < high]
        for count in range(len(maybe), -1, -1):
            messages = [*sure, *maybe[:count]]
            if not messages and not has_calls:
                if self._may_end(at, heard):
                    return True
            elif self.fits(script.read(outputs, messages), at, heard + len(messages), low):
                return True
        return self._no(at, "no reading of the messages fits")

    def _may_end(self, at: int, heard: int) -> bool:
        if at < len(self._items):
            return self._no(at, f"the model had answered, but there came {_shown(self._items[at][2])}")
        unread = self._messages[heard:]
        if unread and self._status == "completed":
            return self._no(at, f"completed without reading {unread}")
        return True

    def _is_call(self, item: Frame) -> bool:
        return item["type"] in OUTPUT_TYPE_OF

    def _output_of(self, item: Frame) -> tuple[int, str, str] | None:
        """When the result of a call came, the tool's name, and the result's text."""
        if item["type"] == "file_search_call":
            found = "\n".join(f"{one.get('filename', '')}: {one.get('text', '')}" for one in item.get("results") or ())
            return -1, "file_search", found
        if not self._is_call(item):
            return None
        for append in self._rollout.accepted():
            body = append.body_for(item["call_id"])
            if body is not None:
                return append.number or 0, item["name"], text_of(body["output"])
        return None


def same(left: Frame, right: Frame) -> bool:
    """Whether two results are the same, whatever the order of their keys."""
    return canonical(left) == canonical(right)


def _is_false_echo(item: Frame, kind: str, call: Mapping[str, Any] | None) -> bool:
    if kind == "message":
        return item.get("role") != "user"
    return kind in OUTPUT_TYPE_OF and (call is None or not _echoes(item, call))


def _echoes(item: Frame, call: Mapping[str, Any]) -> bool:
    name = "arguments" if item["type"] == "function_call" else "input"
    return item["type"] == call["type"] and item.get("name") == call.get("name") and item.get(name) == call.get(name)


def _shown(item: Mapping[str, Any]) -> str:
    text = said_by(item) or ""
    return f"{item['type']} {item.get('name', '')} {text[:60]!r}"
