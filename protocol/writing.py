"""Instances to JSON values, by a function that is generated once for each class.

Why. A server writes ten events a turn, and most of what a generic converter does for each of them is to look up what it has
looked up before. What a class is on the wire is known when the class is: which keys are always there (its constants ``type``
and ``object`` first), which are left out while they are None, where unknown fields are put back. So that is written down as
Python, as attrs does for ``__init__``, and what is left of a write is one dictionary.
"""

from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

import attrs

from .fields import EXTRA, OMIT, WIRE

Write = Callable[[Any], Any]
_JSON: Final = frozenset({str, int, float, bool, dict, list, type(None)})
"""Classes of values that are JSON as they are."""


def write(value: Any) -> Any:
    """A value by its own class: what is JSON already, or nothing of ours, as it is."""
    cls = type(value)
    if cls in _JSON:
        return value
    return (_writers.get(cls) or _writer(cls))(value)


def is_object(tp: Any) -> bool:
    """Whether a type is that of JSON objects."""
    return tp is dict or get_origin(tp) in (Mapping, dict) or str(tp).startswith("typing.Mapping")


def _is_json(tp: Any) -> bool:
    """Whether all values of a type are JSON as they are: no function is called to write such a field."""
    if get_origin(tp) in (Union, UnionType):
        return all(_is_json(member) for member in get_args(tp))
    return tp in _JSON or get_origin(tp) is Literal or is_object(tp)


def _writer(cls: type) -> Write:
    """The function that writes instances of ``cls``, from now on."""
    made = _writers[cls] = _generated(cls) if attrs.has(cls) else _as_it_is
    return made


def _generated(cls: type) -> Write:
    names = {field.name for field in attrs.fields(cls)}
    constants = [name for name in ("type", "object") if name not in names and hasattr(cls, name)]
    always = [f"{name!r}: {getattr(cls, name)!r}" for name in constants]
    later = []
    for field in attrs.fields(cls):
        value = f"it.{field.name}" if _is_json(field.type) else f"write(it.{field.name})"
        kind = field.metadata.get(WIRE)
        if kind == EXTRA:
            later.append(f"if it.{field.name}: wire.update(it.{field.name})")
        elif kind == OMIT:
            later.append(f"if it.{field.name} is not None: wire[{field.name!r}] = {value}")
        else:
            always.append(f"{field.name!r}: {value}")
    lines = [f"wire = {{{', '.join(always)}}}", *later, "return wire"]
    scope: dict[str, Any] = {"write": write}
    exec("def written(it):\n    " + "\n    ".join(lines), scope)
    made: Write = scope["written"]
    return made


def _as_it_is(value: Any) -> Any:
    return value


def _tuple(value: tuple[Any, ...]) -> list[Any]:
    return [write(one) for one in value]


_writers: Final[dict[type, Write]] = {tuple: _tuple}
