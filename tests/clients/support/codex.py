"""Runs an unmodified Codex CLI unattended against a server of the append shape."""

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

[features]
responses_websockets = true

[model_providers.local]
name = "local"
base_url = "{url}"
wire_api = "responses"
supports_websockets = true
env_key = "LOCAL_KEY"
"""

NOWHERE: Final = "http://127.0.0.1:9"
"""A proxy that is not there, for all but the server under test: nothing leaves the machine."""


def install_codex(version: str) -> Path:
    """The program; skips the test where it can't be had."""
    return npm_package("@openai/codex", version) / "node_modules" / ".bin" / "codex"


async def run_codex(program: Path, url: str, folder: Path, prompt: str, model: str) -> CompletedProcess[str]:
    """Let Codex work on ``prompt`` in ``folder/work``. Its answer is on standard output, all else on standard error.

    Raises ``trio.TooSlowError``; the program has been killed then.
    """
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir(exist_ok=True)
    (home / "config.toml").write_text(CONFIG.format(url=url, model=model), encoding="utf-8")
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
    with trio.fail_after(RUN_SECONDS):
        ended = await trio.run_process(
            [str(program), "exec", "--skip-git-repo-check", prompt],
            stdin=DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=work,
            env=environment,
        )
    return CompletedProcess(ended.args, ended.returncode, ended.stdout.decode(), ended.stderr.decode(errors="replace"))
