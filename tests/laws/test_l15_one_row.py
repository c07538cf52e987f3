"""L15 one row: one ledger row per Response, however it ended, with its usage."""

from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Config
from engine.ledger import Row
from engine.testing import append, calls_in, create, direct_server, make_services, memory_server, result, virtually
from engine.testing.profile import examples
from protocol.events import TERMINAL

ENDINGS = ["complete", "length", "filter", "fail", "cancel", "detach", "park", "lifetime", "shutdown", "refused"]


@examples(25)
@given(st.lists(st.sampled_from(ENDINGS), min_size=1, max_size=4, unique=True), st.integers(0, 2))
def test_l15_one_row(endings: list[str], parks: int) -> None:
    last = {"length": {"stop": "max_output_tokens"}, "filter": {"stop": "content_filter"}, "fail": {"fail": {}}}

    async def main() -> None:
        config = Config(park_seconds=100, detach_seconds=20, response_seconds=50, grace_seconds=1)
        services = make_services(config=config)
        terminals: dict[str, dict[str, Any]] = {}
        async with memory_server(services) as server:
            for ending in sorted(endings, key=lambda one: one == "shutdown"):
                socket = await server.connect()
                steps: list[Any] = [{"call": {"name": "a"}}] * parks
                waits = ending in ("cancel", "detach", "park", "lifetime", "shutdown")
                steps += [{"call": {"name": "b"}}] if waits else [{"say": "so"}, last.get(ending, {"say": "done"})]
                if ending == "refused":
                    await socket.send(create(model="no such model"))
                    assert (await socket.receive())["code"] == "model_not_found"
                    continue
                await socket.send(create(*steps))
                frames = await socket.until("response.done", *TERMINAL)
                response_id = frames[0]["response"]["id"]
                for _ in range(parks):
                    await socket.send(append(result(calls_in(frames)[0])))
                    frames = await socket.until("response.done", *TERMINAL)
                if ending == "cancel":
                    await socket.send({"type": "response.cancel"})
                elif ending == "detach":
                    await socket.drop()
                    socket = await server.connect()
                    while response_id in server.engine.live:
                        await server.settle()
                        await trio.sleep(1)
                    await socket.send({"type": "response.attach", "response_id": response_id})
                elif ending == "shutdown":
                    server.server.stop()
                if frames[-1]["type"] not in TERMINAL:
                    frames = await socket.until_end()
                terminals[response_id] = frames[-1]["response"]
            if "shutdown" not in endings:
                await server.settle()
        rows: list[Row] = services.ledger.rows  # type: ignore[attr-defined]
        assert sorted(row.response_id for row in rows) == sorted(terminals)
        for row in rows:
            response = terminals[row.response_id]
            usage = response["usage"]
            assert row.status == response["status"]
            told = (usage["input_tokens"], usage["output_tokens"])
            assert (row.input_tokens, row.output_tokens) == told
            assert row.tool_calls == sum(item["type"] == "function_call" for item in response["output"])
            assert row.parks == response["engine"]["parks"]
            assert row.ended_at >= row.created_at

    virtually(main)


def test_l15_a_ledger_that_fails_costs_no_client_its_answer() -> None:
    class Broken:
        async def write(self, row: Row) -> None:
            raise OSError("disk full")

    async def main() -> None:
        services = make_services()
        services.ledger = Broken()
        async with direct_server(services) as server:
            socket = await server.connect()
            for _ in range(2):
                await socket.send(create({"say": "hi"}))
                assert (await socket.until_end())[-1]["response"]["status"] == "completed"
            assert [str(bug) for bug in server.books.bugs] == ["disk full"] * len(server.books.bugs)
            assert server.books.bugs
            server.books.bugs.clear()

    virtually(main)
