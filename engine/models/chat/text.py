"""Text as it comes in deltas: how many tokens it may be, and characters that were cut in halves."""

import re
from typing import Final

CHARS_PER_TOKEN: Final = 4
"""Until the upstream says what it has counted. Most servers send a token a delta, so that short deltas are counted well."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def estimate(piece: str) -> int:
    """How many tokens a delta is, about."""
    return max(1, len(piece) // CHARS_PER_TOKEN)


class Joined:
    """Joins deltas whose JSON has cut a character into two escapes: the first half waits for the second.

    A half that stays alone is U+FFFD: nothing can be written with it.
    """

    def __init__(self) -> None:
        self._half = ""

    def take(self, piece: str) -> str:
        """``piece``, with what waited for it, without what waits for the next."""
        if not self._half and (piece.isascii() or not _SURROGATE.search(piece)):
            return piece
        text, self._half = self._half + piece, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def rest(self) -> str:
        """What still waits, when nothing more comes."""
        half, self._half = self._half, ""
        return "\ufffd" if half else ""
