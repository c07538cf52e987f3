"""``sostenuto simulate``: what must hold of any place of any sweep, and what the command prints.

Everything is in virtual time, so times are exact.
"""

import csv
import io
import json
import math
import os
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve
from click.testing import CliRunner, Result
from hypothesis import example, given
from hypothesis import strategies as st

from engine import cli
from engine.lab import virtual
from engine.lab.costs import USUAL, Costs, StageCost
from engine.lab.play import WAYS
from engine.lab.scenario import GIB, Simulate, scenarios
from engine.lab.simulate import PARTS, Outcome, simulate, whole
from engine.lab.slots import Policy, Slots
from engine.lab.workload import Spread, Synthetic, Workload
from engine.testing.profile import examples

from .browser import needs_chromium, opened, share_of

FREE = Costs()
LIGHTEST, DARKEST, ENOUGH = "#ffffe5", "#662506", 5
"""The ends of the maps' scale, and how much of the page each of them fills at least, in thousandths."""
TINY = Workload(
    "tiny",
    Synthetic(calls=4, instructions_tokens=40, tools=1, output_tokens=Spread(value=30)).rollout(Spread(value=0.5), 1),
)
ALONE = Simulate(tokens_per_second=(100,), rtt_ms=(20,), shapes=("append",))


def play(asked: Simulate, *, workload: Workload = TINY, costs: Costs = FREE, seed: int = 0, tools: Any = None) -> Outcome:
    """The one place of a sweep."""
    [place] = scenarios(asked, [workload.name])
    return virtual.run(partial(simulate, asked, place, workload, tools, costs=costs, seed=seed), seed)


# ---- what must hold


sweeps = st.builds(
    lambda users, slots, policy, room, rtt, shape, loss: Simulate(
        users=(users,),
        slots=(slots,),
        policies=(policy,),
        memory_gib=(0.0 if room is None else room * whole(TINY) * 1024 / GIB,),
        tokens_per_second=(100,),
        rtt_ms=(rtt,),
        shapes=(shape,),
        prefill_tokens_per_second=500,
        kv_bytes_per_token=1024,
        start_within=1.0,
        loss=loss,
    ),
    st.integers(1, 5),
    st.integers(1, 3),
    st.sampled_from(["hold", "release", "release:0.3", "pressure"]),
    st.none() | st.floats(1.0, 3.0),
    st.sampled_from([0.0, 20.0]),
    st.sampled_from(WAYS),
    st.sampled_from([0.0, 0.2]),
)


@examples(60)
@given(sweeps, st.integers(0, 3))
def test_what_holds_of_any_place(asked: Simulate, seed: int) -> None:
    out = play(asked, costs=USUAL, seed=seed, tools=Spread(distribution="exponential", value=0.5))
    assert len(out.runs) == asked.users[0]
    for run in out.runs:
        parts = [getattr(run, part) for part in PARTS]
        assert sum(parts) == pytest.approx(run.seconds), "the parts are the whole"
        assert min(parts) >= -1e-9
        assert run.sampling == pytest.approx(TINY.tokens / 100)
        assert run.seconds >= run.floor - 1e-9
        assert run.prefill == pytest.approx(run.read / 500)
        if asked.policies == ("hold",):
            assert run.read_again == 0, "what is held is never read again"
            assert run.memory == 0 or asked.memory_gib[0]
        if asked.policies == ("release",):
            assert run.read_again > (len(TINY.turns) - 1) * TINY.turns[0].history, "what was let go of is read again each time"
        if asked.shapes == ("append",) and not asked.loss:
            assert run.network == pytest.approx(asked.rtt_ms[0] / 1e3 * len(TINY.turns))
            assert (run.responses, run.parks) == (1, 4)
    assert out.load.busy_peak <= out.scenario.slots
    assert out.load.held_peak <= (out.scenario.memory_gib or math.inf) * (1 + 1e-9)


def test_alone_and_without_costs_a_rollout_takes_its_floor_to_the_last_digit() -> None:
    for way in WAYS:
        [run] = play(evolve(ALONE, shapes=(way,))).runs
        # The floor has a round trip per park; the first create and its answer take one, too.
        assert run.seconds == pytest.approx(run.floor + 0.02, rel=1e-12)


def test_what_the_stages_cost_is_in_the_time_that_they_take() -> None:
    costs = Costs(stages={"validate": StageCost(run=0.5), "render": StageCost(token=0.001), "bill": StageCost(run=100.0)})
    [free], [priced] = play(ALONE).runs, play(ALONE, costs=costs).runs
    stages = 0.5 * 5 + 0.001 * priced.tokens_rendered  # one create and four appends; billing comes after the end
    assert priced.stages == pytest.approx(stages)
    assert priced.seconds - free.seconds == pytest.approx(stages)


def test_what_messages_cost_is_in_the_time_that_they_take() -> None:
    [free], [priced] = play(ALONE).runs, play(ALONE, costs=Costs(message=0.3, response=0.7)).runs
    assert priced.rest == pytest.approx(5 * 0.3 + 0.7)
    assert priced.seconds - free.seconds == pytest.approx(priced.rest)


def test_under_pressure_those_are_turned_out_who_are_in_the_way_and_no_others() -> None:
    asked = evolve(ALONE, users=(4,), slots=(4,), policies=("pressure",))
    asked = evolve(asked, prefill_tokens_per_second=1e4, kv_bytes_per_token=1024)
    roomy, narrow = ((evolve(asked, memory_gib=(rooms * whole(TINY) * 1024 / GIB,))) for rooms in (4, 1.2))
    assert sum(run.read_again for run in play(roomy).runs) == 0
    assert sum(run.read_again for run in play(narrow).runs) > 0


def test_holding_loses_where_memory_is_short_and_letting_go_where_it_is_not() -> None:
    base = evolve(ALONE, users=(6,), slots=(2,), prefill_tokens_per_second=5000, kv_bytes_per_token=1024, start_within=0.0)
    told = {}
    for rooms in (1.5, 6):
        for policy in ("hold", "release"):
            asked = evolve(base, policies=(policy,), memory_gib=(rooms * whole(TINY) * 1024 / GIB,))
            told[rooms, policy] = play(asked).slowdown
    assert told[1.5, "hold"] > told[1.5, "release"]
    assert told[6, "hold"] < told[6, "release"]


@examples(100)
@given(st.integers(1, 3), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.none() | st.integers(0, 4)), max_size=12))
@example(1, [(0, 2, None), (1, 2, 0), (0, 1, None)])
def test_slots_are_given_out_in_the_order_in_which_they_are_asked_for(
    count: int, wishes: list[tuple[int, int, int | None]]
) -> None:
    """Each comes some seconds after the one before it, holds its slot for some, and may give up waiting."""
    asked: list[int] = []
    got: list[tuple[float, int]] = []

    async def main() -> None:
        slots = Slots(count)

        async def one(number: int, holds: int, patience: int | None) -> None:
            asked.append(number)
            with trio.move_on_after(math.inf if patience is None else patience + 0.5):
                await slots.take()
                got.append((trio.current_time(), number))
                assert slots.busy.now <= count
                with trio.CancelScope(shield=True):
                    await trio.sleep(holds)
                slots.give()

        async with trio.open_nursery() as nursery:
            for number, (after, holds, patience) in enumerate(wishes):
                await trio.sleep(after)
                nursery.start_soon(one, number, holds, patience)
                await trio.testing.wait_all_tasks_blocked()
        assert slots.busy.now == slots.queued.now == 0

    virtual.run(main, 0)
    order = [number for _, number in sorted(got)]  # those of one instant run in any order
    assert order == [number for number in asked if number in set(order)]
    assert {number for number, (_, _, patience) in enumerate(wishes) if patience is None} <= set(order)


@pytest.mark.parametrize("text", ["keep", "hold:3", "release:", "release:x", "release:-1", "release:inf", "pressure:2", ""])
def test_policies_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"none of|could not convert"):
        Policy.of(text)


@pytest.mark.parametrize("text", ["hold", "release", "release:2.5", "pressure"])
def test_policies_are_written_as_they_are_read(text: str) -> None:
    assert str(Policy.of(text)) == text


# ---- the same, to the last digit


COMMAND = shlex.split(
    "simulate --users 9 --slots 2 --policy hold,pressure --memory 9 --prefill 2000 --speeds 200 --rtt 20 --calls 3"
)


def printed(*arguments: str, **environment: str) -> bytes:
    command = [sys.executable, "-m", "engine.cli", *COMMAND, *arguments]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, timeout=300, check=True, cwd=root, env={**os.environ, **environment})
    return done.stdout


def test_the_same_seed_gives_the_same_result_to_the_last_digit() -> None:
    """All tools take the same time, so that many users want the few slots at the same instants."""
    arguments = ("--tool-seconds", "0.25,exponential:0.5", "--shapes", "append,create", "--loss", "0.05", "--json")
    one, again = (printed(*arguments, "--seed", "7", PYTHONHASHSEED=hashes) for hashes in ("1", "2"))
    assert one == again
    assert json.loads(printed(*arguments, "--seed", "8"))["places"] != json.loads(one)["places"]


# ---- the command


SMALL = ["simulate", "--calls", "2", "--speeds", "500", "--rtt", "0"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(one) for one in arguments])


def test_json_has_all_that_one_needs_to_have_it_again() -> None:
    told = json.loads(run(*SMALL, "--users", "1,3", "--seed", "5", "--json").stdout)
    assert told["experiment"]["seed"] == 5
    assert told["experiment"]["simulate"]["users"] == [1, 3]
    assert told["costs"] == USUAL.as_json()
    assert [(place["users"], place["shape"]) for place in told["places"]] == [(users, way) for users in (1, 3) for way in WAYS]
    assert {*PARTS, "seconds", "slowdown", "parked_per_busy_slot", "state_gib"} <= told["places"][0].keys()


def test_csv_has_a_line_for_each_place() -> None:
    rows = list(csv.DictReader(io.StringIO(run(*SMALL, "--users", "1,2", "--csv").stdout)))
    assert [row["users"] for row in rows] == ["1"] * 4 + ["2"] * 4
    assert all(float(row["seconds_low"]) <= float(row["seconds"]) <= float(row["seconds_high"]) for row in rows)


def test_the_table_and_the_pictures(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run(*SMALL, "--users", "1,4", "--slots", 1, "--html", page, "--png", tmp_path / "png", "--svg", tmp_path / "svg")
    assert done.exit_code == 0, done.output
    assert all(way in done.stdout for way in WAYS)
    assert "How many times its floor" in page.read_text()
    assert page.read_text().count("<svg") >= 2
    names = {path.stem for path in (tmp_path / "png").iterdir()}
    assert names == {path.stem for path in (tmp_path / "svg").iterdir()} >= {"1-slowdown", "1-state"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "png").iterdir())


def test_a_map_whose_fields_all_read_the_same_is_not_drawn(tmp_path: Path) -> None:
    done = run(
        *SMALL, "--users", 1, "--slots", "0,1,2", "--shapes", "append", "--html", tmp_path / "page.html"
    )  # one user needs one slot
    assert done.exit_code == 0, done.output
    assert "<figure" not in (tmp_path / "page.html").read_text()


@needs_chromium
def test_a_browser_opens_the_page_without_a_complaint_and_shows_its_maps(tmp_path: Path) -> None:
    done = run(*SMALL, "--users", "1,4", "--slots", "1,2", "--shapes", "append", "--html", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    complaints, picture = opened((tmp_path / "page.html").read_text(encoding="utf-8"), tmp_path)
    assert complaints == ""
    assert share_of(LIGHTEST, picture, tmp_path) > ENOUGH
    assert share_of(DARKEST, picture, tmp_path) > ENOUGH


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policy", "keep"], "policies"),
        (["--policy", "release"], "prefill_tokens_per_second"),
        (["--users", "0"], "users: 1 or more"),
        (["--users", "many"], "whole numbers"),
        (["--speeds", "fast"], "numbers"),
        (["--shapes", "round"], "shapes"),
        (["--loss", "1"], "loss"),
        (["--tool-seconds", "soon"], "soon"),
        (["--memory", "0.001"], "alone takes"),
        (["--json", "--csv"], "take one"),
    ],
)
def test_what_can_not_be_is_told(arguments: list[str], said: str) -> None:
    done = run(*SMALL, *arguments)
    assert done.exit_code == 2
    assert said in done.output.replace("\n", " ")


def test_an_unknown_field_is_told(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text("[simulate]\nuser = [3]\n")
    done = run("simulate", path)
    assert done.exit_code == 2
    assert "simulate.user: no such field" in done.output.replace("\n", " ")
