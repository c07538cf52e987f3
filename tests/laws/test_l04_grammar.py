"""L4 grammar: added, deltas, done; what is said twice agrees, whatever a model samples and however it is cut."""

from itertools import chain
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.models.base import CallBegin, CallEnd, CallPieces, Chunk, MessageEnd, ModelError, Reasoning, Stop, Text
from engine.testing import FakeModel, FakeSearch, append, calls_in, create, direct_server, numbered, result, virtually
from engine.testing.profile import examples
from protocol.conformance.strategies import programs
from protocol.events import TERMINAL
from protocol.grammar import check

pieces = st.lists(
    st.sampled_from(["a", " word", "é", "🎹", "\u0000", '"', "\\", "\n", "👩‍👩‍👧", "{}", "𝔘"]), min_size=1, max_size=4
)
chunks = st.one_of(
    pieces.map(lambda some: Text(some, len(some))),
    pieces.map(lambda some: Reasoning(some, len(some))),
    st.just(MessageEnd()),
)
names = st.sampled_from(["t0", "t1", "file_search"])
calls = st.builds(
    lambda name, custom, some, ends: [
        CallBegin(name, "custom_tool_call" if custom and name != "file_search" else "function_call"),
        *([CallPieces(some, 1)] if some else []),
        *([CallEnd()] if ends else []),
    ],
    names,
    st.booleans(),
    st.one_of(st.just([]), pieces),
    st.booleans(),
)
turns = st.lists(st.one_of(chunks.map(lambda chunk: [chunk]), calls), max_size=6).map(lambda some: list(chain(*some)))
stops = st.sampled_from([Stop("tool_calls"), Stop("end"), Stop("max_output_tokens"), Stop("content_filter"), ModelError("no")])


def batches(turn: list[Chunk], sizes: list[int]) -> list[list[Chunk]]:
    """``turn`` cut into batches of about ``sizes``."""
    out, at = [], 0
    for size in sizes:
        if turn[at : at + size]:
            out.append(turn[at : at + size])
        at += size
    return out + ([turn[at:]] if turn[at:] else [])


@examples(60)
@given(st.lists(st.tuples(turns, stops), min_size=1, max_size=3), st.lists(st.integers(1, 3), max_size=6))
def test_l04_whatever_is_sampled(rounds: list[tuple[list[Chunk], Any]], sizes: list[int]) -> None:
    steps: list[Any] = []
    for turn, stop in rounds:
        steps += batches(turn, sizes)
        steps.append(stop if isinstance(stop, ModelError) else [stop])
    model = FakeModel(*steps)

    async def main() -> None:
        async with direct_server(models=[model], hosted={"file_search": FakeSearch()}) as server:
            socket = await server.connect()
            await socket.send(create(model="fake", tools=[{"type": "file_search"}]))
            frames: list[dict[str, Any]] = []
            while not frames or frames[-1]["type"] not in TERMINAL:
                more = await socket.until("response.done", *TERMINAL)
                frames += more
                for call in calls_in(more) if more[-1]["type"] == "response.done" else ():
                    await socket.send(append(result(call)))
            trace = check(numbered(frames), append_shape=True)
            assert trace.items == frames[-1]["response"]["output"]
            socket = await server.connect()
            await socket.send({"type": "response.attach", "response_id": trace.response_id})
            assert numbered(await socket.until_end()) == numbered(frames)

    virtually(main)


@examples(25)
@given(programs(), st.integers(1, 40))
def test_l04_cut_by_the_token_limit(steps: list[Any], limit: int) -> None:
    """``max_output_tokens`` spans the Response, parks included, and is never overrun."""

    async def main() -> None:
        async with direct_server() as server:
            socket = await server.connect()
            await socket.send(create(*steps, max_output_tokens=limit))
            frames: list[dict[str, Any]] = []
            while not frames or frames[-1]["type"] not in TERMINAL:
                more = await socket.until("response.done", *TERMINAL)
                frames += more
                for call in calls_in(more) if more[-1]["type"] == "response.done" else ():
                    await socket.send(append(result(call)))
            check(numbered(frames), append_shape=True)
            assert frames[-1]["response"]["usage"]["output_tokens"] <= limit

    virtually(main)
