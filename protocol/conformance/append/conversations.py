"""Hypothesis strategies for the append shape: moves, scenes, conversations.

Moves and scenes are composites, though they draw nothing by themselves: Hypothesis shows strategies by their parts when it
shrinks, and of these the parts of parts would be megabytes.
"""

from functools import cache
from typing import Any, Final

from attrs import evolve
from hypothesis import strategies as st

from ..script import Step
from ..strategies import bad_frames, programs, steps, weighted
from . import moves as mv

_WRONG: Final = ["conflict", "unknown", "mismatch", "false_echo", "assistant", "empty", "twice"]


@st.composite
def moves(draw: st.DrawFn, /, **options: Any) -> mv.Move:
    """One move. The weights are such that most conversations get somewhere. ``quick``: where time is real."""
    return draw(_moves(**options))


@cache
def _moves(
    *, clients: int = 3, hosted: bool = False, long_sleeps: bool = True, quick: bool = False
) -> st.SearchStrategy[mv.Move]:
    by, rollout, call = st.integers(0, clients - 1), st.integers(0, 2), st.integers(0, 4)
    some = st.lists(call, max_size=4)
    flags = st.booleans()
    says = st.lists(st.sampled_from(["and?", "go on", '{"program": [{"say": "anew"}]}']), max_size=1)
    answers = st.builds(mv.Answer, by, rollout, some, flags, flags, says, flags, flags)
    plain = st.builds(mv.Answer, st.just(0), rollout, some, flags)
    seconds = [0.01, 0.2, *([] if quick else [1.0, 5.0]), *([40.0, 400.0, 4000.0] if long_sleeps else [])]
    return weighted(
        (2, plain),
        (2, answers),
        (3, st.just(mv.Settle())),
        (1, creates(clients=clients, hosted=hosted)),
        (1, st.builds(mv.Again, by, rollout, call)),
        (1, st.builds(mv.Wrong, st.sampled_from(_WRONG), by, rollout, call, flags)),
        (1, st.builds(mv.Race, by, by, rollout, call)),
        (1, st.builds(mv.Say, st.sampled_from(["and then?", "   ", "why?"]), _maybe_program(), by, rollout)),
        (1, st.builds(mv.Cancel, by, rollout)),
        (1, st.builds(mv.Finish, by, rollout)),
        (1, st.builds(mv.Attach, by, rollout, st.none() | st.integers(0, 30), st.sampled_from([False, False, False, True]))),
        (1, st.builds(mv.Drop, by, flags)),
        (1, st.builds(mv.Pause, by)),
        (1, st.builds(mv.Resume, by)),
        (1, bad_frames().flatmap(lambda bad: st.builds(mv.Bad, st.just(bad[0]), st.just(bad[1]), by))),
        (1, st.builds(mv.Stranger, st.sampled_from(["append", "cancel", "finish", "attach"]), by)),
        (1, st.sampled_from(seconds).map(mv.Sleep)),
    )


def creates(*, clients: int = 3, hosted: bool = False) -> st.SearchStrategy[mv.Create]:
    """The beginning of a Response."""
    by, lane = st.integers(0, clients - 1), st.sampled_from([0, 0, 1, 2])
    pace = st.sampled_from([None, None, 10.0, 200.0])
    return st.builds(mv.Create, programs(hosted=hosted), by, lane, st.booleans(), pace, st.just(hosted))


@st.composite
def scenes(draw: st.DrawFn, /, **options: Any) -> list[mv.Move]:
    """Some moves that belong together: single moves alone seldom come in the order in which they matter."""
    return draw(_scenes(**options))


@cache
def _scenes(*, clients: int = 3, **options: Any) -> st.SearchStrategy[list[mv.Move]]:
    by, rollout, call = st.integers(0, clients - 1), st.integers(0, 2), st.integers(0, 4)
    back = st.none() | st.integers(0, 30)
    one = moves(clients=clients, **options)
    settle = mv.Settle()
    answer_all = st.builds(lambda number, split: [mv.Answer(0, number, split=split), settle], rollout, st.booleans())
    reconnect = st.builds(
        lambda who, number, last, then: [mv.Drop(who), mv.Attach(who, number, last), then, settle], by, rollout, back, one
    )
    takeover = st.builds(
        lambda who, number, last, then: [settle, mv.Attach(who, number, last), settle, then, settle], by, rollout, back, one
    )
    in_turn = st.builds(lambda move, other: [settle, move, settle, other, settle], one, one)
    stalled = st.builds(lambda who, some: [mv.Pause(who), *some, mv.Resume(who)], by, st.lists(one, max_size=4))
    once = st.one_of(
        st.builds(mv.Answer, st.just(0), rollout), st.builds(mv.Say, st.just("and then?"), st.none(), st.just(0), rollout)
    )
    twice = st.builds(lambda first, who, which: [first, settle, mv.Again(who, first.rollout, which), settle], once, by, call)
    half = st.builds(
        lambda kind, who, number, which: [
            mv.Wrong(kind, who, number, which, True),
            settle,
            mv.Answer(0, number, split=True),
            settle,
        ],
        st.sampled_from(_WRONG),
        by,
        rollout,
        call,
    )
    single = one.map(lambda move: [move])
    return weighted(
        (2, single),
        (1, answer_all),
        (1, reconnect),
        (1, takeover),
        (1, in_turn),
        (1, stalled),
        (1, twice),
        (1, half),
    )


def conversations(**options: Any) -> st.SearchStrategy[mv.Conversation]:
    """A conversation that begins with a Response."""
    first = creates(hosted=options.get("hosted", False)).map(lambda one: evolve(one, by=0, lane=0))
    scene = scenes(**options)
    some = weighted((1, st.lists(scene, max_size=3)), (1, st.lists(scene, min_size=3, max_size=12)))
    rest = some.map(lambda some: [move for scene in some for move in scene])
    ending = st.sampled_from(["answer", "answer", "cancel"])
    return st.builds(lambda one, more, end: mv.Conversation([one, mv.Settle(), *more], end), first, rest, ending)


def _maybe_program() -> st.SearchStrategy[list[Step] | None]:
    return st.one_of(st.none(), st.lists(steps(depth=0), max_size=2).map(lambda body: [*body, {"say": "anew"}]))
