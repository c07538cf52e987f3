"""A small vocabulary for tests of formats: the 256 bytes, some merges, some special tokens.

Its merges make tokens that are hard on a parser: they end within characters, and hold the end of one mark and the beginning
of another.
"""

from collections.abc import Iterable, Sequence
from typing import Final

SPECIAL: Final = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
"""What the formats can't do without."""
MARKS: Final = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>", "<|python_tag|>")
"""What is special in some vocabularies, and plain text in others."""
MERGES: Final = (
    '{"name": "',
    '", "arguments": {"',
    "\n</tool_call>\n<tool_call>\n",
    "arguments",
    "</tool",
    "_call>",
    "<tool_",
    "tool",
    "</think>\n",
    "think",
    '"}}\n<',
    '"}}\n',
    '": "',
    "}}\n",
    "}; {",
    ">\n",
    '{"',
    '"}',
    "}}",
    "\n\n",
    ".\n",
    "\n<",
    "</",
    "assistant",
    "user",
)
"""Tokens of several characters."""
SPLIT_MERGES: Final = ("é€".encode()[1:4], "€".encode()[:2], "😀".encode()[:3], "😀".encode()[1:], "日本".encode()[2:5])
"""Tokens that begin or end within a character."""


class SmallVocabulary:
    """A ``Vocabulary``. Text is encoded greedily, the longest token first."""

    def __init__(self, special: Iterable[str] = (*SPECIAL, *MARKS), merges: Iterable[str | bytes] = (*MERGES, *SPLIT_MERGES)):
        """``special`` are its special tokens, ``merges`` its ordinary ones beside the bytes."""
        ordinary = [bytes([number]) for number in range(256)]
        ordinary += [one.encode() if isinstance(one, str) else one for one in merges]
        self._bytes = dict(enumerate(dict.fromkeys(ordinary)))
        self._ids = {data: number for number, data in self._bytes.items()}
        self._special = {text: len(self._bytes) + place for place, text in enumerate(special)}
        self._bytes |= {number: text.encode() for text, number in self._special.items()}
        self._longest = max(map(len, self._ids))

    def __len__(self) -> int:
        return len(self._bytes)

    def encode(self, text: str) -> Sequence[int]:
        """The ids of ordinary text. A lone surrogate counts as ``?``."""
        data = text.encode(errors="replace")
        ids: list[int] = []
        at = 0
        while at < len(data):
            size = next(
                size for size in range(self._longest, 0, -1) if data[at : at + size] in self._ids and at + size <= len(data)
            )
            ids.append(self._ids[data[at : at + size]])
            at += size
        return ids

    def special(self, text: str) -> int:
        """The id of a special token; raises ``KeyError``."""
        return self._special[text]

    def token_bytes(self, token: int) -> bytes:
        """What a token stands for; raises ``KeyError``."""
        return self._bytes[token]

    def text(self, ids: Iterable[int]) -> str:
        """What ``ids`` say, special tokens by their names."""
        return b"".join(self._bytes[number] for number in ids).decode(errors="replace")
