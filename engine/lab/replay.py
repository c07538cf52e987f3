"""``sostenuto replay``: plays recorded rollouts against a server, and compares every item that comes back.

The client's part is the recording's: each call is answered with the recorded output, at once or after the recorded seconds.
The model's part is the server's ``trajectory`` model. A file is one Response; if the user speaks again in it, a held one.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio
from attrs import asdict, field, frozen

from protocol.client import AskUser, RunCall, output_for

from ..account import Shape
from ..chains import HttpWire, SocketWire, open_wire, run_chain
from ..client import Client, Rollout, RolloutError, connect
from ..models.lookaround import shorten
from ..serving import Options, running
from ..trajectories import AssistantRecord, ToolRecord, UserRecord, read_rollout
from ..trajectories import Rollout as Recording


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
        play = await stack.enter_async_context(_stage(url, key, shape))
        identical = True
        for path, recording in recordings:
            report = await _report(play, path, recording, shape, real_time=real_time)
            identical &= report.identical
            on_report(report)
    return identical


@frozen
class _Played:
    """What came back: items, and the Responses at their end."""

    items: Sequence[dict[str, Any]]
    responses: Sequence[dict[str, Any]]
    parks: int
    bytes_up: int
    bytes_down: int


Play = Callable[["_Player", str], Awaitable[_Played]]


@asynccontextmanager
async def _stage(url: str, key: str | None, shape: Shape) -> AsyncIterator[Play]:
    """How a recording is played in ``shape``."""
    if shape == "append":
        async with connect(url, api_key=key) as client:
            yield partial(_play_held, client)
    else:
        async with open_wire(url, shape, api_key=key) as wire:
            yield partial(_play_chain, wire)


async def _play_held(client: Client, player: "_Player", model: str) -> _Played:
    async with client.rollout(model=model, hold=player.hold, **player.request()) as rollout:
        await player.drive(rollout)
    result = rollout.result()
    return _Played(result.items, [result.response], result.parks, result.bytes_up, result.bytes_down)


async def _play_chain(wire: SocketWire | HttpWire, player: "_Player", model: str) -> _Played:
    up, down = wire.bytes_up, wire.bytes_down
    body = {"model": model, **player.request()}
    result = await run_chain(wire, body, answer=player.output, next_input=player.next_input)
    return _Played(result.items, result.responses, 0, wire.bytes_up - up, wire.bytes_down - down)


async def _report(play: Play, path: Path, recording: Recording, shape: Shape, *, real_time: bool) -> Report:
    started = time.perf_counter()
    try:
        played = await play(_Player(recording, real_time=real_time), path.stem)
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


class _Player:
    """The client's part of one recording."""

    def __init__(self, recording: Recording, *, real_time: bool) -> None:
        self._recording = recording
        self._real_time = real_time
        self._outputs = {record.call_id: record for record in recording.records if isinstance(record, ToolRecord)}
        spoken = [record for record in recording.records if not isinstance(record, ToolRecord)]
        first = next((n for n, record in enumerate(spoken) if isinstance(record, AssistantRecord)), len(spoken))
        self._opening = [record for record in spoken[:first] if isinstance(record, UserRecord)]
        later = [record for record in spoken[first:] if isinstance(record, UserRecord)]
        self.hold = "conversation" if later else "rollout"
        self._later = iter(later)

    def request(self) -> dict[str, Any]:
        """The create body's fields."""
        return {
            "instructions": self._recording.instructions,
            "tools": list(self._recording.tools),
            "input": [_user(record) for record in self._opening],
        }

    async def next_input(self) -> list[dict[str, Any]]:
        """What the user says when the model has answered; nothing at the end."""
        record = next(self._later, None)
        return [] if record is None else [_user(record)]

    async def output(self, call: dict[str, Any]) -> dict[str, Any]:
        """The output item of ``call``, at its time."""
        record = self._outputs.get(call["call_id"])
        if record is None:
            return output_for(call, "the recording has no such call", failed=True)
        if self._real_time and record.seconds:
            await trio.sleep(record.seconds)
        return output_for(call, record.output)

    async def drive(self, rollout: Rollout) -> None:
        """Answer calls and questions of a held Response until it has ended."""
        async with trio.open_nursery() as nursery:
            async for event in rollout:
                for notice in event.notices:
                    if isinstance(notice, RunCall):
                        nursery.start_soon(self._answer, rollout, notice.item)
                    elif isinstance(notice, AskUser):
                        more = await self.next_input()
                        await (rollout.append(*more) if more else rollout.finish())
            nursery.cancel_scope.cancel()

    async def _answer(self, rollout: Rollout, call: dict[str, Any]) -> None:
        await rollout.append(await self.output(call))


def _user(record: UserRecord) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": record.text}


Told = tuple[str, ...]
"""What an item says, without ids of the server's making."""


def _recorded_items(recording: Recording) -> Iterator[Told]:
    for record in recording.records:
        if isinstance(record, AssistantRecord):
            if record.text:
                yield ("message", record.text)
            for call in record.calls:
                yield ("function_call", call.call_id, call.name, call.arguments)


def _told(item: dict[str, Any]) -> Told:
    if item["type"] == "message":
        return ("message", "".join(part.get("text", "") for part in item["content"]))
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
