"""When what happened, as the client of one rollout sees it.

A turn is asked for when the last thing that the model waits for is ready to be sent; its first token is the first delta; it has
ended when its last item is whole. All shapes are measured so, whatever they send around it: what a Response's beginning and
end cost is in the wait for the next first token. How many items a turn has is known from the workload.
"""

from collections.abc import Callable, Sequence
from typing import Final

import trio
from attrs import define, field

from protocol.client import Frame
from protocol.events import TERMINAL

ENDS: Final = frozenset({*TERMINAL, "response.done"})
"""Events after which the server waits, or is done."""


@define
class TurnTimes:
    """Seconds since the rollout began. ``answered`` is when all tools of the turn have; None where nothing follows."""

    asked: float
    first_token: float | None = None
    ended: float | None = None
    answered: float | None = None


@define
class ToolTimes:
    """One run of a tool, in seconds since the rollout began."""

    turn: int
    began: float
    ended: float


@define(eq=False)
class Timeline:
    """A ``play.Watcher``. ``items``: how many items each turn has. It begins when it is made."""

    _items: Sequence[int]
    _clock: Callable[[], float] = trio.current_time
    turns: list[TurnTimes] = field(factory=list)
    tools: list[ToolTimes] = field(factory=list)
    _start: float = 0.0
    _seen: int = 0
    """Items of the turn that are whole."""
    _closed: bool = False
    """Whether the end of the turn's Response, or its park, was seen."""

    def __attrs_post_init__(self) -> None:
        self._start = self._clock()
        self.turns.append(TurnTimes(0.0))

    @property
    def seconds(self) -> float:
        """From the first create to the end of the last turn."""
        return self.turns[-1].ended or 0.0

    def event(self, frame: Frame) -> None:
        """An event has come."""
        kind = frame["type"]
        if kind.endswith(".delta"):
            turn = self._turn()
            if turn.first_token is None:
                turn.first_token = self._now()
        elif kind == "response.output_item.done":
            self._whole()
        elif kind in ENDS:
            self._end()

    def tool(self, call_id: str, began: float, ended: float) -> None:  # noqa: ARG002 - a watcher's
        """A tool of this turn has answered."""
        self.tools.append(ToolTimes(len(self.turns) - 1, began - self._start, ended - self._start))

    def ready(self) -> None:
        """A result, or the user's word, can be sent."""
        self.turns[-1].answered = self._now()

    def _now(self) -> float:
        return self._clock() - self._start

    def _turn(self) -> TurnTimes:
        """The turn that is sampled: a new one, if the last has ended and was answered."""
        last = self.turns[-1]
        if last.ended is not None and last.answered is not None and len(self.turns) < len(self._items):
            self._seen, self._closed = 0, False
            self.turns.append(TurnTimes(last.answered))
        return self.turns[-1]

    def _whole(self) -> None:
        turn = self._turn()
        self._seen += 1
        if self._seen == self._items[len(self.turns) - 1]:
            turn.ended = self._now()
            turn.first_token = turn.ended if turn.first_token is None else turn.first_token

    def _end(self) -> None:
        """The last turn has ended when its Response says so; and a turn without items begins and ends with that."""
        last = self.turns[-1]
        if last.ended is not None and not self._closed:
            self._closed = True
            if len(self.turns) == len(self._items):
                last.ended = self._now()
        elif last.answered is not None and len(self.turns) < len(self._items) and not self._items[len(self.turns)]:
            now = self._now()
            self.turns.append(TurnTimes(last.answered, now, now))
