"""``docs/lab.md``: its commands run, its experiment can be measured, and it names all shapes, figures and fields."""

import json
import tomllib
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from engine import cli
from engine.lab.experiment import Compare, read_experiment, workloads
from engine.lab.play import WAYS
from engine.lab.scenario import Simulate, scenarios
from engine.lab.workload import Synthetic

from ..test_readme import Shell, blocks_of
from .blocks import ROOT, read, rows

LAB = read("lab.md")
BLOCKS = blocks_of(LAB)


@pytest.mark.parametrize("block", [pytest.param(one, id=f"line {one.line}") for one in BLOCKS if one.kind == "sh"])
def test_its_commands_run(block: object, tmp_path: Path) -> None:
    shell = Shell.make(tmp_path)
    [command] = block.commands  # type: ignore[attr-defined]
    printed = "\n".join(shell.run(command.replace("report.html", str(tmp_path / "report.html"))))
    assert ("release" if "simulate" in command else "append") in printed
    assert ("report.html" in command) == (tmp_path / "report.html").exists()


def test_its_experiment_has_every_field(tmp_path: Path) -> None:
    [block] = [one for one in BLOCKS if "[compare]" in one.text]
    path = tmp_path / "experiment.toml"
    path.write_text(block.text, encoding="utf-8")
    assert workloads(read_experiment(path))[0].parks == 24
    table = tomllib.loads(block.text)
    assert table["workload"][0].keys() == attrs.fields_dict(Synthetic).keys() | {"name", "tool_seconds"}
    assert table["compare"].keys() == attrs.fields_dict(Compare).keys() - {"side_by_side", "extra"}


def test_its_simulation_has_every_field(tmp_path: Path) -> None:
    [block] = [one for one in BLOCKS if "[simulate]" in one.text]
    path = tmp_path / "experiment.toml"
    path.write_text(block.text, encoding="utf-8")
    asked = read_experiment(path).simulate
    assert asked is not None
    assert len(list(scenarios(asked, ["20 calls"]))) == 2 * 4 * 2
    assert tomllib.loads(block.text)["simulate"].keys() == attrs.fields_dict(Simulate).keys() - {"costs", "extra"}


def test_the_shipped_sweep_can_be_simulated() -> None:
    options = ["--users", "2,5", "--policy", "hold,pressure,release", "--json"]
    done = CliRunner().invoke(cli.main, ["simulate", str(ROOT / "examples" / "experiments" / "scale.toml"), *options])
    places = json.loads(done.stdout)["places"]
    assert {(place["policy"], place["read_again"] > 0) for place in places} == {
        ("hold", False),
        ("pressure", False),
        ("release", True),
    }


def test_every_shape_is_told() -> None:
    table = rows(LAB.partition("| `--shapes`")[2].partition("\n\n")[0])
    assert [cells[0].strip("`") for cells in table if cells[0].startswith("`")] == list(WAYS)


def test_every_experiment_is_told() -> None:
    table = rows(LAB.partition("## Experiments as files")[2])
    shipped = sorted(path.name for path in (ROOT / "examples" / "experiments").glob("*.toml"))
    assert sorted(cells[0].strip("`") for cells in table[2:]) == shipped
