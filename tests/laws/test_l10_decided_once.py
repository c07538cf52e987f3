"""L10 cancel is decided once: between cancel, completion and append there is one winner; what was acknowledged has happened."""

from itertools import permutations
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Config
from engine.testing import (
    Bomb,
    Delay,
    FakeModel,
    append,
    call,
    calls_in,
    create,
    memory_server,
    numbered,
    result,
    say,
    stop,
    sweep,
    user,
    virtually,
    wait,
)
from engine.testing.profile import examples
from protocol.events import TERMINAL
from protocol.grammar import check

STEPS: list[Any] = [{"call": {"name": "a"}}, {"say": "done: {{output}}"}]


def answers(frames: list[dict[str, Any]]) -> dict[str, int]:
    accepted = [frame for frame in frames if frame["type"] == "response.append.accepted"]
    refused = [frame for frame in frames if frame["type"] == "error"]
    assert all(frame["code"] == "response_not_active" for frame in refused)
    return {"accepted": len(accepted), "refused": len(refused)}


def accepted_kinds(frames: list[dict[str, Any]]) -> set[str]:
    accepted = [frame["append"] for frame in frames if frame["type"] == "response.append.accepted"]
    return {"append" if one["call_ids"] else "message" for one in accepted}


@pytest.mark.parametrize("order", list(permutations(["cancel", "append", "message"])))
def test_l10_the_first_that_arrives_wins(order: tuple[str, ...]) -> None:
    async def main() -> None:
        async with memory_server() as server:
            socket = await server.connect()
            await socket.send(create(*STEPS))
            frames = await socket.until("response.done")
            (one,) = calls_in(frames)
            response_id = frames[0]["response"]["id"]
            sent = {
                "cancel": {"type": "response.cancel", "response_id": response_id},
                "append": append(result(one, "yes"), response_id=response_id),
                "message": append(user("and?"), response_id=response_id),
            }
            for kind in order:
                await socket.send(sent[kind])
            await server.settle()
            with trio.move_on_after(1):
                while True:
                    frames.append(await socket.receive())
            check(numbered(frames), append_shape=True)
            status = next(frame["response"]["status"] for frame in frames if frame["type"] in TERMINAL)
            accepted = [kind for kind in order if kind in accepted_kinds(frames)]
            if status == "cancelled":
                assert accepted == list(order[: order.index("cancel")])
                assert answers(frames)["refused"] == 2 - len(accepted)
            else:  # the answer let it go on, and it was at its end before the cancel came
                assert status == "completed"
                assert order.index("append") < order.index("cancel")
                assert answers(frames)["refused"] == 3 - len(accepted)
            context = server.context(response_id) or []
            kept = [item.get("output") or item.get("content") for item in context]
            assert ("yes" in kept) == ("append" in accepted)
            assert ("and?" in kept) == ("message" in accepted)

    virtually(main)


def rollout() -> FakeModel:
    return FakeModel(say("a"), [*call("t"), *call("u")], wait(), Delay(1), say("b"), stop())


def strike(kind: str) -> int:
    """A cancel or an append arrives at every step of a rollout that completes by itself."""

    async def run(bomb: Bomb) -> None:
        async with memory_server(models=[rollout()], config=Config(park_seconds=30)) as server:
            socket, other = await server.connect(), await server.connect()
            await socket.send(create(model="fake"))
            frames = await socket.until("response.created")
            response_id = frames[0]["response"]["id"]
            live = server.engine.live[response_id]
            outcome: list[str] = []

            def act() -> None:
                try:
                    if kind == "cancel":
                        live.cancel()
                    else:
                        live.finish()
                    outcome.append("done")
                except Exception as error:
                    outcome.append(str(getattr(error, "code", error)))

            bomb.arm(act)
            while frames[-1]["type"] not in TERMINAL:
                frames.append(await socket.receive())
                if frames[-1]["type"] == "response.done":
                    for one in calls_in(frames):
                        await socket.send(append(result(one), response_id=response_id))
            bomb.disarm()
            check(numbered(frames), append_shape=True)
            status = frames[-1]["response"]["status"]
            if bomb.went_off:
                assert outcome in (["done"], ["response_not_active"])
                assert status == ("cancelled" if kind == "cancel" and outcome == ["done"] else "completed")
            await server.settle()
            (row,) = server.rows(response_id)
            assert row["status"] == status
            await other.aclose()

    return sweep(run)


@pytest.mark.parametrize("kind", ["cancel", "finish"])
def test_l10_sweep(kind: str) -> None:
    assert strike(kind) > 20


@examples(30)
@given(st.sampled_from([9.999999, 10.0, 10.000001]), st.sampled_from(["append", "message", "cancel", "finish"]))
def test_l10_against_a_deadline(at: float, kind: str) -> None:
    """What arrives just when the park ends is either in time, or refused; never both, never neither."""

    async def main() -> None:
        async with memory_server(config=Config(park_seconds=10)) as server:
            socket = await server.connect()
            await socket.send(create(*STEPS))
            frames = await socket.until("response.done")
            (one,) = calls_in(frames)
            response_id = frames[0]["response"]["id"]
            sent = {
                "append": append(result(one), response_id=response_id),
                "message": append(user("?"), response_id=response_id),
            }
            await trio.sleep(at)
            await socket.send(sent.get(kind, {"type": f"response.{kind}", "response_id": response_id}))
            await server.settle()
            while frames[-1]["type"] not in TERMINAL:
                frames.append(await socket.receive())
            (row,) = server.rows(response_id)
            refused = any(frame["type"] == "error" for frame in frames)
            with trio.move_on_after(1):
                refused |= (await socket.receive())["type"] == "error"
            if refused:
                assert row["reason"] == "tool_output_timeout"
            elif kind == "append":
                assert row["status"] == "completed"
            elif kind == "cancel":
                assert row["status"] == "cancelled"
            else:
                assert row["reason"] == "tool_output_timeout", "neither a message nor a finish answers a call"

    virtually(main)
