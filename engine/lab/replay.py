"""``sostenuto replay``: plays recorded rollouts against a server, and compares every item that comes back.

The client's part is the recording's: each call is answered with the recorded output, at once or after the recorded seconds.
The model's part is the server's ``trajectory`` model. A file is one Response; if the user speaks again in it, a held one.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import trio
from attrs import asdict, field, frozen

from protocol.client import AskUser, RunCall

from ..client import Client, ConnectionLost, Rollout, RolloutError, connect
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
    url: str | None,
    key: str | None,
    real_time: bool,
    on_report: Callable[[Report], None],
) -> bool:
    """Play ``files`` one after the other, against a server of our own if ``url`` is None; whether all are identical.

    Raises ``trajectories.RolloutError`` and ``OSError`` for a file that can't be read, ``CannotServe`` for a server that can't start.
    """
    recordings = [(path, read_rollout(path)) for path in files]
    async with AsyncExitStack() as stack:
        if url is None:
            models = tuple(f"{path.stem}=trajectory:{path}" for path in files)
            server = await stack.enter_async_context(running(Options(port=0, models=models, data=":memory:")))
            url = server.url
        client = await stack.enter_async_context(connect(url, api_key=key))
        identical = True
        for path, recording in recordings:
            report = await _play(client, path, recording, real_time=real_time)
            identical &= report.identical
            on_report(report)
    return identical


async def _play(client: Client, path: Path, recording: Recording, *, real_time: bool) -> Report:
    started = time.perf_counter()
    player = _Player(recording, real_time=real_time)
    try:
        async with client.rollout(model=path.stem, **player.request()) as rollout:
            await player.drive(rollout)
    except (RolloutError, ConnectionLost) as error:
        return Report(file=path.name, identical=False, difference=str(error))
    result = rollout.result()
    difference = _first_difference(list(_recorded_items(recording)), [_told(item) for item in result.items])
    engine = result.response.get("engine", {})
    return Report(
        file=path.name,
        identical=difference is None,
        difference=difference,
        calls=sum(item["type"].endswith("_call") for item in result.items),
        responses=1,
        parks=result.parks,
        stage_runs=engine.get("stage_runs", {}),
        tokens_rendered=engine.get("tokens_rendered", 0),
        bytes_up=result.bytes_up,
        bytes_down=result.bytes_down,
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
        self._later = [record for record in spoken[first:] if isinstance(record, UserRecord)]

    def request(self) -> dict[str, Any]:
        """The create body's fields."""
        return {
            "instructions": self._recording.instructions,
            "tools": list(self._recording.tools),
            "input": [_user(record) for record in self._opening],
            "hold": "conversation" if self._later else "rollout",
        }

    async def drive(self, rollout: Rollout) -> None:
        """Answer calls and questions until the Response has ended."""
        later = iter(self._later)
        async with trio.open_nursery() as nursery:
            async for event in rollout:
                for notice in event.notices:
                    if isinstance(notice, RunCall):
                        nursery.start_soon(self._answer, rollout, notice.item)
                    elif isinstance(notice, AskUser):
                        record = next(later, None)
                        await (rollout.say(record.text) if record else rollout.finish())
            nursery.cancel_scope.cancel()

    async def _answer(self, rollout: Rollout, call: dict[str, Any]) -> None:
        record = self._outputs.get(call["call_id"])
        if record is None:
            await rollout.answer(call, "the recording has no such call", failed=True)
            return
        if self._real_time and record.seconds:
            await trio.sleep(record.seconds)
        await rollout.answer(call, record.output)


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
    text = " ".join(told)
    return text if len(text) <= 100 else text[:100] + "…"
