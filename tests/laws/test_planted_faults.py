"""The machine must find faults that are planted into the engine. A machine that finds none proves nothing."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Of

from engine.config import Config
from engine.core import Engine
from engine.inbox import Inbox
from engine.lane import Lanes
from engine.log import EventLog
from engine.output import Output
from engine.parking import Slot, Slots
from engine.rollout import Rollout
from engine.session import Session
from engine.stages.pipeline import Stages
from engine.testing import FakeSearch, direct_server, virtually
from protocol import events as ev
from protocol.conformance.append.conversations import conversations
from protocol.conformance.append.machine import ConformanceError, play
from protocol.conformance.append.moves import Conversation
from protocol.errors import ProtocolError
from protocol.items import FunctionCallOutput, Item, OutputOfCall
from protocol.lifecycle import Phase

EXAMPLES = 2500
"""Each fault must be found within so many conversations."""

Plant = Callable[[pytest.MonkeyPatch], None]
FAULTS: dict[str, tuple[Plant, set[str]]] = {}
"""By name: how to plant the fault, and the laws of which one must be seen broken."""


def fault(*laws: str) -> Callable[[Plant], Plant]:
    def register(plant: Plant) -> Plant:
        FAULTS[plant.__name__] = plant, set(laws)
        return plant

    return register


@fault("L5", "L12")
def drop_a_slot(patch: pytest.MonkeyPatch) -> None:
    find = Slots._slot_for

    def lose(self: Slots, path: str, output: OutputOfCall) -> Slot:
        if list(self._slots).index(output.call_id or "") == 1:
            raise ProtocolError("tool_call_not_found", "it was dropped")
        return find(self, path, output)

    patch.setattr(Slots, "_slot_for", lose)


@fault("L7", "L14")
def lose_a_result_on_the_way_to_the_model(patch: pytest.MonkeyPatch) -> None:
    admit = Rollout._admit
    patch.setattr(Rollout, "_admit", lambda self, results: admit(self, results[:-1]))


@fault("L7", "L14")
def results_in_another_order(patch: pytest.MonkeyPatch) -> None:
    admit = Rollout._admit
    patch.setattr(Rollout, "_admit", lambda self, results: admit(self, tuple(reversed(results))))


@fault("L3", "L12")
def renumber_at_a_park(patch: pytest.MonkeyPatch) -> None:
    append = EventLog.append

    def jump(self: EventLog, event: ev.Event, *, read: bool) -> bytes:
        if isinstance(event, ev.Done):
            self.next += 1
        return append(self, event, read=read)

    patch.setattr(EventLog, "append", jump)


@fault("L3", "L4", "L9", "L12")
def begin_again_at_zero_after_a_park(patch: pytest.MonkeyPatch) -> None:
    append = EventLog.append

    def restart(self: EventLog, event: ev.Event, *, read: bool) -> bytes:
        body = append(self, event, read=read)
        if isinstance(event, ev.Done):
            self.next = 0
        return body

    patch.setattr(EventLog, "append", restart)


@fault("L4", "L5", "L7")
def resume_early(patch: pytest.MonkeyPatch) -> None:
    async def wait(self: Slots, call_id: str) -> OutputOfCall:
        slot = self._slots[call_id]
        while not any(one.result for one in self._slots.values()):
            await self._lot.park()
        return slot.result or FunctionCallOutput(call_id=call_id, output="not yet")

    append = Rollout.append

    def append_and_resume(self: Rollout, request: Any, **options: Any) -> Any:
        accepted = append(self, request, **options)
        if self.phase is Phase.PARKED and self._parked_for == "tools":
            self._resume()
            self._slots._lot.unpark_all()
        return accepted

    patch.setattr(Slots, "wait", wait)
    patch.setattr(Rollout, "append", append_and_resume)


TERMINAL = tuple(b'{"type":"%b"' % kind.encode() for kind in ev.TERMINAL)


@fault("L2")
def two_terminal_events(patch: pytest.MonkeyPatch) -> None:
    deliver = Rollout._deliver

    def twice(self: Rollout, body: bytes) -> None:
        deliver(self, body)
        if body.startswith(TERMINAL):
            self.log.next += 1
            deliver(self, body)

    patch.setattr(Rollout, "_deliver", twice)


@fault("L2", "L12")
def no_terminal_event(patch: pytest.MonkeyPatch) -> None:
    deliver = Rollout._deliver
    patch.setattr(Rollout, "_deliver", lambda self, body: None if body.startswith(TERMINAL) else deliver(self, body))


@fault("L11")
def leak_the_task_of_a_response(patch: pytest.MonkeyPatch) -> None:
    run = Rollout.run

    async def run_for_ever(self: Rollout) -> None:
        await run(self)
        if self.parks:
            await trio.sleep_forever()

    patch.setattr(Rollout, "run", run_for_ever)


@fault("L11")
def keep_ended_responses_alive(patch: pytest.MonkeyPatch) -> None:
    retire = Engine._retire

    def keep(self: Engine, rollout: Rollout) -> None:
        retire(self, rollout)
        if rollout.parks:
            self.live[rollout.id] = rollout

    patch.setattr(Engine, "_retire", keep)


@fault("L5", "L12")
def accept_an_orphan(patch: pytest.MonkeyPatch) -> None:
    plan = Slots.plan

    def lenient(self: Slots, outputs: Any) -> list[OutputOfCall]:
        return plan(self, [(path, output) for path, output in outputs if output.call_id in self])

    patch.setattr(Slots, "plan", lenient)


@fault("L5", "L7", "L12")
def accept_a_conflict(patch: pytest.MonkeyPatch) -> None:
    plan = Slots.plan

    def lenient(self: Slots, outputs: Any) -> list[OutputOfCall]:
        try:
            return plan(self, outputs)
        except ProtocolError as error:
            if error.code == "tool_output_conflict":
                return []
            raise

    patch.setattr(Slots, "plan", lenient)


@fault("L5", "L12")
def apply_half_of_a_frame(patch: pytest.MonkeyPatch) -> None:
    plan = Slots.plan

    def fits(self: Slots, output: OutputOfCall) -> bool:
        return len(self._open) > 1 and self._open[output.call_id or ""].expects == output.type

    def fill_as_far_as_it_goes(self: Slots, outputs: Any) -> list[OutputOfCall]:
        outputs = list(outputs)
        try:
            return plan(self, outputs)
        except ProtocolError:
            good = [output for _, output in outputs[:1] if output.call_id in self._open and fits(self, output)]
            self.fill(good, good)
            raise

    patch.setattr(Slots, "plan", fill_as_far_as_it_goes)


@fault("L3", "L9")
def forget_an_event_at_attach(patch: pytest.MonkeyPatch) -> None:
    after = EventLog.after

    def skip(self: EventLog, cursor: int) -> Iterator[tuple[int, bytes]]:
        events = after(self, cursor)
        if cursor >= 2:
            next(events, None)
        yield from events

    patch.setattr(EventLog, "after", skip)


@fault("L9")
def replay_something_else(patch: pytest.MonkeyPatch) -> None:
    after = EventLog.after

    def change(self: EventLog, cursor: int) -> Iterator[tuple[int, bytes]]:
        for number, body in after(self, cursor):
            yield number, body.replace(b"Hello", b"Hallo").replace(b"Done", b"done")

    patch.setattr(EventLog, "after", change)


@fault("L5", "L9", "L12")
def obey_a_client_that_was_replaced(patch: pytest.MonkeyPatch) -> None:
    check = Rollout._check_live
    patch.setattr(Rollout, "_check_live", lambda self, _: check(self, None))


@fault("L10", "L12")
def ignore_a_cancel(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rollout, "cancel", lambda self, *, epoch=None: self._check_live(epoch))


@fault("L7", "L14")
def lose_a_message(patch: pytest.MonkeyPatch) -> None:
    take = Inbox.take_messages
    patch.setattr(Inbox, "take_messages", lambda self: take(self)[:-1])


@fault("L7", "L14", "L12")
def end_over_a_message(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Inbox, "has_messages", property(lambda self: False))


@fault("L12")
def leave_a_bad_frame_unanswered(patch: pytest.MonkeyPatch) -> None:
    refuse = Session._refuse

    def refuse_some(self: Session, error: ProtocolError, frame: Any) -> None:
        if error.code != "unknown_event":
            refuse(self, error, frame)

    patch.setattr(Session, "_refuse", refuse_some)


@fault("L13")
def let_responses_of_a_lane_overlap(patch: pytest.MonkeyPatch) -> None:
    def submit(self: Lanes[Any], stream_id: str | None, job: Any) -> None:
        self._queue(stream_id)
        self._start(job)

    patch.setattr(Lanes, "submit", submit)
    patch.setattr(Lanes, "done", lambda self, stream_id: None)


@fault("L14")
def normalize_a_result(patch: pytest.MonkeyPatch) -> None:
    screen = Stages.screen

    def strip(self: Stages, items: Sequence[Item]) -> Sequence[Item]:
        texts = [item for item in screen(self, items) if isinstance(item, FunctionCallOutput)]
        for item in texts:
            object.__setattr__(item, "status", "completed")
        return items

    patch.setattr(Stages, "screen", strip)


@fault("L15")
def bill_twice(patch: pytest.MonkeyPatch) -> None:
    after = Stages.after

    async def again(self: Stages, row: Any, stored: Any) -> None:
        await after(self, row, stored)
        await after(self, row, stored)

    patch.setattr(Stages, "after", again)


@fault("L15")
def bill_nothing_for_what_was_cancelled(patch: pytest.MonkeyPatch) -> None:
    after = Stages.after

    async def some(self: Stages, row: Any, stored: Any) -> None:
        if row.status != "cancelled":
            await after(self, row, stored)

    patch.setattr(Stages, "after", some)


@fault("L4")
def split_a_character(patch: pytest.MonkeyPatch) -> None:
    feed = Output.feed

    def mangle(self: Output, chunk: Any) -> None:
        if hasattr(chunk, "pieces"):
            object.__setattr__(chunk, "pieces", [piece.replace("é", "\ufffd") for piece in chunk.pieces])
        feed(self, chunk)

    patch.setattr(Output, "feed", mangle)


@pytest.mark.parametrize("name", list(FAULTS))
def test_the_machine_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, laws = FAULTS[name]
    plant(monkeypatch)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Of.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(conversations(hosted=True))
    def hunt(conversation: Conversation) -> None:
        async def main() -> None:
            config = Config(connection_seconds=1e9, finished_seconds=1e9)
            async with direct_server(config=config, hosted={"file_search": FakeSearch(seconds=0.5)}) as server:
                await play(conversation, server, books=server)

        try:
            virtually(main)
        except* ConformanceError as group:  # the fault may have broken the engine, too
            raise next(leaves(group)) from None

    with pytest.raises(ConformanceError) as caught:
        hunt()
    assert caught.value.law in laws, caught.value


def leaves(group: BaseExceptionGroup[ConformanceError]) -> Iterator[ConformanceError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
