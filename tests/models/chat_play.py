"""Plays a rollout in any shape."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from engine.testing import MemoryServer, append, calls_in, result, user
from protocol.codec import encode, parse

Json = dict[str, Any]
SHAPES = ("append", "create", "http")
ENDS = ("response.completed", "response.incomplete", "response.failed")


async def play(server: MemoryServer, shape: str, answer: Callable[[Json], Json] = result, **fields: Any) -> list[Json]:
    """A rollout whose calls return what ``answer`` says; its Responses as they are at their ends."""
    body = {"model": "m", "input": [user("Go")], **fields}
    if shape == "http":
        return [response async for response in _http(server, body, answer)]
    beta = "responses_websockets=2026-02-0" + ("4" if shape == "append" else "6")
    socket = await server.connect(beta=beta)
    await socket.send({"type": "response.create", **body})
    ended: list[Json] = []
    while True:
        frames = await socket.until(*ENDS, "response.done")
        results = [answer(one) for one in calls_in(frames)]
        if frames[-1]["type"] == "response.done":
            await socket.send(append(*results))
            continue
        ended.append(frames[-1]["response"])
        if not results or ended[-1]["status"] != "completed":
            return ended
        body.pop("tool_choice", None)  # it was for the first turn
        more = {**body, "input": results, "previous_response_id": ended[-1]["id"]}
        await socket.send({"type": "response.create", **more})


async def _http(server: MemoryServer, body: Json, answer: Callable[[Json], Json]) -> AsyncIterator[Json]:
    while True:
        exchange = await server.request("POST", "/responses", encode(body))
        response = parse(await exchange.read())
        yield response
        results = [answer(item) for item in response["output"] if item["type"].endswith("_call") and "call_id" in item]
        if not results:
            return
        body = {**body, "tool_choice": "auto", "input": results, "previous_response_id": response["id"]}
