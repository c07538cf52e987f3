"""``docs/models.md``: its servers start and answer from the upstreams that they name, and its tables name all kinds.

The addresses in it become those of upstreams of ours: a chat server that says a word, another Sostenuto, llama.cpp's server
with the small model. What they are started with is checked by ``serve`` itself, whose options these are.
"""

import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine import cli
from engine.client import Result, connect
from engine.models import KINDS
from engine.serving import Options, running
from engine.testing.upstreams import DONE, FakeUpstream, Reply, chunk

from ..test_readme import Block, blocks_of
from .blocks import read, rows

MODELS = read("models.md")
BLOCKS = blocks_of(MODELS)
SPEC = re.compile(r"--model (?:(?P<name>[\w.-]+)=)?(?P<kind>\w+)(?::(?P<url>https?://[^#\s]+)(?:#(?P<model>\S+))?)?")
SAYS = "Yes."


def serving_blocks() -> list[Any]:
    """Those that begin a server in front of another one."""
    found = [one for one in BLOCKS if one.excuse is None and "sostenuto serve" in one.text and "://" in one.text]
    return [pytest.param(block, id=f"line {block.line}") for block in found]


@asynccontextmanager
async def upstream_for(kind: str) -> AsyncIterator[str]:
    """Where one is that speaks to ``kind``, as the base of its URLs."""
    if kind == "chat":
        async with FakeUpstream(Reply(chunk(content=SAYS), chunk(finish_reason="stop"), DONE)).listening() as url:
            yield url
    elif kind == "responses":
        async with running(Options(port=0, data=":memory:")) as server:
            yield server.url
    else:
        pytest.skip(f"no upstream here that speaks to {kind}:")


@pytest.mark.parametrize("block", serving_blocks())
async def test_its_servers_answer_from_what_stands_behind_them(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    [command] = block.commands
    found = SPEC.search(command)
    assert found, f"no model with an address in {command!r}"
    variables = dict(re.findall(r"\b([A-Z_]+_KEY)=(\S+) ", command))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    async with upstream_for(found["kind"]) as url:
        options = command.replace(found["url"], url).partition("sostenuto serve ")[2]
        if found["kind"] == "responses":
            options = re.sub("#\\S+", "#scripted", options)
        given = cli.serve.make_context("serve", shlex.split(options)).params
        async with running(Options(**{**given, "port": 0, "data": ":memory:"})) as server, connect(server.url) as client:
            result: Result = await client.run(model=found["name"], input="Do you hear me?")
    assert result.status == "completed"
    assert SAYS in result.text or "Do you hear me?" in result.text


def other_blocks() -> list[Any]:
    found = [one for one in BLOCKS if pytest.param(one) and one.kind != "text" and "://" not in one.text]
    return [pytest.param(block, id=f"line {block.line}") for block in found]


@pytest.mark.parametrize("block", [pytest.param(one, id=f"line {one.line}") for one in BLOCKS if one.excuse])
def test_what_is_not_run_says_why(block: Block) -> None:
    pytest.skip(f"docs/models.md, line {block.line}: not run: {block.excuse}")


def test_every_kind_is_told() -> None:
    table = rows(MODELS.partition("## Which kind")[2].partition("\n## ")[0])
    told = {name for cells in table for name in re.findall(r"`(\w+)(?::[A-Z#]+)?`", cells[1])}
    assert told == KINDS.keys()


def test_its_contents_are_its_headings() -> None:
    listed = re.findall(r"^- \[.+\]\(#(.+)\)$", MODELS, re.MULTILINE)
    headings = re.findall(r"^## (.+)$", MODELS, re.MULTILINE)
    assert listed == [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
