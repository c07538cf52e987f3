"""The relay: every byte arrives one way's delay later, in order, whatever is sent when; and connections end as they would."""

from functools import partial

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from engine.lab.relay import Relay, join
from engine.testing import pipe_pair, virtually

MEGABYTES = 4 * 1024 * 1024
"""Buffers that never fill: in these tests nobody reads slowly but who wants to."""

moments = st.lists(st.tuples(st.floats(0, 3), st.binary(min_size=1, max_size=300)), max_size=12)
"""How long to wait, and what to send then."""

Arrivals = list[tuple[float, bytes]]


async def say(stream: trio.abc.HalfCloseableStream, what: list[tuple[float, bytes]], sent: Arrivals) -> None:
    for pause, data in what:
        await trio.sleep(pause)
        sent.append((trio.current_time(), data))
        await stream.send_all(data)
    await stream.send_eof()


async def hear(stream: trio.abc.Stream, heard: Arrivals, ends: list[float]) -> None:
    while data := await stream.receive_some():
        heard.append((trio.current_time(), bytes(data)))
    ends.append(trio.current_time())


def each_byte(arrivals: Arrivals) -> list[tuple[float, int]]:
    return [(when, byte) for when, data in arrivals for byte in data]


@given(moments, moments, st.floats(0, 2))
def test_each_byte_arrives_a_delay_later_in_both_directions(
    there: list[tuple[float, bytes]], back: list[tuple[float, bytes]], delay: float
) -> None:
    async def main() -> None:
        client, near = pipe_pair(MEGABYTES)
        far, server = pipe_pair(MEGABYTES)
        sent: list[Arrivals] = [[], []]
        heard: list[Arrivals] = [[], []]
        ends: list[list[float]] = [[], []]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(join, near, far, delay)
            for side, (mouth, ear, what) in enumerate(((client, server, there), (server, client, back))):
                nursery.start_soon(say, mouth, what, sent[side])
                nursery.start_soon(hear, ear, heard[side], ends[side])
        for side, what in enumerate((there, back)):
            wanted = [(when + delay, byte) for when, byte in each_byte(sent[side])]
            got = each_byte(heard[side])
            assert [byte for _, byte in got] == [byte for _, byte in wanted]
            assert [when for when, _ in got] == pytest.approx([when for when, _ in wanted])
            assert ends[side] == [pytest.approx(sum(pause for pause, _ in what) + delay)]

    virtually(main)


def test_a_burst_is_not_slowed_down() -> None:
    """A hundred chunks in a row take one delay, not a hundred."""

    async def main() -> None:
        client, near = pipe_pair(MEGABYTES)
        far, server = pipe_pair(MEGABYTES)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(join, near, far, 0.04)
            for _ in range(100):
                await client.send_all(b"x" * 10_000)
                await trio.sleep(0.0001)
            got = 0
            while got < 1_000_000:
                got += len(await server.receive_some())
            assert trio.current_time() == pytest.approx(start + 0.0099 + 0.04, abs=2e-4)
            nursery.cancel_scope.cancel()

    start = 0.0
    virtually(main)


def test_a_slow_reader_does_not_hold_up_the_other_direction() -> None:
    async def main() -> None:
        client, near = pipe_pair(1024)
        far, server = pipe_pair(1024)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(join, near, far, 0.1)
            nursery.start_soon(client.send_all, b"x" * 100_000)  # which the server does not read
            await server.send_all(b"hello")
            assert await client.receive_some() == b"hello"
            assert trio.current_time() == pytest.approx(0.1)
            nursery.cancel_scope.cancel()

    virtually(main)


@pytest.mark.parametrize("side", ["client", "server"])
def test_a_break_breaks_the_other_side(side: str) -> None:
    async def main() -> None:
        client, near = pipe_pair(MEGABYTES)
        far, server = pipe_pair(MEGABYTES)
        breaks, sees = (client, server) if side == "client" else (server, client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(join, near, far, 0.1)
            breaks.reset()
            with trio.fail_after(1):
                assert await sees.receive_some() == b""

    virtually(main)


async def test_it_relays_tcp() -> None:
    async def echo(stream: trio.SocketStream) -> None:
        async for data in stream:
            await stream.send_all(data)

    async with trio.open_nursery() as nursery:
        [server] = await nursery.start(partial(trio.serve_tcp, echo, 0, host="127.0.0.1"))
        port = server.socket.getsockname()[1]
        relay = Relay(partial(trio.open_tcp_stream, "127.0.0.1", port), 0.001)
        [listener] = await nursery.start(partial(trio.serve_tcp, relay.serve, 0, host="127.0.0.1"))
        async with await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1]) as client:
            await client.send_all(b"there and back")
            got = b""
            while len(got) < 14:
                got += await client.receive_some()
            assert got == b"there and back"
            await client.send_eof()
            assert await client.receive_some() == b""
        nursery.cancel_scope.cancel()


async def test_a_server_that_is_not_there_is_a_connection_that_ends() -> None:
    async def nowhere() -> trio.SocketStream:
        raise OSError("nobody listens")

    ours, theirs = trio.testing.memory_stream_pair()
    await Relay(nowhere, 0.0).serve(theirs)  # type: ignore[arg-type]
    assert await ours.receive_some() == b""
