"""Patterns find what ``re`` finds, and none takes long."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.models import patterns

units = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", r"\s", r"\b", r"\.", "^", "$", "-", "é"])
suffixes = st.sampled_from(["", "", "", "?", "{2}", "{1,2}", "{0,3}", "*", "+", "{1,}", "*?", "+?", "??"])


def _repeat(unit: str, suffix: str) -> str:
    return unit if unit in ("^", "$", r"\b") else unit + suffix


atoms = st.builds(_repeat, units, suffixes)
sequences = st.lists(atoms, max_size=4).map("".join)
groups = st.builds(
    lambda branches, suffix: f"({'|'.join(branches)}){suffix}",
    st.lists(st.lists(units, max_size=3).map("".join), min_size=1, max_size=3),
    st.sampled_from(["", "?", "*", "+", "{2}"]),
)
sources = st.builds(
    lambda flags, parts: flags + "".join(parts),
    st.sampled_from(["", "(?i)", "(?s)", "(?m)", "(?im)"]),
    st.lists(sequences | groups, max_size=4),
)


@given(sources, st.text("abAB1.-_ \né", max_size=12))
def test_patterns_find_what_re_finds(source: str, text: str) -> None:
    assert patterns.read(source).found_in(text) is (re.search(source, text) is not None)


@pytest.mark.parametrize(
    ("source", "text", "found"),
    [
        (r"(\d+) passed.*(\d+) failed", "12 passed, 3 failed", True),
        (r"[]a]", "]", True),
        (r"[a\]]", "]", True),
        (r"a{,2}b", "aab", True),
        (r"a{}", "a{}", True),
        (r"", "", True),
        (r"x$", "x\n", True),
        (r"(?:ab|cd){2}$", "abcd", True),
    ],
)
def test_a_pattern(source: str, text: str, found: bool) -> None:
    assert patterns.read(source).found_in(text) is found


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("(a+)+$", "too costly"),
        ("(.*)*x", "too costly"),
        ("(((a{1000}){1000}))", "too costly"),
        ("(", "not closed"),
        ("a)", "unmatched"),
        ("[a", "not closed"),
        ("[b-a]", "bad character range"),
        ("*a", "nothing to repeat"),
        ("a**", "repetition of a repetition"),
        ("a++", "repetition of a repetition"),
        ("a{3,2}", "smaller number"),
        ("(?=a)", "only"),
        ("(?P<n>a)", "only"),
        (r"(a)\1", "not there"),
        ("a\\", "at the end"),
        ("a" * 501, "longer"),
    ],
)
def test_what_is_not_there_is_refused(source: str, why: str) -> None:
    with pytest.raises(patterns.PatternError, match=why):
        patterns.read(source)


def test_the_costliest_pattern_ends() -> None:
    """``re`` would need longer than anyone lives."""
    assert not patterns.read("a*" * 40 + "b").found_in("a" * patterns.SEARCHED_CHARS)
    assert not patterns.read("(a|b|ab)*c").found_in("ab" * patterns.SEARCHED_CHARS)


def test_of_a_long_text_the_end_is_searched() -> None:
    pattern = patterns.read("needle")
    assert pattern.found_in("x" * 10_000 + "needle")
    assert not pattern.found_in("needle" + "x" * 10_000)
