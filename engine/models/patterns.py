"""Regular expressions that can't hang the server.

Theory. A program brings its own patterns, and Python's ``re`` takes exponential time for some of them, holding the
interpreter's lock. So patterns are run here as sets of positions: what a part of the pattern matches is a function from
the set of places where it may begin to the set of places where it may end, and a set is one big integer, a bit a
place. There is no backtracking: a loop ends when it reaches no new place. What single characters, classes and anchors
match is asked of ``re`` itself, which is linear for those. The cost of a pattern is known before it runs, and bounded.

What is there: literals, ``.``, classes, ``\\d \\w \\s`` and their opposites, ``^ $ \\b \\B``, groups, ``|``,
``* + ? {m} {m,} {m,n}`` (lazy or not, which is the same for a yes or no), and ``(?i)``, ``(?m)``, ``(?s)`` in front.
What is not: look-around, back-references, and unbounded repetition inside unbounded repetition.
"""

import re
import warnings
from collections.abc import Callable
from functools import reduce
from operator import ior
from typing import Final

from attrs import field, frozen

PATTERN_CHARS: Final = 500
"""Longer patterns are programs of their own."""

SEARCHED_CHARS: Final = 4_000
"""Of a longer text the end is searched: tools say there how they ended. It bounds the time, with ``MAX_COST``."""

MAX_COST: Final = 400_000
"""Steps on one text, at worst: some 0.1 s."""

_FLAGS: Final = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
_REPEAT: Final = re.compile(r"(?:([*+?])|\{(?!\})(\d{0,4})(,(\d{0,4}))?\})\??")
_CLASS: Final = re.compile(r"\[\^?\]?(?:[^\\\]]|\\.)*\]", re.DOTALL)


class PatternError(ValueError):
    """A pattern that can't be used; the message says where and why."""


class _Marks:
    """Where each single character, class and anchor of a pattern matches in one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._masks: dict[re.Pattern[str], int] = {}

    def of(self, unit: re.Pattern[str]) -> int:
        """A bit for each place of the text where ``unit`` matches."""
        mask = self._masks.get(unit)
        if mask is None:
            size = len(self._text)
            bits = bytearray(b"0" * (size + 1))
            for match in unit.finditer(self._text):
                bits[size - match.start()] = 49  # "1"; the first place is the lowest bit
            mask = self._masks[unit] = int(bits, 2)
        return mask


_Run = Callable[[_Marks, int], int]
"""From the places where a part may begin to those where it may end."""


@frozen
class _Part:
    run: _Run
    cost: int


@frozen
class Pattern:
    """A pattern that was read. ``source`` is its text."""

    source: str
    _part: _Part = field(eq=False, repr=False)

    def found_in(self, text: str) -> bool:
        """Whether it matches anywhere in ``text`` (in the last ``SEARCHED_CHARS`` of it)."""
        searched = text[-SEARCHED_CHARS:]
        return self._part.run(_Marks(searched), (2 << len(searched)) - 1) != 0


def read(source: str) -> Pattern:
    """Read a pattern; raises ``PatternError``."""
    if len(source) > PATTERN_CHARS:
        raise PatternError(f"longer than {PATTERN_CHARS} characters")
    part = _Reader(source).whole()
    if part.cost > MAX_COST:
        raise PatternError("too costly: an unbounded repetition inside another one, or very many of them")
    return Pattern(source, part)


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._flags = re.NOFLAG

    def whole(self) -> _Part:
        prefix = re.match(r"\(\?([ims]+)\)", self._source)
        if prefix:
            self._at = prefix.end()
            self._flags = reduce(ior, (_FLAGS[letter] for letter in prefix[1]))
        part = self._either()
        if self._at < len(self._source):
            raise self._error("an unmatched )")
        return part

    def _either(self) -> _Part:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else _any_of(branches)

    def _sequence(self) -> _Part:
        parts = []
        while self._at < len(self._source) and self._source[self._at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return _all_of(parts)

    def _repeated(self, part: _Part) -> _Part:
        match = _REPEAT.match(self._source, self._at)
        if match is None:
            return part
        self._at = match.end()
        if _REPEAT.match(self._source, self._at) or self._source.startswith("+", self._at):
            raise self._error("a repetition of a repetition")
        sign, least, comma, most = match.groups()
        if sign:
            return _times(part, 1 if sign == "+" else 0, 1 if sign == "?" else None)
        low = int(least or 0)
        high = low if comma is None else int(most) if most else None
        if high is not None and high < low:
            raise self._error(f"{{{low},{high}}}: the smaller number comes first")
        return _times(part, low, high)

    def _atom(self) -> _Part:
        char = self._source[self._at]
        if char == "(":
            return self._group()
        if char == "[":
            match = _CLASS.match(self._source, self._at)
            if match is None:
                raise self._error("a [ that is not closed")
            return self._unit(match[0])
        if char in "*+?":
            raise self._error(f"nothing to repeat before {char}")
        if char == "\\":
            return self._escape()
        return self._unit(char if char in ".^$" else re.escape(char), len(char))

    def _group(self) -> _Part:
        start = self._at
        self._at += 3 if self._source.startswith("(?:", start) else 1
        if self._source.startswith("?", self._at):
            raise self._error("only (…) and (?:…) groups are there; flags stand in front")
        part = self._either()
        if not self._take(")"):
            self._at = start
            raise self._error("a ( that is not closed")
        return part

    def _escape(self) -> _Part:
        escaped = self._source[self._at : self._at + 2]
        if len(escaped) < 2:
            raise self._error("a \\ at the end")
        if escaped[1].isascii() and escaped[1].isalnum() and escaped[1] not in "dDwWsSbBnrtfv":
            raise self._error(f"{escaped} is not there")
        return self._unit(escaped)

    def _unit(self, unit: str, width: int | None = None) -> _Part:
        try:
            with warnings.catch_warnings():  # of sets that may mean something else one day
                warnings.simplefilter("ignore")
                compiled = re.compile(unit, self._flags)
        except re.error as error:
            raise self._error(str(error)) from None
        self._at += len(unit) if width is None else width
        return _anchor(compiled) if unit in ("^", "$", "\\b", "\\B") else _character(compiled)

    def _take(self, char: str) -> bool:
        found = self._source.startswith(char, self._at)
        self._at += found
        return found

    def _error(self, what: str) -> PatternError:
        return PatternError(f"at character {self._at}: {what}")


def _character(unit: re.Pattern[str]) -> _Part:
    return _Part(lambda marks, starts: (starts & marks.of(unit)) << 1, 1)


def _anchor(unit: re.Pattern[str]) -> _Part:
    return _Part(lambda marks, starts: starts & marks.of(unit), 1)


def _all_of(parts: list[_Part]) -> _Part:
    def run(marks: _Marks, starts: int) -> int:
        for part in parts:
            starts = part.run(marks, starts)
            if not starts:
                break
        return starts

    return _Part(run, 1 + sum(part.cost for part in parts))


def _any_of(parts: list[_Part]) -> _Part:
    def run(marks: _Marks, starts: int) -> int:
        return reduce(ior, (part.run(marks, starts) for part in parts))

    return _Part(run, 1 + sum(part.cost for part in parts))


def _times(part: _Part, least: int, most: int | None) -> _Part:
    def run(marks: _Marks, starts: int) -> int:
        for _ in range(least):
            starts = part.run(marks, starts)
        ends = fresh = starts
        rounds = least
        while fresh and (most is None or rounds < most):
            fresh = part.run(marks, fresh) & ~ends
            ends |= fresh
            rounds += 1
        return ends

    return _Part(run, 1 + part.cost * (SEARCHED_CHARS + least if most is None else max(most, 1)))
