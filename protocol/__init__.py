"""What may be said on the wire, and in which order: no I/O, no clock, no randomness.

What is named here is imported when it is asked for, so that pytest can start without it (see ``conformance.plugin``).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .codec import decode_client, encode, item_from_wire, parse, to_wire
    from .errors import CODES, ErrorEvent, ProtocolError
    from .items import Item
    from .response import Response, Usage

__all__ = [
    "CODES",
    "ErrorEvent",
    "Item",
    "ProtocolError",
    "Response",
    "Usage",
    "decode_client",
    "encode",
    "item_from_wire",
    "parse",
    "to_wire",
]

_HOMES: Final = {
    "CODES": "errors",
    "ErrorEvent": "errors",
    "Item": "items",
    "ProtocolError": "errors",
    "Response": "response",
    "Usage": "response",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES.get(name, 'codec')}", __name__), name)
