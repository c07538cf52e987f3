"""``docs/models.md``: its servers start and answer from the upstreams that they name, and its tables name all kinds.

The addresses in it become those of upstreams of ours: a chat server that says a word, another Sostenuto, llama.cpp's server
with the small model. Options are read by ``serve`` itself. What needs the small model is skipped where it can't be had.
"""

import re
import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import cli
from engine.client import connect
from engine.database import Database
from engine.models import KINDS
from engine.models.llama import LlamaServer
from engine.serving import Options, build, running
from engine.testing.local import served
from engine.testing.upstreams import DONE, FakeUpstream, Reply, chunk

from ..test_readme import Block, Shell, blocks_of, run_block, run_shell_block, steps_of
from .blocks import read, rows

MODELS = read("models.md")
BLOCKS = blocks_of(MODELS)
SPEC = re.compile(r"--model '?(?:(?P<name>[\w.-]+)=)?(?P<kind>\w+)(?::(?P<url>https?://[^#?'\s]+))?")
QUESTION = "Do you hear me?"


@pytest.fixture(scope="module")
def llama(smollm2: Path) -> Iterator[LlamaServer]:
    """llama.cpp's server with it."""
    with served(LlamaServer(file=smollm2, name="smollm2", slots=1, context=512)) as server:
        yield server


def those(wanted: str) -> list[Any]:
    """The blocks that match, but for those that say why they are not run."""
    found = [one for one in BLOCKS if one.excuse is None and re.search(wanted, one.text)]
    assert found
    return [pytest.param(block, id=f"line {block.line}") for block in found]


def serving(command: str, **options: Any) -> Options:
    """What the command asks of ``serve``, on another port, and without a file."""
    given = cli.serve.make_context("serve", shlex.split(command.partition("sostenuto serve ")[2])).params
    return Options(**{**given, "port": 0, "data": ":memory:", **options})


async def answer(options: Options, model: str) -> str:
    async with running(options) as server, connect(server.url) as client:
        result = await client.run(model=model, input=QUESTION, max_output_tokens=8)
    assert result.status in ("completed", "incomplete")
    return result.text


@asynccontextmanager
async def upstream_for(kind: str) -> AsyncIterator[str]:
    """Where one is that speaks to ``kind``, as the base of its URLs."""
    if kind == "chat":
        async with FakeUpstream(Reply(chunk(content="Yes."), chunk(finish_reason="stop"), DONE)).listening() as url:
            yield url
    else:
        async with running(Options(port=0, data=":memory:")) as server:
            yield server.url


@pytest.mark.parametrize("block", those(r"sostenuto serve .*(chat|responses):http"))
async def test_a_server_answers_from_what_stands_behind_it(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    [command] = block.commands
    found = SPEC.search(command)
    assert found, command
    for name, value in re.findall(r"\b([A-Z_]+_KEY)=(\S+) ", command):
        monkeypatch.setenv(name, value)
    async with upstream_for(found["kind"]) as url:
        command = command.replace(found["url"], url).replace("#some-model", "#scripted")
        assert (
            await answer(serving(command), found["name"]) in ("Yes.", f"You said: {QUESTION}") or found["kind"] == "responses"
        )


@pytest.mark.parametrize("block", those("sostenuto serve .*completions:http"))
async def test_a_server_of_token_ids_is_used(block: Block, llama: LlamaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    [command] = block.commands
    found = SPEC.search(command)
    assert found, command
    monkeypatch.setenv("SOSTENUTO_UPSTREAM_KEY", llama.key)
    command = command.replace(found["url"], llama.url).replace("model.gguf", str(llama.file))
    await answer(serving(command), found["name"])


@pytest.mark.parametrize("block", those("sostenuto serve .*'smollm2:"))
def test_options_of_the_small_model_are_taken(block: Block, smollm2: Path) -> None:
    for command in block.commands:
        database = Database(":memory:")
        try:
            assert list(build(serving(command), database).models) == ["smollm2"]
        finally:
            database.close()


async def test_three_commands_give_a_real_model(smollm2: Path, tmp_path: Path) -> None:
    [block] = [one for one in BLOCKS if "sostenuto pull" in one.text]
    install, pull, serve = block.commands
    assert install.endswith("pip install '.[local]'")  # which can't be done from here
    assert Shell.make(tmp_path).run(pull) == [str(smollm2)]
    await answer(serving(serve), "smollm2")


@pytest.mark.parametrize("block", those("client.run|sostenuto chat|sostenuto models"))
def test_what_needs_the_small_model_does_what_it_says(block: Block, smollm2: Path, tmp_path: Path) -> None:
    if block.kind == "console":
        run_shell_block(block, Shell.make(tmp_path))
    else:
        run_block(block, tmp_path)


@pytest.mark.parametrize("block", [pytest.param(one, id=f"line {one.line}") for one in BLOCKS if one.excuse])
def test_what_is_not_run_says_why(block: Block) -> None:
    pytest.skip(f"docs/models.md, line {block.line}: not run: {block.excuse}")


def test_no_block_is_forgotten() -> None:
    run = "sostenuto (serve|pull|chat|models)|client.run"
    assert [one.line for one in BLOCKS if one.excuse is None and not re.search(run, one.text)] == []
    assert all(len(steps_of(command)) == 1 for one in BLOCKS if "serve" in one.text for command in one.commands[1:])


def test_every_kind_is_told() -> None:
    table = rows(MODELS.partition("## Which kind")[2].partition("\n## ")[0])
    told = {name for cells in table for name in re.findall(r"`(\w+)(?::[A-Z#]+)?`", cells[1])}
    assert told == KINDS.keys()


def test_its_contents_are_its_headings() -> None:
    listed = re.findall(r"^- \[.+\]\(#(.+)\)$", MODELS, re.MULTILINE)
    headings = re.findall(r"^## (.+)$", MODELS, re.MULTILINE)
    assert listed == [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
