"""The scripted model: the same program goes the same way in one sampler, in many, and as a plain interpreter says it goes."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, evolve, field, frozen
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine import tokens
from engine.models.base import (
    CallBegin,
    CallEnd,
    CallPieces,
    Chunk,
    MessageEnd,
    ModelError,
    Plan,
    Reasoning,
    Rendered,
    Sampler,
    Stop,
    Text,
)
from engine.models.scripted import ScriptedModel
from engine.testing import virtually
from protocol import items
from protocol.items import Item
from protocol.requests import Tool

DOCS = Path(__file__).parents[2] / "docs"


# ---- programs, at random

NAMES = ("f", "g", "custom")
TOOLS = (Tool(type="function", name="f"), Tool(type="custom", name="custom"))
ANSWERS = ("ok", "error: no", "exit code 2", "", "ok ok")

words = st.sampled_from(["", "a", "Let me look.", "{{output}}", "got {{output_of:f}}!", "naïve 👩‍👩‍👧 日本", " x\n\ny "])
speech = words | st.builds(lambda n: {"tokens": n}, st.integers(0, 5))
arguments = st.sampled_from(["", "raw  text", '{ "x":1}', {"x": 1}, [], None, "é👍"])
calls = st.fixed_dictionaries(
    {"name": st.sampled_from(NAMES)},
    optional={"arguments": arguments, "kind": st.sampled_from(["function_call", "custom_tool_call"])},
)
tests = st.sampled_from([{"contains": "o"}, {"equals": "ok"}, {"matches": "^o.( ok)?$"}, {"failed": True}, {"failed": False}])
conditions = st.builds(lambda test, name: {**test, **name}, tests, st.sampled_from([{}, *({"output_of": n} for n in NAMES)]))
plain_steps = st.one_of(
    st.fixed_dictionaries({"say": speech}),
    st.fixed_dictionaries({"reason": speech}),
    st.fixed_dictionaries({"call": calls}, optional={"wait": st.booleans()}),
    st.fixed_dictionaries({"calls": st.lists(calls, min_size=1, max_size=3)}, optional={"wait": st.booleans()}),
    st.just({"wait": True}),
    st.fixed_dictionaries({"stop": st.sampled_from(["end", "end", "max_output_tokens", "content_filter"])}),
    st.just({"fail": {"fault": "busy", "message": "later"}}),
)
steps = st.recursive(
    st.lists(plain_steps, max_size=5),
    lambda inner: st.lists(
        st.one_of(
            plain_steps,
            st.fixed_dictionaries({"if": conditions, "then": inner}, optional={"else": inner}),
            st.fixed_dictionaries({"repeat": st.integers(0, 3), "steps": inner}),
        ),
        max_size=4,
    ),
    max_leaves=8,
)
programs = st.fixed_dictionaries({"program": steps}, optional={"seed": st.integers(0, 9)})


# ---- rollouts


def user(text: str) -> items.Message:
    return items.Message(role="user", content=text)


def plan(context: Sequence[Item] = (), **settings: Any) -> Plan:
    return Plan(**{"model": "scripted", "tools": TOOLS, "prompt": Rendered(tuple(context), ()), **settings})


async def turn(sampler: Sampler) -> list[Chunk]:
    """Chunks up to the stop; of a model that fails, its error stands for the stop."""
    chunks: list[Chunk] = []
    while not chunks or not isinstance(chunks[-1], Stop):
        try:
            chunks += await sampler.receive()
        except ModelError as error:
            chunks.append(Stop(f"failed: {error.fault}, {error.code}, {error.message}"))  # type: ignore[arg-type]
    return chunks


def joined(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Chunks with those of one item put together."""
    result: list[Chunk] = []
    for chunk in chunks:
        last = result[-1] if result else None
        if isinstance(chunk, Text | Reasoning | CallPieces) and type(last) is type(chunk):
            result[-1] = type(chunk)([*last.pieces, *chunk.pieces], last.tokens + chunk.tokens)  # type: ignore
        else:
            result.append(chunk)
    return [evolve(c, pieces=tuple(c.pieces)) if isinstance(c, Text | Reasoning | CallPieces) else c for c in result]


@define
class Context:
    """What an engine does with chunks: it makes items of them."""

    calls: int = 0
    open: list[items.FunctionCall | items.CustomToolCall] = field(factory=list)

    def items_of(self, chunks: Sequence[Chunk]) -> list[Item]:
        made: list[Item] = []
        begin, text = None, ""
        for chunk in chunks:
            if isinstance(chunk, CallBegin):
                begin = chunk
            elif isinstance(chunk, Text | Reasoning | CallPieces):
                text += "".join(chunk.pieces)
                kind = type(chunk)
            elif isinstance(chunk, MessageEnd):
                assert text
                made.append(said(text) if kind is Text else items.Reasoning(summary=(items.SummaryText(text=text),)))
                text = ""
            elif isinstance(chunk, CallEnd):
                assert begin is not None
                call = made_call(begin, f"call_{self.calls}", text)
                self.calls += 1
                self.open.append(call)
                made.append(call)
                text = ""
        return made

    def answers(self, answer: Callable[[int, str], str]) -> list[Item]:
        made = [output(call, answer(self.calls - len(self.open) + index, call.name)) for index, call in enumerate(self.open)]
        self.open = []
        return made


def said(text: str, **more: Any) -> items.Message:
    return items.Message(role="assistant", content=(items.OutputText(text=text),), **more)


def made_call(begin: CallBegin, call_id: str, text: str) -> items.FunctionCall | items.CustomToolCall:
    if begin.kind == "custom_tool_call":
        return items.CustomToolCall(call_id=call_id, name=begin.name, input=text)
    return items.FunctionCall(call_id=call_id, name=begin.name, arguments=text)


def output(call: items.FunctionCall | items.CustomToolCall, text: str) -> Item:
    cls = items.FunctionCallOutput if isinstance(call, items.FunctionCall) else items.CustomToolCallOutput
    return cls(call_id=call.call_id, output=text)


@frozen
class Rollout:
    """A program, what the tools answer, and what the user says when the model stops otherwise."""

    program: dict[str, Any]
    answers: tuple[str, ...] = ANSWERS
    settings: dict[str, Any] = field(factory=dict)
    user_speaks: int = 3

    def answer(self, index: int, name: str) -> str:
        return f"{self.answers[index % len(self.answers)]}"

    def prompt(self) -> list[Item]:
        return [user("hello"), user(json.dumps(self.program))]

    async def play(self, deform: Callable[[list[Item]], list[Item]] | None = None) -> list[list[Chunk]]:
        """Its turns: in one sampler, or in one a turn with the history, which ``deform`` may change, sent anew."""
        context = Context()
        history = self.prompt()
        turns: list[list[Chunk]] = []
        spoken = 0
        async with AsyncExitStack() as stack:
            sampler = await stack.enter_async_context(ScriptedModel().open(plan(history, **self.settings)))
            while True:
                turns.append(joined(await turn(sampler)))
                history += context.items_of(turns[-1])
                new = context.answers(self.answer)
                if turns[-1][-1] != Stop("tool_calls"):
                    if spoken == self.user_speaks:
                        return turns
                    spoken += 1
                    new.append(user(f"go on {spoken}"))
                history += new
                if deform is None:
                    await sampler.extend(Rendered(tuple(new), ()))
                else:
                    await stack.aclose()
                    opened = ScriptedModel().open(plan(deform(list(history)), **self.settings))
                    sampler = await stack.enter_async_context(opened)


rollouts = st.builds(
    Rollout,
    programs,
    st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=4).map(tuple),
    st.fixed_dictionaries({}, optional={"parallel_tool_calls": st.booleans(), "tool_choice": st.just("none")}),
)


def kept(history: list[Item]) -> list[Item]:
    return history


def without_reasoning(history: list[Item]) -> list[Item]:
    return [item for item in history if not isinstance(item, items.Reasoning)]


def outputs_at_once(history: list[Item]) -> list[Item]:
    """Each output right behind its call, before what the model went on to say."""
    outputs = {i.call_id: i for i in history if isinstance(i, items.FunctionCallOutput | items.CustomToolCallOutput)}
    deformed: list[Item] = []
    for item in history:
        if isinstance(item, items.FunctionCall | items.CustomToolCall):
            deformed += [item, outputs[item.call_id]]
        elif not isinstance(item, items.FunctionCallOutput | items.CustomToolCallOutput):
            deformed.append(item)
    return deformed


def outputs_backwards(history: list[Item]) -> list[Item]:
    """The outputs of a turn in reverse."""
    deformed: list[Item] = []
    run: list[Item] = []
    for item in history:
        if isinstance(item, items.FunctionCallOutput | items.CustomToolCallOutput):
            run.insert(0, item)
        else:
            deformed += [*run, item]
            run = []
    return deformed + run


def cut_short(history: list[Item]) -> list[Item]:
    """Messages that were cut, and developer messages in between."""

    def cut(item: Item) -> Item:
        is_said = isinstance(item, items.Message) and item.role == "assistant"
        return said(items.text_of(item.content)[:1], status="incomplete") if is_said else item

    brief = items.Message(role="developer", content="be brief")
    return [deformed for item in history for deformed in (cut(item), brief)]


# ---- the reference: the same language, interpreted in one go


@define
class Reference:
    """Yields items as ``(kind, text)``, and stops; it is told the outputs at its waits."""

    rollout: Rollout
    made: list[str] = field(factory=list)
    count: int = 0
    last: str | None = None
    by_name: dict[str, str] = field(factory=dict)

    def turns(self) -> list[list[tuple[str, ...]]]:
        result: list[list[tuple[str, ...]]] = [[]]
        spoken = 0
        for event in self.run(self.rollout.program["program"]):
            result[-1].append(event)
            if event[0] != "stop":
                continue
            if event[1] != "tool_calls":
                if spoken == self.rollout.user_speaks:
                    return result
                spoken += 1
            result.append([])
        yield_end = [("stop", "end")]
        result[-1] += [("stop", "tool_calls")] if self.made else yield_end
        if self.made:
            result.append(yield_end)
        unsaid = range(spoken + 1, self.rollout.user_speaks + 1)
        return result + [[("message", f"You said: go on {number}"), *yield_end] for number in unsaid]

    def run(self, steps: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
        for step in steps:
            if "say" in step or "reason" in step:
                yield from self.speak("message" if "say" in step else "reasoning", step.get("say", step.get("reason")))
            elif "call" in step or "calls" in step:
                yield from self.call(step.get("calls") or [step["call"]], step.get("wait", True))
            elif "wait" in step:
                yield from self.wait()
            elif "if" in step:
                yield from self.run(step["then"] if self.holds(step["if"]) else step.get("else", []))
            elif "repeat" in step:
                for _ in range(step["repeat"]):
                    yield from self.run(step["steps"])
            elif "fail" in step:
                yield from self.stop("failed: busy, rate_limit_exceeded, later")
            else:
                if step["stop"] == "end":
                    yield from self.wait()
                yield from self.stop(step["stop"])

    def speak(self, kind: str, speech: Any) -> Iterator[tuple[str, ...]]:
        if isinstance(speech, dict):
            if speech["tokens"]:
                yield (f"{kind} tokens", str(speech["tokens"]))
            return
        text = re.sub(r"\{\{output_of:(.*?)\}\}", lambda m: self.by_name.get(m[1], ""), speech)
        text = text.replace("{{output}}", self.last or "")
        if text:
            yield (kind, text)

    def call(self, calls: list[dict[str, Any]], wait: bool) -> Iterator[tuple[str, ...]]:
        serial = not self.rollout.settings.get("parallel_tool_calls", True)
        for call in calls:
            if self.rollout.settings.get("tool_choice") != "none":
                arguments = call.get("arguments", {})
                text = arguments if isinstance(arguments, str) else json.dumps(arguments, separators=(",", ":"))
                kind = call.get("kind", "custom_tool_call" if call["name"] == "custom" else "function_call")
                yield (kind, call["name"], text)
                self.made.append(call["name"])
            if serial:
                yield from self.wait()
        if wait:
            yield from self.wait()

    def wait(self) -> Iterator[tuple[str, ...]]:
        if self.made:
            yield from self.stop("tool_calls")

    def stop(self, reason: str) -> Iterator[tuple[str, ...]]:
        yield ("stop", reason)
        for name in self.made:
            self.last = self.by_name[name] = self.rollout.answer(self.count, name)
            self.count += 1
        self.made = []

    def holds(self, condition: dict[str, Any]) -> bool:
        text = self.by_name.get(condition["output_of"]) if "output_of" in condition else self.last
        if text is None:
            return False
        if "failed" in condition:
            return (text in ("error: no", "exit code 2")) is condition["failed"]
        if "matches" in condition:
            return re.search(condition["matches"], text) is not None
        return text == condition["equals"] if "equals" in condition else condition["contains"] in text


def told(chunks: Sequence[Chunk]) -> list[tuple[str, ...]]:
    """Chunks as the reference tells them, empty calls included."""
    result: list[tuple[str, ...]] = []
    begin, text = None, ""
    for chunk in chunks:
        if isinstance(chunk, CallBegin):
            begin = chunk
        elif isinstance(chunk, Text | Reasoning | CallPieces):
            text, kind = "".join(chunk.pieces), "message" if isinstance(chunk, Text) else "reasoning"
        elif isinstance(chunk, Stop):
            result.append(("stop", chunk.reason))
        else:
            result.append((kind, text) if begin is None else (begin.kind, begin.name, text))
            begin, text = None, ""
    return result


def same(found: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    if wanted[0].endswith(" tokens"):
        return found[0] == wanted[0].removesuffix(" tokens") and tokens.count(found[1]) == int(wanted[1])
    return found == wanted


# ---- the tests


LATER = {"call": {"name": "f"}, "wait": False}
SEEN = {"if": {"contains": "o"}, "then": [{"say": "seen"}, {"say": "again"}], "else": [{"say": "unseen"}]}
SPOKEN_OF = {"say": "got {{output}}"}
TWO = {"calls": [{"name": "f"}, {"name": "g"}]}


@given(rollouts)
@example(Rollout({"program": [LATER, {"stop": "content_filter"}, SEEN, {"reason": "a"}, {"wait": True}, SEEN]}))
@example(Rollout({"program": [LATER, SEEN, {"call": {"name": "g"}}, SEEN, TWO, SPOKEN_OF]}))
@settings(max_examples=200, deadline=None)
def test_a_program_does_what_it_says(rollout: Rollout) -> None:
    turns = [told(chunks) for chunks in trio.run(rollout.play)]
    wanted = Reference(rollout).turns()
    assert [len(turn) for turn in turns] == [len(turn) for turn in wanted], (turns, wanted)
    for found, want in zip(turns, wanted, strict=True):
        assert all(map(same, found, want)), (found, want)


@given(rollouts, st.sampled_from([kept, without_reasoning, outputs_at_once, outputs_backwards, cut_short]))
@example(Rollout({"program": [LATER, {"reason": "a"}, {"reason": "b"}, {"wait": True}, SEEN]}), without_reasoning)
@example(Rollout({"program": [LATER, {"reason": "a"}]}), without_reasoning)
@example(Rollout({"program": [{"reason": "a"}, {"wait": True}, {"reason": "b"}]}), without_reasoning)
@example(Rollout({"program": [LATER, {"stop": "content_filter"}, {"reason": "a"}, {"wait": True}, SEEN]}), kept)
@example(Rollout({"program": [LATER, SEEN, {"call": {"name": "g"}}, SEEN]}), outputs_at_once)
@example(Rollout({"program": [LATER, SEEN]}), outputs_at_once)
@example(Rollout({"program": [TWO, SPOKEN_OF, {"say": {"tokens": 3}}]}), outputs_backwards)
@settings(max_examples=300, deadline=None)
def test_the_context_is_all_it_knows(rollout: Rollout, deform: Callable[[list[Item]], list[Item]]) -> None:
    assert trio.run(rollout.play, deform) == trio.run(rollout.play)


@given(rollouts)
@settings(max_examples=50, deadline=None)
def test_pieces_are_the_tokens_of_the_text(rollout: Rollout) -> None:
    for chunk in (chunk for turn in trio.run(rollout.play) for chunk in turn):
        if isinstance(chunk, Text | Reasoning | CallPieces):
            cut = tokens.cut("".join(chunk.pieces))
            assert chunk.pieces == cut.pieces
            assert chunk.tokens == sum(cut.tokens)


def spoken(turns: list[list[Chunk]]) -> list[tuple[type, str]]:
    texts = [c for turn in turns for c in turn if isinstance(c, Text | Reasoning | CallPieces)]
    return [(type(c), piece) for c in texts for piece in c.pieces]


@given(rollouts, st.integers(0, 12))
@settings(deadline=None)
def test_max_output_tokens_cuts_at_the_token(rollout: Rollout, most: int) -> None:
    """Over the whole Response. What is sampled is a prefix, and as long as the limit lets it be."""
    once = evolve(rollout, user_speaks=0)
    whole = trio.run(once.play)
    limited = trio.run(evolve(once, settings={**rollout.settings, "max_output_tokens": most}).play)
    count = sum(c.tokens for turn in limited for c in turn if isinstance(c, Text | Reasoning | CallPieces))
    assert count <= most
    assert spoken(limited) == spoken(whole)[: len(spoken(limited))]
    if limited != whole:
        following = [piece for _, piece in spoken(whole)[len(spoken(limited)) :]]
        assert limited[-1][-1] == Stop("max_output_tokens")
        assert count == most or count + tokens.count(following[0]) > most


def test_a_cut_item_is_left_open() -> None:
    rollout = Rollout({"program": [{"say": "one two three four"}]}, settings={"max_output_tokens": 2}, user_speaks=0)
    assert trio.run(rollout.play) == [[Text(("one", " two"), 2), Stop("max_output_tokens")]]
    rollout = Rollout({"program": [{"call": {"name": "f", "arguments": "a b c"}}]}, settings={"max_output_tokens": 1})
    assert trio.run(evolve(rollout, user_speaks=0).play) == [[CallBegin("f"), CallPieces(("a",), 1), Stop("max_output_tokens")]]


async def first_turn(context: Sequence[Item], **settings: Any) -> list[Chunk]:
    async with ScriptedModel().open(plan(context, **settings)) as sampler:
        return joined(await turn(sampler))


def ask(context: Sequence[Item], **settings: Any) -> list[Chunk]:
    return trio.run(lambda: first_turn(context, **settings))


def text_in(chunks: Sequence[Chunk]) -> str:
    return "".join("".join(chunk.pieces) for chunk in chunks if isinstance(chunk, Text))


def program(*steps: Any) -> items.Message:
    return user(json.dumps({"program": steps}))


def test_the_last_program_counts() -> None:
    assert text_in(ask([program({"say": "old"}), user("and"), program({"say": "new"}), user("so?")])) == "new"
    assert text_in(ask([program({"say": "old"}), said("old"), program({"say": "new"})])) == "new"


def test_a_new_program_remembers_nothing_of_the_old() -> None:
    call = items.FunctionCall(call_id="1", name="f", arguments="{}")
    context = [program({"call": {"name": "f"}}), call, output(call, "old"), program({"say": "<{{output}}>"})]
    assert text_in(ask(context)) == "<>"


def test_a_cut_call_and_a_lost_output_hold_nothing_up() -> None:
    steps = ({"call": {"name": "f"}}, {"if": {"contains": ""}, "then": [{"say": "seen"}], "else": [{"say": "unseen"}]})
    call = items.FunctionCall(call_id="1", name="f", arguments="{}")
    assert text_in(ask([program(*steps), evolve(call, status="incomplete"), user("go on")])) == "unseen"
    assert text_in(ask([program(*steps), call])) == "unseen"
    assert text_in(ask([program(*steps), call, output(call, "x")])) == "seen"


def test_an_output_that_comes_late_is_counted_once() -> None:
    first = items.FunctionCall(call_id="1", name="f", arguments="{}")
    steps = [{"call": {"name": "f"}, "wait": False}, {"say": "x"}, {"call": {"name": "g"}}, {"call": {"name": "g"}}]

    async def main() -> None:
        async with ScriptedModel().open(plan([program(*steps), first])) as sampler:
            assert (await turn(sampler))[-1] == Stop("tool_calls")
            late = (output(first, "late"), items.FunctionCallOutput(call_id="2", output="ok"))
            await sampler.extend(Rendered(late, ()))
            assert (await turn(sampler))[-1] == Stop("tool_calls")

    trio.run(main)


def test_what_was_dropped_is_passed_over() -> None:
    steps = ({"say": "a"}, {"call": {"name": "f"}}, {"say": "b"}, {"call": {"name": "g"}}, {"say": "c"})
    call = items.FunctionCall(call_id="1", name="g", arguments="{}")
    assert text_in(ask([program(*steps), call, output(call, "x")])) == "c"
    assert text_in(ask([program(*steps), said("a"), said("b"), call, output(call, "x")])) == "c"


def test_items_of_others_are_ignored() -> None:
    other = items.FunctionCall(call_id="9", name="stranger", arguments="{}")
    call = items.FunctionCall(call_id="1", name="f", arguments="{}")
    context = [program({"call": {"name": "f"}}, {"say": "<{{output}}>"}), other, call, output(other, "no"), output(call, "x")]
    assert text_in(ask(context)) == "<x>"
    assert ask([said("hello"), call, output(call, "x")]) == [Stop("end")]


def test_hosted_calls_are_one_item() -> None:
    steps = ({"calls": [{"name": "f"}, {"name": "file_search", "arguments": {"queries": ["x"]}}]}, {"say": "{{output}}"})
    found = items.FileSearchCall(
        id="fs_1", queries=("x",), status="completed", results=({"filename": "a.py", "text": "import b"},)
    )
    call = items.FunctionCall(call_id="1", name="f", arguments="{}")

    async def live() -> str:
        async with ScriptedModel().open(plan([program(*steps)])) as sampler:
            await turn(sampler)
            await sampler.extend(Rendered((found, output(call, "x")), ()))
            return text_in(await turn(sampler))

    assert trio.run(live) == "a.py: import b"
    assert text_in(ask([program(*steps), call, found, output(call, "x")])) == "a.py: import b"


@pytest.mark.parametrize(
    "output",
    [
        items.ApplyPatchCallOutput(call_id="1", status="failed"),
        items.ShellCallOutput(
            call_id="1",
            output=(items.ShellOutputChunk(stdout="", stderr="", outcome=items.ShellOutcome(type="exit", exit_code=1)),),
        ),
        items.LocalShellCallOutput(output="Error: no", id="1"),
        items.FunctionCallOutput(call_id="1", output="Chunk ID: 1\nProcess exited with code 1\nOutput:\n"),
        items.FunctionCallOutput(call_id="1", output='{"metadata": {"exit_code": 1}}'),
        items.FunctionCallOutput(call_id="1", output='{"is_error": true}'),
        items.FunctionCallOutput(call_id="1", output=(items.InputText(text="timed out after 2 s"),)),
    ],
)
def test_failed_tools(output: Item) -> None:
    steps = ({"call": {"name": "f"}}, {"if": {"failed": True}, "then": [{"say": "failed"}], "else": [{"say": "fine"}]})
    call = items.FunctionCall(call_id="1", name="f", arguments="{}")
    assert text_in(ask([program(*steps), call, output])) == "failed"
    assert text_in(ask([program(*steps), call, items.FunctionCallOutput(call_id="1", output="exit code 0")])) == "fine"


def test_a_malformed_program_fails_where_it_comes() -> None:
    bad = user('{"program": [{"say": 1}]}')
    with pytest.raises(ModelError, match=r"program\[0\]\.say: expected a text") as caught:
        ask([bad, user("well?")])
    assert (caught.value.fault, caught.value.code) == ("request", "invalid_prompt")
    assert text_in(ask([bad, program({"say": "better"})])) == "better"

    async def live() -> list[Chunk]:
        async with ScriptedModel().open(plan([program()])) as sampler:
            assert await turn(sampler) == [Stop("end")]
            await sampler.extend(Rendered((bad,), ()))
            return await turn(sampler)

    assert "invalid_prompt" in trio.run(live)[-1].reason


def test_after_a_stop_it_stays_stopped() -> None:
    async def main() -> None:
        async with ScriptedModel().open(plan([program({"call": {"name": "f"}}, {"say": "x"})])) as sampler:
            await turn(sampler)
            assert await sampler.receive() == [Stop("tool_calls")]
            await sampler.extend(Rendered((), ()))
            assert text_in(await turn(sampler)) == "x"

    trio.run(main)


def test_a_long_program_comes_in_bounded_batches() -> None:
    async def main() -> None:
        steps = [{"say": "word " * 30_000}, {"repeat": 500, "steps": [{"call": {"name": "f", "arguments": ""}, "wait": False}]}]
        async with ScriptedModel().open(plan([program(*steps)])) as sampler:
            batches = []
            while not batches or not isinstance(batches[-1][-1], Stop):
                batches.append(await sampler.receive())
        assert all(len(batch) <= 130 for batch in batches)
        assert all(len(chunk.pieces) <= 64 for batch in batches for chunk in batch if isinstance(chunk, Text))
        chunks = joined([chunk for batch in batches for chunk in batch])
        assert chunks[0] == Text(*[tokens.cut("word " * 30_000).pieces, tokens.count("word " * 30_000)])
        assert sum(isinstance(chunk, CallEnd) for chunk in chunks) == 500

    trio.run(main)


def test_it_finds_its_place_in_a_long_history() -> None:
    count = 3_000
    step = {"repeat": count + 1, "steps": [{"call": {"name": "f"}}]}
    context: list[Item] = [program(step)]
    for index in range(count):
        call = items.FunctionCall(call_id=str(index), name="f", arguments="{}")
        context += [call, output(call, "ok")]
    assert isinstance(ask(context)[0], CallBegin)
    assert ask([*context, *context[1:3]]) == [Stop("end")]


# ---- without a program

EXEC = Tool(
    type="function",
    name="exec_command",
    parameters={
        "type": "object",
        "properties": {"cmd": {"type": "string"}, "login": {"type": "boolean"}},
        "required": ["cmd", "login"],
    },
)
SHELL = Tool(
    type="function",
    name="shell",
    parameters={"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}},
)
BASH = Tool(type="function", name="bash", parameters={})
GEMINI = Tool(type="function", name="run_shell_command", parameters={"properties": {"command": {"type": "string"}}})
CUSTOM = Tool(type="custom", name="terminal")
OTHERS = (Tool(type="web_search"), Tool(type="local_shell"), Tool(type="function", name="view_image"))
LISTING = """total 3
drwxr-xr-x 3 me me   22 Nov 29 17:30 .
-rw-r--r-- 1 me me   22 Nov 29 17:30 .env
-rw-r--r--@ 1 me me  22 Nov 29  2024 my keys.txt
-rw-r--r-- 1 me me   22 Nov 29 17:30 blob
-rw-r--r-- 1 me me   22 Nov 29 17:30 some notes.md
"""


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (EXEC, '{"login":false,"cmd":"ls -la"}'),
        (SHELL, '{"command":["bash","-lc","ls -la"]}'),
        (BASH, '{"command":"ls -la"}'),
        (GEMINI, '{"command":"ls -la"}'),
        (CUSTOM, "ls -la"),
    ],
)
def test_it_looks_around_with_any_shell(tool: Tool, arguments: str) -> None:
    chunks = ask([user("<environment/>"), user("What is here?")], tools=(*OTHERS, tool))
    kind = "custom_tool_call" if tool.type == "custom" else "function_call"
    assert chunks[0] == CallBegin(str(tool.name), kind)
    assert "".join(chunks[1].pieces) == arguments
    assert chunks[-1] == Stop("tool_calls")


def looks(*outputs: str, message: str = "What is here?") -> tuple[list[str], str]:
    """The commands it runs, answered with ``outputs``, and its report."""

    async def main() -> tuple[list[str], str]:
        commands = []
        async with ScriptedModel().open(plan([user(message)], tools=(*OTHERS, GEMINI))) as sampler:
            for text in outputs:
                chunks = joined(await turn(sampler))
                commands.append(json.loads("".join(chunks[1].pieces))["command"])
                await sampler.extend(Rendered((items.FunctionCallOutput(call_id=text, output=text),), ()))
            chunks = await turn(sampler)
            assert chunks[-1] == Stop("end")
            return commands, text_in(chunks)

    return trio.run(main)


def test_it_reads_something_harmless_and_reports() -> None:
    commands, report = looks(LISTING, "# Notes\n```\n")
    assert commands == ["ls -la", "head -n 20 'some notes.md'"]
    assert "What is here?" in report
    assert "blob" in report
    assert "# Notes" in report
    assert looks("Output:\n" + LISTING + "-rw-r--r-- 1 me me 22 Nov 29 17:30 README.md\n", "")[0][1] == "head -n 20 README.md"
    assert looks(json.dumps({"output": LISTING}), "")[0][1] == "head -n 20 'some notes.md'"
    assert looks("a.txt b.txt", "")[0][1] == "pwd"


@pytest.mark.parametrize(
    ("message", "command"),
    [
        ("Say hi by running echo.", "echo hi"),
        ("please run echo hello world!", "echo hello world"),
        ("Run `echo 'a b'`, then stop", "echo a b"),
        ("run echo $(rm -rf ~)", "echo '$(rm -rf ~)'"),
        ("run echo a; reboot", "echo 'a; reboot'"),
    ],
)
def test_it_obeys_an_echo(message: str, command: str) -> None:
    commands, report = looks("the output", message=message)
    assert commands == [command]
    assert command in report
    assert "the output" in report


def test_without_a_shell_it_says_so() -> None:
    chunks = ask([user("What is here?")], tools=OTHERS)
    assert "What is here?" in text_in(chunks)
    assert chunks[-1] == Stop("end")
    assert ask([], tools=OTHERS) == [Stop("end")]
    assert "could not" in text_in(ask([user("x")], tools=(BASH,), tool_choice="none"))


def test_tools_that_come_as_an_item() -> None:
    item = items.OtherItem(
        type="additional_tools",
        extra={"tools": [{"type": "custom", "name": "bash"}, {"type": 1}, "nonsense"]},
    )
    assert ask([item, user("look")], tools=())[0] == CallBegin("bash", "custom_tool_call")


def test_each_message_is_answered_anew() -> None:
    call = items.FunctionCall(call_id="1", name="bash", arguments="{}")
    context = [user("look"), call, output(call, "x"), user("run echo b")]
    assert "".join(ask(context, tools=(BASH,))[1].pieces) == '{"command":"echo b"}'


# ---- pace


@given(st.integers(1, 300), st.sampled_from([0.5, 3, 65, 1000, 4000]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_tokens_come_when_they_are_due(count: int, rate: float, own: bool) -> None:
    spec: dict[str, Any] = {"program": [{"say": {"tokens": count}}]}
    if own:
        spec["tokens_per_second"] = rate

    async def main() -> None:
        model = ScriptedModel(tokens_per_second=1 if own else rate)
        async with model.open(plan([user(json.dumps(spec))])) as sampler:
            start, given = trio.current_time(), 0
            while given < count:
                chunks = await sampler.receive()
                given += sum(chunk.tokens for chunk in chunks if isinstance(chunk, Text))
                assert trio.current_time() - start == pytest.approx(given / rate)
            assert isinstance(chunks[-1], Stop)

    virtually(main)


def test_a_late_reader_gets_what_is_due() -> None:
    async def main() -> None:
        model = ScriptedModel(tokens_per_second=10)
        async with model.open(plan([program({"say": {"tokens": 100}}, {"call": {"name": "f"}}, {"say": "a b"})])) as sampler:
            assert (await sampler.receive())[0].tokens == 1
            await trio.sleep(2)
            assert (await sampler.receive())[0].tokens == 20
            await trio.sleep(50)
            start = trio.current_time()
            rest = await turn(sampler)
            assert sum(chunk.tokens for chunk in rest if isinstance(chunk, Text)) == 79
            assert trio.current_time() == start  # all was due
            await trio.sleep(50)
            await sampler.extend(Rendered((), ()))
            start = trio.current_time()
            await turn(sampler)
            assert trio.current_time() - start == pytest.approx(0.2)  # the schedule began anew

    virtually(main)


def test_cancelling_a_receive_loses_nothing() -> None:
    async def main() -> None:
        model = ScriptedModel(tokens_per_second=10)
        async with model.open(plan([program({"say": "one two three"})])) as sampler:
            with trio.move_on_after(0.05) as scope:
                await sampler.receive()
            assert scope.cancelled_caught
            assert text_in(await turn(sampler)) == "one two three"

    virtually(main)


def test_every_receive_is_a_checkpoint() -> None:
    async def main() -> None:
        async with ScriptedModel().open(plan([program()])) as sampler:
            for _ in range(3):
                with trio.testing.assert_checkpoints():
                    await sampler.receive()

    trio.run(main)


# ---- the documentation


def documented() -> list[dict[str, Any]]:
    return [json.loads(block) for block in re.findall(r"```json\n(.*?)```", (DOCS / "scripted.md").read_text(), re.DOTALL)]


@pytest.mark.parametrize("example", documented(), ids=lambda example: json.dumps(example)[:60])
def test_the_examples_of_the_documentation_run(example: dict[str, Any]) -> None:
    assert Reference(Rollout(example)).turns() != []
    turns = trio.run(Rollout(example).play)
    assert any(isinstance(chunk, Text) for chunk in itertools.chain(*turns))
    assert turns[-1][-1] == Stop("end")
