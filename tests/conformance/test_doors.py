"""The doors of the kit, as programs: the command, and the pytest plugin."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from engine.cli import main
from protocol.conformance.doors import adapter_of, is_loopback
from protocol.conformance.laws import LAWS
from protocol.conformance.run import CannotCheck

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "140"}
SECONDS = 120.0
PROBE = "the grammar of a rollout"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """``sostenuto serve``."""
    command = [sys.executable, "-m", "engine.cli", "serve", "--port", "0", "--data", ":memory:", "--log-level", "error"]
    folder = tmp_path_factory.mktemp("served")
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder, env=ENVIRONMENT, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("listening on ").strip()
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)


def conform(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["conform", *arguments])


def subprocess_of(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=SECONDS, check=False)


# ---- the command


def test_a_server_at_a_url_in_all_shapes(url: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = conform(url, "--examples", "2", "--seed", "3", "--probe", PROBE, "--json", "--html", str(page))
    report = json.loads(done.stdout)
    assert (done.exit_code, done.stderr) == (0, "")
    assert report["shapes"] == ["append", "create", "http"]
    assert (report["server"], report["seed"], report["adapter"]) == (url, 3, "Scripted")
    assert set(report["laws"]) == set(LAWS)
    assert all(law["status"] in ("held", "not offered") for law in report["laws"].values())
    assert report["laws"]["L2"]["examples"] >= 4
    assert list(report["probes"]) == [PROBE]
    assert report["probes"][PROBE]["status"] == "held"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_table_for_people(url: str) -> None:
    done = conform(url, "--shape", "create", "--examples", "1", "--probe", PROBE)
    assert done.exit_code == 0
    assert "L2 one end" in done.stdout
    assert PROBE in done.stdout
    assert done.stdout.splitlines()[-1] == "no failure"


def test_the_engine_in_memory() -> None:
    done = conform("--memory", "--shape", "append", "--examples", "20", "--no-probes", "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == 0
    assert report["examples"] == {"append": 20}
    assert report["probes"] == {}


BAD_ADAPTER = """
from protocol.conformance.adapters import Scripted

class Liar(Scripted):
    def opening(self, steps, **options):
        return {**super().opening(steps), "input": [{"type": "message", "role": "user", "content": "no program"}]}
"""


def test_a_failure_is_shown_as_frames_and_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "liars.py").write_text(BAD_ADAPTER, encoding="utf-8")
    arguments = ("--memory", "--shape", "create", "--examples", "20", "--no-probes", "--adapter", "liars:Liar", "--seed", "1")
    done = subprocess_of("engine.cli", "conform", *arguments, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert '→ {"type":"response.create"' in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 broken: L8")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "give the URL of a server"),
        (("--memory", "http://localhost:1"), "give the URL of a server"),
        (("localhost:8080",), "not a URL"),
        (("http://127.0.0.1:9",), "is it running?"),
        (("https://api.example.com",), "is another machine, or may be one. The kit sends hostile frames"),
        (("http://192.168.1.2:8080",), "--allow-remote"),
        (("--memory", "--without", "wings"), "no such capability: wings"),
        (("--memory", "--probe", "wings"), "no such probe: wings"),
        (("--memory", "--adapter", "wings"), "no adapter wings"),
        (("--memory", "--adapter", "model"), "which model?"),
        (("--memory", "--shape", "smoke"), "'smoke' is not one of"),
    ],
)
def test_what_cannot_be_done_ends_with_2_and_says_what_to_do(arguments: tuple[str, ...], complaint: str) -> None:
    done = conform(*arguments)
    assert done.exit_code == 2
    assert complaint in done.stderr
    assert done.stdout == ""


def test_ctrl_c_ends_it_at_once_with_what_was_found(tmp_path: Path) -> None:
    arguments = ("--memory", "--shape", "append", "--examples", "1000000", "--no-probes", "--json", "--seed", "1")
    command = [sys.executable, "-m", "engine.cli", "conform", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(8)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (130, "")
    assert json.loads(output)["interrupted"]


def test_without_hypothesis_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "hypothesis.py").write_text("raise ModuleNotFoundError('gone', name='hypothesis')", encoding="utf-8")
    done = subprocess_of("engine.cli", "conform", "--memory", cwd=tmp_path)
    assert done.returncode == 2
    assert "hypothesis is missing: pip install 'sostenuto[conform]'" in done.stderr


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1", "a.localhost"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["localhost.example.com", "example.com", "10.0.0.1", "0.0.0.0", "::", "127.0.0.1.example.com"])
def test_another_machine(host: str) -> None:
    assert not is_loopback(host)


def test_adapters_by_name() -> None:
    names = ("scripted", "scripted:mine", "aimock", "model:gpt-5", "protocol.conformance.adapters:Scripted")
    kinds = ["Scripted", "Scripted", "Aimock", "RealModel", "Scripted"]
    assert [type(adapter_of(name)).__name__ for name in names] == kinds
    assert adapter_of(None) is None
    with pytest.raises(CannotCheck, match="MODULE:CLASS for your own"):
        adapter_of("protocol.conformance.adapters:Nobody")


# ---- the plugin

INSTALLED = any(point.value == "protocol.conformance.plugin" for point in entry_points(group="pytest11"))
PLUGIN = ("pytest", "-q", "-rA", "-p", "no:cacheprovider", *(() if INSTALLED else ("-p", "protocol.conformance.plugin")))


def test_pytest_has_a_test_for_each_law_and_probe(url: str, tmp_path: Path) -> None:
    arguments = ("--responses-url", url, "--responses-shape", "create", "--responses-examples", "2")
    name = PROBE.replace(" ", "_")
    done = subprocess_of(*PLUGIN, *arguments, "-k", f"L2 or {name}", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    passed = [line for line in done.stdout.splitlines() if line.startswith("PASSED")]
    assert passed == ["PASSED responses::L2", f"PASSED responses::{name}"]


def test_pytest_skips_what_is_not_offered(url: str, tmp_path: Path) -> None:
    arguments = ("--responses-url", url, "--responses-shape", "create", "--responses-examples", "1")
    done = subprocess_of(*PLUGIN, *arguments, "-k", "L1 or L16", "--responses-without", "lanes", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "no conversation could have broken it" in done.stdout


def test_pytest_shows_a_failure_as_frames(url: str, tmp_path: Path) -> None:
    (tmp_path / "liars.py").write_text(BAD_ADAPTER, encoding="utf-8")
    arguments = ("--responses-url", url, "--responses-shape", "create", "--responses-adapter", "liars:Liar")
    done = subprocess_of(*PLUGIN, *arguments, "--responses-examples", "5", "-k", "L8", cwd=tmp_path)
    assert done.returncode == 1
    assert '→ {"type":"response.create"' in done.stdout
    assert "search.py" not in done.stdout


@pytest.mark.parametrize(
    ("where", "complaint"), [("http://127.0.0.1:9", "is it running?"), ("http://10.0.0.1", "--allow-remote")]
)
def test_pytest_ends_with_2_where_nothing_can_be_tried(where: str, complaint: str, tmp_path: Path) -> None:
    done = subprocess_of(*PLUGIN, "--responses-url", where, cwd=tmp_path)
    assert done.returncode == 2
    assert complaint in done.stdout + done.stderr


def test_pytest_starts_without_the_kit_and_has_no_tests_of_it(tmp_path: Path) -> None:
    names = "[name for name in sys.modules if name.startswith(('trio', 'hypothesis', 'cattrs'))]"
    code = f"import sys, pytest, protocol.conformance.plugin; print({names})"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
    (tmp_path / "test_mine.py").write_text("def test_mine():\n    pass\n", encoding="utf-8")
    done = subprocess_of(*PLUGIN, cwd=tmp_path)
    assert "1 passed" in done.stdout
