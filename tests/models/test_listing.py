"""``sostenuto models`` and ``sostenuto pull``, as scripts use them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.cli import main
from engine.models import KINDS
from engine.models.listing import ABOUT


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def test_each_kind_is_told() -> None:
    assert set(KINDS) <= set(ABOUT)
    status, said = run("models")
    assert status == 0
    assert [line.split("\t")[0].partition(":")[0] for line in said.splitlines()] == [kind for kind in ABOUT if kind in KINDS]
    assert all(len(line.split("\t")) == 3 for line in said.splitlines())


def test_what_is_to_be_done_first_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOSTENUTO_MODELS", str(tmp_path))
    kinds = {one["model"]: one for one in json.loads(run("models", "--json")[1])["kinds"]}
    assert (kinds["smollm2"]["ready"], kinds["smollm2"]["note"]) == (False, "sostenuto pull smollm2")
    assert kinds["scripted"]["ready"]


def test_one_that_does_not_answer_is_a_status() -> None:
    status, said = run("models", "--model", "scripted", "--model", "chat:http://127.0.0.1:9/v1#some", "--model", "none:x")
    assert status == 1
    assert [line.split("\t")[:2] for line in said.splitlines()] == [
        ["scripted", "answers"],
        ["chat:http://127.0.0.1:9/v1#some", "does not answer"],
        ["none:x", "does not answer"],
    ]


def test_for_scripts() -> None:
    status, said = run("models", "--json", "--model", "mine=scripted")
    assert status == 0
    (found,) = json.loads(said)["models"]
    assert found == {"model": "mine=scripted", "name": "mine", "answers": True, "about": "needs nothing", "error": None}


def test_pull_prints_the_file(smollm2: Path) -> None:
    assert run("pull", "smollm2") == (0, f"{smollm2}\n")
    status, said = run("pull", "gpt-9")
    assert (status, said) == (1, "")
