"""What is kept of ended Responses: the resource, and its whole context in order, so that it can be continued and replayed.

A stranger's id cannot be told from an unknown one (law L13): every look-up names the tenant.
"""

from collections.abc import Iterable
from typing import Protocol

from attrs import field, frozen

from protocol.items import Item
from protocol.response import Response


@frozen(kw_only=True)
class Stored:
    """An ended Response."""

    tenant: str
    response: Response
    items: tuple[Item, ...]
    """Its part of the context, in order: what came in and what was put out."""
    stops: tuple[int, ...] = ()
    """Places in ``items`` where sampling stopped: between the calls of a turn and what answered them."""
    input: tuple[Item, ...]
    """Of these, what came from outside: the request's input and the appended items."""
    events: bytes = field(default=b"", repr=False)
    """Its event stream; see ``replayed``."""
    previous_id: str | None = None
    """Under which id the part of the context before ``items`` is kept; None if ``items`` is the whole of it."""


class Store(Protocol):
    """Where Responses are kept."""

    async def put(self, stored: Stored) -> None:
        """Keep it; durable when this returns. Cancellation may leave it kept."""
        ...

    async def get(self, tenant: str, response_id: str) -> Stored | None:
        """The Response, if ``tenant`` has one of that id."""
        ...

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Forget a Response; whether there was one. What continues it from the store is lost with it."""
        ...


class MemoryStore:
    """Responses in a dictionary, the oldest dropped beyond ``limit``."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._kept: dict[tuple[str, str], Stored] = {}

    async def put(self, stored: Stored) -> None:
        self._kept[stored.tenant, stored.response.id] = stored
        while len(self._kept) > self._limit:
            del self._kept[next(iter(self._kept))]

    async def get(self, tenant: str, response_id: str) -> Stored | None:
        return self._kept.get((tenant, response_id))

    async def delete(self, tenant: str, response_id: str) -> bool:
        return self._kept.pop((tenant, response_id), None) is not None

    def all(self) -> Iterable[Stored]:
        """Everything kept, oldest first."""
        return self._kept.values()
