"""Quantities are exact, rounded up, and refused by name when they are none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from scheduler.core.quantity import Quantity, from_nano, parse, text as spelled

MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        pytest.param("100m", 1, 100, id="milli rounds up to whole units"),
        pytest.param("100u", 1, 1, id="a tenth of a milli-CPU is one (row 102)"),
        pytest.param("1n", 1, 1, id="a nano is something"),
        pytest.param("2", 2, 2000, id="plain number"),
        pytest.param(2, 2, 2000, id="a JSON integer"),
        pytest.param(0.5, 1, 500, id="a JSON float"),
        pytest.param("0.1", 1, 100, id="decimal fraction is not binary"),
        pytest.param(".5", 1, 500, id="no digit before the point"),
        pytest.param("5.", 5, 5000, id="no digit after the point"),
        pytest.param("1Ki", 1024, 1024000, id="binary suffix"),
        pytest.param("1.5Gi", 1610612736, 1610612736000, id="fraction of a binary suffix"),
        pytest.param("1k", 1000, 1000000, id="decimal suffix"),
        pytest.param("1e3", 1000, 1000000, id="exponent"),
        pytest.param("1E3", 1000, 1000000, id="capital exponent"),
        pytest.param("1E", 10**18, MAX, id="exa is no exponent, milli is capped"),
        pytest.param("100Ei", MAX, MAX, id="beyond int64 is capped"),
        pytest.param("1e30", MAX, MAX, id="a large exponent is capped"),
        pytest.param("0", 0, 0, id="nothing"),
        pytest.param("+1", 1, 1000, id="plus sign"),
    ],
)
def test_amounts(text: Any, value: int, milli: int) -> None:
    """Both units follow from the text as upstream computes them."""
    quantity = parse(text)

    assert (value, milli) == (quantity.value, quantity.milli)


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        pytest.param("1", 10**9, id="a whole unit"),
        pytest.param("1.2", 12 * 10**8, id="no rounding to units"),
        pytest.param("1n", 1, id="the smallest there is"),
        pytest.param("0.1n", 1, id="something smaller is a nano"),
        pytest.param("1.0000000001", 10**9 + 1, id="finer than nano is rounded up"),
        pytest.param("-1.0000000001", -(10**9) - 1, id="away from nothing on either side"),
        pytest.param("1e-10", 1, id="by exponent, too"),
        pytest.param("1000000000500m", 10**9 * 10**9 + 5 * 10**8, id="K16 half a byte is kept"),
        pytest.param("1.5Gi", 1536 * 2**20 * 10**9, id="K16 fraction of a binary suffix"),
        pytest.param("0.1Ki", 1024 * 10**8, id="a decimal fraction of a binary suffix is exact"),
        pytest.param("800E", 800 * 10**27, id="M22 decimal suffixes are not capped"),
        pytest.param("1e30", 10**39, id="nor are exponents"),
        pytest.param(f"{2**70}", 2**70 * 10**9, id="nor are plain numbers"),
        pytest.param("9Ei", MAX * 10**9, id="M23 binary suffixes are capped at int64"),
        pytest.param("8Ei", MAX * 10**9, id="by one byte, if need be"),
        pytest.param("7Ei", 7 * 2**60 * 10**9, id="and not below it"),
        pytest.param("-9Ei", -MAX * 10**9, id="on either side"),
    ],
)
def test_nano_is_exact(text: str, nano: int) -> None:
    """For comparing: as upstream reads it, and never rounded to what a decision is not made in."""
    assert nano == parse(text).nano


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        pytest.param("950E", "951E", id="M22 beyond int64"),
        pytest.param("9Ei", "10E", id="M23 a capped one and one that is not"),
        pytest.param("1G", "1Gi", id="M21 decimal and binary"),
        pytest.param("1.1", "1.2", id="less than a unit apart"),
    ],
)
def test_what_differs_is_not_equal(smaller: str, larger: str) -> None:
    """Equal only if upstream's comparison says so; both may round to one value."""
    assert parse(smaller) != parse(larger)
    assert parse(smaller).nano < parse(larger).nano


@pytest.mark.parametrize(("left", "right"), [("9Ei", "8Ei"), ("1536Mi", "1.5Gi"), ("1e3", "1k"), ("0.1n", "1n")])
def test_what_upstream_reads_as_one_amount_is_equal(left: str, right: str) -> None:
    """M23 and K16, whatever the spelling."""
    assert parse(left) == parse(right)


def test_k16_sizes_are_rounded_up_to_bytes() -> None:
    """What a capacity object is compared with."""
    assert (1536 * 2**20, 10**9 + 1) == (parse("1.5Gi").value, parse("1000000000500m").value)


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1gi", "1KiB", "--1", "1e", "1e99999", "0x10", "1_000", " 1"])
def test_refused_texts(text: str) -> None:
    """What is no quantity is refused with the text in the message."""
    with pytest.raises(ValueError, match="is not a quantity") as refused:
        parse(text)

    assert repr(text) in str(refused.value)


def test_equal_amounts_are_equal() -> None:
    """Spelling does not matter to equality or hash."""
    assert parse("1Gi") == parse("1024Mi")
    assert hash(parse("1")) == hash(parse("1000m"))
    assert parse("1") != parse("1001m")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param("1073741824", "1Gi", id="a binary unit that divides"),
        pytest.param("1.5Gi", "1536Mi", id="the largest that divides"),
        pytest.param("1025", "1025", id="none divides"),
        pytest.param("1000", "1k", id="a decimal unit"),
        pytest.param("1024000", "1000Ki", id="both divide: binary"),
        pytest.param("3e21", "3000E", id="the largest decimal unit"),
        pytest.param("100m", "100m", id="a part"),
        pytest.param("1.5", "1500m", id="one and a part"),
        pytest.param("1u", "1u", id="micro"),
        pytest.param("12345n", "12345n", id="nano"),
        pytest.param("0", "0", id="none"),
        pytest.param("-2Ki", "-2Ki", id="less than none"),
        pytest.param("-0.5", "-500m", id="less than none by a part"),
        pytest.param("8Ei", str(2**63 - 1), id="binary numbers end there"),
        pytest.param(str(2**63), str(2**63), id="decimal ones do not"),
    ],
)
def test_texts(given: str, wanted: str) -> None:
    """A whole number of the largest unit that leaves nothing over."""
    assert wanted == spelled(parse(given))


def _whole(count: int) -> Quantity:
    return from_nano(count * 10**9)


@given(
    st.one_of(
        st.integers(-(2**80), 2**80).map(from_nano),
        st.integers(-(10**24), 10**24).map(_whole),
        st.builds(lambda n, k: _whole(n << 10 * k), st.integers(-(2**20), 2**20), st.integers(0, 4)),
    )
)
def test_a_text_says_the_amount(quantity: Quantity) -> None:
    """Exactly, and no unit larger would."""
    assert quantity == parse(spelled(quantity))
