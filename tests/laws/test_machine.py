"""The big machine: whole conversations with a server in virtual time, every frame checked as it comes.

``SOSTENUTO_EXAMPLES=5000 pytest tests/laws/test_machine.py`` plays it at length.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import given

from engine.config import Config
from engine.testing import FakeSearch, direct_server, memory_server, virtually
from engine.testing.profile import examples
from protocol.conformance.append.conversations import conversations
from protocol.conformance.append.machine import play
from protocol.conformance.append.moves import Answer, Attach, Conversation, Create, Drop, Pause, Settle, Stranger

CONFIG = Config(connection_seconds=1e9, finished_seconds=1e9, finished=1000)
SMALL = Config(connection_seconds=1e9, finished_seconds=1e9, finished=1000, outbox_bytes=700)
"""Some four events: readers fall behind at once."""


def played(conversation: Conversation, serving: Callable[..., Any], config: Config, *, capacity: int | None = None) -> None:
    """With a server, in virtual time. ``capacity`` is what each direction of its network buffers."""

    async def main() -> None:
        async with serving(config=config, hosted={"file_search": FakeSearch(seconds=0.5)}) as server:
            if capacity is not None:
                server.capacity = capacity
            await play(conversation, server, books=server)

    virtually(main)


@examples(150, big=True)
@given(conversations(hosted=True))
def test_machine(conversation: Conversation) -> None:
    played(conversation, direct_server, CONFIG)


@examples(50, big=True)
@given(conversations(hosted=True))
def test_machine_over_websockets(conversation: Conversation) -> None:
    played(conversation, memory_server, CONFIG)


@examples(50, big=True)
@given(conversations(hosted=True))
def test_machine_with_slow_readers(conversation: Conversation) -> None:
    played(conversation, direct_server, SMALL)


@examples(30, big=True)
@given(conversations(hosted=True))
def test_machine_over_a_narrow_network(conversation: Conversation) -> None:
    played(conversation, memory_server, SMALL, capacity=500)


def test_what_was_taken_for_the_answer_of_a_client_that_is_gone() -> None:
    """Two clients append the same; the one that was replaced goes before it hears so: the acknowledgement is the other's."""
    program = [{"call": {"name": "a", "arguments": "{}"}}, {"say": "Done."}]
    moves = [Create(program), Settle(), Attach(1, 0, None), Settle()]
    moves += [Pause(0), Stranger("cancel", 0), Answer(0), Answer(1), Settle(), Drop(0), Settle()]
    test_machine.hypothesis.inner_test(Conversation(moves))  # type: ignore[attr-defined]


def test_of_appends_that_are_alike_the_one_that_was_refused_is_not_meant() -> None:
    """One was refused, and one lost with its client's connection: the books tell which of them was accepted."""
    program = [{"call": {"name": "a", "arguments": "{}"}}, {"say": "Done."}]
    moves = [Create(program), Settle(), Attach(1, 0, None), Settle(), Stranger("cancel", 0), Answer(0), Settle()]
    moves += [Drop(1), Answer(2, say=["and?"]), Drop(2), Settle()]
    test_machine.hypothesis.inner_test(Conversation(moves))  # type: ignore[attr-defined]
