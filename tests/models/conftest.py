"""A real model for the tests of models: SmolLM2 in llama.cpp's server. Without it they are skipped, with the reason."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.models.llama import LlamaServer
from engine.models.pull import CannotPull
from engine.testing.local import model_file, served

HERMES = Path(__file__).with_name("hermes.jinja")
"""A chat template with tools: SmolLM2's own knows none, and llama.cpp then leaves them out."""


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The GGUF file."""
    try:
        return model_file()
    except CannotPull as error:
        pytest.skip(f"no real model here: {error}")


@pytest.fixture(scope="session")
def llama(smollm2: Path) -> Iterator[LlamaServer]:
    """A server that runs for all tests: ``url``, ``key``, ``upstream``. Nobody may end it."""
    template = HERMES.read_text(encoding="utf-8")
    with served(LlamaServer(file=smollm2, name="smollm2", slots=4, context=4096, chat_template=template)) as server:
        yield server
