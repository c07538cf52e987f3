"""A smaller set of the laws over real sockets on loopback, without virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given

from engine.config import Config
from engine.server import Server, listening
from engine.testing import (
    FakeSearch,
    SocketTransport,
    append,
    calls_in,
    create,
    eventually,
    make_services,
    numbered,
    result,
    socket_transport,
)
from engine.testing.profile import examples
from engine.testing.servers import TestBooks
from protocol.conformance.append.conversations import conversations
from protocol.conformance.append.machine import play
from protocol.conformance.append.moves import Conversation
from protocol.conformance.transport import Closed
from protocol.grammar import check, check_replay


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[Server, SocketTransport, TestBooks]]:
    """A server on a port of loopback, and a way to it."""
    services = make_services(config=Config(finished=1000, **options), hosted={"file_search": FakeSearch()})
    server = Server(services)
    books = TestBooks(services, server.engine)
    services.on_bug = books.bugs.append
    with trio.fail_after(60):
        async with listening(server) as port, socket_transport(f"http://127.0.0.1:{port}") as transport:
            yield server, transport, books
    books.raise_bugs()


@examples(4)
@given(conversations(hosted=True, long_sleeps=False, quick=True))
def test_machine_over_sockets(conversation: Conversation) -> None:
    async def main() -> None:
        async with served() as (_, transport, books):
            await play(conversation, transport, books=books)

    trio.run(main)


STEPS: list[Any] = [{"say": "let me see"}, {"calls": [{"name": "a"}, {"name": "b"}]}, {"say": "{{output}}"}]


def test_l09_over_sockets() -> None:
    async def main() -> None:
        async with served() as (server, transport, _):
            first = await transport.connect()
            await first.send(create(*STEPS))
            seen = await first.until("response.done")
            await first.drop()
            await eventually(lambda: server.connections == 0)
            second = await transport.connect()
            attach = {"type": "response.attach", "response_id": seen[0]["response"]["id"], "starting_after": 4}
            await second.send(attach)
            for call in calls_in(seen):
                await second.send(append(result(call, call["name"])))
            frames = await second.until_end()
            check_replay(seen, 4, frames)
            assert frames[-1]["response"]["output"][-1]["content"][0]["text"] == "b"

    trio.run(main)


def test_l10_two_sockets_race() -> None:
    """Two sockets answer the same call at once: one is acknowledged, the other hears of a conflict."""

    async def main() -> None:
        async with served() as (_, transport, books):
            owner, other = await transport.connect(), await transport.connect()
            await owner.send(create({"call": {"name": "a"}}, {"say": "{{output}}"}, hold="conversation"))
            frames = await owner.until("response.done")
            (call,), response_id = calls_in(frames), frames[0]["response"]["id"]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(owner.send, append(result(call, "owner's"), response_id=response_id))
                nursery.start_soon(other.send, append(result(call, "other's"), response_id=response_id))
            frames += await owner.until("response.done")
            said = frames[-2]["item"]["content"][0]["text"]
            heard = [await other.receive()] if said == "owner's" else [one for one in frames if one["type"] == "error"]
            assert [frame["code"] for frame in heard] == ["tool_output_conflict"]
            await owner.send({"type": "response.finish"})
            frames += await owner.until_end()
            check(numbered(frame for frame in frames if frame["type"] != "error"), append_shape=True)
            kept = [item["output"] for item in books.context(response_id) or [] if item["type"] == "function_call_output"]
            assert kept == [said]

    trio.run(main)


def test_l11_a_reader_that_stops_over_sockets() -> None:
    async def main() -> None:
        async with served(outbox_bytes=20_000) as (server, transport, _):
            slow, quick = await transport.connect(), await transport.connect()
            await slow.send(create({"say": {"tokens": 40_000}}))
            await quick.send(create({"say": {"tokens": 2000}}))
            assert (await quick.until_end())[-1]["response"]["status"] == "completed"
            (stalled,) = server.engine.live.values()
            said = -1
            while said != stalled.log.next:
                said = stalled.log.next
                await trio.sleep(0.2)
            assert said < 40_000
            check(await slow.until_end())

    trio.run(main)


def test_l12_shutdown_over_sockets() -> None:
    async def main() -> None:
        async with served(grace_seconds=0.2) as (server, transport, books):
            socket = await transport.connect()
            await socket.send(create(*STEPS))
            frames = await socket.until("response.done")
            server.stop()
            frames += await socket.until_end()
            assert frames[-1]["response"]["incomplete_details"]["reason"] == "server_shutdown"
            with pytest.raises(Closed):
                await socket.receive()
            assert socket.close_code == 1001
            assert len(books.rows(frames[0]["response"]["id"])) == 1

    trio.run(main)
