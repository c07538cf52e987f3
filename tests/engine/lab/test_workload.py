"""Workloads: made up from a seed, byte for byte; written, read, and played by the model as they are."""

import math
import random
import statistics
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.lab.workload import RECORDED, Spread, Synthetic, Workload, with_tool_seconds
from engine.models.base import CallPieces, Plan, Reasoning, Rendered, Stop, Text
from engine.models.trajectory import TrajectoryModel
from engine.trajectories import (
    AssistantRecord,
    RecordedCall,
    Rollout,
    ToolRecord,
    UserRecord,
    read_rollout,
    write_rollout,
)
from protocol import items

spreads = st.builds(
    Spread,
    distribution=st.sampled_from(["constant", "exponential", "lognormal"]),
    value=st.floats(0, 5),
    sigma=st.floats(0, 2),
)
synthetics = st.builds(
    Synthetic,
    calls=st.integers(0, 7),
    parallel=st.integers(1, 4),
    call_tokens=st.integers(0, 40),
    message_tokens=st.integers(0, 20),
    reasoning_tokens=st.integers(0, 20),
    answer_tokens=st.integers(0, 30),
    output_tokens=st.builds(Spread, value=st.floats(0, 50)),
    user_tokens=st.integers(0, 20),
    instructions_tokens=st.integers(0, 20),
    tools=st.integers(0, 4),
    tool_tokens=st.integers(0, 20),
)


@given(synthetics, spreads, st.integers(0, 2**32))
@settings(deadline=None)
def test_the_same_seed_gives_the_same_file(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: Synthetic,
    tools: Spread,
    seed: int,
) -> None:
    first, second = (tmp_path_factory.mktemp("w") / "rollout.jsonl" for _ in range(2))
    write_rollout(sizes.rollout(tools, seed), first)
    write_rollout(sizes.rollout(tools, seed), second)
    assert first.read_bytes() == second.read_bytes()
    assert read_rollout(first) == sizes.rollout(tools, seed)


def test_another_seed_gives_another_rollout() -> None:
    assert Synthetic().rollout(Spread(), 1) != Synthetic().rollout(Spread(), 2)


def test_a_seed_gives_what_it_gave() -> None:
    """In every version of Python, and of this project: an experiment's file is played the same in a year."""
    sizes = Synthetic(calls=1, call_tokens=8, user_tokens=4, output_tokens=Spread(value=3))
    [user, turn, tool, *_] = sizes.rollout(Spread(distribution="exponential", value=1.0), 7).records
    assert user == UserRecord("have with an never")
    assert turn == AssistantRecord("", (RecordedCall("call_0", "tool_2", '{"query":"this man come"}'),))
    assert tool == ToolRecord("call_0", "when way since", 0.265378)


@given(synthetics, st.integers(0, 99))
@settings(deadline=None)
def test_it_has_the_sizes_that_were_asked_for(sizes: Synthetic, seed: int) -> None:
    workload = Workload("w", sizes.rollout(Spread(), seed))
    assert sum(turn.calls for turn in workload.turns) == sizes.calls
    assert workload.parks == math.ceil(sizes.calls / sizes.parallel)
    assert len(workload.rollout.tools) == sizes.tools
    for turn in workload.turns[:-1]:
        assert turn.tokens >= sizes.message_tokens + sizes.reasoning_tokens
    histories = [turn.history for turn in workload.turns]
    assert histories == sorted(histories)


@given(synthetics, st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_the_model_plays_what_its_turns_say(sizes: Synthetic, seed: int) -> None:
    """So the floor that is made from them is that of what is measured."""
    workload = Workload("w", sizes.rollout(Spread(), seed))

    async def main() -> list[int]:
        sampled = []
        async with TrajectoryModel(workload.rollout, "t").open(Plan(model="t", prompt=Rendered((), ()))) as sampler:
            for _ in workload.turns:
                tokens = 0
                while True:
                    chunks = await sampler.receive()
                    tokens += sum(chunk.tokens for chunk in chunks if isinstance(chunk, Text | Reasoning | CallPieces))
                    if isinstance(chunks[-1], Stop):
                        break
                sampled.append(tokens)
                await sampler.extend(Rendered((items.Message(role="user", content="on"),), ()))
        return sampled

    assert trio.run(main) == [turn.tokens for turn in workload.turns]


def test_the_floor_is_tokens_tools_and_a_round_trip_per_park() -> None:
    calls = tuple(RecordedCall(f"c{n}", "f", "{}") for n in range(2))
    records = (
        UserRecord("go"),
        AssistantRecord("", calls),
        ToolRecord("c0", "one", 3.0),
        ToolRecord("c1", "two", 1.0),
        AssistantRecord("yes", ()),
        UserRecord("more"),
    )
    workload = Workload("w", Rollout("", "", None, (), records))
    assert [(turn.items, turn.calls, turn.tool_seconds) for turn in workload.turns] == [(2, 2, 3.0), (1, 0, 0.0), (0, 0, 0.0)]
    assert workload.tokens == 3
    assert workload.floor(10, 0.5) == pytest.approx(0.3 + 3.0 + 2 * 0.5)


# ---- durations


def draws(spread: Spread) -> list[float]:
    chance = random.Random(1).random
    return [spread.draw(chance) for _ in range(4000)]


def test_durations_are_spread_as_they_say() -> None:
    assert set(draws(Spread(value=2.0))) == {2.0}
    assert statistics.mean(draws(Spread(distribution="exponential", value=2.0))) == pytest.approx(2.0, rel=0.1)
    log = Spread(distribution="lognormal", value=2.0, sigma=0.5)
    assert statistics.median(draws(log)) == pytest.approx(2.0, rel=0.1)
    assert statistics.stdev(map(math.log, draws(log))) == pytest.approx(0.5, rel=0.1)


def test_tools_take_what_was_recorded_or_what_one_says() -> None:
    rollout = Rollout("", "", None, (), (ToolRecord("a", "x", 4.0), UserRecord("u"), ToolRecord("b", "x", None)))

    def seconds(spread: Spread) -> list[float | None]:
        return [one.seconds for one in with_tool_seconds(rollout, spread, 0).records if isinstance(one, ToolRecord)]

    assert seconds(RECORDED) == [4.0, 0.0]
    assert seconds(Spread(distribution="recorded", value=0.5)) == [4.0, 0.5]
    assert seconds(Spread(value=0.1)) == [0.1, 0.1]
    drawn = Spread(distribution="exponential", value=1.0)
    assert seconds(drawn) == seconds(drawn)


def test_reasoning_is_read(tmp_path: Path) -> None:
    rollout = Rollout("s", "l", None, (), (UserRecord("u"), AssistantRecord("said", (), reasoning="thought")))
    write_rollout(rollout, tmp_path / "r.jsonl")
    assert read_rollout(tmp_path / "r.jsonl") == rollout
