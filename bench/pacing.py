"""``pacing``: many Responses at a pace, and how late their tokens are, against a loop with a timer for each; and one in haste.

Lateness is from when a token is due to when the client has read it. When sampling began each stream says itself, in its first
token, by a clock that all processes share.
"""

import re
import selectors
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from statistics import median
from typing import Any, Final

from attrs import frozen

from .process import ServerProcess
from .report import Row, Sizes, against, interleaved, quartiles

CROWD: Final = ((100.0, 50), (1_000.0, 5))
"""Tokens a second, and how many Responses have them."""
CROWD_SAID: Final = " and ".join(f"{count} Responses at {rate:,.0f} tokens/s" for rate, count in CROWD)
ONE: Final = 4_000.0
"""Tokens a second of a single Response."""

FRAME_BYTES: Final = 150
"""As long as one of our deltas is, more or less; the loop's are."""

DELTA: Final = re.compile(rb'"type":"response\.output_text\.delta"')
BEGAN: Final = re.compile(rb'"delta":"([0-9.]+)"')
TERMINAL: Final = b'"type":"response.completed"'


@frozen
class Stream:
    """What one stream was: its pace, when sampling began, and when each token had come."""

    rate: float
    began: float
    arrivals: Sequence[float]

    @property
    def late(self) -> list[float]:
        """By how many seconds each token was late. Token ``n`` is due ``n / rate`` seconds after the beginning."""
        return [came - self.began - number / self.rate for number, came in enumerate(self.arrivals, 1)]


class Crowd:
    """Streams that are played side by side, each on a connection of its own."""

    def __init__(self, server: ServerProcess, creates: Sequence[tuple[float, dict[str, Any]]]) -> None:
        self._asked = [(rate, create, server.connect()) for rate, create in creates]

    def play(self) -> list[Stream]:
        """Play all to their ends; they begin as good as at once."""
        came: list[list[tuple[float, bytes]]] = [[] for _ in self._asked]
        with selectors.DefaultSelector() as waiting:
            for (_, create, client), data in zip(self._asked, came, strict=True):
                waiting.register(client.connection, selectors.EVENT_READ, data)
                client.send_json(create)
            while waiting.get_map():
                for key, _ in waiting.select(60.0):
                    _read(waiting, key)
        return [_stream(rate, data) for (rate, _, _), data in zip(self._asked, came, strict=True)]


def _read(waiting: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    data: bytes = key.fileobj.recv(65_536)  # type: ignore[union-attr]
    key.data.append((time.perf_counter(), data))
    if not data or TERMINAL in data:
        waiting.unregister(key.fileobj)


def _stream(rate: float, came: Sequence[tuple[float, bytes]]) -> Stream:
    """A frame has come with the last of its bytes; here, with its first ones: they are hardly ever apart."""
    whole = b"".join(data for _, data in came)
    ends = list(accumulate(len(data) for _, data in came))
    arrivals = [came[bisect_left(ends, found.end())][0] for found in DELTA.finditer(whole)]
    began = BEGAN.search(whole)
    if began is None:
        raise RuntimeError(f"a stream without a beginning: {whole[:500]!r}")
    return Stream(rate, float(began[1]), arrivals)


def pacing(sizes: Sizes) -> Iterator[Row]:
    """Lateness in a crowd, and the speed of one."""
    paces = [(rate, _tokens(rate, sizes)) for rate, _ in CROWD] + [(ONE, _tokens(ONE, sizes))]
    with ServerProcess("engine", paces=paces, deltas=sizes.deltas) as engine, ServerProcess("pace") as loop:
        yield _lateness(engine, loop, sizes)
        yield _paced(engine, sizes)
        yield _unpaced(engine, sizes)


def _tokens(rate: float, sizes: Sizes) -> int:
    return max(2, int(rate * sizes.pace_seconds))


def _lateness(engine: ServerProcess, loop: ServerProcess, sizes: Sizes) -> Row:
    rates = [rate for rate, count in CROWD for _ in range(count)]
    ours = Crowd(engine, [(rate, _create(rate)) for rate in rates])
    theirs = Crowd(loop, [(rate, _order(rate, sizes)) for rate in rates])
    pairs = interleaved(sizes.rounds, lambda: _p99(ours.play()), lambda: _p99(theirs.play()))
    what = f"p99 lateness of tokens, {CROWD_SAID} : a loop with a timer for each"
    return against("pacing", what, pairs, target=2.0, scale=1e6, unit="µs")


def _p99(streams: Sequence[Stream]) -> float:
    late = sorted(seconds for stream in streams for seconds in stream.late)
    return late[int(len(late) * 0.99)]


def _create(rate: float) -> dict[str, Any]:
    return {"type": "response.create", "model": f"pace-{rate:g}", "input": "Go on.", "store": False}


def _order(rate: float, sizes: Sizes) -> dict[str, Any]:
    return {"rate": rate, "count": _tokens(rate, sizes), "bytes": FRAME_BYTES}


def _paced(engine: ServerProcess, sizes: Sizes) -> Row:
    one = Crowd(engine, [(ONE, _create(ONE))])
    shares = []
    for _ in range(sizes.rounds):
        (stream,) = one.play()
        shares.append((stream.arrivals[-1] - stream.began) * ONE / len(stream.arrivals))
    return Row(
        name="pacing",
        what=f"one Response at {ONE:,.0f} tokens/s, a delta for each : the time that its tokens take",
        value=median(shares),
        target=1.01,
        spread=quartiles(shares),
    )


def _unpaced(engine: ServerProcess, sizes: Sizes) -> Row:
    client = engine.connect()
    speeds = []
    for _ in range(sizes.rounds):
        started = time.perf_counter()
        client.send_json({"type": "response.create", "model": "stream-1", "input": "Go on.", "store": False})
        client.all()
        speeds.append(sizes.deltas / (time.perf_counter() - started))
    return Row(
        name="pacing",
        what="one Response as fast as can be, a delta for each token, one by one",
        value=median(speeds),
        unit="tokens/s",
        target=ONE,
        at_least=True,
        spread=quartiles(speeds),
    )
