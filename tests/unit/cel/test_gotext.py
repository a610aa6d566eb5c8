"""Doubles as Go writes them, against a plain way to find the same text."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given, strategies as st

from scheduler.cel.go_format import double


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


_NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.builds(
    lambda figures, power: figures * 10.0**power, st.integers(-(10**17), 10**17), st.integers(-25, 25)
)


@given(_NUMBERS)
def test_a_double_is_written_as_go_writes_it(value):
    assert double(value) == _plainly(value)
    assert float(double(value)) == value
