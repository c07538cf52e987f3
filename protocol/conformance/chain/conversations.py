"""Hypothesis strategies for the create and http shapes: moves, scenes, conversations."""

from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve, frozen
from hypothesis import strategies as st

from ..adapters import Adapter
from ..capabilities import ALL, Capabilities
from ..script import Step
from ..strategies import bad_frames, calls, programs, steps, weighted
from ..transport import Shape
from . import moves as mv

Moves = list[mv.Move]
_WRONG: Final[Sequence[mv.Wrong]] = ["missing", "unknown", "again", "conflict", "mismatch", "stale", "renamed"]
FEWEST: Final = 16
"""OpenAI takes no smaller ``max_output_tokens``, and some servers make it so many."""
_SAID: Final = ["and?", "go on", "Why? 🎹"]
_BAD_BODIES: Final = [
    ("{}", "missing_required_parameter"),
    ("{", "invalid_json"),
    ("[]", "invalid_frame"),
    ('{"model": 7}', "invalid_type"),
    ('{"model": "m", "input": [{"type": "unheard_of"}]}', "invalid_value"),
    ('{"model": "m", "input": [{"type": "function_call_output"}]}', "missing_required_parameter"),
    ('{"model": "m", "input": NaN}', "invalid_json"),
]


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
    """A conversation that begins with a Response, and has at most ``longest`` scenes.

    What a server does not offer is not in it, nor programs that the adapter can't steer by. ``quick``: where time is real.
    ``hosted``: the model may call the server's own tool.
    """
    only = adapter.programs if adapter is not None else None
    most = (3, 12, 40) if adapter is None or adapter.codes else (FEWEST, 40)
    kinds = _Kinds(shape, capabilities, clients, hosted, quick, long_sleeps and not quick, only, most)
    scene = kinds.scenes()
    some = st.sampled_from(range(longest + 1)).flatmap(lambda count: st.lists(scene, min_size=count, max_size=count))
    rest = some.map(lambda found: [move for one in found for move in one])
    first = kinds.creates().map(lambda one: evolve(one, by=0, lane=0))
    ending = st.sampled_from(["wait", "wait", "cancel"] if capabilities.cancel else ["wait"])
    return st.builds(lambda one, more, end: mv.Conversation([one, mv.Settle(), *more], end), first, rest, ending)


@frozen
class _Kinds:
    """Strategies for all that a conversation is made of."""

    shape: Shape
    offers: Capabilities
    clients: int
    hosted: bool
    quick: bool
    long_sleeps: bool
    only: Sequence[Sequence[Step]] | None
    most: Sequence[int]

    # ---- moves

    def moves(self) -> st.SearchStrategy[mv.Move]:
        """One move. The weights are such that most conversations get somewhere."""
        by = st.integers(0, self.clients - 1)
        seconds = [0.01, 0.2, *([] if self.quick else [1.0, 5.0]), *([40.0, 4000.0] if self.long_sleeps else [])]
        return weighted(
            (3, st.just(mv.Settle())),
            (8, self.continuations()),
            (2, self.creates()),
            (2, st.sampled_from(seconds).map(mv.Sleep)),
            (1, self._bad().flatmap(lambda bad: st.builds(mv.Bad, st.just(bad[0]), st.just(bad[1]), by))),
            (1, st.builds(mv.Drop, by, st.booleans())),
            (1, st.builds(mv.Pause, by)),
            (1, st.builds(mv.Resume, by)),
            (1, st.builds(mv.Stranger, st.sampled_from(self._strange()), by)),
            *(self._over_http() if self.shape == "http" else self._on_sockets()),
        )

    def _on_sockets(self) -> list[tuple[int, st.SearchStrategy[Any]]]:
        steered = st.builds(mv.Steer, st.lists(self._said(), min_size=1, max_size=2), _links(), self._owners(), _seldom())
        return [
            (2 * self.offers.cancel, st.builds(mv.Cancel, _links(), self._owners(), st.booleans())),
            (2 * self.offers.steer, steered),
        ]

    def _over_http(self) -> list[tuple[int, st.SearchStrategy[Any]]]:
        link, by = _links(), self._owners()
        back = st.none() | st.integers(0, 30)
        return [
            (2 * self.offers.background, st.builds(mv.Cancel, link, by)),
            (2 * self.offers.store, st.builds(mv.Look, link, by)),
            (2 * (self.offers.store and self.offers.attach), st.builds(mv.Replay, link, by, back, _seldom())),
            (1 * self.offers.input_items, st.builds(mv.Pages, link, by, st.integers(1, 3), st.booleans())),
            (1 * self.offers.store, st.builds(mv.Delete, link, by)),
            (1, st.builds(mv.Leave, link)),
        ]

    def _strange(self) -> list[str]:
        offers = self.offers
        create = ["create"] if offers.chain else ["cancel"]
        if self.shape == "http":
            create += ["input_items"] if offers.input_items else []
            return [*create, *(["get", "delete", "replay", "cancel"] if offers.store else [])]
        return [*create, *(["cancel"] if offers.cancel else []), *(["steer"] if offers.steer else [])]

    def _bad(self) -> st.SearchStrategy[tuple[str | bytes, frozenset[str]]]:
        if self.shape == "http":
            return st.sampled_from(_BAD_BODIES).map(lambda bad: (bad[0], frozenset({bad[1]})))
        return bad_frames()

    def creates(self) -> st.SearchStrategy[mv.Begin]:
        """The beginning of a chain."""
        by, lane = st.integers(0, self.clients - 1), st.sampled_from([0, 0, 1, 2] if self.offers.lanes else [0])
        pace = st.sampled_from([None, None, None, 10.0, 200.0])
        return st.builds(mv.Begin, self._programs(), by, lane, self._how(), pace, st.just(self.hosted))

    def continuations(self) -> st.SearchStrategy[mv.Go]:
        """What goes on from a Response."""
        whole = ["heard", "bare", *(["renamed"] if self.only is None else [])]  # few may be known by their call ids
        return st.builds(
            mv.Go,
            _links(),
            self._owners(),
            st.sampled_from([None, None, None, 0, 1, 2] if self.offers.lanes else [None]),
            st.integers(0, 3),
            st.sampled_from([*[None] * 3 * len(_WRONG), *_WRONG]),
            st.lists(self._said(), max_size=2),
            _seldom(),
            st.sampled_from([*[None] * 5, *whole] if self.offers.chain else whole),
            self._how(),
        )

    def scenes(self) -> st.SearchStrategy[Moves]:
        """Some moves that belong together: single moves alone seldom come in the order in which they matter."""
        by, one, go, settle = st.integers(0, self.clients - 1), self.moves(), self.continuations(), mv.Settle()
        whole: Any = None if self.offers.chain else "heard"
        said = weighted((2, st.just(())), (1, self._programs().map(lambda steps: (steps,))))
        plain = st.builds(mv.Go, st.sampled_from([0, 0, 0, 1]), turn=st.integers(0, 3), say=said, whole=st.just(whole))
        fork = st.builds(
            lambda first, other, number: [evolve(first, link=number), settle, evolve(other, link=number + 1)], go, go, _links()
        )
        http = self.shape == "http"
        return weighted(
            (7, one.map(lambda move: [move])),
            (2, plain.map(lambda go: [go, settle])),
            (4, st.lists(plain, min_size=2, max_size=4).map(lambda gos: [move for go in gos for move in (go, settle)])),
            (1, st.builds(lambda move, other: [settle, move, settle, other, settle], one, one)),
            (1, st.builds(lambda who, some: [mv.Pause(who), *some, mv.Resume(who)], by, st.lists(one, max_size=4))),
            (1, st.builds(lambda who, move, other: [mv.Drop(who), move, other, settle], by, one, one)),
            (2, self._refused(go)),
            (1, fork),
            (2, self._slowly(one)),
            (1 * (self.offers.steer and not http), self._steering(one)),
            (2 * (http and self.offers.background and self.offers.store), self._by_itself(one)),
            (1 * (http and self.offers.store), self._listed()),
            (1 * (http and self.offers.store), st.builds(self._forgotten, plain, go, _links())),
        )

    def _refused(self, go: st.SearchStrategy[mv.Go]) -> st.SearchStrategy[Moves]:
        """A continuation that is refused, on the lane of the Response or on another, and what can still be continued."""
        how = st.sampled_from([mv.How(store=False) if self.offers.store else mv.How(), mv.How()])
        lane = st.sampled_from([None, 0, 1, 2] if self.offers.lanes else [None])
        whole: Any = None if self.offers.chain else "heard"
        by = st.integers(0, self.clients - 1)
        calling = st.builds(lambda begin, who, kind: evolve(begin, by=who, lane=0, how=kind), self._calling(), by, how)
        first = st.one_of(calling, how.map(lambda kind: mv.Go(how=kind, whole=whole)))
        spoiled = st.builds(lambda wrong, where: mv.Go(wrong=wrong, lane=where, whole=whole), st.sampled_from(_WRONG), lane)
        settle = mv.Settle()
        return st.builds(
            lambda one, bad, then: [one, settle, bad, settle, mv.Go(whole=whole), then, settle], first, spoiled, go
        )

    def _calling(self) -> st.SearchStrategy[mv.Begin]:
        """The beginning of a chain that calls tools at once."""
        several = st.lists(calls(hosted=self.hosted, custom=self.offers.custom), min_size=1, max_size=3)
        steps = several.map(lambda some: [{"calls": some}, {"say": "so: {{output}}!"}])
        programs = steps if self.only is None else self._programs()
        return st.builds(mv.Begin, programs, hosted=st.just(self.hosted))

    def _listed(self) -> st.SearchStrategy[Moves]:
        """A history that is sent again, and listed in pages."""
        pages = st.builds(mv.Pages, limit=st.integers(1, 3), ascending=st.booleans())
        return pages.map(lambda listed: [mv.Go(say=self._once(), whole="heard"), mv.Settle(), listed])

    def _once(self) -> Sequence[mv.Said]:
        return ("go on",) if self.only is None else (self.only[0],)

    def _steering(self, one: st.SearchStrategy[mv.Move]) -> st.SearchStrategy[Moves]:
        """Several steers of a Response that takes its time, and what becomes of them."""
        slow = self.creates().map(lambda begin: evolve(begin, tokens_per_second=100.0 if self.quick else 10.0))
        said = st.lists(st.lists(self._said(), min_size=1, max_size=2).map(mv.Steer), min_size=1, max_size=3)
        pause = st.sampled_from([0.01, 0.35, 0.8]).map(mv.Sleep)
        return st.builds(
            lambda begin, wait, steers, then: [
                begin,
                wait,
                *steers,
                then,
                mv.Sleep(0.5 if self.quick else 20.0),
                mv.Go(),
                mv.Settle(),
            ],
            slow,
            pause,
            said,
            one,
        )

    def _by_itself(self, one: st.SearchStrategy[mv.Move]) -> st.SearchStrategy[Moves]:
        """A Response in the background, that is looked at, heard, left and ended."""
        begin = self.creates().map(lambda begin: evolve(begin, tokens_per_second=100.0 if self.quick else 10.0))
        how = st.booleans().map(lambda stream: mv.How(background=True, stream=stream and self.offers.stream))
        heard = st.builds(mv.Replay, back=st.none() | st.integers(0, 5)) if self.offers.attach else st.just(mv.Look())
        then = st.lists(st.one_of(heard, st.just(mv.Look()), st.just(mv.Leave()), st.just(mv.Cancel()), one), max_size=4)
        pause = st.sampled_from([0.05, 0.35, 0.8]).map(mv.Sleep)
        leave = st.sampled_from([[], [mv.Leave()]])
        return st.builds(
            lambda first, kind, wait, left, rest: [evolve(first, how=kind), wait, *left, *rest], begin, how, pause, leave, then
        )

    def _forgotten(self, first: mv.Go, then: mv.Go, number: int) -> Moves:
        """A Response in the midst of a chain is deleted."""
        settle = mv.Settle()
        return [first, settle, first, settle, mv.Delete(number), evolve(then, link=0, by=None), settle, mv.Look(number)]

    def _slowly(self, one: st.SearchStrategy[mv.Move]) -> st.SearchStrategy[Moves]:
        """A Response that takes its time, and what is done meanwhile."""
        slow = self.creates().map(lambda begin: evolve(begin, tokens_per_second=100.0 if self.quick else 10.0))
        pause = st.sampled_from([0.05, 0.35, 0.8]).map(mv.Sleep)
        return st.builds(lambda begin, wait, move, other: [begin, wait, move, other, mv.Settle()], slow, pause, one, one)

    # ---- what moves are made of

    def _programs(self) -> st.SearchStrategy[Any]:
        return programs(hosted=self.hosted, custom=self.offers.custom, among=self.only)

    def _said(self) -> st.SearchStrategy[mv.Said]:
        if self.only is not None:
            return self._programs()
        short = st.lists(steps(custom=self.offers.custom, depth=0), max_size=2).map(lambda body: [*body, {"say": "anew"}])
        return weighted((2, st.sampled_from(_SAID)), (1, short))

    def _how(self) -> st.SearchStrategy[mv.How]:
        over_http = self.shape == "http"
        stores = [None, None, True, False, False] if self.offers.store else [None]
        return st.builds(
            mv.How,
            store=st.sampled_from(stores),
            warm=_seldom() if self.offers.warm_up and not over_http else st.just(False),
            most=st.sampled_from([None] * 5 + [*self.most] if self.only is None else [None]),
            stream=st.booleans() if over_http and self.offers.stream else st.just(self.offers.stream),
            background=_seldom() if over_http and self.offers.background else st.just(False),
        )

    def _owners(self) -> st.SearchStrategy[int | None]:
        """Mostly whoever has the Response."""
        return st.sampled_from([None] * 3 * self.clients + [*range(self.clients)])


def _links() -> st.SearchStrategy[int]:
    return st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3, 4])


def _seldom() -> st.SearchStrategy[bool]:
    return st.sampled_from([False, False, False, True])
