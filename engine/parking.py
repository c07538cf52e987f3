"""Slots: where the results of client tools arrive, and the only place that waits for them.

A slot is write-once (law L5), keyed by the call's id. It is opened before the event that announces its call is sent, since a
fast client may answer at once, and may be filled from then on, whether the loop has parked or not. Slots stay for the whole
Response, so that the same result sent again is recognized as such, and another one as a conflict.

``plan`` says what a batch of outputs would do, and raises if any of it cannot be; ``fill`` then does it. Between the two
nothing waits, so that a batch applies whole or not at all (law L6).
"""

from collections.abc import Iterable, Sequence

import trio
from attrs import define

from protocol.codec import canonical
from protocol.errors import ProtocolError
from protocol.events import Stub
from protocol.items import (
    OUTPUT_TYPE_OF,
    CallItem,
    CustomToolCall,
    FunctionCall,
    OutputOfCall,
    answered_call_id,
)
from protocol.lifecycle import SLOT, SlotState


@define(eq=False)
class Slot:
    """The write-once place for the result of one call."""

    call: CallItem
    state: SlotState = SlotState.OPEN
    sent: OutputOfCall | None = None
    """As the client sent it: what the same result, sent again, is compared with."""
    result: OutputOfCall | None = None

    @property
    def expects(self) -> str:
        """The type of output that fills it."""
        return OUTPUT_TYPE_OF[self.call.type]


def stub_of(call: CallItem) -> Stub:
    """How a call that waits for its output is named."""
    name = call.name if isinstance(call, FunctionCall | CustomToolCall) else None
    return Stub(OUTPUT_TYPE_OF[call.type], call_id=call.call_id, name=name)


class Slots:
    """The slots of one Response."""

    def __init__(self) -> None:
        self._slots: dict[str, Slot] = {}
        self._open: dict[str, Slot] = {}
        self._lot = trio.lowlevel.ParkingLot()

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._slots

    @property
    def pending(self) -> tuple[str, ...]:
        """The ids of the calls that still wait, in call order."""
        return tuple(self._open)

    @property
    def stubs(self) -> tuple[Stub, ...]:
        """What the open slots wait for, in call order."""
        return tuple(stub_of(slot.call) for slot in self._open.values())

    def open(self, call: CallItem) -> None:
        """Make the slot of ``call``, whose id no other call of this Response has."""
        self._slots[call.call_id] = self._open[call.call_id] = Slot(call)

    def plan(self, outputs: Iterable[tuple[str, OutputOfCall]]) -> list[OutputOfCall]:
        """The outputs that would fill a slot; those that say again what a slot holds are left out.

        Each comes with its path in the frame. Raises ``ProtocolError``:
        ``tool_call_not_found``, ``tool_output_type_mismatch``, ``tool_output_conflict``.
        """
        fresh: dict[str, OutputOfCall] = {}
        for path, output in outputs:
            slot = self._slot_for(path, output)
            call_id = slot.call.call_id
            held = slot.sent or fresh.get(call_id)
            if held is None:
                fresh[call_id] = output
            elif held != output and canonical(held) != canonical(output):
                message = f"{path}: call {call_id!r} already has another result"
                raise ProtocolError("tool_output_conflict", message, path)
        return list(fresh.values())

    def fill(self, sent: Sequence[OutputOfCall], screened: Sequence[OutputOfCall]) -> None:
        """Fill the slots of ``sent``, which ``plan`` has returned; ``wake`` is to follow.

        ``screened`` is what the model reads of them: the same, but for what the policy redacts.
        """
        for output, result in zip(sent, screened, strict=True):
            slot = self._open.pop(answered_call_id(output) or "")
            slot.state = SLOT.next(slot.state, "fill")
            slot.sent, slot.result = output, result

    def wake(self) -> None:
        """Let the loop go on if no slot is left open."""
        if not self._open:
            self._lot.unpark_all()

    def close(self) -> None:
        """The Response ends: what is open stays unanswered."""
        for slot in self._open.values():
            slot.state = SLOT.next(slot.state, "close")
        self._open.clear()
        self.wake()

    def result(self, call_id: str) -> OutputOfCall | None:
        """What fills the slot of ``call_id``."""
        return self._slots[call_id].result

    async def wait(self, call_id: str) -> OutputOfCall:
        """Wait for the result of ``call_id``: until no slot at all is open, since the loop goes on with all of them.

        Cancellation leaves the slots as they are.
        """
        slot = self._slots[call_id]
        while slot.state is SlotState.OPEN or self._open:
            await self._lot.park()
        if slot.result is None:
            raise RuntimeError(f"the slot of {call_id!r} was closed while its call was waited for")
        return slot.result

    def call(self, call_id: str | None) -> CallItem | None:
        """The call that ``call_id`` names."""
        slot = self._slots.get(call_id or "")
        return slot.call if slot else None

    def _slot_for(self, path: str, output: OutputOfCall) -> Slot:
        call_id = answered_call_id(output)
        slot = self._slots.get(call_id or "")
        if slot is None:
            message = f"{path}: no call {call_id!r} in this Response; {self._known()}"
            raise ProtocolError("tool_call_not_found", message, f"{path}.call_id")
        if output.type != slot.expects:
            message = f"{path}: call {call_id!r} is a {slot.call.type} and takes a {slot.expects}, got a {output.type}"
            raise ProtocolError("tool_output_type_mismatch", message, f"{path}.type")
        return slot

    def _known(self) -> str:
        names = ", ".join(list(self._open)[:8]) or "none"
        return f"calls that wait for a result: {names}{', …' if len(self._open) > 8 else ''}"
