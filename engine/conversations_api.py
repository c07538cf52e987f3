"""Conversations over HTTP: ``/v1/conversations``, and the items of each."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from attrs import frozen

from protocol.codec import from_wire
from protocol.errors import ProtocolError
from protocol.fields import Json, unknown_fields
from protocol.items import Item

from .core import Engine
from .paging import page_of, shown, whole
from .store import Conversation, Kept
from .transport.http import Exchange

Endpoint = Callable[[Exchange, str], Awaitable[None]]
"""Answers one request; the string is the tenant."""


@frozen(kw_only=True)
class _Body:
    """What is sent to make or change a conversation."""

    items: tuple[Item, ...] = ()
    metadata: Json | None = None
    extra: Json = unknown_fields()


class ConversationsApi:
    """The endpoints of one engine's conversations."""

    def __init__(self, engine: Engine) -> None:
        self._conversations = engine.conversations

    def endpoints(self) -> dict[tuple[str, str], Endpoint]:
        """By method and path."""
        every = "/v1/conversations"
        each = f"{every}/{{id}}"
        return {
            ("POST", every): self.create,
            ("GET", each): self.retrieve,
            ("POST", each): self.update,
            ("DELETE", each): self.delete,
            ("GET", f"{each}/items"): self.list_items,
            ("POST", f"{each}/items"): self.create_items,
            ("GET", f"{each}/items/{{item_id}}"): self.retrieve_item,
            ("DELETE", f"{each}/items/{{item_id}}"): self.delete_item,
        }

    async def create(self, exchange: Exchange, tenant: str) -> None:
        """``POST /v1/conversations``: a new one, perhaps with items and metadata."""
        body = await _body(exchange)
        made = await self._conversations.create(tenant, body.metadata, body.items)
        await exchange.respond(200, _as_json(made))

    async def retrieve(self, exchange: Exchange, tenant: str) -> None:
        """``GET /v1/conversations/{id}``."""
        await exchange.respond(200, _as_json(await self._conversations.get(tenant, exchange.params["id"])))

    async def update(self, exchange: Exchange, tenant: str) -> None:
        """``POST /v1/conversations/{id}``: other metadata."""
        body = await _body(exchange)
        updated = await self._conversations.update(tenant, exchange.params["id"], body.metadata)
        await exchange.respond(200, _as_json(updated))

    async def delete(self, exchange: Exchange, tenant: str) -> None:
        """``DELETE /v1/conversations/{id}``: it and its items are forgotten."""
        conversation_id = exchange.params["id"]
        await self._conversations.delete(tenant, conversation_id)
        await exchange.respond(200, {"id": conversation_id, "object": "conversation.deleted", "deleted": True})

    async def list_items(self, exchange: Exchange, tenant: str) -> None:
        """``GET /v1/conversations/{id}/items``, in pages."""
        items = await self._conversations.items(tenant, exchange.params["id"])
        await exchange.respond(200, page_of(_shown(items), exchange))

    async def create_items(self, exchange: Exchange, tenant: str) -> None:
        """``POST /v1/conversations/{id}/items``: add some at the end; answers with these."""
        body = await _body(exchange)
        added = await self._conversations.add(tenant, exchange.params["id"], body.items)
        await exchange.respond(200, whole(_shown(added)))

    async def retrieve_item(self, exchange: Exchange, tenant: str) -> None:
        """``GET /v1/conversations/{id}/items/{item_id}``."""
        item = await self._conversations.item(tenant, exchange.params["id"], exchange.params["item_id"])
        await exchange.respond(200, shown(item.item))

    async def delete_item(self, exchange: Exchange, tenant: str) -> None:
        """``DELETE /v1/conversations/{id}/items/{item_id}``; answers with the conversation."""
        left = await self._conversations.remove(tenant, exchange.params["id"], exchange.params["item_id"])
        await exchange.respond(200, _as_json(left))


async def _body(exchange: Exchange) -> _Body:
    """The request's body; there may be none."""
    request = exchange.request
    there = request.get("transfer-encoding") is not None or request.get("content-length") not in (None, "0")
    body = await exchange.json() if there else {}
    if not isinstance(body, dict):
        raise ProtocolError("invalid_frame", "the body is a JSON object")
    return from_wire(body, _Body)


def _as_json(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": conversation.created_at,
        "metadata": conversation.metadata,
    }


def _shown(items: Sequence[Kept]) -> list[dict[str, Any]]:
    return [shown(one.item) for one in items]
