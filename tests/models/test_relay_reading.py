"""What the other server streams, however it does, is what comes out here: items, texts and tokens."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.log import EventLog
from engine.models.base import Chunk, ModelError, Stop
from engine.models.responses.reading import Reading, usage_of
from engine.output import Output
from engine.parking import Slots
from engine.testing.fake_responses import ended, item_done
from protocol.codec import to_wire

Frame = dict[str, Any]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
STATUS = {"status": "completed"}
DELTA = {
    "message": "response.output_text.delta",
    "reasoning": "response.reasoning_summary_text.delta",
    "function_call": "response.function_call_arguments.delta",
    "custom_tool_call": "response.custom_tool_call_input.delta",
}


def said(kind: str, text: str, number: int) -> Frame:
    """The item of a server that says ``text``."""
    call = {"type": kind, "call_id": f"call_{number}", "name": "f", **STATUS}
    return {
        "message": {"type": kind, "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]},
        "reasoning": {"type": kind, "summary": [{"type": "summary_text", "text": text}], "encrypted_content": "c2VhbGVk"},
        "function_call": {**call, "arguments": text},
        "custom_tool_call": {**call, "input": text},
        "shell_call": {"type": kind, "call_id": f"call_{number}", "action": {"commands": [text]}, **STATUS},
        "web_search_call": {"type": kind, "id": f"ws_{number}", "action": {"query": text}, **STATUS},
    }[kind] | {"id": f"item_{number}", **STATUS}


ITEMS = st.lists(st.tuples(st.sampled_from([*DELTA, "shell_call", "web_search_call"]), TEXTS), max_size=5)


def streamed(data: st.DataObject, item: Frame, text: str, index: int) -> list[Frame]:
    """Some of the events that a server may send of an item: deltas cut anywhere in UTF-16, only the first of them, or none."""
    events: list[Frame] = []
    if data.draw(st.booleans(), "announced"):
        events.append({"type": "response.output_item.added", "output_index": index, "item": {**item, "status": "in_progress"}})
        events.append({"type": "response.content_part.added", "output_index": index, "item_id": item["id"]})
        units = text.encode("utf-16-le")
        cuts = [2 * cut for cut in sorted(data.draw(st.sets(st.integers(0, len(units) // 2), max_size=4), "cuts"))]
        parts = [units[start:end] for start, end in zip([0, *cuts], [*cuts, len(units)], strict=True)]
        pieces = [part.decode("utf-16-le", "surrogatepass") for part in parts]
        told = len(pieces) if item["type"] == "reasoning" else data.draw(st.integers(0, len(pieces)), "told")
        if item["type"] in DELTA:
            events += [{"type": DELTA[item["type"]], "output_index": index, "delta": one} for one in pieces[:told]]
    return [*events, item_done(item, index)] if data.draw(st.booleans(), "done") else events


def mixed(data: st.DataObject, streams: list[list[Frame]]) -> list[Frame]:
    """The events of all streams, each stream in its order."""
    rest, events = [list(stream) for stream in streams if stream], []
    while rest:
        chosen = data.draw(st.integers(0, len(rest) - 1))
        events.append(rest[chosen].pop(0))
        rest = [stream for stream in rest if stream]
    return events


class Emitted:
    def __init__(self) -> None:
        self.log = EventLog()

    def emit(self, event: Any) -> None:
        self.log.append(event)

    def emit_deltas(self, text: Any, pieces: Sequence[str]) -> None:
        self.log.deltas(text, pieces)


def put_out(chunks: Sequence[Chunk]) -> Output:
    output = Output(Emitted(), lambda count: numbers.pop().to_bytes(count, "big"), {}, Slots())
    numbers = list(range(1000, 0, -1))
    for chunk in chunks[:-1]:
        output.feed(chunk)
    output.close()
    return output


@settings(max_examples=50, deadline=None)
@given(ITEMS, st.booleans(), st.data())
def test_a_response_is_what_its_server_put_out(items: list[tuple[str, str]], side_by_side: bool, data: st.DataObject) -> None:
    given_items = [said(kind, text, number) for number, (kind, text) in enumerate(items)]
    streams = [streamed(data, item, items[index][1], index) for index, item in enumerate(given_items)]
    events = mixed(data, streams) if side_by_side else [event for stream in streams for event in stream]
    usage = {"output_tokens": 1000, "output_tokens_details": {"reasoning_tokens": 10}}
    reading = Reading()
    chunks = [chunk for event in [*events, ended(output=given_items, usage=usage)] for chunk in reading.feed(event)]
    output = put_out(chunks)
    assert [essence(to_wire(item)) for item in output.items] == [essence(item) for item in given_items if says(item)]
    assert (output.tokens, output.reasoning_tokens) == (1000, 10)
    calls = [item["call_id"] for item in given_items if "call_id" in item]
    assert sorted(reading.calls) == calls
    assert chunks[-1] == Stop("tool_calls" if calls else "end")
    assert [reading.output[index] for index in sorted(reading.output)] == given_items


def test_half_a_character_that_was_told_before_the_item_was_done_is_told_whole() -> None:
    item = said("message", "\U00010000", 0)
    announced = {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}}
    half = {"type": DELTA["message"], "output_index": 0, "delta": "\ud800"}
    reading = Reading()
    chunks = [chunk for event in (announced, half, ended(output=[item])) for chunk in reading.feed(event)]
    [message] = put_out(chunks).items
    assert essence(to_wire(message)) == essence(item)


def essence(item: Frame) -> Frame:
    """Without its id; and without the summary of reasoning that says nothing."""
    summary = {"summary": [part for part in item["summary"] if part["text"]]} if "summary" in item else {}
    return {name: value for name, value in {**item, **summary}.items() if name != "id"}


def says(item: Frame) -> bool:
    """An empty message is no item here."""
    return item["type"] != "message" or bool(item["content"][0]["text"])


TYPES = ("response.output_item.added", "response.output_item.done", "response.completed", "response.failed", "error")
KEYS = ("output_index", "item", "delta", "response", "summary_index", "error", "content", "status", "usage", "output", "type")
VALUES = [None, True, 0, -1, "", "x", "message", "shell_call", [], [[]], {}, {"type": []}, {"type": "message", "content": 7}]
ANY = st.sampled_from(VALUES)
FRAMES = st.tuples(
    st.sampled_from([*TYPES, *DELTA.values()]),
    st.dictionaries(st.sampled_from(KEYS), ANY | st.dictionaries(st.sampled_from(KEYS), ANY, max_size=4), max_size=6),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(FRAMES, max_size=4))
def test_nonsense_is_an_error_of_the_model(frames: list[tuple[str, Frame]]) -> None:
    reading = Reading()
    with suppress(ModelError):
        for kind, frame in frames:
            reading.feed({**frame, "type": kind})
    usage_of(reading.response or {})


@pytest.mark.parametrize("reason", [None, "steered", 7])
def test_a_reason_that_nobody_knows_is_told(reason: object) -> None:
    with pytest.raises(ModelError, match="has ended its Response"):
        Reading().feed(ended("incomplete", incomplete_details={"reason": reason}))
