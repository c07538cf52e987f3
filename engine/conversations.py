"""Conversations: lists of items that live on their own. A Response begins with one, and adds to it what was said in it.

A chain of Responses says what came before by the id of the last one, and can fork; a conversation has one end. So one
Response at a time is in it (``Visit``): another that begins meanwhile is refused, since neither would know what the other
says. What a Response adds, its input and its output, is in the conversation before the client hears that it has ended;
a Response that fails, or is cancelled, adds nothing.

Items get ids when they come without, or with one that the conversation has already; else they are kept as they came. Their
text is looked at by the policy when they come in, so that a Response need not look at it again.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from attrs import evolve

from protocol.errors import ProtocolError
from protocol.fields import Json
from protocol.ids import new_id
from protocol.items import Item, LocalShellCallOutput, answered_call_id
from protocol.requests import CreateRequest

from .history import history_of
from .references import References
from .services import Services
from .stages.pipeline import Previous
from .stages.validate import check_pairing, check_range
from .store import Conversation, Kept

ITEMS_AT_ONCE: Final = 20
"""As the Responses API documents it."""


def conversation_id(value: Any) -> str:
    """The id in a create's ``conversation``, which is an id or ``{"id": …}``; raises ``ProtocolError``."""
    found = value.get("id") if isinstance(value, Mapping) else value
    if not isinstance(found, str):
        message = 'conversation: expected the id of a conversation, or an object {"id": …}'
        raise ProtocolError("invalid_type", message, "conversation")
    return found


class Conversations:
    """The conversations of one server: what is kept of them, and which have a Response in them now."""

    def __init__(self, services: Services, references: References) -> None:
        self._services = services
        self._references = references
        self._store = services.store
        self._visited: set[tuple[str, str]] = set()

    # ---- asked by Responses

    async def context(self, tenant: str, value: Any) -> Previous:
        """What a create with this ``conversation`` begins with; raises ``ProtocolError``."""
        found = await self.get(tenant, conversation_id(value))
        kept = await self._store.get_items(tenant, found.id)
        items = [one.item for one in kept]
        _check_calls(items)
        return Previous(history_of(items, [place + 1 for place, one in enumerate(kept) if one.stop]))

    async def enter(self, tenant: str, request: CreateRequest) -> "Visit":
        """Let the Response of ``request`` be in its conversation, until it leaves; raises ``ProtocolError``."""
        if request.store is False:
            message = "store: a conversation keeps what is said in it; store can't be false together with conversation"
            raise ProtocolError("invalid_value", message, "store")
        key = tenant, conversation_id(request.conversation)
        if key in self._visited:
            message = f"conversation: another Response is being made in {key[1]!r}; try again when it has ended"
            raise ProtocolError("conversation_locked", message, "conversation")
        self._visited.add(key)
        try:
            return Visit(self, key, await self.context(tenant, key[1]))
        except BaseException:
            self._visited.discard(key)
            raise

    # ---- asked by clients

    async def create(self, tenant: str, metadata: Json | None, items: Sequence[Item]) -> Conversation:
        """A new conversation; raises ``ProtocolError``."""
        check_range("metadata", metadata)
        items = await self._admitted(tenant, items)
        services = self._services
        made = Conversation(
            tenant=tenant,
            id=new_id("conversation", services.entropy),
            created_at=int(services.wall()),
            metadata=metadata or {},
        )
        await self._store.put_conversation(made)
        if items:
            await self._store.add_items(tenant, made.id, self._named(items, set()))
        return made

    async def get(self, tenant: str, conversation_id: str) -> Conversation:
        """Raises ``conversation_not_found``, for a stranger's too."""
        found = await self._store.get_conversation(tenant, conversation_id)
        return found or _unknown(conversation_id)

    async def update(self, tenant: str, conversation_id: str, metadata: Json | None) -> Conversation:
        """Other metadata; raises ``ProtocolError``."""
        check_range("metadata", metadata)
        updated = evolve(await self.get(tenant, conversation_id), metadata=metadata or {})
        await self._store.put_conversation(updated)
        return updated

    async def delete(self, tenant: str, conversation_id: str) -> None:
        """Forget it, and its items; raises ``conversation_not_found``. A Response that is in it goes on, and adds nothing."""
        if not await self._store.delete_conversation(tenant, conversation_id):
            _unknown(conversation_id)

    async def items(self, tenant: str, conversation_id: str) -> Sequence[Kept]:
        """Its items, oldest first; raises ``conversation_not_found``."""
        await self.get(tenant, conversation_id)
        return await self._store.get_items(tenant, conversation_id)

    async def item(self, tenant: str, conversation_id: str, item_id: str) -> Kept:
        """One item; raises ``conversation_not_found``, ``not_found``."""
        for one in await self.items(tenant, conversation_id):
            if one.id == item_id:
                return one
        raise _no_item(item_id)

    async def add(self, tenant: str, conversation_id: str, items: Sequence[Item]) -> Sequence[Kept]:
        """Add a client's items, and return them as they are kept; raises ``ProtocolError``, and then nothing was added."""
        if not items:
            raise ProtocolError("invalid_value", "items: empty; at least one is added", "items")
        taken = {one.id for one in await self.items(tenant, conversation_id)}
        kept = self._named(await self._admitted(tenant, items), taken)
        if not await self._store.add_items(tenant, conversation_id, kept):
            _unknown(conversation_id)
        return kept

    async def remove(self, tenant: str, conversation_id: str, item_id: str) -> Conversation:
        """Forget an item; returns its conversation. Raises ``conversation_not_found``, ``not_found``."""
        found = await self.get(tenant, conversation_id)
        if not await self._store.delete_item(tenant, conversation_id, item_id):
            raise _no_item(item_id)
        return found

    # ---- inside

    async def _add_said(self, key: tuple[str, str], items: Sequence[Item], stops: Iterable[int]) -> None:
        taken = {one.id for one in await self._store.get_items(*key)}
        await self._store.add_items(*key, self._named(items, taken, frozenset(stops)))

    def _leave(self, key: tuple[str, str]) -> None:
        self._visited.discard(key)

    async def _admitted(self, tenant: str, items: Sequence[Item]) -> Sequence[Item]:
        """A client's items, and those that it names, as a model may read them."""
        if len(items) > ITEMS_AT_ONCE:
            message = f"items: {len(items)} items; at most {ITEMS_AT_ONCE} are added at once"
            raise ProtocolError("invalid_value", message, "items")
        items = await self._references.in_items(tenant, items, "items")
        verdict = self._services.policy.check(items, "input")
        for match in verdict.blocked:
            path = f"items[{match.index}].{match.path}"
            raise ProtocolError("content_policy_violation", f"{path}: refused by the policy ({match.rule})", path)
        return verdict.items

    def _named(self, items: Iterable[Item], taken: set[str], stops: frozenset[int] = frozenset()) -> list[Kept]:
        """``items`` with an id each, none of which is in ``taken``. ``stops``: behind how many of them sampling stopped."""
        kept: list[Kept] = []
        for item in items:
            own = item.id
            item_id = own if own and own not in taken else new_id(item.type, self._services.entropy)
            if isinstance(item, LocalShellCallOutput) and item_id != own:
                item = evolve(item, call_id=answered_call_id(item))  # its own id may have been what named its call
            taken.add(item_id)
            kept.append(Kept(item_id, evolve(item, id=item_id), len(kept) + 1 in stops))
        return kept


class Visit:
    """A Response in a conversation. ``previous`` is what it begins with."""

    def __init__(self, conversations: Conversations, key: tuple[str, str], previous: Previous) -> None:
        self._conversations = conversations
        self._key = key
        self._left = False
        self.previous = previous

    async def add(self, items: Sequence[Item], stops: Iterable[int]) -> None:
        """What was said, in order; ``stops`` are the places in ``items`` where sampling stopped."""
        await self._conversations._add_said(self._key, items, stops)

    def leave(self) -> None:
        """Let another Response be in the conversation; again is no error."""
        if not self._left:
            self._left = True
            self._conversations._leave(self._key)


def _check_calls(items: Sequence[Item]) -> None:
    """Each output answers one call before it. Calls may wait: the request answers them."""
    try:
        check_pairing({}, items)
    except ProtocolError as error:
        if error.param == "input":
            return
        message = f"conversation: its items don't fit each other; of its items as {error.message}"
        raise ProtocolError(error.code, message, "conversation") from None


def _unknown(conversation_id: str) -> NoReturn:
    message = f"Conversation with id '{conversation_id}' not found."
    raise ProtocolError("conversation_not_found", message, "conversation")


def _no_item(item_id: str) -> ProtocolError:
    return ProtocolError("not_found", f"Item with id '{item_id}' not found.", "item_id")
