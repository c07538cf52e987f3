"""Models behind servers that take token ids: what is sent, what becomes of it, and faults."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from engine.models import load_model
from engine.models.base import Chunk, Counted, ModelError, Plan, Rendered, Stop, Text
from engine.models.completions import CompletionsModel
from engine.models.completions.sampler import CompletionsSampler
from engine.models.formats.chatml import ChatML
from engine.testing.completions import Break, Refuse, TokenServer
from engine.testing.vocabulary import SmallVocabulary
from protocol.items import FunctionCall, Message
from protocol.requests import Tool

WORDS = SmallVocabulary()
FORM = ChatML(WORDS)
STOP = WORDS.special("<|im_end|>")
LOOK = Tool(type="function", name="look", parameters={"type": "object"})
TURN = FORM.render_calls([FunctionCall(call_id="c", name="look", arguments="{}")])
CALL = TURN[len(FORM.opening) : -len(FORM.closing)]


def said(text: str) -> list[int]:
    """A turn that says ``text``."""
    return [*WORDS.encode(text), STOP]


def plan(text: str = "Go", **options: Any) -> Plan:
    """A plan for what a user says."""
    items = (Message(role="user", content=text),)
    return Plan(model="m", tools=(LOOK,), prompt=Rendered(items, FORM.render_prompt(None, (LOOK,), items)), **options)


def more(text: str) -> Rendered:
    """What a user says next."""
    items = (Message(role="user", content=text),)
    return Rendered(items, FORM.render_results(items))


def model_of(server: TokenServer, **options: Any) -> CompletionsModel:
    """A model there."""
    return CompletionsModel(server.upstream, FORM, WORDS, **options)


async def turn(sampler: CompletionsSampler) -> list[Chunk]:
    """All chunks of a turn; the last is a ``Stop``."""
    chunks: list[Chunk] = []
    while not chunks or not isinstance(chunks[-1], Stop):
        chunks += await sampler.receive()
    return chunks


def text_of(chunks: Sequence[Chunk]) -> str:
    """What was said."""
    return "".join("".join(chunk.pieces) for chunk in chunks if isinstance(chunk, Text))


def run(main: Callable[[], Awaitable[None]]) -> None:
    """In virtual time."""
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def in_a_turn(server: TokenServer, then: Callable[[CompletionsSampler], Awaitable[None]], **options: Any) -> None:
    """Run ``then`` with a sampler."""

    async def main() -> None:
        model = model_of(server)
        async with model.running(), model.open(plan(**options)) as sampler:
            await then(sampler)

    run(main)


KINDS = pytest.mark.parametrize("slots", [2, None], ids=["llama", "vllm"])


@KINDS
def test_ids_go_out_and_come_back_as_they_were_sampled(slots: int | None) -> None:
    odd = [*WORDS.encode("a"), *WORDS.encode("rguments"), *WORDS.encode(" 日本 €")]  # no tokenizer cuts so
    server = TokenServer(lambda _: [*odd, STOP], WORDS, slots=slots)

    async def then(sampler: CompletionsSampler) -> None:
        first = await turn(sampler)
        assert text_of(first) == "arguments 日本 €"
        assert first[-1] == Stop("end")
        assert list(sampler.turn_ids()) == [*FORM.opening, *odd, *FORM.closing]
        await sampler.extend(more("And?"))
        await turn(sampler)
        begun = [*plan().prompt.ids, *FORM.opening]
        asked = [request["prompt"] for request in server.requests[-2:]]
        assert asked == [begun, [*begun, *odd, *FORM.closing, *more("And?").ids, *FORM.opening]]

    in_a_turn(server, then)


@given(ids=st.lists(st.integers(0, len(WORDS) - 1).filter(lambda token: token < WORDS.special("<|im_start|>")), max_size=30))
def test_characters_that_take_several_tokens_are_told_apart(ids: list[int]) -> None:
    """llama.cpp says the last id of a character only. What is made of the rest says the same, in as many tokens."""
    data = b"".join(WORDS.token_bytes(token) for token in ids)
    try:
        data.decode()
    except UnicodeDecodeError:
        return  # what is no text at all can't be told: see the next test
    server = TokenServer(lambda _: [*ids, STOP], WORDS, slots=1)

    async def then(sampler: CompletionsSampler) -> None:
        await turn(sampler)
        sampled = list(sampler.turn_ids())[len(FORM.opening) : -len(FORM.closing)]
        assert b"".join(WORDS.token_bytes(token) for token in sampled) == data
        assert len(sampled) == len(ids)

    in_a_turn(server, then)


@given(ids=st.lists(st.integers(128, 255), max_size=12))
def test_tokens_that_are_no_text_are_counted_all_the_same(ids: list[int]) -> None:
    server = TokenServer(lambda _: [*ids, STOP], WORDS, slots=1)

    async def then(sampler: CompletionsSampler) -> None:
        chunks = await turn(sampler)
        counted = sum(chunk.tokens for chunk in chunks if isinstance(chunk, Counted | Text))
        assert counted == len(ids)

    in_a_turn(server, then)


@KINDS
def test_a_turn_ends_with_calls_or_with_an_answer_or_with_its_tokens(slots: int | None) -> None:
    turns = iter([[*CALL, STOP], said("Done."), said("x" * 50)])
    now = [next(turns)]
    server = TokenServer(lambda _: now[0], WORDS, slots=slots)

    async def then(sampler: CompletionsSampler) -> None:
        assert (await turn(sampler))[-1] == Stop("tool_calls")
        for reason in ("end", "max_output_tokens"):
            now[0] = next(turns)
            await sampler.extend(more("On"))
            assert (await turn(sampler))[-1] == Stop(reason)  # type: ignore[arg-type]
        asked = len(server.requests)
        assert server.requests[-1]["max_tokens" if slots is None else "n_predict"] == 3
        await sampler.extend(more("On"))
        assert await turn(sampler) == [Stop("max_output_tokens")]
        assert len(server.requests) == asked

    in_a_turn(server, then, max_output_tokens=len(CALL) + len(WORDS.encode("Done.")) + 3)


@KINDS
def test_a_model_that_may_make_one_call_is_stopped_behind_it(slots: int | None) -> None:
    server = TokenServer(lambda _: [*CALL, *WORDS.encode("\n"), *CALL, STOP], WORDS, slots=slots, token_seconds=1)

    async def then(sampler: CompletionsSampler) -> None:
        assert (await turn(sampler))[-1] == Stop("tool_calls")
        assert list(sampler.turn_ids()) == [*FORM.opening, *CALL, *FORM.closing]
        assert server.dropped == 1

    in_a_turn(server, then, parallel_tool_calls=False)


ALLOWED = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]}


@KINDS
@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "look"}, ALLOWED])
def test_a_call_that_has_to_be_made_is_made_in_the_first_turn(slots: int | None, choice: Any) -> None:
    server = TokenServer(lambda _: [*CALL, STOP], WORDS, slots=slots)

    async def then(sampler: CompletionsSampler) -> None:
        await turn(sampler)
        await sampler.extend(more("On"))
        await turn(sampler)
        first, second = server.requests[-2:]
        assert "grammar" in first or "ebnf" in first
        assert not {"grammar", "ebnf", "structured_outputs"} & second.keys()

    in_a_turn(server, then, tool_choice=choice)


@pytest.mark.parametrize("where", ["token_ids", "logprobs", "content"])
def test_ids_are_found_where_a_server_says_them(where: str) -> None:
    server = TokenServer(lambda _: said("Hi"), WORDS, says_ids=where)

    async def then(sampler: CompletionsSampler) -> None:
        assert text_of(await turn(sampler)) == "Hi"
        assert list(sampler.turn_ids()) == [*FORM.opening, *WORDS.encode("Hi"), *FORM.closing]

    in_a_turn(server, then)


def test_a_server_that_says_no_ids_is_not_used() -> None:
    async def main() -> None:
        with pytest.raises(ModelError, match="use chat:"):
            async with model_of(TokenServer(lambda _: said("Hi"), WORDS, says_ids=None)).running():
                pass

    run(main)


# ---- faults


@KINDS
def test_what_breaks_before_a_token_is_asked_again(slots: int | None) -> None:
    server = TokenServer(lambda _: said("Hi"), WORDS, slots=slots)

    async def then(sampler: CompletionsSampler) -> None:
        loading = Refuse(503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}})
        server.faults.extend([Break(-1), Break(0), loading])
        assert text_of(await turn(sampler)) == "Hi"
        assert len(sampler.turn_ids()) == len(FORM.opening) + len(WORDS.encode("Hi")) + len(FORM.closing)

    in_a_turn(server, then)


@KINDS
def test_what_breaks_behind_a_token_is_an_error_and_stays_one(slots: int | None) -> None:
    server = TokenServer(lambda _: said("Hi there"), WORDS, slots=slots)

    async def then(sampler: CompletionsSampler) -> None:
        server.faults.append(Break(3))
        asked = len(server.requests)
        for _ in range(2):
            with pytest.raises(ModelError, match="is not there"):
                await turn(sampler)
        assert len(server.requests) == asked + 1
        assert not server.busy

    in_a_turn(server, then)


def test_a_conversation_without_room_is_told_its_length() -> None:
    server = TokenServer(lambda _: said("Hi"), WORDS, slots=1, context=20)

    async def then(sampler: CompletionsSampler) -> None:
        with pytest.raises(ModelError, match="20 at most") as caught:
            await turn(sampler)
        assert (caught.value.code, caught.value.fault) == ("context_length_exceeded", "request")
        assert not server.requests

    in_a_turn(server, then)


def test_a_server_that_finds_it_too_long_is_understood() -> None:
    server = TokenServer(lambda _: said("Hi"), WORDS, slots=1)
    told = {"code": 400, "message": "request (9 tokens) exceeds the context size", "type": "exceed_context_size_error"}

    async def then(sampler: CompletionsSampler) -> None:
        server.faults.append(Refuse(400, {"error": told}))
        with pytest.raises(ModelError) as caught:
            await turn(sampler)
        assert (caught.value.code, caught.value.fault) == ("context_length_exceeded", "request")

    in_a_turn(server, then)


@KINDS
def test_cancelled_it_samples_no_more_and_its_slot_is_free(slots: int | None) -> None:
    server = TokenServer(lambda _: said("x" * 1000), WORDS, slots=slots, token_seconds=1)

    async def main() -> None:
        model = model_of(server)
        async with model.running():
            before = server.dropped
            with trio.move_on_after(10.5):
                async with model.open(plan()) as sampler:
                    await turn(sampler)
            assert server.dropped == before + 1
            assert not server.busy
            sampled = server.sampled
            await trio.sleep(100)
            assert server.sampled == sampled

    run(main)


# ---- holding and letting go


def test_a_held_state_is_gone_on_from_and_a_lost_one_is_read_again() -> None:
    server = TokenServer(lambda _: said("Hi"), WORDS, slots=2)

    async def main() -> None:
        model = model_of(server)
        async with model.running(), AsyncExitStack() as stack:
            parked = [await stack.enter_async_context(model.open(plan(name))) for name in ("one", "two")]
            for sampler in parked:
                await turn(sampler)
            async with model.open(plan("three")) as third:  # takes the slot of the first
                await turn(third)
            for sampler in reversed(parked):
                await sampler.extend(more("On"))
                await turn(sampler)
            reports = [(sampler.report()["kv_kept"], sampler.report()["kv_lost"]) for sampler in parked]
            assert reports == [(0, 1), (1, 0)]

    run(main)


@pytest.mark.parametrize(("waits", "kept"), [(5, 1), (15, 0)])
def test_a_park_longer_than_it_is_held_leaves_the_slot_to_others(waits: float, kept: int) -> None:
    server = TokenServer(lambda _: said("Hi"), WORDS, slots=2)

    async def main() -> None:
        model = model_of(server, hold_seconds=10)
        async with model.running(), model.open(plan("one")) as sampler:
            await turn(sampler)
            await trio.sleep(waits)
            for name in ("two", "three"):  # one after the other: the second slot would do for both
                async with model.open(plan(name * 200)) as other:
                    await turn(other)
            await sampler.extend(more("On"))
            await turn(sampler)
            assert sampler.report()["kv_kept"] == kept

    run(main)


def test_what_begins_as_an_ended_one_goes_on_in_its_slot() -> None:
    """So the other shapes get what prefix caching gives."""
    server = TokenServer(lambda _: said("Hi"), WORDS, slots=3)

    async def main() -> None:
        model = model_of(server)
        async with model.running():
            async with model.open(plan()) as sampler:
                await turn(sampler)
                ids = [*plan().prompt.ids, *sampler.turn_ids()]
            again = Plan(model="m", prompt=Rendered((), [*ids, *more("On").ids]))
            async with model.open(again) as sampler:
                await turn(sampler)
                assert sampler.report()["kv_tokens_reused"] >= len(ids) - len(FORM.closing)

    run(main)


@define
class Story:
    """A Response: what it says, and when."""

    name: str
    begins: float
    tools: list[float] = field(factory=list)
    """Seconds of each park."""


stories = st.lists(
    st.builds(
        Story,
        name=st.text("abc", min_size=1, max_size=30),
        begins=st.floats(0, 20),
        tools=st.lists(st.sampled_from([0.0, 0.5, 3.0, 20.0]), max_size=4),
    ),
    min_size=1,
    max_size=7,
)


@given(stories=stories, slots=st.integers(1, 3), hold=st.sampled_from([0.0, 2.0, float("inf")]), cancelled=st.booleans())
def test_slots_are_shared_and_nothing_is_mixed_up(stories: list[Story], slots: int, hold: float, cancelled: bool) -> None:
    """Each request has all ids of its Response. No slot is asked for while it samples, and all end. ``TokenServer`` looks."""
    server = TokenServer(lambda ids: said(f"{len(ids)}"), WORDS, slots=slots, token_seconds=0.25)
    counts = {"parks": 0, "told": 0}

    async def live(model: CompletionsModel, story: Story) -> None:
        await trio.sleep(story.begins)
        async with model.open(plan(story.name)) as sampler:
            ids = [*plan(story.name).prompt.ids]
            for park in (*story.tools, None):
                expected = said(f"{len(ids) + len(FORM.opening)}")[:-1]
                await turn(sampler)
                assert list(sampler.turn_ids()) == [*FORM.opening, *expected, *FORM.closing]
                ids += sampler.turn_ids()
                if park is not None:
                    counts["parks"] += 1
                    await trio.sleep(park)
                    await sampler.extend(more("On"))
                    ids += more("On").ids
            counts["told"] += sampler.report()["kv_kept"] + sampler.report()["kv_lost"]

    async def main() -> None:
        model = model_of(server, hold_seconds=hold)
        async with model.running(), trio.open_nursery() as nursery:
            for story in stories:
                nursery.start_soon(live, model, story)
            if cancelled:
                await trio.sleep(8)
                nursery.cancel_scope.cancel()
        assert not server.busy
        assert cancelled or counts["told"] == counts["parks"]

    run(main)


def test_the_vocabulary_has_to_be_said() -> None:
    with pytest.raises(ValueError, match=r"completions:http://127.0.0.1:9\?gguf=FILE"):
        load_model("completions:http://127.0.0.1:9")
