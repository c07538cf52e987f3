"""Fixtures for the tests of the Python clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .programs import Serving, serving


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server as ``sostenuto serve`` starts it, with a folder for ``file_search``."""
    files: Path = tmp_path_factory.mktemp("files")
    (files / "pedal.md").write_text("The sostenuto pedal holds what sounds.")
    with serving(tmp_path_factory.mktemp("server"), "--files", str(files)) as running:
        yield running
