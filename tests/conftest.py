"""What tests of more than one folder stand on."""

from pathlib import Path

import pytest

from engine.models.pull import CannotPull
from engine.testing.local import model_file


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The GGUF file of a real, small model. Without it, or what runs it, tests are skipped, with the reason."""
    try:
        return model_file()
    except CannotPull as error:
        pytest.skip(f"no real model here: {error}")
