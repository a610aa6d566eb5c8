"""Kubernetes' quantities as selectors see them: upstream's own numbers, of which it calls only some integers."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar, Final

from msgspec import Struct

_MAX: Final = 2**63 - 1
_HALF: Final = 2**62
_FINEST: Final = -9


class Amount(Struct, frozen=True, eq=False, gc=False):
    """`unscaled * 10**exponent`, no finer than billionths. Equal amounts are equal, whatever their spelling.

    `is_small`: upstream keeps it in 64 bits, and calls only such numbers integers.
    """

    unscaled: int
    exponent: int = 0
    is_small: bool = True
    cel_type: ClassVar[str] = "kubernetes.Quantity"

    @property
    def nano(self) -> int:
        """Billionths."""
        return self.unscaled * _power(self.exponent - _FINEST)

    def __eq__(self, other: object) -> bool:
        return type(other) is Amount and order(self, other) == 0

    def __hash__(self) -> int:
        return hash(self.nano)

    def as_int64(self) -> int | None:
        """The number if upstream takes it for an integer, which depends on the spelling: "1" is one, "1000m" is not."""
        if not self.is_small or self.exponent < 0 or (self.unscaled and self.exponent > 18):
            return None
        whole = self.unscaled * _power(min(self.exponent, 18)) if self.exponent else self.unscaled
        return whole if abs(whole) <= _MAX else None

    def as_float(self) -> float:
        """The nearest double, give or take the last digit: computed as upstream does."""
        try:
            return float(self.unscaled) * float(f"1e{self.exponent}") if self.exponent else float(self.unscaled)
        except OverflowError:
            return math.copysign(math.inf, self.unscaled)


def order(one: Amount, other: Amount) -> int:
    """-1, 0 or 1."""
    left, right = one.unscaled, other.unscaled
    if one.exponent != other.exponent:
        left, right = one.nano, other.nano
    return (left > right) - (left < right)


def plus(one: Amount, other: Amount) -> Amount:
    """The exact sum."""
    left, right = one.unscaled, other.unscaled
    if one.exponent == other.exponent and -_HALF < left < _HALF and -_HALF < right < _HALF:
        return Amount(left + right, one.exponent, one.is_small and other.is_small)
    return _sum(one, other)


def minus(one: Amount, other: Amount) -> Amount:
    """The exact difference."""
    return plus(one, Amount(-other.unscaled, other.exponent, other.is_small))


def _sum(one: Amount, other: Amount) -> Amount:
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


@lru_cache(maxsize=128)
def _power(exponent: int) -> int:
    """Of ten. There are some of ten thousand digits."""
    return int(10**exponent)
