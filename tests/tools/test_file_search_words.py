"""Passages and words: nothing is lost, nothing is found that is not there."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.hosted.passages import PASSAGE_CHARS, PASSAGE_LINES, Passage, index_terms, passages, words

lines = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=30) | st.builds(
    lambda piece, times: piece * times, st.sampled_from(["a", "é ", " ", "🎹\t"]), st.integers(0, 3 * PASSAGE_CHARS)
)
texts = st.lists(lines | st.just("") | st.just("x"), max_size=80).map("\n".join)


@given(texts)
def test_every_line_that_is_not_blank_is_in_passages_once_and_in_its_place(text: str) -> None:
    source = text.split("\n")
    covered: dict[int, str] = {}
    for passage in passages(text):
        for number, line in enumerate(passage.text.split("\n"), passage.line):
            covered[number] = covered.get(number, "") + line
    for number, line in enumerate(source, 1):
        if len(line) > PASSAGE_CHARS:  # cut into pieces; blank pieces are left out
            assert covered.get(number, "").replace(" ", "").replace("\t", "") == line.replace(" ", "").replace("\t", "")
        elif line.strip():
            assert covered[number] == line
    assert all(1 <= number <= len(source) for number in covered)


@given(texts)
def test_passages_are_small_and_their_borders_are_not_blank(text: str) -> None:
    found = list(passages(text))
    assert [one.line for one in found] == sorted(one.line for one in found)
    for one in found:
        assert len(one.text) <= PASSAGE_CHARS
        assert one.text.count("\n") < PASSAGE_LINES
        assert one.text.split("\n")[0].strip()
        assert one.text.split("\n")[-1].strip()


def test_a_passage_ends_at_a_blank_line_if_there_is_one() -> None:
    text = "\n\n" + "a\n" * 14 + "\n" + "b\n" * 30
    assert list(passages(text)) == [
        Passage(3, "\n".join("a" * 14)),
        Passage(18, "\n".join("b" * 24)),
        Passage(42, "\n".join("b" * 6)),
    ]


def test_a_long_line_is_cut_into_passages_of_the_same_line() -> None:
    text = "before\n" + "x" * (2 * PASSAGE_CHARS + 1) + "\nafter"
    assert [(one.line, len(one.text)) for one in passages(text)] == [
        (1, 6),
        (2, PASSAGE_CHARS),
        (2, PASSAGE_CHARS),
        (2, 1),
        (3, 5),
    ]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("parse_http_reply", "parse_http_reply parse http reply"),
        ("parseHTTPReply2", "parsehttpreply2 parse http reply 2"),
        ("HTTPServer.__init__(_self)", "httpserver http server __init__ init _self self"),
        ("plain words, twice words", "plain words twice words"),
        ("MAX_SIZE = 0x10", "max_size max size 0x10 0 x 10"),
        ("Café ﬁn STRASSE Straße", "cafe fin strasse strasse"),
        ("cafe\N{COMBINING ACUTE ACCENT}", "cafe"),
        ("größe_änderung", "große_anderung große anderung".replace("ß", "ss")),
        ("こんにちは、世界", "こんにちは 世界"),
        ("=> '\"(*):^-\0 🎹 __", "__"),
        ("", ""),
    ],
)
def test_terms(text: str, terms: str) -> None:
    assert index_terms(text) == terms


@given(st.text(st.characters()))
def test_terms_hold_nothing_but_word_characters(text: str) -> None:
    for word in words(text):
        for term in (word.whole, *word.parts):
            assert term
            assert all(char == "_" or not char.isascii() or char.isalnum() for char in term)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_same_text_in_another_normal_form_or_case_has_the_same_words(text: str) -> None:
    wholes = [word.whole for word in words(text)]
    assert [word.whole for word in words(unicodedata.normalize("NFC", text))] == wholes
