"""GGUF files, real, made up, cut off and damaged."""

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine.models.gguf import MAX_PAIRS, GgufError, Metadata, read_metadata

CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
Typed = tuple[int, Any]
"""A type of the format, and a value; of an array the type of its elements, and those."""


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def payload(kind: int, value: Any) -> bytes:
    if kind in CODES:
        return struct.pack(f"<{CODES[kind]}", value)
    if kind == 8:
        return text(value)
    inner, values = value
    return struct.pack("<IQ", inner, len(values)) + b"".join(payload(inner, one) for one in values)


def written(pairs: dict[str, Typed], version: int = 3) -> bytes:
    body = b"".join(text(key) + struct.pack("<I", kind) + payload(kind, value) for key, (kind, value) in pairs.items())
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(pairs)) + body


def plain(kind: int, value: Any) -> Any:
    return [plain(value[0], one) for one in value[1]] if kind == 9 else value


def scalars(kind: int) -> st.SearchStrategy[Any]:
    code = CODES.get(kind)
    if code is None:
        return st.text(max_size=8)
    if code == "?":
        return st.booleans()
    if code in "fd":
        return st.floats(allow_nan=False, width=32 if code == "f" else 64)
    bits = struct.calcsize(f"<{code}") * 8
    return st.integers(0, 2**bits - 1) if code.isupper() else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


kinds = st.sampled_from([*CODES, 8])
typed = kinds.flatmap(lambda kind: scalars(kind).map(lambda value: (kind, value)))
arrays = kinds.flatmap(lambda kind: st.lists(scalars(kind), max_size=5).map(lambda values: (9, (kind, values))))
files = st.dictionaries(st.text(min_size=1, max_size=12), typed | arrays, max_size=6)
in_a_folder = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def read(folder: Path, data: bytes) -> dict[str, Any]:
    file = folder / "some.gguf"
    file.write_bytes(data)
    return dict(read_metadata(file).values)


@in_a_folder
@given(files, st.sampled_from([2, 3]), st.binary(max_size=40))
def test_what_was_written_is_read(tmp_path: Path, pairs: dict[str, Typed], version: int, tensors: bytes) -> None:
    assert read(tmp_path, written(pairs, version) + tensors) == {key: plain(*one) for key, one in pairs.items()}


@in_a_folder
@given(files, st.data())
def test_what_is_cut_off_is_refused(tmp_path: Path, pairs: dict[str, Typed], data: st.DataObject) -> None:
    whole = written(pairs)
    with pytest.raises(GgufError, match=r"cut off|no GGUF file"):
        read(tmp_path, whole[: data.draw(st.integers(0, len(whole) - 1))])


@in_a_folder
@given(files, st.data())
def test_what_is_damaged_is_read_or_refused(tmp_path: Path, pairs: dict[str, Typed], data: st.DataObject) -> None:
    damaged = bytearray(written(pairs))
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    try:
        read(tmp_path, bytes(damaged))
    except GgufError as error:
        assert "some.gguf" in str(error)  # noqa: PT017 - it need not be raised


@in_a_folder
@given(st.binary(max_size=200))
@example(b"GGUF" + struct.pack("<IQQ", 3, 0, MAX_PAIRS + 1))
@example(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**63))
@example(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 8, 2**61))
@example(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 10, 2**61))
@example(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 50)
@example(b"GGUF" + struct.pack(">IQQ", 3, 0, 1))
def test_garbage_is_refused(tmp_path: Path, garbage: bytes) -> None:
    if garbage[:4] != b"GGUF" or len(garbage) > 4:
        with pytest.raises(GgufError):
            read(tmp_path, garbage)


def model(**changed: Typed | None) -> dict[str, Typed]:
    """A small model's pairs; ``__`` in names stands for a dot, and None takes one away."""
    pairs: dict[str, Typed | None] = {
        "general__architecture": (8, "llama"),
        "llama__context_length": (4, 4096),
        "tokenizer__ggml__model": (8, "gpt2"),
        "tokenizer__ggml__pre": (8, "qwen2"),
        "tokenizer__ggml__tokens": (9, (8, ["a", "b", "ab", "<|im_end|>"])),
        "tokenizer__ggml__merges": (9, (8, ["a b"])),
        "tokenizer__ggml__token_type": (9, (5, [1, 1, 1, 3])),
        "tokenizer__chat_template": (8, "{{ '<|im_start|>' }}"),
    }
    return {key.replace("__", "."): one for key, one in {**pairs, **changed}.items() if one is not None}


def metadata(**changed: Typed | None) -> Metadata:
    return Metadata({key: plain(*one) for key, one in model(**changed).items()})


def test_what_a_small_model_says_of_itself() -> None:
    found = metadata()
    assert (found.architecture, found.context_length, found.form) == ("llama", 4096, "chatml")
    vocabulary = found.vocabulary()
    assert vocabulary.encode("abba<|im_end|>") == [2, 1, 0]
    assert vocabulary.special("<|im_end|>") == 3
    assert metadata(tokenizer__chat_template=(8, "{{ '<|start_header_id|>' }}")).form == "llama3"
    assert metadata(tokenizer__chat_template=None).form is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tokenizer__ggml__model": (8, "llama")}, "its tokenizer is llama/qwen2; read are"),
        ({"tokenizer__ggml__pre": (8, "tekken")}, "its tokenizer is gpt2/tekken"),
        ({"tokenizer__ggml__pre": None}, "does not say its tokenizer.ggml.pre"),
        ({"tokenizer__ggml__tokens": None}, "it has no tokenizer.ggml.tokens"),
        ({"tokenizer__ggml__merges": (9, (5, [1]))}, "it has no tokenizer.ggml.merges"),
        ({"tokenizer__ggml__token_type": (9, (5, [1]))}, "not each of its tokens has a type"),
        ({"tokenizer__ggml__tokens": (9, (8, ["a", "b", "ab", "日"])), "tokenizer__ggml__token_type": None}, None),
    ],
)
def test_vocabularies_that_are_not_read(changed: dict[str, Any], said: str | None) -> None:
    if said is None:  # a token that no text becomes is no harm
        assert metadata(**changed).vocabulary().encode("ab") == [2]
        return
    with pytest.raises(GgufError, match=said):
        metadata(**changed).vocabulary()


def test_a_model_must_say_its_context() -> None:
    with pytest.raises(GgufError, match="how long its context is"):
        metadata(llama__context_length=(8, "long")).context_length  # noqa: B018


def test_the_real_one(smollm2: Path) -> None:
    found = read_metadata(smollm2)
    assert (found.architecture, found.context_length, found.form) == ("llama", 8192, "chatml")
    assert found.values["general.license"] == "apache-2.0"
