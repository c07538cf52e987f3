"""The client's part of a rollout, played in each shape: whoever wants to know how it went, watches.

Calls are answered with the recorded outputs, each as soon as its call is whole, also while the model still samples: that is
what good clients do, in every shape. The model's part is the ``trajectory`` model's.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Literal, Protocol

import trio
from attrs import define, field, frozen

from protocol.client import AskUser, Frame, RunCall, output_for
from protocol.items import OUTPUT_TYPE_OF

from ..chains import Wire, open_wire, run_chain
from ..client import Client, Rollout, background, connect
from ..models.pacemaker import sleep_until
from ..trajectories import AssistantRecord, ToolRecord, UserRecord
from ..trajectories import Rollout as Recording

Way = Literal["append", "create", "http", "http-full"]
"""How a rollout is played: one of the three shapes, or ``http`` with the whole history in each create."""
WAYS: Final[tuple[Way, ...]] = ("append", "create", "http", "http-full")


class Watcher(Protocol):
    """Sees what happens at the client."""

    def event(self, frame: Frame) -> None:
        """An event has come."""

    def tool(self, call_id: str, began: float, ended: float) -> None:
        """A tool has answered; times are of the loop's clock."""

    def ready(self) -> None:
        """Something that the model waits for is ready to be sent: a tool's result, or what the user says."""


class Nobody:
    """Watches nothing."""

    def event(self, frame: Frame) -> None: ...

    def tool(self, call_id: str, began: float, ended: float) -> None: ...

    def ready(self) -> None: ...


@frozen
class Played:
    """What came back: items, and the Responses at their end. Bytes are payload: frames, bodies, lines of event streams."""

    items: Sequence[dict[str, Any]]
    responses: Sequence[dict[str, Any]]
    parks: int
    bytes_up: int
    bytes_down: int


Play = Callable[["Player", str], Awaitable[Played]]
"""Plays the client's part against the model of that name. Raises ``RolloutError`` and ``ConnectionLost``."""


@asynccontextmanager
async def open_play(url: str, way: Way, *, key: str | None = None, **body: Any) -> AsyncIterator[Play]:
    """A connection to the server at ``url`` on which rollouts can be played, one after the other.

    ``body``: more fields of each create.
    """
    if way == "append":
        async with connect(url, api_key=key) as client:
            yield partial(_play_held, client, body)
    else:
        async with open_wire(url, "create" if way == "create" else "http", api_key=key) as wire:
            yield partial(play_chain, wire, body, way == "http-full")


async def _play_held(client: Client, body: dict[str, Any], player: "Player", model: str) -> Played:
    async with client.rollout(model=model, hold=player.hold, **player.request(), **body) as rollout:
        await _drive(rollout, player)
    result = rollout.result()
    return Played(result.items, [result.response], result.parks, result.bytes_up, result.bytes_down)


async def _drive(rollout: Rollout, player: "Player") -> None:
    """Answer calls and questions of a held Response until it has ended."""
    async with background() as nursery:
        async for event in rollout:
            player.watcher.event(event.frame)
            for notice in event.notices:
                if isinstance(notice, RunCall):
                    nursery.start_soon(_append_output, rollout, player, notice.item)
                elif isinstance(notice, AskUser):
                    more = await player.next_input()
                    await (rollout.append(*more) if more else rollout.finish())


async def _append_output(rollout: Rollout, player: "Player", call: Frame) -> None:
    await rollout.append(await player.output(call))


async def play_chain(wire: Wire, body: dict[str, Any], full_history: bool, player: "Player", model: str) -> Played:
    """Play a chain of Responses on ``wire``. Raises ``RolloutError`` and ``ConnectionLost``."""
    up, down = wire.bytes_up, wire.bytes_down
    async with background() as nursery:
        early = _EarlyTools(player, nursery)
        result = await run_chain(
            wire,
            {"model": model, **player.request(), **body},
            answer=early.answer,
            next_input=player.next_input,
            full_history=full_history,
            on_event=early.event,
        )
    return Played(result.items, result.responses, 0, wire.bytes_up - up, wire.bytes_down - down)


@define(eq=False)
class _EarlyTools:
    """Begins each tool when its call is whole, and not only when the Response has ended."""

    _player: "Player"
    _nursery: trio.Nursery
    _begun: dict[str, "_Running"] = field(factory=dict)

    def event(self, frame: Frame) -> None:
        self._player.watcher.event(frame)
        if frame["type"] == "response.output_item.done" and frame["item"]["type"] in OUTPUT_TYPE_OF:
            running = self._begun[frame["item"]["call_id"]] = _Running()
            self._nursery.start_soon(self._run, frame["item"], running)

    async def _run(self, call: Frame, running: "_Running") -> None:
        running.output = await self._player.output(call)
        running.done.set()

    async def answer(self, call: Frame) -> Frame:
        running = self._begun.pop(call["call_id"])
        await running.done.wait()
        return running.output


@define(eq=False)
class _Running:
    done: trio.Event = field(factory=trio.Event)
    output: Frame = field(factory=dict)


class Player:
    """The client's part of one recording. Without ``real_time`` tools take no time."""

    def __init__(self, recording: Recording, *, real_time: bool, watcher: Watcher | None = None) -> None:
        self.watcher = watcher or Nobody()
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
        if record is None:
            return []
        self.watcher.ready()
        return [_user(record)]

    async def output(self, call: dict[str, Any]) -> dict[str, Any]:
        """The output item of ``call``, at its time."""
        record = self._outputs.get(call["call_id"])
        if record is None:
            return output_for(call, "the recording has no such call", failed=True)
        began = trio.current_time()
        if self._real_time and record.seconds:
            await sleep_until(began + record.seconds)
        self.watcher.tool(call["call_id"], began, trio.current_time())
        self.watcher.ready()
        return output_for(call, record.output)


def _user(record: UserRecord) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": record.text}
