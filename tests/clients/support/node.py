"""Runs a small script with packages from npm, which resolve as if they were installed beside it."""

import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

import trio

SCRIPTS: Final = Path(__file__).parents[1] / "npm"
RUN_SECONDS: Final = 60.0
"""A run takes one; after this it hangs."""


async def run_script(name: str, packages: Path, folder: Path, url: str, **job: Any) -> dict[str, Any]:
    """What ``npm/NAME`` prints, a JSON object, when it is given ``url`` and ``job`` as JSON.

    ``packages`` is where the packages are installed. Raises ``trio.TooSlowError``; the script has been killed then.
    """
    place = folder / "script"
    place.mkdir(exist_ok=True)
    script = place / name
    shutil.copy(SCRIPTS / name, script)
    if not (place / "node_modules").exists():
        (place / "node_modules").symlink_to(packages / "node_modules", target_is_directory=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "NO_PROXY": "127.0.0.1"}
    with trio.fail_after(RUN_SECONDS):
        ended = await trio.run_process(
            ["node", str(script), json.dumps({"url": url, **job})],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=place,
            env=environment,
        )
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")
    result: dict[str, Any] = json.loads(ended.stdout)
    return result
