"""For each shape: which conversations are tried, and the machine that plays them."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from .adapters import Adapter
from .append import conversations as append_conversations
from .append.machine import play as play_append
from .capabilities import Capabilities
from .chain import conversations as chain_conversations
from .chain.machine import play as play_chain
from .transport import Books, Shape, Transport


def why_not(shape: Shape, adapter: Adapter) -> str | None:
    """Why conversations of ``shape`` can't be played; None if they can."""
    if shape == "append" and not adapter.obeys:
        return "its conversations need a model that does what it is told"
    return None


def conversations(
    shape: Shape, adapter: Adapter, capabilities: Capabilities, *, exact: bool, hosted: bool = False
) -> st.SearchStrategy[Any]:
    """Conversations of ``shape`` for a server that offers ``capabilities``. Where time is real they don't sleep for long."""
    options: dict[str, Any] = {"hosted": hosted, "long_sleeps": exact, "quick": not exact}
    if shape == "append":
        return append_conversations.conversations(**options)
    return chain_conversations.conversations(shape, capabilities=capabilities, adapter=adapter, **options)


async def play(
    shape: Shape,
    conversation: Any,
    transport: Transport,
    books: Books,
    *,
    adapter: Adapter,
    capabilities: Capabilities,
    keys: Sequence[str] = (),
) -> None:
    """Play ``conversation``; raises ``ConformanceError``."""
    if shape == "append":
        model = str(adapter.opening(({"say": "Done."},))["model"])
        await play_append(conversation, transport, books=books, model=model)
        return
    own: dict[str, Any] = {"adapter": adapter, "capabilities": capabilities, "books": books, "keys": keys or (None,)}
    await play_chain(conversation, transport, shape=shape, **own)
