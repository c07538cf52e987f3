"""``responsesapi.websocket_timing``: where a Response's time went, for sockets whose handshake asked for it."""

from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.testing import DirectSocket, append, calls_in, create, direct_server, result, virtually
from engine.testing.profile import examples
from protocol.grammar import check

from .socket_support import CREATE, client, serving

TIMING = "responsesapi.websocket_timing"
NAMES = {
    "responses_duration_excl_engine_and_client_tool_time_ms",
    "engine_service_total_ms",
    "engine_iapi_ttft_total_ms",
    "engine_service_ttft_total_ms",
    "engine_iapi_tbt_across_engine_calls_ms",
    "engine_service_tbt_across_engine_calls_ms",
}
ASKS = {"x_responsesapi_include_timing_metrics": "true"}
Frame = dict[str, Any]


@examples(30)
@given(parks=st.integers(0, 4), tool_seconds=st.floats(0, 100), rate=st.sampled_from([10.0, 65.0, 1000.0]))
def test_sampling_is_told_and_the_client_s_tools_are_not(parks: int, tool_seconds: float, rate: float) -> None:
    async def main() -> None:
        async with direct_server() as server:
            socket = DirectSocket(server.engine, "everybody", 1 << 30, timed=True)
            say = {"say": {"tokens": 20}}
            await socket.send(create(*[say, {"call": {"name": "f"}}] * parks, say, tokens_per_second=rate))
            frames: list[Frame] = []
            for _ in range(parks):
                frames += await socket.until("response.done")
                await trio.sleep(tool_seconds)
                await socket.send(append(result(calls_in(frames)[-1])))
            frames += await socket.until_end()
            check(frames, append_shape=True)
            *_, timing, last = frames
            assert timing["type"] == TIMING
            assert timing["response_id"] == last["response"]["id"]
            assert "sequence_number" not in timing
            metrics, tokens = timing["timing_metrics"], last["response"]["usage"]["output_tokens"]
            assert metrics.keys() == NAMES
            assert near(metrics["engine_service_total_ms"], tokens / rate * 1000)
            assert near(metrics["engine_service_ttft_total_ms"], (parks + 1) / rate * 1000)
            assert near(metrics["engine_service_tbt_across_engine_calls_ms"], 1000 / rate)
            assert near(metrics["responses_duration_excl_engine_and_client_tool_time_ms"], 0)

    virtually(main)


def near(milliseconds: float, expected: float) -> bool:
    return abs(milliseconds - expected) < 0.1


async def test_who_did_not_ask_is_not_told() -> None:
    async with serving() as (_, port), client(port, **CREATE) as plain, client(port, **CREATE, **ASKS) as asks:
        for raw in (plain, asks):
            await raw.create({"say": "Hello."}, stream_id="lane")
        heard = [await asks.frame()]
        while heard[-1]["type"] != "response.completed":
            heard.append(await asks.frame())
        assert (heard[-2]["type"], heard[-2]["stream_id"]) == (TIMING, "lane")
        assert [frame["type"] for frame in heard].count(TIMING) == 1
        kinds = [(await plain.frame())["type"] for _ in range(len(heard) - 1)]
        assert kinds == [frame["type"] for frame in heard if frame["type"] != TIMING]


async def test_it_comes_with_every_end() -> None:
    async with serving() as (_, port), client(port, **ASKS) as raw:
        await raw.create({"say": {"tokens": 100_000}}, pace=10, continuation="append")
        await raw.until("response.created")
        await raw.say({"type": "response.cancel"})
        metrics = (await raw.until(TIMING))["timing_metrics"]
        assert metrics.keys() == NAMES
        assert (await raw.until("response.incomplete"))["response"]["status"] == "cancelled"
