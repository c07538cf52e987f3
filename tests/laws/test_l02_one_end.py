"""L2 one end: exactly one terminal event, the last of its Response, whatever happens."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import trio

from engine.config import Config
from engine.models.base import ModelError
from engine.policy import Policy
from engine.testing import (
    HANG,
    Bomb,
    Delay,
    FakeModel,
    FakeSearch,
    MemoryServer,
    append,
    call,
    calls_in,
    create,
    eventually,
    make_services,
    memory_server,
    numbered,
    result,
    say,
    stop,
    sweep,
    think,
    user,
    virtually,
    wait,
)
from protocol.conformance.transport import Closed
from protocol.events import TERMINAL
from protocol.grammar import check

SEARCH: dict[str, Any] = {"tools": [{"type": "file_search"}]}
ROLLOUT: list[Any] = [think("hm"), say("I ", "look"), [*call("a"), *call("file_search", '{"query": "x"}'), *call("b")], wait()]


async def end_of(server: MemoryServer, response_id: str) -> dict[str, Any]:
    """Wait for a Response's end; check its whole log, its row and that nothing is left of it."""
    await eventually(lambda: response_id not in server.engine.live, 1)
    socket = await server.connect()
    await socket.send({"type": "response.attach", "response_id": response_id})
    frames = await socket.until_end()
    await server.settle()
    check(numbered(frames), append_shape=True)
    (row,) = server.rows(response_id)
    response: dict[str, Any] = frames[-1]["response"]
    assert row["status"] == response["status"]
    await socket.aclose()
    return response


async def only_response(server: MemoryServer) -> str:
    await eventually(lambda: bool(server.engine.live), 0.001)
    return next(iter(server.engine.live))


CASES: dict[str, tuple[list[Any], dict[str, Any], str, str | None]] = {
    "answers": ([say("hi"), stop()], {}, "completed", None),
    "stops at the length": ([say("hi"), stop("max_output_tokens")], {}, "incomplete", "max_output_tokens"),
    "is filtered": ([say("hi"), stop("content_filter")], {}, "incomplete", "content_filter"),
    "fails at once": ([ModelError("no", code="model_busy", fault="busy")], {}, "failed", "model_busy"),
    "fails in a word": ([say("h"), ModelError("no")], {}, "failed", "server_error"),
    "fails in a call": ([call("a")[:2], ModelError("no")], {}, "failed", "server_error"),
    "has no more to say": ([say("h")], {}, "failed", "server_error"),
    "hangs": ([say("h"), HANG], {"response_seconds": 50.0}, "incomplete", "response_timeout"),
    "hangs at once": ([HANG], {"response_seconds": 50.0}, "incomplete", "response_timeout"),
    "is not answered": ([*ROLLOUT], {"park_seconds": 50.0}, "incomplete", "tool_output_timeout"),
    "talks without end": ([say("h")] * 500 + [stop()], {"output_tokens": 100}, "incomplete", "max_output_tokens"),
}


@pytest.mark.parametrize("name", list(CASES))
def test_l02_one_end(name: str) -> None:
    steps, options, status, reason = CASES[name]

    async def main() -> None:
        config = Config(**options)
        async with memory_server(models=[FakeModel(*steps)], config=config, hosted={"file_search": FakeSearch()}) as server:
            socket = await server.connect()
            await socket.send(create(model="fake", **SEARCH))
            created = (await socket.until("response.created"))[0]["response"]
            with trio.move_on_after(100):
                await socket.until_end()
                await socket.receive()
                raise AssertionError("a frame after the terminal event")
            response = await end_of(server, created["id"])
            assert response["status"] == status
            details = response["incomplete_details"] or response["error"] or {}
            assert details.get("reason", details.get("code")) == reason

    virtually(main)


@pytest.mark.parametrize("where", ["the model", "a hosted tool", "the policy"])
def test_l02_a_bug_of_ours_fails_one_response(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = RuntimeError("a bug")
    model = FakeModel(bug if where == "the model" else say("x"), [*call("file_search"), *call("a")], wait())
    search = FakeSearch(error=bug if where == "a hosted tool" else None)

    async def main() -> None:
        async with memory_server(models=[model], hosted={"file_search": search}) as server:
            if where == "the policy":
                monkeypatch.setattr(Policy, "check", _only_on_output(bug, Policy.check))
            socket = await server.connect()
            await socket.send(create(model="fake", **SEARCH))
            created = (await socket.until("response.created"))[0]["response"]
            if where == "the policy":
                await socket.send({"type": "response.cancel"})
            frames = await socket.until_end()
            assert frames[-1]["response"]["status"] == "failed"
            assert frames[-1]["response"]["error"]["code"] == "server_error"
            await eventually(lambda: created["id"] not in server.engine.live, 1)
            assert server.books.bugs, "the bug was told"
            server.books.bugs.clear()
            assert len(server.rows(created["id"])) == 1
            assert server.leftovers() == []

    virtually(main)


def _only_on_output(bug: Exception, check: Callable[..., Any]) -> Callable[..., Any]:
    def broken(policy: Policy, items: Any, direction: str) -> Any:
        if direction == "output":
            raise bug
        return check(policy, items, direction)

    return broken


def scenario(strike: Callable[[MemoryServer, Any, str], Callable[[], object]]) -> Callable[[Bomb], Any]:
    """A rollout with everything in it, through which a bomb goes."""

    async def run(bomb: Bomb) -> None:
        steps = [*ROLLOUT, say("so"), call("c"), wait(), Delay(1), say("done"), stop()]
        hosted = {"file_search": FakeSearch(seconds=1)}
        async with memory_server(models=[FakeModel(*steps)], hosted=hosted, config=Config(park_seconds=30)) as server:
            socket = await server.connect()
            await socket.send(create(model="fake", **SEARCH))
            response_id = await only_response(server)
            bomb.arm(strike(server, socket, response_id))
            try:
                for call_item in calls_in(await socket.until("response.done")):
                    await socket.send(append(result(call_item)))
                await socket.send(append(user("and?")))
                for call_item in calls_in(await socket.until("response.done")):
                    await socket.send(append(result(call_item)))
                await socket.until_end()
            except Closed:
                assert bomb.went_off
            bomb.disarm()
            response = await end_of(server, response_id)
            assert response["status"] in ("completed", "cancelled", "incomplete")
            assert server.services.models["fake"].lives[0].closed  # type: ignore[attr-defined]
            assert hosted["file_search"].running == 0

    return run


def test_l02_sweep_of_cancels() -> None:
    def strike(server: MemoryServer, socket: Any, response_id: str) -> Callable[[], object]:
        return lambda: server.engine.live[response_id].stop("server_shutdown") if response_id in server.engine.live else None

    assert sweep(_tolerant(strike)) > 50


def test_l02_sweep_of_drops() -> None:
    def strike(server: MemoryServer, socket: Any, response_id: str) -> Callable[[], object]:
        return lambda: socket.cut()

    assert sweep(scenario(strike)) > 50


def _tolerant(strike: Any) -> Callable[[Bomb], Any]:
    """As ``scenario``, for strikes that leave the socket open: its frames end with the terminal event, sooner than planned."""

    async def run(bomb: Bomb) -> None:
        steps = [*ROLLOUT, say("so"), call("c"), wait(), Delay(1), say("done"), stop()]
        search = FakeSearch(seconds=1)
        async with memory_server(models=[FakeModel(*steps)], hosted={"file_search": search}) as server:
            socket = await server.connect()
            await socket.send(create(model="fake", **SEARCH))
            response_id = await only_response(server)
            bomb.arm(strike(server, socket, response_id))
            while True:
                frames = await socket.until("response.done", *TERMINAL, "error")
                if frames[-1]["type"] != "response.done":
                    break
                for call_item in calls_in(frames):
                    await socket.send(append(result(call_item), response_id=response_id))
            bomb.disarm()
            response = await end_of(server, response_id)
            assert response["status"] in ("completed", "cancelled", "incomplete")
            assert search.running == 0

    return run


def test_l02_a_model_that_uses_a_call_id_twice_fails() -> None:
    model = FakeModel([*call("a", "{}", "same"), *call("b", "{}", "same")], wait(), say("on"), stop())

    async def main() -> None:
        async with memory_server(models=[model]) as server:
            socket = await server.connect()
            await socket.send(create(model="fake"))
            frames = await socket.until_end()
            check(numbered(frames), append_shape=True)
            assert frames[-1]["response"]["status"] == "failed"
            await server.settle()
            assert server.leftovers() == []

    virtually(main)


def test_l02_sweep_of_shutdowns() -> None:
    """The server stops at any step: the client hears the one end, the row is there, and nothing is left."""

    async def run(bomb: Bomb) -> None:
        steps = [*ROLLOUT, say("so"), call("c"), wait(), Delay(1), say("done"), stop()]
        search = FakeSearch(seconds=1)
        services = make_services(models=[FakeModel(*steps)], hosted={"file_search": search}, config=Config(grace_seconds=0.5))
        frames: list[dict[str, Any]] = []
        async with memory_server(services) as server:
            socket = await server.connect()
            await socket.send(create(model="fake", **SEARCH))
            await only_response(server)
            bomb.arm(server.server.stop)
            while not frames or frames[-1]["type"] not in TERMINAL:
                frames.append(await socket.receive())
                if frames[-1]["type"] == "response.done":
                    known = {item["call_id"]: item for item in calls_in(frames)}
                    with contextlib.suppress(Closed):
                        for stub in frames[-1]["required_input"]:
                            await socket.send(append(result(known[stub["call_id"]])))
            bomb.disarm()
        check(numbered(frames), append_shape=True)
        (row,) = services.ledger.rows  # type: ignore[attr-defined]
        assert row.status == frames[-1]["response"]["status"]
        assert row.reason in (None, "server_shutdown")
        assert server.engine.live == {}
        assert search.running == 0

    assert sweep(run) > 50
