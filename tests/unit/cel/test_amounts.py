"""What only device selectors see of a quantity: sums, and upstream's idea of an integer."""

import pytest
from hypothesis import given, strategies as st

from scheduler.api.quantity import parse
from scheduler.cel.libraries.quantities import Amount, minus, order, plus

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
    assert expected == _amount(text).as_int64()


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
    assert expected == _amount(text).as_float()


@given(_TEXTS, _TEXTS)
def test_sums_and_differences_are_exact(one, other):
    """And undo each other."""
    left, right = _amount(one), _amount(other)
    total = plus(left, right)
    assert left.nano + right.nano == total.nano
    assert left == minus(total, right)
    assert hash(left) == hash(minus(total, right))


@given(_TEXTS, _TEXTS)
def test_the_order_is_that_of_the_amounts(one, other):
    """However they are spelt."""
    left, right = parse(one), parse(other)
    assert (left.nano > right.nano) - (left.nano < right.nano) == order(_amount(one), _amount(other))


def test_whole_numbers_add_to_whole_numbers():
    """Until 64 bits are full."""
    assert 3 == plus(_amount("1"), Amount(2)).as_int64()
    assert plus(_amount("50"), Amount(2**63 - 1)).as_int64() is None


@pytest.mark.parametrize(
    "number", [pytest.param(-(2**63), id="the lowest integer"), pytest.param(2**63, id="less the lowest integer")]
)
def test_what_has_no_opposite_in_64_bits_is_no_integer(number):
    """Not even when it is added to nothing."""
    assert plus(_amount("0"), Amount(number)).as_int64() is None
    assert not plus(_amount("1"), Amount(number)).is_small


def _amount(text):
    return Amount(*parse(text).form)
