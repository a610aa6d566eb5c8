"""Equality, order, keys and names of values."""

import math

import pytest
from hypothesis import given, strategies as st

from scheduler.cel.errors import EvalError
from scheduler.cel.libraries.quantities import Amount
from scheduler.cel.libraries.semvers import parse as version
from scheduler.cel.values import (
    NONE,
    Duration,
    Optional,
    Timestamp,
    TypeValue,
    UInt,
    compare,
    contains,
    equal,
    key,
    same,
    type_name,
    unkey,
)

_INTS = st.integers(-(2**63), 2**63 - 1)
_NUMBERS = _INTS | st.integers(0, 2**64 - 1).map(UInt) | st.floats(allow_nan=False)
_SCALARS = _NUMBERS | st.booleans() | st.none() | st.text(max_size=3) | st.binary(max_size=3)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_SCALARS.map(key), inner, max_size=3),
    max_leaves=8,
)
_WITH_NAN = [[math.nan]] * 2
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


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        pytest.param(1, UInt(1), True, id="an int and a uint of one value"),
        pytest.param(1, 1.0, True, id="an int and a double of one value"),
        pytest.param(2**53 + 1, float(2**53), True, id="an int is taken for the double nearest to it"),
        pytest.param(-1, UInt(2**64 - 1), False, id="a sign is not a bit"),
        pytest.param(True, 1, False, id="true is not 1"),
        pytest.param(False, 0.0, False, id="false is not 0"),
        pytest.param("1", 1, False, id="a text is not a number"),
        pytest.param("a", b"a", False, id="a text is not bytes"),
        pytest.param(math.nan, math.nan, False, id="NaN is not itself"),
        pytest.param(_WITH_NAN, _WITH_NAN, False, id="a list of lists with NaN in them is not itself"),
        pytest.param([[1], [1], [2]], [[1], [1], [3]], False, id="what was alike once says nothing of the rest"),
        pytest.param(None, None, True, id="null is null"),
        pytest.param(None, False, False, id="null is not false"),
        pytest.param([1, [True]], (1.0, [True]), True, id="lists element by element"),
        pytest.param([True], [1], False, id="true in a list is not 1 in a list"),
        pytest.param({1: "a"}, {UInt(1): "a"}, True, id="maps by keys across types"),
        pytest.param({key(True): "a"}, {1: "a"}, False, id="the key true is not the key 1"),
        pytest.param({"a": None}, {"b": None}, False, id="other keys"),
        pytest.param(Optional(1), Optional(1.0), True, id="optionals by their values"),
        pytest.param(Optional(None), NONE, False, id="null is not missing"),
        pytest.param(Timestamp(1, 3600), Timestamp(1), True, id="a moment is the same in all zones"),
        pytest.param(Timestamp(1), Duration(1), False, id="a moment is not a length of time"),
        pytest.param(TypeValue("int"), TypeValue("int"), True, id="types by name"),
        pytest.param(Amount(1000, -3), Amount(1), True, id="quantities whatever their spelling"),
        pytest.param(1, Amount(1), False, id="a number is not a quantity"),
        pytest.param([Amount(1)], [1], False, id="a quantity in a list is not a number in a list"),
    ],
)
def test_equality(left, right, expected):
    """What is equal to what."""
    assert expected is equal(left, right)
    assert expected is same(right, left)


def test_a_kubernetes_value_cannot_be_asked_about_another_type():
    """Upstream's asymmetry: the left side decides; null is fine, and so are lists and `!=`."""
    with pytest.raises(EvalError, match=r"^no such overload$"):
        equal(Amount(1), 1)
    assert not equal(1, Amount(1))
    assert not equal(Amount(1), None)
    assert not same(Amount(1), 1)
    assert not contains([1, "1"], Amount(1))


@given(_VALUES, _VALUES)
def test_equality_is_symmetric_and_knows_copies(one, other):
    """Of all that can be written in an expression but NaN."""
    assert same(one, one)
    assert same(one, other) == same(other, one)


@given(st.lists(_ANY, max_size=4) | st.lists(_FEW, max_size=4) | st.lists(_TIMES, max_size=4), _ANY)
def test_a_list_holds_what_is_equal_to_one_of_its_values(values, value):
    """However it is looked for."""
    assert any(same(value, each) for each in values) == contains(values, value)


@given(_ANY | st.lists(_TIMES, max_size=4), _ANY | st.lists(_TIMES, max_size=4))
def test_lists_are_equal_if_all_their_values_are(one, other):
    """Whatever their length is."""
    expected = same(one, other)
    if isinstance(one, list) and isinstance(other, list):
        assert expected == (len(one) == len(other) and all(map(same, one, other)))
    for count in (3, 128):
        left, right = [one] * count, [other] * count
        assert [expected] * 2 == [same(left, right), same({"k": left}, {"k": right})]


@given(_NUMBERS, _NUMBERS)
def test_order_agrees_with_equality_and_with_itself_backwards(one, other):
    """Of numbers, whatever their types."""
    assert compare(one, other) == -compare(other, one)
    assert same(one, other) == (compare(one, other) == 0)


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [
        pytest.param(math.nan, 1, "NaN values cannot be ordered", id="NaN"),
        pytest.param(1, "1", "no such overload", id="two types"),
        pytest.param(True, 1, "no such overload", id="a bool and a number"),
        pytest.param(None, None, "no such overload", id="nulls"),
        pytest.param([1], [2], "no such overload", id="lists"),
    ],
)
def test_what_has_no_order(left, right, text):
    """Order is refused in upstream's words."""
    with pytest.raises(EvalError, match=f"^{text}$"):
        compare(left, right)


@given(_SCALARS)
def test_keys_come_back_as_what_they_were(value):
    """`unkey` undoes `key`, type and all."""
    back = unkey(key(value))
    assert type(value) is type(back)
    assert same(value, back)


def test_a_list_is_no_key():
    """Callers say what that means where they are."""
    with pytest.raises(TypeError):
        key([1])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(None, "null_type", id="null"),
        pytest.param(True, "bool", id="a bool is no int"),
        pytest.param(UInt(1), "uint", id="a uint is no int"),
        pytest.param((1,), "list", id="a tuple is a list"),
        pytest.param({}, "map", id="a dict is a map"),
        pytest.param(Timestamp(0), "google.protobuf.Timestamp", id="timestamps have a long name"),
        pytest.param(Duration(0), "google.protobuf.Duration", id="durations have a long name"),
        pytest.param(Amount(1), "kubernetes.Quantity", id="Kubernetes' values have theirs"),
    ],
)
def test_names_of_types(value, expected):
    """What messages and `type(x)` call a value's type."""
    assert expected == type_name(value)


@given(_VERSIONS, _VERSIONS, _VERSIONS)
def test_versions_are_totally_ordered(one, other, third):
    """Exactly one of less, equal and greater; and order is handed on."""
    assert [one < other, one == other, one > other].count(True) == 1
    assert not (one <= other <= third) or one <= third
    assert one != other or hash(one) == hash(other)
