"""The peers, each in a folder of its own, below one that outlives the run: installed once, at the versions that are measured.

``SOSTENUTO_PEERS`` says where, else it is in the home folder's cache.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from .server import Unavailable

PYTHON_PACKAGES: Final = {
    "fastresponses": "fastresponses==0.1.0",
    "smg": "smg==1.13.0",
    "litellm": "litellm[proxy]==1.108.7",
}
NPM_PACKAGES: Final = {"aimock": "@copilotkit/aimock@1.43.0"}
HEAVY: Final = frozenset({"litellm"})
"""Takes a hundred other packages along: installed when asked for by ``--install``, and not by itself."""

INSTALL_SECONDS: Final = 900.0
WHOLE: Final = "installed"
"""The name of the file that says that an installation went to its end."""


def cache() -> Path:
    """Where the peers are."""
    return Path(os.environ.get("SOSTENUTO_PEERS") or Path.home() / ".cache" / "sostenuto-peers")


def installed(name: str, *, heavy: bool = False) -> Path:
    """The folder of a peer, which is installed if it is not there; ``heavy`` says whether that may take long.

    Raises ``Unavailable``.
    """
    package = PYTHON_PACKAGES.get(name) or NPM_PACKAGES[name]
    folder = cache() / f"{name}-{re.split('[=@]', package)[-1]}"
    if not (folder / WHOLE).exists():
        if name in HEAVY and not heavy:
            raise Unavailable("it is not installed; python -m bench peers --install does that")
        print(f"installing {package} …", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (_with_pip if name in PYTHON_PACKAGES else _with_npm)(package, folder)
        (folder / WHOLE).touch()
    return folder


def install_all() -> None:
    """Install what is not there, and say what can't be had."""
    for name in (*PYTHON_PACKAGES, *NPM_PACKAGES):
        try:
            print(f"{name}: {installed(name, heavy=True)}", file=sys.stderr)
        except Unavailable as reason:
            print(f"{name}: {reason}", file=sys.stderr)


def _with_pip(package: str, folder: Path) -> None:
    _run([sys.executable, "-m", "venv", str(folder)], folder)
    _run([str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", package], folder)


def _with_npm(package: str, folder: Path) -> None:
    (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    _run(["npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts", package], folder)


def _run(command: list[str], folder: Path) -> None:
    try:
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"not installed within {INSTALL_SECONDS:.0f} s") from None
    if ended.returncode:
        errors = [line for line in ended.stderr.splitlines() if "error" in line.lower()]
        raise Unavailable((errors or [f"{command[0]} ended with {ended.returncode}"])[0])
