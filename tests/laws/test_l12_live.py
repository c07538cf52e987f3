"""L12 live: each accepted frame is answered in bounded time; each park and each Response has a deadline; silence is broken."""

from typing import Any

import pytest
import trio

from engine.config import Config
from engine.testing import (
    HANG,
    Delay,
    FakeModel,
    FakeSearch,
    append,
    call,
    calls_in,
    create,
    memory_server,
    numbered,
    result,
    say,
    stop,
    user,
    virtually,
    wait,
)
from protocol.conformance.transport import Closed, Refused
from protocol.grammar import check

CALL: list[Any] = [{"call": {"name": "a"}}, {"say": "done"}]
CASES: dict[str, tuple[list[Any], dict[str, Any], dict[str, Any], float, tuple[str, str | None]]] = {
    "park": (CALL, {}, {"park_seconds": 70}, 70, ("incomplete", "tool_output_timeout")),
    "park for the user": ([{"say": "hi"}], {"hold": "conversation"}, {"park_seconds": 70}, 70, ("completed", None)),
    "response": (CALL, {}, {"park_seconds": 700, "response_seconds": 70}, 70, ("incomplete", "response_timeout")),
}


@pytest.mark.parametrize("name", list(CASES))
def test_l12_deadlines(name: str) -> None:
    steps, fields, options, seconds, (status, reason) = CASES[name]

    async def main() -> None:
        async with memory_server(config=Config(**options)) as server:
            socket = await server.connect()
            await socket.send(create(*steps, **fields))
            frames = await socket.until("response.done")
            started = trio.current_time()
            frames += await socket.until_end()
            assert trio.current_time() - started == pytest.approx(seconds, abs=0.01)
            check(numbered(frames), append_shape=True)
            response = frames[-1]["response"]
            assert (response["status"], (response["incomplete_details"] or {}).get("reason")) == (status, reason)

    virtually(main)


def test_l12_each_park_has_its_own_deadline() -> None:
    async def main() -> None:
        async with memory_server(config=Config(park_seconds=70)) as server:
            socket = await server.connect()
            await socket.send(create(*[{"call": {"name": "a"}}] * 4, {"say": "done"}))
            for _ in range(4):
                (one,) = calls_in(await socket.until("response.done"))
                await trio.sleep(60)
                await socket.send(append(result(one)))
            assert (await socket.until_end())[-1]["response"]["status"] == "completed"

    virtually(main)


def test_l12_the_detach_deadline_runs_while_nobody_is_attached() -> None:
    async def main() -> None:
        async with memory_server(config=Config(detach_seconds=50)) as server:
            socket = await server.connect()
            await socket.send(create(*CALL))
            frames = await socket.until("response.done")
            response_id = frames[0]["response"]["id"]
            for _ in range(4):
                await socket.drop()
                await trio.sleep(40)
                socket = await server.connect()
                await socket.send({"type": "response.attach", "response_id": response_id})
                await socket.until("response.done")
                await trio.sleep(40)
            await socket.drop()
            await trio.sleep(51)
            assert [row["reason"] for row in server.rows(response_id)] == ["detached_timeout"]

    virtually(main)


def test_l12_a_hosted_tool_that_hangs_has_failed() -> None:
    model = FakeModel(call("file_search", "{}"), wait(), say("so be it"), stop())

    async def main() -> None:
        config = Config(hosted_seconds=20)
        async with memory_server(models=[model], hosted={"file_search": FakeSearch(seconds=1000)}, config=config) as server:
            socket = await server.connect()
            await socket.send(create(model="fake", tools=[{"type": "file_search"}]))
            frames = await socket.until_end()
            assert trio.current_time() == pytest.approx(20, abs=0.01)
            search = frames[-1]["response"]["output"][0]
            assert (search["type"], search["status"]) == ("file_search_call", "failed")
            assert frames[-1]["response"]["status"] == "completed"

    virtually(main)


@pytest.mark.parametrize("silent", ["parked", "a model that hangs"])
def test_l12_silence_is_broken(silent: str) -> None:
    """A client hears a text frame at least every two heartbeats, all the while; and the trace stays legal."""
    steps = [say("a"), call("a"), wait()] if silent == "parked" else [say("a"), Delay(290), HANG]

    async def main() -> None:
        async with memory_server(models=[FakeModel(*steps)], config=Config(heartbeat_seconds=15)) as server:
            socket = await server.connect()
            await socket.send(create(model="fake"))
            frames, heard = [], trio.current_time()
            while trio.current_time() < 300:
                frames.append(await socket.receive())
                assert trio.current_time() - heard <= 30
                heard = trio.current_time()
            beats = [frame for frame in frames if frame["type"] == "response.in_progress"]
            assert 10 <= len(beats) - 1 <= 20
            await socket.send({"type": "response.cancel"})
            frames += await socket.until_end()
            check(numbered(frames), append_shape=True)

    virtually(main)


def test_l12_no_heartbeat_while_the_model_speaks_or_nobody_listens() -> None:
    async def main() -> None:
        async with memory_server(config=Config(heartbeat_seconds=15, detach_seconds=500)) as server:
            socket = await server.connect()
            await socket.send(create({"say": {"tokens": 600}}, {"call": {"name": "a"}}, tokens_per_second=5))
            frames = await socket.until("response.done")
            assert sum(frame["type"] == "response.in_progress" for frame in frames) == 1
            await socket.drop()
            await trio.sleep(400)
            (live,) = server.engine.live.values()
            assert live.log.last == frames[-1]["sequence_number"]

    virtually(main)


def test_l12_a_connection_that_never_speaks_is_closed() -> None:
    async def main() -> None:
        async with memory_server(config=Config(handshake_seconds=10)) as server:
            stream = server.connect_raw()
            for piece in (b"GET /v1/resp", b"onses HTTP/1.1\r\n", b"host: x\r\n"):
                await stream.send_all(piece)
                await trio.sleep(3)
            with trio.fail_after(2):
                assert bytes(await stream.receive_some()).startswith(b"HTTP/1.1 408 ")
            await trio.sleep(3)
            assert server.server.connections == 0

    virtually(main)


def test_l12_an_idle_socket_is_closed_and_one_with_a_live_response_is_not() -> None:
    async def main() -> None:
        async with memory_server(config=Config(idle_seconds=100)) as server:
            idle, busy = await server.connect(), await server.connect()
            await busy.send(create(*CALL))
            await busy.until("response.done")
            with pytest.raises(Closed):
                await idle.receive()
            assert 100 <= trio.current_time() <= 100 + Config().ping_seconds, "it is looked after now and then"
            assert idle.close_code == 1000
            while trio.current_time() < 500:
                await busy.until("response.in_progress")
            await busy.send(append(user("still here?")))
            await busy.until("response.append.accepted")

    virtually(main)


def test_l12_a_peer_that_answers_no_ping_is_gone() -> None:
    async def main() -> None:
        async with memory_server(config=Config(ping_seconds=30, send_seconds=10)) as server:
            stream = server.connect_raw()
            key = b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"
            head = b"GET /v1/responses HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            await stream.send_all(head + key + b"\r\n")
            await trio.sleep(1)
            assert server.server.connections == 1
            await trio.sleep(30 + 10 + 2 * 30)
            assert server.server.connections == 0

    virtually(main)


def test_l12_shutdown_lets_a_response_park_and_ends_it() -> None:
    async def main() -> None:
        config = Config(grace_seconds=10)
        async with memory_server(models=[FakeModel(say("a"), Delay(5), call("t"), wait())], config=config) as server:
            socket = await server.connect()
            await socket.send(create(model="fake"))
            frames = await socket.until("response.output_text.delta")
            server.server.stop()
            await server.settle()
            await socket.send(create(model="fake", stream_id="late"))
            frames += await socket.until_end()
            check(numbered(frame for frame in frames if frame["type"] != "error"), append_shape=True)
            assert any(frame.get("code") == "shutting_down" for frame in frames)
            assert [frame["type"] for frame in frames].count("response.done") == 1
            assert frames[-1]["response"]["incomplete_details"]["reason"] == "server_shutdown"
            with pytest.raises(Closed):
                await socket.receive()
            assert socket.close_code == 1001
            await server.stopped.wait()
            assert trio.current_time() < 12
            with pytest.raises((Refused, OSError)), trio.fail_after(30):
                await server.connect()

    virtually(main)


def test_l12_shutdown_waits_no_longer_than_its_grace() -> None:
    async def main() -> None:
        config = Config(grace_seconds=10)
        async with memory_server(models=[FakeModel(say("a"), HANG)], config=config) as server:
            socket = await server.connect()
            await socket.send(create(model="fake"))
            frames = await socket.until("response.output_text.delta")
            server.server.stop()
            frames += await socket.until_end()
            assert trio.current_time() == pytest.approx(10, abs=0.1)
            assert server.rows(frames[0]["response"]["id"])[0]["reason"] == "server_shutdown"

    virtually(main)
