"""L9 held: a park survives the socket; attach at any cursor gives exactly the rest; frames of an older epoch are refused."""

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from engine.config import Config
from engine.testing import append, calls_in, create, memory_server, numbered, result, user, virtually
from engine.testing.profile import examples
from protocol.conformance.strategies import programs
from protocol.events import TERMINAL
from protocol.grammar import check_replay

STEPS: list[Any] = [
    {"say": "let me see"},
    {"calls": [{"name": "a"}, {"name": "b"}]},
    {"say": "got {{output}} and {{output_of:a}}"},
]
QUIET = ("response.done", *TERMINAL)


def ended(frames: list[dict[str, Any]]) -> bool:
    return any(frame["type"] in TERMINAL for frame in frames)


@examples(25)
@given(programs(), st.data())
def test_l09_attach_at_any_cursor(steps: list[Any], data: DataObject) -> None:
    """The socket is cut after any frame, also in the middle of a text; a client that attaches misses nothing."""

    async def main() -> None:
        async with memory_server() as server:
            socket = await server.connect()
            await socket.send(create(*steps, tokens_per_second=50))
            seen, most = [await socket.receive()], data.draw(st.integers(1, 12))
            while len(seen) < most and seen[-1]["type"] not in QUIET:
                seen.append(await socket.receive())
            cursor = data.draw(st.integers(-1, len(seen) - 1))
            await socket.drop()
            await trio.sleep(data.draw(st.sampled_from([0, 0.1, 3])))
            socket = await server.connect()
            response_id = seen[0]["response"]["id"]
            await socket.send({"type": "response.attach", "response_id": response_id, "starting_after": cursor})
            accepted = await socket.receive()
            assert accepted["type"] == "response.attach.accepted"
            assert accepted["starting_after"] == cursor
            frames: list[dict[str, Any]] = []
            while not ended([*seen[: cursor + 1], *frames]):
                frames += await socket.until(*QUIET)
                if frames[-1]["type"] == "response.done":
                    known = {call["call_id"]: call for call in calls_in([*seen[: cursor + 1], *frames])}
                    for stub in frames[-1]["required_input"]:
                        await socket.send(append(result(known[stub["call_id"]])))
            check_replay(seen, cursor, frames)

    virtually(main)


def test_l09_a_park_survives_the_socket_with_its_state() -> None:
    async def main() -> None:
        async with memory_server(config=Config(detach_seconds=300)) as server:
            first = await server.connect()
            await first.send(create(*STEPS))
            frames = await first.until("response.done")
            calls, response_id = calls_in(frames), frames[0]["response"]["id"]
            await first.send(append(result(calls[0], "one")))
            await first.until("response.append.accepted")
            await first.drop()
            await trio.sleep(299)
            second = await server.connect()
            cursor = frames[-1]["sequence_number"]
            await second.send({"type": "response.attach", "response_id": response_id, "starting_after": cursor})
            accepted, acknowledged = await second.receive(), await second.receive()
            assert accepted["last_sequence_number"] == cursor + 1
            assert acknowledged["append"]["call_ids"] == [calls[0]["call_id"]]
            await second.send(append(result(calls[1], "two")))
            end = (await second.until_end())[-1]["response"]
            assert end["output"][-1]["content"][0]["text"] == "got two and one"
            assert end["engine"]["parks"] == 1

    virtually(main)


def test_l09_what_nobody_attaches_to_is_let_go() -> None:
    async def main() -> None:
        async with memory_server(config=Config(detach_seconds=300)) as server:
            socket = await server.connect()
            await socket.send(create(*STEPS))
            response_id = (await socket.until("response.done"))[0]["response"]["id"]
            await socket.drop()
            await trio.sleep(300.5)
            (row,) = server.rows(response_id)
            assert (row["status"], row["reason"]) == ("incomplete", "detached_timeout")
            assert server.leftovers() == []

    virtually(main)


@pytest.mark.parametrize("kind", ["append", "cancel", "finish", "message"])
def test_l09_an_older_epoch_is_refused(kind: str) -> None:
    async def main() -> None:
        async with memory_server() as server:
            first, second = await server.connect(), await server.connect()
            await first.send(create(*STEPS))
            frames = await first.until("response.done")
            response_id, call = frames[0]["response"]["id"], calls_in(frames)[0]
            await second.send({"type": "response.attach", "response_id": response_id, "starting_after": -1})
            accepted = await second.receive()
            await second.until("response.done")
            told = await first.receive()
            assert (told["code"], told["response_id"]) == ("attached_elsewhere", response_id)
            wanted = {
                "append": append(result(call), response_id=response_id),
                "message": append(user("hi"), response_id=response_id),
            }
            await first.send(wanted.get(kind, {"type": f"response.{kind}", "response_id": response_id}))
            assert (await first.receive())["code"] == "stale_epoch"
            await first.send({"type": "response.attach", "response_id": response_id, "starting_after": 3})
            again = await first.receive()
            assert again["epoch"] > accepted["epoch"]
            assert (await first.receive())["sequence_number"] == 4
            assert (await second.receive())["code"] == "attached_elsewhere"
            await second.send(append(result(call), response_id=response_id))
            assert (await second.receive())["code"] == "stale_epoch"
            await first.send(append(result(call)))
            frames = await first.until("response.append.accepted")
            assert frames[-1]["append"]["duplicate"] is False

    virtually(main)


@pytest.mark.parametrize("cursor", [-2, 10_000])
def test_l09_a_cursor_that_cannot_be(cursor: int) -> None:
    async def main() -> None:
        async with memory_server() as server:
            socket = await server.connect()
            await socket.send(create(*STEPS))
            frames = await socket.until("response.done")
            attach = {"type": "response.attach", "response_id": frames[0]["response"]["id"], "starting_after": cursor}
            await socket.send(attach)
            assert (await socket.receive())["code"] == "invalid_cursor"
            await socket.send(append(result(calls_in(frames)[0])))  # it changed nothing: this socket still controls
            assert (await socket.receive())["type"] == "response.append.accepted"

    virtually(main)


def test_l09_an_ended_response_is_replayed_without_disturbing_who_saw_its_end() -> None:
    async def main() -> None:
        async with memory_server() as server:
            first, second = await server.connect(), await server.connect()
            await first.send(create({"say": "hi"}))
            frames = await first.until_end()
            await second.send({"type": "response.attach", "response_id": frames[0]["response"]["id"]})
            await second.receive()
            assert numbered(await second.until_end()) == numbered(frames)
            await first.send(create({"say": "ho"}))
            assert (await first.until_end())[0]["type"] == "response.created"

    virtually(main)
