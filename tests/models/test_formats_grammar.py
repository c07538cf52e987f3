"""What ``tool_choice`` and ``text.format`` make of a turn: what the grammar lets through, and what it doesn't."""

import json

import pytest
from attrs import evolve
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from engine.models.formats.gbnf import Grammar as Written
from engine.models.formats.template import Template
from engine.testing.profile import examples
from protocol.requests import Tool

from .support_formats import ALL, IDS, PLAN, items_of, parse, with_choice, written
from .support_gbnf import Grammar

# ---- schemas, and values of them

NAMES = st.sampled_from(["a", "b", "c", 'odd "name" é', "line\nbreak"])
SCALARS = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(st.characters(codec="utf-8"), max_size=5)
Pair = tuple[object, st.SearchStrategy[object]]
"""A schema, and its values."""


def pair(schema: object, values: st.SearchStrategy[object]) -> st.SearchStrategy[Pair]:
    return st.just((schema, values))


FLAT = st.one_of(
    pair({"type": "string"}, st.text(st.characters(codec="utf-8"), max_size=6)),
    pair({"type": "string", "minLength": 2, "maxLength": 3}, st.text("aé\n", min_size=2, max_size=3)),
    pair({"type": "integer"}, st.integers(-(10**15), 10**15)),
    pair({"type": "integer", "minimum": 0}, st.integers(0, 10**15)),
    pair({"type": "number"}, st.floats(-1e15, 1e15, allow_nan=False)),
    pair({"type": "boolean"}, st.booleans()),
    pair({"type": "null"}, st.none()),
    pair({"type": ["integer", "null"]}, st.none() | st.integers(-9, 9)),
    pair({}, SCALARS),
    pair(True, SCALARS),
    pair({"type": "object"}, st.dictionaries(NAMES, SCALARS, max_size=2)),
    pair({"type": "array"}, st.lists(SCALARS, max_size=2)),
    pair(
        {"type": "object", "additionalProperties": {"type": "integer"}}, st.dictionaries(NAMES, st.integers(0, 9), max_size=2)
    ),
    st.lists(SCALARS, min_size=1, max_size=3).map(lambda values: ({"enum": values}, st.sampled_from(values))),
    SCALARS.map(lambda value: ({"const": value}, st.just(value))),
)


def arrays(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    def make(item: Pair, low: int, more: int | None) -> Pair:
        schema = {"type": "array", "items": item[0], "minItems": low}
        high = low + (2 if more is None else more)
        return schema if more is None else {**schema, "maxItems": high}, st.lists(item[1], min_size=low, max_size=high)

    return st.builds(make, inner, st.integers(0, 2), st.none() | st.integers(0, 2))


def objects(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    def make(properties: dict[str, Pair], required: list[str]) -> Pair:
        needed = [name for name in properties if name in required]
        schema = {"properties": {name: one[0] for name, one in properties.items()}, "required": needed}
        values = st.fixed_dictionaries({}, optional={name: one[1] for name, one in properties.items()})
        full = st.fixed_dictionaries({name: properties[name][1] for name in needed})
        in_order = st.builds(lambda some, all_: {**some, **all_}, values, full).map(
            lambda value: {name: value[name] for name in properties if name in value}
        )
        return {"type": "object", **schema, "additionalProperties": False}, in_order

    return st.builds(make, st.dictionaries(NAMES, inner, max_size=4), st.lists(NAMES, max_size=3))


def unions(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    def make(ones: list[Pair]) -> Pair:
        return {"anyOf": [one[0] for one in ones]}, st.one_of([one[1] for one in ones])

    return st.lists(inner, min_size=1, max_size=3).map(make)


SCHEMAS = st.recursive(FLAT, lambda inner: arrays(inner) | objects(inner) | unions(inner), max_leaves=5)


def written_for(schema: object) -> Grammar:
    grammar = Written()
    root = grammar.schema(schema)
    return Grammar(grammar.text(root))


def dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


@examples(80)
@given(SCHEMAS, st.data())
def test_the_values_of_a_schema_are_let_through(pair: Pair, data: st.DataObject) -> None:
    schema, values = pair
    value = data.draw(values)
    assert written_for(schema).accepts(dumps(value)), dumps(schema)


@examples(80)
@given(SCHEMAS, SCHEMAS, st.data())
def test_other_values_are_not(pair: Pair, other: Pair, data: st.DataObject) -> None:
    """All that these schemas say can be said in a grammar, so what the validator refuses, the grammar does."""
    value = data.draw(other[1])
    assume(not Draft202012Validator(pair[0]).is_valid(value))  # type: ignore[arg-type]
    assert not written_for(pair[0]).accepts(dumps(value)), dumps(pair[0])


TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["name"],
            "additionalProperties": False,
        }
    },
}

FITS = {
    "recursion": (
        TREE,
        {"name": "a", "children": [{"name": "b"}, {"name": "c", "children": []}]},
        {"name": "a", "children": [1]},
    ),
    "the whole": ({"type": "object", "properties": {"next": {"$ref": "#"}}}, {"next": {"next": {}}}, {"next": 1}),
    "all of": ({"allOf": [{"properties": {"a": {"type": "null"}}}, {"required": ["a"]}]}, {"a": None}, {}),
    "all of what is elsewhere": (
        {"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"b": {"type": "null"}}}], "$defs": {"a": {"required": ["a"]}}},
        {"b": None, "a": 1},
        {"b": 1, "a": 1},
    ),
    "properties beside any of": (
        {"properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"b": None},
        {},
    ),
    "one of": ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, 1, "1"),
    "no items": ({"type": "array", "maxItems": 0}, [], [1]),
    "no properties": ({"type": "object", "additionalProperties": False}, {}, {"a": 1}),
    "required and unknown": ({"type": "object", "required": ["a"]}, {"a": [1]}, {}),
    "a nullable object": ({"type": ["object", "null"], "properties": {"a": {"const": 1}}, "required": ["a"]}, None, {"a": 2}),
}


@pytest.mark.parametrize(("schema", "good", "bad"), FITS.values(), ids=FITS)
def test_a_schema(schema: object, good: object, bad: object) -> None:
    grammar = written_for(schema)
    assert grammar.accepts(dumps(good))
    assert not grammar.accepts(dumps(bad))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/nothing"},
        {"$ref": "https://example.org/schema"},
        {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
        {"type": "nonsense"},
        {"not": {"type": "null"}},
        {"type": "array", "prefixItems": [{"type": "integer"}]},
        False,
        None,
        {"type": "string", "minLength": 10**9},
        {"properties": {"a": {"type": "array"}}, "anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"type": "array", "maxItems": -1},
    ],
)
def test_what_cant_be_said_leaves_more_open(schema: object) -> None:
    grammar = written_for(schema)
    assert any(grammar.accepts(dumps(value)) for value in ({"a": [1, "b"]}, [1], "a" * 1000))


def test_no_schema_costs_much() -> None:
    doubling = {"properties": {"a": {"$ref": "#"}}, "anyOf": [{"$ref": "#"}, {"properties": {"b": {"$ref": "#"}}}]}
    deep: object = {"type": "integer"}
    for _ in range(500):
        deep = {"type": "array", "items": deep}
    for schema in (doubling, deep, {"anyOf": [doubling] * 9}):
        text = Written()
        assert len(text.text(text.schema(schema))) < 1_000_000


def test_the_spacing_is_that_of_the_templates() -> None:
    grammar = written_for({"type": "object", "properties": {"a": {"type": "array"}, "b": {}}})
    assert grammar.accepts('{"a": [1, 2], "b": 1.5e-7}')
    assert not any(grammar.accepts(text) for text in ('{"a":[1, 2]}', '{"a": [1,2]}', '{ "a": []}', '{"b": 1, "a": []}', "{} "))


def test_no_rule_begins_with_itself() -> None:
    """llama.cpp refuses such grammars."""
    for schema in (TREE, {"$ref": "#"}, {"anyOf": [{"$ref": "#"}, {"type": "null"}]}):
        text = Written()
        root = text.schema(schema)
        rules = dict(line.split(" ::= ", 1) for line in text.text(root).splitlines())
        first = {name: {way.split()[0] for way in body.strip("()").split(" | ")} for name, body in rules.items()}
        for name in rules:
            seen, todo = set(), {name}
            while todo:
                seen |= todo
                todo = {one.strip("()") for rule in todo for one in first.get(rule, ())} & rules.keys()
                assert name not in todo
                todo -= seen


# ---- turns

ADD = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
PLANNED = evolve(
    PLAN,
    tools=(
        Tool(type="function", name="add", parameters=ADD),
        Tool(type="function", name="now"),
        Tool(type="custom", name="patch"),
        Tool(type="shell"),
    ),
)
each_format = pytest.mark.parametrize("form", ALL, ids=IDS)


def turn(form: Template, *calls: tuple[str, object]) -> str:
    """Calls as the format writes them."""
    syntax = form.syntax
    each = (syntax.head.replace("NAME", dumps(name)) + dumps(value) + syntax.tail for name, value in calls)
    return syntax.between.join(each)


GOOD = ("add", {"a": 1, "b": -2})
PATCH, SHELL, NOW = ("patch", {"input": "a\né"}), ("shell", {"commands": ["ls"]}), ("now", {})
JSON = {"format": {"type": "json_schema", "name": "x", "schema": ADD}}

ASKED = {
    "required": (
        {"tool_choice": "required"},
        [[GOOD], [PATCH], [SHELL, NOW]],
        [[("add", {"a": 1})], [("other", {})], [], [NOW] * 17],
    ),
    "one call": ({"tool_choice": "required", "parallel_tool_calls": False}, [[GOOD]], [[GOOD, GOOD]]),
    "a function": ({"tool_choice": {"type": "function", "name": "add"}}, [[GOOD], [GOOD, GOOD]], [[NOW], []]),
    "a custom tool": ({"tool_choice": {"type": "custom", "name": "patch"}}, [[PATCH]], [[GOOD]]),
    "a shell": ({"tool_choice": {"type": "shell"}}, [[SHELL]], [[PATCH]]),
    "some of them": (
        {"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "now"}]}},
        [[NOW]],
        [[GOOD]],
    ),
    "JSON or calls": ({"text": JSON}, [[GOOD]], [[("other", {})]]),
    "JSON, and no calls": ({"text": JSON, "tool_choice": "none"}, [], [[GOOD]]),
}


@each_format
@pytest.mark.parametrize(("asked", "good", "bad"), ASKED.values(), ids=ASKED)
def test_what_is_asked_for(form: Template, asked: dict[str, object], good: list, bad: list) -> None:
    grammar = Grammar(form.grammar(evolve(PLANNED, **asked)) or "")
    assert all(grammar.accepts(turn(form, *calls)) for calls in good)
    assert not any(grammar.accepts(turn(form, *calls)) for calls in bad)
    assert not grammar.accepts("Hello")


@each_format
def test_json_is_let_through_where_it_is_asked_for(form: Template) -> None:
    schema = Grammar(form.grammar(evolve(PLANNED, text=JSON)) or "")
    assert schema.accepts('{"a": 1, "b": 2}')
    assert not schema.accepts('{"a": 1}')
    anything = Grammar(form.grammar(evolve(PLANNED, text={"format": {"type": "json_object"}})) or "")
    assert anything.accepts('{"a": [{}]}')
    assert not anything.accepts("[1]")
    forced = Grammar(form.grammar(evolve(PLANNED, text=JSON, tool_choice="required")) or "")
    assert not forced.accepts('{"a": 1, "b": 2}')


@each_format
def test_a_model_is_free_where_nothing_is_asked(form: Template) -> None:
    some = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "now"}]}
    for choice in ("auto", "none", some):
        assert form.grammar(with_choice(choice)) is None
    assert form.grammar(with_choice("auto", text={"format": {"type": "text"}})) is None
    assert form.grammar(evolve(with_choice("required"), tools=())) is None


@each_format
def test_what_a_grammar_lets_through_is_read_as_calls(form: Template) -> None:
    """And is rendered to the ids that a turn of such calls has."""
    calls = [GOOD, PATCH, SHELL, NOW]
    plan = evolve(PLANNED, tool_choice="required")
    found = items_of(parse(form, written(form, turn(form, *calls)), plan=plan)[0])
    assert [item.type for item in found] == ["function_call", "custom_tool_call", "shell_call", "function_call"]
    assert form.vocabulary.text(form.render_calls(found)).count(turn(form, *calls)) == 1  # type: ignore[attr-defined]
