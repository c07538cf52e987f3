"""``sostenuto replay``: plays recorded rollouts against a server, and compares every item that comes back.

The client's part is the recording's: each call is answered with the recorded output, at once or after the recorded seconds.
The model's part is the server's ``trajectory`` model. A file is one Response; if the user speaks again in it, a held one.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from attrs import asdict, field, frozen

from ..account import Shape
from ..client import RolloutError
from ..models.lookaround import shorten
from ..serving import Options, running
from ..trajectories import AssistantRecord, read_rollout
from ..trajectories import Rollout as Recording
from .play import Play, Player, open_play


@frozen(kw_only=True)
class Report:
    """What came of one file. ``seconds`` are of the wall clock, bytes are payload of frames."""

    file: str
    shape: str = "append"
    identical: bool
    difference: str | None = field(default=None, metadata={"json": False})
    """The first item that differs, in words."""
    calls: int = 0
    responses: int = 0
    parks: int = 0
    stage_runs: dict[str, int] = field(factory=dict)
    tokens_rendered: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return asdict(self, filter=lambda attribute, _: attribute.metadata.get("json", True))


async def replay(
    files: Sequence[Path],
    *,
    shape: Shape,
    url: str | None,
    key: str | None,
    real_time: bool,
    on_report: Callable[[Report], None],
) -> bool:
    """Play ``files`` one after the other, against a server of our own if ``url`` is None; whether all are identical.

    Raises ``trajectories.RolloutError`` and ``OSError`` for a file that can't be read, ``CannotServe`` for a server that
    can't start, ``ConnectionLost`` for one that can't be reached.
    """
    recordings = [(path, read_rollout(path)) for path in files]
    async with AsyncExitStack() as stack:
        if url is None:
            models = tuple(f"{path.stem}=trajectory:{path}" for path in files)
            server = await stack.enter_async_context(running(Options(port=0, models=models, data=":memory:")))
            url = server.url
        play = await stack.enter_async_context(open_play(url, shape, key=key))
        identical = True
        for path, recording in recordings:
            report = await _report(play, path, recording, shape, real_time=real_time)
            identical &= report.identical
            on_report(report)
    return identical


async def _report(play: Play, path: Path, recording: Recording, shape: Shape, *, real_time: bool) -> Report:
    started = time.perf_counter()
    try:
        played = await play(Player(recording, real_time=real_time), path.stem)
    except RolloutError as error:
        return Report(file=path.name, shape=shape, identical=False, difference=str(error))
    difference = _first_difference(list(_recorded_items(recording)), [_told(item) for item in played.items])
    engines = [response.get("engine", {}) for response in played.responses]
    return Report(
        file=path.name,
        shape=shape,
        identical=difference is None,
        difference=difference,
        calls=sum(item["type"].endswith("_call") for item in played.items),
        responses=len(played.responses),
        parks=played.parks,
        stage_runs=dict(sum((Counter(engine.get("stage_runs", {})) for engine in engines), Counter())),
        tokens_rendered=sum(engine.get("tokens_rendered", 0) for engine in engines),
        bytes_up=played.bytes_up,
        bytes_down=played.bytes_down,
        seconds=round(time.perf_counter() - started, 4),
    )


Told = tuple[str, ...]
"""What an item says, without ids of the server's making."""


def _recorded_items(recording: Recording) -> Iterator[Told]:
    for record in recording.records:
        if isinstance(record, AssistantRecord):
            if record.reasoning:
                yield ("reasoning", record.reasoning)
            if record.text:
                yield ("message", record.text)
            for call in record.calls:
                yield ("function_call", call.call_id, call.name, call.arguments)


def _told(item: dict[str, Any]) -> Told:
    if item["type"] == "message":
        return ("message", "".join(part.get("text", "") for part in item["content"]))
    if item["type"] == "reasoning":
        return ("reasoning", "".join(part["text"] for part in item["summary"]))
    return (item["type"], item.get("call_id", ""), item.get("name", ""), item.get("arguments", ""))


def _first_difference(recorded: Sequence[Told], got: Sequence[Told]) -> str | None:
    for index, (wanted, item) in enumerate(zip(recorded, got, strict=False)):
        if wanted != item:
            return f"item {index}: recorded {_short(wanted)}, got {_short(item)}"
    if len(recorded) != len(got):
        return f"{len(recorded)} items recorded, {len(got)} came"
    return None


def _short(told: Told) -> str:
    return shorten(" ".join(told), 100)
