"""The clock of simulations: it jumps, and wakes who sleeps on it, in the same order each time."""

import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.lab import virtual
from engine.testing.profile import examples

times = st.integers(0, 20).map(lambda tenths: tenths / 10)


@examples(100)
@given(st.lists(st.tuples(times, times, st.booleans()), max_size=12), st.integers(0, 3))
def test_who_sleeps_by_the_clock_and_who_sleeps_by_trio_wake_when_they_are_due(
    sleepers: list[tuple[float, float, bool]], seed: int
) -> None:
    def play() -> list[tuple[int, float]]:
        woke: list[tuple[int, float]] = []

        async def sleeper(number: int, begin: float, due: float, by_trio: bool) -> None:
            await trio.sleep_until(begin)
            if by_trio:
                await trio.sleep_until(due)
            else:
                await virtual.sleep_until(due)
            woke.append((number, trio.current_time()))

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                for number, one in enumerate(sleepers):
                    nursery.start_soon(sleeper, number, *one)

        virtual.run(main, seed)
        return woke

    woke = play()
    assert dict(woke) == {number: max(begin, due) for number, (begin, due, _) in enumerate(sleepers)}
    assert [at for _, at in woke] == sorted(at for _, at in woke)
    assert play() == woke


def test_a_sleeper_is_woken_once_at_the_first_of_its_times() -> None:
    async def main() -> None:
        one = virtual.Sleeper()
        one.wake_at(3.0)
        one.wake_at(1.0)
        await one.sleep()
        assert trio.current_time() == 1.0
        await virtual.sleep_until(5.0)
        assert trio.current_time() == 5.0

    virtual.run(main, 0)


def test_who_was_cancelled_is_not_woken() -> None:
    async def main() -> None:
        with trio.move_on_after(1.0):
            await virtual.sleep_until(2.0)
        assert trio.current_time() == 1.0
        await virtual.sleep_until(4.0)
        assert trio.current_time() == 4.0

    virtual.run(main, 0)
