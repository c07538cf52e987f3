"""L16 sizes speak: a soft limit answers with an error and leaves the Response parked; only the hard limit closes, with 1009."""

import json

import pytest

from engine.config import Config
from engine.testing import append, calls_in, create, memory_server, result, virtually
from protocol.conformance.transport import Closed
from protocol.limits import APPEND_ITEMS, HARD_FRAME_BYTES, SOFT_FRAME_BYTES


def frame_of(size: int, call_id: str) -> str:
    """An append of exactly ``size`` bytes, which would fit otherwise."""
    empty = json.dumps(append({"type": "function_call_output", "call_id": call_id, "output": ""}))
    return empty.replace('"output": ""', '"output": "' + "x" * (size - len(empty)) + '"')


@pytest.mark.parametrize("unit", ["x", "é"])
def test_l16_the_soft_limit_answers(unit: str) -> None:
    async def main() -> None:
        async with memory_server() as server:
            socket = await server.connect(capacity=10_000_000)
            await socket.send(create({"call": {"name": "a"}}, {"say": "done"}))
            (one,) = calls_in(await socket.until("response.done"))
            too_large = frame_of(SOFT_FRAME_BYTES + 1, one["call_id"])
            if unit == "é":  # fewer characters than the limit has bytes
                too_large = too_large.replace("xx", "é")
            await socket.send(too_large)
            error = await socket.receive()
            assert (error["code"], error["status"]) == ("message_too_large", 413)
            (live,) = server.engine.live.values()
            assert live.phase == "parked"
            await socket.send(append(result(one)))
            assert (await socket.until_end())[-1]["response"]["status"] == "completed"

    virtually(main)


def test_l16_what_just_fits_is_taken() -> None:
    async def main() -> None:
        async with memory_server() as server:
            socket = await server.connect(capacity=10_000_000)
            await socket.send(create({"call": {"name": "a"}}, {"call": {"name": "b"}}, {"say": "done"}))
            (one,) = calls_in(await socket.until("response.done"))
            await socket.send(frame_of(SOFT_FRAME_BYTES, one["call_id"]))
            assert (await socket.receive())["append"]["duplicate"] is False
            await socket.drop()
            server.engine.live.popitem()[1].cancel()  # 16 MiB are not rendered here: it takes seconds

    virtually(main)


def test_l16_the_hard_limit_closes_and_the_response_lives_on() -> None:
    async def main() -> None:
        async with memory_server() as server:
            socket, other = await server.connect(capacity=10_000_000), await server.connect()
            await socket.send(create({"call": {"name": "a"}}, {"say": "done"}))
            frames = await socket.until("response.done")
            (one,) = calls_in(frames)
            await socket.send("x" * (HARD_FRAME_BYTES + 1))
            with pytest.raises(Closed):
                await socket.receive()
            assert socket.close_code == 1009
            await other.send({"type": "response.attach", "response_id": frames[0]["response"]["id"]})
            await other.until("response.done")
            await other.send(append(result(one)))
            assert (await other.until_end())[-1]["response"]["status"] == "completed"

    virtually(main)


def test_l16_too_many_items() -> None:
    async def main() -> None:
        async with memory_server() as server:
            socket = await server.connect()
            await socket.send(create({"call": {"name": "a"}}, {"say": "done"}))
            (one,) = calls_in(await socket.until("response.done"))
            await socket.send(append(*[result(one)] * (APPEND_ITEMS + 1)))
            error = await socket.receive()
            assert (error["code"], error["param"]) == ("invalid_value", "input")
            await socket.send(append(*[result(one)] * APPEND_ITEMS))
            assert (await socket.until_end())[-1]["response"]["status"] == "completed"

    virtually(main)


def test_l16_many_calls_in_one_batch() -> None:
    """10,000 calls: more than one append takes, answered in several."""
    count = 10_000
    config = Config(thread_bytes=2**40)  # virtual time does not wait for threads

    async def main() -> None:
        async with memory_server(config=config) as server:
            socket = await server.connect()
            await socket.send(create({"calls": [{"name": "a"}] * count}, {"say": "done"}))
            frames = await socket.until("response.done")
            calls = calls_in(frames)
            assert len(calls) == len(frames[-1]["required_input"]) == count
            for start in range(0, count, APPEND_ITEMS):
                await socket.send(append(*map(result, calls[start : start + APPEND_ITEMS])))
            end = (await socket.until_end())[-1]["response"]
            assert end["status"] == "completed"
            assert len(end["output"]) == count + 1

    virtually(main)
