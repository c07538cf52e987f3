"""L11 bounded: memory per lane has a cap; a reader that stops stalls its own Response only; nothing is left behind."""

import gc
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.audience import RUN
from engine.config import Config
from engine.rollout import Rollout
from engine.session import Session
from engine.testing import (
    FakeModel,
    append,
    calls_in,
    create,
    direct_server,
    memory_server,
    result,
    say,
    stop,
    virtually,
)
from engine.testing.profile import examples
from protocol.conformance.transport import Closed
from protocol.grammar import check

LIMIT = 4_000
LONG: list[Any] = [{"say": {"tokens": 3000}}]


def test_l11_a_reader_that_stops_stalls_its_own_response() -> None:
    async def main() -> None:
        async with direct_server(config=Config(outbox_bytes=LIMIT)) as server:
            slow, quick = await server.connect(), await server.connect()
            await slow.send(create(*LONG))
            await server.settle()
            stalled = next(iter(server.engine.live.values()))
            said = stalled.log.next
            assert said < 1000, "the loop waits for its reader"
            assert slow._wire.waiting < LIMIT + RUN * 200, "the limit, and at most one run of deltas"
            await quick.send(create(*LONG))
            frames = await quick.until_end()
            assert len(frames) > 3000
            await trio.sleep(1000)
            assert stalled.log.next <= said + 40, "but for heartbeats it has gone no further"
            check([*await slow.until_end()], append_shape=True)

    virtually(main)


def test_l11_a_reader_that_stops_in_the_middle_of_a_network() -> None:
    async def main() -> None:
        async with memory_server(config=Config(outbox_bytes=LIMIT, send_seconds=20)) as server:
            slow, quick = await server.connect(capacity=2000), await server.connect()
            await slow.send(create(*LONG, stream_id="a"))
            await server.settle()
            (stalled,) = server.engine.live.values()
            assert stalled.log.next < 1000
            await quick.send(create(*LONG))
            await quick.until_end()
            await trio.sleep(25)  # a peer that takes nothing for ``send_seconds`` is gone
            assert server.server.connections == 1
            response_id = stalled.id
            await quick.send({"type": "response.attach", "response_id": response_id})
            frames = await quick.until_end()
            check(frames[1:])
            while True:  # what was under way comes out, then the end
                try:
                    await slow.receive()
                except Closed:
                    break

    virtually(main)


def test_l11_lanes_of_a_slow_socket_keep_their_order() -> None:
    """Two Responses of one lane, both behind: the second begins when all of the first was said."""

    async def main() -> None:
        async with direct_server(config=Config(outbox_bytes=1000)) as server:
            socket = await server.connect()
            for lane in ("a", "b", "a", "b"):
                await socket.send(create({"say": "x" * 500}, {"say": "end"}, stream_id=lane))
            await socket.send({"type": "response.cancel", "stream_id": "a"})
            await server.settle()
            await trio.sleep(100)
            seen: dict[str, list[str]] = {"a": [], "b": []}
            while sum(kinds.count("response.completed") + kinds.count("response.incomplete") for kinds in seen.values()) < 4:
                frame = await socket.receive()
                if frame["type"] != "error":
                    seen[frame["stream_id"]].append(frame["type"])
            for kinds in seen.values():
                ends = [at for at, kind in enumerate(kinds) if kind in ("response.completed", "response.incomplete")]
                begins = [at for at, kind in enumerate(kinds) if kind == "response.created"]
                assert begins == [0, ends[0] + 1]

    virtually(main)


def test_l11_a_response_holds_no_more_than_its_cap() -> None:
    async def main() -> None:
        async with direct_server(config=Config(context_bytes=10_000)) as server:
            socket = await server.connect()
            await socket.send(create({"calls": [{"name": "a"}, {"name": "b"}]}, {"say": "done"}))
            calls = calls_in(await socket.until("response.done"))
            await socket.send(append(result(calls[0], "x" * 6000)))
            assert (await socket.receive())["type"] == "response.append.accepted"
            await socket.send(append(result(calls[1], "y" * 6000)))
            assert (await socket.receive())["code"] == "message_too_large"
            await socket.send(append(result(calls[1], "y")))
            assert (await socket.until_end())[-1]["response"]["status"] == "completed"

    virtually(main)


@examples(10)
@given(st.lists(st.sampled_from(["complete", "cancel", "drop", "fail", "park"]), min_size=1, max_size=6))
def test_l11_nothing_is_left(ways: list[str]) -> None:
    """No task, no Response, no session, whichever way they ended."""

    async def main() -> None:
        async with memory_server(config=Config(finished=0, detach_seconds=50)) as server:
            for way in ways:
                socket = await server.connect()
                steps: list[Any] = [{"fail": {}}] if way == "fail" else [{"call": {"name": "a"}}, {"say": "done"}]
                await socket.send(create(*steps))
                frames = await socket.until("response.done", "response.failed")
                if way == "complete":
                    await socket.send(append(result(calls_in(frames)[0])))
                    await socket.until_end()
                elif way == "cancel":
                    await socket.send({"type": "response.cancel"})
                    await socket.until_end()
                await (socket.drop() if way == "drop" else socket.aclose())
            await trio.sleep(100)
            await server.settle()
            assert server.leftovers() == []
            assert server.server.connections == 0
            assert len(server.services.ledger.rows) == len(ways)  # type: ignore[attr-defined]

    before = count_alive()
    virtually(main)
    assert count_alive() == before


def count_alive() -> int:
    gc.collect()
    return sum(isinstance(one, Rollout | Session) for one in gc.get_objects())


def test_l11_ended_responses_are_forgotten() -> None:
    async def main() -> None:
        async with direct_server(models=[FakeModel(say("x"), stop())], config=Config(finished=3)) as server:
            socket = await server.connect()
            ids: list[str] = []
            for _ in range(6):
                await socket.send(create(model="fake", idempotency_key=f"key-{len(ids)}"))
                ids.append((await socket.until_end())[0]["response"]["id"])
            for response_id in ids:
                await socket.send({"type": "response.attach", "response_id": response_id})
            kinds = [(await socket.receive()) for _ in range(3)]
            assert [frame["code"] for frame in kinds] == ["response_not_found"] * 3
            assert len(server.engine._finished) == 3
            assert len(server.engine._keys) == 3

    virtually(main)


def test_l11_a_peer_that_sends_and_does_not_read_is_bounded() -> None:
    """Answers to bad frames have to wait, too: who does not read them is cut off before they are many."""

    async def main() -> None:
        async with memory_server(config=Config(outbox_bytes=LIMIT)) as server:
            socket = await server.connect(capacity=2000)
            most = 0
            outboxes = [one for one in gc.get_objects() if type(one).__name__ == "FrameStream"]
            try:
                for _ in range(3000):
                    await socket.send("not json")
                    most = max(most, *(one.waiting for one in outboxes))
            except Closed:
                pass
            assert most < 400_000

    virtually(main)
