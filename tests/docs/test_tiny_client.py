"""What ``docs/append.md`` says is enough to write a client: a tiny one, from the standard library, runs rollouts."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from tools.hosted import FileSearch

from .doc_server import doc_server
from .tiny_client import Dropped, Rollout, Socket

PROGRAM = {
    "program": [
        {"reason": "Two things at once."},
        {"calls": [{"name": "upper", "arguments": {"text": "å"}}, {"name": "note", "kind": "custom_tool_call"}]},
        {"repeat": 3, "steps": [{"call": {"name": "upper", "arguments": {"text": "b"}}}]},
        {"say": "The note says {{output_of:note}}, the last word is {{output_of:upper}}."},
    ]
}
BIG = "x" * 70_000
"""Needs the longest form of a frame's length."""


class Tools:
    """Counts what is run."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def upper(self, arguments: str) -> str:
        self.ran.append("upper")
        return str(json.loads(arguments)["text"]).upper()

    def note(self, _: str) -> str:
        self.ran.append("note")
        return BIG


def request(program: dict[str, Any] = PROGRAM) -> dict[str, Any]:
    return {"model": "scripted", "input": json.dumps(program)}


def by_name(tools: Tools) -> dict[str, Any]:
    return {"upper": tools.upper, "note": tools.note}


def said(response: dict[str, Any]) -> str:
    return str(response["output"][-1]["content"][0]["text"])


async def run(rollout: Rollout) -> dict[str, Any]:
    return await trio.to_thread.run_sync(rollout.run)


async def test_it_runs_a_rollout_as_one_response() -> None:
    tools = Tools()
    async with doc_server(keys=("secret",)) as port:
        headers = {"Authorization": "Bearer secret", "OpenAI-Beta": "responses_websockets=2026-02-04"}
        rollout = Rollout(lambda: Socket(port, headers), request(), by_name(tools))
        response = await run(rollout)
    assert response["status"] == "completed"
    assert response["id"] == rollout.response_id
    assert sorted(tools.ran) == ["note", "upper", "upper", "upper", "upper"]
    assert said(response).startswith("The note says xxx")
    assert said(response).endswith("the last word is B.")
    assert [event["sequence_number"] for event in rollout.events] == list(range(len(rollout.events)))


async def test_it_survives_a_drop_after_every_frame_and_runs_no_tool_twice() -> None:
    class Fragile(Socket):
        """Drops when it has received three frames."""

        received = 0

        def receive(self) -> dict[str, Any]:
            self.received += 1
            if self.received > 3:
                raise Dropped("on purpose")
            return super().receive()

    tools = Tools()
    async with doc_server() as port:
        rollout = Rollout(lambda: Fragile(port, {}), request(), by_name(tools))
        response = await run(rollout)
    assert response["status"] == "completed"
    assert response["engine"]["stage_runs"]["render"] == 1
    assert sorted(tools.ran) == ["note", "upper", "upper", "upper", "upper"]
    assert [event["sequence_number"] for event in rollout.events] == list(range(len(rollout.events)))


async def test_hosted_calls_run_beside_its_own(tmp_path: Path) -> None:
    (tmp_path / "pedal.md").write_text("The sostenuto pedal holds what sounds.")
    program = {
        "program": [
            {
                "calls": [
                    {"name": "file_search", "arguments": {"query": "pedal"}},
                    {"name": "upper", "arguments": {"text": "c"}},
                ]
            },
            {"say": "Both are there."},
        ]
    }
    tools = Tools()
    with FileSearch(tmp_path) as search:
        async with doc_server(hosted={"file_search": search}) as port:
            body = request(program) | {"tools": [{"type": "file_search"}]}
            rollout = Rollout(lambda: Socket(port, {}), body, by_name(tools))
            response = await run(rollout)
    kinds = [event["type"] for event in rollout.events]
    done = kinds.index("response.done")
    assert kinds.index("response.file_search_call.in_progress") < done < kinds.index("response.file_search_call.searching")
    assert response["output"][0]["results"][0]["filename"] == "pedal.md"
    assert tools.ran == ["upper"]
    assert said(response) == "Both are there."


async def test_a_wrong_key_is_refused_in_the_handshake() -> None:
    async with doc_server(keys=("secret",)) as port:
        with pytest.raises(Dropped, match="401"):
            await trio.to_thread.run_sync(Socket, port, {"Authorization": "Bearer guess"})
