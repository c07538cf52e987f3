"""The network of simulations: what is sent arrives, whole, in its order, when it is due and not before."""

import random
from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.lab import virtual
from engine.lab.network import RETRANSMIT_SECONDS, Distance, link
from engine.testing.profile import examples

sends = st.lists(st.tuples(st.floats(0, 0.1), st.binary(min_size=1, max_size=20)), max_size=15)


@examples(150)
@given(sends, st.sampled_from([0.0, 0.03]), st.sampled_from([0.0, 0.4]), st.none() | st.integers(1, 7), st.integers(0, 5))
def test_what_is_sent_arrives_in_its_order_when_it_is_due(
    chunks: list[tuple[float, bytes]], rtt: float, loss: float, most: int | None, seed: int
) -> None:
    sent: list[tuple[float, int]] = []
    came: list[tuple[float, int]] = []
    data = bytearray()

    async def main() -> None:
        near, far = link(Distance(rtt=rtt, loss=loss), source=random.Random(seed))

        async def write() -> None:
            for after, chunk in chunks:
                await trio.sleep(after)
                await near.send_all(chunk)
                sent.append((trio.current_time(), len(chunk)))
            await near.send_eof()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            while part := await far.receive_some(most):
                assert most is None or len(part) <= most
                data.extend(part)
                came.append((trio.current_time(), len(data)))
        assert await far.receive_some() == b"", "an end stays the end"

    virtual.run(main, seed)
    assert bytes(data) == b"".join(chunk for _, chunk in chunks)
    total = 0
    for at, size in sent:
        total += size
        arrived = next(when for when, whole in came if whole >= total)
        late = arrived - at - rtt / 2
        assert late >= -1e-9
        if not loss:
            assert late <= 1e-9
    assert all(one <= other for (one, _), (other, _) in pairwise(came))


def test_what_is_lost_is_sent_again_and_what_follows_waits_for_it() -> None:
    chances = iter([0.1, 0.1, 0.9, 0.9])

    class Chances(random.Random):
        def random(self) -> float:
            return next(chances)

    async def main() -> list[float]:
        near, far = link(Distance(rtt=0.1, loss=0.5), source=Chances())
        await near.send_all(b"a")
        await trio.sleep(0.01)
        await near.send_all(b"b")
        await near.send_eof()
        times = []
        while await far.receive_some(1):
            times.append(trio.current_time())
        return times

    timer = RETRANSMIT_SECONDS + 0.1
    chances = iter([0.1, 0.1, 0.9, 0.9, 0.9])
    assert virtual.run(main, 0) == pytest.approx([0.05 + timer + 2 * timer] * 2)


def test_ends_that_are_gone() -> None:
    async def main() -> None:
        near, far = link(Distance(rtt=0.1))
        async with trio.open_nursery() as nursery:

            async def waits() -> None:
                with pytest.raises(trio.ClosedResourceError):
                    await near.receive_some()

            nursery.start_soon(waits)
            await trio.testing.wait_all_tasks_blocked()
            await near.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await near.send_all(b"x")
        with pytest.raises(trio.BrokenResourceError):
            await far.send_all(b"x")
        assert far.send_nowait(b"x") == 0
        assert await far.receive_some() == b""

    virtual.run(main, 0)


def test_what_the_client_sends_is_charged_for() -> None:
    async def main() -> float:
        near, far = link(Distance(rtt=0.1), charge=lambda size: size / 10)
        await near.send_all(b"abc")
        await far.receive_some()
        assert near.charged == pytest.approx(0.3)
        return trio.current_time()

    assert virtual.run(main, 0) == pytest.approx(0.35)
