"""The big machine of the create and http shapes: whole conversations in virtual time, every frame checked as it comes.

``SOSTENUTO_EXAMPLES=5000 pytest tests/laws/test_chain_machine.py`` plays it at length.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import given

from engine.config import Config
from engine.testing import FakeSearch, direct_server, memory_server, virtually
from engine.testing.profile import examples
from protocol.conformance.chain.conversations import conversations
from protocol.conformance.chain.machine import play
from protocol.conformance.chain.moves import Begin, Cancel, Conversation, Delete, Drop, Go, How, Settle
from protocol.conformance.transport import Shape

KEYS = ("ours", "theirs")
CONFIG = Config(keys=KEYS, connection_seconds=1e9, finished_seconds=1e9, finished=1000)
SMALL = Config(keys=KEYS, connection_seconds=1e9, finished_seconds=1e9, finished=1000, outbox_bytes=700)
"""Some four events: readers fall behind at once."""


def played(
    conversation: Conversation,
    serving: Callable[..., Any],
    config: Config,
    shape: Shape = "create",
    *,
    capacity: int | None = None,
) -> None:
    """With a server, in virtual time. ``capacity`` is what each direction of its network buffers."""

    async def main() -> None:
        async with serving(config=config, hosted={"file_search": FakeSearch(seconds=0.5)}) as server:
            if capacity is not None:
                server.capacity = capacity
            await play(conversation, server, shape=shape, books=server, keys=KEYS)

    virtually(main)


@examples(150, big=True)
@given(conversations("create", hosted=True))
def test_chain_machine(conversation: Conversation) -> None:
    played(conversation, direct_server, CONFIG)


@examples(50, big=True)
@given(conversations("create", hosted=True))
def test_chain_machine_over_websockets(conversation: Conversation) -> None:
    played(conversation, memory_server, CONFIG)


@examples(50, big=True)
@given(conversations("create", hosted=True))
def test_chain_machine_with_slow_readers(conversation: Conversation) -> None:
    played(conversation, direct_server, SMALL)


@examples(30, big=True)
@given(conversations("create", hosted=True))
def test_chain_machine_over_a_narrow_network(conversation: Conversation) -> None:
    played(conversation, memory_server, SMALL, capacity=500)


@examples(80, big=True)
@given(conversations("http", hosted=True))
def test_chain_machine_over_http(conversation: Conversation) -> None:
    played(conversation, memory_server, CONFIG, shape="http")


@examples(30, big=True)
@given(conversations("http", hosted=True))
def test_chain_machine_over_http_on_a_narrow_network(conversation: Conversation) -> None:
    played(conversation, memory_server, SMALL, shape="http", capacity=500)


def test_a_continuation_may_come_behind_a_delete_that_was_sent_later() -> None:
    """Over HTTP each request has a connection of its own."""
    quick = How(stream=False)
    wrong = Go(wrong="unknown", how=quick)
    test_chain_machine_over_http.hypothesis.inner_test(  # type: ignore[attr-defined]
        Conversation([Begin([{"say": "Done."}], how=quick), Settle(), wrong, Delete()])
    )


def test_a_connection_breaks_just_when_its_answer_begins() -> None:
    """Nothing is left of it."""
    slow = Begin([{"say": "Done."}], tokens_per_second=200.0)
    moves = [Begin([{"say": "Done."}], how=How(store=False)), Settle(), slow, Cancel(), Drop()]
    test_chain_machine_over_http.hypothesis.inner_test(Conversation(moves))  # type: ignore[attr-defined]
