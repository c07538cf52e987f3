"""``stream`` and ``first_event``: a Response's events, against a plain loop which sends the very same frames."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from .client import Client
from .models import BATCHES
from .process import ServerProcess
from .report import Row, Sizes, against, interleaved

FRAMES_BATCH: Final = 16
"""The loop sends what came of this batch; what comes of another differs in its ids only."""

FIRST_DELTAS: Final = 16
"""Deltas of a Response of which only the first event is waited for."""


def create(batch: int = FRAMES_BATCH) -> dict[str, Any]:
    """A create whose answer is sampled ``batch`` tokens at a time."""
    return {"type": "response.create", "model": f"stream-{batch}", "input": "Say how the loop goes on.", "store": False}


def stream(sizes: Sizes) -> Iterator[Row]:
    """Server CPU per streamed event."""
    with _both(sizes.deltas) as (ours, theirs, events):
        for batch in BATCHES:
            request = create(batch)
            pairs = interleaved(sizes.rounds, partial(_cpu, *ours, request), partial(_cpu, *theirs, request))
            per_event = [(one / events, other / events) for one, other in pairs]
            what = f"server CPU per event, {batch} token{'s' if batch > 1 else ''} at a time : a send_message loop"
            target = 1 / 6 if batch > 1 else None
            yield against("stream", what, per_event, target=target, scale=1e6, unit="µs")


def first_event(sizes: Sizes) -> Iterator[Row]:
    """Time from the create to the first event."""
    with _both(FIRST_DELTAS) as (ours, theirs, _):
        pairs = interleaved(sizes.samples, partial(_first, ours[1]), partial(_first, theirs[1]))
    yield against("first_event", "create to first event : a send_message loop", pairs, target=1.25, scale=1e6, unit="µs")


Side = tuple[ServerProcess, Client]


@contextmanager
def _both(deltas: int) -> Iterator[tuple[Side, Side, int]]:
    """Our server and the loop, which sends what ours sent; each with a client. And how many events a Response has."""
    with TemporaryDirectory() as folder, ServerProcess("engine", deltas=deltas) as engine:
        client = engine.connect()
        client.send_json(create())
        frames = client.all()
        path = Path(folder) / "frames"
        path.write_bytes(b"\n".join(frames))
        with ServerProcess("loop", frames=str(path)) as loop:
            yield (engine, client), (loop, loop.connect()), len(frames)


def _cpu(server: ServerProcess, client: Client, request: dict[str, Any]) -> float:
    before = server.cpu
    client.send_json(request)
    client.all()
    return server.cpu - before


def _first(client: Client) -> float:
    started = time.perf_counter()
    client.send_json(create())
    client.receive()
    seconds = time.perf_counter() - started
    client.all()
    return seconds
