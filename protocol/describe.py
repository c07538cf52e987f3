"""JSON Schemas of all that is on the wire, made from the classes, for programs in other languages.

Plan. A class is described twice, since the two directions differ. What is *written*, by the server, has every field, but for
those marked ``optional``, which are never null. What is *read* may leave out a field that has a default, or send null for it.
Items go both ways, so the classes that are read have names of their own there, ``MessageParam`` beside ``Message``.

What the types don't say (ranges, lengths, the values of a free string) stands in ``BOUNDS``, and in those that a server gives
to ``Schemas``. What depends on more than one field, or on what was said before, no schema says: errors do.

Only keywords that mean the same in draft-07 and in 2020-12 are used, so that OpenAPI 3.1 and AsyncAPI 3 have the same schemas.
``additionalProperties: true`` is there where unknown fields are kept; elsewhere the schemas are open because clients must
pass over what they don't know.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

import attrs

from . import limits
from .errors import CODES, ErrorEvent, Work
from .events import AttachAccepted, DeltaRun, DeltaType, Event, WebsocketTiming
from .fields import EXTRA, OMIT, WIRE
from .items import ITEMS, OTHER_ITEM_TYPES, PARTS, Item, ItemReference, Message, OtherItem, Part
from .requests import MESSAGES
from .response import Response

Schema = dict[str, Any]
Bounds = Mapping[str, Mapping[str, Schema]]
"""By the names of schema and field, what a value must be beside its type. With ``anyOf``, instead of it."""
Way = Literal["written", "read"]

PREFIX: Final = "#/components/schemas/"
"""Where both kinds of documents keep schemas."""
PARAM: Final = "Param"
"""What the name of an item's class ends with when it is read."""

EVENT: Final = "Event"
ERROR_EVENT: Final = "ErrorEvent"
NUMBER: Final[Schema] = {"type": "integer", "minimum": 0, "description": "Of the event in its Response: 0, 1, 2, …"}
LANE: Final[Schema] = {"type": "string", "description": "The lane, if the request named one."}
PROGRESS: Final = r"^response\.[a-z_]+_call\.[a-z_]+$"
"""The types of a hosted tool's progress."""

INDEX_OF: Final[dict[DeltaType, str | None]] = {
    "response.output_text.delta": "content_index",
    "response.reasoning_summary_text.delta": "summary_index",
    "response.function_call_arguments.delta": None,
    "response.custom_tool_call_input.delta": None,
}
"""Which index each kind of delta has, beside the item's."""

_NULL: Final[Schema] = {"type": "null"}
_KEY: Final[Schema] = {"minLength": 1, "maxLength": limits.IDEMPOTENCY_KEY_CHARS}
LANE_NAME: Final[Schema] = {"pattern": "^[A-Za-z0-9_.-]+$", "minLength": 1, "maxLength": limits.STREAM_ID_CHARS}
METADATA: Final[Schema] = {
    "maxProperties": limits.METADATA_PAIRS,
    "propertyNames": {"maxLength": limits.METADATA_KEY_CHARS},
    "additionalProperties": {"type": "string", "maxLength": limits.METADATA_VALUE_CHARS},
}
CONVERSATION: Final[Schema] = {
    "description": "The conversation that the Response is in: its id, or an object that has it.",
    "anyOf": [
        {"type": "string"},
        {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
        _NULL,
    ],
}

BOUNDS: Final[Bounds] = {
    "CreateRequest": {
        "model": {"minLength": 1},
        "input": {"maxItems": limits.INPUT_ITEMS},
        "tools": {"maxItems": limits.TOOLS},
        "metadata": METADATA,
        "conversation": CONVERSATION,
        "idempotency_key": _KEY,
    },
    "AppendRequest": {"input": {"minItems": 1, "maxItems": limits.APPEND_ITEMS}, "idempotency_key": _KEY},
    "AttachRequest": {"starting_after": {"minimum": -1}},
    "SteerRequest": {"input": {"minItems": 1}},
    f"OtherItem{PARAM}": {"type": {"enum": sorted(OTHER_ITEM_TYPES)}},
    "OtherItem": {"type": {"enum": sorted(OTHER_ITEM_TYPES)}},
    "HostedProgress": {"type": {"pattern": PROGRESS}},
}
"""What the wire's own rules say. A server may say more."""

NAMED_TOOLS: Final[Schema] = {
    "if": {"properties": {"type": {"enum": ["function", "custom"]}}},
    "then": {"properties": {"name": {"type": "string", "minLength": 1}}, "required": ["name"]},
}
"""Function and custom tools have names."""
BARE_REFERENCES: Final[Schema] = {
    "anyOf": [
        {"properties": {"type": {"const": ItemReference.type}}, "required": ["type"]},
        {"properties": {"type": _NULL, "id": {}}, "additionalProperties": False},
    ]
}
"""A reference that doesn't say so has nothing but an id."""
BESIDE: Final = (AttachAccepted, WebsocketTiming)
"""What a server sends beside the events of a Response: without a number."""


class Schemas:
    """Gathers schemas by name, each with those that it refers to. ``named`` is what a document puts under ``PREFIX``.

    ``bounds`` are a server's own, beside ``BOUNDS``.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.named: dict[str, Schema] = {}
        self._bounds = bounds or {}

    def of(self, tp: Any, way: Way) -> Schema:
        """The schema of a type: of a class, or of a union of them, a reference. Raises ``TypeError`` for what can't be JSON."""
        if tp in _PLAIN:
            return dict(_READ_INTEGER if tp is int and way == "read" else _PLAIN[tp])
        origin = get_origin(tp)
        if origin is Mapping or origin is dict:
            return {"type": "object"}
        if origin is tuple:
            return {"type": "array", "items": self.of(get_args(tp)[0], way)}
        if origin is Literal:
            return {"type": "string", "enum": list(get_args(tp))}
        if origin in (Union, UnionType):
            return self._union(get_args(tp), way)
        if attrs.has(tp):
            return self._refer(tp.__name__ + _suffix(tp, way), partial(self._class, tp, way))
        raise TypeError(f"no JSON Schema for {tp}")

    def event(self, cls: Any) -> Schema:
        """An event with what it has on the wire beside its class's fields; a reference."""
        return self._refer(cls.__name__, lambda: _on_the_wire(self._class(cls, "written"), cls not in BESIDE))

    def delta(self, kind: DeltaType) -> Schema:
        """An event that adds a piece of a text; a reference."""
        name = "".join(word.capitalize() for word in kind.removeprefix("response.").replace(".", "_").split("_"))
        return self._refer(name, partial(self._delta, kind))

    def add(self, name: str, schema: Schema) -> Schema:
        """Keep a schema that no class has; returns the reference to it."""
        return self._refer(name, lambda: schema)

    # ---- inside

    def _refer(self, name: str, make: Callable[[], Schema]) -> Schema:
        if name not in self.named:
            self.named[name] = {}  # it may refer to itself
            self.named[name] = make()
        return {"$ref": PREFIX + name}

    def _union(self, members: tuple[Any, ...], way: Way) -> Schema:
        for name, union, table in (("Item", Item, ITEMS), ("Part", Part, PARTS)):
            if set(members) == set(get_args(union)):
                classes = (*table.values(), OtherItem) if union is Item else (*table.values(),)
                return self._refer(name + (PARAM if way == "read" else ""), partial(self._one_of, classes, way))
        schemas = [self.of(member, way) for member in members if member is not NoneType]
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        return _or_null(schema) if NoneType in members else schema

    def _one_of(self, classes: tuple[Any, ...], way: Way) -> Schema:
        return {"oneOf": [self.of(cls, way) for cls in classes]}

    def _class(self, cls: Any, way: Way) -> Schema:
        bounds = self._bounds_of(cls, cls.__name__ + _suffix(cls, way))
        fields = [field for field in attrs.fields(cls) if field.metadata.get(WIRE) != EXTRA]
        properties, required = _constants(cls, {field.name for field in fields}, way)
        for field in fields:
            schema = self._field(field, way)
            properties[field.name] = _bounded(schema, bounds.get(field.name, {}))
            if field.default is attrs.NOTHING if way == "read" else field.metadata.get(WIRE) != OMIT:
                required.append(field.name)
        schema = {"type": "object", **_described(cls), "properties": properties}
        if required:
            schema["required"] = required
        if len(fields) < len(attrs.fields(cls)):
            schema["additionalProperties"] = True
        if cls is ItemReference and way == "read":
            return schema | BARE_REFERENCES
        return schema | NAMED_TOOLS if cls.__name__ == "Tool" else schema

    def _bounds_of(self, cls: Any, name: str) -> Mapping[str, Schema]:
        lane = {"stream_id": LANE_NAME} if cls in MESSAGES.values() else {}
        return {**lane, **BOUNDS.get(name, {}), **self._bounds.get(name, {})}

    def _field(self, field: Any, way: Way) -> Schema:
        tp = field.type
        if way == "read":
            schema = self.of(tp, way)
            return schema if field.default is attrs.NOTHING else _or_null(schema)
        if field.metadata.get(WIRE) == OMIT:
            members = tuple(member for member in get_args(tp) if member is not NoneType)
            return self._union(members, way)
        return self.of(tp, way)

    def _delta(self, kind: DeltaType) -> Schema:
        schema = self._class(DeltaRun, "written")
        index = INDEX_OF[kind]
        properties = schema["properties"] | {"type": {"type": "string", "const": kind}, "delta": {"type": "string"}}
        for name in ("content_index", "summary_index"):
            if name != index:
                del properties[name]
        if kind == "response.output_text.delta":
            properties["logprobs"] = {"type": "array", "items": {"type": "object"}}
        required = list(properties)
        whole = {"type": "object", "description": "A piece of a text.", "properties": properties, "required": required}
        return _on_the_wire(whole, numbered=True)


def events(schemas: Schemas) -> dict[str, Schema]:
    """References to all events of a Response, by the name of their schema; together they are ``Event``."""
    found = [schemas.event(cls) for cls in get_args(Event)] + [schemas.delta(kind) for kind in INDEX_OF]
    schemas.add(EVENT, {"oneOf": found})
    return {one["$ref"].removeprefix(PREFIX): one for one in found}


def server_frames(schemas: Schemas) -> dict[str, Schema]:
    """References to all that a server sends over a WebSocket, by the name of their schema."""
    beside = {cls.__name__: schemas.event(cls) for cls in BESIDE}
    return events(schemas) | beside | {ERROR_EVENT: error_event(schemas)}


def client_frames(schemas: Schemas) -> dict[str, Schema]:
    """References to all that a client sends over a WebSocket, by their ``type``."""
    return {kind: schemas.of(cls, "read") for kind, cls in MESSAGES.items()}


def response(schemas: Schemas) -> Schema:
    """A reference to the Response resource."""
    return schemas.of(Response, "written")


def error(schemas: Schemas) -> Schema:
    """A reference to an error as it stands in the body of an HTTP answer, and in the ``error`` frame."""
    properties = {"type": {"type": "string", "enum": sorted({code.type for code in CODES.values()})}, **_ERROR}
    shown = {"type": "object", "description": "What was refused, and why.", "properties": properties}
    return schemas.add("Error", {**shown, "required": list(properties)})


def error_event(schemas: Schemas) -> Schema:
    """A reference to the ``error`` frame."""
    always: Schema = {
        "type": {"type": "string", "const": "error"},
        "status": {"type": "integer", "enum": sorted({code.status for code in CODES.values()})},
        **_ERROR,
        "error": error(schemas),
    }
    retry: Schema = {"type": "object", "properties": {"retry-after": {"type": "string"}}, "required": ["retry-after"]}
    call_ids: Schema = {"type": "array", "items": {"type": "string"}}
    append = {"type": "object", "properties": {"call_ids": call_ids, "idempotency_key": {}}, "required": ["call_ids"]}
    sometimes: Schema = {"response_id": {"type": "string"}, "stream_id": LANE, "headers": retry, "append": append}
    frame = {"type": "object", **_described(ErrorEvent), "properties": always | sometimes, "required": list(always)}
    return schemas.add(ERROR_EVENT, frame)


def prose(text: str | None) -> str:
    """A docstring as Markdown."""
    return inspect.cleandoc(text or "").replace("``", "`")


# ---- pieces of schemas

_PLAIN: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    NoneType: _NULL,
    Any: {},
}
_READ_INTEGER: Final[Schema] = {"type": "integer", "minimum": -(2**63), "maximum": 2**64 - 1}
"""Longer ones are read as floats, as in JavaScript."""

_ERROR: Final[Schema] = {
    "code": {"type": "string", "enum": sorted(CODES)},
    "message": {"type": "string", "description": "For people."},
    "param": {"type": ["string", "null"], "description": "The path of the field that is wrong."},
    "work": {"type": "string", "enum": list(get_args(Work)), "description": "Whether work had begun: if a retry is safe."},
}


def _suffix(cls: Any, way: Way) -> str:
    return PARAM if way == "read" and cls.__module__ == Message.__module__ else ""


def _described(cls: Any) -> Schema:
    text = prose(cls.__doc__)
    return {"description": text} if text else {}


def _constants(cls: Any, fields: set[str], way: Way) -> tuple[Schema, list[str]]:
    """What each instance of ``cls`` says of itself, and which of it must be there."""
    names = [name for name in ("type", "object") if name not in fields and hasattr(cls, name)]
    constants: Schema = {name: {"type": "string", "const": getattr(cls, name)} for name in names}
    if way == "read" and cls is ItemReference:
        constants["type"] = {"type": ["string", "null"], "enum": [cls.type, None]}
    return constants, [] if way == "read" and cls in (Message, ItemReference) else names


def _bounded(schema: Schema, bounds: Schema) -> Schema:
    """``schema`` narrowed. A bound of lists in a union belongs to the list."""
    if "anyOf" in bounds:
        return bounds
    if "anyOf" in schema:
        return {"anyOf": [one | bounds if one.get("type") == "array" else one for one in schema["anyOf"]]}
    return schema | bounds


def _or_null(schema: Schema) -> Schema:
    kind = schema.get("type")
    if not schema or schema == _NULL or (isinstance(kind, list) and "null" in kind):
        return schema
    if isinstance(kind, str):
        values = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
        return {**schema, "type": [kind, "null"], **values}
    members = schema.get("anyOf", [schema])
    return {"anyOf": [*members, *([] if _NULL in members else [_NULL])]}


def _on_the_wire(schema: Schema, numbered: bool) -> Schema:
    """An event's schema with its number, and its lane."""
    extra = {"sequence_number": NUMBER} if numbered else {}
    properties = {**schema["properties"], **extra, "stream_id": LANE}
    return {**schema, "properties": properties, "required": [*schema["required"], *extra]}
