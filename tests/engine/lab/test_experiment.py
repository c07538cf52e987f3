"""Experiments as files and as options: what they say is what is measured, and what is wrong is told with its place."""

from pathlib import Path

import pytest

from engine.config import REUSE
from engine.lab.command import asked
from engine.lab.compare import cells, machine
from engine.lab.experiment import (
    Compare,
    Experiment,
    ExperimentError,
    read_experiment,
    side_by_side,
    spread,
    variants,
    workloads,
)
from engine.lab.workload import Spread, Synthetic
from engine.trajectories import write_rollout

SHIPPED = sorted((Path(__file__).parents[3] / "examples" / "experiments").glob("*.toml"))


def written(folder: Path, text: str) -> Path:
    path = folder / "experiment.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_says_all(tmp_path: Path) -> None:
    write_rollout(Synthetic(calls=3).rollout(Spread(), 0), tmp_path / "recorded.jsonl")
    path = written(
        tmp_path,
        """
        title = "T"
        seed = 5
        [compare]
        tokens_per_second = [100, inf]
        rtt_ms = [3]
        shapes = ["append", "create"]
        ablation = true
        repetitions = 2
        [[workload]]
        name = "made"
        calls = 4
        parallel = 2
        output_tokens = {distribution = "lognormal", value = 50}
        tool_seconds = 0.5
        [[workload]]
        file = "recorded.jsonl"
        """,
    )
    experiment = read_experiment(path)
    made, recorded = workloads(experiment)
    assert (made.name, made.parks, made.tool_seconds) == ("made", 2, 1.0)
    assert (recorded.name, recorded.parks) == ("recorded", 3)
    assert len(cells(experiment.compare, [made, recorded])) == 2 * 2 * (2 + len(REUSE) + 1)
    told = experiment.as_json()
    assert told["compare"]["tokens_per_second"] == [100, float("inf")]
    assert told["workload"][0]["calls"] == 4
    assert "extra" not in str(told)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_those_that_ship_can_be_measured(path: Path) -> None:
    experiment = read_experiment(path)
    assert all(one.tokens for one in workloads(experiment))


def test_the_headline_is_that_of_the_issue() -> None:
    experiment = read_experiment(next(path for path in SHIPPED if path.stem == "headline"))
    assert all(sum(turn.calls for turn in one.turns) > 20 for one in workloads(experiment))
    assert {65, 1000} <= set(experiment.compare.tokens_per_second)


def test_the_ablation_turns_each_kind_off_where_there_is_one() -> None:
    both = list(variants(Compare(shapes=("append", "create"), ablation=True)))
    alone = [("create", (kind,)) for kind in sorted(REUSE)]
    assert both == [("append", ()), ("create", ()), *alone, ("create", tuple(sorted(REUSE)))]
    assert list(variants(Compare(shapes=("append", "create")))) == [("append", ()), ("create", ())]


def test_slow_models_are_played_side_by_side() -> None:
    assert [side_by_side(Compare(), speed) for speed in (65, 300, 1000, float("inf"))] == [4, 2, 1, 1]
    assert side_by_side(Compare(side_by_side=7), 1000) == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = ", "not valid TOML"),
        ("colour = 1", "colour: no such field; there are compare, seed, simulate, title, workload"),
        ("[compare]\nspeed = 1", "compare.speed: no such field"),
        ("[compare]\nshapes = ['post']", "compare.shapes[0]: expected one of append, create, http, http-full"),
        ("[compare]\nshapes = []", "compare.shapes: at least one"),
        ("[compare]\ntokens_per_second = [0]", "compare.tokens_per_second: at least one, each above 0"),
        ("[compare]\ntokens_per_second = []", "compare.tokens_per_second: at least one, each above 0"),
        ("[compare]\nrtt_ms = [-1]", "compare.rtt_ms: at least one, each 0 or more"),
        ("[compare]\nrepetitions = 0", "compare.repetitions: 1 or more"),
        ("[compare]\nside_by_side = 0", "compare.side_by_side: 1 or more"),
        ("workload = []", "workload: at least one"),
        ("workload = 3", "workload: expected a list"),
        ("[[workload]]\ncols = 3", "workload[0].cols: no such field"),
        ("[[workload]]\ncalls = -3", "workload[0].calls: 0 or more"),
        ("[[workload]]\ncalls = 1.5", "workload[0].calls: expected an integer"),
        ("[[workload]]\nfile = 'x'\ncalls = 3", "workload[0].calls: a file is given"),
        ("[[workload]]\ntool_seconds = {distribution = 'normal'}", "workload[0].tool_seconds.distribution: expected one of"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ExperimentError) as caught:
        read_experiment(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="can't be read"):
        read_experiment(tmp_path / "none.toml")
    with pytest.raises(ExperimentError, match=r"none\.jsonl"):
        workloads(asked([tmp_path / "none.jsonl"]))


def test_names_stand_once(tmp_path: Path) -> None:
    write_rollout(Synthetic().rollout(Spread(), 0), tmp_path / "one.jsonl")
    with pytest.raises(ExperimentError, match="two workloads have the name 'one'"):
        workloads(asked([tmp_path / "one.jsonl"] * 2))


# ---- options


def test_options_overrule_the_file() -> None:
    path = SHIPPED[0]
    experiment = asked(
        [path],
        speeds="10,inf",
        rtt="5",
        shapes="http,append",
        repetitions=1,
        ablation=True,
        seed=9,
        tool_seconds="exponential:2",
    )
    compare = experiment.compare
    assert compare.tokens_per_second == (10.0, float("inf"))
    assert (compare.rtt_ms, compare.shapes, compare.repetitions, compare.ablation) == ((5.0,), ("http", "append"), 1, True)
    assert experiment.seed == 9
    assert all(one.tool_seconds == Spread(distribution="exponential", value=2.0) for one in experiment.workload)
    assert asked([path]) == read_experiment(path)
    assert asked([]) == Experiment()
    assert [sum(turn.calls for turn in one.turns) for one in workloads(asked([], calls=5))] == [5]


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ([], {"speeds": "fast"}, "--speeds: expected numbers"),
        ([], {"rtt": ""}, "--rtt: expected numbers"),
        ([], {"shapes": "append,post"}, "--shapes[1]: expected one of"),
        ([], {"speeds": "0"}, "each above 0"),
        ([], {"tool_seconds": "quick"}, "'quick' is none of"),
        ([], {"tool_seconds": "lognormal:x"}, "'lognormal:x' is none of"),
        ([Path("a.toml"), Path("b.jsonl")], {}, "stands alone"),
        ([Path("b.jsonl")], {"calls": 3}, "--calls is for made-up rollouts"),
    ],
)
def test_options_that_cannot_be(files: list[Path], options: dict[str, str], message: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        asked(files, **options)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_spreads_of_the_command_line() -> None:
    assert spread("0.25") == Spread(value=0.25)
    assert spread("recorded") == Spread(distribution="recorded")
    assert spread("lognormal:2:0.5") == Spread(distribution="lognormal", value=2.0, sigma=0.5)
    assert spread("exponential:2") == Spread(distribution="exponential", value=2.0)


def test_the_machine_names_nobody() -> None:
    assert machine().keys() == {"cpus", "architecture", "system", "python"}
