"""What is kept of ended Responses: the resource, and its whole context in order, so that it can be continued and replayed.

A stranger's id cannot be told from an unknown one (law L13): every look-up names the tenant.
"""

from collections.abc import Iterable
from typing import Protocol

from attrs import frozen

from protocol.items import Item
from protocol.response import Response


@frozen(kw_only=True)
class Stored:
    """An ended Response."""

    tenant: str
    response: Response
    context: tuple[Item, ...]
    input: tuple[Item, ...]
    """What came from outside: the request's input and the appended items, in context order."""
    stops: tuple[int, ...] = ()
    """Places in ``context`` where sampling stopped: between the calls of a turn and what answered them."""


class Store(Protocol):
    """Where Responses are kept."""

    async def put(self, stored: Stored) -> None:
        """Keep it; durable when this returns. Cancellation may leave it kept."""
        ...

    async def get(self, tenant: str, response_id: str) -> Stored | None:
        """The Response, if ``tenant`` has one of that id."""
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

    def all(self) -> Iterable[Stored]:
        """Everything kept, oldest first."""
        return self._kept.values()
