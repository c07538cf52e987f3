"""An unmodified Codex CLI 0.171.0 against ``sostenuto serve``: a chain of Responses over a WebSocket, or over HTTP.

Over a WebSocket it warms up with ``generate: false``, and then sends what is new with ``previous_response_id``; over HTTP it
sends the whole history each time. Where the server answers an upgrade with 426, it goes over to HTTP.
"""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from uuid import uuid4

import pytest
from attrs import frozen

from .matrix import shows
from .support.codex import NEW_FEATURES, install_codex, run_codex
from .support.relay import Relay, relay_to
from .support.served import served

VERSION = "0.171.0"

TRANSPORTS = {"websocket": (), "http": (), "fallback": ("--no-websocket",)}
"""How Codex gets to the server, and what the server is told."""


@frozen
class Ran:
    """What came of a run."""

    ended: CompletedProcess[str]
    relay: Relay
    ledger: list[dict[str, Any]]

    def items(self, kind: str) -> list[dict[str, Any]]:
        """What Codex reports that it has done."""
        events = [json.loads(line) for line in self.ended.stdout.splitlines()]
        done = [event["item"] for event in events if event["type"] == "item.completed"]
        return [item for item in done if item["type"] == kind]

    @property
    def answer(self) -> str:
        """Its final text."""
        text: str = self.items("agent_message")[-1]["text"]
        return text

    @property
    def printed(self) -> list[str]:
        """What the commands printed, in the order of their ends."""
        return [item["aggregated_output"].strip() for item in self.items("command_execution")]


@pytest.fixture
def codex() -> Path:
    """The program. Not a matter for the tests themselves: a skip in their tasks would lose its reason."""
    return install_codex(VERSION)


async def run(codex: Path, transport: str, folder: Path, prompt: str) -> Ran:
    """Codex's run of ``prompt`` through a relay, against a server of its own, which has ended."""
    async with served(folder, *TRANSPORTS[transport]) as server, relay_to(server.url) as relay:
        ended = await run_codex(
            codex, relay.url, folder, prompt, "scripted", "--json", features=NEW_FEATURES, websockets=transport != "http"
        )
    assert server.exit_status == 0
    assert ended.returncode == 0, ended.stderr
    return Ran(ended, relay, server.ledger())


def check_chain(ran: Ran, transport: str, calls: list[int]) -> None:
    """One Response a turn, of so many calls each, and the warm-up over a WebSocket; none ended but as completed."""
    warm_up = [0] if transport == "websocket" else []
    shape = "create" if transport == "websocket" else "http"
    assert [(row["shape"], row["status"], row["tool_calls"]) for row in ran.ledger] == [
        (shape, "completed", count) for count in [*warm_up, *calls]
    ]
    if transport == "websocket":
        check_socket(ran)
    else:
        check_requests(ran, transport)


def check_socket(ran: Ran) -> None:
    """One socket, that asked for chains; each create but the first names the Response before, and has what is new only."""
    [socket] = ran.relay.connections
    assert socket.is_websocket
    assert "openai-beta: responses_websockets=2026-02-06" in socket.up.head.lower()
    creates = ran.relay.sent("response.create")
    assert creates == socket.up.frames
    assert [create.get("generate") for create in creates] == [False, *[None] * (len(creates) - 1)]
    ids = [frame["response"]["id"] for frame in ran.relay.received("response.completed")]
    assert [create.get("previous_response_id") for create in creates] == [None, *ids[:-1]]
    for create in creates[2:]:
        assert {item["type"] for item in create["input"]} == {"function_call_output"}
    assert {frame["type"] for frame in socket.down.frames}.isdisjoint({"error", "response.done"})
    assert [row["cached_tokens"] > 0 for row in ran.ledger] == [False, *[True] * (len(ids) - 1)]


def check_requests(ran: Ran, transport: str) -> None:
    """No socket: either none was asked for, or the first time it was refused, Codex went over to HTTP."""
    heads = [(one.up.head.partition("\r\n")[0], one.down.head.split()[1]) for one in ran.relay.connections]
    upgrades = [head for head in heads if head[0].startswith("GET /v1/responses ")]
    assert upgrades == ([("GET /v1/responses HTTP/1.1", "426")] if transport == "fallback" else [])
    rest = [head for head in heads if head not in upgrades]
    assert rest
    assert set(rest) <= {("POST /v1/responses HTTP/1.1", "200")}
    inputs = [row["input_tokens"] for row in ran.ledger]
    assert inputs == sorted(set(inputs)), "each request has the whole history, and more"


@shows("Codex 0.171.0", "create", "`exec`: a rollout with its shell tool; a warm-up (`generate: false`)")
@shows("Codex 0.171.0", "http", "`exec`: a rollout with its shell tool; over to HTTP where an upgrade is refused (426)")
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_without_a_program_it_runs_what_it_was_asked_to(codex: Path, transport: str, tmp_path: Path) -> None:
    ran = await run(codex, transport, tmp_path, "Say hi by running echo.")
    check_chain(ran, transport, [1, 0])
    assert ran.printed == ["hi"]
    assert "it printed:\n\n```\nhi\n```" in ran.answer


@shows("Codex 0.171.0", "create", "calls side by side, by `previous_response_id`")
@shows("Codex 0.171.0", "http", "calls side by side, with the whole history each time")
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_it_runs_a_program_with_calls_side_by_side(codex: Path, transport: str, tmp_path: Path) -> None:
    """Each command prints what stands in no prompt, so the answer can come from nowhere but the shell."""
    work = tmp_path / "work"
    work.mkdir()
    contents = {name: f"{name} holds {uuid4()}" for name in ("one", "two", "three", "four")}
    for name, text in contents.items():
        (work / name).write_text(text)

    def cat(name: str) -> dict[str, Any]:
        return {"name": "exec_command", "arguments": {"cmd": f"cat {name}"}}

    steps = [
        {"reason": "Two at once."},
        {"calls": [cat("one"), cat("two")]},
        {"say": "Two files are read."},
        {"call": cat("three")},
        {"call": cat("four")},
        {"say": "The last one: {{output}}"},
    ]
    ran = await run(codex, transport, tmp_path, json.dumps({"program": steps}))
    check_chain(ran, transport, [2, 1, 1, 0])
    assert sorted(ran.printed[:2]) == [contents["one"], contents["two"]]
    assert ran.printed[2:] == [contents["three"], contents["four"]]
    assert [item["text"] for item in ran.items("agent_message")][:-1] == ["Two files are read."]
    assert ran.answer.startswith("The last one: ")
    assert contents["four"] in ran.answer
