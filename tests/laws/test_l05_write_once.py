"""L5 write-once: a slot takes one result; the same again is an acknowledgement, another is a conflict."""

from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.testing import append, calls_in, create, direct_server, result, virtually
from engine.testing.profile import examples

CALLS = 3
STEPS: list[Any] = [
    {"calls": [{"name": f"t{n}"} for n in range(CALLS)]},
    {"say": "{{output_of:t0}}|{{output_of:t1}}|{{output_of:t2}}"},
]
sends = st.tuples(st.integers(0, CALLS - 1), st.sampled_from(["a", "b"]), st.sampled_from(["plain", "reordered"]))


def shaped(item: dict[str, Any], how: str) -> dict[str, Any]:
    """The same body with its keys in another order."""
    return dict(reversed(item.items())) if how == "reordered" else item


@examples(60)
@given(st.lists(sends, max_size=12))
def test_l05_write_once(script: list[tuple[int, str, str]]) -> None:
    async def main() -> None:
        async with direct_server() as server:
            socket = await server.connect()
            await socket.send(create(*STEPS))
            calls = calls_in(await socket.until("response.done"))
            held: dict[int, str] = {}
            for number, text, how in script:
                if len(held) == CALLS:
                    break
                await socket.send(append(shaped(result(calls[number], text), how)))
                answer = await socket.receive()
                if held.get(number, text) != text:
                    assert answer["code"] == "tool_output_conflict"
                    assert answer["status"] == 409
                else:
                    assert answer["append"]["call_ids"] == [calls[number]["call_id"]]
                    assert answer["append"]["duplicate"] == (number in held)
                    held[number] = text
                    assert answer["pending"] == [calls[n]["call_id"] for n in range(CALLS) if n not in held]
            for number in range(CALLS):
                if number not in held:
                    await socket.send(append(result(calls[number], "a")))
                    held[number] = "a"
            (end,) = (await socket.until_end())[-1:]
            assert end["response"]["output"][-1]["content"][0]["text"] == "|".join(held[number] for number in range(CALLS))

    virtually(main)


def test_l05_a_result_of_an_earlier_turn_is_still_known() -> None:
    async def main() -> None:
        async with direct_server() as server:
            socket = await server.connect()
            await socket.send(create({"call": {"name": "a"}}, {"call": {"name": "b"}}, {"say": "done"}))
            (first,) = calls_in(await socket.until("response.done"))
            await socket.send(append(result(first, "1")))
            await socket.until("response.done")
            await socket.send(append(result(first, "1")))
            assert (await socket.receive())["append"]["duplicate"] is True
            await socket.send(append(result(first, "2")))
            assert (await socket.receive())["code"] == "tool_output_conflict"
            await socket.drop()

    virtually(main)


@examples(30)
@given(st.lists(st.sampled_from(["k", "l"]), min_size=1, max_size=6))
def test_l05_one_key_one_append(keys: list[str]) -> None:
    """The same key and body again adds nothing, for messages too; another body under the key is refused."""

    async def main() -> None:
        async with direct_server() as server:
            socket = await server.connect()
            await socket.send(create({"call": {"name": "a"}}, {"say": "done"}))
            frames = await socket.until("response.done")
            seen: dict[str, str] = {}
            for key in keys:
                message = {"role": "user", "content": f"message {key}"}
                await socket.send(append(message, idempotency_key=key))
                accepted = (await socket.receive())["append"]
                assert accepted["duplicate"] == (key in seen)
                assert seen.setdefault(key, accepted["id"]) == accepted["id"]
                await socket.send(append({"role": "user", "content": "other"}, idempotency_key=key))
                assert (await socket.receive())["code"] == "idempotency_conflict"
            await socket.send(append(result(calls_in(frames)[0])))
            end = (await socket.until_end())[-1]["response"]
            context = server.context(end["id"]) or []
            said = [item["content"] for item in context if item.get("role") == "user"][1:]
            assert said == [f"message {key}" for key in dict.fromkeys(keys)]

    virtually(main)


def test_l05_one_key_one_response() -> None:
    """The same create again, while the first is still being validated and rendered: one Response, not two."""

    async def main() -> None:
        async with direct_server() as server:
            first, second = await server.connect(), await server.connect()
            frame = create({"call": {"name": "a"}}, idempotency_key="k")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(first.send, frame)
                nursery.start_soon(second.send, frame)
            await server.settle()
            assert len(server.engine.live) == 1

    virtually(main)
