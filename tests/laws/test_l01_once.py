"""L1 once: each stage runs once in full per Response; an append is admitted over what is new, at a cost that does not grow."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.testing import append, calls_in, create, memory_server, result, user, virtually
from engine.testing.profile import examples

STAGES = ("validate", "route", "classify", "render", "classify_output", "bill", "store")


def program(batches: list[int]) -> list[Any]:
    return [{"calls": [{"name": f"t{n}"} for n in range(size)]} for size in batches] + [{"say": "done"}]


async def play(batches: list[int], history: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """The terminal Response, and the stages in its ledger row."""
    async with memory_server() as server:
        socket = await server.connect()
        frame = create(*program(batches))
        frame["input"] = [user("before") for _ in range(history)] + [user(frame["input"])]
        await socket.send(frame)
        for _ in batches:
            for call in calls_in(await socket.until("response.done")):
                await socket.send(append(result(call)))
        end = (await socket.until_end())[-1]["response"]
        row = server.rows(end["id"])[0]
        return end, json.loads(row["stages"])


@examples(15)
@given(st.lists(st.integers(1, 4), max_size=5))
def test_l01_once(batches: list[int]) -> None:
    end, stages = virtually(lambda: play(batches))
    assert end["engine"]["stage_runs"] == dict.fromkeys(STAGES, 1)
    assert {stage: stages[stage]["full"] for stage in stages} == dict.fromkeys(STAGES, 1)
    appends = sum(batches)
    assert [stages[name]["incremental"] for name in ("validate", "classify", "render")] == [appends, appends, len(batches)]
    assert stages["validate"]["items"] == 1 + appends
    assert stages["render"]["items"] == 1 + appends
    assert stages["route"]["incremental"] == 0


def test_l01_cost_does_not_grow_with_history() -> None:
    costs = []
    for history in (0, 10, 1000):
        _, none = virtually(lambda history=history: play([], history))  # type: ignore[misc]
        _, some = virtually(lambda history=history: play([2, 1], history))  # type: ignore[misc]
        units = ("items", "tokens", "bytes")
        names = ("validate", "classify", "render")
        costs.append([some[name][unit] - none[name][unit] for name in names for unit in units])
    first = [(cost[0], cost[3], cost[6]) for cost in costs]
    assert first == [first[0]] * 3, "items looked at for the appends"
    tokens = [cost[7] for cost in costs]
    assert max(tokens) - min(tokens) <= 8, "the prompts' programs differ by a few tokens, and nothing else does"


def test_l01_the_model_is_opened_once() -> None:
    from engine.models.scripted import ScriptedModel
    from engine.testing import RecordingModel

    model = RecordingModel(ScriptedModel())

    async def main() -> None:
        async with memory_server(models=[model]) as server:
            socket = await server.connect()
            await socket.send(create(*program([1, 1, 1])))
            for _ in range(3):
                (call,) = calls_in(await socket.until("response.done"))
                await socket.send(append(result(call)))
            await socket.until_end()

    virtually(main)
    (life,) = model.lives
    assert len(life.extended) == 3
    assert life.closed
