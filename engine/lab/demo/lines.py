"""Lines beside a bar: text that streams in, wrapped at words, each line behind the same prefix."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Final, NoReturn

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

LABEL_CELLS: Final = 12
"""Room for the name of a fact."""

TAB_CELLS: Final = 4
"""What a tab in a text becomes: its lines need not begin where tabs stop."""

_WORD: Final = re.compile(r"\n|[^\S\n]+|\S+")


class Screen(Console):
    """Standard output. When nobody reads it any more, ``BrokenPipeError`` is raised, once."""

    def on_broken_pipe(self) -> NoReturn:
        """Called by rich, which would end the process from within whatever runs."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise BrokenPipeError


class Lines:
    """Writes to ``console``, which itself wraps nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._prefix = Text()
        self._style = ""
        self._held = ""  # a word that may go on
        self._column = 0  # cells behind the prefix on the line that is open; -1 before its first word
        self._is_open = False
        self._is_wrapped = False

    # ---- streams

    def begin(self, prefix: Text, style: str) -> None:
        """A text begins, on a line of its own."""
        self.finish()
        self._prefix, self._style = prefix, style

    def feed(self, piece: str) -> None:
        """The next piece of the text. Its last word is shown when it is sure to be whole."""
        *words, self._held = _words(self._held + piece)
        for word in words:
            self._put(word)

    def finish(self) -> None:
        """The text, if one is open, is whole."""
        if self._held:
            self._put(self._held)
        if self._is_open:
            self._print(Text("\n"))
        self._held, self._is_open, self._is_wrapped = "", False, False

    def _put(self, word: str) -> None:
        if word == "\n":
            self._break()
            self._is_wrapped = False
        elif word.isspace():
            if not self._is_wrapped:  # where a line was broken, no space is wanted
                self._append(word.expandtabs(TAB_CELLS))
        else:
            if self._is_open and self._column + cell_len(word) > self._room:
                self._break()
            self._append(word)

    def _append(self, word: str) -> None:
        if not self._is_open:
            self._print(self._prefix)
            self._is_open, self._column = True, 0
        self._print(Text(word, self._style))
        self._column += cell_len(word)
        self._is_wrapped = False

    def _break(self) -> None:
        self._print(Text("\n") if self._is_open else Text.assemble(self._prefix, "\n"))
        self._is_open, self._is_wrapped = False, True

    @property
    def _room(self) -> int:
        return max(20, self._console.width - self._prefix.cell_len - 1)

    # ---- whole lines

    def line(self, prefix: Text, text: Text | str = "") -> None:
        """One line, cut where the console ends."""
        self.finish()
        shown = Text.assemble(prefix, text)
        shown.truncate(self._console.width - 1, overflow="ellipsis" if speaks_unicode(self._console) else "crop")
        self._print(Text.assemble(shown, "\n"))

    def facts(self, facts: Iterable[tuple[str, Text | str]]) -> None:
        """Names, and what there is to say about each, in as many lines as it takes."""
        self.finish()
        for name, text in facts:
            label = name
            for line in _wrapped(Text.assemble(text), max(20, self._console.width - LABEL_CELLS - 1)):
                self._print(Text.assemble((f"{label:{LABEL_CELLS}}", "dim"), line, "\n"))
                label = ""

    def _print(self, text: Text) -> None:
        self._console.print(text, end="", soft_wrap=True, highlight=False, markup=False)


def speaks_unicode(console: Console) -> bool:
    """Whether the console's encoding has all characters."""
    return console.encoding.lower().startswith("utf")


def _words(text: str) -> list[str]:
    """Words, spaces and line ends; the last is empty when the text ends between words."""
    found = _WORD.findall(text)
    return found if found and not found[-1].isspace() else [*found, ""]


def _wrapped(text: Text, room: int) -> Iterator[Text]:
    """The lines of ``text``, wrapped between words; a word is never cut, since it may be a path."""
    for line in text.split("\n"):
        starts, start = [], 0
        for word in re.finditer(r"\S+", line.plain):
            if word.end() - start > room and word.start() > start:
                start = word.start()
                starts.append(start)
        for part in line.divide(starts):
            part.rstrip()
            yield part
