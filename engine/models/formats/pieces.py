"""Sampled ids as text, in pieces, held until it is known what they are.

A format's marks (``<tool_call>``) are special tokens in some vocabularies and plain text in others. Where they are special,
a mark is one character in the text that is held: a lone surrogate, which no text has. So one reader, which looks for marks in
a text, reads both; and what only looks like a mark, because the model quotes it, is none.
"""

import codecs
from collections import deque
from collections.abc import Iterable
from typing import Final

from .base import Vocabulary

FIRST_MARK: Final = 0xD800
"""The first of the 2,048 characters that no text has."""


class Marks:
    """The marks of a format over a vocabulary."""

    def __init__(self, vocabulary: Vocabulary, names: Iterable[str]) -> None:
        self._special: dict[str, int] = {}
        for name in names:
            try:
                self._special[name] = vocabulary.special(name)
            except KeyError:
                continue
        self._characters = {name: chr(FIRST_MARK + place) for place, name in enumerate(self._special)}
        self._names = {ord(character): name for name, character in self._characters.items()}

    def read(self, name: str, *, spelled: bool = False) -> str:
        """A mark as the held text has it. ``spelled``: as it is, be it a special token or not."""
        return name if spelled else self._characters.get(name, name)

    def by_id(self, *, spelled: bool = False) -> dict[int, str]:
        """The same of those that are special tokens, by their ids."""
        return {number: self.read(name, spelled=spelled) for name, number in self._special.items()}

    def plain(self, text: str) -> str:
        """A held text as it is told: a mark that turned out to be none, by its name."""
        return text.translate(self._names)


class Held:
    """What was sampled and is not given away yet: ``text``, and the pieces that it is made of."""

    def __init__(self, vocabulary: Vocabulary, marks: dict[int, str]) -> None:
        self._vocabulary = vocabulary
        self._marks = marks
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = 0
        """Tokens that have begun a character."""
        self._pieces: deque[tuple[str, int]] = deque()
        self.text = ""

    def add(self, token: int) -> None:
        """One more token. An id that is none has no text."""
        mark = self._marks.get(token)
        if mark is not None:
            self._push(self._decoder.decode(b"", final=True), self._begun)
            self._begun = 0
            self._push(mark, 1)
            return
        try:
            data = self._vocabulary.token_bytes(token)
        except (KeyError, OverflowError):
            data = b""
        self._begun += 1
        text = self._decoder.decode(data)
        if text:
            self._push(text, self._begun)
            self._begun = 0

    def _push(self, text: str, tokens: int) -> None:
        if text or tokens:
            self._pieces.append((text, tokens))
            self.text += text

    def take(self, characters: int) -> tuple[list[str], int]:
        """So much from the beginning of ``text``: its pieces, and how many tokens they are.

        Of a piece that is divided the tokens are counted with its first part.
        """
        self.text = self.text[characters:]
        taken: list[str] = []
        tokens = 0
        while characters > 0 or (self._pieces and not self._pieces[0][0]):
            piece, count = self._pieces.popleft()
            tokens += count
            if len(piece) > characters:
                self._pieces.appendleft((piece[characters:], 0))
                piece = piece[:characters]
            if piece:
                taken.append(piece)
            characters -= len(piece)
        return taken, tokens

    def finish(self) -> int:
        """There is no more: how many tokens have begun a character that was never whole."""
        begun, self._begun = self._begun, 0
        return begun
