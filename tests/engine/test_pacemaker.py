"""One timer for all: everybody is woken when due, and nobody else."""

import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.models.pacemaker import sleep_until
from engine.testing import virtually
from engine.testing.profile import examples

times = st.integers(0, 20).map(lambda tenths: tenths / 10)


@examples(100)
@given(st.lists(st.tuples(times, times, st.none() | times), max_size=12))
def test_each_wakes_when_it_is_due_unless_it_was_cancelled_before(sleepers: list[tuple[float, float, float | None]]) -> None:
    """Each begins at some time, sleeps until a time that may be past, and may be cancelled at another."""
    woke: dict[int, float] = {}
    expected: dict[int, float] = {}

    async def main() -> None:
        zero = trio.current_time()

        async def sleeper(number: int, begin: float, due: float, cut: float | None) -> None:
            with trio.CancelScope(deadline=zero + 100 if cut is None else zero + cut):
                await trio.sleep_until(zero + begin)
                await sleep_until(zero + due)
                woke[number] = round(trio.current_time() - zero, 6)

        async with trio.open_nursery() as nursery:
            for number, one in enumerate(sleepers):
                nursery.start_soon(sleeper, number, *one)

    for number, (begin, due, cut) in enumerate(sleepers):
        ends = max(begin, due)
        if cut is None or cut > ends:
            expected[number] = ends
        elif cut == ends:
            expected[number] = -1.0  # either

    virtually(main)
    for number, at in expected.items():
        assert at == -1.0 or woke[number] == at
    assert woke.keys() <= expected.keys()


def test_it_is_a_checkpoint_even_for_what_is_past() -> None:
    async def main() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await sleep_until(trio.current_time() - 1.0)
        assert scope.cancelled_caught

    virtually(main)


def test_a_run_has_a_timer_of_its_own() -> None:
    async def main() -> None:
        begun = trio.current_time()
        await sleep_until(begun + 1.0)
        assert trio.current_time() == begun + 1.0

    for _ in range(2):
        virtually(main)
