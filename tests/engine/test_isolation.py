"""Two keys are two tenants: a stranger's id is answered as one that nobody has, and what has it is left as it is (law L13)."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from attrs import frozen

from engine.api import Api
from engine.testing import eventually

from .http_support import CALL, NEVER, Json, Served, body, get, ok, output, post, refused, served
from .socket_support import RawClient, client

KEYS = ("alice-key", "bob-key")
CREATE = "responses_websockets=2026-02-06"
UNKNOWN = "f" * 32


@frozen
class Hers:
    """What Alice has, by name."""

    ids: dict[str, str]
    before: dict[str, Any]


RESPONSES = ("parked", "running", "ended", "cold")


async def look(http: httpx2.AsyncClient, ids: dict[str, str]) -> dict[str, Any]:
    """All that she can see of it, but for how far the running one is."""
    seen = {name: await get(http, f"responses/{ids[name]}") for name in RESPONSES}
    seen["running"] = seen["running"]["status"]
    conversation = f"conversations/{ids['conversation']}"
    return {**seen, "conversation": await get(http, conversation), "items": await get(http, f"{conversation}/items")}


@asynccontextmanager
async def hers(it: Served) -> AsyncIterator[Hers]:
    async with it.client("alice-key") as http:
        ids = {}
        for name, sent in (
            ("parked", body(CALL, {"say": "End."}, continuation="append")),
            ("running", body(NEVER, pace=50, background=True)),
            ("cold", body({"say": "x"})),
            ("ended", body({"say": "y"}, idempotency_key="k")),
        ):
            ids[name] = (await post(http, "responses", sent))["id"]
        await eventually(lambda: len(it.server.engine.live) == 2)
        del it.server.engine._finished[ids["cold"]]
        made = await post(http, "conversations", {"items": [{"role": "user", "content": "Mine."}], "metadata": {"a": "b"}})
        ids["conversation"] = made["id"]
        ids["item"] = (await get(http, f"conversations/{made['id']}/items"))["data"][0]["id"]
        before = await look(http, ids)
        yield Hers(ids, before)
        assert await look(http, ids) == before
        assert ids["ended"] in it.server.engine._finished  # its events can still be attached to
        await post(http, f"responses/{ids['running']}/cancel")


def unlike(own: str) -> str:
    """An id that nobody has, of the same form."""
    return own.partition("_")[0] + "_" + UNKNOWN


def same(answers: list[Any], ids: list[str]) -> str:
    """What all the answers are, but for the id."""
    texts = {json.dumps(answer).replace(own, "ID") for answer, own in zip(answers, ids, strict=True)}
    assert len(texts) == 1
    return texts.pop()


# ---- over HTTP

APPEND: Json = {"input": [output("call_x")]}
BODIES: dict[tuple[str, str], list[Json]] = {
    ("POST", "/v1/responses"): [{"previous_response_id": "RESPONSE"}, {"conversation": "CONVERSATION"}],
    ("POST", "/v1/responses/input_tokens"): [{"previous_response_id": "RESPONSE"}, {"conversation": "CONVERSATION"}],
    ("POST", "/v1/responses/compact"): [{"previous_response_id": "RESPONSE"}, {"conversation": "CONVERSATION"}],
    ("POST", "/v1/responses/{id}/append"): [APPEND],
    ("POST", "/v1/responses/{id}/cancel"): [{}],
    ("POST", "/v1/conversations/{id}"): [{"metadata": {}}],
    ("POST", "/v1/conversations/{id}/items"): [{"items": [{"role": "user", "content": "x"}]}],
}
"""What is sent, where something is."""
WITHOUT_IDS = {("GET", "/v1/models"), ("GET", "/v1/models/{id}"), ("POST", "/v1/conversations")}
QUERIES = {("GET", "/v1/responses/{id}"): ["", "?stream=true", "?stream=true&starting_after=0"]}


async def asked(http: httpx2.AsyncClient, method: str, path: str, sent: Json | None) -> list[Any]:
    """All of an answer but for its time."""
    answer = await http.request(method, path, json=sent)
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "content-length")}
    assert refused(answer)[0] in (400, 404)
    return [answer.status_code, headers, answer.json()]


@pytest.mark.parametrize("where", RESPONSES)
async def test_every_endpoint_that_takes_an_id(where: str) -> None:
    """``where`` the Response is; of conversations there is one kind only."""
    asked_of = set()
    async with served(keys=KEYS) as it, hers(it) as found, it.client("bob-key") as http:
        own = ok(await http.post("conversations"))["id"]
        for method, path in Api(it.server.engine).endpoints():
            if (method, path) in WITHOUT_IDS:
                continue
            for sent in BODIES.get((method, path), [{}] if method == "POST" else [None]):
                for query in QUERIES.get((method, path), [""]):
                    for target, content, real in named(path + query, sent, found.ids, where, own):
                        ids = [real, unlike(real)]
                        answers = [
                            await asked(http, method, it.url(target.replace("ID", one)), filled(content, one)) for one in ids
                        ]
                        assert "not found" in same(answers, ids).lower()
                        asked_of.add((method, path))
    assert asked_of == set(Api(it.server.engine).endpoints()) - WITHOUT_IDS


def named(path: str, sent: Json | None, ids: dict[str, str], where: str, own: str) -> list[tuple[str, Json | None, str]]:
    """What to ask, with ID where the id goes that is asked about, and that id."""
    text = json.dumps(sent)
    if "RESPONSE" in text:
        return [(path, json.loads(text.replace("RESPONSE", "ID")), ids[where])]
    if "CONVERSATION" in text:
        return [(path, json.loads(text.replace("CONVERSATION", "ID")), ids["conversation"])]
    if path.startswith("/v1/responses"):
        return [(path.replace("{id}", "ID"), sent, ids[where])]
    if "{item_id}" in path:  # of her conversation, and her item in one's own
        hers_too = path.replace("{id}", "ID").replace("{item_id}", ids["item"])
        return [
            (hers_too, sent, ids["conversation"]),
            (path.replace("{id}", own).replace("{item_id}", "ID"), sent, ids["item"]),
        ]
    return [(path.replace("{id}", "ID"), sent, ids["conversation"])]


def filled(content: Json | None, one: str) -> Json | None:
    if content is None or "ID" not in json.dumps(content):
        return content
    filled_in: Json = {"model": "scripted", "input": "x", **json.loads(json.dumps(content).replace("ID", one))}
    return filled_in


# ---- over a WebSocket

EVENTS: dict[str, Json] = {
    "append": {"type": "response.append", "response_id": "ID", **APPEND},
    "cancel": {"type": "response.cancel", "response_id": "ID"},
    "finish": {"type": "response.finish", "response_id": "ID"},
    "attach": {"type": "response.attach", "response_id": "ID"},
    "steer": {"type": "response.steer", "previous_response_id": "ID", "input": "x"},
    "create": {"type": "response.create", "model": "scripted", "input": "x", "previous_response_id": "ID"},
}


async def told(socket: RawClient, frame: Json, one: str) -> Json:
    await socket.say(json.loads(json.dumps(frame).replace("ID", one)))
    answer = await socket.frame()
    answer.get("steer", {}).pop("id", None)
    return answer


@pytest.mark.parametrize("where", RESPONSES)
@pytest.mark.parametrize("beta", [{}, {"openai_beta": CREATE}], ids=["append", "create"])
async def test_every_event_that_takes_an_id(where: str, beta: dict[str, str]) -> None:
    bob = {"authorization": "Bearer bob-key", **beta}
    async with served(keys=KEYS) as it, hers(it) as found, client(it.port, **bob) as socket:
        ids = [found.ids[where], unlike(found.ids[where])]
        for frame in EVENTS.values():
            answers = [await told(socket, frame, one) for one in ids]
            assert "not found" in same(answers, ids)


async def test_a_create_in_a_strangers_conversation() -> None:
    bob = {"authorization": "Bearer bob-key", "openai_beta": CREATE}
    async with served(keys=KEYS) as it, hers(it) as found, client(it.port, **bob) as socket:
        ids = [found.ids["conversation"], unlike(found.ids["conversation"])]
        frame = {"type": "response.create", "model": "scripted", "input": "x", "conversation": "ID"}
        assert "conversation_not_found" in same([await told(socket, frame, one) for one in ids], ids)


# ---- what has no id


async def test_a_key_of_idempotency_is_ones_own() -> None:
    async with served(keys=KEYS) as it, hers(it) as found, it.client("bob-key") as http:
        response = await post(http, "responses", body({"say": "Bob's."}, idempotency_key="k"))
        assert response["id"] != found.ids["ended"]
        assert response["output"][0]["content"][0]["text"] == "Bob's."


async def test_a_conversation_that_is_in_use_is_unknown_all_the_same() -> None:
    async with served(keys=KEYS) as it, hers(it) as found, it.client("alice-key") as http, it.client("bob-key") as other:
        conversation = found.ids["conversation"]
        live = await post(http, "responses", body(NEVER, pace=50, background=True, conversation=conversation))
        ids = [conversation, unlike(conversation)]
        answers = [await asked(other, "POST", "responses", body({"say": "x"}, conversation=one)) for one in ids]
        assert "conversation_not_found" in same(answers, ids)
        await post(http, f"responses/{live['id']}/cancel")
