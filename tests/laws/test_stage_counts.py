"""What each shape costs, counted: how often the stages run in full, over how much, and what each kind of reuse is worth."""

import json
import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.config import REUSE, Config
from engine.lab.replay import Report, replay
from engine.models.scripted import ScriptedModel
from engine.models.trajectory import TrajectoryModel
from engine.policy import Policy, Rule
from engine.stages.counters import STAGES
from engine.stages.rendering import render_calls
from engine.testing import user, virtually
from engine.trajectories import Rollout, ToolRecord, UserRecord, read_rollout
from protocol.client import output_for

from .support_shapes import (
    CHAINS,
    Client,
    Json,
    Played,
    WatchedModel,
    house,
    left_unread,
    lived_rendering,
    play,
    whole_rendering,
)

SHAPES = ("append", *CHAINS)
LOOKS_AT_ALL = Policy((Rule(name="all", pattern=re.compile("never to be found"), action="flag"),))
TURNS = 12
MEASURES = [
    (stage, unit)
    for stage, units in {
        "validate": ("items",),
        "route": ("items",),
        "classify": ("items", "bytes"),
        "render": ("items", "tokens"),
        "classify_output": ("items", "bytes"),
    }.items()
    for unit in units
]


def rollout(way: str, *steps: Json, slow: float = 0.0, reuse: frozenset[str] = REUSE) -> Played:
    """A scripted rollout, each call of which is answered with the same."""
    body = {
        "model": "scripted",
        "instructions": "Be brief.",
        "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
        "input": [user(json.dumps({"program": list(steps)}))],
    }

    async def main() -> Played:
        model = WatchedModel(ScriptedModel(), ())
        async with house(model, policy=LOOKS_AT_ALL, config=Config(reuse=reuse), slow=slow) as at:
            return await play(at, way, body, Client(("it is still there",)))

    played: Played = virtually(main)
    return played


def turns(way: str, count: int, **options: Any) -> Played:
    """A rollout with ``count`` calls, one a turn."""
    looks = [{"call": {"name": "look", "arguments": {"at": "it"}}}] * count
    return rollout(way, *looks, {"say": "done"}, **options)


# ---- how often


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("way", ["append", "create", "http", "history"])
def test_full_runs_are_one_per_response(way: str, count: int) -> None:
    played = turns(way, count)
    expected = 1 if way == "append" else count + 1
    assert len(played.responses) == len(played.rows) == len(played.lives) == expected
    for stage in STAGES:
        assert sum(played.counts(stage, "full")) == expected, stage
        assert sum(response["engine"]["stage_runs"][stage] for response in played.responses) == expected, stage
    between = count if way == "append" else 0
    assert [sum(played.counts(stage, "incremental")) for stage in ("validate", "classify", "render")] == [between] * 3
    assert sum(response["engine"]["parks"] for response in played.responses) == (count + 1 if way == "append" else 0)


# ---- over how much


def by_turn(played: Played) -> dict[tuple[str, str], list[int]]:
    return {measure: played.counts(*measure) for measure in MEASURES}


def grows(counts: list[int]) -> bool:
    """From turn to turn; the last turn is another one."""
    return all(before < after for before, after in pairwise(counts[1:-1]))


@pytest.mark.parametrize("way", CHAINS)
def test_with_all_reuse_a_turn_costs_what_is_new(way: str) -> None:
    counted = by_turn(turns(way, TURNS))
    for measure, counts in counted.items():
        assert len(set(counts[1:-1])) == 1, measure
        assert counts[0] >= counts[1]
    middle = {measure: counts[5] for measure, counts in counted.items()}
    assert middle["validate", "items"] == middle["classify", "items"] == middle["render", "items"] == 1
    assert middle["route", "items"] == 0
    assert middle["render", "tokens"] < 30


GROWS = {
    "tokens": {("render", "items"), ("render", "tokens")},
    "validation": {("validate", "items")},
    "classification": {("classify", "items"), ("classify", "bytes")},
    "routing": set(),
    "overlap": set(),
}


@pytest.mark.parametrize("kind", sorted(REUSE))
@pytest.mark.parametrize("way", CHAINS)
def test_without_a_kind_of_reuse_its_own_count_grows_and_no_other(way: str, kind: str) -> None:
    reused, played = by_turn(turns(way, TURNS)), turns(way, TURNS, reuse=REUSE - {kind})
    counted = by_turn(played)
    for measure in GROWS[kind]:
        assert grows(counted[measure]), measure
    if kind == "routing":
        assert counted.pop(("route", "items")) == [1] * (TURNS + 1)
    if kind == "tokens":
        assert set(played.usage("input_tokens_details", "cached_tokens")) == {0}
        assert counted["render", "tokens"] == played.usage("input_tokens")
    assert {measure for measure in counted if counted[measure] != reused[measure]} == GROWS[kind]


@pytest.mark.parametrize("way", CHAINS)
def test_without_any_reuse_everything_grows_and_the_rollout_is_the_same(way: str) -> None:
    reusing, played = turns(way, TURNS), turns(way, TURNS, reuse=frozenset())
    assert {measure for measure, counts in by_turn(played).items() if grows(counts)} == set.union(*GROWS.values())
    assert played.items == reusing.items
    assert whole_rendering(played) == whole_rendering(reusing)
    assert played.usage("input_tokens") == reusing.usage("input_tokens")


def test_the_whole_history_anew_costs_the_whole_history() -> None:
    counted = by_turn(turns("history", TURNS))
    assert {measure for measure, counts in counted.items() if grows(counts)} == set.union(*GROWS.values())


# ---- after the end


@pytest.mark.parametrize("way", SHAPES)
def test_post_inference_work_overlaps_what_comes_next(way: str) -> None:
    ends = 1 if way == "append" else 3
    assert turns(way, 2, slow=1.0).told == ["end"] * ends + ["bill"] * ends + ["store"] * ends


@pytest.mark.parametrize("way", SHAPES)
def test_without_overlap_the_terminal_event_waits_for_it(way: str) -> None:
    ends = 1 if way == "append" else 3
    assert turns(way, 2, slow=1.0, reuse=REUSE - {"overlap"}).told == ["bill", "store", "end"] * ends


# ---- recorded rollouts

RECORDED = Path(os.environ.get("SOSTENUTO_TRAJECTORIES") or Path(__file__).parents[3] / "shared" / "trajectories")
FILES = sorted(RECORDED.glob("*.jsonl"))
needs_recordings = pytest.mark.skipif(not FILES, reason="no recorded rollouts; SOSTENUTO_TRAJECTORIES says where they are")


@needs_recordings
@pytest.mark.parametrize("shape", SHAPES)
async def test_recordings_come_back_identical(shape: Any) -> None:
    reports: list[Report] = []
    assert await replay(FILES, shape=shape, url=None, key=None, real_time=False, on_report=reports.append)
    assert [report.file for report in reports] == [path.name for path in FILES]
    assert [report.file for report in reports if not report.identical] == []
    assert sum(report.calls for report in reports) > len(FILES)
    for report in reports:
        assert report.stage_runs == dict.fromkeys(STAGES, report.responses)
        assert shape != "append" or report.responses == 1


class Recorded:
    """The client's part of a recording."""

    def __init__(self, recording: Rollout) -> None:
        self._outputs = {one.call_id: one.output for one in recording.records if isinstance(one, ToolRecord)}
        spoken = [one for one in recording.records if not isinstance(one, ToolRecord)]
        first = next((at for at, one in enumerate(spoken) if not isinstance(one, UserRecord)), len(spoken))
        self.opening = [user(one.text) for one in spoken[:first] if isinstance(one, UserRecord)]
        self._later: Iterator[UserRecord] = iter([one for one in spoken[first:] if isinstance(one, UserRecord)])

    def begin(self) -> "Recorded":
        return self

    def answers(self, calls: list[Json]) -> list[Json]:
        return [output_for(call, self._outputs.get(call["call_id"], "none")) for call in calls]

    def next_input(self) -> list[Json]:
        return [user(one.text) for one in [next(self._later, None)] if one is not None]


@needs_recordings
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recording_is_rendered_once_in_every_shape(path: Path) -> None:
    """As many tokens as in one rendering without an interruption, and the same ones."""
    recording = read_rollout(path)
    wholes = [_rendered(recording, way) for way in SHAPES]
    assert wholes[1] == wholes[0]
    assert wholes[2] == wholes[0]


def _rendered(recording: Rollout, way: str) -> list[int]:
    client: Any = Recorded(recording)
    model = WatchedModel(TrajectoryModel(recording, "recorded"))
    body = {
        "model": "recorded",
        "instructions": recording.instructions,
        "tools": list(recording.tools),
        "input": client.opening,
    }

    async def main() -> Played:
        async with house(model) as at:
            return await play(at, way, body, client)

    played: Played = virtually(main)
    whole = whole_rendering(played)
    given = sum(len(rendered.items) for life in played.lives[:1] for rendered in life.given[:1])
    sampled = [
        item for item in played.context[given:] if item.type.endswith("_call") or getattr(item, "role", "") == "assistant"
    ]
    assert sum(played.counts("render", "tokens")) + len(render_calls(sampled)) == len(whole)
    assert lived_rendering(played.lives[-1], played) + left_unread(played) == whole
    return whole
