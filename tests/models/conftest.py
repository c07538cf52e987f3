"""A real model's server for the tests of models: llama.cpp's, with SmolLM2."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.models.llama import LlamaServer
from engine.testing.local import served

HERMES = Path(__file__).with_name("hermes.jinja")
"""A chat template with tools: SmolLM2's own knows none, and llama.cpp then leaves them out."""


@pytest.fixture(scope="session")
def llama(smollm2: Path) -> Iterator[LlamaServer]:
    """A server that runs for all tests: ``url``, ``key``, ``upstream``. Nobody may end it."""
    template = HERMES.read_text(encoding="utf-8")
    with served(LlamaServer(file=smollm2, name="smollm2", slots=4, context=4096, chat_template=template)) as server:
        yield server
