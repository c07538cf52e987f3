"""What clients may do in a conversation of any shape, as values: the machines play lists of these and of their own moves.

A move names clients, Responses and calls by number, and each number counts round what there is when the move is played; a
move that has nothing to work on does nothing. So every list of moves is a conversation, and a shrunk one still is.
"""

from attrs import frozen


@frozen
class Drop:
    """A client's connection breaks; the client comes back as a new one."""

    by: int = 0
    politely: bool = False


@frozen
class Pause:
    """A client stops reading."""

    by: int = 0


@frozen
class Resume:
    """And reads again."""

    by: int = 0


@frozen
class Bad:
    """A frame that cannot be read."""

    frame: str | bytes
    codes: frozenset[str]
    by: int = 0


@frozen
class Sleep:
    """Let time pass."""

    seconds: float


@frozen
class Settle:
    """Wait until the server has said all that it has to say."""
