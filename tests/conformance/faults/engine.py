"""Faults of the engine: what a server does wrong that no change of its frames shows."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from attrs import evolve

from engine.core import Engine
from engine.inbox import Inbox
from engine.lane import Lanes
from engine.parking import Slot, Slots
from engine.rollout import Rollout
from engine.session import Session
from engine.stages.pipeline import Stages
from protocol.errors import ProtocolError
from protocol.items import FunctionCallOutput, Item, OutputOfCall
from protocol.lifecycle import Phase

from .base import planted


@planted("L5", "L12")
def the_second_call_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The result of a Response's second call is refused: no such call."""
    find = Slots._slot_for

    def lose(self: Slots, path: str, output: OutputOfCall) -> Slot:
        if list(self._slots).index(output.call_id or "") == 1:
            raise ProtocolError("tool_call_not_found", "it was dropped")
        return find(self, path, output)

    patch.setattr(Slots, "_slot_for", lose)


@planted("L7", "L14")
def a_result_is_lost(patch: pytest.MonkeyPatch) -> None:
    """The last result of a turn was acknowledged, and the model never reads it."""
    admit = Rollout._admit
    patch.setattr(Rollout, "_admit", lambda self, results: admit(self, results[:-1]))


@planted("L7", "L14")
def results_change_their_order(patch: pytest.MonkeyPatch) -> None:
    """The model reads results in the reverse order of their calls."""
    admit = Rollout._admit
    patch.setattr(Rollout, "_admit", lambda self, results: admit(self, tuple(reversed(results))))


@planted("L4", "L5", "L7", "L14")
def the_first_result_resumes(patch: pytest.MonkeyPatch) -> None:
    """The Response goes on with the first result, while other calls are open."""

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


@planted("L11")
def a_task_is_left_behind(patch: pytest.MonkeyPatch) -> None:
    """The task of a Response that has parked never ends."""
    run = Rollout.run

    async def run_for_ever(self: Rollout) -> None:
        await run(self)
        if self.parks:
            await trio.sleep_forever()

    patch.setattr(Rollout, "run", run_for_ever)


@planted("L11")
def an_ended_response_stays(patch: pytest.MonkeyPatch) -> None:
    """A Response that has parked is kept among the live ones."""
    retire = Engine._retire

    def keep(self: Engine, rollout: Rollout) -> None:
        retire(self, rollout)
        if rollout.parks:
            self.live[rollout.id] = rollout

    patch.setattr(Engine, "_retire", keep)


@planted("L5", "L7", "L12")
def a_conflict_is_accepted(patch: pytest.MonkeyPatch) -> None:
    """Another result for an answered call is acknowledged, and thrown away."""
    plan = Slots.plan

    def lenient(self: Slots, outputs: Any) -> list[OutputOfCall]:
        try:
            return plan(self, outputs)
        except ProtocolError as error:
            if error.code == "tool_output_conflict":
                return []
            raise

    patch.setattr(Slots, "plan", lenient)


@planted("L6", "L5")
def half_of_a_frame_is_applied(patch: pytest.MonkeyPatch) -> None:
    """Of a frame that is refused, the results before the wrong one count."""
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


@planted("L5", "L9", "L12")
def a_replaced_client_is_obeyed(patch: pytest.MonkeyPatch) -> None:
    """A client that another one has replaced may still append and cancel."""
    check = Rollout._check_live
    patch.setattr(Rollout, "_check_live", lambda self, _: check(self, None))


@planted("L7", "L14")
def a_message_is_lost(patch: pytest.MonkeyPatch) -> None:
    """The last user message was acknowledged, and the model never reads it."""
    take = Inbox.take_messages
    patch.setattr(Inbox, "take_messages", lambda self: take(self)[:-1])


@planted("L7", "L14", "L12")
def a_message_is_overtaken_by_the_end(patch: pytest.MonkeyPatch) -> None:
    """A Response ends although an acknowledged message waits."""
    patch.setattr(Inbox, "has_messages", property(lambda self: False))


@planted("L13")
def responses_of_a_lane_overlap(patch: pytest.MonkeyPatch) -> None:
    """A create begins while its lane's Response is live."""

    def submit(self: Lanes[Any], stream_id: str | None, job: Any) -> None:
        self._queue(stream_id)
        self._start(job)

    patch.setattr(Lanes, "submit", submit)
    patch.setattr(Lanes, "done", lambda self, stream_id: None)


@planted("L14")
def results_get_a_status(patch: pytest.MonkeyPatch) -> None:
    """Results are kept with a status that nobody sent."""
    screen = Stages.screen

    def strip(self: Stages, items: Sequence[Item]) -> Sequence[Item]:
        texts = [item for item in screen(self, items) if isinstance(item, FunctionCallOutput)]
        for item in texts:
            object.__setattr__(item, "status", "completed")
        return items

    patch.setattr(Stages, "screen", strip)


@planted("L15")
def a_response_is_billed_twice(patch: pytest.MonkeyPatch) -> None:
    """Each Response has two rows in the ledger."""
    after = Stages.after

    async def again(self: Stages, row: Any, stored: Any) -> None:
        await after(self, row, stored)
        await after(self, row, stored)

    patch.setattr(Stages, "after", again)


@planted("L15")
def a_cancelled_response_is_not_billed(patch: pytest.MonkeyPatch) -> None:
    """A Response that was cancelled has no row."""
    after = Stages.after

    async def some(self: Stages, row: Any, stored: Any) -> None:
        if row.status != "cancelled":
            await after(self, row, stored)

    patch.setattr(Stages, "after", some)


@planted("L5", "L12")
def any_kind_of_output_will_do(patch: pytest.MonkeyPatch) -> None:
    """A function_call_output answers a custom tool call as well."""
    find = Slots._slot_for

    def lenient(self: Slots, path: str, output: OutputOfCall) -> Slot:
        return self._slots.get(output.call_id or "") or find(self, path, output)

    patch.setattr(Slots, "_slot_for", lenient)


@planted("L5", "L14", "L7")
def a_slot_is_filled_twice(patch: pytest.MonkeyPatch) -> None:
    """Another result for an answered call takes the place of the first."""
    plan, fill = Slots.plan, Slots.fill

    def lenient(self: Slots, outputs: Any) -> list[OutputOfCall]:
        outputs = list(outputs)
        try:
            return plan(self, outputs)
        except ProtocolError as error:
            if error.code != "tool_output_conflict":
                raise
            return list({output.call_id: output for _, output in outputs}.values())

    def overwrite(self: Slots, sent: Sequence[OutputOfCall], screened: Sequence[OutputOfCall]) -> None:
        for output in sent:
            if output.call_id not in self._open:
                self.open(self._slots[output.call_id or ""].call)
        fill(self, sent, screened)

    patch.setattr(Slots, "plan", lenient)
    patch.setattr(Slots, "fill", overwrite)


@planted("L5", "L12")
def a_result_sent_again_is_refused(patch: pytest.MonkeyPatch) -> None:
    """The same result again is a conflict: no call is open."""
    plan = Slots.plan

    def strict(self: Slots, outputs: Any) -> list[OutputOfCall]:
        outputs = list(outputs)
        fresh = plan(self, outputs)
        if outputs and not fresh:
            raise ProtocolError("tool_output_conflict", "the call has its result")
        return fresh

    patch.setattr(Slots, "plan", strict)


@planted("L7", "L14")
def results_come_in_order_of_arrival(patch: pytest.MonkeyPatch) -> None:
    """The model reads results as they came, not in the order of their calls."""
    fill, admit = Slots.fill, Rollout._admit

    def note(self: Slots, sent: Sequence[OutputOfCall], screened: Sequence[OutputOfCall]) -> None:
        fill(self, sent, screened)
        for output in sent:
            self._slots[output.call_id or ""] = self._slots.pop(output.call_id or "")

    def in_their_order(self: Rollout, results: Any) -> Any:
        came = [None, *self._slots._slots]
        return admit(self, tuple(sorted(results, key=lambda one: came.index(getattr(one, "call_id", None)))))

    patch.setattr(Slots, "fill", note)
    patch.setattr(Rollout, "_admit", in_their_order)


@planted("L7", "L14")
def messages_change_their_order(patch: pytest.MonkeyPatch) -> None:
    """The model reads the user's messages in the reverse order of their arrival."""
    take = Inbox.take_messages
    patch.setattr(Inbox, "take_messages", lambda self: tuple(reversed(take(self))))


@planted("L9", "L13")
def a_replaced_client_goes_on_hearing(patch: pytest.MonkeyPatch) -> None:
    """A client that another one has replaced still gets all events."""
    admit = Rollout._admit_controller

    def share(self: Rollout, subscription: Any, *, ended: bool) -> None:
        self._controller = None
        admit(self, subscription, ended=ended)

    patch.setattr(Rollout, "_admit_controller", share)


@planted("L10")
def a_dropped_connection_cancels(patch: pytest.MonkeyPatch) -> None:
    """A Response ends with its client's connection."""
    detach = Rollout.detach

    def cancel(self: Rollout, subscription: Any) -> None:
        detach(self, subscription)
        if self.live:
            self.cancel()

    patch.setattr(Rollout, "detach", cancel)


@planted("L12")
def lanes_wait_for_each_other(patch: pytest.MonkeyPatch) -> None:
    """A connection has one Response in flight; creates on other lanes wait for it."""
    patch.setattr("engine.lane.IN_FLIGHT", 1)


@planted("L10", "L13")
def a_bad_frame_ends_responses(patch: pytest.MonkeyPatch) -> None:
    """A frame that cannot be read cancels what is live on its connection."""
    refuse = Session._refuse

    def cancel(self: Session, error: ProtocolError, frame: Any) -> None:
        refuse(self, error, frame)
        for one in self._attachments.values():
            if one.rollout.live and not isinstance(frame, dict):
                one.rollout.cancel()

    patch.setattr(Session, "_refuse", cancel)


@planted("L15")
def a_row_has_no_tokens(patch: pytest.MonkeyPatch) -> None:
    """The ledger's rows have no output tokens."""
    after = Stages.after

    async def nothing(self: Stages, row: Any, stored: Any) -> None:
        await after(self, evolve(row, output_tokens=0), stored)

    patch.setattr(Stages, "after", nothing)


@planted("L14")
def an_item_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    """The context that is stored lacks the model's last item."""
    after = Stages.after

    async def some(self: Stages, row: Any, stored: Any) -> None:
        await after(self, row, evolve(stored, items=stored.items[:-1]))

    patch.setattr(Stages, "after", some)
