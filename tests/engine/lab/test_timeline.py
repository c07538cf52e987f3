"""The timeline: from what a client sees, in any shape, it finds when each turn was asked for, began, and ended."""

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from engine.lab.timeline import Timeline

Told = tuple[float, str]
"""When something happens, and what: the type of an event, or ``ready``."""


@frozen
class Planned:
    """A turn: pauses before its first token, its end, its Response's end, and its tools' answers."""

    items: int
    waits: float
    samples: float
    closes: float
    tools: float


pauses = st.floats(0.001, 2)
planned = st.builds(Planned, st.integers(1, 4), pauses, pauses, pauses, pauses)


def story(turns: list[Planned], way: str) -> Iterator[Told]:
    """What happens at the client. In a chain the next Response is created when the last one has ended."""
    now = 0.0
    for number, turn in enumerate(turns):
        last = number == len(turns) - 1
        now += turn.waits
        if turn.items:
            yield now, "response.output_text.delta"
            for _ in range(turn.items - 1):
                yield now, "response.output_item.done"
            now += turn.samples
            yield now, "response.function_call_arguments.delta"
            yield now, "response.output_item.done"
        closed = now + turn.closes
        answered = now + turn.tools
        end = (closed, "response.done" if way == "append" and not last else "response.completed")
        yield from [end] if last else sorted([end, (answered, "ready")])
        now = max(answered, closed) if way == "chain" else answered
        if way == "append" and closed > answered and not last:
            now = closed  # the park was seen before anything that comes after it


def told(turns: list[Planned], way: str) -> Timeline:
    clock = [0.0]
    timeline = Timeline([turn.items for turn in turns], lambda: clock[0])
    for when, what in story(turns, way):
        clock[0] = when
        if what == "ready":
            timeline.ready()
        else:
            event: dict[str, Any] = {"type": what}
            timeline.event(event)
    return timeline


@given(st.lists(planned, min_size=1, max_size=6), st.sampled_from(["append", "chain"]), st.booleans())
def test_it_finds_when_each_turn_was_asked_for_began_and_ended(turns: list[Planned], way: str, ends_on_nothing: bool) -> None:
    if ends_on_nothing:  # a recording may end on what came from outside
        turns = [*turns, Planned(0, 0.5, 0.0, 0.5, 0.0)]
    timeline = told(turns, way)
    assert len(timeline.turns) == len(turns)
    now = asked = 0.0
    for number, (turn, seen) in enumerate(zip(turns, timeline.turns, strict=True)):
        assert seen.asked == pytest.approx(asked)
        if not turn.items:
            break
        assert seen.first_token == pytest.approx(now + turn.waits)
        ended = now + turn.waits + turn.samples
        last = number == len(turns) - 1
        assert seen.ended == pytest.approx(ended + turn.closes if last else ended)
        asked = ended + turn.tools
        assert seen.answered == (None if last else pytest.approx(asked))
        now = max(asked, ended + turn.closes)
    assert timeline.seconds == timeline.turns[-1].ended


def test_tools_belong_to_the_turn_that_called_them() -> None:
    timeline = Timeline([1, 1], lambda: 0.0)
    timeline.event({"type": "response.output_item.done"})
    timeline.tool("call_1", 1.0, 3.0)
    timeline.ready()
    timeline.event({"type": "response.output_item.done"})
    timeline.tool("call_2", 4.0, 5.0)
    assert [(run.turn, run.began, run.ended) for run in timeline.tools] == [(0, 1.0, 3.0), (1, 4.0, 5.0)]
