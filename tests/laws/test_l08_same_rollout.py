"""L8 same rollout: one script gives the same items, texts and calls in all three shapes, and usage that agrees; the token ids
given to the model after a resume are those of one uninterrupted rendering, and earlier ids never change."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.chains import open_wire, run_chain
from engine.client import connect
from engine.client_tools import Toolbox
from engine.models.scripted import ScriptedModel
from engine.serving import Options, running
from engine.testing import user, virtually
from engine.testing.profile import examples
from engine.testing.tools import FakeSearch

from .support_shapes import (
    CHAINS,
    NAMED,
    WAYS,
    Client,
    Json,
    Played,
    WatchedModel,
    bare,
    house,
    left_unread,
    lived_rendering,
    play,
    whole_rendering,
)

HOSTED = "file_search"
TOOLS: list[Json] = [
    {"type": "function", "name": "read", "description": "Reads.", "parameters": {"type": "object", "properties": {}}},
    {"type": "custom", "name": "t0"},
]

# ---- programs

texts = st.sampled_from(["Hello.", "a b c", 'a "quoted" \\ word', "naïve café ☕", "行きましょう 👩‍👩‍👧‍👦", "line\nline\n"])
outputs = st.sampled_from(["ok", "it returned 7", "error: no such file", "exit code 1\n🎹", "", "long " * 50])
quotes = st.sampled_from(["{{output}}", "so: {{output_of:t0}}!", "found {{output_of:file_search}}"])
waits: st.SearchStrategy[Json] = st.sampled_from([{}, {}, {"wait": False}])


searches: st.SearchStrategy[Json] = st.sampled_from(["notes", "🎹"]).map(
    lambda word: {"name": HOSTED, "arguments": {"query": word}}
)


def calls(hosted: bool) -> st.SearchStrategy[Json]:
    names = st.sampled_from(["read", "t0", "nobody"])
    arguments = st.sampled_from(["{}", '{"path":"é/🎹.txt"}', "not json", '{ "n":  1.0}'])
    own = st.fixed_dictionaries({"name": names, "arguments": arguments})
    return st.one_of(own, own, searches) if hosted else own


def steps(hosted: bool, depth: int = 1) -> st.SearchStrategy[Json]:
    one = calls(hosted)
    leaves: list[st.SearchStrategy[Json]] = [
        st.one_of(texts, quotes).map(lambda text: {"say": text}),
        texts.map(lambda text: {"reason": text}),
        st.integers(1, 40).map(lambda count: {"say": {"tokens": count}}),
        st.builds(lambda call, wait: {"call": call, **wait}, one, waits),
        st.builds(lambda some, wait: {"calls": some, **wait}, st.lists(one, min_size=2, max_size=4), waits),
        st.builds(lambda some: {"calls": some}, st.lists(one, min_size=1, max_size=3)),
        st.sampled_from([{"wait": True}, {"stop": "end"}]),
    ]
    if hosted:  # both kinds in one batch, in either order
        both = st.tuples(calls(False), searches).flatmap(st.permutations)
        leaves += [st.builds(lambda some, more: {"calls": [*some, *more]}, both, st.lists(one, max_size=2))] * 2
    if not depth:
        return st.one_of(leaves)
    inner = st.lists(steps(hosted, depth - 1), min_size=1, max_size=2)
    words = st.sampled_from(["ok", "error", "🎹"])
    branch = st.builds(lambda word, yes, no: {"if": {"contains": word}, "then": yes, "else": no}, words, inner, inner)
    again = st.builds(lambda count, body: {"repeat": count, "steps": body}, st.integers(0, 2), inner)
    return st.one_of(*leaves, branch, again)


def programs(hosted: bool) -> st.SearchStrategy[list[Json]]:
    rare = [{"stop": "max_output_tokens"}, {"stop": "content_filter"}, {"fail": {"fault": "busy"}}, {"fail": {}}]
    last = st.one_of(*[st.just({"say": "Done: {{output}}."})] * 3, st.sampled_from(rare))
    return st.builds(lambda body, end: [*body, end], st.lists(steps(hosted), min_size=1, max_size=5), last)


@st.composite
def bodies(draw: st.DrawFn, hosted: bool) -> Json:
    """A create's body."""
    pace = draw(st.sampled_from([{}, {}, {"tokens_per_second": 50}]))
    program = json.dumps({"program": draw(programs(hosted)), **pace}, ensure_ascii=False)
    before = draw(st.lists(texts.map(user), max_size=1))
    tools = [*draw(st.sampled_from([TOOLS, []])), *([{"type": HOSTED}] if hosted else [])]
    fields = draw(st.fixed_dictionaries({}, optional={"instructions": texts, "parallel_tool_calls": st.booleans()}))
    return {"model": "scripted", "input": [*before, user(program)], "tools": tools, **fields}


sometimes_hosted = st.sampled_from([True, True, False])
clients = st.builds(
    Client,
    st.lists(outputs, min_size=1, max_size=4),
    st.lists(st.none() | texts, min_size=1, max_size=3),
    st.lists(st.one_of(texts, st.just(json.dumps({"program": [{"call": {"name": "read"}}, {"say": "again"}]}))), max_size=2),
)


# ---- in each shape


def play_all(body: Json, client: Client, *, seconds: float = 0.0, named: bool = True) -> dict[str, Played]:
    """The rollout in each way, each in an engine of its own."""

    async def one(way: str) -> Played:
        model = WatchedModel(ScriptedModel(), [HOSTED] if named else None)
        async with house(model, hosted={HOSTED: FakeSearch(seconds=seconds)}) as at:
            return await play(at, way, body, client)

    return {way: virtually(lambda way=way: one(way)) for way in WAYS}  # type: ignore[misc]


@examples(60)
@given(sometimes_hosted.flatmap(bodies), clients, st.booleans())
def test_l08_same_items(body: Json, client: Client, named: bool) -> None:
    """Whoever names the calls."""
    played = play_all(body, client, named=named)
    append = played["append"]
    assert len(append.responses) == 1
    for way in WAYS[1:]:
        assert played[way].items == append.items, way
        assert played[way].ending == append.ending, way


def each_call_has_its_output(played: Played) -> bool:
    """By name, in whatever order, each once."""
    calls = [item.call_id for item in played.context if item.type.endswith("_call") and hasattr(item, "call_id")]
    answers = [item.call_id for item in played.context if item.type.endswith("_call_output")]
    return len(set(calls)) == len(calls) and answers == calls[: len(answers)]


@examples(60)
@given(sometimes_hosted.flatmap(bodies), clients, st.sampled_from([0.0, 0.5]))
def test_l08_usage_agrees(body: Json, client: Client, seconds: float) -> None:
    played = play_all(body, client, seconds=seconds)
    append = played["append"]
    assert append.fresh == append.usage("input_tokens") == [sum(len(life.ids) for life in append.lives)]
    for way in WAYS[1:]:
        assert sum(played[way].usage("output_tokens")) == sum(append.usage("output_tokens")), way
        reasoning = ("output_tokens_details", "reasoning_tokens")
        assert sum(played[way].usage(*reasoning)) == sum(append.usage(*reasoning)), way
    for way in CHAINS:
        assert sum(played[way].fresh) == sum(append.fresh), way
        assert sum(played[way].counts("render", "tokens")) == sum(append.counts("render", "tokens")), way
        assert played[way].usage("input_tokens_details", "cached_tokens")[0] == 0
    for name in ("input_tokens", "total_tokens"):
        assert played["http"].usage(name) == played["create"].usage(name)
    assert set(played["history"].usage("input_tokens_details", "cached_tokens")) == {0}
    if HOSTED not in str(body):  # where batches of hosted calls end, the items alone don't always tell
        assert played["history"].usage("input_tokens") == played["create"].usage("input_tokens")


@examples(60)
@given(sometimes_hosted.flatmap(bodies), clients, st.sampled_from([0.0, 0.5]))
def test_l08_ids_of_one_rendering(body: Json, client: Client, seconds: float) -> None:
    played = play_all(body, client, seconds=seconds)
    wholes = {way: whole_rendering(played[way]) for way in ("append", *CHAINS)}
    assert wholes["create"] == wholes["http"] == wholes["append"]
    for way in ("append", *CHAINS):
        one, whole = played[way], wholes[way]
        assert len(one.lives) == len(one.responses)
        assert each_call_has_its_output(one)
        for life in one.lives:
            assert life.ids_then == [rendered.ids[:] for rendered in life.given], "earlier ids have changed"
            lived = lived_rendering(life, one)
            assert lived == whole[: len(lived)], way
        assert lived + left_unread(one) == whole, way


def work_of(response: Json) -> Json:
    """How much each stage had to do for a Response."""
    stages = response["engine"]["stages"]
    return {name: {unit: count for unit, count in stage.items() if unit != "seconds"} for name, stage in stages.items()}


@examples(40)
@given(sometimes_hosted.flatmap(bodies), clients, st.sampled_from([0.0, 0.5]), st.booleans())
def test_l08_what_is_named_is_as_what_is_sent(body: Json, client: Client, slow: float, stored: bool) -> None:
    """Stored, on its way to the store, or remembered by the socket alone."""

    async def one(way: str) -> Played:
        store = {} if stored or way != "named create" else {"store": False}
        async with house(WatchedModel(ScriptedModel(), [HOSTED]), hosted={HOSTED: FakeSearch()}, slow=slow) as at:
            return await play(at, way, {**body, **store}, client)

    sent, *named = [virtually(lambda way=way: one(way)) for way in ("history", *NAMED)]  # type: ignore[misc]
    for played in named:
        assert played.items == sent.items
        assert played.ending == sent.ending
        assert [life.ids for life in played.lives] == [life.ids for life in sent.lives]
        assert [response["usage"] for response in played.responses] == [response["usage"] for response in sent.responses]
        assert [work_of(response) for response in played.responses] == [work_of(response) for response in sent.responses]


@pytest.mark.parametrize("way", CHAINS)
def test_l08_hosted_results_count_where_they_are_read(way: str) -> None:
    """A Response that ends at a client's call has hosted results which its own model never reads: the next one's does."""
    both = {"calls": [{"name": HOSTED, "arguments": {"query": "x"}}, {"name": "read"}]}
    body = {"model": "scripted", "input": [user(json.dumps({"program": [both, {"say": "done"}]}))], "tools": [{"type": HOSTED}]}
    played = play_all(body, Client())
    first, second = played[way].lives
    assert played[way].fresh == [len(first.ids), sum(played["append"].fresh) - len(first.ids)]
    cached = played[way].usage("input_tokens_details", "cached_tokens")[1]
    assert lived_rendering(first, played[way]) == second.ids[:cached]


# ---- over sockets

PROGRAM = [
    {"reason": "Two at once."},
    {"calls": [{"name": "read", "arguments": {"path": "a"}}, {"name": "read", "arguments": {"path": "b"}}]},
    {"if": {"output_of": "read", "contains": "b"}, "then": [{"call": {"name": "t0", "arguments": "{{}"}}]},
    {"say": "It says: {{output_of:read}} ☕"},
]


async def read(path: str) -> str:
    """Reads."""
    await trio.lowlevel.checkpoint()
    return f"text of {path}"


async def t0(input: str) -> str:  # noqa: A002 - the field's name
    await trio.lowlevel.checkpoint()
    return f"took {input}"


async def test_l08_over_sockets() -> None:
    toolbox = Toolbox({"read": read, "t0": t0}, TOOLS)
    program = json.dumps({"program": PROGRAM})
    body: Mapping[str, Any] = {"model": "scripted", "input": [user(program)], "tools": toolbox.definitions}
    items: dict[str, list[Json]] = {}
    usage: dict[str, int] = {}
    async with running(Options(port=0, data=":memory:")) as server:
        async with connect(server.url) as client:
            result = await client.run(model="scripted", input=program, tools={"read": read, "t0": t0}, tool_definitions=TOOLS)
            items["append"] = result.items
            usage["append"] = result.response["usage"]["output_tokens"]
        for shape, full in (("create", False), ("create", True), ("http", False), ("http", True)):
            async with open_wire(server.url, shape) as wire:  # type: ignore[arg-type]
                chain = await run_chain(wire, body, answer=toolbox.answer, full_history=full)
            items[f"{shape} {full}"] = chain.items
            usage[f"{shape} {full}"] = sum(response["usage"]["output_tokens"] for response in chain.responses)
            assert len(chain.responses) == 3
    expected = [bare(item) for item in items["append"]]
    assert [item["type"] for item in expected] == ["reasoning", "function_call", "function_call", "custom_tool_call", "message"]
    assert {name: [bare(item) for item in some] for name, some in items.items()} == dict.fromkeys(items, expected)
    assert set(usage.values()) == {usage["append"]}
