"""A model's vocabulary is its server's: compared with llama.cpp's own tokenizer, text by text."""

import shutil
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.models.gguf import read_metadata
from engine.models.llama import LlamaServer
from engine.testing.local import served
from engine.vocabulary import PATTERNS, BpeVocabulary, VocabularyError, ranked, spelled

SEPARATOR = 2
"""An id that no text gives."""
EXAMPLES = 40
TEXTS = 50
"""In each example: some thousands of texts are compared in all."""

WORDS = (
    "'s 't 're 've 'm 'll 'd 'S 'RE 'Ll I'm it's WE'VE '' '1 0 1 12 123 1234 ٣ ² Ⅷ ½ 3.14 1,000 x2 a1b2 "
    "a A word Word straße ΟΔΟΣ Привет 漢字 日本語 한국어 ไทย हिन्दी اللغة ﷺ e\u0301 \u0301 ʼn ǅ "
    "! ?! ... (a) [b] {c} <d> «e» — … ¿ € ∑ ™ 😀 👨\u200d👩\u200d👧 🏳️\u200d🌈 _ __init__ / // \\ #! @ "
    "<|im_start|> <|im_end|> <|endoftext|> <tool_call> Ġ Ċ Ą"
)
SPACES = [
    " ",
    "  ",
    "   ",
    "\n",
    "\r\n",
    "\n\n",
    "\t",
    "\u00a0",
    "\u2003",
    "\u2028",
    "\u0085",
    "\x0b",
    "\x0c",
    "\x1c",
    "\u200b",
]
ODD = ["\ufeff", "\x00", "\x04", "\x06", "\x13", "\x7f", "\x80", "\ue000", "\ufffd", "\uffff", "\U00040000", "\U0010ffff"]
PARTS = (*WORDS.split(" "), *SPACES, *ODD)
"""What patterns, spaces, digits, marks, missing bytes and special tokens trip over."""

texts = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(PARTS), max_size=12).map("".join),
    st.text(st.sampled_from(" \n\t'1a.A漢"), max_size=20),
)


class Theirs:
    """The server's own tokenizer. Many texts go in one request."""

    def __init__(self, server: LlamaServer) -> None:
        self._http = httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.key}"}, timeout=60)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        content = [part for text in texts for part in (text, SEPARATOR)]
        answer = self._http.post("/tokenize", json={"content": content, "add_special": False, "parse_special": False})
        assert answer.status_code == 200, answer.text
        return list(self._split(answer.json()["tokens"]))

    def _split(self, ids: list[int]) -> Iterator[list[int]]:
        rest = iter(ids)
        for first in rest:
            yield [] if first == SEPARATOR else [first, *iter(rest.__next__, SEPARATOR)]

    def close(self) -> None:
        self._http.close()


@cache
def ours(file: Path) -> BpeVocabulary:
    return read_metadata(file).vocabulary()


@pytest.fixture
def theirs(llama: LlamaServer) -> Iterator[Theirs]:
    tokenizer = Theirs(llama)
    yield tokenizer
    tokenizer.close()


same_fixture = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@same_fixture
@given(st.lists(texts, min_size=TEXTS, max_size=TEXTS))
def test_any_text_has_the_ids_that_the_server_gives_it(smollm2: Path, theirs: Theirs, many: list[str]) -> None:
    vocabulary = ours(smollm2)
    assert [vocabulary.encode(text) for text in many] == theirs.ids(many)


def test_each_part_beside_each_other(smollm2: Path, theirs: Theirs) -> None:
    vocabulary = ours(smollm2)
    for left in PARTS:
        many = [left + right for right in PARTS]
        assert [vocabulary.encode(text) for text in many] == theirs.ids(many)


def test_prose_and_code_too(smollm2: Path, theirs: Theirs) -> None:
    root = Path(__file__).resolve().parents[2]
    many = [(root / name).read_text(encoding="utf-8") for name in ("README.md", "CHANGELOG.md", "engine/rollout.py")]
    vocabulary = ours(smollm2)
    assert [vocabulary.encode(text) for text in many] == theirs.ids(many)
    assert vocabulary.text(vocabulary.encode(many[0])) == many[0]


def test_each_token_is_its_bytes(smollm2: Path) -> None:
    vocabulary = ours(smollm2)
    assert vocabulary.size == 49152
    seen = {vocabulary.token_bytes(token) for token in range(vocabulary.size)}
    assert len(seen) == vocabulary.size
    for token in (vocabulary.size, vocabulary.size + 500, 10**9):
        with pytest.raises(KeyError):
            vocabulary.token_bytes(token)


def test_bytes_that_it_lacks_are_left_out(smollm2: Path) -> None:
    vocabulary = ours(smollm2)
    assert {0x04, 0xF1, 0xFF} <= vocabulary.lacks
    assert vocabulary.encode("\x04\x06") == []
    assert vocabulary.encode("a\x04b") == vocabulary.encode("a") + vocabulary.encode("b")
    assert max(vocabulary.encode("\U00040000 \ud800")) < vocabulary.size


def test_no_text_is_a_special_token(smollm2: Path) -> None:
    vocabulary = ours(smollm2)
    assert (vocabulary.special("<|im_start|>"), vocabulary.special("<|im_end|>")) == (1, 2)
    assert vocabulary.token_bytes(2) == b"<|im_end|>"
    assert not set(vocabulary.encode("".join(vocabulary.specials))) & set(vocabulary.specials.values())
    with pytest.raises(KeyError):
        vocabulary.special("im_end")


def test_long_runs_are_encoded_in_time(smollm2: Path) -> None:
    vocabulary = ours(smollm2)
    for run in ("a", " ", "\n", "漢", "!", "1", "\x04"):
        assert vocabulary.text(vocabulary.encode(run * 100_000)) == ("" if run == "\x04" else run * 100_000)


# ---- the other patterns, with SmolLM2's tokens: only the pattern's name in the file is another


def string(value: bytes) -> bytes:
    return struct.pack("<IQ", 8, len(value)) + value


def rewritten(source: Path, target: Path, pre: str) -> Path:
    """``source`` with another ``tokenizer.ggml.pre``, and a name that makes up for its length, so that nothing else moves."""
    with source.open("rb") as stream:
        data = stream.read(1 << 16)
    name = str(read_metadata(source).values["general.name"]).encode()
    longer = name + b" " * 9
    other = longer[: len(name) + len("smollm") - len(pre)]
    changed = data.replace(b"general.name" + string(name), b"general.name" + string(other))
    changed = changed.replace(b"tokenizer.ggml.pre" + string(b"smollm"), b"tokenizer.ggml.pre" + string(pre.encode()))
    shutil.copyfile(source, target)
    with target.open("r+b") as stream:
        stream.write(changed)
    return target


@pytest.mark.parametrize("pre", [name for name in PATTERNS if name != "smollm"])
def test_other_patterns_split_as_the_server_does(smollm2: Path, tmp_path: Path, pre: str) -> None:
    file = rewritten(smollm2, tmp_path / "other.gguf", pre)
    vocabulary = ours(file)
    assert vocabulary.encoding._pat_str == PATTERNS[pre]
    pairs = [left + right for left in PARTS for right in PARTS]
    with served(LlamaServer(file=file, slots=1, context=256)) as server:
        tokenizer = Theirs(server)
        try:
            found = tokenizer.ids(pairs)
        finally:
            tokenizer.close()
    assert [vocabulary.encode(text) for text in pairs] == found


# ---- vocabularies that are none


def test_merges_out_of_order_are_refused() -> None:
    tokens = ["a", "b", "ab", "ba"]
    assert ranked(tokens, ["a b", "b a"], range(4), whole=False) == {b"a": 0, b"b": 1, b"ab": 2, b"ba": 3}
    with pytest.raises(VocabularyError, match="not in the order"):
        ranked(tokens, ["b a", "a b"], range(4), whole=False)


def test_letters_that_stand_for_no_byte_are_refused() -> None:
    with pytest.raises(VocabularyError, match="stands for no byte"):
        ranked(["日"], [], [0], whole=True)
    assert spelled("Ġa") == b" a"
