"""For each shape: which conversations are tried, and the machine that plays them."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from .adapters import Adapter
from .append import conversations as append_conversations
from .append.machine import play as play_append
from .capabilities import Capabilities
from .transport import Books, Shape, Transport


def conversations(
    shape: Shape, adapter: Adapter, capabilities: Capabilities, *, exact: bool, hosted: bool = False
) -> st.SearchStrategy[Any]:
    """Conversations of ``shape`` for a server that offers ``capabilities``. Where time is real they don't sleep for long."""
    if shape == "append":
        return append_conversations.conversations(hosted=hosted, long_sleeps=exact, quick=not exact)
    raise NotImplementedError


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
    raise NotImplementedError
