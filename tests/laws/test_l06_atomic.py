"""L6 atomic: a frame applies whole or not at all."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.policy import load_policy
from engine.testing import append, calls_in, create, direct_server, numbered, result, user, virtually
from engine.testing.profile import examples

STEPS: list[Any] = [
    {"calls": [{"name": "t0"}, {"name": "t1"}, {"name": "t2", "kind": "custom_tool_call"}]},
    {"say": "done: {{output}}"},
]
CODES = {
    "unknown": "tool_call_not_found",
    "kind": "tool_output_type_mismatch",
    "conflict": "tool_output_conflict",
    "twice": "tool_output_conflict",
    "echo": "echo_mismatch",
    "assistant": "echo_mismatch",
    "type": "invalid_value",
    "field": "missing_required_parameter",
}


def bad(kind: str, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return {
        "unknown": [{"type": "function_call_output", "call_id": "call_x", "output": ""}],
        "kind": [{"type": "custom_tool_call_output", "call_id": calls[0]["call_id"], "output": "ok"}],
        "conflict": [result(calls[2], "another")],
        "twice": [result(calls[1], "one"), result(calls[1], "two")],
        "echo": [{**calls[0], "arguments": '{"other": 1}'}],
        "assistant": [{"role": "assistant", "content": "no"}],
        "type": [{"type": "unheard_of"}],
        "field": [{"type": "function_call_output", "call_id": calls[0]["call_id"]}],
    }[kind]


@examples(60)
@given(st.sampled_from(list(CODES)), st.permutations(range(4)), st.integers(0, 4), st.booleans())
def test_l06_atomic(kind: str, order: list[int], at: int, keyed: bool) -> None:
    async def main() -> None:
        async with direct_server() as server:
            socket = await server.connect()
            await socket.send(create(*STEPS))
            frames = await socket.until("response.done")
            calls = calls_in(frames)
            await socket.send(append(result(calls[2], "held")))
            before = await socket.receive()
            good = [result(calls[0], "a"), result(calls[1], "one"), user("hello"), calls[0]]
            items = [good[number] for number in order]
            key = {"idempotency_key": "k"} if keyed else {}
            await socket.send(append(*items[:at], *bad(kind, calls), *items[at:], **key))
            error = await socket.receive()
            assert error["code"] == CODES[kind]
            assert str(error["param"]).startswith("input[")
            (rollout,) = server.engine.live.values()
            assert rollout.log.last == before["sequence_number"], "the log has not changed"
            await socket.send(append(*items, **key))  # all of it is still new, under the same key too
            accepted = await socket.receive()
            assert accepted["sequence_number"] == before["sequence_number"] + 1
            assert accepted["append"]["duplicate"] is False
            assert accepted["pending"] == []
            end = (await socket.until_end())[-1]["response"]
            assert end["output"][3]["content"][0]["text"] == "done: held"
            context = server.context(end["id"]) or []
            assert [item["content"] for item in context if item.get("role") == "user"][1:] == ["hello"]
            assert len(numbered(frames)) == before["sequence_number"]

    virtually(main)


def test_l06_a_policy_that_blocks_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[[rule]]\nname = "secrets"\npattern = "hunter2"\naction = "block"\n')
    policy = load_policy(file)

    async def main() -> None:
        async with direct_server(policy=policy) as server:
            socket = await server.connect()
            await socket.send(create(*STEPS))
            calls = calls_in(await socket.until("response.done"))
            await socket.send(append(result(calls[0], "fine"), result(calls[1], "it is hunter2")))
            assert (await socket.receive())["code"] == "content_policy_violation"
            await socket.send(append(result(calls[0], "fine")))
            assert (await socket.receive())["append"]["duplicate"] is False
            await socket.drop()

    virtually(main)
