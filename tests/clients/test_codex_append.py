"""Unmodified Codex CLIs against ``sostenuto serve``: a rollout with its shell tool is one Response.

0.104.0 asks for the append shape with a header. 0.98.0 doesn't, and sends each call again before its output.
"""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from uuid import uuid4

import pytest
from attrs import frozen

from .matrix import shows
from .support.codex import install_codex, run_codex
from .support.relay import Relay, relay_to
from .support.served import served

WITH_HEADER = "0.104.0"
WITH_ECHOES = "0.98.0"
SERVER_OPTIONS = {WITH_HEADER: (), WITH_ECHOES: ("--continuation", "append")}

PARALLEL_MODEL = "gpt-5.2"
"""A name for the scripted model for which Codex allows calls side by side; for one that it doesn't know it does not."""

pytestmark = [pytest.mark.parametrize("version", [WITH_HEADER, WITH_ECHOES])]


@frozen
class Ran:
    """What came of a run."""

    ended: CompletedProcess[str]
    relay: Relay
    ledger: list[dict[str, Any]]

    @property
    def answer(self) -> str:
        """Codex's final text."""
        return self.ended.stdout


@pytest.fixture
def codex(version: str) -> Path:
    """The program. Not a matter for the tests themselves: a skip in their tasks would lose its reason."""
    return install_codex(version)


async def run(codex: Path, version: str, folder: Path, prompt: str, model: str = "scripted") -> Ran:
    """Codex's run of ``prompt`` through a relay, against a server of its own, which has ended."""
    async with (
        served(folder, "--model", f"{model}=scripted", *SERVER_OPTIONS[version]) as server,
        relay_to(server.url) as relay,
    ):
        ended = await run_codex(codex, relay.url, folder, prompt, model)
    assert server.exit_status == 0
    assert ended.returncode == 0, ended.stderr
    return Ran(ended, relay, server.ledger())


def check_one_response(ran: Ran, *, appends: range) -> None:
    """One create, appends of it, one terminal event, one row; the work before and after inference done once."""
    assert len(ran.relay.sent("response.create")) == 1
    assert len(ran.relay.sent("response.append")) in appends
    assert {frame["type"] for one in ran.relay.connections for frame in one.up.frames} == {"response.create", "response.append"}
    assert len([one for one in ran.relay.connections if one.is_websocket]) == 1
    assert ran.relay.received("error") == []
    [completed] = ran.relay.received("response.completed")
    [row] = ran.ledger
    assert (row["response_id"], row["status"], row["shape"]) == (completed["response"]["id"], "completed", "append")
    assert row["parks"] == len(ran.relay.received("response.done")) >= 1
    assert {name: stage["full"] for name, stage in row["stages"].items()} == dict.fromkeys(row["stages"], 1)
    assert {"validate", "classify", "render", "classify_output", "bill", "store"} <= set(row["stages"])


def check_the_wire_is_as_the_version_has_it(ran: Ran, version: str) -> None:
    [websocket] = [one for one in ran.relay.connections if one.is_websocket]
    asks = "openai-beta: responses_websockets=2026-02-04" in websocket.up.head.lower()
    echoes = [item["type"] for frame in ran.relay.sent("response.append") for item in frame["input"]].count("function_call")
    assert asks is (version == WITH_HEADER)
    assert (echoes > 0) is (version == WITH_ECHOES)


def outputs(ran: Ran) -> dict[str, str]:
    """What the shell tool gave back, by call."""
    appended = (item for frame in ran.relay.sent("response.append") for item in frame["input"])
    return {item["call_id"]: item["output"] for item in appended if item["type"] == "function_call_output"}


@shows(
    "Codex 0.98.0", "append", "`exec`: a rollout with its shell tool is one Response; each call sent again before its output"
)
@shows("Codex 0.104.0", "append", "`exec`: a rollout with its shell tool is one Response, as its header asks")
async def test_without_a_program_it_runs_what_it_was_asked_to(codex: Path, version: str, tmp_path: Path) -> None:
    ran = await run(codex, version, tmp_path, "Say hi by running echo.")
    check_one_response(ran, appends=range(1, 2))
    check_the_wire_is_as_the_version_has_it(ran, version)
    [output] = outputs(ran).values()
    _, _, printed = output.partition("Output:\n")
    assert printed.strip() == "hi"
    assert f"it printed:\n\n```\n{printed.strip()}\n```" in ran.answer


@shows("Codex 0.98.0", "append", "calls side by side")
@shows("Codex 0.104.0", "append", "calls side by side")
async def test_it_runs_a_program_with_calls_side_by_side(codex: Path, version: str, tmp_path: Path) -> None:
    """Each command prints what stands in no prompt, so the answer can come from nowhere but the shell."""
    work = tmp_path / "work"
    work.mkdir()
    contents = {name: f"{name} holds {uuid4()}" for name in ("one", "two", "three")}
    for name, text in contents.items():
        (work / name).write_text(text)

    def cat(name: str) -> dict[str, Any]:
        return {"name": "exec_command", "arguments": {"cmd": f"cat {name}"}}

    steps = [
        {"calls": [cat("one"), cat("two")]},
        {"say": "Two files are read."},
        {"call": cat("three")},
        {"say": "The last one: {{output}}"},
    ]
    ran = await run(codex, version, tmp_path, json.dumps({"program": steps}), PARALLEL_MODEL)
    check_one_response(ran, appends=range(2, 4))
    check_the_wire_is_as_the_version_has_it(ran, version)
    assert [len(park["required_input"]) for park in ran.relay.received("response.done")] == [2, 1]
    given = list(outputs(ran).values())
    assert len(given) == 3
    assert all(text in output for text, output in zip(contents.values(), given, strict=True))
    assert ran.answer.strip() == f"The last one: {given[-1]}"
    assert contents["three"] in ran.answer
