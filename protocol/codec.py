"""JSON to classes and back: strict, with the path of what is wrong. The only module that knows cattrs and orjson.

Plan. Reading well-formed frames must be fast, and errors must be good; so frames are read by functions that cattrs
generates for each class, without any bookkeeping, and only when one fails is the object walked again, field by field, to
find the path and to say what was there and what is allowed.

Strict means: a string is a string, 1.9 is no integer, ``"false"`` is no boolean, a list is no string. Null for a field that
has a default means the default. Fields that we don't know are kept or ignored; items of an unknown type are an error.
Hostile JSON (NaN, 1e400, depth 10,000, lone surrogates, invalid UTF-8) is refused by the parser with ``invalid_json``; of
duplicate keys the last counts; integers beyond 64 bits become floats, as in JavaScript, but for ``arguments``, which are
strings and stay byte for byte what they are.

Encoding an event gives its frame but for the end: ``,"sequence_number":N`` and perhaps ``,"stream_id":…`` are added when the
number is known, so that a failed encode leaves no hole in the numbers (law L3).
"""

from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin

import attrs
import orjson
from cattrs import Converter
from cattrs.gen import make_dict_structure_fn

from .errors import ProtocolError
from .events import OF_RESPONSE, DeltaRun, Event
from .fields import EXTRA, WIRE
from .items import ITEMS, OTHER_ITEM_TYPES, PARTS, Item, ItemReference, Message, OtherItem, Part, ReasoningText, SummaryText
from .limits import QUOTED_CHARS
from .requests import MESSAGES, ClientMessage
from .response import Response
from .writing import is_object, write

T = TypeVar("T")
WRITER_DEPTH: Final = 200
"""Below this depth of nesting orjson writes whatever it has read (its limit is 254)."""


class _Bad(Exception):
    """A value that does not fit, with the path to it."""

    def __init__(self, code: str, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.path = path

    def within(self, step: str | int) -> "_Bad":
        return _Bad(self.code, self.message, (step, *self.path))

    def as_protocol_error(self) -> ProtocolError:
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path).lstrip(".")
        return ProtocolError(self.code, f"{path}: {self.message}" if path else self.message, path or None)


# ---- public: reading


def parse(text: str | bytes, *, spare_depth: int = 0) -> Any:
    """JSON text to values; raises ``ProtocolError`` (``invalid_json``).

    ``spare_depth``: so much deeper may be what the values are put into, to be sent on.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ProtocolError("invalid_json", f"not valid JSON: {error}") from None
    if _may_be_deep(text, spare_depth):
        try:
            orjson.dumps(_within(value, spare_depth))  # the writer's limit of depth is lower than the reader's; it is cheap
        except TypeError as error:
            raise ProtocolError("invalid_json", f"not JSON that can be sent on: {error}") from None
    return value


def decode_client(text: str | bytes) -> ClientMessage:
    """One frame of a client; raises ``ProtocolError`` with the path of what is wrong."""
    return client_message(parse(text))


def client_message(frame: Any) -> ClientMessage:
    """One frame of a client that is already parsed."""
    if not isinstance(frame, dict):
        raise ProtocolError("invalid_frame", f"a frame is a JSON object, got {_shown(frame)}")
    kind = frame.get("type")
    if kind is None:
        raise ProtocolError("missing_required_parameter", f"type: missing; allowed: {_listed(MESSAGES)}", "type")
    cls = MESSAGES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise ProtocolError("unknown_event", f"type: unknown event {_shown(kind)}; allowed: {_listed(MESSAGES)}", "type")
    return from_wire(frame, cls)


def from_wire(value: Any, cls: type[T]) -> T:
    """JSON values to an instance of ``cls`` (a class, or a union that is registered here)."""
    try:
        return _converter.structure(value, cls)
    except _Bad as bad:
        raise bad.as_protocol_error() from None


def item_from_wire(value: Any) -> Item:
    """JSON values to an item."""
    return from_wire(value, cast(type[Item], Item))


# ---- public: writing


def to_wire(value: Any) -> Any:
    """An instance to JSON values."""
    return write(value)


def encode(value: Any) -> bytes:
    """JSON values (or instances) to JSON text in UTF-8."""
    return orjson.dumps(value, default=write)


def encode_event(event: Event) -> bytes:
    """An event's frame without its number and its closing brace; see ``seal``."""
    if isinstance(event, OF_RESPONSE):
        return b'{"type":"%b","response":%b' % (event.type.encode(), encode_response(event.response))
    return orjson.dumps(write(event))[:-1]


def encode_response(response: Response) -> bytes:
    """A Response as JSON text. Where several events or answers in a row show it, it is encoded once."""
    return _responses.encode(response)


class _Responses:
    """Remembers the Response that was encoded last: it is large, and often shown twice."""

    def __init__(self) -> None:
        self._last: Response | None = None
        self._encoded = b""

    def encode(self, response: Response) -> bytes:
        if response is not self._last:
            self._encoded, self._last = orjson.dumps(write(response)), response
        return self._encoded


_responses: Final = _Responses()


def encode_run(run: DeltaRun) -> bytes:
    """What the frames of a run of deltas begin with; each goes on with ``encode_text(piece)``."""
    wire = write(run)
    if run.type == "response.output_text.delta":
        wire["logprobs"] = []
    return orjson.dumps(wire)[:-1] + b',"delta":'


def encode_text(text: str) -> bytes:
    """A string as JSON; raises ``TypeError`` for a lone surrogate."""
    return orjson.dumps(text)


def lane_suffix(stream_id: str | None) -> bytes:
    """What a frame ends with on a lane."""
    return b"}" if stream_id is None else b',"stream_id":' + orjson.dumps(stream_id) + b"}"


def seal(body: bytes, sequence_number: int, suffix: bytes = b"}") -> bytes:
    """The whole frame."""
    return b'%b,"sequence_number":%d%b' % (body, sequence_number, suffix)


def canonical(value: Any) -> bytes:
    """Equal values, equal bytes: to compare two bodies whatever the order of their keys."""
    return orjson.dumps(value, default=write, option=orjson.OPT_SORT_KEYS)


def same_json(left: str, right: str) -> bool:
    """Whether two JSON texts mean the same; texts that are not JSON are the same when they are equal."""
    if left == right:
        return True
    try:
        return bool(orjson.loads(left) == orjson.loads(right))
    except orjson.JSONDecodeError:
        return False


def _may_be_deep(text: str | bytes, spare_depth: int) -> bool:
    if isinstance(text, str):
        return text.count("[") + text.count("{") > WRITER_DEPTH - spare_depth
    return text.count(b"[") + text.count(b"{") > WRITER_DEPTH - spare_depth


def _within(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


# ---- how errors speak


def _shown(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    if value is None:
        return "null"
    kind = kinds.get(type(value), type(value).__name__)
    if isinstance(value, dict | list):
        return kind
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"{kind} ({text if len(text) <= QUOTED_CHARS else text[:QUOTED_CHARS] + '…'})"


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(str, names)))


def _expected(what: str, value: Any) -> _Bad:
    return _Bad("invalid_type", f"expected {what}, got {_shown(value)}")


# ---- hooks for reading


def _str(value: Any, _: Any) -> str:
    if type(value) is not str:
        raise _expected("a string", value)
    return value


def _bool(value: Any, _: Any) -> bool:
    if type(value) is not bool:
        raise _expected("a boolean", value)
    return value


def _int(value: Any, _: Any) -> int:
    if type(value) is not int:
        raise _expected("an integer", value)
    return value


def _float(value: Any, _: Any) -> float:
    if type(value) is not float and type(value) is not int:
        raise _expected("a number", value)
    return value


def _object(value: Any, _: Any) -> Any:
    if type(value) is not dict:
        raise _expected("an object", value)
    return value


def _literal_hook(tp: Any) -> Callable[[Any, Any], Any]:
    allowed = get_args(tp)

    def literal(value: Any, _: Any) -> Any:
        if value in allowed and type(value) is str:
            return value
        raise _Bad("invalid_value", f"expected one of {_listed(allowed)}, got {_shown(value)}")

    return literal


def _tuple_hook(tp: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    element = get_args(tp)[0]
    hook = converter.get_structure_hook(element)

    def elements(value: Any, _: Any) -> Any:
        if type(value) is not list:
            raise _expected("a list", value)
        try:
            return tuple([hook(one, element) for one in value])
        except _Bad:
            for index, one in enumerate(value):
                _at(index, hook, one, element)
            raise

    return elements


def _at(step: str | int, hook: Callable[[Any, Any], Any], value: Any, tp: Any) -> Any:
    try:
        return hook(value, tp)
    except _Bad as bad:
        raise bad.within(step) from None


def _class_hook(cls: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    fields = attrs.fields(cls)
    read = make_dict_structure_fn(cls, converter, _cattrs_detailed_validation=False)
    known = {field.name for field in fields if field.metadata.get(WIRE) != EXTRA}
    keeps = len(known) < len(fields)
    skipped = known | ({"type"} if hasattr(cls, "type") else set())

    def structure(value: Any, tp: Any) -> Any:
        if type(value) is not dict:
            raise _expected("an object", value)
        source = value
        if keeps and not value.keys() <= skipped:
            source = {key: value[key] for key in value.keys() & known}
            source["extra"] = {key: value[key] for key in value if key not in skipped}
        try:
            return read(source, tp)
        except (_Bad, KeyError):
            return _diagnose(cls, source, converter)

    return structure


def _diagnose(cls: Any, source: dict[str, Any], converter: Converter) -> Any:
    """Read field by field, to find what was wrong. Nulls that stand for a default are the one thing it forgives."""
    values = {}
    for field in attrs.fields(cls):
        if field.name not in source or (source[field.name] is None and field.default is not attrs.NOTHING):
            if field.default is attrs.NOTHING:
                raise _Bad("missing_required_parameter", "missing", (field.name,))
            continue
        hook = converter.get_structure_hook(field.type)
        values[field.name] = _at(field.name, hook, source[field.name], field.type)
    return cls(**values)


def _by_type(table: Mapping[str, Any], what: str, value: Any, default: str | None = None) -> Any:
    if type(value) is not dict:
        raise _expected(f"{what} (an object)", value)
    kind = value.get("type", default)
    if kind is None:
        raise _Bad("missing_required_parameter", f"missing; allowed: {_listed(table)}", ("type",))
    cls = table.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise _Bad("invalid_value", f"unknown type of {what}: {_shown(kind)}; allowed: {_listed(table)}", ("type",))
    return cls


_ALONE: Final = frozenset({SummaryText, ReasoningText})
"""Parts that stand in lists of their own kind only."""
_ITEM_TABLE: Final[dict[str, Any]] = {**ITEMS, **dict.fromkeys(OTHER_ITEM_TYPES, OtherItem)}


def _item(value: Any, _: Any) -> Any:
    kind = value.get("type") if type(value) is dict else None
    cls = _ITEM_TABLE.get(kind) if type(kind) is str else None
    if cls is None:
        cls = _item_class(value)
    return _converter.get_structure_hook(cls)(value, cls)


def _item_class(value: Any) -> Any:
    """Of an item that does not say what it is, or something unknown."""
    if type(value) is dict and value.get("type") is None and value.keys() - {"type"} == {"id"}:
        return ItemReference
    default = Message.type if type(value) is dict and "role" in value else None
    return _by_type(_ITEM_TABLE, "item", value, default)


def _part(value: Any, _: Any) -> Any:
    cls = _by_type(PARTS, "content part", value)
    return _converter.get_structure_hook(cls)(value, cls)


def _alone_hook(cls: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    """Of a part that stands where no other can: its type must be there all the same, and be its own."""
    read, table = _class_hook(cls, converter), {cls.type: cls}

    def alone(value: Any, tp: Any) -> Any:
        _by_type(table, "content part", value)
        return read(value, tp)

    return alone


def _text_or(tp: Any, what: str) -> Callable[[Any, Any], Any]:
    def either(value: Any, _: Any) -> Any:
        if type(value) is str:
            return value
        if type(value) is not list:
            raise _expected(f"a string or a list of {what}", value)
        return _converter.structure(value, tp)

    return either


def _text_or_object(value: Any, _: Any) -> Any:
    if type(value) is not str and type(value) is not dict:
        raise _expected("a string or an object", value)
    return value


def _is(*members: Any) -> Callable[[Any], bool]:
    wanted = set(members)
    return lambda tp: get_origin(tp) in (Union, UnionType) and set(get_args(tp)) == wanted


def _is_literal(tp: Any) -> bool:
    origin: Any = get_origin(tp)
    return origin is Literal


def _is_tuple(tp: Any) -> bool:
    return get_origin(tp) is tuple


def _make_converter() -> Converter:
    converter = Converter(detailed_validation=False)
    for tp, hook in ((str, _str), (bool, _bool), (int, _int), (float, _float)):
        converter.register_structure_hook(tp, hook)
    converter.register_structure_hook_factory(_is_literal, _literal_hook)
    converter.register_structure_hook_factory(attrs.has, lambda cls: _class_hook(cls, converter))
    converter.register_structure_hook_factory(_ALONE.__contains__, lambda cls: _alone_hook(cls, converter))
    converter.register_structure_hook_factory(_is_tuple, lambda tp: _tuple_hook(tp, converter))
    converter.register_structure_hook_func(is_object, _object)
    converter.register_structure_hook_func(_is(*get_args(Item)), _item)
    converter.register_structure_hook_func(_is(*get_args(Part)), _part)
    converter.register_structure_hook_func(_is(str, tuple[Part, ...]), _text_or(tuple[Part, ...], "content parts"))
    converter.register_structure_hook_func(_is(str, tuple[Item, ...]), _text_or(tuple[Item, ...], "items"))
    for members in ((str, Mapping[str, Any]), (str, Mapping[str, Any], type(None))):
        converter.register_structure_hook_func(_is(*members), _text_or_object)
    return converter


_converter: Final = _make_converter()
