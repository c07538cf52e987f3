"""What a fault is, the list of all, and what a fault on the wire may do.

Most faults lie on the wire: a sound server says something, and what the client gets is something else (``says``); or a
client says something, and the server hears something else (``hears``). Such a fault is a function of a frame, which it may
change. It returns None if that is all, else the frames that take its place. What can't be had so is planted into the engine
(``planted``).

Each fault says by its laws how it must be found: by a property that names one of them, or by one of its probes. Its name is
that of its function with blanks; its docstring is its line in the table of ``docs/conformance.md``.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pytest
from attrs import frozen

from protocol.conformance.transport import Frame, Shape

Change = Callable[[Frame, "Line"], list[Frame] | None]
Plant = Callable[[pytest.MonkeyPatch], None]
ALL: Final[tuple[Shape, ...]] = ("append", "create", "http")


class Line:
    """One connection to a faulty server, and what its faults remember."""

    def __init__(self, shared: dict[Any, Any], say: Callable[[Frame], None], close: Callable[[], None]) -> None:
        self.shared = shared
        """What is remembered by all connections."""
        self.memory: dict[Any, Any] = {}
        """What is remembered by this one."""
        self.delay = 0.0
        """Seconds by which the next frame to the client is late."""
        self.say = say
        """Say something to the client, beside what the server says."""
        self.close = close
        """Break the connection."""

    def first_of_all(self, *what: object) -> bool:
        """Whether ``what`` is asked for the first time, on whichever connection."""
        known = what in self.shared
        self.shared[what] = True
        return not known


@frozen(kw_only=True)
class Fault:
    """Of its last fields one is set: what it does."""

    name: str
    does: str
    laws: frozenset[str]
    """Of the property that must find it one is reported."""
    shapes: Sequence[Shape]
    """In which conversations look for it; none, if only a probe can find it."""
    probes: Sequence[str] = ()
    """Each of these must find it, too, in each shape that it has and that the fault is in."""
    is_in: Sequence[Shape] = ALL
    """Shapes; of a fault that conversations look for it is they that count."""
    says: Change | None = None
    hears: Change | None = None
    reads: Callable[[str], str] | None = None
    """Changes what is sent, whatever it is."""
    plants: Plant | None = None
    asked: Callable[[str, str], tuple[str, str]] | None = None
    """Changes the method and the path of requests."""
    answers: Callable[[int, dict[str, str]], tuple[int, dict[str, str]]] | None = None
    """Changes the status and the headers of answers over HTTP."""
    keys: Callable[[str | None], str | None] | None = None
    """Changes who somebody is taken for."""
    renumber: bool = False
    """Events are numbered anew when it has been at work: it is not the numbers that are wrong."""


FAULTS: Final[dict[str, Fault]] = {}


def _enter(kind: str, laws: Iterable[str], *, probes: Sequence[str] = (), **fields: Any) -> Callable[[Any], Any]:
    def enter(act: Any) -> Any:
        name = act.__name__.replace("_", " ")
        assert name not in FAULTS, name
        does = " ".join((act.__doc__ or "").split())
        FAULTS[name] = Fault(name=name, does=does, laws=frozenset(laws), probes=tuple(probes), **{kind: act}, **fields)
        return act

    return enter


def says(*laws: str, shapes: Sequence[Shape] = ALL, renumber: bool = False, **fields: Any) -> Callable[[Change], Change]:
    """A fault of what the server says: called with each frame, or each event of a stream."""
    return _enter("says", laws, shapes=shapes, renumber=renumber, **fields)


def hears(*laws: str, shapes: Sequence[Shape] = ALL, **fields: Any) -> Callable[[Change], Change]:
    """A fault of what the server hears: called with each frame, or body of a request, that is an object."""
    return _enter("hears", laws, shapes=shapes, **fields)


def reads(*laws: str, shapes: Sequence[Shape] = ALL, **fields: Any) -> Callable[[Any], Any]:
    """A fault of how a server reads: called with the text of each frame and body."""
    return _enter("reads", laws, shapes=shapes, **fields)


def asked(*laws: str, shapes: Sequence[Shape] = ("http",), **fields: Any) -> Callable[[Any], Any]:
    """A fault of what is done with a request: called with its method and its path."""
    return _enter("asked", laws, shapes=shapes, is_in=("http",), **fields)


def answers(*laws: str, shapes: Sequence[Shape] = ("http",), **fields: Any) -> Callable[[Any], Any]:
    """A fault of the heads of answers: called with the status and the headers."""
    return _enter("answers", laws, shapes=shapes, is_in=("http",), **fields)


def takes_for(*laws: str, shapes: Sequence[Shape] = ALL, **fields: Any) -> Callable[[Any], Any]:
    """A fault of whom a key is taken for: called with the key of each connection."""
    return _enter("keys", laws, shapes=shapes, **fields)


def planted(*laws: str, shapes: Sequence[Shape] = ("append",), **fields: Any) -> Callable[[Plant], Plant]:
    """A fault of the engine."""
    return _enter("plants", laws, shapes=shapes, **fields)
