"""L14 no repair: items are stored as they were sent; the engine invents, drops and rebinds nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.testing import FakeModel, append, call, calls_in, create, direct_server, result, say, stop, user, virtually, wait
from engine.testing.profile import examples
from protocol.codec import same_json

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
extra = st.dictionaries(
    st.sampled_from(["x_mine", "annotations_of_mine", "nested"]), st.one_of(text, st.integers(0, 9), st.none()), max_size=2
)
part = st.builds(lambda words, more: {"type": "input_text", "text": words, **more}, text, extra)
image = st.just({"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"})
outputs = st.one_of(text, st.lists(st.one_of(part, image), max_size=3))
results = st.builds(
    lambda output, more, item: {"output": output, **more, **item},
    outputs,
    extra,
    st.sampled_from([{}, {"id": "fco_1"}, {"status": "completed"}]),
)
contents = st.one_of(text.filter(bool), st.lists(part, min_size=1, max_size=3))


@examples(50)
@given(results, st.lists(contents, max_size=2), st.booleans())
def test_l14_appended_items_are_kept_as_they_were_sent(body: dict[str, Any], said: list[Any], custom: bool) -> None:
    kind = "custom_tool_call" if custom else "function_call"

    async def main() -> None:
        async with direct_server() as server:
            socket = await server.connect()
            await socket.send(create({"call": {"name": "a", "kind": kind, "arguments": '{"b" :1}'}}, {"say": "done"}))
            (one,) = calls_in(await socket.until("response.done"))
            sent = {"type": f"{kind}_output", "call_id": one["call_id"], **body}
            messages = [{"type": "message", "role": "user", "content": content} for content in said]
            await socket.send(append(*messages, sent))
            end = (await socket.until_end())[-1]["response"]
            context = list(server.context(end["id"]) or [])
            assert context[1:] == [end["output"][0], sent, *messages, *end["output"][1:]]

    virtually(main)


@examples(50)
@given(st.lists(text.filter(bool), min_size=1, max_size=4))
def test_l14_arguments_stay_byte_for_byte(pieces: list[str]) -> None:
    """What the model samples is no JSON of ours: spaces, order, escapes and nonsense are its own."""
    arguments = "".join(pieces)
    model = FakeModel(call("a", arguments, "call_of_the_model"), wait(), say("done"), stop())

    async def main() -> None:
        async with direct_server(models=[model]) as server:
            socket = await server.connect()
            await socket.send(create(model="fake"))
            (one,) = calls_in(await socket.until("response.done"))
            assert (one["arguments"], one["call_id"]) == (arguments, "call_of_the_model")
            await socket.send(append(result(one)))
            end = (await socket.until_end())[-1]["response"]
            assert end["output"][0]["arguments"] == arguments
            assert (server.context(end["id"]) or [])[1]["arguments"] == arguments

    virtually(main)


def test_l14_an_echo_adds_nothing_and_a_false_one_is_refused() -> None:
    async def main() -> None:
        async with direct_server() as server:
            socket = await server.connect()
            await socket.send(
                create({"say": "look"}, {"call": {"name": "a", "arguments": '{"x": 1, "y": 2}'}}, {"say": "done"})
            )
            frames = await socket.until("response.done")
            (one,) = calls_in(frames)
            bare = {key: value for key, value in one.items() if key not in ("id", "status")}
            for change in ({"name": "b"}, {"arguments": '{"x": 2, "y": 2}'}, {"type": "custom_tool_call", "input": "?"}):
                wrong = {**bare, **change}
                if "input" in change:
                    del wrong["arguments"]
                await socket.send(append(wrong, result(one)))
                assert (await socket.receive())["code"] == "echo_mismatch"
            said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "look"}]}
            await socket.send(append(said, {**bare, "arguments": '{"y": 2, "x": 1}'}, result(one)))
            end = (await socket.until_end())[-1]["response"]
            context = list(server.context(end["id"]) or [])
            assert [item["type"] for item in context[1:]] == ["message", "function_call", "function_call_output", "message"]
            assert same_json(context[2]["arguments"], one["arguments"])
            assert context[2] == one

    virtually(main)


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ([{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}], "tool_output_missing"),
        ([{"type": "function_call_output", "call_id": "c", "output": ""}], "tool_call_not_found"),
        (
            [
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "custom_tool_call_output", "call_id": "c", "output": ""},
            ],
            "tool_output_type_mismatch",
        ),
        (
            [
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": ""},
                {"type": "function_call_output", "call_id": "c", "output": ""},
            ],
            "tool_output_conflict",
        ),
        ([{"type": "item_reference", "id": "msg_1"}], "item_not_found"),
    ],
)
def test_l14_a_history_that_does_not_fit_is_refused(items: list[dict[str, Any]], code: str) -> None:
    async def main() -> None:
        async with direct_server() as server:
            socket = await server.connect()
            await socket.send({"type": "response.create", "model": "scripted", "input": [user("hi"), *items]})
            assert (await socket.receive())["code"] == code

    virtually(main)
