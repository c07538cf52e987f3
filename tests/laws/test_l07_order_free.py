"""L7 order-free: any permutation, split or batching of the results gives the same continuation.

And of L8: the token ids that the model is given are those of one uninterrupted rendering, and earlier ids never change.
"""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.models.scripted import ScriptedModel
from engine.stages import rendering
from engine.testing import RecordingModel, append, calls_in, create, direct_server, result, user, virtually
from engine.testing.profile import examples
from protocol.codec import item_from_wire

CALLS = 5
STEPS: list[Any] = [
    {"reason": "five at once"},
    {"calls": [{"name": f"t{n}", "arguments": {"n": n}} for n in range(3)], "wait": False},
    {"say": {"tokens": 20}},
    {"calls": [{"name": f"t{n}", "kind": "custom_tool_call"} for n in (3, 4)]},
    {"if": {"output_of": "t2", "contains": "2"}, "then": [{"say": "t2 said 2"}]},
    {"say": "{{output}} {{output_of:t0}} {{output_of:t1}} {{output_of:t3}}"},
]


async def play(groups: list[list[int]], early: bool, echo: bool) -> tuple[list[Any], list[int], list[Any]]:
    """The output without ids, what the model was given, and the context."""
    model = RecordingModel(ScriptedModel())
    async with direct_server(models=[model]) as server:
        socket = await server.connect()
        await socket.send(create(*STEPS, tokens_per_second=100))
        frames: list[dict[str, Any]] = []
        pending = [list(group) for group in groups]
        while pending:
            frames.append(await socket.receive())
            calls = calls_in(frames)
            parked = frames[-1]["type"] == "response.done"
            while pending and (parked or early) and all(number < len(calls) for number in pending[0]):
                chosen = [calls[number] for number in pending.pop(0)]
                echoes = chosen if echo else []
                await socket.send(append(*echoes, *(result(call, f"result {call['name'][1:]}") for call in chosen)))
        end = (await socket.until_end())[-1]["response"]
        (life,) = model.lives
        return [bare(item) for item in end["output"]], life.ids, list(server.context(end["id"]) or [])


def bare(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in ("id", "call_id")}


@st.composite
def groupings(draw: st.DrawFn) -> list[list[int]]:
    order = draw(st.permutations(range(CALLS)))
    cuts = sorted(draw(st.sets(st.integers(1, CALLS - 1))))
    return [list(order[start:end]) for start, end in zip([0, *cuts], [*cuts, CALLS], strict=True)]


@examples(40)
@given(groupings(), st.booleans(), st.booleans())
def test_l07_order_free(groups: list[list[int]], early: bool, echo: bool) -> None:
    expected, _, _ = virtually(lambda: play([list(range(CALLS))], False, False))
    output, _, context = virtually(lambda: play(groups, early, echo))
    assert output == expected
    outputs = [item["output"] for item in context if item["type"].endswith("_output")]
    assert outputs == [f"result {number}" for number in range(CALLS)]


@examples(15)
@given(groupings(), st.booleans())
def test_l08_the_model_is_given_the_ids_of_one_rendering(groups: list[list[int]], early: bool) -> None:
    _, given_ids, context = virtually(lambda: play(groups, early, False))
    items = [item_from_wire(item) for item in context]
    whole = rendering.render_prompt(None, (), items)
    sampled = [
        item
        for item in items
        if getattr(item, "role", None) == "assistant" or item.type == "reasoning" or item.type.endswith("call")
    ]
    own = [number for item in sampled for number in rendering.render_items([item])]
    assert len(given_ids) + len(own) == len(whole)
    assert is_merged_of(whole, given_ids, own)


def is_merged_of(whole: list[int], left: list[int], right: list[int]) -> bool:
    """Whether ``whole`` is ``left`` and ``right``, each in its order."""
    reachable = {0}
    for at, number in enumerate(whole):
        reachable = {
            taken + step
            for taken in reachable
            for step in (0, 1)
            if (step and taken < len(left) and left[taken] == number)
            or (not step and at - taken < len(right) and right[at - taken] == number)
        }
    return len(left) in reachable


@examples(20)
@given(st.permutations(["m0", "r0", "m1", "r1", "m2"]))
def test_l07_messages_come_after_the_results(order: list[str]) -> None:
    """However they come, the model reads the results in call order, then the messages in order of arrival."""

    async def main() -> None:
        async with direct_server() as server:
            socket = await server.connect()
            await socket.send(create({"calls": [{"name": "a"}, {"name": "b"}]}, {"say": "done"}))
            calls = calls_in(await socket.until("response.done"))
            sent = order[: 1 + max(order.index("r0"), order.index("r1"))]
            for what in sent:
                item = user(what) if what[0] == "m" else result(calls[int(what[1])], what)
                await socket.send(append(item))
            end = (await socket.until_end())[-1]["response"]
            context = (server.context(end["id"]) or [])[3:]
            read = [item.get("output") or item.get("content") for item in context[: len(sent)]]
            assert read == ["r0", "r1", *(what for what in sent if what[0] == "m")]

    virtually(main)
