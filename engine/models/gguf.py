"""What a GGUF file says of its model: names, sizes, the vocabulary, the chat template. Its tensors are not read.

The format is https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, version 2 or 3, little-endian: a head, then pairs of
a key and a typed value. The file may be anything: no length in it is believed before the file has shown to be that long, so
reading never takes more memory than a few times the file's own size, and whatever is wrong is a ``GgufError``.
"""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from attrs import define, frozen

from ..vocabulary import PATTERNS, BpeVocabulary, VocabularyError, ranked
from .formats import FORMATS, ModelFormat, Vocabulary

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
MAX_PAIRS: Final = 65_536
"""Files have some tens; who says more has no such file."""
MAX_KEY_BYTES: Final = 65_535
"""As the format has it."""
MAX_DEPTH: Final = 4
"""Arrays of arrays are allowed, and not known to be used."""

_NUMBERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Types of values, as ``struct`` spells them."""
_STRING: Final = 8
_ARRAY: Final = 9

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
"""Types of tokens."""


class GgufError(ValueError):
    """The file is no GGUF file, or none that is read here: the message says why."""


@frozen
class Metadata:
    """The pairs of a GGUF file."""

    values: Mapping[str, Any]

    @property
    def architecture(self) -> str:
        """``llama``, ``qwen2``, …"""
        return self._text("general.architecture")

    @property
    def context_length(self) -> int:
        """Tokens that the model was trained for."""
        found = self.values.get(f"{self.architecture}.context_length")
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise GgufError("it does not say how long its context is")
        return found

    @property
    def chat_template(self) -> str | None:
        """In Jinja, if it has one."""
        found = self.values.get("tokenizer.chat_template")
        return found if isinstance(found, str) else None

    @property
    def form(self) -> str | None:
        """The name of its format, known by the marks in its chat template; None if it is none of ours."""
        template = self.chat_template or ""
        marks = {"<|im_start|>": "chatml", "<|start_header_id|>": "llama3"}
        return next((name for mark, name in marks.items() if mark in template), None)

    def vocabulary(self) -> BpeVocabulary:
        """Its tokenizer. Raises ``GgufError`` if it is none of those that are read here."""
        kind, pre = self._text("tokenizer.ggml.model"), self._text("tokenizer.ggml.pre")
        if kind != "gpt2" or pre not in PATTERNS:
            raise GgufError(f"its tokenizer is {kind}/{pre}; read are those of gpt2/{', gpt2/'.join(PATTERNS)}")
        tokens, merges = self._texts("tokenizer.ggml.tokens"), self._texts("tokenizer.ggml.merges")
        types = self.values.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
        if not isinstance(types, list) or len(types) != len(tokens):
            raise GgufError("not each of its tokens has a type")
        special = {token: place for place, token in enumerate(tokens) if types[place] in (_CONTROL, _USER_DEFINED, _UNKNOWN)}
        ordinary = [place for place, kind in enumerate(types) if kind == _NORMAL]
        try:
            ranks = ranked(tokens, merges, ordinary, whole=pre == "llama-bpe")
            return BpeVocabulary.build(pre, PATTERNS[pre], ranks, special, len(tokens))
        except VocabularyError as error:
            raise GgufError(str(error)) from error

    def _text(self, key: str) -> str:
        found = self.values.get(key)
        if not isinstance(found, str):
            raise GgufError(f"it does not say its {key}")
        return found

    def _texts(self, key: str) -> Sequence[str]:
        found = self.values.get(key)
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise GgufError(f"it has no {key}")
        return found


def read_metadata(file: Path) -> Metadata:
    """What ``file`` says of itself. Raises ``GgufError`` or ``OSError``. Takes a second for a large vocabulary."""
    with file.open("rb") as stream:
        try:
            return Metadata(_Reader(stream, file.stat().st_size).pairs())
        except GgufError as error:
            raise GgufError(f"{file}: {error}") from None


def form_of(file: Path, metadata: Metadata, vocabulary: Vocabulary, wanted: str | None) -> ModelFormat:
    """The format of the model in ``file``: as ``wanted``, else as its chat template tells. Raises ``ValueError``."""
    name = wanted or metadata.form
    if name not in FORMATS:
        problem = f"there is no format {name!r}" if name else "its chat template is of no format that is known here"
        raise ValueError(f"{file}: {problem}; say format=, one of {', '.join(FORMATS)}")
    try:
        return FORMATS[name](vocabulary)
    except KeyError as error:
        raise ValueError(f"{file}: the format {name} needs the special token {error}, which the vocabulary lacks") from None


@define
class _Reader:
    """Reads values from a file; ``left`` bytes of it are not read yet."""

    stream: BinaryIO
    left: int

    def pairs(self) -> dict[str, Any]:
        if self.left < 4 or self._bytes(4) != MAGIC:
            raise GgufError("it is no GGUF file")
        version = self._number("I")
        if version not in VERSIONS:
            raise GgufError(f"it is of version {version} of the format; 2 and 3 are read, little-endian")
        self._number("Q")  # how many tensors there are
        count = self._number("Q")
        if count > MAX_PAIRS:
            raise GgufError(f"it says to have {count} pairs of keys and values, which is too many")
        return dict(self._pair() for _ in range(count))

    def _pair(self) -> tuple[str, Any]:
        key = self._string(MAX_KEY_BYTES)
        return key, self._value(self._number("I"), MAX_DEPTH)

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _STRING:
            return self._string(self.left)
        if kind == _ARRAY:
            return self._array(self._number("I"), self._number("Q"), depth - 1)
        raise GgufError(f"it has a value of a type that is none: {kind}")

    def _array(self, kind: int, count: int, depth: int) -> list[Any]:
        if depth < 0:
            raise GgufError("its arrays are too deep in one another")
        if kind in _NUMBERS:
            code = _NUMBERS[kind]
            return list(struct.unpack(f"<{count}{code}", self._bytes(count * struct.calcsize(code))))
        if count * 8 > self.left:  # each string or array has a length of 8 bytes
            raise GgufError("it is cut off, or damaged")
        return [self._value(kind, depth) for _ in range(count)]

    def _string(self, most: int) -> str:
        size = self._number("Q")
        if size > most:
            raise GgufError("it is cut off, or damaged")
        try:
            return self._bytes(size).decode()
        except UnicodeDecodeError:
            raise GgufError("it has a text that is no UTF-8") from None

    def _number(self, code: str) -> Any:
        size = struct.calcsize(f"<{code}")
        return struct.unpack(f"<{code}", self._bytes(size))[0]

    def _bytes(self, size: int) -> bytes:
        if size > self.left:
            raise GgufError("it is cut off, or damaged")
        data = self.stream.read(size)
        if len(data) != size:
            raise GgufError("it is cut off, or damaged")
        self.left -= size
        return data
