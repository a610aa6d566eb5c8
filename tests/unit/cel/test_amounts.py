"""What only device selectors see of a quantity: sums, and upstream's idea of an integer."""

from hypothesis import given, strategies as st

from scheduler.api.quantity import parse
from scheduler.cel.libraries.quantities import Amount, minus, order, plus

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
