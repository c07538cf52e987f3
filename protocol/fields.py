"""How a field stands on the wire when it has no value: present as null, or left out.

The Responses API knows both, and clients fail on the wrong one: keys that may be null are always present; keys that are
optional are left out, never null.
"""

from collections.abc import Mapping
from typing import Any, Final

from attrs import field

WIRE: Final = "wire"
OMIT: Final = "omit"
EXTRA: Final = "extra"


def optional() -> Any:
    """A field that is left out of the JSON while it is None."""
    return field(default=None, kw_only=True, metadata={WIRE: OMIT})


NOTHING: Final[Mapping[str, Any]] = {}
"""The unknown fields of nearly everything: one for all, since each would take as much memory as a short text."""


def unknown_fields() -> Any:
    """Where a class keeps the fields that it does not know, so that they are stored and sent back as they came."""
    return field(default=NOTHING, kw_only=True, metadata={WIRE: EXTRA})


Json = Mapping[str, Any]
"""A JSON object of a form that is not ours to say."""
