"""A server here whose model is a relay, and rollouts through it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from engine import Config, Server, listening
from engine.chains import open_wire, run_chain
from engine.client import connect
from engine.models.base import Model
from engine.models.responses import RelayModel
from engine.models.scripted import ScriptedModel
from engine.testing import DirectServer, append, calls_in, direct_server, make_services, result
from protocol.client import Frame, RunCall, output_for
from protocol.grammar import check

FAST = (0.0, 0.01, 0.02, 0.05, 0.1)
"""Pauses before further attempts."""
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("f", "g")]
PARKED_OR_ENDED = ("response.done", "response.completed", "response.incomplete", "response.failed", "error")


def fail_loudly(error: BaseException) -> None:
    raise error


@asynccontextmanager
async def served(*models: Model, listeners: Any = None, seed: int = 0, **config: Any) -> AsyncIterator[tuple[str, Server]]:
    """A server on a socket; its URL."""
    services = make_services(models=models, config=Config(**config), seed=seed)
    services.on_bug = fail_loudly
    server = Server(services)
    async with listening(server, listeners) as port:
        yield f"http://127.0.0.1:{port}/v1", server


@asynccontextmanager
async def relay_to(url: str, model: str | None = "scripted") -> AsyncIterator[DirectServer]:
    """An engine whose one model, ``relay``, is the model of the server at ``url``."""
    relay = RelayModel.at(url, model=model, name="relay")
    with trio.fail_after(20):
        async with relay.running(), direct_server(models=[relay]) as server:
            yield server


@asynccontextmanager
async def here_and_there(*models: Model, **config: Any) -> AsyncIterator[tuple[str, str, Server]]:
    """Two servers on sockets: the URL of one that relays to the other; the other's URL, and itself."""
    name = (*models, ScriptedModel())[0].name
    async with served(*models, **config) as (there, upstream):
        relay = RelayModel.at(there, model=name, name="relay")
        with trio.fail_after(20):
            async with relay.running(), served(relay, seed=1) as (here, _):
                yield here, there, upstream


async def answer(call: Frame) -> Frame:
    return output_for(call, f"the output of {call.get('name', call['type'])}")


async def rollout(url: str, shape: str, **body: Any) -> tuple[list[Frame], list[Frame]]:
    """The output items, and the Responses, of a rollout whose calls are all answered."""
    if shape != "append":
        async with open_wire(url, shape) as wire:  # type: ignore[arg-type]
            chain = await run_chain(wire, body, answer=answer)
            return chain.items, list(chain.responses)
    async with connect(url) as client, client.rollout(**body) as opened:
        async for event in opened:
            for notice in event.notices:
                if isinstance(notice, RunCall):
                    await opened.append(await answer(notice.item))
        result = opened.result()
        return result.items, [result.response]


async def play(here: DirectServer, request: Frame) -> list[Frame]:
    """All frames of a Response of the append shape whose calls are all answered, checked against the grammar."""
    socket = await here.connect()
    await socket.send(request)
    frames = await socket.until(*PARKED_OR_ENDED)
    while frames[-1]["type"] == "response.done":
        waiting = {stub["call_id"] for stub in frames[-1]["required_input"]}
        await socket.send(append(*(result(call) for call in calls_in(frames) if call["call_id"] in waiting)))
        frames += await socket.until(*PARKED_OR_ENDED)
    check(frames, append_shape=True)
    return frames


def essence(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Items without what differs from run to run."""
    return [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in items]
