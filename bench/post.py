"""``post``: an HTTP round trip, a whole Response as JSON, against a bare server that answers with a body of the same size."""

import json
import time
from collections.abc import Iterator
from typing import Final

from .client import PATH, HttpClient
from .process import ServerProcess
from .report import Row, Sizes, against, interleaved

PAYLOAD: Final = json.dumps({"model": "instant", "input": "Say how the loop goes on.", "store": False}).encode()


def post(sizes: Sizes) -> Iterator[Row]:
    """A POST and its whole answer."""
    with ServerProcess("engine") as engine:
        ours = engine.connect_http()
        size = len(ours.post(PATH, PAYLOAD))
        with ServerProcess("http", size=size) as plain:
            theirs = plain.connect_http()
            pairs = interleaved(sizes.samples, lambda: _round_trip(ours), lambda: _round_trip(theirs))
    what = "HTTP POST, a whole Response as JSON : a bare h11-on-trio server"
    yield against("post", what, pairs, target=1.5, scale=1e6, unit="µs", bytes=size)


def _round_trip(client: HttpClient) -> float:
    started = time.perf_counter()
    client.post(PATH, PAYLOAD)
    return time.perf_counter() - started
