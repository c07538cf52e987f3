"""Random calls in random dialects of deltas: what is heard is what was meant."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from engine.models.base import CallBegin, CallEnd, CallPieces, Chunk
from engine.models.chat.calls import Calls
from engine.models.chat.ids import CallIds

NAMES = ("look", "look_up", "go")


@frozen
class Meant:
    name: str
    arguments: str


@frozen
class Dialect:
    """What a server puts into its deltas."""

    index: bool
    ids: str
    """``first``: in a call's first delta, ``each``: in all, ``none``."""
    names: str
    """``first``, ``each``, or in ``pieces`` before the arguments."""
    interleaved: bool
    per_chunk: int
    """Deltas in one chunk, at most."""


def pieces(text: str, cuts: Sequence[int]) -> list[str]:
    at = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    return [text[start:end] for start, end in itertools.pairwise(at)]


def deltas(number: int, meant: Meant, cuts: Sequence[int], dialect: Dialect) -> list[dict[str, Any]]:
    """The deltas of one call."""
    named = pieces(meant.name, [2]) if dialect.names == "pieces" else [meant.name]
    functions: list[dict[str, Any]] = [{"name": part, "arguments": ""} for part in named]
    for place, piece in enumerate(pieces(meant.arguments, cuts)):
        again = {"name": meant.name} if dialect.names == "each" else {}
        if place == 0 and dialect.names != "pieces":
            functions[0]["arguments"] = piece
        else:
            functions.append({**again, "arguments": piece})
    result = []
    for place, function in enumerate(functions):
        known = dialect.ids == "each" or (dialect.ids == "first" and place == 0)
        result.append(
            {
                **({"index": number} if dialect.index else {}),
                **({"id": f"call {number}"} if known else {}),
                "function": function,
            }
        )
    return result


def understandable(dialect: Dialect) -> bool:
    """Deltas that take turns have to say whose they are; so have those of one call that share a chunk."""
    return dialect.index or dialect.ids == "each" or (not dialect.interleaved and dialect.per_chunk == 1)


values = st.recursive(st.text(max_size=5) | st.integers() | st.none(), lambda inner: st.lists(inner, max_size=2), max_leaves=4)
arguments = st.dictionaries(st.text(max_size=4), values, min_size=1, max_size=3).map(json.dumps)
calls = st.lists(st.builds(Meant, st.sampled_from(NAMES), arguments), min_size=1, max_size=4)
dialects = st.builds(
    Dialect,
    index=st.booleans(),
    ids=st.sampled_from(["first", "each", "none"]),
    names=st.sampled_from(["first", "each", "pieces"]),
    interleaved=st.booleans(),
    per_chunk=st.integers(1, 3),
).map(lambda dialect: dialect if understandable(dialect) else evolve(dialect, index=True))


def told(chunks: Sequence[Chunk]) -> list[Meant]:
    """The calls that were given out: each in one piece of the stream."""
    heard: list[Meant] = []
    is_open = False
    for chunk in chunks:
        if isinstance(chunk, CallBegin):
            assert not is_open
            heard.append(Meant(chunk.name, ""))
            is_open = True
        elif isinstance(chunk, CallPieces):
            assert is_open
            heard[-1] = evolve(heard[-1], arguments=heard[-1].arguments + "".join(chunk.pieces))
        else:
            assert isinstance(chunk, CallEnd)
            is_open = False
    assert not is_open
    return heard


@given(calls, dialects, st.data())
def test_what_is_heard_is_what_was_meant(meant: list[Meant], dialect: Dialect, data: st.DataObject) -> None:
    if not dialect.index and dialect.ids == "none":
        meant = list(dict.fromkeys(meant))  # the same call twice can't be told from one that is said twice
    cuts = st.lists(st.integers(1, 12), max_size=4)
    queues = [deltas(number, one, data.draw(cuts), dialect) for number, one in enumerate(meant)]
    stream: list[dict[str, Any]] = []
    while any(queues):
        waiting = [queue for queue in queues if queue]
        stream.append(data.draw(st.sampled_from(waiting) if dialect.interleaved else st.just(waiting[0])).pop(0))
    reader = Calls(dict.fromkeys(NAMES, "function_call"), CallIds(()).own)
    chunks: list[Chunk] = []
    while stream:
        size = data.draw(st.integers(1, dialect.per_chunk))
        chunks += reader.feed(stream[:size])
        del stream[:size]
    chunks += reader.finish()
    begun = sorted(told(chunks), key=lambda one: (one.name, one.arguments))
    assert begun == sorted(meant, key=lambda one: (one.name, one.arguments))
    if not dialect.interleaved:
        assert told(chunks) == meant
