"""Packages from npm, unmodified, each version installed once into a folder that outlives the tests."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

INSTALL_SECONDS: Final = 300.0


def cache_folder() -> Path:
    """``SOSTENUTO_CLIENT_CACHE``, or one in the home folder."""
    return Path(os.environ.get("SOSTENUTO_CLIENT_CACHE") or Path.home() / ".cache" / "sostenuto-clients")


def npm_package(name: str, version: str) -> Path:
    """The folder in which ``name@version`` is installed, with its ``node_modules``; skips the test if it can't be."""
    return npm_packages(f"{name.strip('@').replace('/', '-')}-{version}", f"{name}@{version}")


def npm_packages(title: str, *packages: str) -> Path:
    """The folder ``title`` of the cache, in which ``packages`` are installed together; skips the test if they can't be.

    An installation is made aside and moved into place when it is whole.
    """
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm is not installed")
    folder = cache_folder() / title
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="installing-") as aside:
            _install(packages, Path(aside) / "package")
            try:
                (Path(aside) / "package").rename(folder)
            except OSError:  # somebody else was faster
                assert folder.is_dir()
    return folder


def _install(packages: Sequence[str], folder: Path) -> None:
    names = " ".join(packages)
    folder.mkdir()
    (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--save-exact", *packages]
    try:
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm could not install {names} within {INSTALL_SECONDS:.0f} s")
    if ended.returncode != 0:
        reason = next((line for line in ended.stderr.splitlines() if "error" in line.lower()), f"status {ended.returncode}")
        pytest.skip(f"npm could not install {names}: {reason}")
