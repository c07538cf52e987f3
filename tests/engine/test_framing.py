"""Frames as bytes: which messages go past wsproto, and that it is known when they may."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import BytesMessage, Ping, TextMessage

from engine.transport import framing
from engine.transport.framing import lone_text, masked, missing_at_end

SIZES = (0, 1, 125, 126, 127, 65_535, 65_536)


def frame(event: Any) -> bytes:
    return Connection(ConnectionType.CLIENT).send(event)


texts = st.text(max_size=300) | st.sampled_from(SIZES).map(lambda size: "é"[: size % 2] + "x" * (size - 2 * (size % 2)))
frames = st.lists(
    texts.map(lambda text: frame(TextMessage(text)))
    | texts.map(lambda text: frame(TextMessage(text, message_finished=False)))
    | st.binary(max_size=200).map(lambda data: frame(BytesMessage(data)))
    | st.binary(max_size=125).map(lambda data: frame(Ping(data))),
    max_size=4,
)


@given(texts)
def test_a_lone_text_is_read(text: str) -> None:
    assert lone_text(frame(TextMessage(text))) == text


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_masks_are_the_same_with_and_without_the_extra(data: bytes, mask: bytes) -> None:
    put_on = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
    assert masked(data, mask) == framing.apply_mask(data, mask) == put_on
    assert masked(put_on, mask) == data


@given(texts, st.data())
def test_what_is_not_whole_or_not_alone_is_left_to_wsproto(text: str, data: st.DataObject) -> None:
    whole = frame(TextMessage(text))
    assert lone_text(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
    assert lone_text(whole + data.draw(st.binary(min_size=1, max_size=20))) is None


@pytest.mark.parametrize(
    "data",
    [
        frame(TextMessage("begun", message_finished=False)),
        frame(BytesMessage(b"binary")),
        frame(Ping(b"ping")),
        b"\x81\x02hi\x00\x00",  # not masked
        b"\xc1\x82\x00\x00\x00\x00hi",  # a bit that nobody has agreed on
        b"\x81\xfe\x00\x02\x00\x00\x00\x00hi",  # a size that is longer than it need be
        b"\x81\x82\x00\x00\x00\x00\xff\xfe",  # no UTF-8
    ],
    ids=["begun", "binary", "ping", "not masked", "reserved bit", "long size", "no UTF-8"],
)
def test_what_is_anything_else_is_left_to_wsproto(data: bytes) -> None:
    assert lone_text(data) is None


@given(frames, st.data())
def test_it_is_known_what_is_missing_of_the_last_frame(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    ends = [sum(map(len, parts[: count + 1])) for count in range(len(parts))]
    cut = data.draw(st.integers(0, len(whole)))
    middle = data.draw(st.integers(0, cut))
    missing = missing_at_end(whole[:middle])
    found = None if missing is None else missing_at_end(whole[middle:cut], missing)
    if found is not None:
        assert found == (next(end for end in ends if end >= cut) - cut if cut else 0)
