"""The trace checker: random valid traces pass, and every way of spoiling one is caught."""

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from protocol.grammar import GrammarError, Trace, check, check_replay

Frame = dict[str, Any]
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\ufffd"), min_size=1, max_size=4)
PIECES = st.lists(TEXTS, max_size=4)
OUTPUT_OF = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


class Speaker:
    """A server in its simplest form: says events in an order that is right, and numbers them."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.output: list[Frame] = []
        self.open: dict[str, Frame] = {}
        self.used = {"input_tokens": 7, "output_tokens": 0}

    def say(self, kind: str, **fields: Any) -> None:
        self.frames.append({"type": kind, "sequence_number": len(self.frames), **copy.deepcopy(fields)})

    def usage(self) -> Frame:
        details = {"input_tokens_details": {"cached_tokens": 1}, "output_tokens_details": {"reasoning_tokens": 0}}
        return {**self.used, "total_tokens": sum(self.used.values()), **details}

    def snapshot(self, status: str, **fields: Any) -> Frame:
        usage = None if status == "queued" else self.usage()
        nothing = {"error": None, "incomplete_details": None, "output": []}
        return {"id": "resp_1", "object": "response", "status": status, "usage": usage, **nothing, **fields}

    def begin(self) -> None:
        self.say("response.created", response=self.snapshot("queued"))
        self.heartbeat()

    def heartbeat(self) -> None:
        self.say("response.in_progress", response=self.snapshot("in_progress"))

    def added(self, **item: Any) -> tuple[int, Frame]:
        index = len(self.output)
        self.output.append({"id": f"item_{index}", "status": "in_progress", **item})
        self.say("response.output_item.added", output_index=index, item=self.output[index])
        return index, self.output[index]

    def done(self, index: int, **item: Any) -> None:
        self.output[index].update({"status": "completed", **item})
        self.say("response.output_item.done", output_index=index, item=self.output[index])

    def pieces(self, kind: str, pieces: list[str], name: str, close: bool = True, **where: Any) -> str:
        for piece in pieces:
            self.used["output_tokens"] += 1
            self.say(f"{kind}.delta", delta=piece, **where)
        whole = "".join(pieces)
        if close:
            self.say(f"{kind}.done", **where, **{name: whole})
        return whole

    def part(self, kind: str, part: Frame, name: str, events: str, pieces: list[str], cut: bool, **where: Any) -> Frame:
        self.say(f"{kind}.added", **where, part={**part, name: ""})
        part = {**part, name: self.pieces(events, pieces, name, not cut, **where)}
        if not cut:
            self.say(f"{kind}.done", **where, part=part)
        return part

    def message(self, parts: list[tuple[bool, list[str]]], cut: bool = False) -> None:
        index, item = self.added(type="message", role="assistant", content=[])
        content = []
        for number, (refuses, pieces) in enumerate(parts):
            where = {"item_id": item["id"], "output_index": index, "content_index": number}
            is_cut = cut and number == len(parts) - 1
            if refuses:
                shape: tuple[Frame, str, str] = ({"type": "refusal"}, "refusal", "response.refusal")
            else:
                shape = ({"type": "output_text", "annotations": []}, "text", "response.output_text")
            content.append(self.part("response.content_part", *shape, pieces, is_cut, **where))
        self.done(index, content=content, status="incomplete" if cut else "completed")

    def reasoning(self, summary: list[list[str]], content: list[list[str]]) -> None:
        index, item = self.added(type="reasoning", summary=[])
        lists: dict[str, list[Frame]] = {"summary": [], "content": []}
        for key, counter, kind, part, events, texts in (
            ("summary", "summary_index", "response.reasoning_summary_part", "summary_text", "_summary_text", summary),
            ("content", "content_index", "response.content_part", "reasoning_text", "_text", content),
        ):
            for number, pieces in enumerate(texts):
                where = {"item_id": item["id"], "output_index": index, counter: number}
                name = f"response.reasoning{events}"
                lists[key].append(self.part(kind, {"type": part}, "text", name, pieces, False, **where))
        self.done(index, **{key: parts for key, parts in lists.items() if parts or key == "summary"})

    def call(self, kind: str, pieces: list[str], cut: bool = False) -> None:
        name = "arguments" if kind == "function_call" else "input"
        call_id = f"call_{len(self.output)}"
        index, item = self.added(type=kind, call_id=call_id, name="tool", **{name: ""})
        events = "response.function_call_arguments" if kind == "function_call" else "response.custom_tool_call_input"
        whole = self.pieces(events, pieces, name, not cut, item_id=item["id"], output_index=index)
        self.done(index, **{name: whole}, status="incomplete" if cut else "completed")
        if not cut:
            self.open[call_id] = item

    def hosted_begins(self) -> int:
        return self.added(type="file_search_call", queries=["q"], results=None)[0]

    def hosted_goes_on(self, index: int) -> None:
        where = {"item_id": self.output[index]["id"], "output_index": index}
        self.say("response.file_search_call.searching", **where)

    def accept(self, call_ids: list[str], duplicate: bool = False) -> None:
        if call_ids and not duplicate:
            self.used["input_tokens"] += 3
        for call_id in call_ids:
            self.open.pop(call_id, None)
        append = {"id": "app_1", "call_ids": call_ids, "duplicate": duplicate}
        self.say("response.append.accepted", append=append, pending=list(self.open))

    def park(self) -> None:
        stubs = [{"type": OUTPUT_OF[call["type"]], "call_id": call_id, "name": "tool"} for call_id, call in self.open.items()]
        response = {"id": "resp_1", "object": "response", "status": "in_progress", "usage": self.usage()}
        self.say("response.done", response=response, required_input=stubs or [{"type": "message", "role": "user"}])

    def end(self, status: str = "completed") -> None:
        kinds = {"cancelled": "incomplete"}
        fields: Frame = {"output": self.output}
        if status == "failed":
            fields["error"] = {"code": "server_error", "message": "broken"}
        if status == "incomplete":
            fields["incomplete_details"] = {"reason": "max_output_tokens"}
        self.say(f"response.{kinds.get(status, status)}", response=self.snapshot(status, **fields))


@st.composite
def traces(draw: st.DrawFn) -> list[Frame]:
    """A whole trace: some turns of sampling, each perhaps with a park, and an end of some kind."""
    speaker = Speaker()
    speaker.begin()
    for _ in range(draw(st.integers(1, 3))):
        turn(draw, speaker)
    how = draw(st.sampled_from(["message", "cut message", "cut call", "cancelled", "failed"]))
    if how.startswith("cut"):
        if how == "cut message":
            speaker.message([(False, draw(PIECES))], cut=True)
        else:
            speaker.call("function_call", draw(PIECES), cut=True)
        speaker.end(draw(st.sampled_from(["incomplete", "failed", "cancelled"])))
    else:
        speaker.message([(False, draw(PIECES))])
        speaker.end("completed" if how == "message" else how)
    return speaker.frames


def turn(draw: st.DrawFn, speaker: Speaker) -> None:
    hosted: list[int] = []
    for what in draw(st.lists(st.sampled_from(["message", "reasoning", "call", "hosted", "heartbeat"]), max_size=4)):
        if what == "message":
            speaker.message(draw(st.lists(st.tuples(st.booleans(), PIECES), max_size=2)))
        elif what == "reasoning":
            parts = st.lists(PIECES, max_size=2)
            speaker.reasoning(draw(parts), draw(parts))
        elif what == "call":
            speaker.call(draw(st.sampled_from(sorted(OUTPUT_OF))), draw(PIECES))
        elif what == "hosted":
            hosted.append(speaker.hosted_begins())
        else:
            speaker.heartbeat()
        if speaker.open and draw(st.booleans()):
            speaker.accept([next(iter(speaker.open))])
    parks = bool(speaker.open)
    if parks:
        speaker.park()
    while hosted or speaker.open:
        if hosted and (not speaker.open or draw(st.booleans())):
            speaker.hosted_goes_on(hosted[0])
            speaker.done(hosted.pop(0), results=[])
        else:
            answered = draw(st.lists(st.sampled_from(sorted(speaker.open)), min_size=1, unique=True))
            speaker.accept(answered)
            if draw(st.booleans()):
                speaker.accept(answered, duplicate=True)
    if not parks and draw(st.booleans()):
        speaker.park()
        speaker.accept([])


@given(traces())
def test_valid_traces_are_accepted(frames: list[Frame]) -> None:
    trace = check(frames)
    assert trace.ended
    assert not trace.parked
    assert trace.response == frames[-1]["response"]
    assert trace.items == frames[-1]["response"]["output"]
    assert trace.last_sequence_number == len(frames) - 1
    assert trace.parks == sum(frame["type"] == "response.done" for frame in frames)
    assert trace.text == "".join(f["delta"] for f in frames if f["type"] == "response.output_text.delta")


@given(traces())
def test_a_trace_may_hold_what_is_not_numbered(frames: list[Frame]) -> None:
    beside = [{"type": "error", "status": 400}, {"type": "response.attach.accepted"}, {"type": "response.steer.pending"}]
    assert check([*beside, *frames, *beside]).ended


# ---- spoiling: without renumbering the numbers tell


@given(traces(), st.data())
def test_l3_a_lost_repeated_or_moved_event_is_found_by_its_number(frames: list[Frame], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(frames) - 2))
    spoiled = data.draw(
        st.sampled_from(
            [
                frames[:at] + frames[at + 1 :],
                frames[: at + 1] + frames[at:],
                [*frames[:at], frames[at + 1], frames[at], *frames[at + 2 :]],
                [{**frame, "sequence_number": frame["sequence_number"] + (n >= at)} for n, frame in enumerate(frames)],
                [{k: v for k, v in f.items() if n != at or k != "sequence_number"} for n, f in enumerate(frames)],
            ]
        )
    )
    with pytest.raises(GrammarError) as caught:
        check(spoiled)
    assert caught.value.law == "L3"


@given(traces(), st.data())
def test_l2_one_terminal_event_and_it_is_the_last(frames: list[Frame], data: st.DataObject) -> None:
    late = data.draw(st.sampled_from(frames))
    for spoiled in (frames[:-1], [*frames, {**late, "sequence_number": len(frames)}], [*frames, frames[-1]]):
        with pytest.raises(GrammarError) as caught:
            check(spoiled)
        assert caught.value.law == "L2"


# ---- spoiling: renumbered, so that only the grammar tells

FREE = {"response.file_search_call.searching"}
"""May come, and come again, or not at all."""


def renumbered(frames: list[Frame]) -> list[Frame]:
    return [{**frame, "sequence_number": number} for number, frame in enumerate(frames)]


def may_go(frames: list[Frame], at: int) -> bool:
    """Whether the trace is as good without this event."""
    frame = frames[at]
    if frame["type"] == "response.in_progress":
        return at > 1 or frames[2]["type"] == frame["type"]
    duplicate = frame["type"] == "response.append.accepted" and frame["append"]["duplicate"]
    # Without the park all that was waited for was there before sampling stopped, which is a trace too.
    return frame["type"] in FREE or duplicate or frame["type"] == "response.done"


@given(traces(), st.data())
def test_l4_a_lost_event_is_found(frames: list[Frame], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(frames) - 1))
    frame = frames[at]
    assume(not may_go(frames, at))
    # A lost acknowledgement is told by the park that it ended, or by the call that is then open at the end.
    told = frames[-1]["type"] == "response.completed" and bool(frame.get("append", {}).get("call_ids"))
    assume(frame["type"] != "response.append.accepted" or told or trace_at(frames, at).parked)
    with pytest.raises(GrammarError):
        check(renumbered(frames[:at] + frames[at + 1 :]), append_shape=True)


@given(traces(), st.data())
def test_l4_a_repeated_event_is_found(frames: list[Frame], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(frames) - 1))
    assume(frames[at]["type"] not in {"response.in_progress", "response.append.accepted", *FREE})
    with pytest.raises(GrammarError):
        check(renumbered(frames[: at + 1] + frames[at:]))


@given(traces(), st.data())
def test_l4_events_of_one_item_have_one_order(frames: list[Frame], data: st.DataObject) -> None:
    pairs = [
        at
        for at, (one, two) in enumerate(pairwise(frames))
        if one.get("output_index") == two.get("output_index") is not None and one.get("delta") != two.get("delta", 0)
    ]
    assume(pairs)
    at = data.draw(st.sampled_from(pairs))
    one, two = frames[at], frames[at + 1]
    assume(one.get("delta", "") + two.get("delta", "") != two.get("delta", "") + one.get("delta", "") or "delta" not in one)
    with pytest.raises(GrammarError):
        check(renumbered([*frames[:at], two, one, *frames[at + 2 :]]))


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each string, number and flag that a trace repeats or must not vary."""
    if isinstance(value, dict):
        return [found for key, one in value.items() for found in paths(one, (*path, key))]
    if isinstance(value, list):
        return [found for key, one in enumerate(value) for found in paths(one, (*path, key))]
    return [] if value is None else [path]


UNCHECKED = {"object", "message", "code", "reason", "cached_tokens", "reasoning_tokens", "queries", "annotations"}
"""Said once, or not the grammar's to judge."""


@settings(max_examples=200)
@given(traces(), st.data())
def test_l4_a_value_that_is_altered_is_found(frames: list[Frame], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(frames) - 1))
    free = {"name"} if frames[at]["type"].endswith("arguments.done") else {"id"} if "append" in frames[at] else set()
    where = [path for path in paths(frames[at]) if not UNCHECKED & set(path) and not free & set(path[:-1])]
    path = data.draw(st.sampled_from(where))
    assume(path not in {("append", "id"), ("append", "duplicate")})
    hosted = frames[at].get("item", {}).get("type") == "file_search_call"
    # Hosted tools have words of their own for their status and their progress.
    assume(not (hosted and path[-1] == "status") and not (frames[at]["type"] in FREE and path == ("type",)))
    spoiled = copy.deepcopy(frames)
    holder = spoiled[at]
    for step in path[:-1]:
        holder = holder[step]
    old = holder[path[-1]]
    holder[path[-1]] = (not old) if isinstance(old, bool) else old + 1 if isinstance(old, int) else old + "x"
    with pytest.raises(GrammarError):
        check(spoiled)


def trace_at(frames: list[Frame], at: int) -> Trace:
    trace = Trace()
    for frame in frames[:at]:
        trace.feed(frame)
    return trace


# ---- single rules, each by its smallest example


def spoken(*steps: Callable[[Speaker], object]) -> list[Frame]:
    speaker = Speaker()
    speaker.begin()
    for step in steps:
        step(speaker)
    return speaker.frames


def call(speaker: Speaker) -> None:
    speaker.call("function_call", ["{", "}"])


def say_hi(speaker: Speaker) -> None:
    speaker.message([(False, ["h", "i"])])


def park_for(*stubs: Frame) -> Callable[[Speaker], None]:
    response = {"id": "resp_1", "status": "in_progress", "usage": None}
    return lambda speaker: speaker.say("response.done", response=response, required_input=list(stubs))


def accepts(call_ids: list[str], pending: list[str], duplicate: bool = False) -> Callable[[Speaker], None]:
    append = {"id": "app_1", "call_ids": call_ids, "duplicate": duplicate}
    return lambda speaker: speaker.say("response.append.accepted", append=append, pending=pending)


STUB = {"type": "function_call_output", "call_id": "call_0", "name": "tool"}
USER = {"type": "message", "role": "user"}


@pytest.mark.parametrize(
    ("law", "steps"),
    [
        pytest.param("L4", [call, Speaker.park, say_hi], id="sampled while parked"),
        pytest.param("L4", [call, Speaker.park, Speaker.hosted_begins], id="hosted call begun while parked"),
        pytest.param("L4", [call, Speaker.park, Speaker.park], id="parked twice"),
        pytest.param("L4", [call, park_for(STUB, STUB)], id="asked twice"),
        pytest.param("L4", [call, park_for()], id="asked for nothing"),
        pytest.param("L4", [call, park_for(USER)], id="asked for the user while a call is open"),
        pytest.param("L4", [call, park_for({**STUB, "type": "custom_tool_call_output"})], id="asked for another kind"),
        pytest.param("L4", [call, park_for({**STUB, "name": "other"})], id="asked under another name"),
        pytest.param("L4", [park_for(STUB)], id="asked for no call"),
        pytest.param("L4", [park_for("nonsense")], id="malformed stub"),
        pytest.param("L4", [call, Speaker.end], id="completed with an open call"),
        pytest.param("L5", [call, accepts(["call_9"], ["call_0"])], id="accepted an unknown call"),
        pytest.param("L5", [call, accepts(["call_0"], ["call_0"])], id="still pending"),
        pytest.param("L5", [call, accepts([], [])], id="no longer pending"),
        pytest.param("L5", [call, accepts(["call_0"], [], True)], id="first called a duplicate"),
        pytest.param("L5", [call, accepts(["call_0", "call_0"], [])], id="one call twice"),
        pytest.param("L4", [say_hi, Speaker.park, say_hi], id="sampled while the user is asked"),
        pytest.param("L4", [call, Speaker.park, accepts(["call_0"], []), accepts(["call_0"], [], True), Speaker.park,
                            accepts(["call_0"], [], True), say_hi], id="a duplicate does not answer for the user"),
        pytest.param("L4", [lambda s: s.message([(False, ["a"])], True), say_hi], id="an item after a cut one"),
        pytest.param("L4", [lambda s: s.message([(False, ["a"])], True), Speaker.park], id="parked after a cut"),
        pytest.param("L4", [lambda s: s.message([(False, ["a"])], True), Speaker.end], id="completed after a cut"),
        pytest.param("L4", [Speaker.hosted_begins, Speaker.end], id="ended before an item"),
        pytest.param("L4", [lambda s: s.message([(False, ["\ud83d"])]), Speaker.end], id="lone surrogate"),
        pytest.param("L4", [lambda s: s.message([(False, ["\ufffd"])]), Speaker.end], id="split character"),
        pytest.param("L4", [lambda s: s.say("response.unheard_of")], id="unknown event"),
        pytest.param("L4", [lambda s: s.say("response.file_search_call.searching")], id="progress of nothing"),
        pytest.param("L4", [lambda s: s.added(type="message", role="assistant", content=[]), say_hi], id="two speak"),
        pytest.param("L4", [lambda s: s.added(type="message", role="user", content=[])], id="the user speaks"),
        pytest.param("L4", [lambda s: s.end("queued")], id="ends as queued"),
    ],
)  # fmt: skip
def test_rules(law: str, steps: list[Callable[[Speaker], object]]) -> None:
    if steps == [call, Speaker.end]:
        assert check(spoken(*steps)).open_calls.keys() == {"call_0"}, "the other shapes end at a call"
        steps = [call, accepts([], ["call_0"]), Speaker.end]
    with pytest.raises(GrammarError) as caught:
        check(spoken(*steps))
    assert caught.value.law == law
    assert caught.value.frame is not None


RICH = spoken(
    lambda s: s.reasoning([["why"]], []),
    lambda s: s.message([(False, ["h", "i"]), (True, ["no"])]),
    Speaker.hosted_begins,
    lambda s: s.hosted_goes_on(2),
    lambda s: s.done(2, results=[]),
    call,
    Speaker.park,
    lambda s: s.accept(["call_3"]),
    say_hi,
    Speaker.end,
)


@pytest.mark.parametrize(
    ("kind", "nth", "path", "value", "message"),
    [
        ("created", 0, "response.id", "", "an empty id"),
        ("created", 0, "response.status", "completed", "created queued or in_progress"),
        ("created", 0, "response.output", [{}], "created with output"),
        ("in_progress", 0, "response.usage", {"input_tokens": "7"}, "usage is not whole"),
        ("in_progress", 0, "response", None, "response is missing"),
        ("completed", 0, "response.status", "failed", "with status 'failed'"),
        ("completed", 0, "response.output", [], "the final output is not the items that are done"),
        ("completed", 0, "response.error", {"code": "x"}, "error and status disagree"),
        ("completed", 0, "response.incomplete_details", {"reason": "x"}, "completed with a reason"),
        ("output_item.added", 1, "output_index", 7, "output_index 7, not 1"),
        ("output_item.added", 1, "item.id", "item_0", "without an id of its own"),
        ("output_item.added", 1, "item.content", [{}], "added with content"),
        ("output_item.added", 1, "item.status", "completed", "added with status"),
        ("output_item.added", 3, "item.arguments", "{", "added with arguments"),
        ("content_part.added", 0, "output_index", 0, "item 0 was not added, or is done"),
        ("content_part.added", 0, "output_index", "1", "output_index is missing or of the wrong kind"),
        ("content_part.added", 0, "part.text", "x", "a part is added with text"),
        ("content_part.added", 0, "part.type", "input_text", "a part 'input_text' in a message"),
        ("content_part.added", 1, "content_index", 5, "content_index 5, not 1"),
        ("content_part.done", 0, "part.type", "refusal", "the type of a part"),
        ("content_part.done", 0, "part.text", "hu", "the part is not what its deltas say"),
        ("output_text.delta", 0, "type", "response.refusal.delta", "another kind of text"),
        ("output_text.delta", 0, "content_index", 9, "no such part"),
        ("output_text.done", 0, "text", "hu", "the whole is not what its deltas say"),
        ("function_call_arguments.done", 0, "name", "other", "the name of the call"),
        ("output_item.done", 1, "item.content", [], "0 parts are done, 2 were added"),
        ("output_item.done", 1, "item.status", "failed", "done with status"),
        ("output_item.done", 3, "item.call_id", "other", "the call_id of item 3"),
        ("output_item.done", 3, "item.arguments", "", "the item is not what its deltas say"),
        ("done", 0, "response.status", "completed", "a parked Response is in_progress"),
        ("done", 0, "required_input", [7], "malformed"),
    ],
)
def test_each_rule_says_what_is_wrong(kind: str, nth: int, path: str, value: Any, message: str) -> None:
    spoiled = copy.deepcopy(RICH)
    holder = [frame for frame in spoiled if frame["type"] == f"response.{kind}"][nth]
    if kind == "function_call_arguments.done":
        holder["name"] = "tool"
        check(spoiled)
    *steps, last = path.split(".")
    for step in steps:
        holder = holder[step]
    assert holder.get(last) != value
    holder[last] = value
    with pytest.raises(GrammarError, match=message):
        check(spoiled)


def opened(speaker: Speaker) -> Frame:
    """A message whose first part is open; the way to it."""
    index, item = speaker.added(type="message", role="assistant", content=[])
    where = {"item_id": item["id"], "output_index": index, "content_index": 0}
    speaker.say("response.content_part.added", **where, part={"type": "output_text", "text": ""})
    return where


def two_parts_open(speaker: Speaker) -> None:
    where = opened(speaker)
    part = {"type": "output_text", "text": ""}
    speaker.say("response.content_part.added", **{**where, "content_index": 1}, part=part)


def late_annotation(speaker: Speaker) -> None:
    where = opened(speaker)
    annotation = {**where, "annotation_index": 0, "annotation": {}}
    speaker.say("response.output_text.annotation.added", **annotation)
    speaker.say("response.output_text.done", **where, text="")
    speaker.say("response.content_part.done", **where, part={"type": "output_text", "text": ""})
    speaker.say("response.output_text.annotation.added", **annotation)


def progress_of_another(speaker: Speaker) -> None:
    speaker.hosted_begins()
    index, item = speaker.added(type="web_search_call")
    speaker.say("response.file_search_call.searching", item_id=item["id"], output_index=index)


def same_call_twice(speaker: Speaker) -> None:
    for index in range(2):
        item = {"type": "shell_call", "id": f"item_{index}", "call_id": "call_0", "action": {"commands": []}}
        speaker.say("response.output_item.added", output_index=index, item={**item, "status": "in_progress"})
        speaker.say("response.output_item.done", output_index=index, item={**item, "status": "completed"})


def incomplete_for_no_reason(speaker: Speaker) -> None:
    speaker.say("response.incomplete", response=speaker.snapshot("incomplete"))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (two_parts_open, "a part begins before the one before it is done"),
        (late_annotation, "an annotation of a part that is done"),
        (progress_of_another, "file_search_call.searching of a web_search_call"),
        (same_call_twice, "two calls are call_0"),
        (incomplete_for_no_reason, "incomplete without a reason"),
        (lambda s: (opened(s), s.park()), r"parked before item \[0\] is done"),
        (lambda s: (opened(s), s.end()), r"ends before its items \[0\] are done"),
        (lambda s: (opened(s), s.hosted_begins()), r"begins before item \[0\] is done"),
        (lambda s: s.say("response.unheard_of"), "no such event"),
    ],
)
def test_each_rule_about_order_says_what_is_wrong(step: Callable[[Speaker], object], message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        check(spoken(step))


def test_the_replacement_character_can_be_allowed() -> None:
    frames = spoken(lambda s: s.message([(False, ["\ufffd"])]), Speaker.end)
    assert check(frames, replacement_ok=True).text == "\ufffd"


def test_a_call_is_open_from_its_end_until_its_result_is_acknowledged() -> None:
    frames = spoken(call, Speaker.park, lambda s: s.accept(["call_0"]), say_hi, Speaker.end)
    trace, opened, parked = Trace(), [], []
    for frame in frames:
        trace.feed(frame)
        opened.append(list(trace.open_calls))
        parked.append(trace.parked)
    kinds = [frame["type"] for frame in frames]
    first, last = kinds.index("response.output_item.done"), kinds.index("response.append.accepted")
    assert opened == [["call_0"] if first <= n < last else [] for n in range(len(frames))]
    assert parked == [kinds.index("response.done") <= n < last for n in range(len(frames))]


def test_hosted_calls_go_on_during_a_park_which_lasts_until_they_are_done() -> None:
    frames = spoken(
        Speaker.hosted_begins,
        lambda s: s.call("function_call", ["{}"]),
        Speaker.park,
        lambda s: s.hosted_goes_on(0),
        lambda s: s.accept(["call_1"]),
        Speaker.heartbeat,
    )
    trace = trace_at(frames, len(frames))
    assert trace.parked
    with pytest.raises(GrammarError):
        check([*frames, {"type": "response.output_item.added", "sequence_number": len(frames), "output_index": 2}])
    done = {**trace.items[0], "status": "completed", "results": []}
    trace.feed({"type": "response.output_item.done", "sequence_number": len(frames), "output_index": 0, "item": done})
    assert not trace.parked


def test_usage_may_be_missing_but_neither_wrong_nor_less_than_before() -> None:
    trace = trace_at(spoken(), 1)
    usage = {"input_tokens": 7, "output_tokens": 1, "total_tokens": 8}
    good: list[Any] = [None, usage]
    bad: list[Any] = [
        {**usage, "total_tokens": 9},
        {**usage, "input_tokens": "7"},
        {"input_tokens": 7, "output_tokens": 1},
        {**usage, "input_tokens_details": {"cached_tokens": 8}},
        {**usage, "input_tokens": 6, "total_tokens": 7},
    ]
    for value in good:
        heartbeat = {"id": "resp_1", "status": "in_progress", "usage": value}
        number = trace.last_sequence_number + 1
        trace.feed({"type": "response.in_progress", "sequence_number": number, "response": heartbeat})
    assert trace.usage == usage
    for value in bad:
        heartbeat = {"id": "resp_1", "status": "in_progress", "usage": value}
        with pytest.raises(GrammarError):
            copy.deepcopy(trace).feed({"type": "response.in_progress", "sequence_number": 3, "response": heartbeat})


# ---- replay


@given(traces(), st.data())
@example(spoken(say_hi, Speaker.end), None)
def test_l9_a_replay_is_the_rest(frames: list[Frame], data: st.DataObject | None) -> None:
    seen = data.draw(st.integers(0, len(frames))) if data else 2
    cursor = data.draw(st.integers(-1, seen - 1)) if data else 0
    rest = [{"type": "response.attach.accepted"}, *({**f, "stream_id": "b"} for f in frames[cursor + 1 :])]
    assert check_replay(frames[:seen], cursor, rest).ended
    if len(rest) > 1:
        for spoiled in (rest[:1] + rest[2:], rest[:-1]):
            with pytest.raises(GrammarError):
                check_replay(frames[:seen], cursor, spoiled)
    if cursor < seen - 1:
        with pytest.raises(GrammarError) as caught:
            check_replay(frames[:seen], cursor, [{**rest[1], "extra": 1}, *rest[2:]])
        assert caught.value.law == "L9"
