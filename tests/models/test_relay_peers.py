"""A relay to servers that others wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.models.responses import sampler
from engine.testing import create
from protocol.conformance.aimock import PROGRAMS, fixtures
from protocol.conformance.script import message_of

from ..clients.support.npm import npm_package
from ..conformance.peers.test_peers import AIMOCK, running
from .relay_support import FAST, play, relay_to


def spoken(items: list[dict[str, Any]]) -> list[str]:
    """What each item says, or asks."""
    texts = {
        "message": lambda item: item["content"][0]["text"],
        "reasoning": lambda item: item["summary"][0]["text"],
        "function_call": lambda item: f"{item['name']} {item['arguments']}",
    }
    return [texts[item["type"]](item) for item in items]


async def test_aimock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "BACKOFF_SECONDS", FAST)
    package = npm_package("@copilotkit/aimock", AIMOCK)
    (tmp_path / "fixtures.json").write_text(json.dumps(fixtures()), encoding="utf-8")
    cli = package / "node_modules/@copilotkit/aimock/dist/cli.js"
    command = ["node", str(cli), "--host", "127.0.0.1", "--port", "PORT", "--fixtures", "fixtures.json", "--log-level", "warn"]
    with running(command, tmp_path, {}) as url:
        async with relay_to(f"{url}/v1", "gpt-5") as here:
            for program in (PROGRAMS[4], PROGRAMS[8], PROGRAMS[9]):
                request = create(model="relay", input=[{"type": "message", "role": "user", "content": message_of(program)}])
                response = (await play(here, request))[-1]["response"]
                assert response["status"] == "completed", response["error"]
                assert spoken(response["output"]) == wanted(program), response["engine"]
                assert response["engine"]["kv_kept"] == response["engine"]["parks"]


def wanted(program: Any) -> list[str]:
    said: list[str] = []
    for step in program:
        calls = step.get("calls") or ([step["call"]] if "call" in step else [])
        said += [step[kind] for kind in ("reason", "say") if kind in step]
        said += [f"{call['name']} {call['arguments']}" for call in calls]
    return said
