"""What a client may do in a conversation of the append shape, beside what it may in any: the machine plays a list of these."""

from collections.abc import Sequence
from typing import Literal

from attrs import frozen

from ..moves import Bad, Drop, Pause, Resume, Settle, Sleep
from ..script import Step

__all__ = [
    "Again",
    "Answer",
    "Attach",
    "Bad",
    "Cancel",
    "Conversation",
    "Create",
    "Drop",
    "Finish",
    "Move",
    "Pause",
    "Race",
    "Resume",
    "Say",
    "Settle",
    "Sleep",
    "Stranger",
    "Wrong",
]


@frozen
class Create:
    """Begin a Response on a lane (0 is the default lane)."""

    steps: Sequence[Step]
    by: int = 0
    lane: int = 0
    hold: bool = False
    tokens_per_second: float | None = None
    hosted: bool = False


@frozen
class Answer:
    """Append the results of open calls: those at ``which`` (all, if empty), in that order, in one frame or one each.

    ``say`` are user messages in the same frame, ``echo`` repeats the calls before their results. ``named``: with
    ``response_id``.
    """

    by: int = 0
    rollout: int = 0
    which: Sequence[int] = ()
    split: bool = False
    echo: bool = False
    say: Sequence[str] = ()
    named: bool = True
    keyed: bool = False


@frozen
class Again:
    """Append a result once more that was sent before."""

    by: int = 0
    rollout: int = 0
    call: int = 0


@frozen
class Wrong:
    """Append something that does not fit, perhaps after results that do: all or nothing."""

    kind: Literal["conflict", "unknown", "mismatch", "false_echo", "assistant", "empty", "twice"]
    by: int = 0
    rollout: int = 0
    call: int = 0
    after_good: bool = False


@frozen
class Race:
    """Two clients append different results of the same call at once."""

    by: int = 0
    other: int = 1
    rollout: int = 0
    call: int = 0


@frozen
class Say:
    """Append a user message; with ``steps`` it holds a program."""

    text: str = "and then?"
    steps: Sequence[Step] | None = None
    by: int = 0
    rollout: int = 0


@frozen
class Cancel:
    """End a Response where it is."""

    by: int = 0
    rollout: int = 0


@frozen
class Finish:
    """End a held conversation."""

    by: int = 0
    rollout: int = 0


@frozen
class Attach:
    """Join a Response's stream: ``back`` events before the newest that is known (None: from the beginning)."""

    by: int = 0
    rollout: int = 0
    back: int | None = 0
    beyond: bool = False
    """Instead, at a cursor that cannot be."""


@frozen
class Stranger:
    """A frame about a Response that there is not."""

    kind: Literal["append", "cancel", "finish", "attach"]
    by: int = 0


Move = (
    Create
    | Answer
    | Again
    | Wrong
    | Race
    | Say
    | Cancel
    | Finish
    | Attach
    | Drop
    | Pause
    | Resume
    | Bad
    | Stranger
    | Sleep
    | Settle
)


@frozen
class Conversation:
    """A list of moves, and how the Responses that are then still live are ended."""

    moves: Sequence[Move]
    finale: Literal["answer", "cancel"] = "answer"
