"""Runs an unmodified Codex CLI unattended, in each of the shapes in which it speaks to a server."""

import os
from pathlib import Path
from subprocess import DEVNULL, CompletedProcess
from typing import Final

import trio

from .npm import npm_package

RUN_SECONDS: Final = 90.0
"""A run takes five; after this it hangs."""

CONFIG: Final = """\
model = "{model}"
model_provider = "local"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[analytics]
enabled = false

{features}

[model_providers.local]
name = "local"
base_url = "{url}"
wire_api = "responses"
supports_websockets = {websockets}
env_key = "LOCAL_KEY"
"""

OLD_FEATURES: Final = "[features]\nresponses_websockets = true"
"""Of versions that spoke over a WebSocket only if asked to."""

NEW_FEATURES: Final = (
    "[features]\ngoals = false\nplugins = false\napps = false\nimage_generation = false\n\n[agents]\nenabled = false"
)
"""Of 0.171.0: nothing that would send requests beside the rollout."""

NOWHERE: Final = "http://127.0.0.1:9"
"""A proxy that is not there, for all but the server under test: nothing leaves the machine."""


def install_codex(version: str) -> Path:
    """The program; skips the test where it can't be had."""
    return npm_package("@openai/codex", version) / "node_modules" / ".bin" / "codex"


async def run_codex(
    program: Path,
    url: str,
    folder: Path,
    prompt: str,
    model: str,
    *options: str,
    features: str = OLD_FEATURES,
    websockets: bool = True,
    settings: str = "",
    seconds: float = RUN_SECONDS,
) -> CompletedProcess[str]:
    """Let Codex work on ``prompt`` in ``folder/work``. Its answer is on standard output, all else on standard error.

    ``settings`` are further lines of its configuration, in front of all tables.

    Raises ``trio.TooSlowError``; the program has been killed then.
    """
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir(exist_ok=True)
    config = settings + CONFIG.format(url=url, model=model, features=features, websockets=str(websockets).lower())
    (home / "config.toml").write_text(config, encoding="utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CODEX_HOME": str(home),
        "LOCAL_KEY": "local",
        "RUST_LOG": "warn",
        "OPENAI_BASE_URL": url,
        "HTTP_PROXY": NOWHERE,
        "HTTPS_PROXY": NOWHERE,
        "NO_PROXY": "127.0.0.1",
    }
    with trio.fail_after(seconds):
        ended = await trio.run_process(
            [str(program), "exec", "--skip-git-repo-check", *options, prompt],
            stdin=DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=work,
            env=environment,
        )
    return CompletedProcess(ended.args, ended.returncode, ended.stdout.decode(), ended.stderr.decode(errors="replace"))
