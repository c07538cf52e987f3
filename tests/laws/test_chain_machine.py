"""The big machine of the create and http shapes: whole conversations in virtual time, every frame checked as it comes.

``SOSTENUTO_EXAMPLES=5000 pytest tests/laws/test_chain_machine.py`` plays it at length.
"""

from hypothesis import given

from engine.config import Config
from engine.testing import FakeSearch, direct_server, memory_server, virtually
from engine.testing.profile import examples
from protocol.conformance.chain.conversations import conversations
from protocol.conformance.chain.machine import play
from protocol.conformance.chain.moves import Begin, Cancel, Conversation, Delete, Drop, Go, How, Settle

KEYS = ("ours", "theirs")
CONFIG = Config(keys=KEYS, connection_seconds=1e9, finished_seconds=1e9, finished=1000)
SMALL = Config(keys=KEYS, connection_seconds=1e9, finished_seconds=1e9, finished=1000, outbox_bytes=700)
"""Some four events: readers fall behind at once."""


@examples(150, big=True)
@given(conversations("create", hosted=True))
def test_chain_machine(conversation: Conversation) -> None:
    async def main() -> None:
        async with direct_server(config=CONFIG, hosted={"file_search": FakeSearch(seconds=0.5)}) as server:
            await play(conversation, server, books=server, keys=KEYS)

    virtually(main)


@examples(50, big=True)
@given(conversations("create", hosted=True))
def test_chain_machine_over_websockets(conversation: Conversation) -> None:
    async def main() -> None:
        async with memory_server(config=CONFIG, hosted={"file_search": FakeSearch(seconds=0.5)}) as server:
            await play(conversation, server, books=server, keys=KEYS)

    virtually(main)


@examples(50, big=True)
@given(conversations("create", hosted=True))
def test_chain_machine_with_slow_readers(conversation: Conversation) -> None:
    async def main() -> None:
        async with direct_server(config=SMALL, hosted={"file_search": FakeSearch(seconds=0.5)}) as server:
            await play(conversation, server, books=server, keys=KEYS)

    virtually(main)


@examples(30, big=True)
@given(conversations("create", hosted=True))
def test_chain_machine_over_a_narrow_network(conversation: Conversation) -> None:
    async def main() -> None:
        async with memory_server(config=SMALL, hosted={"file_search": FakeSearch(seconds=0.5)}) as server:
            server.capacity = 500
            await play(conversation, server, books=server, keys=KEYS)

    virtually(main)


@examples(80, big=True)
@given(conversations("http", hosted=True))
def test_chain_machine_over_http(conversation: Conversation) -> None:
    async def main() -> None:
        async with memory_server(config=CONFIG, hosted={"file_search": FakeSearch(seconds=0.5)}) as server:
            await play(conversation, server, shape="http", books=server, keys=KEYS)

    virtually(main)


@examples(30, big=True)
@given(conversations("http", hosted=True))
def test_chain_machine_over_http_on_a_narrow_network(conversation: Conversation) -> None:
    async def main() -> None:
        async with memory_server(config=SMALL, hosted={"file_search": FakeSearch(seconds=0.5)}) as server:
            server.capacity = 500
            await play(conversation, server, shape="http", books=server, keys=KEYS)

    virtually(main)


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
