"""The life of a Response, of an item and of a slot, as tables. Nothing else sets a status.

Theory. Each machine is a dictionary from (state, move) to the next state. A move that is not in the table raises
``IllegalMove`` and changes nothing: it is a bug of ours, since whatever a peer sends is checked before it moves anything.
A Response has two faces: its *phase*, which we think in, and its *status*, which the wire shows. Several phases share one
status: a parked Response is ``in_progress`` for the world.

    queued ──start──> sampling <──resume── parked
                        │   └────park────────^ │
                        └────────end───────────┴──> ending ──seal──> ended

``end`` is decided once (law L10): whoever moves first to ``ending`` has won, and every later append, cancel or finish finds
a Response that is no longer active. ``seal`` is the terminal event (law L2).
"""

from enum import StrEnum
from typing import Final, Generic, TypeVar


class Phase(StrEnum):
    """Where a Response is."""

    QUEUED = "queued"
    SAMPLING = "sampling"
    PARKED = "parked"
    ENDING = "ending"
    ENDED = "ended"


class ItemStatus(StrEnum):
    """The ``status`` of an output item."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"


class SlotState(StrEnum):
    """A slot is open, then filled by one result, or closed because its Response ended first."""

    OPEN = "open"
    FILLED = "filled"
    CLOSED = "closed"


class IllegalMove(Exception):
    """A move that the table does not have: a bug of ours. Nothing was changed."""


State = TypeVar("State", bound=StrEnum)


class Table(Generic[State]):
    """The moves of one machine."""

    def __init__(self, name: str, moves: dict[tuple[State, str], State]) -> None:
        self.name = name
        self.moves = moves

    def next(self, state: State, move: str) -> State:
        """The state after ``move``; raises ``IllegalMove`` when there is none."""
        try:
            return self.moves[state, move]
        except KeyError:
            raise IllegalMove(f"a {self.name} that is {state} cannot {move}") from None

    def allows(self, state: State, move: str) -> bool:
        """Whether ``move`` is in the table."""
        return (state, move) in self.moves


RESPONSE: Final = Table[Phase](
    "response",
    {
        (Phase.QUEUED, "start"): Phase.SAMPLING,
        (Phase.QUEUED, "end"): Phase.ENDING,
        (Phase.SAMPLING, "park"): Phase.PARKED,
        (Phase.PARKED, "resume"): Phase.SAMPLING,
        (Phase.SAMPLING, "end"): Phase.ENDING,
        (Phase.PARKED, "end"): Phase.ENDING,
        (Phase.ENDING, "seal"): Phase.ENDED,
    },
)

ITEM: Final = Table[ItemStatus](
    "item",
    {
        (ItemStatus.IN_PROGRESS, "complete"): ItemStatus.COMPLETED,
        (ItemStatus.IN_PROGRESS, "cut"): ItemStatus.INCOMPLETE,
    },
)

SLOT: Final = Table[SlotState](
    "slot",
    {
        (SlotState.OPEN, "fill"): SlotState.FILLED,
        (SlotState.OPEN, "close"): SlotState.CLOSED,
    },
)

LIVE: Final = frozenset({Phase.SAMPLING, Phase.PARKED})
"""The phases in which a Response takes appends, cancels and finishes."""

TERMINAL_EVENTS: Final = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "cancelled": "response.incomplete",
    "failed": "response.failed",
}
"""The terminal event for each final status. A cancelled Response ends with ``response.incomplete``: clients know three
terminal events, and hang on a fourth. Its ``status`` says ``cancelled``."""
