"""The vocabularies of other models than our own encoding: byte-level BPE as a ``tiktoken.Encoding``.

Theory. A vocabulary of this kind is bytes and merges; a token's id is also its rank, since merges were learned one after
the other, and that is all that tiktoken needs beside the pattern that splits text. Where a vocabulary lacks a byte
(SmolLM2's lacks 21 of them: 0x04, 0xF1, …) tiktoken panics on it. So each missing byte is a token here, with an id behind
all others, and is dropped from what ``encode`` gives: this is what llama.cpp does with it, and since no merge has such a
byte, all other ids stay as they are.

The patterns are those of llama.cpp (``src/llama-vocab.cpp``, by the names that GGUF files have for them). Tests compare the
ids with those of llama.cpp's own ``/tokenize``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import tiktoken
from attrs import field, frozen

from .tokens import blocks

_ENGLISH: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS: Final = _ENGLISH + r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

PATTERNS: Final[dict[str, str]] = {
    # llama.cpp first cuts out each digit and then splits what is between: so blanks before a digit stay together
    "smollm": r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?=\p{N})|\s+(?!\S)|\s+",
    "qwen2": rf"{_WORDS}|\p{{N}}|{_REST}",
    "llama-bpe": rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}",
}
"""How text is split before its bytes are merged, by ``tokenizer.ggml.pre``."""


def _byte_of_letter() -> dict[str, int]:
    """The letters that stand for bytes in the tokens of such vocabularies, as GPT-2 had it: printable ones for themselves,
    others for letters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES: Final = _byte_of_letter()


class VocabularyError(ValueError):
    """A vocabulary that can't be read: the message says why."""


def spelled(letters: str) -> bytes:
    """The bytes of a token as vocabularies spell it. Raises ``KeyError`` for a letter that stands for none."""
    return bytes([_BYTES[letter] for letter in letters])


@frozen(kw_only=True)
class BpeVocabulary:
    """A tokenizer of byte-level BPE."""

    encoding: tiktoken.Encoding
    size: int
    """Ids from here on are no tokens of the model: they stand for bytes that it lacks."""
    specials: Mapping[str, int]
    lacks: frozenset[int] = field(default=frozenset())
    """The bytes without a token."""

    @classmethod
    def build(
        cls, name: str, pattern: str, ordinary: Mapping[bytes, int], specials: Mapping[str, int], size: int
    ) -> "BpeVocabulary":
        """From tokens whose ids are their ranks. Raises ``VocabularyError``."""
        lacks = frozenset(byte for byte in range(256) if bytes([byte]) not in ordinary)
        ranks = {**ordinary, **{bytes([byte]): size + place for place, byte in enumerate(sorted(lacks))}}
        try:
            encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=dict(specials))
        except (ValueError, AssertionError) as error:
            raise VocabularyError(f"no vocabulary: {error}") from error
        return cls(encoding=encoding, size=size, specials=specials, lacks=lacks)

    def encode(self, text: str) -> list[int]:
        """The ids of ``text`` as ordinary text; never one of a special token, whatever the text is.

        Bytes that the vocabulary lacks are left out. Lone surrogates count as U+FFFD. Time is linear in the text's length.
        """
        ids: list[int] = []
        for block in blocks(text):
            ids += self.encoding.encode_ordinary(block)
        return [one for one in ids if one < self.size] if self.lacks else ids

    def special(self, text: str) -> int:
        """The id of a special token, as ``<|im_end|>``; raises ``KeyError``."""
        return self.specials[text]

    def token_bytes(self, token: int) -> bytes:
        """What a token stands for, perhaps a part of a character; of a special one its text. Raises ``KeyError``."""
        if token >= self.size:
            raise KeyError(token)
        return self.encoding.decode_single_token_bytes(token)

    def text(self, ids: Iterable[int]) -> str:
        """What ``ids`` say; bytes that are no UTF-8 as U+FFFD. Raises ``KeyError``."""
        return b"".join(map(self.token_bytes, ids)).decode(errors="replace")


def ranked(tokens: Sequence[str], merges: Sequence[str], ordinary: Iterable[int], *, whole: bool) -> dict[bytes, int]:
    """Of the ``ordinary`` ids those that text can become, by their bytes: single bytes, and what the ``merges`` make.

    ``whole``: a word that is a token is that token, whatever the merges say, so all count. Raises ``VocabularyError`` if ids
    are no ranks.
    """
    ids = {tokens[one]: one for one in ordinary}
    made = list(ids.values()) if whole else [ids[letter] for letter in _BYTES if letter in ids]
    last = -1
    for merge in merges:
        token = ids.get(merge.replace(" ", "", 1))
        if token is None:
            continue
        if token < last:
            raise VocabularyError("its merges are not in the order of its tokens, and other vocabularies are not read")
        last = token
        made.append(token)
    try:
        return {spelled(tokens[one]): one for one in made}
    except KeyError as error:
        raise VocabularyError(f"a token has a letter that stands for no byte: {error}") from None
