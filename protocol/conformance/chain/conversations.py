"""Hypothesis strategies for the create and http shapes: moves, scenes, conversations."""

from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve
from hypothesis import strategies as st

from ..adapters import Adapter
from ..capabilities import ALL, Capabilities
from ..script import Step
from ..strategies import bad_frames, programs, steps, weighted
from ..transport import Shape
from . import moves as mv

_WRONG: Final[Sequence[mv.Wrong]] = ["missing", "unknown", "again", "conflict", "mismatch", "stale", "renamed"]
_SAID: Final = ["and?", "go on", "Why? 🎹"]


def moves(
    shape: Shape = "create",
    *,
    capabilities: Capabilities = ALL,
    adapter: Adapter | None = None,
    clients: int = 3,
    hosted: bool = False,
    long_sleeps: bool = True,
    quick: bool = False,
) -> st.SearchStrategy[mv.Move]:
    """One move. The weights are such that most conversations get somewhere. ``quick``: where time is real."""
    by, link, flags = st.integers(0, clients - 1), _links(), st.booleans()
    seconds = [0.01, 0.2, *([] if quick else [1.0, 5.0]), *([40.0, 4000.0] if long_sleeps and not quick else [])]
    strange = ["create", *(["cancel"] if capabilities.cancel else []), *(["steer"] if capabilities.steer else [])]
    said = st.lists(_said(capabilities, adapter), min_size=1, max_size=2)
    steered = st.builds(mv.Steer, said, link, _owners(clients), _seldom())
    return weighted(
        (3, st.just(mv.Settle())),
        (8, continuations(capabilities=capabilities, adapter=adapter, clients=clients)),
        (2, creates(capabilities=capabilities, adapter=adapter, clients=clients, hosted=hosted)),
        (2, st.sampled_from(seconds).map(mv.Sleep)),
        (1, bad_frames().flatmap(lambda bad: st.builds(mv.Bad, st.just(bad[0]), st.just(bad[1]), by))),
        (1, st.builds(mv.Drop, by, flags)),
        (1, st.builds(mv.Pause, by)),
        (1, st.builds(mv.Resume, by)),
        (1, st.builds(mv.Stranger, st.sampled_from(strange), by)),
        (2 * capabilities.cancel, st.builds(mv.Cancel, link, _owners(clients), flags)),
        (2 * capabilities.steer, steered),
    )


def creates(
    *, capabilities: Capabilities = ALL, adapter: Adapter | None = None, clients: int = 3, hosted: bool = False
) -> st.SearchStrategy[mv.Begin]:
    """The beginning of a chain."""
    by, lane = st.integers(0, clients - 1), st.sampled_from([0, 0, 1, 2] if capabilities.lanes else [0])
    pace = st.sampled_from([None, None, None, 10.0, 200.0])
    begun = _programs(capabilities, adapter, hosted=hosted)
    return st.builds(mv.Begin, begun, by, lane, _how(capabilities), pace, st.just(hosted))


def continuations(
    *, capabilities: Capabilities = ALL, adapter: Adapter | None = None, clients: int = 3
) -> st.SearchStrategy[mv.Go]:
    """What goes on from a Response."""
    lane = st.sampled_from([None, None, None, 0, 1, 2] if capabilities.lanes else [None])
    return st.builds(
        mv.Go,
        _links(),
        _owners(clients),
        lane,
        st.integers(0, 3),
        st.sampled_from([*[None] * 3 * len(_WRONG), *_WRONG]),
        st.lists(_said(capabilities, adapter), max_size=2),
        _seldom(),
        _whole(capabilities, adapter),
        _how(capabilities),
    )


def scenes(shape: Shape = "create", *, clients: int = 3, **options: Any) -> st.SearchStrategy[list[mv.Move]]:
    """Some moves that belong together: single moves alone seldom come in the order in which they matter."""
    capabilities, adapter = options.get("capabilities", ALL), options.get("adapter")
    by, link = st.integers(0, clients - 1), _links()
    one = moves(shape, clients=clients, **options)
    settle = mv.Settle()
    program = _programs(capabilities, adapter, hosted=options.get("hosted", False))
    more: Any = weighted((2, st.just(())), (1, program.map(lambda steps: (steps,))))
    whole = st.none() if capabilities.chain else _whole(capabilities, adapter)
    plain = st.builds(mv.Go, st.sampled_from([0, 0, 0, 1]), turn=st.integers(0, 3), say=more, whole=whole)
    answered = plain.map(lambda go: [go, settle])
    long_chain = st.lists(plain, min_size=2, max_size=4).map(lambda gos: [move for go in gos for move in (go, settle)])
    in_turn = st.builds(lambda move, other: [settle, move, settle, other, settle], one, one)
    stalled = st.builds(lambda who, some: [mv.Pause(who), *some, mv.Resume(who)], by, st.lists(one, max_size=4))
    gone = st.builds(lambda who, move, other: [mv.Drop(who), move, other, settle], by, one, one)
    go = continuations(capabilities=capabilities, adapter=adapter, clients=clients)
    evicted = st.builds(
        lambda wrong, first, then: [mv.Go(0, wrong=wrong), first, then, settle], st.sampled_from(_WRONG), go, go
    )
    forks = st.builds(
        lambda number, first, other: [evolve(first, link=number), settle, evolve(other, link=number + 1)], link, go, go
    )
    slow = st.builds(
        lambda begin, pause, move, other: [evolve(begin, tokens_per_second=10.0), mv.Sleep(pause), move, other, settle],
        creates(capabilities=capabilities, adapter=adapter, clients=clients, hosted=options.get("hosted", False)),
        st.sampled_from([0.05, 0.35, 0.8]),
        one,
        one,
    )
    single = one.map(lambda move: [move])
    return weighted(
        (4, single),
        (2, answered),
        (4, long_chain),
        (1, in_turn),
        (1, stalled),
        (1, gone),
        (1 * capabilities.chain, evicted),
        (1, forks),
        (2, slow),
    )


def conversations(
    shape: Shape = "create",
    *,
    capabilities: Capabilities = ALL,
    adapter: Adapter | None = None,
    clients: int = 3,
    quick: bool = False,
    hosted: bool = False,
    long_sleeps: bool = True,
    longest: int = 6,
) -> st.SearchStrategy[mv.Conversation]:
    """A conversation that begins with a Response, and has at most ``longest`` scenes."""
    options: dict[str, Any] = {
        "capabilities": capabilities,
        "adapter": adapter,
        "clients": clients,
        "quick": quick,
        "hosted": hosted,
        "long_sleeps": long_sleeps,
    }
    begun = creates(capabilities=capabilities, adapter=adapter, clients=clients, hosted=hosted)
    first = begun.map(lambda one: evolve(one, by=0, lane=0))
    scene = scenes(shape, **options)
    some = st.sampled_from(range(longest + 1)).flatmap(lambda count: st.lists(scene, min_size=count, max_size=count))
    rest = some.map(lambda found: [move for one in found for move in one])
    ending = st.sampled_from(["wait", "wait", "cancel"] if capabilities.cancel else ["wait"])
    return st.builds(lambda one, more, end: mv.Conversation([one, mv.Settle(), *more], end), first, rest, ending)


def _links() -> st.SearchStrategy[int]:
    return st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3, 4])


def _owners(clients: int) -> st.SearchStrategy[int | None]:
    """Mostly whoever has the Response."""
    return st.sampled_from([None] * 3 * clients + [*range(clients)])


def _seldom() -> st.SearchStrategy[bool]:
    return st.sampled_from([False, False, False, True])


def _programs(capabilities: Capabilities, adapter: Adapter | None, *, hosted: bool = False) -> st.SearchStrategy[list[Step]]:
    return programs(hosted=hosted, custom=capabilities.custom, among=adapter.programs if adapter else None)


def _whole(capabilities: Capabilities, adapter: Adapter | None) -> st.SearchStrategy[Any]:
    """Whether to send the whole history. A server that knows a few programs only may know them by their call ids."""
    forms = ["heard", "bare", *(["renamed"] if adapter is None or adapter.programs is None else [])]
    return st.sampled_from([*([None] * 4 if capabilities.chain else []), *forms])


def _said(capabilities: Capabilities, adapter: Adapter | None) -> st.SearchStrategy[mv.Said]:
    if adapter is not None and adapter.programs is not None:
        return _programs(capabilities, adapter)
    body = st.lists(steps(depth=0, custom=capabilities.custom), max_size=2)
    program: st.SearchStrategy[list[Step]] = body.map(lambda some: [*some, {"say": "anew"}])
    return weighted((2, st.sampled_from(_SAID)), (1, program))


def _how(capabilities: Capabilities) -> st.SearchStrategy[mv.How]:
    return st.builds(
        mv.How,
        store=st.sampled_from([None, None, True, False, False]),
        warm=_seldom() if capabilities.warm_up else st.just(False),
        most=st.sampled_from([None, None, None, None, None, 3, 12, 40]),
    )
