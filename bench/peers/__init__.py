"""``peers``: a rollout on Sostenuto and on servers that others wrote, side by side; see docs/performance.md."""

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from attrs import frozen

from ..report import Row, Sizes, against, quartiles
from ..tables import columns
from .catalog import PEERS, Side, ours
from .install import install_all
from .measure import Played, crowds, kept, raw_bytes, rollouts
from .server import Unavailable

__all__ = ["install_all", "peers"]

APPEND = "append"
CPU_PEER = "fastresponses"


@frozen
class _Found:
    """What was found on all sides, by name."""

    sides: Sequence[Side]
    short: Mapping[str, list[Played]]
    long: Mapping[str, list[Played]]
    rates: Mapping[str, list[float]]
    kept: Mapping[str, tuple[float, float]]
    """Of a short and of a long rollout, bytes for each byte that was said."""

    @property
    def peers(self) -> list[str]:
        """The names of the others."""
        return [side.name for side in self.sides if not side.ours]


def peers(sizes: Sizes) -> Iterator[Row]:
    """Against the fastest of them, and each side's own figures."""
    found = _measure(sizes)
    if found.peers:
        for turns, played in zip(sizes.peer_turns, (found.short, found.long), strict=True):
            yield _against(found, played, "first", f"output to first event, {turns} turns", 1 / 2)
            yield _against(found, played, "last", f"output to last event, {turns} turns", 2 / 3)
        if CPU_PEER in found.peers:
            yield _cpu(found)
        yield _at_once(found, sizes.crowd)
    yield _flat(found, sizes.peer_turns[1])
    yield from _kept(found, sizes.peer_turns)
    yield from (_of(found, side) for side in found.sides)
    if found.peers:
        print(_table(found, sizes), file=sys.stderr)


def _measure(sizes: Sizes) -> _Found:
    def say(what: str) -> None:
        if sizes.peers:
            print(f"peers: {what}", file=sys.stderr, flush=True)

    short, long = sizes.peer_turns
    say("memory of ours")
    memory = _memory_of_ours(sizes)
    with ExitStack() as stack:
        all_sides = [*stack.enter_context(ours(sizes.peer_turns))]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, start in PEERS.items() if sizes.peers else ():
            say(f"starting {name}")
            try:
                all_sides.append(stack.enter_context(start(folder)))
            except (Unavailable, OSError, RuntimeError) as reason:
                say(f"without {name}: {reason}")
        quick = [side for side in all_sides if not side.slow]
        for side in quick:
            if not side.ours:
                say(f"memory of {side.name}")
                memory[side.name] = _kept_of(side, sizes)
        say(f"rollouts of {short} turns")
        played = rollouts(all_sides, short, sizes.peer_rollouts)
        say(f"rollouts of {long} turns")
        longer = rollouts(quick, long, max(1, sizes.peer_rollouts // 4))
        say(f"{sizes.crowd} rollouts at once")
        rates = crowds(all_sides, short, max(1, sizes.peer_rollouts // 10), sizes.crowd)
        return _Found(all_sides, played, longer, rates, memory)


def _memory_of_ours(sizes: Sizes) -> dict[str, tuple[float, float]]:
    """Each shape's, in a process of its own."""
    memory = {}
    for place in range(3):
        with ours(sizes.peer_turns) as started:
            memory[started[place].name] = _kept_of(started[place], sizes)
    return memory


def _kept_of(side: Side, sizes: Sizes) -> tuple[float, float]:
    short, long = sizes.peer_turns
    count = sizes.kept if side.ours else max(1, sizes.kept // 4)
    return (
        kept(side, short, count) / raw_bytes(short),
        kept(side, long, max(1, count // 5)) / raw_bytes(long),
    )


def _against(found: _Found, played: Mapping[str, list[Played]], what: str, title: str, target: float) -> Row:
    """The append shape against the peer that is fastest at it."""
    times = {name: [one.median_of(what) for one in rounds] for name, rounds in played.items()}
    fastest = min((name for name in found.peers if name in times), key=lambda name: median(times[name]))
    pairs = list(zip(times[APPEND], times[fastest], strict=True))
    return against("peers", f"append : {fastest}, {title}", pairs, target=target, scale=1e6, unit="µs", peer=fastest)


def _cpu(found: _Found) -> Row:
    pairs = [(one.cpu, other.cpu) for one, other in zip(found.short[APPEND], found.short[CPU_PEER], strict=True)]
    return against("peers", f"append : {CPU_PEER}, CPU of the server a turn", pairs, target=1 / 2, scale=1e6, unit="µs")


def _at_once(found: _Found, many: int) -> Row:
    """Turns a second, the fastest peer's against ours: below 1 where we are faster."""
    fastest = max(found.peers, key=lambda name: median(found.rates[name]))
    ratios = [theirs / ours for ours, theirs in zip(found.rates[APPEND], found.rates[fastest], strict=True)]
    what = f"{fastest} : append, turns a second, {many} rollouts at once"
    detail = {"ours": round(median(found.rates[APPEND])), "theirs": round(median(found.rates[fastest])), "unit": "/s"}
    return Row(name="peers", what=what, value=median(ratios), spread=quartiles(ratios), target=1.0, detail=detail)


def _flat(found: _Found, turns: int) -> Row:
    pairs = [(one.late, one.early) for one in found.long[APPEND]]
    what = f"append: output to last event, the last of {turns} turns : the first"
    return against("peers", what, pairs, target=1.1, scale=1e6, unit="µs")


def _kept(found: _Found, turns: tuple[int, int]) -> Iterator[Row]:
    short, long = found.kept[APPEND]
    yield Row(
        name="peers",
        what=f"append: memory kept of a finished rollout of {turns[0]} turns : what was said",
        value=short,
        target=2.0,
    )
    yield Row(name="peers", what=f"append: the same of {turns[1]} turns", value=long, target=2.0)


def _of(found: _Found, side: Side) -> Row:
    rounds = found.short[side.name]
    value = median(one.median_of("last") for one in rounds) * 1e3
    return Row(name="peers", what=f"{side.name}: output to last event", value=value, unit="ms", detail=_figures(found, side))


def _figures(found: _Found, side: Side) -> dict[str, float | None]:
    """Milliseconds, turns a second, and bytes kept for each that was said."""
    rounds = found.short[side.name]
    long = found.long.get(side.name)

    def of(values: Sequence[float]) -> float:
        return round(median(values) * 1e3, 3)

    return {
        "first": of([one.median_of("first") for one in rounds]),
        "delta": of([one.median_of("delta") for one in rounds]),
        "last": of([one.median_of("last") for one in rounds]),
        "early": of([one.early for one in long]) if long else None,
        "late": of([one.late for one in long]) if long else None,
        "cpu": of([one.cpu for one in rounds]),
        "turns/s": round(median(found.rates[side.name])),
        "kept": round(found.kept[side.name][0], 2) if side.name in found.kept else None,
    }


def _table(found: _Found, sizes: Sizes) -> str:
    short, long = sizes.peer_turns
    head = ("side", "first", "delta", f"last of {short}", f"begin of {long}", f"end of {long}", "CPU", "turns/s", "kept")
    lines = [
        (side.name, *("–" if one is None else f"{one:g}" for one in _figures(found, side).values())) for side in found.sides
    ]
    return "\nEach side: ms a turn; turns a second at once; memory for each byte said\n" + columns([head, *lines])
