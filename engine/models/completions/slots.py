"""A server's slots, and whose state is in them.

Theory. A slot holds the state (the KV cache) of the tokens that it has read last, and a server has few. While a Response
samples its slot is its own. While it is parked the slot stays its own too, so that what it reads next costs only what is
new; but nobody waits for a parked one. Who needs a slot takes, in this order:

1. the one that still has its state,
2. one that nobody holds: that whose tokens are mostly the beginning of what is to be read, else the one used longest ago,
3. that of the Response that is parked longest; it is let go, and reads all of its tokens again when it resumes.

If all are sampling, those who need one wait in the order in which they came. A Response holds its slot for ``hold_seconds``
of a park; then it counts among those that nobody holds, and still finds its state there if nobody has taken it.

Which slot a state is in is decided here and not by the server: it would give a slot that is held to whoever comes.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Final

import trio
from attrs import define, field

WORTH_KEEPING: Final = 0.5
"""A slot is gone on with if so much of what it holds is the beginning of what is to be read: then it is the same
conversation, or one that begins as most do. As llama.cpp has it."""


@define(eq=False)
class Slot:
    """A place for one state."""

    number: int
    owner: object | None = None
    """Whose state is in it: who samples there, or is parked."""
    busy: bool = False
    since: float = -inf
    """When it was used last."""
    ids: bytes = b""
    """What it has read, as far as it is known, as ``array("I")`` has it."""


@define(eq=False)
class _Waiting:
    owner: object
    ids: bytes
    slot: Slot | None = None
    called: trio.Event = field(factory=trio.Event)


class Slots:
    """``count`` slots. ``hold_seconds`` may be changed at any time."""

    def __init__(self, count: int, hold_seconds: float = inf) -> None:
        self.hold_seconds = hold_seconds
        self._slots = [Slot(number) for number in range(count)]
        self._waiting: deque[_Waiting] = deque()

    async def take(self, owner: object, ids: Sequence[int]) -> Slot:
        """A slot for ``owner`` to read ``ids`` in; it is busy until it is parked or left.

        Waits while all are busy. Cancellation while it waits leaves nothing.
        """
        waiting = _Waiting(owner, array("I", ids).tobytes())
        waiting.slot = self._claim(waiting)
        if waiting.slot is None:
            self._waiting.append(waiting)
            try:
                await waiting.called.wait()
            except BaseException:
                self._forget(waiting)
                raise
        assert waiting.slot is not None
        return waiting.slot

    def park(self, slot: Slot, ids: Sequence[int]) -> None:
        """Its owner is parked, having read ``ids``."""
        self._rest(slot, ids)

    def leave(self, slot: Slot, ids: Sequence[int]) -> None:
        """Its owner is done with it, having read ``ids``: whoever begins with them may go on there."""
        slot.owner = None
        self._rest(slot, ids)

    def end(self, owner: object) -> None:
        """``owner``, which is not sampling, resumes no more."""
        for slot in self._slots:
            if slot.owner is owner:
                slot.owner = None

    # ---- choosing

    def _claim(self, waiting: _Waiting) -> Slot | None:
        slot = self._choose(waiting.owner, waiting.ids)
        if slot is not None:
            slot.owner, slot.busy = waiting.owner, True
        return slot

    def _choose(self, owner: object, ids: bytes) -> Slot | None:
        idle = [slot for slot in self._slots if not slot.busy]
        own = next((slot for slot in idle if slot.owner is owner), None)
        if own is not None:
            return own
        since = trio.current_time() - self.hold_seconds
        free = [slot for slot in idle if slot.owner is None or slot.since < since]
        best = max(free, key=lambda slot: common_bytes(slot.ids, ids), default=None)
        if best is not None and best.ids and common_bytes(best.ids, ids) >= WORTH_KEEPING * len(best.ids):
            return best
        return min(free or idle, key=lambda slot: slot.since, default=None)

    def _rest(self, slot: Slot, ids: Sequence[int]) -> None:
        slot.ids, slot.since, slot.busy = array("I", ids).tobytes(), trio.current_time(), False
        if self._waiting:
            waiting = self._waiting.popleft()
            waiting.slot = self._claim(waiting)
            waiting.called.set()

    def _forget(self, waiting: _Waiting) -> None:
        if waiting.slot is None:
            self._waiting.remove(waiting)
        else:  # it was called and cancelled at once
            slot = waiting.slot
            slot.owner = None
            self._rest(slot, array("I", slot.ids))


def common_bytes(one: bytes, other: bytes) -> int:
    """How long their common beginning is, to the granularity of a token."""
    low, high = 0, min(len(one), len(other)) // _TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if one[: middle * _TOKEN_BYTES] == other[: middle * _TOKEN_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low * _TOKEN_BYTES


_TOKEN_BYTES: Final = array("I").itemsize
