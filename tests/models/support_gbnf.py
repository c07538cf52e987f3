"""A small matcher of grammars in GBNF: whether a text is all of a grammar. llama.cpp has its own, which it shows to nobody."""

import re
from collections.abc import Iterator
from functools import lru_cache

from attrs import frozen

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|::=|\{\d+(?:,\d*)?\}|[()|*+?]|[a-zA-Z0-9-]+)')
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


@frozen
class Literal:
    text: str


@frozen
class Letters:
    negated: bool
    ranges: tuple[tuple[str, str], ...]


@frozen
class Reference:
    name: str


@frozen
class Sequence:
    parts: tuple[object, ...]


@frozen
class Alternatives:
    ways: tuple[object, ...]


@frozen
class Repeated:
    part: object
    low: int
    high: int | None


def unescaped(text: str) -> Iterator[str]:
    for found in re.finditer(r"\\x([0-9a-fA-F]{2})|\\(.)|(.)", text, re.DOTALL):
        code, escaped, plain = found.groups()
        yield chr(int(code, 16)) if code else _ESCAPES.get(escaped, escaped) if escaped else plain


class Grammar:
    """A grammar that was read."""

    def __init__(self, text: str) -> None:
        self.rules = {}
        for line in text.splitlines():
            name, _, body = line.partition(" ::= ")
            assert name not in self.rules
            tokens = _TOKEN.findall(body)
            assert "".join(tokens) == re.sub(r'("(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\])|\s+', r"\1", body), line
            self.rules[name], rest = self._alternatives(tokens)
            assert not rest, line

    def _alternatives(self, tokens):
        ways = []
        while True:
            way, tokens = self._sequence(tokens)
            ways.append(way)
            if not tokens or tokens[0] != "|":
                return Alternatives(tuple(ways)), tokens
            tokens = tokens[1:]

    def _sequence(self, tokens):
        parts = []
        while tokens and tokens[0] not in ("|", ")"):
            token, tokens = tokens[0], tokens[1:]
            if token == "(":
                part, tokens = self._alternatives(tokens)
                assert tokens[0] == ")"
                tokens = tokens[1:]
            else:
                part = self._terminal(token)
            while tokens and (tokens[0] in "*+?" or tokens[0][0] == "{"):
                part, tokens = Repeated(part, *self._times(tokens[0])), tokens[1:]
            parts.append(part)
        return Sequence(tuple(parts)), tokens

    def _terminal(self, token):
        if token[0] == '"':
            return Literal("".join(unescaped(token[1:-1])))
        if token[0] != "[":
            return Reference(token)
        negated, body = token[1] == "^", token[2:-1] if token[1] == "^" else token[1:-1]
        ranges = []
        for found in re.finditer(r"(\\x..|\\.|[^\\])(?:-(\\x..|\\.|[^\\]))?", body):
            first, last = found.groups()
            ranges.append((next(unescaped(first)), next(unescaped(last or first))))
        return Letters(negated, tuple(ranges))

    def _times(self, token):
        if token in "*+?":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[token]
        low, comma, high = token[1:-1].partition(",")
        return int(low), (int(high) if high else None) if comma else int(low)

    def accepts(self, text: str) -> bool:
        """Whether ``text`` is all of it."""

        @lru_cache(None)
        def ends(part, at: int) -> frozenset[int]:
            if isinstance(part, Literal):
                return frozenset([at + len(part.text)] if text.startswith(part.text, at) else [])
            if isinstance(part, Letters):
                fits = at < len(text) and part.negated != any(low <= text[at] <= high for low, high in part.ranges)
                return frozenset([at + 1] if fits else [])
            if isinstance(part, Reference):
                return ends(self.rules[part.name], at)
            if isinstance(part, Alternatives):
                return frozenset(end for way in part.ways for end in ends(way, at))
            if isinstance(part, Repeated):
                return repeated(part, at)
            found = {at}
            for one in part.parts:
                found = {end for start in found for end in ends(one, start)}
            return frozenset(found)

        def repeated(part: Repeated, at: int) -> frozenset[int]:
            found, now, count = set(), {at}, 0
            while now and (part.high is None or count <= part.high):
                if count >= part.low:
                    found |= now
                now = {end for start in now for end in ends(part.part, start)} - (found if count >= part.low else set())
                count += 1
            return frozenset(found)

        return len(text) in ends(Reference("root"), 0)
