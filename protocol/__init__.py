"""What may be said on the wire, and in which order: no I/O, no clock, no randomness."""

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
