"""The codec: strict, with paths; survives hostile JSON; writes what the wire wants."""

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import codec
from protocol.errors import CODES, ErrorEvent, ProtocolError
from protocol.events import Created, Done, ParkedResponse, Stub
from protocol.items import ITEMS, OTHER_ITEM_TYPES, FunctionCall, InputText, Message
from protocol.requests import AppendRequest, CreateRequest
from protocol.response import Response, Usage, usage_of

CREATE = {"type": "response.create", "model": "m"}
KEYS = [
    "id",
    "object",
    "created_at",
    "status",
    "model",
    "output",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "store",
    "background",
    "service_tier",
    "metadata",
    "completed_at",
    "incomplete_details",
    "previous_response_id",
    "instructions",
    "error",
    "reasoning",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "safety_identifier",
    "prompt_cache_key",
]


def error_of(frame: Any) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        codec.client_message(frame)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input": [{"role": "user", "content": 17}]}, "invalid_type", "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "smell"}]}]}, "invalid_value", "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{}]}]}, "missing_required_parameter", "input[0].content[0].type"),
        ({"input": [{"type": "function_call", "name": "n"}]}, "missing_required_parameter", "input[0].call_id"),
        ({"input": [{"role": "king", "content": ""}]}, "invalid_value", "input[0].role"),
        ({"input": [{"type": "telepathy"}]}, "invalid_value", "input[0].type"),
        ({"input": [["x"]]}, "invalid_type", "input[0]"),
        ({"input": 17}, "invalid_type", "input"),
        ({"tools": "abc"}, "invalid_type", "tools"),
        ({"tools": [{"name": "n"}]}, "missing_required_parameter", "tools[0].type"),
        ({"stream": "false"}, "invalid_type", "stream"),
        ({"parallel_tool_calls": 1}, "invalid_type", "parallel_tool_calls"),
        ({"max_output_tokens": 1.9}, "invalid_type", "max_output_tokens"),
        ({"max_output_tokens": True}, "invalid_type", "max_output_tokens"),
        ({"temperature": "1"}, "invalid_type", "temperature"),
        ({"metadata": []}, "invalid_type", "metadata"),
        ({"tool_choice": [1]}, "invalid_type", "tool_choice"),
        ({"include": ["a", 2]}, "invalid_type", "include[1]"),
        ({"hold": "for ever"}, "invalid_value", "hold"),
        ({"model": None}, "invalid_type", "model"),
        ({"stream_id": 5}, "invalid_type", "stream_id"),
    ],
)
def test_an_error_names_the_path_and_what_is_allowed(fields: dict[str, Any], code: str, param: str) -> None:
    error = error_of({**CREATE, **fields})
    assert (error.code, error.param) == (code, param)
    assert error.message.startswith(f"{param}: ")
    assert error.status == CODES[code].status


@pytest.mark.parametrize("frame", [None, [], "text", 1, True])
def test_a_frame_is_an_object(frame: Any) -> None:
    assert error_of(frame).code == "invalid_frame"


@pytest.mark.parametrize("kind", ["response.create2", "", 5, ["response.create"], {"a": 1}])
def test_an_unknown_event_is_told_which_there_are(kind: Any) -> None:
    error = error_of({"type": kind})
    assert error.code == "unknown_event"
    assert "response.append" in error.message


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        '{"type": "response.create", "model": NaN}',
        "1e400",
        "[" * 10_000 + "]" * 10_000,
        '{"a":' * 10_000 + "1" + "}" * 10_000,
        r'{"type": "response.create", "model": "\ud83d"}',
        b'{"model": "\xff\xfe"}',
        '{"type": "response.create"',
        "",
        "\x00",
        "{'type': 1}",
        '{"a": 01}',
    ],
    ids=lambda text: repr(text)[:20],
)
def test_hostile_json_is_refused_by_the_parser(text: str | bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        codec.decode_client(text)
    assert caught.value.code == "invalid_json"


def test_of_duplicate_keys_the_last_counts() -> None:
    request = codec.decode_client('{"type": "response.create", "model": "a", "model": "b"}')
    assert isinstance(request, CreateRequest)
    assert request.model == "b"


def test_megabytes_of_text_pass() -> None:
    text = "é" * 4_000_000
    request = codec.decode_client(codec.encode({**CREATE, "input": text}))
    assert isinstance(request, CreateRequest)
    assert request.input == text


def test_integers_beyond_what_javascript_holds_stay_exact() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "n", "arguments": '{"n": 123456789012345678901234567890}'}
    tool = {"type": "function", "name": "n", "parameters": {"maximum": 2**53 + 1}}
    request = codec.client_message({**CREATE, "input": [call], "tools": [tool]})
    assert isinstance(request, CreateRequest)
    assert codec.to_wire(request.input)[0]["arguments"] == call["arguments"]
    assert codec.encode(request.tools) == codec.encode([tool])


texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def outcome(read: Callable[[], object]) -> str:
    """``read``, or the code of the error that it was refused with; any other exception is a crash."""
    try:
        read()
    except ProtocolError as error:
        return error.code
    return "read"


@given(values)
def test_no_value_crashes_the_reader(value: Any) -> None:
    for frame in (value, {"type": value}, {**CREATE, "input": value}, {**CREATE, "tools": value, "tool_choice": value}):
        assert outcome(lambda frame=frame: codec.client_message(frame)) != ""


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_no_text_crashes_the_parser(text: str | bytes) -> None:
    allowed = ("read", "invalid_json", "invalid_frame", "missing_required_parameter", "unknown_event")
    assert outcome(lambda: codec.decode_client(text)) in allowed


unknown = st.dictionaries(st.text("xyz_", min_size=2, max_size=6).map(lambda key: f"x-{key}"), values, max_size=3)
items = st.one_of(
    st.builds(lambda t, more: {"role": "user", "content": t, "type": "message", **more}, texts, unknown),
    st.builds(
        lambda t, more: {"type": "message", "role": "user", "content": [{"type": "input_text", "text": t, **more}]},
        texts,
        unknown,
    ),
    st.builds(lambda t, more: {"type": "function_call", "call_id": "c", "name": "f", "arguments": t, **more}, texts, unknown),
    st.builds(lambda t, more: {"type": "function_call_output", "call_id": "c", "output": t, **more}, texts, unknown),
    st.builds(lambda kind, more: {"type": kind, **more}, st.sampled_from(sorted(OTHER_ITEM_TYPES)), unknown),
)


@given(items)
def test_items_are_kept_as_they_were_sent(item: dict[str, Any]) -> None:
    """Law L14, at the edge: unknown fields and all."""
    assert codec.to_wire(codec.item_from_wire(item)) == item


@given(values)
def test_unknown_fields_of_a_request_are_never_fatal(value: Any) -> None:
    request = codec.client_message({**CREATE, "client_metadata": value, "extra": value})
    assert isinstance(request, CreateRequest)
    assert request.extra == {"client_metadata": value, "extra": value}


def test_null_stands_for_the_default() -> None:
    nulls = dict.fromkeys(("input", "tools", "metadata", "stream", "tool_choice", "reasoning"))
    assert codec.client_message({**CREATE, **nulls}) == CreateRequest(model="m")


def test_a_message_may_leave_out_its_type() -> None:
    request = codec.client_message({"type": "response.append", "input": [{"role": "user", "content": "x"}]})
    assert request == AppendRequest(input=(Message(role="user", content="x"),))


def test_all_31_keys_are_present_and_optional_ones_are_left_out() -> None:
    wire = codec.to_wire(Response(id="resp_1", created_at=1, model="m", status="in_progress"))
    assert sorted(wire) == sorted(KEYS)
    assert len(KEYS) == 31
    item = codec.to_wire(Message(role="user", content=(InputText(text="x"),)))
    assert item == {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}


def test_usage_has_all_totals_and_details() -> None:
    assert codec.to_wire(usage_of(3, 2, cached=1, reasoning=2)) == {
        "input_tokens": 3,
        "output_tokens": 2,
        "total_tokens": 5,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 2},
    }


@given(texts, st.integers(0, 10**9))
def test_a_sealed_frame_is_the_event_with_its_number(text: str, number: int) -> None:
    event = Done(ParkedResponse("resp_1", Usage()), (Stub("function_call_output", call_id=text, name=text),))
    frame = json.loads(codec.seal(codec.encode_event(event), number, codec.lane_suffix("main")))
    assert frame.pop("sequence_number") == number
    assert frame.pop("stream_id") == "main"
    assert frame == codec.to_wire(event)


@given(st.text())
def test_what_cannot_be_encoded_raises(text: str) -> None:
    event = Created(Response(id=text, created_at=1, model="m", status="in_progress"))
    if any(0xD800 <= ord(char) < 0xE000 for char in text):
        with pytest.raises((TypeError, ValueError)):
            codec.encode_event(event)
    else:
        assert orjson.loads(codec.encode_event(event) + b"}")["response"]["id"] == text


def test_an_error_frame_is_nested_and_flat() -> None:
    error = ProtocolError("tool_call_not_found", "no call", "input[0]")
    append = {"call_ids": ["call_1"], "idempotency_key": None}
    frame = ErrorEvent(error, "resp_1", "lane", append).to_wire()
    same = {"code": "tool_call_not_found", "message": "no call", "param": "input[0]", "work": "not_started"}
    assert frame == {
        "type": "error",
        "status": 404,
        **same,
        "response_id": "resp_1",
        "stream_id": "lane",
        "append": append,
        "error": {"type": "invalid_request_error", **same},
    }


def test_errors_that_pass_by_themselves_say_when_to_try_again() -> None:
    assert ErrorEvent(ProtocolError("queue_full", "full")).to_wire()["headers"] == {"retry-after": "1"}


def test_arguments_are_compared_as_json() -> None:
    assert codec.same_json('{"a": 1, "b": [2]}', '{"b":[2],"a":1}')
    assert not codec.same_json('{"a": 1}', '{"a": 2}')
    assert codec.same_json("not json", "not json")
    assert not codec.same_json("not json", "{}")


def test_every_item_class_is_in_the_table() -> None:
    assert ITEMS["function_call"] is FunctionCall
    assert not set(ITEMS) & OTHER_ITEM_TYPES
