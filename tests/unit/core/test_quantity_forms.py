"""What only device selectors see of a quantity: sums, and upstream's idea of an integer."""

import pytest
from hypothesis import given, strategies as st

from scheduler.core.quantity import of_int, parse

_TEXTS = st.builds(
    "{}{}{}".format,
    st.integers(-(10**12), 10**12),
    st.sampled_from(["", ".5", ".125"]),
    st.sampled_from(["", "m", "u", "k", "M", "G", "Ki", "Mi", "Gi", "e3"]),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("1", 1, id="a plain number"),
        pytest.param("1Gi", 2**30, id="a binary suffix"),
        pytest.param("1e3", 1000, id="an exponent"),
        pytest.param("9E", 9 * 10**18, id="the largest suffix that fits"),
        pytest.param("10E", None, id="too large for 64 bits"),
        pytest.param("7Ei", None, id="upstream reads large binary numbers the long way"),
        pytest.param("1000m", None, id="whole, but spelt in thousandths"),
        pytest.param("1.0", None, id="whole, but with a decimal point"),
        pytest.param("0m", None, id="even zero"),
        pytest.param("0", 0, id="zero"),
    ],
)
def test_an_integer_is_one_by_its_spelling(text, expected):
    """The number upstream's AsInt64 gives."""
    assert expected == parse(text).as_int64()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("0.3", 0.30000000000000004, id="upstream multiplies by a power of ten"),
        pytest.param("1.1Ki", 1126.4, id="a binary fraction"),
        pytest.param("1n", 1e-9, id="the smallest"),
        pytest.param("12345678901234567890123.5", 1.2345678901234568e22, id="beyond 64 bits"),
        pytest.param("1e999", float("inf"), id="beyond doubles"),
    ],
)
def test_as_a_double(text, expected):
    """To the last digit as upstream computes it."""
    assert expected == parse(text).as_float()


@given(_TEXTS, _TEXTS)
def test_sums_and_differences_are_exact(one, other):
    """And undo each other."""
    left, right = parse(one), parse(other)
    total = left.plus(right)
    assert left.nano + right.nano == total.nano
    assert left == total.minus(right)


def test_whole_numbers_add_to_whole_numbers():
    """Until 64 bits are full."""
    assert 3 == parse("1").plus(of_int(2)).as_int64()
    assert parse("50").plus(of_int(2**63 - 1)).as_int64() is None
