"""The timer that rings in time, and the one that stands for it where time is virtual."""

import math

import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from engine.alarm import open_alarm
from engine.models.pacemaker import sleep_until


async def test_an_alarm_rings_once_and_not_early() -> None:
    alarm = open_alarm()
    due = trio.current_time() + 0.003
    alarm.set(due)
    assert alarm.due == due
    await alarm.rings()
    assert trio.current_time() >= due
    assert alarm.due == math.inf
    with trio.move_on_after(0.02) as scope:
        await alarm.rings()
    assert scope.cancelled_caught
    alarm.close()


async def test_an_alarm_that_is_set_anew_rings_then() -> None:
    alarm = open_alarm()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarm.rings)
        alarm.set(trio.current_time() + 3600)
        await trio.testing.wait_all_tasks_blocked()
        alarm.set(trio.current_time() - 1)  # what is past rings at once
    alarm.set(math.inf)
    with trio.move_on_after(0.01) as scope:
        await alarm.rings()
    assert scope.cancelled_caught
    alarm.close()


@given(waits=st.lists(st.floats(0, 10), min_size=1, max_size=20), cancelled=st.sets(st.integers(0, 19)))
def test_all_are_woken_in_virtual_time_each_when_it_is_due(waits: list[float], cancelled: set[int]) -> None:
    woken: dict[int, float] = {}

    async def sleep(number: int, scope: trio.CancelScope) -> None:
        with scope:
            await sleep_until(waits[number])
            woken[number] = trio.current_time()

    async def main() -> None:
        scopes = [trio.CancelScope() for _ in waits]
        async with trio.open_nursery() as nursery:
            for number, scope in enumerate(scopes):
                nursery.start_soon(sleep, number, scope)
            for number in cancelled & set(range(len(waits))):
                scopes[number].cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert set(woken) == set(range(len(waits))) - cancelled
    assert all(math.isclose(woken[number], waits[number], abs_tol=1e-6) for number in woken)


async def test_many_sleep_in_real_time_and_none_wakes_early() -> None:
    late: list[float] = []

    async def sleep(number: int) -> None:
        due = trio.current_time() + number % 17 / 1000
        await sleep_until(due)
        late.append(trio.current_time() - due)

    async with trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(sleep, number)
    assert len(late) == 200
    assert min(late) >= 0
