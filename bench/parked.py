"""``parked``: many parked Responses in one process: what each costs, and whether they slow down one that resumes."""

import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Final

from .child import raise_file_limit
from .process import ServerProcess
from .report import Row, Sizes, against, interleaved
from .resume import Parked

SPARE_FILES: Final = 200
"""Files that a process has open beside its connections."""

WARM: Final = 50
"""Responses that fill the caches before memory is measured."""

KIB: Final = 1024

CREATE: Final = {"type": "response.create", "model": "call", "input": "Look around.", "store": False}
"""As short as a create can be: what it says is the Response's own history, and is not what is measured."""


def parked(sizes: Sizes) -> Iterator[Row]:
    """Memory per parked Response, with and without its socket, and the time of a resume."""
    count = _fitting(sizes.parked)
    with ServerProcess("engine") as crowded, ServerProcess("engine") as lonely:
        yield from _with_sockets(crowded, lonely, count, sizes.samples)
    with ServerProcess("engine") as crowded:
        yield _without_sockets(crowded, count)


def _with_sockets(crowded: ServerProcess, lonely: ServerProcess, count: int, samples: int) -> Iterator[Row]:
    before = _warm(crowded)
    crowd = [Parked(crowded, CREATE) for _ in range(count)]
    yield _memory(f"memory per Response, {count:,} parked with their sockets", crowded.memory - before, count, 40)
    one = Parked(lonely, CREATE)
    yield _resume(f"append to first delta, {count:,} parked : 1 parked", samples, crowd[count // 2].resume, one.resume, 1.1)
    turns = cycle(crowd)
    what = f"append to first delta, each of {count:,} in its turn : 1 parked"
    yield _resume(what, samples, lambda: next(turns).resume(), one.resume, None)
    for each in crowd:
        each.client.close()
    _wait_for_no_connection(crowded)
    yield _memory("memory per Response, the same after all sockets were dropped", crowded.memory - before, count, None)


def _without_sockets(server: ServerProcess, count: int) -> Row:
    before = _warm(server)
    for _ in range(count):
        Parked(server, CREATE).client.close()
    _wait_for_no_connection(server)
    return _memory(f"memory per Response, {count:,} parked whose sockets are gone", server.memory - before, count, 15)


def _resume(what: str, samples: int, ours: Callable[[], float], theirs: Callable[[], float], target: float | None) -> Row:
    pairs = interleaved(samples, ours, theirs)
    return against("parked", what, pairs, target=target, scale=1e6, unit="µs")


def _memory(what: str, size: int, count: int, target: float | None) -> Row:
    return Row(name="parked", what=what, value=size / count / KIB, unit="KiB", target=target, detail={"responses": count})


def _warm(server: ServerProcess) -> int:
    """Fill the server's caches; returns its memory then."""
    for _ in range(WARM):
        Parked(server, CREATE).client.close()
    _wait_for_no_connection(server)
    return server.memory


def _wait_for_no_connection(server: ServerProcess) -> None:
    for _ in range(600):
        if server.figures()["connections"] == 0:
            return
        time.sleep(0.1)
    raise RuntimeError("the server holds on to connections whose clients are gone")


def _fitting(count: int) -> int:
    fits = raise_file_limit() - SPARE_FILES
    if fits < count:
        print(f"parked: only {fits} files may be open here, so {fits} Responses are parked", file=sys.stderr)
    return min(count, fits)
