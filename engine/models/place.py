"""Where a program is: an immutable place, and how it moves on.

A place is at a *point*: something to say or call, a wait, a stop, or the end. Conditions and repetitions are no points;
they are gone through on the way (``settle``), as is what would be empty. A step of calls is several points, one a call, and
the wait behind them; where calls may not be parallel, each has its wait.

Frames are a linked list, shared between places, so that looking ahead copies nothing.
"""

from attrs import frozen

from .outputs import Outputs
from .program import Call, Calls, End, Fail, If, Program, Reason, Repeat, Say, Step, Wait

Point = Say | Reason | Call | Wait | Fail | End
_WAIT = Wait()


@frozen
class Frame:
    """Step ``index`` of ``steps``, of which ``within`` points are passed; ``rounds`` are to do, this one included."""

    steps: tuple[Step, ...]
    index: int = 0
    within: int = 0
    rounds: int = 1
    outer: "Frame | None" = None


@frozen
class Place:
    """``frame`` None is the end. ``passed`` counts what was gone through: it tells places apart, for seeds."""

    frame: Frame | None
    passed: int = 0


def beginning(program: Program) -> Place:
    """Before the first step."""
    return Place(_enter(None, program.steps, 1))


def settle(place: Place, outputs: Outputs, serial: bool, most: int | None = None) -> tuple[Place, Point | None]:
    """Go on to the next point, and return it, too; None is the end.

    With ``most`` it gives up after so many steps, at the ``Wait`` that it returns then.
    """
    start = place.passed
    while True:
        frame = place.frame
        if frame is None:
            return place, None
        step = frame.steps[frame.index]
        if isinstance(step, If):
            steps = step.then if step.condition.holds(outputs) else step.otherwise
            place = Place(_enter(frame, steps, 1), place.passed + 1)
        elif isinstance(step, Repeat):
            place = Place(_enter(frame, step.steps, step.times), place.passed + 1)
        elif isinstance(step, Say | Reason) and step.speech.is_empty(outputs):
            place = Place(_after(frame), place.passed + 1)
        else:
            return place, _point(step, frame.within, serial)
        if most is not None and place.passed - start > most:
            return place, _WAIT


def advance(place: Place, serial: bool) -> Place:
    """Behind the point at which ``place`` is."""
    frame = place.frame
    if frame is None:
        return place
    step = frame.steps[frame.index]
    if frame.within + 1 < _points(step, serial):
        frame = Frame(frame.steps, frame.index, frame.within + 1, frame.rounds, frame.outer)
        return Place(frame, place.passed + 1)
    return Place(_after(frame), place.passed + 1)


def _points(step: Step, serial: bool) -> int:
    if isinstance(step, Calls):
        return 2 * len(step.calls) if serial else len(step.calls) + step.wait
    return 2 if isinstance(step, End) and step.reason == "end" else 1


def _point(step: Step, within: int, serial: bool) -> Point:
    if isinstance(step, Calls):
        if serial:
            return _WAIT if within % 2 else step.calls[within // 2]
        return step.calls[within] if within < len(step.calls) else _WAIT
    if isinstance(step, End) and step.reason == "end" and within == 0:
        return _WAIT
    assert not isinstance(step, If | Repeat)
    return step


def _enter(frame: Frame | None, steps: tuple[Step, ...], rounds: int) -> Frame | None:
    if steps and rounds:
        return Frame(steps, 0, 0, rounds, frame)
    return None if frame is None else _after(frame)


def _after(frame: Frame) -> Frame | None:
    at: Frame | None = frame
    while at is not None:
        if at.index + 1 < len(at.steps):
            return Frame(at.steps, at.index + 1, 0, at.rounds, at.outer)
        if at.rounds > 1:
            return Frame(at.steps, 0, 0, at.rounds - 1, at.outer)
        at = at.outer
    return None
