r"""JSON Schema as a grammar in GBNF, the notation of llama.cpp.

The JSON is as ``json.dumps`` and chat templates write it: ``{"a": 1, "b": [true]}``, one space behind each comma and colon
and no other blanks; properties in the order of the schema, and no others where it names some. So a small model loses itself in
no blanks, and what it samples is rendered to the same ids.

What a grammar can say is said: types, properties (required and optional), ``enum`` and ``const``, ``anyOf`` and ``oneOf``,
arrays with their bounds, ``$ref`` within the schema, recursion, the length of strings, no minus where ``minimum`` is not
negative. What it can't say (``multipleOf``), or what is rarely said (``pattern``), leaves more open than the schema does, at
worst any JSON value: the answer is checked afterwards all the same (``engine.stages.answer_format``), and the arguments of a
call by their tool.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from protocol.fields import Json

REPETITIONS: Final = 1_000
"""llama.cpp refuses longer repetitions; where a schema allows more, there is no bound."""
DEPTH: Final = 100
RULES: Final = 5_000
"""Schemas that are deeper, or need more rules, allow any value below: nobody's request is to cost more."""

COMBINED: Final = ("anyOf", "oneOf", "allOf")

_ANY: Final = {
    "value": 'object | array | string | number | "true" | "false" | "null"',
    "object": '"{" (string ": " value (", " string ": " value)*)? "}"',
    "array": '"[" (value (", " value)*)? "]"',
    "string": '"\\"" char* "\\""',
    "char": r'[^"\\\x00-\x1f] | "\\" (["\\bfnrt] | "u00" [01] [0-9a-f])',
    "integer": '"-"? natural',
    "natural": '"0" | [1-9] [0-9]{0,15}',
    "number": 'integer ("." [0-9]{1,20})? ([eE] [-+]? [0-9]{1,3})?',
}
"""Rules for what may be anything. Numbers have bounds, so that no model writes digits for ever."""
_USES: Final = {name: re.findall(r"[a-z]+", re.sub(r'"(?:[^"\\]|\\.)*"|\[[^\]]*\]', "", body)) for name, body in _ANY.items()}


def literal(text: str) -> str:
    """``text`` as a grammar's terminal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


class Grammar:
    """A grammar that grows: ``add`` rules, then take its ``text``."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}

    def add(self, body: str, name: str | None = None) -> str:
        """One more rule; returns its name."""
        name = name or f"r{len(self._rules)}"
        self._rules[name] = body
        return name

    def any(self, name: str) -> str:
        """A rule for anything of a kind: ``value``, ``object``, ``string``, …"""
        if name not in self._rules:
            self._rules[name] = _ANY[name]
            for used in _USES[name]:
                self.any(used)
        return name

    def schema(self, schema: Any) -> str:
        """What is of ``schema``, as an expression."""
        return _Converter(self, schema).expression(schema, 0)

    @property
    def full(self) -> bool:
        """Whether it has as many rules as it may have."""
        return len(self._rules) >= RULES

    def text(self, root: str) -> str:
        """The grammar of the expression ``root``."""
        return "".join(f"{name} ::= {body}\n" for name, body in {"root": root, **self._rules}.items())


class _Converter:
    """Converts the parts of one schema."""

    def __init__(self, grammar: Grammar, root: Any) -> None:
        self._grammar, self._root = grammar, root
        self._named: dict[str, str] = {}
        """Rules of ``$ref``, by what they refer to: a schema may contain itself."""
        self._open: frozenset[str] = frozenset()
        """Those that are being converted, with no bracket between: what is nothing but itself may be any value."""

    def expression(self, schema: Any, depth: int) -> str:
        if not isinstance(schema, Mapping) or depth > DEPTH or self._grammar.full:
            return self._grammar.any("value")
        if isinstance(schema.get("$ref"), str):
            return self._reference(schema["$ref"], depth)
        if "const" in schema:
            return self._one_of([schema["const"]])
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self._one_of(schema["enum"])
        for key in COMBINED:
            if isinstance(schema.get(key), list) and schema[key]:
                return self._alternatives([self.expression(one, depth + 1) for one in self._each(schema, key)])
        kinds = schema.get("type", _implied(schema))
        names = kinds if isinstance(kinds, list) else [kinds]
        return self._alternatives([self._kind(name, schema, depth) for name in names])

    def _alternatives(self, expressions: Sequence[str]) -> str:
        unique = list(dict.fromkeys(expressions))
        return unique[0] if len(unique) == 1 else f"({' | '.join(unique)})"

    def _one_of(self, values: Sequence[Any]) -> str:
        return self._alternatives([literal(json.dumps(value, ensure_ascii=False)) for value in values])

    def _reference(self, reference: str, depth: int) -> str:
        target = _resolved(self._root, reference)
        if target is None or reference in self._open:
            return self._grammar.any("value")
        if reference not in self._named:
            self._named[reference] = self._grammar.add("")
            before, self._open = self._open, self._open | {reference}
            self._grammar.add(self.expression(target, depth + 1), self._named[reference])
            self._open = before
        return self._named[reference]

    def _each(self, schema: Json, key: str) -> list[Any]:
        """The alternatives of a schema; each with the properties that stand beside them, if there are any. Of ``allOf`` one."""
        parts = schema[key]
        alone = not {"properties", "required"} & schema.keys()
        if key == "allOf":
            return [*parts] if alone and len(parts) == 1 else [self._merged(schema, key, parts)]
        return [*parts] if alone else [self._merged(schema, key, [part]) for part in parts]

    def _merged(self, schema: Json, key: str, parts: Sequence[Any]) -> Json:
        """``schema`` and ``parts``, which stand in ``key``, in one: what is said last counts, but properties add up.

        Of what a part refers to, alternatives are left out: they may lead back here.
        """
        merged: dict[str, Any] = {name: value for name, value in schema.items() if name != key}
        for part in parts:
            reference = part.get("$ref") if isinstance(part, Mapping) else None
            found = _resolved(self._root, reference) if isinstance(reference, str) else part
            if found is not part and isinstance(found, Mapping):
                found = {name: value for name, value in found.items() if name not in ("$ref", *COMBINED)}
            for name, value in found.items() if isinstance(found, Mapping) else ():
                old = merged.get(name)
                if isinstance(old, Mapping) and isinstance(value, Mapping):
                    merged[name] = {**old, **value}
                elif name == "required" and isinstance(old, list) and isinstance(value, list):
                    merged[name] = [*old, *value]
                else:
                    merged[name] = value
        return merged

    def _kind(self, name: Any, schema: Json, depth: int) -> str:
        if name in ("object", "array"):
            before, self._open = self._open, frozenset()
            found = self._object(schema, depth) if name == "object" else self._array(schema, depth)
            self._open = before
            return found
        if name == "string":
            return self._string(schema)
        if name in ("integer", "number"):
            low = schema.get("minimum", schema.get("exclusiveMinimum"))
            positive = name == "integer" and isinstance(low, int | float) and low >= 0
            return self._grammar.any("natural" if positive else name)
        return {"boolean": '("true" | "false")', "null": '"null"'}.get(name) or self._grammar.any("value")

    def _string(self, schema: Json) -> str:
        low, high = _bounds(schema, "minLength", "maxLength")
        if (low, high) == (0, None):
            return self._grammar.any("string")
        return f'"\\"" {self._grammar.any("char")}{_times(low, high)} "\\""'

    def _array(self, schema: Json, depth: int) -> str:
        low, high = _bounds(schema, "minItems", "maxItems")
        if high == 0:
            return '"[]"'
        item = self._rule(self.expression({} if "prefixItems" in schema else schema.get("items"), depth + 1))
        more = _times(max(low - 1, 0), None if high is None else high - 1)
        items = f'{item} (", " {item}){more}'
        return f'"[" {items} "]"' if low else f'"[" ({items})? "]"'

    def _object(self, schema: Json, depth: int) -> str:
        known = schema.get("properties")
        properties = dict(known) if isinstance(known, Mapping) else {}
        required = schema.get("required")
        needed = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        properties |= {name: True for name in needed if name not in properties}
        if properties:
            pairs = [(self._pair(name, one, depth), name in needed) for name, one in properties.items()]
            return f'"{{" {self._properties(pairs)} "}}"'
        more = schema.get("additionalProperties", True)
        if more is False or (isinstance(known, Mapping) and more is True):
            return '"{}"'
        if not isinstance(more, Mapping) or not more:
            return self._grammar.any("object")
        pair = self._grammar.add(f'{self._grammar.any("string")} ": " {self.expression(more, depth + 1)}')
        return f'"{{" ({pair} (", " {pair})*)? "}}"'

    def _rule(self, expression: str) -> str:
        """A name for an expression: llama.cpp multiplies repetitions with what stands in them, and refuses large ones."""
        return expression if expression.replace("-", "").isalnum() else self._grammar.add(expression)

    def _pair(self, name: str, schema: Any, depth: int) -> str:
        key = literal(f"{json.dumps(name, ensure_ascii=False)}: ")
        return self._grammar.add(f"{key} {self.expression(schema, depth + 1)}")

    def _properties(self, pairs: Sequence[tuple[str, bool]]) -> str:
        """Pairs in their order, those that are not required perhaps left out, with commas between.

        ``rest`` is what may follow when something was written. Whichever pair is the first one is followed by its rest; only
        those up to the first required one can be.
        """
        rest = '""'
        firsts: list[str] = []
        for pair, needed in reversed(pairs):
            first = f"{pair} {rest}"
            firsts = [first] if needed else [first, *firsts]
            rest = self._grammar.add(f'", " {pair} {rest}' if needed else f'(", " {pair})? {rest}')
        optional = not any(needed for _, needed in pairs)
        return f"({' | '.join(firsts)}){'?' if optional else ''}"


def _implied(schema: Json) -> str | None:
    """The type that a schema means without saying it."""
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema else None


def _resolved(root: Any, reference: str) -> Any:
    """What a JSON pointer of this document refers to; None if it refers to nothing here."""
    if not reference.startswith("#"):
        return None
    found = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, Mapping) and name in found:
            found = found[name]
        else:
            return None
    return found


def _bounds(schema: Json, low: str, high: str) -> tuple[int, int | None]:
    least, most = schema.get(low, 0), schema.get(high)
    least = min(least, REPETITIONS) if isinstance(least, int) and least > 0 else 0
    return least, most if isinstance(most, int) and least <= most <= REPETITIONS else None


def _times(low: int, high: int | None) -> str:
    return f"{{{low},{'' if high is None else high}}}"
