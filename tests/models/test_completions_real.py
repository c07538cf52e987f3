"""Against llama.cpp's own server, with a real model: one rollout in all shapes, held and lost; cancelling; other dialects."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field

from engine.chains import open_wire
from engine.client import connect
from engine.database import Database
from engine.models import load_model
from engine.models.base import Chunk, Plan, Rendered, Stop
from engine.models.completions import CompletionsModel
from engine.models.completions.dialects import OpenAI
from engine.models.completions.sampler import CompletionsSampler, Server
from engine.models.formats import FORMATS, Vocabulary
from engine.models.gguf import read_metadata
from engine.models.llama import LlamaServer
from engine.models.upstream import ask
from engine.server import Server as Sostenuto
from engine.server import listening
from engine.serving import Options, build
from engine.testing import make_services
from engine.testing.local import served
from protocol.items import Message

Json = dict[str, Any]
SLOTS = 4
READ: Json = {
    "type": "function",
    "name": "read_file",
    "parameters": {"type": "object", "properties": {"path": {"enum": ["notes.txt"]}}, "required": ["path"]},
}
BODY: Json = {
    "model": "smollm2",
    "instructions": "Answer shortly.",
    "input": "What is in notes.txt? Look, and then tell me all about it.",
    "tools": [READ],
    "parallel_tool_calls": False,
    "temperature": 0,
}
FORCED: Json = {"tool_choice": {"type": "function", "name": "read_file"}}
NOTES = "The boat leaves at seven from the old pier. Bring rope, a lamp and dry bread. Ask for Ines, who has the key."
TOKENS = 48


@pytest.fixture(scope="session")
def vocabulary(smollm2: Path) -> Vocabulary:
    return read_metadata(smollm2).vocabulary()


@pytest.fixture(scope="module")
def exact(smollm2: Path) -> Iterator[LlamaServer]:
    """A server that computes the same, however a prompt comes."""
    with served(LlamaServer(file=smollm2, name="smollm2", slots=SLOTS, context=1024, together=1)) as server:
        yield server


@define
class Watched:
    """A model, with a note of all ids of each Response that ended."""

    model: CompletionsModel
    name: str = "smollm2"
    told: list[list[int]] = field(factory=list)

    @property
    def format(self) -> Any:
        return self.model.format

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[Any]:
        async with self.model.open(plan) as sampler:
            watched = WatchedSampler(sampler, list(plan.prompt.ids))
            yield watched
            self.told.append([*watched.ids, *sampler.turn_ids()])


@define
class WatchedSampler:
    sampler: CompletionsSampler
    ids: list[int]

    async def receive(self) -> Sequence[Chunk]:
        return await self.sampler.receive()

    async def extend(self, new: Rendered) -> None:
        self.ids += [*self.sampler.turn_ids(), *new.ids]
        await self.sampler.extend(new)

    def turn_ids(self) -> Sequence[int]:
        return self.sampler.turn_ids()

    def report(self) -> Any:
        return self.sampler.report()


def model_of(llama: LlamaServer, vocabulary: Vocabulary) -> CompletionsModel:
    return CompletionsModel(llama.upstream, FORMATS["chatml"](vocabulary), vocabulary)


@asynccontextmanager
async def serving(model: Watched) -> AsyncIterator[str]:
    server = Sostenuto(make_services(models=[model]))
    async with model.model.running(), listening(server) as port:
        yield f"http://127.0.0.1:{port}/v1"


async def crowd(model: CompletionsModel) -> None:
    """As many Responses as there are slots, side by side: none of them keeps what it had."""
    ids = model.format.render_prompt(None, (), ())
    async with trio.open_nursery() as nursery:
        for number in range(SLOTS):
            nursery.start_soon(one_of_many, model, [*ids, *range(1000 + 10 * number, 1008 + 10 * number)])


async def one_of_many(model: CompletionsModel, ids: list[int]) -> None:
    async with model.open(Plan(model="m", temperature=0, max_output_tokens=3, prompt=Rendered((), ids))) as sampler:
        while not isinstance((await sampler.receive())[-1], Stop):
            pass


async def in_append(model: Watched, *, lost: bool) -> tuple[list[Json], Json]:
    """The rollout's items, and its Response."""

    async def read_file(path: str) -> str:
        if lost:
            await crowd(model.model)
        return f"{path}: {NOTES}"

    async with serving(model) as url, connect(url) as client:
        tools: Json = {"tools": {"read_file": read_file}, "tool_definitions": [READ]}
        result = await client.run(**{**BODY, **FORCED, **tools}, max_output_tokens=TOKENS)
    return [dict(item) for item in result.items], dict(result.response)


async def in_a_chain(model: Watched, shape: Any, *, lost: bool) -> list[Json]:
    """The rollout's items, of two Responses."""
    async with serving(model) as url, open_wire(url, shape) as wire:
        first = await wire.turn({**BODY, **FORCED, "max_output_tokens": TOKENS}, lambda _: None)
        if lost:
            await crowd(model.model)
        call = first["output"][0]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": f"notes.txt: {NOTES}"}
        more = {"previous_response_id": first["id"], "input": [output]}
        left = TOKENS - first["usage"]["output_tokens"]
        second = await wire.turn({**BODY, **more, "max_output_tokens": left}, lambda _: None)
    return [*first["output"], *second["output"]]


def spoken(items: Sequence[Json]) -> list[Any]:
    """What was said, without ids."""
    return [item.get("arguments") or item["content"][0]["text"] for item in items]


async def test_l08_the_real_model_says_the_same_in_each_shape_held_or_lost(exact: LlamaServer, vocabulary: Vocabulary) -> None:
    ids: dict[str, list[int]] = {}
    said: dict[str, list[Any]] = {}
    for lost in (False, True):
        model = Watched(model_of(exact, vocabulary))
        items, response = await in_append(model, lost=lost)
        name = f"append, {'lost' if lost else 'held'}"
        said[name], ids[name] = spoken(items), model.told[0]
        assert (response["engine"]["kv_kept"], response["engine"]["kv_lost"]) == ((0, 1) if lost else (1, 0))
    for shape, lost in (("create", False), ("http", True)):
        model = Watched(model_of(exact, vocabulary))
        said[shape] = spoken(await in_a_chain(model, shape, lost=lost))
        ids[shape] = model.told[-1]
    assert len(said["append, held"]) == 2
    assert len(said["append, held"][1]) > 20
    assert {name: text for name, text in said.items() if text != said["append, held"]} == {}
    assert {name: one for name, one in ids.items() if one != ids["append, held"]} == {}


async def test_cancelled_the_server_samples_no_more(llama: LlamaServer, vocabulary: Vocabulary) -> None:
    model = model_of(llama, vocabulary)
    items = (Message(role="user", content="Count from 1 to 1000."),)
    prompt = Rendered(items, model.format.render_prompt(None, (), items))
    async with model.running():
        tokens = 0
        async with model.open(Plan(model="m", temperature=0, prompt=prompt)) as sampler:
            while tokens < 10:
                tokens += sum(getattr(chunk, "tokens", 0) for chunk in await sampler.receive())
            slot = sampler._slot
            assert slot is not None
        async with llama.upstream.connected() as http:
            while True:
                found = (await ask_list(http))[slot.number]
                if not found["is_processing"]:
                    break
                await trio.sleep(0.01)
        decoded = found["next_token"][0]["n_decoded"]
        assert decoded <= tokens + 3  # what was under way when it was told
        async with model.open(Plan(model="m", temperature=0, max_output_tokens=1, prompt=prompt)) as sampler:
            await sampler.receive()


async def ask_list(http: Any) -> list[Json]:
    answer = await http.get("/slots")
    found: list[Json] = answer.json()
    return found


async def test_the_other_dialect_gives_the_same_ids(llama: LlamaServer, vocabulary: Vocabulary) -> None:
    """llama.cpp has a ``/v1/completions``, too."""
    model = model_of(llama, vocabulary)
    form = FORMATS["chatml"](vocabulary)
    items = (Message(role="user", content="Say hello in three languages."),)
    plan = Plan(model="m", temperature=0, max_output_tokens=12, prompt=Rendered(items, form.render_prompt(None, (), items)))
    turns: list[list[int]] = []
    async with model.running(), llama.upstream.connected() as http:
        dialect = OpenAI("smollm2", logprobs=True)
        other = Server(upstream=llama.upstream, http=http, dialect=dialect, form=form, context=None, slots=None)
        async with model.open(plan) as own:
            for sampler in (own, CompletionsSampler(other, plan)):
                while not isinstance((await sampler.receive())[-1], Stop):
                    pass
                turns.append(list(sampler.turn_ids()))
                await sampler.aclose()
    assert turns[0] == turns[1]
    assert len(turns[0]) > len(form.opening) + len(form.closing)


async def test_what_is_served_is_said(llama: LlamaServer, vocabulary: Vocabulary) -> None:
    model = model_of(llama, vocabulary)
    async with model.running():
        assert await model.check() == "llama.cpp, 4 slots, 4096 tokens; chatml"
        answer = await ask(model._running().http, "GET", "/health")
        assert answer["status"] == "ok"


# ---- on the command line


def test_it_is_loaded_with_the_vocabulary_of_a_file(smollm2: Path) -> None:
    model = load_model(f"completions:http://127.0.0.1:9/v1?gguf={smollm2}#some/model")
    assert model.name == "some/model"
    assert load_model(f"mine=completions:http://127.0.0.1:9?gguf={smollm2}&format=chatml").name == "mine"
    with pytest.raises(ValueError, match="no format 'nonsense'"):
        load_model(f"completions:http://127.0.0.1:9?gguf={smollm2}&format=nonsense")
    with pytest.raises(ValueError, match="there are gguf and format"):
        load_model(f"completions:http://127.0.0.1:9?gguf={smollm2}&size=3")


def test_how_long_parks_are_held_is_an_option(smollm2: Path) -> None:
    specs = ("scripted", f"held=completions:http://127.0.0.1:9?gguf={smollm2}")
    database = Database(":memory:")
    try:
        services = build(Options(models=specs, hold_kv=5.0, data=":memory:"), database)
        assert getattr(services.models["held"], "hold_seconds", None) == 5.0
    finally:
        database.close()
