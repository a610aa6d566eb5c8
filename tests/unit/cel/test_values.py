"""Equality, order, keys and names of values; doubles as Go writes them."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import example, given, strategies as st

from scheduler.api.quantity import parse
from scheduler.cel.errors import EvalError
from scheduler.cel.go_format import double
from scheduler.cel.libraries.quantities import Amount, minus, order, plus
from scheduler.cel.libraries.semvers import parse as version
from scheduler.cel.values import Duration, Optional, Timestamp, UInt, compare, contains, equal, key, same, unkey

_INTS = st.integers(-(2**63), 2**63 - 1)
_NUMBERS = _INTS | st.integers(0, 2**64 - 1).map(UInt) | st.floats(allow_nan=False)
_SCALARS = _NUMBERS | st.booleans() | st.none() | st.text(max_size=3) | st.binary(max_size=3)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_SCALARS.map(key), inner, max_size=3),
    max_leaves=8,
)
_WORDS = st.integers(0, 2**64 - 1) | st.text("abcXYZ019-", min_size=1, max_size=3).filter(
    lambda word: not word.isdigit()
)
_VERSIONS = st.builds(
    lambda numbers, words: version(".".join(map(str, numbers)) + "-" * bool(words) + ".".join(map(str, words))),
    st.tuples(*[st.integers(0, 1)] * 3),
    st.lists(_WORDS, max_size=3),
)
_TIMES = st.integers(0, 3).map(Duration) | st.builds(Timestamp, st.integers(0, 3), st.sampled_from([0, 3600]))
_FEW = st.sampled_from([0, 1, 2**53, 2**53 + 1, UInt(1), 0.0, 1.0, 2.0**53, math.nan, True, False, None, "", "1", b""])
_ANY = st.recursive(_FEW | _TIMES | st.integers(0, 2).map(Amount) | st.builds(Optional, _FEW), st.lists, max_leaves=4)


def test_a_kubernetes_value_does_not_compare_with_another_type():
    """Upstream's asymmetry: the left side decides; null is fine, and so are lists and `!=`."""
    with pytest.raises(EvalError, match=r"^no such overload$"):
        equal(Amount(1), 1)
    assert not equal(1, Amount(1))
    assert not equal(Amount(1), None)
    assert not same(Amount(1), 1)
    assert not contains([1, "1"], Amount(1))


@given(_VALUES, _VALUES)
def test_equality_is_symmetric_and_knows_copies(one, other):
    assert same(one, one)
    assert same(one, other) == same(other, one)


@given(st.lists(_ANY, max_size=4) | st.lists(_FEW, max_size=4) | st.lists(_TIMES, max_size=4), _ANY)
def test_a_list_holds_what_is_equal_to_one_of_its_values(values, value):
    assert any(same(value, each) for each in values) == contains(values, value)


@given(_ANY | st.lists(_TIMES, max_size=4), _ANY | st.lists(_TIMES, max_size=4))
def test_lists_are_equal_if_all_their_values_are(one, other):
    expected = same(one, other)
    if isinstance(one, list) and isinstance(other, list):
        assert expected == (len(one) == len(other) and all(map(same, one, other)))
    for count in (3, 128):
        left, right = [one] * count, [other] * count
        assert [expected] * 2 == [same(left, right), same({"k": left}, {"k": right})]


@given(_NUMBERS, _NUMBERS)
def test_order_agrees_with_equality_and_with_itself_backwards(one, other):
    assert compare(one, other) == -compare(other, one)
    assert same(one, other) == (compare(one, other) == 0)


@given(_SCALARS)
def test_keys_come_back_as_what_they_were(value):
    back = unkey(key(value))
    assert type(value) is type(back)
    assert same(value, back)


def test_a_list_is_no_key():
    with pytest.raises(TypeError):
        key([1])


@given(_VERSIONS, _VERSIONS, _VERSIONS)
def test_versions_are_totally_ordered(one, other, third):
    assert [one < other, one == other, one > other].count(True) == 1
    assert not (one <= other <= third) or one <= third
    assert one != other or hash(one) == hash(other)


# -- quantities of devices ------------------------------------------------------------------------------------------------


_TEXTS = st.builds(
    "{}{}{}".format,
    st.integers(-(10**12), 10**12),
    st.sampled_from(["", ".5", ".125"]),
    st.sampled_from(["", "m", "u", "k", "M", "G", "Ki", "Mi", "Gi", "e3"]),
)


@given(_TEXTS, _TEXTS)
def test_sums_and_differences_are_exact(one, other):
    left, right = _amount(one), _amount(other)
    total = plus(left, right)
    assert left.nano + right.nano == total.nano
    assert left == minus(total, right)
    assert hash(left) == hash(minus(total, right))


@given(_TEXTS, _TEXTS)
def test_the_order_is_that_of_the_amounts(one, other):
    left, right = parse(one), parse(other)
    assert (left.nano > right.nano) - (left.nano < right.nano) == order(_amount(one), _amount(other))


def _amount(text):
    return Amount(*parse(text).form)


def _plainly(value: float) -> str:
    """`%g` of the figures that `repr` finds."""
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    figures = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) - 1 + int(exponent) if any(digits) else 0
    minus = "-" if sign else ""
    if -4 <= power < 6:
        whole, _, fraction = f"{Decimal(repr(value)).copy_abs():f}".partition(".")
        fraction = fraction.rstrip("0")
        return f"{minus}{whole}.{fraction}" if fraction else minus + whole
    rest = f".{figures[1:]}" if len(figures) > 1 else ""
    return f"{minus}{figures[0]}{rest}e{power:+03d}"


_DOUBLES = st.floats(allow_nan=False, allow_infinity=False) | st.builds(
    lambda figures, power: figures * 10.0**power, st.integers(-(10**17), 10**17), st.integers(-25, 25)
)


@given(_DOUBLES)
@example(2.0**-24)  # two texts of 16 figures are equally near
@example(1e300)
def test_a_double_is_written_as_go_writes_it(value):
    assert double(value) == _plainly(value)
    assert float(double(value)) == value
