"""What is kept of ended Responses: the resource, and its whole context in order, so that it can be continued and replayed;
and conversations, whose items Responses begin with and add to.

A stranger's id cannot be told from an unknown one (law L13): every look-up names the tenant.

Items can be had by their ids. Of a Response's items, those that it put out belong to it; one that was sent with an id belongs
to the Response that it was sent to, if the id was new then, or another item was sent under it before. So an item that is sent,
or referred to, again and again is kept under its id once, and goes with the Response that had it first.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from attrs import field, frozen

from protocol.fields import Json
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


@frozen(kw_only=True)
class Conversation:
    """A list of items that lives on its own. ``created_at`` is Unix time, in whole seconds."""

    tenant: str
    id: str
    created_at: int
    metadata: Json = field(factory=dict)


@frozen
class Kept:
    """An item of a conversation."""

    id: str
    item: Item
    stop: bool = False
    """Whether sampling stopped behind it."""


class Store(Protocol):
    """Where Responses and conversations are kept. What is written is durable when its method returns."""

    async def put(self, stored: Stored) -> None:
        """Keep it; durable when this returns. Cancellation may leave it kept."""
        ...

    async def get(self, tenant: str, response_id: str) -> Stored | None:
        """The Response, if ``tenant`` has one of that id."""
        ...

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Forget a Response; whether there was one. What continues it from the store is lost with it."""
        ...

    async def put_conversation(self, conversation: Conversation) -> None:
        """Keep a conversation, or its new metadata."""
        ...

    async def get_conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """The conversation, if ``tenant`` has one of that id."""
        ...

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Forget a conversation and its items; whether there was one."""
        ...

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[Kept]) -> bool:
        """Add ``items`` at the end, all or none; whether there is such a conversation."""
        ...

    async def get_items(self, tenant: str, conversation_id: str) -> Sequence[Kept]:
        """The items of a conversation in order; none, if there is no such conversation."""
        ...

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> bool:
        """Forget an item; whether there was one."""
        ...

    async def find_items(self, tenant: str, ids: Collection[str]) -> Mapping[str, Item]:
        """The items of ``tenant`` that have these ids, by id: of its Responses, else the newest of its conversations."""
        ...


class _Sent(NamedTuple):
    """An item that came from outside, and the Response that it belongs to."""

    owner: Stored
    item: Item


class MemoryStore:
    """Responses in one dictionary, conversations in another; of each the oldest are dropped beyond ``limit``."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._kept: dict[tuple[str, str], Stored] = {}
        self._owned: dict[str, dict[str, Stored | _Sent]] = {}
        """Items of Responses, by tenant and then by their own id. Of one that a Response put out, that is the Response alone:
        they are many."""
        self._conversations: dict[tuple[str, str], Conversation] = {}
        self._items: dict[tuple[str, str], list[Kept]] = {}
        self._said: dict[tuple[str, str], dict[str, Item]] = {}
        """Items of conversations, by tenant and their own id, and then by conversation."""

    async def put(self, stored: Stored) -> None:
        self._kept[stored.tenant, stored.response.id] = stored
        self._own(stored)
        while len(self._kept) > self._limit:
            self._disown(self._kept.pop(next(iter(self._kept))))

    async def get(self, tenant: str, response_id: str) -> Stored | None:
        return self._kept.get((tenant, response_id))

    async def delete(self, tenant: str, response_id: str) -> bool:
        stored = self._kept.pop((tenant, response_id), None)
        if stored is not None:
            self._disown(stored)
        return stored is not None

    async def put_conversation(self, conversation: Conversation) -> None:
        key = conversation.tenant, conversation.id
        self._conversations[key] = conversation
        self._items.setdefault(key, [])
        while len(self._conversations) > self._limit:
            await self.delete_conversation(*next(iter(self._conversations)))

    async def get_conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        return self._conversations.get((tenant, conversation_id))

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        for one in self._items.pop((tenant, conversation_id), ()):
            self._unsay(tenant, conversation_id, one.id)
        return self._conversations.pop((tenant, conversation_id), None) is not None

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[Kept]) -> bool:
        kept = self._items.get((tenant, conversation_id))
        if kept is not None:
            kept.extend(items)
            for one in items:
                self._said.setdefault((tenant, one.id), {})[conversation_id] = one.item
        return kept is not None

    async def get_items(self, tenant: str, conversation_id: str) -> Sequence[Kept]:
        return tuple(self._items.get((tenant, conversation_id), ()))

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> bool:
        kept = self._items.get((tenant, conversation_id), [])
        left = [one for one in kept if one.id != item_id]
        there = len(left) < len(kept)
        kept[:] = left
        if there:
            self._unsay(tenant, conversation_id, item_id)
        return there

    async def find_items(self, tenant: str, ids: Collection[str]) -> Mapping[str, Item]:
        found: dict[str, Item] = {}
        for item_id in ids:
            owned, said = self._owned.get(tenant, {}).get(item_id), self._said.get((tenant, item_id))
            if owned or said:
                found[item_id] = _item_of(owned, item_id) if owned else list((said or {}).values())[-1]
        return found

    def all(self) -> Iterable[Stored]:
        """Everything kept, oldest first."""
        return self._kept.values()

    def _own(self, stored: Stored) -> None:
        owned = self._owned.setdefault(stored.tenant, {})
        for item in stored.response.output:
            if item.id and _gives_way(owned.get(item.id), item):
                owned[item.id] = stored
        for item in stored.input:
            if item.id and _gives_way(owned.get(item.id), item):
                owned[item.id] = _Sent(stored, item)

    def _disown(self, stored: Stored) -> None:
        owned = self._owned.get(stored.tenant, {})
        for item in (*stored.response.output, *stored.input):
            known = owned.get(item.id) if item.id else None
            if (known.owner if isinstance(known, _Sent) else known) is stored:
                del owned[item.id or ""]
        if not owned:
            self._owned.pop(stored.tenant, None)

    def _unsay(self, tenant: str, conversation_id: str, item_id: str) -> None:
        said = self._said[tenant, item_id]
        del said[conversation_id]
        if not said:
            del self._said[tenant, item_id]


def _gives_way(known: Stored | _Sent | None, item: Item) -> bool:
    """Whether ``item`` takes the id under which ``known`` is kept."""
    return known is None or (isinstance(known, _Sent) and known.item != item)


def _item_of(owned: Stored | _Sent, item_id: str) -> Item:
    if isinstance(owned, _Sent):
        return owned.item
    return next(item for item in owned.response.output if item.id == item_id)
