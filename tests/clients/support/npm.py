"""Packages from npm, unmodified, each version installed once into a folder that outlives the tests."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pytest

INSTALL_SECONDS: Final = 300.0


def cache_folder() -> Path:
    """``SOSTENUTO_CLIENT_CACHE``, or one in the home folder."""
    return Path(os.environ.get("SOSTENUTO_CLIENT_CACHE") or Path.home() / ".cache" / "sostenuto-clients")


def npm_package(name: str, version: str) -> Path:
    """The folder in which ``name@version`` is installed, with its ``node_modules``; skips the test if it can't be.

    An installation is made aside and moved into place when it is whole.
    """
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm is not installed")
    folder = cache_folder() / f"{name.strip('@').replace('/', '-')}-{version}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="installing-") as aside:
            _install(f"{name}@{version}", Path(aside) / "package")
            try:
                (Path(aside) / "package").rename(folder)
            except OSError:  # somebody else was faster
                assert folder.is_dir()
    return folder


def _install(package: str, folder: Path) -> None:
    folder.mkdir()
    (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", package]
    try:
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm could not install {package} within {INSTALL_SECONDS:.0f} s")
    if ended.returncode != 0:
        reason = next((line for line in ended.stderr.splitlines() if "error" in line.lower()), f"status {ended.returncode}")
        pytest.skip(f"npm could not install {package}: {reason}")
