"""``docs/local.md``: its commands, as a new user types them, give a real model."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.models import load_model
from engine.models.local import OPTIONS, LocalModel

from .blocks import read

BLOCKS = re.findall(r"```sh\n(.*?)```", read("local.md"), re.DOTALL)
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


pytestmark = pytest.mark.usefixtures("smollm2")


def run(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=300, check=False, env=ENVIRONMENT)


@contextmanager
def serving(command: str) -> Iterator[str]:
    """The address of a server that ``command`` starts, and that ends with status 0."""
    words = [*shlex.split(command), "--port", "0", "--data", ":memory:"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT) as server:
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            assert line.startswith("listening on "), line
            yield line.split()[-1]
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


def ask(url: str, **body: Any) -> dict[str, Any]:
    request = urllib.request.Request(f"{url}/responses", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def test_three_commands_give_a_real_model() -> None:
    install, pull, serve = BLOCKS[0].splitlines()
    assert install == "pip install 'sostenuto[local]'"  # it has been, for the tests
    assert run(pull).returncode == 0
    with serving(serve) as url:
        answer = ask(url, model="smollm2", input="Say hello.", max_output_tokens=5)
    assert answer["status"] in ("completed", "incomplete")
    assert answer["usage"]["output_tokens"] > 0


def test_a_file_of_ones_own(smollm2: Path) -> None:
    spec = shlex.split(BLOCKS[1])[-1]
    file = re.search(r"gguf:([^?]+)", spec)
    assert file is not None
    model = load_model(spec.replace(file[1], str(smollm2)).replace("16384", "512"))
    assert isinstance(model, LocalModel)
    assert (model.name, model.server.slots, model.server.context) == ("qwen", 2, 512)


def test_whether_models_answer() -> None:
    done = run(BLOCKS[2])
    told = dict(line.split("\t", 2)[:2] for line in done.stdout.splitlines())
    assert told["smollm2"] == "answers"
    assert done.returncode == (0 if set(told.values()) == {"answers"} else 1)  # somebody may have a chat server there


def test_the_options_are_those_that_there_are() -> None:
    assert re.findall(r"^\| `(\w+)` \|", read("local.md"), re.MULTILINE) == list(OPTIONS)
