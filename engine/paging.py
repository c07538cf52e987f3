"""Lists as the Responses API has them, in pages; and what a query string says."""

import re
from collections.abc import Sequence
from typing import Any, Final

from protocol.codec import to_wire
from protocol.errors import ProtocolError
from protocol.items import Item, Message

from .references import listed_id
from .transport.http import Exchange

PAGE: Final = 20
PAGE_MOST: Final = 100
"""Items on one page, as the Responses API documents it."""
INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
"""Stricter than ``int``, which takes spaces, underscores and other scripts' digits, too."""


def shown(item: Item, owner: str = "", index: int = 0) -> dict[str, Any]:
    """An item as JSON, with all that lists of the Responses API have: what a client may leave out is filled in.

    Its id is its own, or one made of its place: the ``index``-th item of ``owner``, a Response.
    """
    wire: dict[str, Any] = to_wire(item)
    wire = {"id": listed_id(item, owner, index), **wire}
    if getattr(item, "status", "") is None:
        wire["status"] = "completed"  # it came whole
    if isinstance(item, Message) and isinstance(item.content, str):
        if item.role == "assistant":
            wire["content"] = [{"type": "output_text", "text": item.content, "annotations": []}]
        else:
            wire["content"] = [{"type": "input_text", "text": item.content}]
    return wire


def page_of(items: Sequence[dict[str, Any]], exchange: Exchange) -> dict[str, Any]:
    """One page of a list, as the query says: ``limit``, ``order`` (newest first by default), ``after``."""
    order = choice(exchange, "order", ("desc", "asc"))
    limit = number(exchange, "limit", PAGE, least=1, most=PAGE_MOST)
    after = one(exchange, "after")
    ordered = list(items) if order == "asc" else list(reversed(items))
    if after is not None:
        places = [place for place, item in enumerate(ordered) if item["id"] == after]
        if not places:
            raise ProtocolError("invalid_value", f"after: no item {after!r} in this list", "after")
        ordered = ordered[places[0] + 1 :]
    return {**whole(ordered[:limit]), "has_more": len(ordered) > limit}


def whole(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A list with all of its items."""
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": False,
    }


# ---- what a query says


def one(exchange: Exchange, name: str) -> str | None:
    """A parameter's value; of several the last."""
    values = exchange.request.query.get(name)
    return values[-1] if values else None


def flag(exchange: Exchange, name: str) -> bool:
    """``true`` or ``false``, which is the default; raises ``ProtocolError``."""
    return choice(exchange, name, ("false", "true")) == "true"


def choice(exchange: Exchange, name: str, allowed: Sequence[str]) -> str:
    """One of ``allowed``, by default the first; raises ``ProtocolError``."""
    value = one(exchange, name) or allowed[0]
    if value not in allowed:
        raise ProtocolError("invalid_value", f"{name}: expected one of {', '.join(allowed)}, got {value!r}", name)
    return value


def number(exchange: Exchange, name: str, default: int, *, least: int, most: int | None = None) -> int:
    """An integer from ``least`` to ``most``; raises ``ProtocolError``."""
    value = one(exchange, name)
    if value is not None and not INTEGER.fullmatch(value):
        raise ProtocolError("invalid_type", f"{name}: expected an integer, got {value!r}", name)
    found = default if value is None else int(value)
    if found < least or (most is not None and found > most):
        allowed = f"from {least} to {most}" if most is not None else f"at least {least}"
        raise ProtocolError("invalid_value", f"{name}: must be {allowed}, got {found}", name)
    return found
