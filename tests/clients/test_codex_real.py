"""Unmodified Codex CLIs complete a turn with a real model, SmolLM2: 0.104.0 in the append shape, 0.171.0 in the create shape.

What so small a model says is poor; the protocol is not. Codex sends some 20 to 30 KB of instructions and tools, which are 5,500
to 7,100 of this model's tokens. They fit into its context of 8,192, and two cores read them for a minute; here the instructions
are replaced by a sentence (``model_instructions_file``).
"""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from engine import Server, Services, listening
from engine.ledger import MemoryLedger
from engine.models.base import Chunk, Plan, Stop
from engine.models.local import LocalModel
from engine.serving import kept
from engine.testing.profile import AT_LENGTH

from .matrix import shows
from .support.codex import NEW_FEATURES, OLD_FEATURES, install_codex, run_codex
from .support.relay import Relay, relay_to

INSTRUCTIONS = "You are a helpful assistant. Answer in one short sentence."
SETTINGS = 'model_instructions_file = "{file}"\nweb_search = "disabled"\nmodel_context_window = 8192\n'
MOST_TOKENS = 60
SECONDS = 600.0
"""For a turn; ten on a quiet machine."""


class Brief(LocalModel):
    """Its turns end after some tokens, if not by themselves: so small a model may go on until its context is full."""

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[Any]:
        async with super().open(evolve(plan, temperature=0.2, max_output_tokens=MOST_TOKENS)) as sampler:
            yield Cut(sampler)


class Cut:
    """A sampler that takes the limit for the end."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    async def receive(self) -> Sequence[Chunk]:
        chunks = await self._sampler.receive()
        return [Stop("end") if chunk == Stop("max_output_tokens") else chunk for chunk in chunks]


@pytest.fixture(scope="module")
def file(request: pytest.FixtureRequest) -> Path:
    if AT_LENGTH not in os.environ:
        pytest.skip(f"takes long where processors are busy: {AT_LENGTH}=1 runs it")
    found: Path = request.getfixturevalue("smollm2")
    return found


async def turn(file: Path, program: Path, folder: Path, features: str) -> tuple[str, Relay, MemoryLedger]:
    """What Codex printed, the frames, and the ledger."""
    (folder / "instructions.md").write_text(INSTRUCTIONS, encoding="utf-8")
    ledger, model = MemoryLedger(), Brief.load(file, "smollm2", "slots=1")
    services = Services(models={"smollm2": model}, ledger=ledger)
    async with kept([model]), listening(Server(services)) as port, relay_to(f"http://127.0.0.1:{port}/v1") as relay:
        settings = SETTINGS.format(file=folder / "instructions.md")
        ended = await run_codex(
            program, relay.url, folder, "Say hello.", "smollm2", features=features, settings=settings, seconds=SECONDS
        )
    assert ended.returncode == 0, ended.stderr
    assert relay.received("error") == []
    return ended.stdout, relay, ledger


def check(printed: str, relay: Relay, ledger: MemoryLedger, shape: str) -> None:
    """The turn is whole, and Codex has printed what the model has said."""
    response = relay.received("response.completed")[-1]["response"]
    [message] = [item for item in response["output"] if item["type"] == "message"]
    assert printed.strip() == message["content"][0]["text"].strip() != ""
    assert response["usage"]["output_tokens"] > 0
    assert {(row.shape, row.status) for row in ledger.rows} == {(shape, "completed")}


@pytest.fixture
def codex_0_104() -> Path:
    return install_codex("0.104.0")


@pytest.fixture
def codex_0_171() -> Path:
    return install_codex("0.171.0")


@shows("Codex 0.104.0", "append", "a turn with SmolLM2, a real model")
async def test_codex_completes_a_turn_with_a_real_model_in_the_append_shape(
    file: Path, codex_0_104: Path, tmp_path: Path
) -> None:
    printed, relay, ledger = await turn(file, codex_0_104, tmp_path, OLD_FEATURES)
    check(printed, relay, ledger, "append")
    assert len(relay.sent("response.create")) == len(ledger.rows) == 1


@shows("Codex 0.171.0", "create", "a turn with SmolLM2, a real model")
async def test_codex_completes_a_turn_with_a_real_model_in_the_create_shape(
    file: Path, codex_0_171: Path, tmp_path: Path
) -> None:
    printed, relay, ledger = await turn(file, codex_0_171, tmp_path, NEW_FEATURES)
    check(printed, relay, ledger, "create")
