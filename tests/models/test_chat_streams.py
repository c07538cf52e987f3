"""What becomes of awkward streams, however the network cuts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.testing import virtually

from .chat_streams import STREAMS, Stream
from .chat_support import Heard, hear, saying


def check(stream: Stream, heard: Heard) -> None:
    assert [tuple(item) for item in heard.items] == list(stream.items)
    assert heard.stop == stream.stop
    if stream.error is None:
        assert heard.error is None
    else:
        assert heard.error is not None
        assert stream.error in heard.error.message
        assert heard.error.code == stream.code
    assert stream.tokens in (None, heard.tokens)
    assert not stream.ids or heard.ids == list(stream.ids)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_becomes_what_it_means(name: str) -> None:
    stream = STREAMS[name]
    check(stream, virtually(lambda: hear(saying(stream.sent, headers={"content-type": stream.content_type}))))


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_comes_byte_by_byte_means_the_same(name: str) -> None:
    stream = STREAMS[name]
    steps = [stream.sent[at : at + 1] for at in range(len(stream.sent))]
    check(stream, virtually(lambda: hear(saying(*steps, headers={"content-type": stream.content_type}))))


@given(name=st.sampled_from(list(STREAMS)), data=st.data())
def test_a_stream_that_is_cut_anywhere_means_the_same(name: str, data: st.DataObject) -> None:
    stream = STREAMS[name]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream.sent)), max_size=12)))
    steps = [stream.sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream.sent)], strict=True)]
    check(stream, virtually(lambda: hear(saying(*steps, headers={"content-type": stream.content_type}))))
