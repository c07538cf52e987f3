"""What a client may do in a conversation of the create and http shapes, beside what it may in any.

A Response is a *link* of a chain. Links are counted from the newest: 0 is the one that began last. Over HTTP a client is a key,
and has no lanes. ``by`` None is whoever has the Response.
"""

from collections.abc import Sequence
from typing import Literal

from attrs import frozen

from ..moves import Bad, Drop, Pause, Resume, Settle, Sleep
from ..script import Step

__all__ = [
    "Bad",
    "Begin",
    "Cancel",
    "Conversation",
    "Delete",
    "Drop",
    "Go",
    "How",
    "Leave",
    "Look",
    "Move",
    "Pages",
    "Pause",
    "Replay",
    "Resume",
    "Settle",
    "Sleep",
    "Steer",
    "Stranger",
    "Wrong",
]

Said = str | Sequence[Step]
"""What a user says: words, or a program."""

Wrong = Literal["missing", "unknown", "again", "conflict", "mismatch", "stale", "renamed"]
"""What is wrong with the outputs of a continuation: one is missing; one is of no call; one comes twice, as it was or with
another text; one is of another kind; one is of a call that was answered before; one has another call's id."""


@frozen(kw_only=True)
class How:
    """How a Response is asked for."""

    store: bool | None = None
    warm: bool = False
    """``generate: false``."""
    most: int | None = None
    """``max_output_tokens``."""
    stream: bool = True
    """Over HTTP: as events."""
    background: bool = False


@frozen
class Begin:
    """Begin a chain."""

    steps: Sequence[Step]
    by: int = 0
    lane: int = 0
    how: How = How()
    tokens_per_second: float | None = None
    hosted: bool = False


@frozen
class Go:
    """Continue a Response: answer its calls, and say something. From one that is not the newest this is a fork.

    ``lane`` None is the one that the Response came on. The outputs come in call order, turned by ``turn`` places. ``before``:
    what is said comes first. ``whole``: with the whole history as input instead of ``previous_response_id``, as it was heard,
    without ids, or with other call ids, that are used again in each turn.
    """

    link: int = 0
    by: int | None = None
    lane: int | None = None
    turn: int = 0
    wrong: Wrong | None = None
    say: Sequence[Said] = ()
    before: bool = False
    whole: Literal["heard", "bare", "renamed"] | None = None
    how: How = How()


@frozen
class Steer:
    """Tell a Response something while it samples."""

    say: Sequence[Said] = ("In English, please.",)
    link: int = 0
    by: int | None = None
    bad: bool = False
    """Instead, something that no user says."""


@frozen
class Cancel:
    """End a Response where it is. ``named``: by its id, not by its lane."""

    link: int = 0
    by: int | None = None
    named: bool = True


@frozen
class Stranger:
    """Something about a Response that there is not."""

    kind: Literal["create", "cancel", "steer", "get", "replay", "delete", "input_items"]
    by: int = 0


@frozen
class Look:
    """Over HTTP: see a Response as it is."""

    link: int = 0
    by: int | None = None


@frozen
class Replay:
    """Over HTTP: have the events behind a cursor, ``back`` before the newest that is known (None: all)."""

    link: int = 0
    by: int | None = None
    back: int | None = None
    beyond: bool = False
    """Instead, behind a cursor that cannot be."""


@frozen
class Pages:
    """Over HTTP: have the input of a Response, in pages of ``limit``."""

    link: int = 0
    by: int | None = None
    limit: int = 2
    ascending: bool = True


@frozen
class Delete:
    """Over HTTP: forget a Response."""

    link: int = 0
    by: int | None = None


@frozen
class Leave:
    """Over HTTP: drop the connection on which a Response is heard."""

    link: int = 0


Move = (
    Begin
    | Go
    | Steer
    | Cancel
    | Stranger
    | Look
    | Replay
    | Pages
    | Delete
    | Leave
    | Drop
    | Pause
    | Resume
    | Bad
    | Sleep
    | Settle
)


@frozen
class Conversation:
    """A list of moves, and how the Responses that are then still live are ended."""

    moves: Sequence[Move]
    finale: Literal["wait", "cancel"] = "wait"
