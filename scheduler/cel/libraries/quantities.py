"""Kubernetes' quantities in selectors: `quantity("10Gi")`.

Only some of upstream's numbers count as integers, depending on their internal form.

Upstream: staging/src/k8s.io/apiserver/pkg/cel/library/quantity.go Quantity
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import ClassVar, Final

from msgspec import Struct

from scheduler.api.quantity import parse
from scheduler.cel.check.types import BOOL, DOUBLE, INT, QUANTITY, STRING, Overload
from scheduler.cel.errors import EvalError
from scheduler.cel.libraries.declaring import Remembered, function, member

_MAX: Final = 2**63 - 1
_FINEST: Final = -9


class Amount(Struct, frozen=True, eq=False, gc=False):
    """The number `unscaled * 10**exponent`, no finer than billionths. Amounts in different formats can be equal.

    `is_small`: upstream stores the number in 64 bits. Only such numbers can count as integers.
    """

    unscaled: int
    exponent: int = 0
    is_small: bool = True
    cel_type: ClassVar[str] = "kubernetes.Quantity"

    @property
    def nano(self) -> int:
        """The amount in billionths."""
        return self.unscaled * _power(self.exponent - _FINEST)

    def __eq__(self, other: object) -> bool:
        return type(other) is Amount and order(self, other) == 0

    def __hash__(self) -> int:
        return hash(self.nano)

    def as_int64(self) -> int | None:
        """Return the number if upstream treats it as an integer, else None.

        That depends on the format: "1" is one, "1000m" is not.
        """
        if not self.is_small or self.exponent < 0 or (self.unscaled and self.exponent > 18):
            return None
        whole = self.unscaled * _power(min(self.exponent, 18)) if self.exponent else self.unscaled
        return whole if -_MAX - 1 <= whole <= _MAX else None

    def as_float(self) -> float:
        """Return the nearest double, except for the last digit: it is computed as upstream does."""
        try:
            return float(self.unscaled) * float(f"1e{self.exponent}") if self.exponent else float(self.unscaled)
        except OverflowError:
            return math.inf if self.unscaled > 0 else -math.inf


def order(one: Amount, other: Amount) -> int:
    """Return -1, 0 or 1."""
    left, right = one.unscaled, other.unscaled
    if one.exponent != other.exponent:
        left, right = one.nano, other.nano
    return (left > right) - (left < right)


def plus(one: Amount, other: Amount) -> Amount:
    """Return the exact sum."""
    if one.is_small and other.is_small:
        if other.unscaled == 0:
            return one
        if one.unscaled == 0:
            return other
    exponent = min(one.exponent, other.exponent)
    left = one.unscaled * _power(one.exponent - exponent)
    right = other.unscaled * _power(other.exponent - exponent)
    is_small = one.is_small and other.is_small and max(abs(left), abs(right), abs(left + right)) <= _MAX
    return Amount(left + right, exponent, is_small)


def minus(one: Amount, other: Amount) -> Amount:
    """Return the exact difference."""
    return plus(one, Amount(-other.unscaled, other.exponent, other.is_small))


@lru_cache(maxsize=128)
def _power(exponent: int) -> int:
    """Return a power of ten, which may have ten thousand digits."""
    return int(10**exponent)


_WELL_FORMED: Final = re.compile(r"[+-]?[0-9]*+(?:\.[0-9]*+)?[eEinumkKMGTP]*+[-+]?[0-9]*+")
_WITHOUT_DIGITS: Final = re.compile(r"([+-]?)\.?([A-Za-z].*)?")
_ILL_FORMED_TEXT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@Remembered
def _quantity(text: str) -> Amount:
    """Parse any quantity. Upstream reads a number without digits as zero if the number has its 64-bit form."""
    bare = _WITHOUT_DIGITS.fullmatch(text) if text else None
    try:
        found = Amount(*parse(f"{bare[1]}0{bare[2] or ''}" if bare else text).form)
    except ValueError:
        is_well_formed = text and _WELL_FORMED.fullmatch(text)
        raise EvalError("unable to parse quantity's suffix" if is_well_formed else _ILL_FORMED_TEXT) from None
    if bare and not found.is_small:
        raise EvalError("unable to parse numeric part of quantity")
    return found


def _integer(value: Amount) -> int:
    whole = value.as_int64()
    if whole is None:
        raise EvalError("cannot convert value to integer")
    return whole


_PAIR: Final = (QUANTITY, QUANTITY)
_WITH_INT: Final = (QUANTITY, INT)
_ZERO: Final = Amount(0)

QUANTITIES: Final[tuple[Overload, ...]] = (
    function("quantity", "string_to_quantity", ((STRING,), QUANTITY), _quantity),
    function("isQuantity", "is_quantity_string", ((STRING,), BOOL), _quantity.accepts),
    function("sign", "quantity_sign", ((QUANTITY,), INT), lambda value: order(value, _ZERO)),
    member("isGreaterThan", "quantity_is_greater_than", (_PAIR, BOOL), lambda one, other: order(one, other) > 0),
    member("isLessThan", "quantity_is_less_than", (_PAIR, BOOL), lambda one, other: order(one, other) < 0),
    member("compareTo", "quantity_compare_to", (_PAIR, INT), order),
    member("asApproximateFloat", "quantity_get_float", ((QUANTITY,), DOUBLE), Amount.as_float),
    member("asInteger", "quantity_get_int", ((QUANTITY,), INT), _integer),
    member("isInteger", "quantity_is_integer", ((QUANTITY,), BOOL), lambda value: value.as_int64() is not None),
    member("add", "quantity_add", (_PAIR, QUANTITY), plus),
    member("add", "quantity_add_int", (_WITH_INT, QUANTITY), lambda value, more: plus(value, Amount(more))),
    member("sub", "quantity_sub", (_PAIR, QUANTITY), minus),
    member("sub", "quantity_sub_int", (_WITH_INT, QUANTITY), lambda value, less: plus(value, Amount(-less))),
)
