"""L3 gap-free: numbers are 0, 1, 2, … per Response, and are given after encoding, so that a failed encode leaves no hole."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.log import DeltaText, EventLog
from engine.testing import FakeModel, append, calls_in, create, memory_server, numbered, result, say, stop, virtually
from engine.testing.profile import examples
from protocol import events as ev
from protocol.codec import parse, seal
from protocol.grammar import check

GOOD, BAD = "good", "\ud800"
RUN = ev.DeltaRun("response.output_text.delta", "msg_1", 0, content_index=0)


@examples(100)
@given(st.lists(st.tuples(st.sampled_from(["event", "delta"]), st.booleans(), st.booleans())))
def test_l03_a_failed_encode_leaves_no_hole(entries: list[tuple[str, bool, bool]]) -> None:
    log, text, numbers = EventLog(), DeltaText(RUN), []
    for kind, works, read in entries:
        word = GOOD if works else BAD
        try:
            if kind == "delta":
                log.deltas(text, [GOOD, word], read=read)
            else:
                log.append(ev.CustomInputDone("ctc_1", 0, word), read=read)
        except TypeError:  # orjson's, of a lone surrogate
            assert not works
        else:
            assert works
            numbers += range(len(numbers), log.next)
    assert [parse(seal(body, number))["sequence_number"] for number, body in log.after(-1)] == numbers
    assert numbers == list(range(log.next))


def test_l03_a_model_that_samples_half_a_character_ends_without_a_hole() -> None:
    async def main() -> None:
        async with memory_server(models=[FakeModel(say("a"), say("b", BAD, "c"), stop())]) as server:
            socket = await server.connect()
            await socket.send(create(model="fake"))
            frames = await socket.until_end()
            trace = check(numbered(frames))
            assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
            assert trace.text == "a", "what was sampled together is logged whole or not at all"
            assert frames[-1]["response"]["status"] == "failed"
            assert server.books.bugs
            server.books.bugs.clear()

    virtually(main)


@examples(15)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=5), st.booleans())
def test_l03_numbers_go_on_through_every_park(batches: list[int], hold: bool) -> None:
    steps: list[Any] = [{"calls": [{"name": f"t{n}"} for n in range(size)]} for size in batches]

    async def main() -> None:
        async with memory_server() as server:
            socket = await server.connect()
            await socket.send(create(*steps, {"say": "done"}, hold="conversation" if hold else "rollout"))
            frames = []
            for _ in batches:
                frames += await socket.until("response.done")
                by_id = {call["call_id"]: call for call in calls_in(frames)}
                for stub in frames[-1]["required_input"]:
                    await socket.send(append(result(by_id[stub["call_id"]])))
            if hold:
                frames += await socket.until("response.done")
                await socket.send({"type": "response.finish"})
            frames += await socket.until_end()
            assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
            assert check(frames, append_shape=True).parks == len(batches) + hold

    virtually(main)


def test_l03_an_event_that_cannot_be_encoded_raises() -> None:
    log = EventLog()
    with pytest.raises(TypeError, match="surrogate"):
        log.append(ev.CustomInputDone("ctc_1", 0, BAD))
    assert log.next == 0
