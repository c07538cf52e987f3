"""``sostenuto compare``: a small comparison over real sockets and processes, and what is made of its results.

No time is asserted but that nothing is faster than its floor.
"""

import csv
import json
import os
import re
import signal
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve
from click.testing import CliRunner

from engine import cli
from engine.client import RolloutError
from engine.config import REUSE
from engine.lab import play
from engine.lab.cells import MEASURES, PARTS, Cell, Figure, Result, Results
from engine.lab.child import Child, ChildFailed
from engine.lab.compare import compare
from engine.lab.experiment import Compare, Experiment, WorkloadTable
from engine.lab.figures import COLOURS, charts
from engine.lab.lean import open_play
from engine.lab.play import WAYS, Player
from engine.lab.report import as_csv, page
from engine.lab.signals import until_signal
from engine.lab.workload import Spread, Synthetic
from engine.serving import Options, running
from engine.trajectories import AssistantRecord, Rollout, ToolRecord, UserRecord, write_rollout
from protocol.codec import encode

from .browser import needs_chromium, opened, share_of

SMALL = {"calls": 3, "parallel": 2, "reasoning_tokens": 5, "call_tokens": 8, "answer_tokens": 5}
EXPERIMENT = Experiment(
    title="Small & <short>",
    seed=3,
    compare=Compare(tokens_per_second=(2000.0,), rtt_ms=(0.0, 4.0), repetitions=2),
    workload=(WorkloadTable(name="small", tool_seconds=Spread(value=0.002), extra=SMALL),),
)
ENOUGH = 5
"""A chart that is seen has more of a colour than that share of a thousand of its picture."""


@pytest.fixture(scope="module")
def results() -> Results:
    """Of the small experiment, measured once."""
    seen: list[Cell] = []
    done = trio.run(partial(compare, EXPERIMENT, command="sostenuto compare", on_sample=lambda cell, _: seen.append(cell)))
    assert len(seen) == 2 * len(done.results)
    half = len(seen) // 2
    assert set(seen[:half]) == set(seen[half:]), "one repetition of each, then the next"
    return done


def cell_of(results: Results, label: str, rtt: float = 0.0) -> Result:
    [found] = [one for one in results.results if (one.cell.label, one.cell.rtt) == (label, rtt)]
    return found


def test_every_cell_is_there(results: Results) -> None:
    assert [(one.cell.rtt, one.cell.label) for one in results.results] == [(rtt, way) for rtt in (0.0, 0.004) for way in WAYS]


def test_nothing_is_faster_than_its_floor(results: Results) -> None:
    assert all(one.seconds >= result.floor for result in results.results for one in result.samples)


def test_the_parts_are_the_whole(results: Results) -> None:
    for result in results.results:
        for one in result.samples:
            assert sum(getattr(one, part) for part in PARTS) == pytest.approx(one.seconds)
            assert 0 < one.stages <= one.engine
            assert one.cpu > 0
            assert len(one.turns) == len(result.workload.turns)


def test_what_each_shape_does(results: Results) -> None:
    append, create, full = (cell_of(results, label) for label in ("append", "create", "http-full"))
    assert (append["responses"].median, append["parks"].median) == (1, 2)
    assert append.typical.stage_runs["render"] == 1
    for chain in (create, cell_of(results, "http"), full):
        assert (chain["responses"].median, chain["parks"].median) == (3, 0)
        assert chain.typical.stage_runs["render"] == 3
    assert append["tokens_rendered"].median == create["tokens_rendered"].median < full["tokens_rendered"].median
    assert append["bytes_up"].median < create["bytes_up"].median < full["bytes_up"].median


def test_each_kind_of_reuse_is_turned_off() -> None:
    asked = Compare(tokens_per_second=(float("inf"),), rtt_ms=(0.0,), shapes=("create",), ablation=True, repetitions=1)
    done = trio.run(partial(compare, evolve(EXPERIMENT, compare=asked), command=""))
    rendered = {one.cell.label: one["tokens_rendered"].median for one in done.results}
    assert rendered.keys() == {"create", "create -all", *(f"create -{kind}" for kind in REUSE)}
    more = {label for label, tokens in rendered.items() if tokens > rendered["create"]}
    assert more == {"create -tokens", "create -all"}


def test_the_network_is_in_between(results: Results) -> None:
    far, near = cell_of(results, "append", rtt=0.004), cell_of(results, "append")
    assert far["network"].median == pytest.approx(3 * 0.004)
    assert near["network"].median == 0
    assert all(turn.first_token is not None and turn.first_token - turn.asked >= 0.004 for turn in far.typical.turns)


def test_json_has_all_that_one_needs_to_measure_it_again(results: Results) -> None:
    told = json.loads(encode(results.as_json()))
    assert told["command"] == "sostenuto compare"
    assert told["experiment"]["seed"] == 3
    assert SMALL.items() <= told["experiment"]["workload"][0].items()
    assert told["workloads"][0]["calls"] == 3
    assert len(told["cells"]) == len(results.results)
    assert MEASURES.keys() <= told["cells"][0].keys()


def test_csv_has_a_line_for_each_cell(results: Results) -> None:
    rows = list(csv.DictReader(as_csv(results).splitlines()))
    assert len(rows) == len(results.results)
    assert float(rows[0]["seconds_low"]) <= float(rows[0]["seconds"]) <= float(rows[0]["seconds_high"])
    assert rows[0]["stage_runs_render"] == "1"


def test_a_figure_is_a_median_and_quartiles() -> None:
    assert Figure.of([3.0]) == Figure(3.0, 3.0, 3.0)
    assert Figure.of([4, 1, 3, 2, 5]) == Figure(3, 2, 4)
    assert Figure.of([1.0, 2.0]).median == statistics.median([1.0, 2.0])


# ---- the page


def test_the_page_needs_nothing_beside_it(results: Results) -> None:
    html = page(results)
    assert "<title>Small &amp; &lt;short&gt;</title>" in html
    assert not re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', html)
    assert "<script" not in html
    assert html.count("<svg") == html.count('role="img"') == 3
    assert html.count("<tr") > len(results.results)


def test_charts_are_the_same_for_the_same_results(results: Results) -> None:
    assert [chart.svg() for chart in charts(results)] == [chart.svg() for chart in charts(results)]


@needs_chromium
def test_a_browser_opens_the_page_without_a_complaint_and_shows_its_charts(results: Results, tmp_path: Path) -> None:
    complaints, picture = opened(page(results), tmp_path)
    assert complaints == ""
    for part in ("sampling", "tools", "network", "engine", "rest"):
        assert share_of(COLOURS[part], picture, tmp_path) > 0.05, part
    assert share_of(COLOURS["sampling"], picture, tmp_path) > ENOUGH


@needs_chromium
def test_a_browser_would_complain(tmp_path: Path) -> None:
    complaints, picture = opened("<p>no chart</p><script>nothing.at.all()</script>", tmp_path)
    assert "nothing is not defined" in complaints
    assert share_of(COLOURS["sampling"], picture, tmp_path) < 0.05


# ---- the command


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli.main, ["compare", *arguments])


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    recorded = tmp_path / "recorded.jsonl"
    write_rollout(Synthetic(calls=1, call_tokens=5).rollout(Spread(), 0), recorded)
    few = ["--speeds", "inf", "--rtt", "0", "--repetitions", "1", "--shapes", "append,http"]
    out = {name: str(tmp_path / name) for name in ("page.html", "svg", "png")}
    done = run(str(recorded), *few, "--json", "--html", out["page.html"], "--svg", out["svg"], "--png", out["png"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [cell["shape"] for cell in told["cells"]] == ["append", "http"]
    assert told["cells"][0]["workload"] == "recorded"
    assert "<svg" in (tmp_path / "page.html").read_text(encoding="utf-8")
    names = ["1-overhead", "1-time", "1-timeline"]
    assert sorted(path.stem for path in (tmp_path / "svg").iterdir()) == names
    assert [path.read_bytes()[:4] for path in sorted((tmp_path / "png").iterdir())] == [b"\x89PNG"] * 3


def test_the_command_shows_a_table(tmp_path: Path) -> None:
    done = run("--speeds", "inf", "--rtt", "0", "--repetitions", "1", "--shapes", "append", "--calls", "1")
    assert done.exit_code == 0, done.output
    assert "instant, 0 ms" in done.stdout
    assert "append" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json", "--csv"], "take one"),
        (["--speeds", "-1"], "each above 0"),
        (["--shapes", "post"], "expected one of append"),
        (["--repetitions", "0"], "--repetitions"),
        (["none.toml"], "does not exist"),
    ],
)
def test_what_cannot_be_is_told(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.output


def test_without_matplotlib_charts_are_refused_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.lab.command.find_spec", lambda _: None)
    done = run("--html", "page.html")
    assert (done.exit_code, "sostenuto[lab]" in done.output) == (2, True)


@pytest.mark.parametrize("side_by_side", [1, 2])
def test_a_rollout_that_is_refused_ends_the_comparison_with_the_servers_words(tmp_path: Path, side_by_side: int) -> None:
    rollout = evolve(Synthetic(calls=1).rollout(Spread(), 0), tools=({"type": "file_search", "name": "search"},))
    write_rollout(rollout, tmp_path / "refused.jsonl")
    asked = Compare(tokens_per_second=(2000.0,), rtt_ms=(0.0,), repetitions=1, side_by_side=side_by_side)
    experiment = Experiment(compare=asked, workload=(WorkloadTable(file=str(tmp_path / "refused.jsonl")),))
    with pytest.raises(RolloutError, match="file_search is not offered"):
        trio.run(partial(compare, experiment, command=""))


def test_rollouts_side_by_side_are_all_played(tmp_path: Path) -> None:
    asked = Compare(tokens_per_second=(2000.0,), rtt_ms=(0.0,), repetitions=1, side_by_side=3)
    experiment = Experiment(compare=asked, workload=(WorkloadTable(name="one", extra={"calls": 1}),))
    done = trio.run(partial(compare, experiment, command=""))
    assert [len(one.samples) for one in done.results] == [1, 1, 1, 1]


async def test_a_signal_ends_it_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[Child] = []
    start = Child.start

    async def noted(kind: str, **told: Any) -> Child:
        children.append(await start(kind, **told))
        return children[-1]

    def interrupt(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Child, "start", noted)
    experiment = evolve(EXPERIMENT, compare=evolve(EXPERIMENT.compare, repetitions=1000))
    assert await until_signal(partial(compare, experiment, command="", on_sample=interrupt)) is None
    assert children
    assert all(child._process.returncode is not None for child in children)


# ---- processes, and the clients that measure


async def test_a_server_that_dies_is_told() -> None:
    child = await Child.start("relay", port=1, one_way=0.0)
    child._process.kill()
    with pytest.raises(ChildFailed):
        await child.spent()
    await child.aclose()


async def test_a_child_ends_with_its_parent() -> None:
    child = await Child.start("relay", port=1, one_way=0.0)
    assert (await child.spent()).cpu > 0
    await child.aclose()
    assert child._process.returncode == 0


HELD = Rollout(
    "",
    "",
    "Be brief.",
    ({"type": "function", "name": "f"},),
    (
        UserRecord("one"),
        AssistantRecord("let me see", tuple(Synthetic(calls=2, parallel=2).rollout(Spread(), 1).records[1].calls)),  # type: ignore[union-attr]
        ToolRecord("call_0", "zero " * 30_000),
        ToolRecord("call_1", "one"),
        AssistantRecord("done"),
        UserRecord("and now"),
        AssistantRecord("that too"),
    ),
)


@pytest.mark.parametrize("way", WAYS)
async def test_the_measuring_clients_see_what_the_others_do(tmp_path: Path, way: play.Way) -> None:
    write_rollout(HELD, tmp_path / "held.jsonl")
    models = (f"held=trajectory:{tmp_path / 'held.jsonl'}",)
    seen: list[play.Played] = []
    openers: list[Callable[..., Any]] = [play.open_play, open_play]
    async with running(Options(port=0, models=models, data=":memory:")) as server:
        for opener in openers:
            async with opener(server.url, way) as one:
                seen += [await one(Player(HELD, real_time=False), "held") for _ in range(2)]
    said = [[(item["type"], item.get("call_id")) for item in played.items] for played in seen]
    assert said[0] == said[1] == said[2] == said[3]
    assert len(said[0]) == 5
    assert len({len(played.responses) for played in seen}) == 1
    usual, lean = seen[1], seen[3]
    assert usual.parks == lean.parks
    assert lean.bytes_down == pytest.approx(usual.bytes_down, rel=0.01)
