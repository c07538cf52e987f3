"""Text to passages, and passages to words: what is indexed, and what a query is compared with.

A passage is a run of whole lines of one file, small enough to be read as a snippet and large enough to be about
something. Passages do not overlap, so that no line is found twice.

Words are cut here and not by SQLite, because code is not prose: ``parseHTTPReply`` and ``parse_http_reply`` should both
be found by ``http reply``, and still be found best by their own names. So an identifier is indexed whole and in its
parts. All words are folded (case, accents, compatibility forms) before SQLite sees them; its tokenizer then has only to
split at spaces.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from attrs import frozen

PASSAGE_LINES: Final = 24
"""The most lines of a passage: about a screenful, about a function."""

PASSAGE_LINES_BEFORE_BLANK: Final = 12
"""From here on a blank line ends a passage, so that most begin where a paragraph or a function begins."""

PASSAGE_CHARS: Final = 2_000
"""The most characters of a passage: ten of them are some 5,000 tokens. A longer line is cut into several passages."""


@frozen
class Passage:
    """``text`` stands in its file from the 1-based ``line`` on. It neither begins nor ends with a blank line."""

    line: int
    text: str


def passages(text: str) -> Iterator[Passage]:
    """Cut ``text`` (lines end with a line feed) into passages: every line that is not blank is in one, in order.

    A line longer than ``PASSAGE_CHARS`` is in several, all with its number.
    """
    start, lines, chars = 0, list[str](), 0
    for number, line in enumerate(text.split("\n"), 1):
        blank = not line.strip()
        ends = blank and len(lines) >= PASSAGE_LINES_BEFORE_BLANK
        if lines and (ends or len(lines) == PASSAGE_LINES or chars + len(line) > PASSAGE_CHARS):
            yield _passage(start, lines)
            lines, chars = [], 0
        if blank and not lines:
            continue
        if len(line) > PASSAGE_CHARS:
            yield from _pieces(number, line)
            continue
        start = start if lines else number
        lines.append(line)
        chars += len(line) + 1
    if lines:
        yield _passage(start, lines)


def _passage(line: int, lines: list[str]) -> Passage:
    while not lines[-1].strip():
        lines.pop()
    return Passage(line, "\n".join(lines))


def _pieces(number: int, line: str) -> Iterator[Passage]:
    for at in range(0, len(line), PASSAGE_CHARS):
        piece = line[at : at + PASSAGE_CHARS]
        if piece.strip():
            yield Passage(number, piece)


# ---- words

WORDS_REMEMBERED: Final = 10_000
"""The vocabulary of a middle-sized project: most words of a file have been cut before."""

REMEMBERED_CHARS: Final = 64
"""Longer words are rare, and would make that memory large."""

_WORD: Final = re.compile(r"\w+")
_PART: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


@frozen
class Word:
    """``whole`` is the folded identifier; ``parts`` are the words that it is made of, if it is made of several."""

    whole: str
    parts: tuple[str, ...] = ()


def words(text: str) -> Iterator[Word]:
    """The words of ``text`` in order. Only letters, digits and underscores are in them."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    for match in _WORD.finditer(text):
        word = match.group()
        yield _remembered(word) if len(word) <= REMEMBERED_CHARS else _cut(word)


def index_terms(text: str) -> str:
    """What is indexed for ``text``: its words and their parts, with spaces between."""
    return " ".join(term for word in words(text) for term in (word.whole, *word.parts))


def _cut(word: str) -> Word:
    whole = _folded(word)
    parts = tuple(_folded(part) for part in _parts(word))
    return Word(whole, () if parts in ((), (whole,)) else parts)


_remembered: Final = lru_cache(WORDS_REMEMBERED)(_cut)


def _parts(word: str) -> list[str]:
    if word.isascii():
        return _PART.findall(word)
    return [part for part in word.split("_") if part]


def _folded(word: str) -> str:
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFKD", word.casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char))
