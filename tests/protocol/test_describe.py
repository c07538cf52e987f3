"""The JSON Schemas say what the codec does: they take the frames that it reads, and those that it writes, and no others.

Values are made from the classes, with a strategy that reads them as ``describe`` does, but makes values of them.
"""

import copy
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from protocol import describe
from protocol.codec import (
    client_message,
    encode,
    encode_event,
    encode_run,
    encode_text,
    item_from_wire,
    lane_suffix,
    parse,
    seal,
    to_wire,
)
from protocol.errors import CODES, ErrorEvent, ProtocolError
from protocol.events import DeltaRun, Event, HostedProgress
from protocol.fields import EXTRA, OMIT, WIRE
from protocol.items import OTHER_ITEM_TYPES, OtherItem
from protocol.requests import MESSAGES
from protocol.response import Response

Json = dict[str, Any]
texts = st.sampled_from(["", "a", "auto", "user", "message", 'quote " and \\', "é\u2028𝄞"])
whole = st.sampled_from([0, 1, -1, 7, -(2**63), 2**64 - 1])
fractions = st.sampled_from([0.5, -1e-9, 1.25])
objects = st.sampled_from([{}, {"type": "message"}, {"a": None, "b": [1.5, "x"]}])
anything = st.none() | st.booleans() | whole | fractions | texts | objects | st.sampled_from([[], [{}], ["a"], [None]])


def collected(bounds: bool = True) -> describe.Schemas:
    """All schemas; without ``bounds``, those that say what the types do."""
    schemas = describe.Schemas()
    with pytest.MonkeyPatch.context() as patch:
        if not bounds:
            kept = {name: of for name, of in describe.BOUNDS.items() if name.startswith("OtherItem")}
            patch.setattr(describe, "BOUNDS", kept)
            patch.setattr(describe, "NAMED_TOOLS", {})
            patch.setattr(describe, "LANE_NAME", {})
        describe.client_frames(schemas)
        describe.server_frames(schemas)
        describe.response(schemas)
    return schemas


@cache
def validator(schemas: describe.Schemas, name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": describe.PREFIX + name, "components": {"schemas": schemas.named}})


def closed(schemas: describe.Schemas) -> describe.Schemas:
    """With no fields beside those that are named, where unknown ones are not kept."""
    strict = describe.Schemas()
    strict.named = copy.deepcopy(schemas.named)
    for schema in strict.named.values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return strict


SCHEMAS = collected()
STRICT = closed(SCHEMAS)
TYPES_ALONE = collected(bounds=False)


# ---- values of the classes


def instances(cls: Any) -> st.SearchStrategy[Any]:
    """Instances of a class, with some fields that it does not know if it keeps them."""
    fields = {}
    for field in attrs.fields(cls):
        if field.metadata.get(WIRE) == EXTRA:
            fields[field.name] = st.sampled_from([{}, {"x_more": 1}])
        elif cls is OtherItem and field.name == "type":
            fields[field.name] = st.sampled_from(sorted(OTHER_ITEM_TYPES))
        elif cls is HostedProgress and field.name == "type":
            fields[field.name] = st.sampled_from(["response.file_search_call.searching", "response.mcp_call.failed"])
        else:
            fields[field.name] = values(field.type)
    return st.builds(cls, **fields)


def values(tp: Any) -> st.SearchStrategy[Any]:
    """Values of a type, as instances have them."""
    plain = {str: texts, bool: st.booleans(), int: whole, float: fractions, NoneType: st.none(), Any: objects}
    if tp in plain:
        return plain[tp]
    origin = get_origin(tp)
    if origin in (Mapping, dict):
        return objects
    if origin is tuple:
        return st.lists(st.deferred(lambda: values(get_args(tp)[0])), max_size=1).map(tuple)
    if origin is Literal:
        return st.sampled_from(get_args(tp))
    if origin in (Union, UnionType):
        return st.one_of([values(one) for one in get_args(tp)])
    return st.deferred(lambda: instances(tp))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values within ``value``."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, one in inner for found in [(*path, key), *places(one, (*path, key))]]


@st.composite
def misfits(draw: st.DrawFn) -> Json:
    """A client's frame with one field changed or lost; it may be right all the same."""
    frame: Json = copy.deepcopy(
        to_wire(draw(st.sampled_from(sorted(MESSAGES)).flatmap(lambda kind: instances(MESSAGES[kind]))))
    )
    path = draw(st.sampled_from([place for place in places(frame) if place != ("type",)]))
    parent: Any = frame
    for step in path[:-1]:
        parent = parent[step]
    if draw(st.booleans()):
        parent[path[-1]] = draw(anything)
    else:
        del parent[path[-1]]
    return frame


# ---- the schemas themselves


@pytest.mark.parametrize("metaschema", [Draft7Validator, Draft202012Validator])
def test_schemas_are_schemas_of_both_drafts(metaschema: Any) -> None:
    assert len(SCHEMAS.named) > 90
    for schema in SCHEMAS.named.values():
        metaschema.check_schema(schema)


def test_only_keywords_that_mean_the_same_in_both_drafts() -> None:
    def keywords(schema: Any) -> set[str]:
        if not isinstance(schema, dict):
            return set()
        found = set(schema)
        for key in ("properties",):
            for one in schema.get(key, {}).values():
                found |= keywords(one)
        for key in ("items", "additionalProperties", "propertyNames", "if", "then"):
            found |= keywords(schema.get(key))
        for one in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
            found |= keywords(one)
        if "$ref" in schema:
            assert set(schema) == {"$ref"}, f"draft-07 passes over what stands beside $ref: {schema}"
        return found

    used = set().union(*(keywords(schema) for schema in SCHEMAS.named.values()))
    assert used == {
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "description",
        "enum",
        "if",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "oneOf",
        "pattern",
        "properties",
        "propertyNames",
        "required",
        "then",
        "type",
    }


def test_every_reference_leads_somewhere() -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if "$ref" in value else []
            return own + [one for inner in value.values() for one in references(inner)]
        return [one for inner in value for one in references(inner)] if isinstance(value, list) else []

    found = references(list(SCHEMAS.named.values()))
    assert {one.removeprefix(describe.PREFIX) for one in found} <= set(SCHEMAS.named)


def test_docstrings_become_markdown() -> None:
    assert SCHEMAS.named["FunctionCall"]["description"] == "`arguments` is JSON text, byte for byte as the model sampled it."


def test_what_has_no_schema_is_told() -> None:
    with pytest.raises(TypeError, match="no JSON Schema"):
        describe.Schemas().of(bytes, "read")


def test_every_bound_is_of_a_field() -> None:
    for name, fields in describe.BOUNDS.items():
        assert set(fields) <= set(SCHEMAS.named[name]["properties"]), name


# ---- what is read


@pytest.mark.parametrize("kind", sorted(MESSAGES))
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_what_a_client_may_say_fits(kind: str, data: st.DataObject) -> None:
    frame = to_wire(data.draw(instances(MESSAGES[kind])))
    client_message(frame)
    validator(TYPES_ALONE, MESSAGES[kind].__name__).validate(frame)


@given(frame=misfits())
@settings(max_examples=150, deadline=None)
def test_the_codec_refuses_what_does_not_fit_and_nothing_else(frame: Json) -> None:
    try:
        client_message(frame)
        read = True
    except ProtocolError:
        read = False
    assert validator(TYPES_ALONE, MESSAGES[frame["type"]].__name__).is_valid(frame) == read


@pytest.mark.parametrize("part", [{"text": ""}, {"type": "output_text", "text": ""}, {"type": None, "text": ""}])
@pytest.mark.parametrize("field", ["summary", "content"])
def test_a_part_that_stands_among_its_own_says_its_type_all_the_same(field: str, part: Json) -> None:
    with pytest.raises(ProtocolError) as caught:
        item_from_wire({"type": "reasoning", field: [part]})
    assert caught.value.param == f"{field}[0].type"


@pytest.mark.parametrize(
    ("kind", "field", "fits", "misfits"),
    [
        ("response.create", "stream_id", "a-1.B_", ""),
        ("response.create", "stream_id", "x" * 256, "x" * 257),
        ("response.create", "stream_id", "a", "a b"),
        ("response.create", "metadata", {"k": "v"}, {"k": 1}),
        ("response.create", "metadata", {"k" * 64: "v" * 512}, {"k" * 65: "v"}),
        ("response.create", "idempotency_key", "k" * 256, ""),
        ("response.create", "conversation", {"id": "conv_1"}, {"name": "x"}),
        ("response.create", "tools", [{"type": "custom", "name": "x"}], [{"type": "custom"}]),
        ("response.create", "tools", [{"type": "shell"}], [{"type": "function", "name": ""}]),
        ("response.append", "input", [{"role": "user", "content": ""}], []),
        ("response.attach", "starting_after", -1, -2),
        ("response.steer", "input", "", []),
    ],
)
def test_bounds(kind: str, field: str, fits: Any, misfits: Any) -> None:
    needed = {"model": "m", "input": [{"role": "user", "content": ""}], "response_id": "r", "previous_response_id": "r"}
    schema = validator(SCHEMAS, MESSAGES[kind].__name__)
    assert schema.is_valid({"type": kind, **needed, field: fits})
    assert not schema.is_valid({"type": kind, **needed, field: misfits})


# ---- what is written


@pytest.mark.parametrize("cls", get_args(Event), ids=lambda cls: cls.__name__)
@given(data=st.data(), lane=st.none() | st.just("lane"))
@settings(max_examples=15, deadline=None)
def test_what_a_server_says_fits(cls: Any, data: st.DataObject, lane: str | None) -> None:
    frame = parse(seal(encode_event(data.draw(instances(cls))), 7, lane_suffix(lane)))
    validator(STRICT, cls.__name__).validate(frame)
    validator(STRICT, describe.EVENT).validate(frame)
    fields = [field for field in attrs.fields(cls) if field.metadata.get(WIRE) != OMIT]
    for name in [*(field.name for field in fields), "type", "sequence_number"]:
        missing = {key: value for key, value in frame.items() if key != name}
        assert not validator(STRICT, cls.__name__).is_valid(missing), name


@pytest.mark.parametrize("kind", sorted(describe.INDEX_OF))
def test_deltas_fit(kind: Any) -> None:
    index = describe.INDEX_OF[kind]
    run = DeltaRun(kind, "item", 0, **({index: 0} if index else {}))
    frame = parse(seal(encode_run(run) + encode_text("piece"), 3))
    validator(STRICT, describe.EVENT).validate(frame)
    assert not validator(STRICT, describe.EVENT).is_valid(frame | {"delta": None})
    assert not validator(STRICT, describe.EVENT).is_valid(
        {key: value for key, value in frame.items() if key != index or not index} | {"more": 1}
    )


@given(value=instances(Response))
@settings(max_examples=25, deadline=None)
def test_the_resource_fits(value: Response) -> None:
    validator(STRICT, "Response").validate(to_wire(value))
    assert not validator(STRICT, "Response").is_valid(to_wire(value) | {"status": "gone"})


@pytest.mark.parametrize("cls", describe.BESIDE)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_what_is_beside_the_log_has_no_number(cls: type, data: st.DataObject) -> None:
    frame = parse(encode(data.draw(instances(cls))))
    validator(STRICT, cls.__name__).validate(frame)
    assert not validator(STRICT, cls.__name__).is_valid(frame | {"sequence_number": 1})


@given(
    code=st.sampled_from(sorted(CODES)),
    response_id=st.none() | texts,
    stream_id=st.none() | texts,
    append=st.none() | st.just({"call_ids": ["call_1"], "idempotency_key": None}),
)
@settings(max_examples=60, deadline=None)
def test_errors_fit(code: str, response_id: str | None, stream_id: str | None, append: Any) -> None:
    frame = parse(encode(ErrorEvent(ProtocolError(code, "no", None), response_id, stream_id, append).to_wire()))
    validator(STRICT, describe.ERROR_EVENT).validate(frame)
    validator(STRICT, "Error").validate(frame["error"])
    assert not validator(STRICT, describe.ERROR_EVENT).is_valid(frame | {"code": "no_such_code"})
