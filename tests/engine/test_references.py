"""Items that are named by their ids (``item_reference``): which can be, in each shape, and where they are kept."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.database import Database
from engine.store import Conversation, Kept, MemoryStore, Store, Stored
from engine.testing import append, calls_in, create, direct_server, make_services, result, virtually
from engine.testing.profile import examples
from protocol.items import Item, Message
from protocol.response import Response

from .http_support import CALL, Json, body, get, ok, output, post, refused, said, served

MADE_UP = "msg_" + "0" * 32


def user(text: str, **fields: Any) -> Json:
    return {"type": "message", "role": "user", "content": text, **fields}


def ref(item_id: str) -> Json:
    return {"type": "item_reference", "id": item_id}


def asked(*items: Json, **fields: Any) -> Json:
    """A create with ``items`` in front of what makes the model say that it has heard them."""
    heard = body({"say": "Heard."}, **fields)
    return {**heard, "input": [*items, user(heard["input"])]}


async def inputs_of(http: httpx2.AsyncClient, response: Json) -> list[Json]:
    """What came from outside, but for the program."""
    listed: list[Json] = (await get(http, f"responses/{response['id']}/input_items", order="asc", limit=100))["data"]
    return listed[:-1]


def unknown(answer: httpx2.Response, item_id: str, path: str = "input[0].id") -> None:
    """``answer`` says that there is no such item, in the same words whatever the reason."""
    assert refused(answer) == (404, "item_not_found")
    error = answer.json()["error"]
    assert (error["message"], error["param"]) == (f"Item with id '{item_id}' not found.", path)
    assert (error["type"], error["work"]) == ("invalid_request_error", "not_started")


@pytest.fixture(params=["memory", "sqlite"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """Where the books are."""
    return tmp_path / "books" if request.param == "sqlite" else None


# ---- over HTTP


async def test_an_output_and_what_was_sent_with_an_id_are_named(data: Path | None) -> None:
    async with served(data=data) as it, it.client() as http:
        first = await post(http, "responses", asked(user("One.", id="msg_mine")))
        made = first["output"][0]
        second = await post(http, "responses", asked(ref("msg_mine"), ref(made["id"])))
        assert said(second) == "Heard."
        mine, its = await inputs_of(http, second)
        assert (mine["id"], mine["content"][0]["text"]) == ("msg_mine", "One.")
        assert its == made, "and not the reference"
        third = await post(http, "responses", asked({"id": made["id"]}, {"id": "msg_mine", "type": None}))
        assert await inputs_of(http, third) == [its, mine]


async def test_what_a_list_shows_can_be_named(data: Path | None) -> None:
    """Also an item that came without an id, and is shown with one."""
    async with served(data=data) as it, it.client() as http:
        first = await post(http, "responses", asked(user("One."), user("Two.")))
        one, two = await inputs_of(http, first)
        second = await post(http, "responses", asked(ref(two["id"]), ref(one["id"])))
        assert [item["content"][0]["text"] for item in await inputs_of(http, second)] == ["Two.", "One."]
        for wrong in (one["id"].replace("msg_", "fc_"), one["id"][:-4] + "ffff", one["id"][:-4] + "00001"):
            unknown(await http.post("responses", json=asked(ref(wrong))), wrong)
        assert ok(await http.delete(f"responses/{first['id']}"))
        unknown(await http.post("responses", json=asked(ref(one["id"]))), one["id"])


async def test_a_call_is_named_and_answered(data: Path | None) -> None:
    async with served(data=data) as it, it.client() as http:
        first = await post(http, "responses", body(CALL, {"say": "{{output}}"}))
        (call,) = first["output"]
        history = [user(body(CALL, {"say": "{{output}}"})["input"]), ref(call["id"])]
        assert refused(await http.post("responses", json={"model": "scripted", "input": history})) == (
            400,
            "tool_output_missing",
        )
        answered = [*history, output(call["call_id"], "It rains.")]
        assert said(await post(http, "responses", {"model": "scripted", "input": answered})) == "It rains."


async def test_what_is_not_stored_is_unknown(data: Path | None) -> None:
    async with served(data=data) as it, it.client() as http:
        kept, lost = [await post(http, "responses", asked(user("One."), store=store)) for store in (True, False)]
        gone = await post(http, "responses", asked(user("Two.", id="msg_two")))
        assert ok(await http.delete(f"responses/{gone['id']}"))
        for item_id in (MADE_UP, lost["output"][0]["id"], gone["output"][0]["id"], "msg_two", ""):
            unknown(await http.post("responses", json=asked(ref(item_id))), item_id)
            there = [user("x"), ref(kept["output"][0]["id"]), ref(item_id)]
            unknown(await http.post("responses", json=asked(*there)), item_id, "input[2].id")
            assert (await http.post("responses", json=asked(*there, stream=True))).status_code == 404


async def test_a_strangers_item_is_unknown(data: Path | None) -> None:
    async with served(data=data, keys=("alice", "bob")) as it, it.client("alice") as alice, it.client("bob") as bob:
        hers = await post(alice, "responses", asked(user("Hers.", id="msg_hers")))
        listed = (await get(alice, f"responses/{hers['id']}/input_items"))["data"][0]["id"]
        conversation = await post(alice, "conversations", {"items": [user("Also hers.", id="msg_also")]})
        for item_id in ("msg_hers", hers["output"][0]["id"], listed, "msg_also"):
            unknown(await bob.post("responses", json=asked(ref(item_id))), item_id)
            unknown(await bob.post("conversations", json={"items": [ref(item_id)]}), item_id, "items[0].id")
            assert await inputs_of(alice, await post(alice, "responses", asked(ref(item_id))))
        assert ok(await alice.delete(f"conversations/{conversation['id']}"))
        mine = await post(bob, "responses", asked(user("His.", id="msg_hers")))
        assert (await inputs_of(bob, mine))[0]["content"][0]["text"] == "His."
        again = await post(alice, "responses", asked(ref("msg_hers")))
        assert (await inputs_of(alice, again))[0]["content"][0]["text"] == "Hers."


async def test_an_item_goes_with_the_response_that_had_it_first(data: Path | None) -> None:
    """Wherever else it was named or sent since."""
    async with served(data=data) as it, it.client() as http:
        first = await post(http, "responses", asked(user("One.", id="msg_one")))
        made = first["output"][0]
        named = await post(http, "responses", asked(ref("msg_one"), ref(made["id"])))
        sent = await post(http, "responses", asked(user("One.", id="msg_one"), made))
        for other in (named, sent):
            assert ok(await http.delete(f"responses/{other['id']}"))
            assert await post(http, "responses", asked(ref("msg_one"), ref(made["id"])))
        assert ok(await http.delete(f"responses/{first['id']}"))
        for item_id in ("msg_one", made["id"]):
            unknown(await http.post("responses", json=asked(ref(item_id))), item_id)


async def test_an_id_that_is_sent_again_names_what_was_sent_last(data: Path | None) -> None:
    """But what the model has put out stays what it was."""
    async with served(data=data) as it, it.client() as http:
        first = await post(http, "responses", asked(user("One.", id="msg_mine")))
        its = first["output"][0]
        changed = {**its, "content": [{"type": "output_text", "text": "Changed.", "annotations": []}]}
        await post(http, "responses", asked(user("Two.", id="msg_mine"), changed))
        named = await inputs_of(http, await post(http, "responses", asked(ref("msg_mine"), ref(its["id"]))))
        assert [item["content"][0]["text"] for item in named] == ["Two.", "Heard."]


async def test_each_item_is_named_once() -> None:
    async with served() as it, it.client() as http:
        item_id = (await post(http, "responses", asked()))["output"][0]["id"]
        answer = await http.post("responses", json=asked(ref(item_id), user("x"), ref(item_id)))
        assert refused(answer) == (400, "invalid_value")
        assert answer.json()["error"]["param"] == "input[2].id"


async def test_a_continuation_reuses_as_much_as_with_the_item_itself() -> None:
    async with served() as it, it.client() as http:
        other = (await post(http, "responses", asked()))["output"][0]
        before = await post(http, "responses", asked())
        fields = {"model": "scripted", "previous_response_id": before["id"]}
        sent, named = [await post(http, "responses", {**fields, "input": [item]}) for item in (other, ref(other["id"]))]
        assert named["usage"] == sent["usage"]
        assert named["usage"]["input_tokens_details"]["cached_tokens"] > 0
        assert named["engine"]["stages"]["validate"]["items"] == 1
        assert named["engine"]["tokens_rendered"] == sent["engine"]["tokens_rendered"]


async def test_counted_and_compacted_as_the_item_itself() -> None:
    async with served() as it, it.client() as http:
        item = (await post(http, "responses", asked()))["output"][0]
        for endpoint in ("responses/input_tokens", "responses/compact"):
            sent, named = [await post(http, endpoint, asked(user("x"), one)) for one in (item, ref(item["id"]))]
            assert {key: sent[key] for key in sent.keys() & {"input_tokens", "usage"}}.items() <= named.items()
            unknown(await http.post(endpoint, json=asked(ref(MADE_UP))), MADE_UP)


async def test_the_same_create_again_is_the_same(data: Path | None) -> None:
    async with served(data=data) as it, it.client() as http:
        item = (await post(http, "responses", asked()))["output"][0]
        first, second = [await post(http, "responses", asked(ref(item["id"]), idempotency_key="k")) for _ in range(2)]
        assert first["id"] == second["id"]
        assert refused(await http.post("responses", json=asked(item, idempotency_key="k"))) == (409, "idempotency_conflict")


# ---- conversations


async def test_items_of_conversations_are_named(data: Path | None) -> None:
    async with served(data=data) as it, it.client() as http:
        made = await post(http, "conversations", {"items": [user("One."), user("Two.", id="msg_two")]})
        path = f"conversations/{made['id']}"
        one = (await get(http, f"{path}/items", order="asc"))["data"][0]
        answer = await post(http, "responses", asked(ref(one["id"]), ref("msg_two"), store=False))
        assert said(answer) == "Heard."
        other = await post(http, "conversations", {"items": [ref("msg_two")]})
        (copy,) = (await get(http, f"conversations/{other['id']}/items"))["data"]
        assert (copy["id"], copy["content"][0]["text"]) == ("msg_two", "Two.")
        added = await post(http, f"{path}/items", {"items": [ref(one["id"])]})
        assert added["data"][0]["id"] != one["id"], "there it is already"
        assert ok(await http.delete(f"{path}/items/{one['id']}"))
        unknown(await http.post("responses", json=asked(ref(one["id"]))), one["id"])
        assert ok(await http.delete(path))
        assert await post(http, "responses", asked(ref("msg_two"), store=False)), "the other one has it, too"
        assert ok(await http.delete(f"conversations/{other['id']}"))
        unknown(await http.post("responses", json=asked(ref("msg_two"))), "msg_two")


async def test_what_was_said_in_a_conversation_is_named(data: Path | None) -> None:
    async with served(data=data) as it, it.client() as http:
        made = await post(http, "conversations", {})
        first = await post(http, "responses", asked(user("One."), conversation=made["id"]))
        listed = (await get(http, f"conversations/{made['id']}/items", order="asc"))["data"]
        named = await post(http, "responses", asked(*(ref(item["id"]) for item in listed)))
        assert await inputs_of(http, named) == listed
        assert ok(await http.delete(f"responses/{first['id']}"))
        assert await post(http, "responses", asked(ref(listed[-1]["id"]))), "the conversation has it still"


# ---- over a WebSocket


async def said_by(socket: Any, frame: Json) -> Json:
    """The Response that a create makes."""
    await socket.send(frame)
    response: Json = (await socket.until_end())[-1]["response"]
    return response


async def refused_with(socket: Any, frame: Json) -> tuple[str, str | None]:
    await socket.send(frame)
    answer = await socket.receive()
    assert answer["type"] == "error"
    return answer["code"], answer["param"]


def following(*items: Json, **fields: Any) -> Json:
    return {"type": "response.create", "continuation": "create", **asked(*items), **fields}


def test_a_socket_remembers_what_is_not_stored() -> None:
    """As long as it is of the Response that ended last on its lane."""

    async def main() -> None:
        async with direct_server() as server:
            socket, other = await server.connect(), await server.connect()
            first = await said_by(socket, following(user("x", id="msg_x"), store=False, stream_id="a"))
            named = [ref("msg_x"), ref(first["output"][0]["id"])]
            assert await refused_with(other, following(named[0])) == ("item_not_found", "input[0].id")
            assert await refused_with(other, following(named[1])) == ("item_not_found", "input[0].id")
            assert (await said_by(socket, following(*named, store=False, stream_id="b")))["status"] == "completed"
            await said_by(socket, following(store=False, stream_id="a"))
            assert (await said_by(socket, following(*named, store=False, stream_id="c")))["status"] == "completed"
            for lane in ("b", "c"):
                await said_by(socket, following(store=False, stream_id=lane))
            assert await refused_with(socket, following(*named)) == ("item_not_found", "input[0].id")

    virtually(main)


def test_what_is_stored_is_named_on_every_socket_at_once() -> None:
    """Also while it is on its way to a slow store."""

    async def main() -> None:
        services = make_services()
        services.store = store = _SlowStore()
        async with direct_server(services) as server:
            socket, other = await server.connect(), await server.connect()
            first = await said_by(socket, following(user("x", id="msg_x"), user("y")))
            place = f"msg_{first['id'].removeprefix('resp_')}0001"
            await trio.sleep(0.5)
            assert (await said_by(socket, following(user("z", id="msg_x"))))["status"] == "completed"
            named = following(ref("msg_x"), ref(first["output"][0]["id"]), ref(place))
            assert not list(store.all())
            response = await said_by(other, named)
            await trio.sleep(60)
            context = server.context(response["id"]) or []
            assert [item["content"] for item in (context[0], context[2])] == ["z", "y"]
            assert context[1] == first["output"][0]

    virtually(main)


def test_a_response_of_the_append_shape_begins_with_what_is_named() -> None:
    async def main() -> None:
        async with direct_server() as server:
            socket = await server.connect()
            made = (await said_by(socket, create({"say": "Before."})))["output"][0]
            await socket.send({**create(CALL, {"say": "{{output}}"}), "stream_id": "a"})
            (call,) = calls_in(await socket.until("response.done"))
            assert await refused_with(socket, append(ref(made["id"]), result(call), stream_id="a")) == (
                "echo_mismatch",
                "input[0]",
            )
            await socket.send(append(ref(call["id"]), result(call, "It rains."), stream_id="a"))
            response = (await socket.until_end())[-1]["response"]
            assert said(response) == "It rains."
            assert [item["type"] for item in server.context(response["id"]) or []] == [
                "message",
                "function_call",
                "function_call_output",
                "message",
            ]
            begun = {
                **asked(ref(made["id"]), ref(call["id"]), result(call)),
                "type": "response.create",
                "continuation": "append",
            }
            assert (await said_by(socket, begun))["status"] == "completed"

    virtually(main)


class _SlowStore(MemoryStore):
    async def put(self, stored: Stored) -> None:
        await trio.sleep(1)
        await super().put(stored)


# ---- where they are kept

TENANTS = ("alice", "bob")
IDS = ("i0", "i1", "i2", "i3")
tenants = st.sampled_from(TENANTS)
said_items = st.builds(
    lambda item_id, text: Message(role="user", content=text, id=item_id),
    st.sampled_from([*IDS, "", None]),
    st.sampled_from(["one", "two"]),
)
named_items = said_items.filter(lambda item: bool(item.id))
some = st.lists(said_items, max_size=3).map(tuple)
moves = st.one_of(
    st.tuples(st.just("put"), tenants, some, some),
    st.tuples(st.just("delete"), tenants, st.integers(0, 9), st.none()),
    st.tuples(st.just("say"), tenants, st.integers(0, 1), st.lists(named_items, max_size=2, unique_by=lambda item: item.id)),
    st.tuples(st.just("unsay"), tenants, st.integers(0, 1), st.sampled_from(IDS)),
    st.tuples(st.just("forget"), tenants, st.integers(0, 1), st.none()),
)


def stored(tenant: str, number: int, given: tuple[Item, ...], output: tuple[Item, ...], previous: str | None = None) -> Stored:
    response = Response(id=f"resp_{number}", created_at=0, model="m", status="completed", output=output)
    return Stored(tenant=tenant, response=response, items=(*given, *output), input=given, previous_id=previous)


class _Expected:
    """What a store should find, from all that it keeps, slowly."""

    def __init__(self) -> None:
        self.owners: dict[tuple[str, str], tuple[int, bool, Item]] = {}
        self.said: list[tuple[str, str, Item]] = []

    def put(self, tenant: str, number: int, given: tuple[Item, ...], output: tuple[Item, ...]) -> None:
        for sent, item in [*((False, one) for one in output), *((True, one) for one in given)]:
            known = self.owners.get((tenant, item.id or ""))
            if item.id and (known is None or (known[1] and known[2] != item)):
                self.owners[tenant, item.id] = (number, sent, item)

    def delete(self, tenant: str, number: int) -> None:
        self.owners = {key: one for key, one in self.owners.items() if (key[0], one[0]) != (tenant, number)}

    def find(self, tenant: str) -> dict[str, Item]:
        spoken = {item.id: item for whose, _, item in self.said if whose == tenant and item.id}
        return spoken | {key[1]: one[2] for key, one in self.owners.items() if key[0] == tenant}


async def _move(store: Store, expected: _Expected, number: int, move: Any) -> None:
    kind, tenant, first, second = move
    conversation = f"conv_{first}"
    if kind == "put":
        await store.put(stored(tenant, number, first, second))
        expected.put(tenant, number, first, second)
    elif kind == "delete":
        await store.delete(tenant, f"resp_{first}")
        expected.delete(tenant, first)
    elif kind == "say":
        taken = {one.id for one in await store.get_items(tenant, conversation)}
        fresh = [one for one in second if one.id not in taken]
        await store.put_conversation(Conversation(tenant=tenant, id=conversation, created_at=0))
        await store.add_items(tenant, conversation, [Kept(one.id, one) for one in fresh])
        expected.said += [(tenant, conversation, one) for one in fresh]
    elif kind == "unsay":
        await store.delete_item(tenant, conversation, second)
        expected.said = [one for one in expected.said if (*one[:2], one[2].id) != (tenant, conversation, second)]
    else:
        await store.delete_conversation(tenant, conversation)
        expected.said = [one for one in expected.said if one[:2] != (tenant, conversation)]


@examples(150)
@given(st.lists(moves, max_size=14))
def test_stores_find_what_they_keep(made: list[Any]) -> None:
    """In memory and in SQLite alike, and nothing is left of what was deleted."""

    async def main(store: Store) -> None:
        expected = _Expected()
        for number, move in enumerate(made):
            await _move(store, expected, number, move)
            for tenant in TENANTS:
                assert await store.find_items(tenant, [*IDS, "", "i9"]) == expected.find(tenant)
        for tenant in TENANTS:
            for number in range(max(10, len(made))):
                await store.delete(tenant, f"resp_{number}")
                await store.delete_conversation(tenant, f"conv_{number}")
            assert await store.find_items(tenant, IDS) == {}

    memory, database = MemoryStore(), Database(":memory:")
    trio.run(main, memory)
    trio.run(main, database)
    assert memory._owned == memory._said == {}
    (left,) = database._connection.execute("SELECT count(*) FROM response_items").fetchone()
    assert left == 0
    database.close()


async def test_memory_forgets_the_items_of_what_it_drops() -> None:
    store = MemoryStore(limit=2)
    for number in range(4):
        await store.put(stored("alice", number, (), (Message(role="assistant", content="", id=f"i{number}"),)))
        await store.put_conversation(Conversation(tenant="alice", id=f"conv_{number}", created_at=0))
        await store.add_items(
            "alice", f"conv_{number}", [Kept(f"c{number}", Message(role="user", content="", id=f"c{number}"))]
        )
    assert set(await store.find_items("alice", [f"{kind}{n}" for kind in "ic" for n in range(4)])) == {"i2", "i3", "c2", "c3"}


async def test_a_file_of_an_earlier_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "books"
    items = [
        Message(role="user", content=text, id=item_id) for text, item_id in (("a", "i0"), ("b", "i0"), ("c", None), ("d", ""))
    ]
    async with _opened(path) as database:
        await database.put(stored("alice", 0, (items[0], items[2]), (Message(role="assistant", content="out", id="i1"),)))
        await database.put(stored("alice", 1, (items[1], items[3], Message(role="user", content="in", id="i1")), ()))
    with sqlite3.connect(path) as connection:
        connection.executescript("DROP TABLE response_items; DROP TRIGGER response_deleted; PRAGMA user_version = 0")
    connection.close()
    for _ in range(2):
        async with _opened(path) as database:
            found = await database.find_items("alice", [*IDS, ""])
            assert {item_id: getattr(item, "content", None) for item_id, item in found.items()} == {"i0": "b", "i1": "out"}
    async with _opened(path) as database:
        assert await database.delete("alice", "resp_1")
        assert set(await database.find_items("alice", IDS)) == {"i1"}


@asynccontextmanager
async def _opened(path: Path) -> AsyncIterator[Database]:
    database = Database(path)
    try:
        yield database
    finally:
        database.close()
