"""Conversations: their endpoints, Responses in them, and where they are kept."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from engine.conversations import ITEMS_AT_ONCE
from engine.database import Database
from engine.policy import Policy, Rule
from engine.store import Conversation, Kept, MemoryStore, Store
from engine.testing import eventually
from protocol.items import Message

from .http_support import CALL, NEVER, Json, body, events, get, ok, output, post, program, refused, said, served
from .socket_support import CREATE, client

SECRET = Policy(
    (
        Rule(name="secret", pattern=re.compile("hunter2"), action="redact"),
        Rule(name="evil", pattern=re.compile("evil"), action="block"),
    )
)


def user(text: str, **fields: Any) -> Json:
    return {"type": "message", "role": "user", "content": text, **fields}


def texts(items: list[Json]) -> list[str]:
    return [item["content"][0]["text"] if item["type"] == "message" else item["type"] for item in items]


async def items_of(http: httpx2.AsyncClient, conversation: Json) -> list[Json]:
    listed: list[Json] = (await get(http, f"conversations/{conversation['id']}/items", order="asc", limit=100))["data"]
    return listed


async def talk(http: httpx2.AsyncClient, made: Json, *items: Json, **fields: Any) -> Json:
    sent = {"model": "scripted", "input": list(items), "conversation": made["id"], **fields}
    return await post(http, "responses", sent)


# ---- where they are kept


async def keeps_conversations(store: Store) -> None:
    made = Conversation(tenant="alice", id="conv_1", created_at=5, metadata={"a": "b"})
    kept = [Kept(f"msg_{n}", Message(role="user", content=f"{n}", id=f"msg_{n}"), n == 1) for n in range(4)]
    assert not await store.add_items("alice", "conv_1", kept)
    await store.put_conversation(made)
    assert await store.get_conversation("alice", "conv_1") == made
    assert await store.get_conversation("bob", "conv_1") is None
    assert await store.add_items("alice", "conv_1", kept[:2])
    assert not await store.add_items("bob", "conv_1", kept[2:])
    updated = Conversation(tenant="alice", id="conv_1", created_at=5)
    await store.put_conversation(updated)
    assert await store.get_conversation("alice", "conv_1") == updated
    assert await store.add_items("alice", "conv_1", kept[2:])
    assert list(await store.get_items("alice", "conv_1")) == kept
    assert list(await store.get_items("bob", "conv_1")) == []
    assert not await store.delete_item("bob", "conv_1", "msg_0")
    assert await store.delete_item("alice", "conv_1", "msg_0")
    assert not await store.delete_item("alice", "conv_1", "msg_0")
    assert list(await store.get_items("alice", "conv_1")) == kept[1:]
    assert not await store.delete_conversation("bob", "conv_1")
    assert await store.delete_conversation("alice", "conv_1")
    assert not await store.delete_conversation("alice", "conv_1")
    assert list(await store.get_items("alice", "conv_1")) == []


async def test_in_memory() -> None:
    await keeps_conversations(MemoryStore())


async def test_in_sqlite(tmp_path: Path) -> None:
    database = Database(tmp_path / "books")
    await keeps_conversations(database)
    database.close()


async def test_memory_has_a_bound() -> None:
    store = MemoryStore(limit=2)
    for number in range(3):
        await store.put_conversation(Conversation(tenant="alice", id=f"conv_{number}", created_at=0))
    assert await store.get_conversation("alice", "conv_0") is None
    assert await store.get_conversation("alice", "conv_2") is not None


# ---- their endpoints


async def test_a_conversation_lives_and_is_deleted() -> None:
    async with served() as it, it.client() as http:
        made = await post(http, "conversations", {"metadata": {"topic": "tea"}})
        assert made == {"id": made["id"], "object": "conversation", "created_at": 1_000_000, "metadata": {"topic": "tea"}}
        path = f"conversations/{made['id']}"
        assert await get(http, path) == made
        updated = await post(http, path, {"metadata": {"topic": "coffee"}})
        assert updated == {**made, "metadata": {"topic": "coffee"}}
        assert await get(http, path) == updated
        assert ok(await http.delete(path)) == {"id": made["id"], "object": "conversation.deleted", "deleted": True}
        assert refused(await http.get(path)) == (404, "conversation_not_found")


async def test_a_conversation_needs_no_body() -> None:
    async with served() as it, it.client() as http:
        made = ok(await http.post("conversations"))
        assert made["metadata"] == {}
        assert await items_of(http, made) == []


async def test_items_are_listed_added_and_deleted() -> None:
    async with served() as it, it.client() as http:
        made = await post(http, "conversations", {"items": [user("one"), {"role": "assistant", "content": "two"}]})
        path = f"conversations/{made['id']}/items"
        added = await post(http, path, {"items": [user("three", id="msg_mine"), user("four", color="red")]})
        assert (added["object"], added["has_more"]) == ("list", False)
        assert texts(added["data"]) == ["three", "four"]
        everything = await items_of(http, made)
        assert texts(everything) == ["one", "two", "three", "four"]
        assert [item["content"][0]["type"] for item in everything[:2]] == ["input_text", "output_text"]
        assert everything[2]["id"] == "msg_mine"
        assert everything[3]["color"] == "red"
        assert await items_of(http, made) == everything
        newest = await get(http, path, limit=3)
        assert (newest["data"], newest["has_more"]) == (everything[:0:-1], True)
        assert (await get(http, path, after=newest["last_id"]))["data"] == everything[:1]
        assert await get(http, f"{path}/msg_mine") == everything[2]
        assert ok(await http.delete(f"{path}/msg_mine")) == made
        assert refused(await http.get(f"{path}/msg_mine")) == (404, "not_found")
        assert refused(await http.delete(f"{path}/msg_mine")) == (404, "not_found")
        assert texts(await items_of(http, made)) == ["one", "two", "four"]


async def test_an_id_that_is_taken_is_not_given_twice() -> None:
    async with served() as it, it.client() as http:
        made = await post(http, "conversations", {"items": [user("one", id="msg_1"), user("two", id="msg_1")]})
        await post(http, f"conversations/{made['id']}/items", {"items": [user("three", id="msg_1")]})
        ids = [item["id"] for item in await items_of(http, made)]
        assert ids[0] == "msg_1"
        assert len(set(ids)) == 3


async def test_what_is_refused() -> None:
    many = [user("x")] * (ITEMS_AT_ONCE + 1)
    async with served(policy=SECRET) as it, it.client() as http:
        made = await post(http, "conversations", {})
        path = f"conversations/{made['id']}"
        for where, sent, code, param in (
            ("conversations", {"items": many}, "invalid_value", "items"),
            ("conversations", {"metadata": {"a": 1}}, "invalid_value", "metadata"),
            ("conversations", {"metadata": {f"{n}": "" for n in range(17)}}, "invalid_value", "metadata"),
            ("conversations", [], "invalid_frame", None),
            (path, {"metadata": "x"}, "invalid_type", "metadata"),
            (f"{path}/items", {"items": many}, "invalid_value", "items"),
            (f"{path}/items", {}, "invalid_value", "items"),
            (f"{path}/items", {"items": [{"type": "riddle"}]}, "invalid_value", "items[0].type"),
            (f"{path}/items", {"items": [user("fine"), user("evil")]}, "content_policy_violation", "items[1].content"),
        ):
            answer = await http.post(where, json=sent)
            assert (refused(answer), answer.json()["error"]["param"]) == ((400, code), param)
        assert await items_of(http, made) == []


async def test_the_policy_redacts_items_as_they_come_in() -> None:
    async with served(policy=SECRET) as it, it.client() as http:
        made = await post(http, "conversations", {"items": [user("it is hunter2")]})
        assert texts(await items_of(http, made)) == ["it is [redacted:secret]"]


# ---- Responses in them


@pytest.mark.parametrize("shown", [lambda made: made["id"], lambda made: {"id": made["id"]}], ids=["id", "object"])
async def test_a_response_begins_with_it_and_adds_to_it(shown: Callable[[Json], Any]) -> None:
    async with served() as it, it.client() as http:
        made = await post(http, "conversations", {"items": [user(program({"say": "One."}, {"stop": "end"}, {"say": "Two."}))]})
        first = await talk(http, made, user("Go."), conversation=shown(made))
        assert first["conversation"] == {"id": made["id"]}
        assert first["previous_response_id"] is None
        assert said(first) == "One."
        assert texts(await items_of(http, made))[1:] == ["Go.", "One."]
        second = await talk(http, made, user("And?"), conversation=shown(made))
        assert said(second) == "Two."
        assert texts(await items_of(http, made))[1:] == ["Go.", "One.", "And?", "Two."]
        assert (await items_of(http, made))[-1]["id"] == second["output"][0]["id"]
        assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
        own = (await get(http, f"responses/{second['id']}/input_items"))["data"]
        assert texts(own) == ["And?"]
        assert await get(http, f"responses/{second['id']}") == second


@pytest.mark.parametrize("config", [{}, {"reuse": frozenset()}], ids=["reuse", "no reuse"])
async def test_calls_are_answered_in_it_as_in_a_chain(config: Json) -> None:
    steps = ({"reason": "Hm."}, {"calls": [{"name": "f"}, {"name": "g"}]}, CALL, {"say": "{{output_of:g}}"})
    usages: list[list[Json]] = []
    async with served(**config) as it, it.client() as http:
        for chained in (False, True):
            made = await post(http, "conversations", {})
            response = await talk(http, made, user(program(*steps)), **({"conversation": None} if chained else {}))
            usages.append([response["usage"]])
            while calls := [item for item in response["output"] if item["type"] == "function_call"]:
                before = {"previous_response_id": response["id"], "conversation": None} if chained else {}
                results = [output(call["call_id"], f"of {call['name']}") for call in calls]
                response = await talk(http, made, *results, **before)
                usages[-1].append(response["usage"])
            assert said(response) == "of g"
    spent = [[(usage["input_tokens"], usage["output_tokens"]) for usage in one] for one in usages]
    assert len(spent[0]) == 3
    assert spent[0] == spent[1]


async def test_calls_that_wait_must_be_answered() -> None:
    async with served() as it, it.client() as http:
        made = await post(http, "conversations", {})
        response = await talk(http, made, user(program(CALL, {"say": "{{output}}"})))
        call_id = response["output"][0]["call_id"]
        before = await items_of(http, made)
        sent = {"model": "scripted", "input": "Never mind.", "conversation": made["id"]}
        assert refused(await http.post("responses", json=sent)) == (400, "tool_output_missing")
        assert await items_of(http, made) == before
        assert said(await talk(http, made, output(call_id, "in time"))) == "in time"


async def test_items_that_do_not_fit_each_other_are_told() -> None:
    async with served() as it, it.client() as http:
        made = await post(http, "conversations", {"items": [output("call_none")]})
        answer = await http.post("responses", json=body({"say": "x"}, conversation=made["id"]))
        assert refused(answer) == (404, "tool_call_not_found")
        assert answer.json()["error"]["param"] == "conversation"


async def test_a_response_that_fails_or_is_cancelled_adds_nothing() -> None:
    async with served() as it, it.client() as http:
        made = await post(http, "conversations", {})
        failed = await post(http, "responses", body({"fail": {}}, conversation=made["id"]))
        assert failed["status"] == "failed"
        live = await post(http, "responses", body(NEVER, pace=100, background=True, conversation=made["id"]))
        await post(http, f"responses/{live['id']}/cancel")
        assert await items_of(http, made) == []
        cut = await post(http, "responses", body({"say": {"tokens": 50}}, max_output_tokens=5, conversation=made["id"]))
        assert cut["status"] == "incomplete"
        assert [item.get("status") for item in await items_of(http, made)] == ["completed", "incomplete"]


async def test_one_response_at_a_time_is_in_it() -> None:
    async with served() as it, it.client() as http, it.client() as other:
        made = await post(http, "conversations", {})
        sent = body(NEVER, pace=100, stream=True, conversation=made["id"])
        async with events(http, "POST", "responses", json=sent) as stream:
            await stream.until("response.created")
            answer = await other.post("responses", json=body({"say": "x"}, conversation=made["id"]))
            assert refused(answer) == (409, "conversation_locked")
            assert answer.json()["error"]["param"] == "conversation"
        await eventually(lambda: not it.server.engine.live)
        assert said(await post(other, "responses", body({"say": "x"}, conversation=made["id"]))) == "x"


async def test_one_that_is_deleted_meanwhile_takes_nothing() -> None:
    async with served() as it, it.client() as http:
        made = await post(http, "conversations", {})
        async with trio.open_nursery() as nursery:
            sent = body({"say": {"tokens": 20}}, pace=100, conversation=made["id"])
            nursery.start_soon(lambda: post(http, "responses", sent))
            await eventually(lambda: bool(it.server.engine.live))
            async with it.client() as other:
                ok(await other.delete(f"conversations/{made['id']}"))
        assert refused(await http.get(f"conversations/{made['id']}/items")) == (404, "conversation_not_found")


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"conversation": "conv_none"}, 404, "conversation_not_found", "conversation"),
        ({"conversation": {"id": "conv_none"}}, 404, "conversation_not_found", "conversation"),
        ({"conversation": 7}, 400, "invalid_type", "conversation"),
        ({"conversation": {}}, 400, "invalid_type", "conversation"),
        ({"store": False}, 400, "invalid_value", "store"),
        ({"continuation": "append"}, 400, "unsupported_parameter", "conversation"),
    ],
)
async def test_creates_that_are_refused(fields: Json, status: int, code: str, param: str) -> None:
    async with served() as it, it.client() as http:
        made = await post(http, "conversations", {})
        answer = await http.post("responses", json=body({"say": "x"}, **{"conversation": made["id"], **fields}))
        assert (refused(answer), answer.json()["error"]["param"]) == ((status, code), param)
        assert said(await post(http, "responses", body({"say": "free"}, conversation=made["id"]))) == "free"


async def test_a_create_says_once_what_comes_before() -> None:
    async with served() as it, it.client() as http:
        made = await post(http, "conversations", {})
        first = await post(http, "responses", body({"say": "x"}))
        sent = body({"say": "y"}, conversation=made["id"], previous_response_id=first["id"])
        assert refused(await http.post("responses", json=sent)) == (400, "invalid_value")


async def test_input_tokens_and_compact_take_one() -> None:
    async with served() as it, it.client() as http:
        made = await post(http, "conversations", {"items": [user("Tea?"), {"role": "assistant", "content": "Yes."}]})
        counted = await post(http, "responses/input_tokens", body({"say": "x"}, conversation=made["id"]))
        compacted = await post(http, "responses/compact", {"model": "scripted", "conversation": made["id"]})
        assert [item["type"] for item in compacted["output"]] == ["message", "compaction"]
        response = await post(http, "responses", body({"say": "x"}, conversation=made["id"]))
        assert response["usage"]["input_tokens"] == counted["input_tokens"]


async def test_it_outlives_the_server(tmp_path: Path) -> None:
    async with served(data=tmp_path / "books") as it, it.client() as http:
        made = await post(http, "conversations", {"metadata": {"a": "b"}})
        first = await talk(http, made, user(program(CALL, {"say": "{{output}}"})))
        before = await items_of(http, made)
    async with served(data=tmp_path / "books", seed=2) as it, it.client() as http:
        assert await get(http, f"conversations/{made['id']}") == made
        assert await items_of(http, made) == before
        assert said(await talk(http, made, output(first["output"][0]["call_id"], "still here"))) == "still here"
        assert ok(await http.delete(f"conversations/{made['id']}"))["deleted"] is True
    async with served(data=tmp_path / "books", seed=3) as it, it.client() as http:
        assert refused(await http.get(f"conversations/{made['id']}")) == (404, "conversation_not_found")


async def test_over_a_websocket() -> None:
    async with served() as it, it.client() as http, client(it.port, **CREATE) as raw:
        made = await post(http, "conversations", {})
        await raw.create(CALL, {"say": "{{output}}"}, conversation=made["id"])
        first = (await raw.until("response.completed"))["response"]
        assert first["conversation"] == {"id": made["id"]}
        answer = output(first["output"][0]["call_id"], "over a socket")
        await raw.say({"type": "response.create", "model": "scripted", "conversation": made["id"], "input": [answer]})
        assert said((await raw.until("response.completed"))["response"]) == "over a socket"
        kinds = ["message", "function_call", "function_call_output", "message"]
        assert [item["type"] for item in await items_of(http, made)] == kinds
        await raw.create({"say": "x"}, conversation="conv_none", stream_id="a")
        error = await raw.frame()
        assert (error["status"], error["code"], error["stream_id"]) == (404, "conversation_not_found", "a")
        await raw.create(NEVER, pace=100, conversation=made["id"])
        live = (await raw.until("response.created"))["response"]["id"]
        await raw.say({"type": "response.steer", "previous_response_id": live, "input": "Stop."})
        assert (await raw.until("response.steer.failed"))["error"]["code"] == "steering_not_supported"


# ---- as its users see it


async def test_what_is_shown_is_what_the_openai_package_expects() -> None:
    types = pytest.importorskip("openai.types.conversations")
    pydantic = pytest.importorskip("pydantic")
    listed = pydantic.TypeAdapter(list[types.ConversationItem])
    items = [
        user("Tea?"),
        {"role": "assistant", "content": "Yes."},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        output("call_1"),
    ]
    async with served() as it, it.client() as http:
        made = await post(http, "conversations", {"items": items})
        types.Conversation.model_validate(made, strict=True)
        await talk(http, made, user(program({"reason": "Hm."}, {"call": {"name": "f"}})))
        everything = await items_of(http, made)
        assert len(everything) == 7
        assert len(listed.validate_python(everything, strict=True)) == 7
        deleted = ok(await http.delete(f"conversations/{made['id']}"))
        types.ConversationDeletedResource.model_validate(deleted, strict=True)
