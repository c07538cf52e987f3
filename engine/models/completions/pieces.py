"""The ids of tokens that a server keeps to itself.

llama.cpp's server streams whole characters. Where one takes several tokens it says the last one's id only, together with
the character, and how many tokens there were. The bytes of the ones before are those of the text less those of the last
token; they are cut into tokens again here. Nearly always there is one way to do it: each of these tokens ends within a
character, and few tokens do. Where there are more, the way in which the tokenizer would do it is taken; if that is wrong,
the server finds at the next turn that its state is no beginning of what it is sent, and reads the turn again.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from ..formats.base import Vocabulary

GAP_IDS: Final = 1_000
"""Ids without a token that may stand in a row in a vocabulary, before it is over."""


class Pieces:
    """The tokens of a vocabulary that are no whole characters."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Looks at all tokens, which takes some 0.1 s for a large vocabulary."""
        self._vocabulary = vocabulary
        self._ids = dict(_partial(vocabulary))
        self._longest = max(map(len, self._ids), default=0)

    def before(self, text: str, last: int, missing: int) -> Sequence[int] | None:
        """The ``missing`` ids before ``last``, which together say ``text``. None if they can't be told."""
        whole = text.encode(errors="surrogatepass")
        end = self._bytes(last)
        if not whole.endswith(end):
            return None
        ways = list(self._cut(whole[: len(whole) - len(end)], missing))
        usual = list(self._vocabulary.encode(text))
        return next((way for way in ways if [*way, last] == usual), ways[0] if ways else None)

    def _cut(self, data: bytes, tokens: int) -> Iterator[list[int]]:
        """Each way to cut ``data`` into so many tokens, those with long tokens at the beginning first."""
        if not tokens:
            if not data:
                yield []
            return
        for size in range(min(self._longest, len(data) - tokens + 1), 0, -1):
            found = self._ids.get(data[:size])
            if found is not None:
                for rest in self._cut(data[size:], tokens - 1):
                    yield [found, *rest]

    def _bytes(self, token: int) -> bytes:
        try:
            return self._vocabulary.token_bytes(token)
        except KeyError:
            return b""


def _partial(vocabulary: Vocabulary) -> Iterator[tuple[bytes, int]]:
    gap = 0
    for token in count():
        try:
            data = vocabulary.token_bytes(token)
        except KeyError:
            gap += 1
            if gap > GAP_IDS:
                return
            continue
        gap = 0
        try:
            data.decode()
        except UnicodeDecodeError:
            yield data, token
