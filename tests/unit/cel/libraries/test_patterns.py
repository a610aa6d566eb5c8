"""Patterns that `re` matches instead of RE2, against RE2 (docs/spec/cel.md)."""

from __future__ import annotations

from typing import Any

import pytest
import re2
from hypothesis import given, strategies as st

from scheduler.cel.libraries.patterns import simple
from scheduler.cel.libraries.regex import Pattern

_ATOMS = ["a", "b", "[ab]", "[^a]", "[a-c0-9]", "[b-]", ".", r"\d", r"\w", r"\.", "-"]
_TIMES = ["", "", "", "?", "*", "+", "{2}", "{0,2}", "{1,3}"]
PATTERNS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "^"]),
    st.lists(st.builds("{}{}".format, st.sampled_from(_ATOMS), st.sampled_from(_TIMES)), max_size=4).map("".join),
    st.sampled_from(["", "$"]),
)
TEXTS = st.text("abc0.-\nä", max_size=12)


@given(PATTERNS, TEXTS, st.integers(-1, 3))
def test_it_matches_what_re2_matches(pattern, text, limit):
    """Whether, where first, and where in turn, as Go counts turns."""
    ours, theirs = Pattern(pattern), re2.compile(pattern)
    match = theirs.search(text)
    parts: list[Any] = []
    for each in theirs.finditer(text):
        if each.start() < each.end() or not parts or each.end() != parts[-1].end():
            parts.append(each)

    assert ours.is_in(text) == (match is not None)
    assert ours.first(text) == ("" if match is None else match.group())
    assert ours.all(text, limit) == [each.group() for each in parts][: None if limit < 0 else limit]


@pytest.mark.parametrize(
    "pattern",
    ["(a)", "a|b", "a+?", "a{2,}", "(?i)a", "a*b*", r"\s", r"\b", r"a\\", "[[:alpha:]]", "[a&&b]", "[]a]", "ä", "a++"],
)
def test_what_is_not_simple_is_re2s(pattern):
    """Where the two libraries read a pattern differently, or Python's could go on for long."""
    assert simple(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "is_linear"),
    [("[0-9]+", True), ("^ab?c$", True), ("a+b", False), ("a+$", False), ("a*", True), (".", True)],
)
def test_long_texts_are_left_to_re2_if_they_could_be_gone_over_again_and_again(pattern, is_linear):
    """`a+b` in a text of nothing but a."""
    found = simple(pattern)

    assert found is not None
    assert found.suits("a" * 1000) == is_linear
    assert found.suits("a" * 10)
