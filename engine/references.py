"""Items that a request names by their ids (``item_reference``) instead of sending them.

A reference is replaced by its item before anything looks at the request's input: all that comes after sees the items, as if
they had been sent. What can be named is what the server holds for the tenant: items of ended Responses that were stored, and of
conversations; on a socket also those of the Responses with ``store: false`` that its connection remembers. A stranger's id
cannot be told from an unknown one, or from one that was deleted (law L13).

Plan. The store finds items by their ids. Two kinds it can't find: those of a Response that has ended a moment ago and is still
on its way to the store, which are kept here until it is there; and items that came without an id. These are listed with one
that is made of their place (``listed_id``), so the id itself says where the item is.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import trio
from attrs import evolve, frozen

from protocol.errors import ProtocolError
from protocol.ids import PREFIXES
from protocol.items import Item, ItemReference
from protocol.requests import CreateRequest

from .stages.validate import check_range
from .store import Store

LISTED: Final = re.compile(r"[a-z]+_([0-9a-f]{32})([0-9a-f]{4,})")
"""What ``listed_id`` makes: a Response's 32 digits, and a place."""
NOTHING: Final[Mapping[str, Item]] = {}


def names_items(request: CreateRequest) -> bool:
    """Whether its input has references. Costs next to nothing."""
    return not isinstance(request.input, str) and ItemReference in map(type, request.input)


def listed_id(item: Item, response_id: str, index: int) -> str:
    """The id under which a list shows an item that has none: the ``index``-th of what came to that Response from outside."""
    return f"{PREFIXES.get(item.type, 'item_')}{response_id.partition('_')[2]}{index:04x}"


@frozen
class _Arriving:
    """What a Response will have in the store: what came to it from outside, and what it put out."""

    tenant: str
    input: Sequence[Item]
    output: Sequence[Item]


class References:
    """What can be named. One for all Responses of a server."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._arriving: dict[str, _Arriving] = {}
        self._moved = trio.lowlevel.ParkingLot()

    def hold(self, tenant: str, response_id: str, given: Sequence[Item], output: Sequence[Item]) -> None:
        """A Response has ended, and is on its way to the store with what it was ``given`` and its ``output``."""
        self._arriving[response_id] = _Arriving(tenant, given, output)

    def release(self, response_id: str) -> None:
        """It is there, or never will be; no error if it was never held."""
        if self._arriving.pop(response_id, None) is not None:
            self._moved.unpark_all()

    async def in_request(self, tenant: str, request: CreateRequest, remembered: Mapping[str, Item]) -> CreateRequest:
        """``request`` with the items that its input names; raises ``ProtocolError``. See ``in_items``."""
        if isinstance(request.input, str) or not names_items(request):
            return request
        check_range("input", request.input)
        return evolve(request, input=await self.in_items(tenant, request.input, "input", remembered))

    async def in_items(
        self, tenant: str, items: Sequence[Item], field: str, remembered: Mapping[str, Item] = NOTHING
    ) -> tuple[Item, ...]:
        """``items`` with each reference replaced by its item; raises ``ProtocolError``, with the path in ``field``.

        ``remembered`` are items that the asking connection remembers, by id; they are preferred to what is stored.
        """
        named = _named(items, field)
        found = {**await self._find(tenant, [one for one in named if one not in remembered]), **remembered} if named else {}
        for item_id, path in named.items():
            if item_id not in found:
                raise ProtocolError("item_not_found", f"Item with id '{item_id}' not found.", path)
        return tuple(found[item.id] if isinstance(item, ItemReference) else item for item in items)

    async def _find(self, tenant: str, ids: Sequence[str]) -> Mapping[str, Item]:
        found = self._put_out(tenant, frozenset(ids))
        left = [one for one in ids if one not in found]
        while self._given_lately(tenant, frozenset(left)):  # the store knows whose an item is that was sent more than once
            await self._moved.park()
        found |= await self._store.find_items(tenant, left)
        return found | await self._find_listed(tenant, [one for one in ids if one not in found])

    def _put_out(self, tenant: str, ids: Collection[str]) -> dict[str, Item]:
        """Output items that are not in the store yet."""
        own = [one for one in self._arriving.values() if one.tenant == tenant]
        return {item.id: item for one in own for item in one.output if item.id and item.id in ids}

    def _given_lately(self, tenant: str, ids: Collection[str]) -> bool:
        """Whether a Response that is not in the store yet was sent an item with one of ``ids``."""
        own = [one for one in self._arriving.values() if one.tenant == tenant]
        return any(item.id in ids for one in own for item in one.input)

    async def _find_listed(self, tenant: str, ids: Iterable[str]) -> dict[str, Item]:
        """Those whose ids say where they are: up to the first that is not there, since all must be."""
        given: dict[str, Sequence[Item]] = {}
        found: dict[str, Item] = {}
        for item_id in ids:
            if (place := LISTED.fullmatch(item_id)) is None:
                continue
            response_id, index = f"resp_{place[1]}", int(place[2], 16)
            if response_id not in given:
                given[response_id] = await self._given(tenant, response_id)
            item = given[response_id][index] if index < len(given[response_id]) else None
            if item is None or item.id is not None or listed_id(item, response_id, index) != item_id:
                break
            found[item_id] = item
        return found

    async def _given(self, tenant: str, response_id: str) -> Sequence[Item]:
        """What came from outside to that Response; nothing, if there is none."""
        there = self._arriving.get(response_id) or await self._store.get(tenant, response_id)
        return there.input if there is not None and there.tenant == tenant else ()


def _named(items: Sequence[Item], field: str) -> dict[str, str]:
    """The ids that are named, and where; raises ``ProtocolError`` if one is named twice, which would multiply it at no cost."""
    named: dict[str, str] = {}
    for index, item in enumerate(items):
        if isinstance(item, ItemReference):
            path = f"{field}[{index}].id"
            if item.id in named:
                message = f"{path}: item {item.id!r} is named by {named[item.id]} already; name each item once"
                raise ProtocolError("invalid_value", message, path)
            named[item.id] = path
    return named
