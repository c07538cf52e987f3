"""The HTTP side over real sockets: what each endpoint answers, of Responses that live, have ended, or are in the store only."""

import gc
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from engine.rollout import Rollout
from engine.testing import eventually
from engine.testing.models import FakeModel, say, stop
from engine.testing.tools import FakeSearch
from protocol.grammar import check

from .http_support import (
    CALL,
    NEVER,
    Json,
    Served,
    body,
    events,
    get,
    ok,
    output,
    post,
    refused,
    request_bytes,
    reset,
    said,
    served,
)

APPEND = {"continuation": "append"}
COLD: Json = {"finished": 0}
"""Ended Responses are forgotten at once: they come from the store."""


def steady(response: Json) -> Json:
    """A Response but for what only its end knows."""
    return {name: value for name, value in response.items() if name not in ("engine", "required_input")}


async def create(http: httpx2.AsyncClient, *steps: Json, **fields: Any) -> Json:
    return await post(http, "responses", body(*steps, **fields))


async def go_on(http: httpx2.AsyncClient, previous: Json, *items: Json, **fields: Any) -> httpx2.Response:
    sent = {"model": "scripted", "previous_response_id": previous["id"], "input": list(items), **fields}
    return await http.post("responses", json=sent)


# ---- create


async def test_a_model_that_samples_half_a_character_fails_though_nobody_reads_its_events() -> None:
    bugs: list[BaseException] = []
    model = FakeModel(say("a"), say("b", "\ud800", "c"), stop())
    async with served(model, on_bug=bugs.append) as it, it.client() as http:
        response = await post(http, "responses", {"model": "fake", "input": "x"})
        assert (response["status"], said(response), len(bugs)) == ("failed", "a", 1)


async def test_a_response_that_is_forgotten_is_freed_at_once() -> None:
    """Without the help of Python's collector of circles, which stops the whole server for as long as it takes."""

    def rollouts() -> int:
        return sum(isinstance(one, Rollout) for one in gc.get_objects())

    async with served(finished=0) as it, it.client() as http:
        gc.collect()
        before = rollouts()
        gc.disable()
        try:
            await create(http, {"say": "x"})
            async with events(http, "POST", "responses", json=body({"say": "x"}, stream=True)) as stream:
                await stream.until("response.completed")
            await eventually(lambda: not it.server.engine.live)
            assert rollouts() == before
        finally:
            gc.enable()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_that_is_cancelled_ends_what_lives_in_its_requests(stream: bool) -> None:
    async with served() as it:
        async with await trio.open_tcp_stream("127.0.0.1", it.port) as client:
            await client.send_all(request_bytes("POST", "/v1/responses", body(NEVER, pace=100, stream=stream)))
            await eventually(lambda: bool(it.server.engine.live))
            it.server.engine._nursery.cancel_scope.cancel()  # type: ignore[union-attr]
            await eventually(lambda: not it.server.engine.live)
        (row,) = it.server.services.ledger.rows  # type: ignore[attr-defined]
        assert (row.status, row.reason) == ("incomplete", "server_shutdown")


async def test_create_as_json() -> None:
    async with served() as it, it.client() as http:
        response = await create(http, {"reason": "Well."}, {"say": "Hello."}, metadata={"a": "b"})
        assert (response["object"], response["status"]) == ("response", "completed")
        assert said(response) == "Hello."
        assert response["metadata"] == {"a": "b"}
        assert "required_input" not in response


async def test_create_as_json_waits_for_a_model_that_takes_many_steps() -> None:
    model = FakeModel(*[say(f"{number} ") for number in range(20)], stop())
    async with served(model) as it, it.client() as http:
        response = await post(http, "responses", {"model": "fake", "input": "x"})
        assert said(response) == "".join(f"{number} " for number in range(20))


async def test_create_as_events() -> None:
    async with served() as it, it.client() as http:
        sent = body({"reason": "Well."}, {"say": {"tokens": 50}}, CALL, stream=True)
        async with events(http, "POST", "responses", json=sent) as stream:
            frames = await stream.rest()
            assert stream.done
        trace = check(frames)
        assert trace.last_sequence_number == len(frames) - 1
        assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
        final = frames[-1]["response"]
        assert frames[-1]["type"] == "response.completed"
        assert [item["type"] for item in final["output"]] == ["reasoning", "message", "function_call"]
        assert await get(http, f"responses/{final['id']}") == final


async def test_a_stream_says_that_it_must_not_be_held_back() -> None:
    sent = body({"say": "x"}, stream=True)
    async with served() as it, it.client() as http, events(http, "POST", "responses", json=sent) as stream:
        assert stream.headers["cache-control"] == "no-cache"
        assert stream.headers["x-accel-buffering"] == "no"
        await stream.rest()


# ---- retrieve


@pytest.mark.parametrize("config", [{}, COLD], ids=["held", "from the store"])
async def test_retrieve_what_has_ended(config: Json) -> None:
    async with served(**config) as it, it.client() as http:
        response = await create(http, CALL)
        await eventually(lambda: not it.server.engine.live)
        assert bool(it.server.engine._finished) == (config == {})
        assert await get(http, f"responses/{response['id']}") == response


async def test_retrieve_what_lives() -> None:
    async with served() as it, it.client() as http:
        started = await create(http, {"say": "First."}, NEVER, pace=200, background=True)
        assert (started["status"], started["background"], started["output"]) == ("in_progress", True, [])
        path = f"responses/{started['id']}"
        while not (now := await get(http, path))["output"]:
            await trio.sleep(0.01)
        assert steady(now) == {**steady(started), "output": now["output"]}
        assert said(now) == "First."
        await post(http, f"{path}/cancel")


# ---- its events again


async def first_events(http: httpx2.AsyncClient, sent: Json) -> list[str]:
    async with events(http, "POST", "responses", json={**sent, "stream": True}) as stream:
        await stream.rest()
        return stream.texts


async def events_after(http: httpx2.AsyncClient, response_id: str, cursor: int | None) -> list[str]:
    query = {"stream": "true"} | ({} if cursor is None else {"starting_after": str(cursor)})
    async with events(http, "GET", f"responses/{response_id}", params=query) as stream:
        await stream.rest()
        assert stream.done
        return stream.texts


@pytest.mark.parametrize("config", [{}, COLD, {"reuse": frozenset()}, {**COLD, "reuse": frozenset()}], ids=str)
async def test_the_events_of_what_has_ended_are_the_same_byte_for_byte(config: Json, tmp_path: Path) -> None:
    async with served(data=tmp_path / "books", **config) as it, it.client() as http:
        texts = await first_events(http, body({"reason": "Hm."}, {"say": {"tokens": 30}}, CALL))
        response_id = json.loads(texts[0])["response"]["id"]
        await eventually(lambda: not it.server.engine.live)
        for cursor in (None, -1, 0, 7, len(texts) - 2, len(texts) - 1):
            assert await events_after(http, response_id, cursor) == texts[(-1 if cursor is None else cursor) + 1 :]
        path = f"responses/{response_id}?stream=true&starting_after="
        assert refused(await http.get(f"{path}{len(texts)}")) == (400, "invalid_cursor")
        assert refused(await http.get(f"{path}-2")) == (400, "invalid_value")
        assert refused(await http.get(f"{path}x")) == (400, "invalid_type")


async def test_the_events_of_what_lives_are_the_same_byte_for_byte() -> None:
    async with served() as it, it.client() as http:
        sent = body({"say": {"tokens": 60}}, {"say": "End."}, pace=300, background=True, stream=True)
        others: dict[int, list[str]] = {}

        async def listen(response_id: str, cursor: int) -> None:
            async with it.client() as other:
                others[cursor] = await events_after(other, response_id, cursor)

        async with events(http, "POST", "responses", json=sent) as stream, trio.open_nursery() as nursery:
            response_id = (await stream.until("response.created"))["response"]["id"]
            while len(stream.texts) < 12:
                await stream.next()
            for cursor in (-1, 0, 10):
                nursery.start_soon(listen, response_id, cursor)
            await stream.rest()
        assert sorted(others) == [-1, 0, 10]
        assert all(texts == stream.texts[cursor + 1 :] for cursor, texts in others.items())


# ---- delete


@pytest.mark.parametrize("config", [{}, COLD], ids=["held", "from the store"])
async def test_delete_what_has_ended(config: Json) -> None:
    async with served(**config) as it, it.client() as http:
        response = await create(http, {"say": "x"})
        path = f"responses/{response['id']}"
        assert ok(await http.delete(path)) == {"id": response["id"], "object": "response", "deleted": True}
        for answer in (
            await http.get(path),
            await http.get(f"{path}?stream=true"),
            await http.get(f"{path}/input_items"),
            await http.delete(path),
            await http.post(f"{path}/cancel"),
        ):
            assert refused(answer) == (404, "response_not_found")
        assert refused(await go_on(http, response)) == (400, "previous_response_not_found")


async def test_delete_what_lives() -> None:
    async with served() as it, it.client() as http, it.client() as other:
        sent = body(NEVER, pace=100, background=True, stream=True, idempotency_key="k")
        async with events(http, "POST", "responses", json=sent) as stream:
            response_id = (await stream.until("response.created"))["response"]["id"]
            assert ok(await other.delete(f"responses/{response_id}"))["deleted"] is True
            assert (await stream.rest())[-1]["response"]["status"] == "cancelled"
        assert refused(await other.get(f"responses/{response_id}")) == (404, "response_not_found")
        assert not it.server.engine.live
        again = await post(other, "responses", {**sent, "stream": False})
        assert again["id"] != response_id
        await post(other, f"responses/{again['id']}/cancel")


# ---- cancel


@pytest.mark.parametrize("config", [{}, COLD], ids=["held", "from the store"])
async def test_cancel_a_background_response_again_and_again(config: Json) -> None:
    async with served(**config) as it, it.client() as http:
        started = await create(http, NEVER, pace=100, background=True)
        path = f"responses/{started['id']}/cancel"
        first = await post(http, path)
        assert first["status"] == "cancelled"
        await eventually(lambda: not it.server.engine.live)
        assert await post(http, path) == first
        completed = await create(http, {"say": "x"}, background=True)
        await eventually(lambda: not it.server.engine.live)
        assert (await post(http, f"responses/{completed['id']}/cancel"))["status"] == "completed"


@pytest.mark.parametrize("config", [{}, COLD], ids=["held", "from the store"])
async def test_cancel_is_refused_for_what_is_not_in_the_background(config: Json) -> None:
    async with served(**config) as it, it.client() as http, it.client() as other:
        async with events(http, "POST", "responses", json=body(NEVER, pace=100, stream=True)) as stream:
            live = (await stream.until("response.created"))["response"]["id"]
            assert refused(await other.post(f"responses/{live}/cancel")) == (400, "invalid_value")
        ended = await create(other, {"say": "x"})
        await eventually(lambda: not it.server.engine.live)
        assert refused(await other.post(f"responses/{ended['id']}/cancel")) == (400, "invalid_value")


# ---- input items


@pytest.mark.parametrize("config", [{}, COLD], ids=["held", "from the store"])
async def test_input_items_in_pages(config: Json) -> None:
    items = [{"type": "message", "role": "user", "content": f"message {number}"} for number in range(24)]
    async with served(**config) as it, it.client() as http:
        sent = {"model": "scripted", "input": [*items, {"role": "user", "content": '{"program": [{"say": "x"}]}'}]}
        response = await post(http, "responses", sent)
        await eventually(lambda: not it.server.engine.live)
        path = f"responses/{response['id']}/input_items"
        newest = await get(http, path)
        assert (newest["object"], len(newest["data"]), newest["has_more"]) == ("list", 20, True)
        assert (newest["first_id"], newest["last_id"]) == (newest["data"][0]["id"], newest["data"][-1]["id"])
        older = await get(http, path, after=newest["last_id"])
        assert (len(older["data"]), older["has_more"]) == (5, False)
        everything = await get(http, path, limit=100, order="asc")
        assert everything["data"] == [*newest["data"], *older["data"]][::-1]
        texts = [item["content"][0]["text"] for item in everything["data"]]
        assert texts[:24] == [f"message {number}" for number in range(24)]
        assert len({item["id"] for item in everything["data"]}) == 25
        two = await get(http, path, limit=2, order="asc", after=everything["data"][3]["id"])
        assert two["data"] == everything["data"][4:6]
        end = await get(http, path, order="asc", after=everything["last_id"])
        assert (end["data"], end["first_id"], end["has_more"]) == ([], None, False)
        for query in ({"limit": 0}, {"limit": 101}, {"order": "up"}, {"after": "msg_none"}):
            assert refused(await http.get(path, params=query)) == (400, "invalid_value")


async def test_input_items_keep_their_own_ids_and_fields() -> None:
    sent = [
        {"type": "message", "id": "msg_mine", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}", "color": "blue"},
        output("call_1"),
        {"role": "user", "content": '{"program": [{"say": "x"}]}'},
    ]
    async with served() as it, it.client() as http:
        response = await post(http, "responses", {"model": "scripted", "input": sent})
        first = await get(http, f"responses/{response['id']}/input_items", order="asc")
        assert first["data"][0] == {**sent[0], "status": "completed"}
        assert first["data"][1] == {**sent[1], "id": first["data"][1]["id"], "status": "completed"}
        assert await get(http, f"responses/{response['id']}/input_items", order="asc") == first


# ---- the append shape


async def test_append_over_http() -> None:
    async with served() as it, it.client() as http:
        parked = await create(http, CALL, {"say": "It is {{output}}."}, **APPEND)
        assert parked["status"] == "in_progress"
        (stub,) = parked["required_input"]
        assert (stub["type"], stub["name"]) == ("function_call_output", "f")
        path = f"responses/{parked['id']}"
        assert await get(http, path) == parked
        accepted = await post(http, f"{path}/append", {"input": [output(stub["call_id"], "blue")]})
        assert accepted["type"] == "response.append.accepted"
        assert accepted["append"]["call_ids"] == [stub["call_id"]]
        texts = await events_after(http, parked["id"], -1)
        frames = [json.loads(text) for text in texts]
        check(frames, append_shape=True)
        assert frames[accepted["sequence_number"]] == accepted
        assert said(frames[-1]["response"]) == "It is blue."
        assert "required_input" not in await get(http, path)
        items = (await get(http, f"{path}/input_items", order="asc"))["data"]
        assert [item["type"] for item in items] == ["message", "function_call_output"]
        late = await http.post(f"{path}/append", json={"input": [output(stub["call_id"])]})
        assert refused(late) == (409, "response_not_active")


async def test_a_stream_goes_on_over_parks() -> None:
    async with served() as it, it.client() as http, it.client() as other:
        sent = body(CALL, CALL, {"say": "End."}, **APPEND, stream=True)
        async with events(http, "POST", "responses", json=sent) as stream:
            for _ in range(2):
                done = await stream.until("response.done")
                call_id = done["required_input"][0]["call_id"]
                await post(other, f"responses/{done['response']['id']}/append", {"input": [output(call_id)]})
            assert (await stream.until("response.completed"))["response"]["status"] == "completed"


async def test_an_append_that_is_wrong_changes_nothing() -> None:
    async with served() as it, it.client() as http:
        parked = await create(http, CALL, {"say": "End."}, **APPEND)
        path = f"responses/{parked['id']}/append"
        for sent, expected in (
            ({"input": [output("call_nobody")]}, (404, "tool_call_not_found")),
            ({"input": []}, (400, "invalid_value")),
            ({}, (400, "missing_required_parameter")),
            ([], (400, "invalid_frame")),
        ):
            assert refused(await http.post(path, json=sent)) == expected
        assert await get(http, f"responses/{parked['id']}") == parked
        cancelled = await post(http, f"responses/{parked['id']}/cancel")
        assert cancelled["status"] == "cancelled"


async def test_an_append_to_another_shape_is_refused() -> None:
    async with served() as it, it.client() as http:
        started = await create(http, NEVER, pace=100, background=True)
        answer = await http.post(f"responses/{started['id']}/append", json={"input": [output("call_1")]})
        assert refused(answer) == (409, "response_not_active")
        await post(http, f"responses/{started['id']}/cancel")


async def test_whoever_asks_keeps_a_parked_response_alive() -> None:
    async with served(detach_seconds=0.5) as it, it.client() as http:
        parked = await create(http, CALL, CALL, {"say": "End."}, **APPEND)
        path = f"responses/{parked['id']}"
        for _ in range(3):
            await trio.sleep(0.2)
            assert (await get(http, path))["status"] == "in_progress"
        async with events(http, "GET", path, params={"stream": "true"}) as stream:
            await trio.sleep(0.6)
            call_id = (await stream.until("response.done"))["required_input"][0]["call_id"]
            async with it.client() as other:
                await post(other, f"{path}/append", {"input": [output(call_id)]})
            await stream.until("response.done")
        rollout = it.server.engine.live[parked["id"]]
        await rollout.over()
        assert (await get(http, path))["incomplete_details"] == {"reason": "detached_timeout"}


# ---- background


async def test_background_with_polling() -> None:
    async with served() as it, it.client() as http:
        now = await create(http, {"say": {"tokens": 30}}, pace=300, background=True)
        seen = [now["status"]]
        while now["status"] == "in_progress":
            await trio.sleep(0.02)
            now = await get(http, f"responses/{now['id']}")
            seen.append(now["status"])
        assert (seen[0], seen[-1]) == ("in_progress", "completed")
        assert now["background"] is True
        assert now["usage"]["output_tokens"] == 30


async def test_background_with_a_stream_that_is_cut_and_taken_up() -> None:
    async with served() as it, it.client() as http:
        sent = body({"say": {"tokens": 60}}, pace=200, background=True, stream=True)
        async with events(http, "POST", "responses", json=sent) as stream:
            response_id = (await stream.until("response.created"))["response"]["id"]
            cursor = (await stream.until("response.output_text.delta"))["sequence_number"]
            texts = list(stream.texts)
        rest = await events_after(http, response_id, cursor)
        assert await events_after(http, response_id, -1) == texts + rest
        assert json.loads(rest[-1])["response"]["status"] == "completed"


async def test_background_is_stored() -> None:
    async with served() as it, it.client() as http:
        answer = await http.post("responses", json=body({"say": "x"}, background=True, store=False))
        assert refused(answer) == (400, "invalid_value")
        assert not it.server.services.ledger.rows  # type: ignore[attr-defined]


# ---- clients that drop


async def drop(it: Served, sent: Json) -> str:
    """Begin a Response, and drop the connection; returns its id."""
    async with await trio.open_tcp_stream("127.0.0.1", it.port) as stream:
        await stream.send_all(request_bytes("POST", "/v1/responses", sent))
        await eventually(lambda: bool(it.server.engine.live))
        (response_id,) = it.server.engine.live
        if sent.get("stream"):
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
        await reset(stream)
    return response_id


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_drops_cancels_its_response(stream: bool) -> None:
    async with served() as it, it.client() as http:
        response_id = await drop(it, body(NEVER, pace=100, stream=stream))
        await eventually(lambda: not it.server.engine.live)
        assert (await get(http, f"responses/{response_id}"))["status"] == "cancelled"
        assert [row.status for row in it.server.services.ledger.rows] == ["cancelled"]  # type: ignore[attr-defined]


async def test_a_client_that_drops_while_hosted_tools_run_side_by_side_cancels_its_response() -> None:
    search = FakeSearch(seconds=600)
    calls = [{"name": "file_search", "arguments": {"query": query}} for query in ("one", "two")]
    async with served() as it, it.client() as http:
        it.server.services.hosted = {"file_search": search}
        async with await trio.open_tcp_stream("127.0.0.1", it.port) as stream:
            sent = body({"calls": calls}, tools=[{"type": "file_search"}])
            await stream.send_all(request_bytes("POST", "/v1/responses", sent))
            await eventually(lambda: search.running == 2)
            (response_id,) = it.server.engine.live
            await reset(stream)
        await eventually(lambda: not it.server.engine.live)
        assert search.running == 0
        assert (await get(http, f"responses/{response_id}"))["status"] == "cancelled"


async def test_a_client_that_closes_politely_has_gone_too() -> None:
    async with served() as it, it.client() as http:
        async with events(http, "POST", "responses", json=body(NEVER, pace=100, stream=True)) as stream:
            await stream.until("response.created")
        await eventually(lambda: not it.server.engine.live)
        assert [row.status for row in it.server.services.ledger.rows] == ["cancelled"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("shape", [APPEND, {"background": True}], ids=["append", "background"])
async def test_a_client_that_drops_leaves_these_alone(stream: bool, shape: Json) -> None:
    async with served() as it, it.client() as http:
        response_id = await drop(it, body(NEVER, pace=200, stream=stream, **shape))
        rollout = it.server.engine.live[response_id]
        await eventually(lambda: not rollout.attached)
        assert rollout.live
        assert (await get(http, f"responses/{response_id}"))["status"] == "in_progress"
        await post(http, f"responses/{response_id}/cancel")


@pytest.mark.parametrize(
    ("fields", "left"), [({}, "cancelled"), ({"background": True}, "completed")], ids=["plain", "background"]
)
async def test_a_client_that_drops_before_its_response_has_begun(fields: Json, left: str) -> None:
    model = FakeModel(*[say("x")] * 3, stop())
    async with served(model) as it, it.client() as http:
        held = trio.Event()
        get_stored = it.server.services.store.get
        previous = await create(http, {"say": "x"})
        await eventually(lambda: not it.server.engine.live)
        it.server.engine._finished.clear()

        async def slowly(*key: str) -> Any:
            await held.wait()
            return await get_stored(*key)

        it.server.services.store.get = slowly  # type: ignore[method-assign]
        sent = {"model": "fake", "input": "x", "previous_response_id": previous["id"], **fields}
        async with await trio.open_tcp_stream("127.0.0.1", it.port) as stream:
            await stream.send_all(request_bytes("POST", "/v1/responses", sent))
            await eventually(lambda: bool(it.server.engine._starting))
            await reset(stream)
        await eventually(lambda: len(it.server._https) == 1)
        held.set()
        await eventually(lambda: not it.server.engine._starting and not it.server.engine.live)
        statuses = [row.status for row in it.server.services.ledger.rows]  # type: ignore[attr-defined]
        assert statuses == ["completed", left]


# ---- idempotency


async def test_the_same_create_again_is_the_same_response() -> None:
    async with served() as it, it.client() as http:
        sent = body({"say": "Once."}, idempotency_key="k")
        first = await post(http, "responses", sent)
        assert await post(http, "responses", sent) == first
        other = await http.post("responses", json={**sent, "instructions": "Be brief."})
        assert refused(other) == (409, "idempotency_conflict")
        streamed = {**body({"say": "Twice."}, idempotency_key="s"), "stream": True}
        assert await first_events(http, streamed) == await first_events(http, streamed)


async def test_a_retry_of_what_was_dropped_is_answered() -> None:
    async with served() as it, it.client() as http:
        sent = body({"say": {"tokens": 20}}, pace=100, idempotency_key="k")
        dropped = await drop(it, sent)
        rollout = it.server.engine.live[dropped]
        await eventually(lambda: rollout.abandoned)
        retried = await post(http, "responses", sent)
        assert (retried["status"], retried["id"] == dropped) == ("completed", False)
        assert await post(http, "responses", sent) == retried


# ---- chains


async def test_store_false_is_not_stored() -> None:
    async with served() as it, it.client() as http:
        response = await create(http, {"say": "x"}, store=False)
        assert (response["store"], said(response)) == (False, "x")
        path = f"responses/{response['id']}"
        for answer in (
            await http.get(path),
            await http.get(f"{path}?stream=true"),
            await http.get(f"{path}/input_items"),
            await http.delete(path),
        ):
            assert refused(answer) == (404, "response_not_found")
        assert refused(await go_on(http, response)) == (400, "previous_response_not_found")
        assert await it.server.services.store.get("everybody", response["id"]) is None


@pytest.mark.parametrize("config", [{}, COLD, {"reuse": frozenset()}], ids=["held", "from the store", "no reuse"])
async def test_a_chain_and_a_fork_of_it(config: Json, tmp_path: Path) -> None:
    steps = (CALL, CALL, {"say": "{{output}}"})
    async with served(data=tmp_path / "books", **config) as it, it.client() as http:
        first = await create(http, *steps)
        second = ok(await go_on(http, first, output(first["output"][0]["call_id"], "one")))
        call_id = second["output"][0]["call_id"]
        ends = [ok(await go_on(http, second, output(call_id, text))) for text in ("left", "right")]
        assert [said(end) for end in ends] == ["left", "right"]
        assert [end["previous_response_id"] for end in ends] == [second["id"]] * 2
        assert refused(await go_on(http, second)) == (400, "tool_output_missing")
        items = (await get(http, f"responses/{second['id']}/input_items"))["data"]
        assert [item["type"] for item in items] == ["function_call_output"]


async def test_a_chain_goes_on_after_a_restart(tmp_path: Path) -> None:
    steps = (CALL, CALL, CALL, {"say": "{{output}}"})
    last: Json = {}
    texts: list[str] = []
    for seed in range(4):  # a server for each turn
        async with served(data=tmp_path / "books", seed=seed) as it, it.client() as http:
            if not last:
                last = await create(http, *steps)
            else:
                sent = [output(last["output"][0]["call_id"], f"result {seed}")]
                request = {"model": "scripted", "previous_response_id": last["id"], "input": sent}
                texts = await first_events(http, request)
                last = json.loads(texts[-1])["response"]
    assert said(last) == "result 3"
    async with served(data=tmp_path / "books", seed=9) as it, it.client() as http:
        assert await get(http, f"responses/{last['id']}") == last
        assert await events_after(http, last["id"], 3) == texts[4:]
        whole = await post(http, "responses/input_tokens", {"previous_response_id": last["id"], "input": "and now?"})
        assert whole["input_tokens"] > last["usage"]["input_tokens"] + last["usage"]["output_tokens"]


@pytest.mark.parametrize("config", [{}, COLD], ids=["held", "from the store"])
async def test_what_continues_a_deleted_response_is_lost_with_it(config: Json) -> None:
    async with served(**config) as it, it.client() as http:
        first = await create(http, CALL, {"say": "End."})
        second = ok(await go_on(http, first, output(first["output"][0]["call_id"])))
        ok(await http.delete(f"responses/{first['id']}"))
        assert said(await get(http, f"responses/{second['id']}")) == "End."
        answer = await go_on(http, second, {"role": "user", "content": "more"})
        assert refused(answer) == (400, "previous_response_not_found")


# ---- beside Responses


async def test_input_tokens_are_what_a_create_would_use() -> None:
    tools = [{"type": "function", "name": "f", "description": "does f", "parameters": {"type": "object"}}]
    sent = body({"say": "x"}, instructions="Be brief.", tools=tools)
    async with served() as it, it.client() as http:
        counted = await post(http, "responses/input_tokens", sent)
        response = await post(http, "responses", sent)
        assert counted == {"object": "response.input_tokens", "input_tokens": response["usage"]["input_tokens"]}
        del sent["model"]
        assert await post(http, "responses/input_tokens", sent) == counted
        assert [row.response_id for row in it.server.services.ledger.rows] == [response["id"]]  # type: ignore[attr-defined]


async def test_a_compaction_begins_another_chain() -> None:
    async with served() as it, it.client() as http:
        first = await create(http, {"say": {"tokens": 300}}, CALL, {"say": "End."})
        second = ok(await go_on(http, first, output(first["output"][-1]["call_id"], "blue")))
        compacted = await post(http, "responses/compact", {"model": "scripted", "previous_response_id": second["id"]})
        assert compacted["object"] == "response.compaction"
        assert [item["type"] for item in compacted["output"]] == ["message", "compaction"]
        assert compacted["usage"]["input_tokens"] > first["usage"]["input_tokens"]
        sent = [*compacted["output"], {"role": "user", "content": '{"program": [{"say": "Anew."}]}'}]
        third = await post(http, "responses", {"model": "scripted", "input": sent})
        assert said(third) == "Anew."
        assert third["usage"]["input_tokens"] < second["usage"]["input_tokens"] + second["usage"]["output_tokens"]


async def test_models() -> None:
    async with served(FakeModel()) as it, it.client() as http:
        listed = await get(http, "models")
        assert [model["id"] for model in listed["data"]] == ["scripted", "fake"]
        assert await get(http, "models/fake") == listed["data"][1]
        assert refused(await http.get("models/oracle")) == (404, "model_not_found")


async def test_health_and_readiness() -> None:
    async with served(keys=("k",)) as it, it.client() as http:
        health, ready = it.url("/healthz"), it.url("/readyz")
        assert ok(await http.get(health))["status"] == "ok"
        assert ok(await http.get(ready)) == {"status": "ready"}
        it.server.engine.closing = True
        assert ok(await http.get(health))["status"] == "ok"
        answer = await http.get(ready)
        assert refused(answer) == (503, "shutting_down")
        assert answer.headers["retry-after"] == "1"


# ---- HTTP itself


@pytest.mark.parametrize("query", ["", "?stream=true"])
async def test_head_is_get_without_a_body(query: str) -> None:
    async with served() as it, it.client() as http:
        response = await create(http, {"say": "x"})
        path = f"responses/{response['id']}{query}"
        answer = await http.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-type"] == (await http.get(path)).headers["content-type"]
        answer = await http.head("responses/resp_none")
        assert (answer.status_code, answer.content) == (404, b"")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("responses", "GET, HEAD, OPTIONS, POST"),
        ("responses/resp_1", "DELETE, GET, HEAD, OPTIONS"),
        ("responses/resp_1/cancel", "OPTIONS, POST"),
        ("responses/resp_1/append", "OPTIONS, POST"),
        ("responses/resp_1/input_items", "GET, HEAD, OPTIONS"),
        ("responses/input_tokens", "OPTIONS, POST"),
        ("responses/compact", "OPTIONS, POST"),
        ("models", "GET, HEAD, OPTIONS"),
        ("conversations", "OPTIONS, POST"),
        ("conversations/conv_1", "DELETE, GET, HEAD, OPTIONS, POST"),
        ("conversations/conv_1/items", "GET, HEAD, OPTIONS, POST"),
        ("conversations/conv_1/items/msg_1", "DELETE, GET, HEAD, OPTIONS"),
    ],
)
async def test_which_methods_are_served(path: str, allowed: str) -> None:
    async with served() as it, it.client() as http:
        answer = await http.options(path)
        assert (answer.status_code, answer.headers["allow"]) == (204, allowed)
        answer = await http.put(path, json={})
        assert refused(answer) == (405, "method_not_allowed")
        assert answer.headers["allow"] == allowed


async def test_what_is_not_served() -> None:
    async with served() as it, it.client() as http:
        for path in ("respond", "responses/resp_1/forget", "conversations/conv_1/items/msg_1/x", "/"):
            assert refused(await http.get(path)) == (404, "not_found")


@pytest.mark.parametrize("headers", [{"content-type": "text/plain"}, {"content-encoding": "gzip"}], ids=str)
@pytest.mark.parametrize("path", ["responses", "responses/input_tokens", "responses/compact", "conversations"])
async def test_a_body_that_is_not_plain_json_is_415(path: str, headers: dict[str, str]) -> None:
    async with served() as it, it.client() as http:
        answer = await http.post(path, content=b"{}", headers={"content-type": "application/json", **headers})
        assert refused(answer) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[]", "invalid_frame"),
        (b"{}", "missing_required_parameter"),
        (b'{"model": 1}', "invalid_type"),
    ],
)
async def test_a_body_that_is_no_create(content: bytes, code: str) -> None:
    async with served() as it, it.client() as http:
        answer = await http.post("responses", content=content, headers={"content-type": "application/json"})
        assert refused(answer) == (400, code)


async def test_a_body_in_chunks() -> None:
    async def chunks() -> Any:
        for byte in json.dumps(body({"say": "In pieces."})).encode():
            yield bytes([byte])

    async with served() as it, it.client() as http:
        answer = await http.post("responses", content=chunks(), headers={"content-type": "application/json"})
        assert answer.request.headers["transfer-encoding"] == "chunked"
        assert said(ok(answer)) == "In pieces."


async def test_a_body_that_asks_first() -> None:
    content = json.dumps(body({"say": "x"})).encode()
    head = b"Host: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(content)
    async with served() as it:
        async with await trio.open_tcp_stream("127.0.0.1", it.port) as stream:
            await stream.send_all(b"POST /v1/responses HTTP/1.1\r\n" + head)
            told = bytes(await stream.receive_some())
            assert told.startswith(b"HTTP/1.1 100 ")
            await stream.send_all(content)
            answer = bytes(await stream.receive_some())
            assert answer.startswith(b"HTTP/1.1 200 ")
        refusal = await it.raw(b"POST /v1/respond HTTP/1.1\r\n" + head)
        assert refusal.startswith(b"HTTP/1.1 404 ")


async def test_many_requests_on_one_connection() -> None:
    async with served() as it, it.client() as http:
        for number in range(5):
            assert said(await create(http, {"say": f"{number}"})) == f"{number}"
            assert refused(await http.get("responses/resp_none")) == (404, "response_not_found")
            assert (await http.post("responses", json=body({"say": "x"}, stream=True))).text.endswith("data: [DONE]\n\n")
        assert it.server.connections == 1
