"""The kit against servers that others wrote, where they are installed: what is known of them is found (docs/peers.md)."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from attrs import evolve

from protocol.conformance.adapters import Adapter
from protocol.conformance.aimock import Aimock, fixtures
from protocol.conformance.report import Report
from protocol.conformance.run import Plan, check

from ...clients.support.npm import npm_package
from .steering import Fastresponses

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 30.0
AIMOCK = "1.43.0"
PLAN = Plan(shapes=["create", "http"], examples=5, seed=1, seconds=60)
NOT_OURS = ("append", "lanes", "warm_up", "steer", "cancel", "attach", "conversations", "input_items")


@contextmanager
def running(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A server on a free port of the loopback, which stands in ``command`` as ``PORT``."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [word.replace("PORT", str(port)) for word in command],
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
    try:
        wait_for(port, process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < until, log.read_text(errors="replace")
            time.sleep(0.05)
        else:
            return


def held_against_the_laws(url: str, adapter: Adapter, without: Sequence[str], probes: Sequence[str]) -> Report:
    plan = evolve(PLAN, probes=probes, without=without)
    report = check(url, adapter=adapter, plan=plan)
    assert report.shapes == ["create", "http"]
    assert sum(report.examples.values()) > 0
    return report


def test_aimock(tmp_path: Path) -> None:
    package = npm_package("@copilotkit/aimock", AIMOCK)
    (tmp_path / "fixtures.json").write_text(json.dumps(fixtures()), encoding="utf-8")
    cli = package / "node_modules/@copilotkit/aimock/dist/cli.js"
    command = ["node", str(cli), "--host", "127.0.0.1", "--port", "PORT", "--fixtures", "fixtures.json", "--log-level", "warn"]
    probes = ["server sent events", "metadata comes back", "a frame that nobody knows", "fields that clients send"]
    with running(command, tmp_path, {}) as url:
        report = held_against_the_laws(url, Aimock(), (*NOT_OURS, "chain", "store", "background", "custom"), probes)
    assert {name: finding.status for name, finding in report.probes.items()} == {
        "server sent events": "broken",
        "metadata comes back": "broken",
        "a frame that nobody knows": "held",
        "fields that clients send": "held",
    }
    assert "without a number" in report.laws["L3"].message


@pytest.mark.skipif(find_spec("fastresponses") is None, reason="fastresponses is not installed (pip install fastresponses)")
def test_fastresponses(tmp_path: Path) -> None:
    agent = Path(__file__).parent / "fastresponses_adapter.py"
    code = "from fastresponses import main; main()"
    command = [sys.executable, "-c", code, "serve", f"{agent}:adapter", "--port", "PORT", "--log-level", "warning"]
    probes = ["sequence numbers", "deltas make the whole", "the same continuation twice", "the grammar of a rollout"]
    with running(command, tmp_path, {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}) as url:
        report = held_against_the_laws(url, Fastresponses(), NOT_OURS, probes)
    assert {name: finding.status for name, finding in report.probes.items()} == {
        "sequence numbers": "held",
        "deltas make the whole": "held",
        "the same continuation twice": "held",
        "the grammar of a rollout": "broken",
    }
    assert "is added with status 'completed'" in report.laws["L4"].message
