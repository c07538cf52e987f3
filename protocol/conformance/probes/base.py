"""What a probe is, and the list of all."""

from collections.abc import Awaitable, Callable, Collection
from inspect import cleandoc
from typing import Final

from attrs import frozen

from ..transport import Shape
from .talk import Talk

Play = Callable[[Talk], Awaitable[None]]
SHAPES: Final[tuple[Shape, ...]] = ("append", "create", "http")


@frozen(kw_only=True)
class Probe:
    """A conversation. ``play`` raises ``ConformanceError`` if the server is wrong, ``NotOffered`` if it can't be asked."""

    name: str
    law: str
    shapes: Collection[Shape]
    needs: frozenset[str]
    """Names of ``Capabilities``."""
    right: str
    """What is right, and where that is written."""
    play: Play


PROBES: Final[dict[str, Probe]] = {}


def probe(law: str, *, shapes: Collection[Shape] = SHAPES, needs: Collection[str] = ()) -> Callable[[Play], Play]:
    """Enter a function as a probe. Its name is the function's with blanks, its docstring says what is right."""

    def enter(play: Play) -> Play:
        name = play.__name__.replace("_", " ")
        PROBES[name] = Probe(
            name=name, law=law, shapes=shapes, needs=frozenset(needs), right=cleandoc(play.__doc__ or ""), play=play
        )
        return play

    return enter
