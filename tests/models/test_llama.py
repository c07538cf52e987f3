"""The model in our own care: its process starts, dies, comes back, and never outlives us."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
import trio

from engine.models import llama as module
from engine.models.base import ModelError
from engine.models.llama import LlamaServer

PROMPT = {"prompt": [1, 4093, 198], "n_predict": 3, "temperature": 0, "return_tokens": True}


def small(file: Path) -> LlamaServer:
    return LlamaServer(file=file, slots=1, context=256, threads=1)


async def sampled(server: LlamaServer) -> list[int]:
    async with server.upstream.connected() as http:
        answer = await http.post("/completion", json=PROMPT)
        assert answer.status_code == 200, answer.text
        tokens: list[int] = answer.json()["tokens"]
        return tokens


async def sample_and_kill(server: LlamaServer, pid: int) -> None:
    told = {**PROMPT, "n_predict": 200, "stream": True}
    async with server.upstream.connected() as http, http.stream("POST", "/completion", json=told) as answer:
        async for _ in answer.aiter_lines():
            os.kill(pid, signal.SIGKILL)


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text() if Path("/proc").exists() else True


async def gone(pid: int) -> None:
    with trio.fail_after(20):
        while lives(pid):
            await trio.sleep(0.01)


async def test_it_samples_for_who_has_its_key(llama: LlamaServer) -> None:
    assert len(await sampled(llama)) == 3
    async with httpx2.AsyncClient(base_url=llama.url) as stranger:
        assert (await stranger.post("/completion", json=PROMPT)).status_code == 401
        assert (await stranger.get("/health")).json() == {"status": "ok"}


async def test_it_has_its_slots_and_its_context(llama: LlamaServer) -> None:
    async with llama.upstream.connected() as http:
        slots = (await http.get("/slots")).json()
    assert [(slot["id"], slot["n_ctx"]) for slot in slots] == [(number, llama.context) for number in range(llama.slots)]


async def test_killed_it_says_why_and_is_there_again(smollm2: Path) -> None:
    server = small(smollm2)
    async with server.running():
        before, url, pid = await sampled(server), server.url, server.pid
        assert pid is not None
        assert await server.trouble() is None
        with pytest.raises(httpx2.HTTPError):
            await sample_and_kill(server, pid)
        trouble = await server.trouble()
        assert trouble is not None
        assert "killed by signal 9" in trouble.message
        assert server.pid is None
        with pytest.raises(ModelError, match="killed by signal 9; it is being started again") as caught:
            await server.ready(seconds=0)
        assert caught.value.fault == "busy"
        await server.ready()
        assert (server.starts, server.url) == (2, url)
        assert await sampled(server) == before
        last = server.pid
    assert last is not None
    assert not lives(last)


PARENT = """
import sys, trio
from pathlib import Path
from engine.models.llama import LlamaServer

async def main():
    server = LlamaServer(file=Path(sys.argv[1]), slots=1, context=256, threads=1)
    async with server.running():
        print(server.pid, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def test_it_ends_with_its_parent_however_that_ends(smollm2: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(smollm2)]
    parent = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        child = int(await parent.stdout.receive_some())
        assert lives(child)
    finally:
        parent.kill()
    await parent.wait()
    await gone(child)


async def test_cancelled_while_it_starts_nothing_is_left(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[trio.Process] = []
    open_process = trio.lowlevel.open_process

    async def remember(*args: object, **options: object) -> trio.Process:
        started.append(await open_process(*args, **options))  # type: ignore[arg-type]
        return started[-1]

    monkeypatch.setattr(trio.lowlevel, "open_process", remember)
    with trio.move_on_after(0.2) as scope:
        async with small(smollm2).running():
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert [process.returncode is not None for process in started] == [True]


@pytest.mark.usefixtures("smollm2")
async def test_a_file_that_is_no_model_is_refused_with_what_llama_says(tmp_path: Path) -> None:
    file = tmp_path / "poem.gguf"
    file.write_text("A rose is a rose is a rose")
    with pytest.raises(ModelError, match=r"poem\.gguf can't be loaded: .*invalid magic"):
        async with small(file).running():
            raise AssertionError("it runs")


async def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'sostenuto\[local\]'"):
        async with small(Path("none.gguf")).running():
            raise AssertionError("it runs")


def test_it_has_no_address_before_it_runs() -> None:
    with pytest.raises(ModelError, match="is not running"):
        small(Path("none.gguf")).url  # noqa: B018


async def test_what_it_says_of_its_failure_after_the_answer_is_told_too() -> None:
    program = """
import json, sys, time
print(json.dumps({"error": "it failed"}), flush=True)
time.sleep(0.2)
print("invalid magic", file=sys.stderr)
"""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    child = module._Child(await trio.lowlevel.open_process([sys.executable, "-c", program], **pipes))
    with pytest.raises(ModelError, match=r"can't be loaded: it failed; it said: invalid magic"):
        await child._listening({"file": "poem.gguf"})
    await child.aclose()
