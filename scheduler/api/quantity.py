"""Kubernetes quantities as exact integers, and kinds of resource names.

A quantity is parsed once, when an object is decoded; short spellings are interned, because a cluster uses few
distinct ones. Accepted texts and rounding are upstream's (docs/spec/core.md §A.1). Any text takes linear time, and
numbers stay as short as comparisons need.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final, NamedTuple

from scheduler.core.caching import Interner

_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
"""Suffix → power of ten."""
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
"""Suffix → power of two."""
_FORM: Final = re.compile(r"([+-]?)0*+([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[+-]?[0-9]*+)")
_EXPONENT: Final = re.compile(r"[eE]([+-]?)0*+([0-9]*+)")
_SOME_DIGIT: Final = re.compile(r"[+-]?\.?[0-9]")
INT64_MAX: Final = 2**63 - 1
_NANO: Final = 10**9
_MILLI_IN_NANO: Final = 10**6
_FINEST: Final = -9
_LARGEST_DIGITS: Final = 91
_LARGEST_NANO: Final = 10 ** (_LARGEST_DIGITS + 9)
"""Amounts of 10^91 and more are equal to each other."""
_DIGITS: Final = 29
_BINARY_DIGITS: Final = 70
"""The digits that count before a binary suffix. Further digits are rounded away from zero."""
_VANISHING: Final = -40
"""Amounts below 10^-40 are one nano with any suffix."""
_REFUSED_EXPONENT: Final = -(2**31)
_LARGEST_EXPONENT: Final = 9_999
_INT64_DIGITS: Final = 19
_SHORT_DIGITS: Final = 19
_SHORT_BINARY_DIGITS: Final = 15
_SHOWN_LENGTH: Final = 100


class Form(NamedTuple):
    """The number `unscaled * 10**exponent`; the exponent is at most 9999.

    `is_small`: upstream stores it in 64 bits, and only such numbers are integers for it.
    """

    unscaled: int
    exponent: int
    is_small: bool


class Quantity:
    """One amount in the units of the scheduler. Equal amounts are equal in any spelling.

    `value` is whole units, `milli` thousandths; both are rounded away from zero, and saturate at the limits of int64.
    `nano` is exact, for comparisons: no finer than nano, at most int64 with a binary suffix, and 10^91 above. `form`
    is upstream's number, which only CEL selectors see.
    """

    __slots__ = ("form", "milli", "nano", "value")
    cel_type: ClassVar[str] = "kubernetes.Quantity"

    def __init__(self, nano: int, form: Form | None = None) -> None:
        self.value = int64(nano, _NANO)
        self.milli = int64(nano, _MILLI_IN_NANO)
        self.nano = nano
        self.form = form or Form(nano, _FINEST, is_small=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nano == other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __repr__(self) -> str:
        return f"Quantity({self.nano}n)"


def int64(nano: int, unit: int) -> int:
    """Return `nano` in units of `unit` billionths, rounded away from zero; the nearest limit of int64 beyond its range.

    Upstream: staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go Quantity.ScaledValue
    """
    amount = -(-abs(nano) // unit)
    if amount > INT64_MAX:
        return INT64_MAX if nano > 0 else -INT64_MAX - 1
    return amount if nano >= 0 else -amount


_INTERNED_LENGTH: Final = 32
_interned: Final[Interner[str, Quantity]] = Interner(10_000)


def parse(raw: str | float) -> Quantity:
    """`"100m"`, `"1Gi"`, `2` → Quantity. Raises ValueError naming the text. Interned: a repeat costs a dict look-up.

    Upstream: staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go ParseQuantity
    """
    text = raw if type(raw) is str else _spelled(raw)
    cached = _interned.get(text)
    if cached is not None:
        return cached
    quantity = _read(text)
    if len(text) <= _INTERNED_LENGTH:
        _interned.share(text, quantity)
    return quantity


def _spelled(raw: object) -> str:
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        return str(raw)
    raise ValueError(f"{type(raw).__name__} is not a quantity")


def _read(text: str) -> Quantity:
    match = _FORM.fullmatch(text) if text else None
    if match is None:
        raise _refused(text)
    sign, whole, fraction, suffix = match.groups("")
    bits = _BINARY.get(suffix, 0)
    power = 0 if bits else _power(text, suffix)
    whole = whole or "0"
    form = _short_binary(whole, fraction, bits) if bits else _short_decimal(sign, whole, fraction, power)
    if form is None and (power == _REFUSED_EXPONENT or not _SOME_DIGIT.match(text)):
        raise _refused(text)
    exponent = form.exponent if form is not None and not bits else power - len(fraction)
    nano = _nano(whole + fraction, exponent, bits)
    if bits:
        nano = min(nano, INT64_MAX * _NANO)
    if form is None:
        form = (
            Form(INT64_MAX, 0, is_small=False)
            if bits and nano == INT64_MAX * _NANO
            else Form(nano, _FINEST, is_small=False)
        )
    if sign == "-":
        nano, form = -nano, form._replace(unscaled=-form.unscaled)
    return Quantity(nano, form)


def _refused(text: str) -> ValueError:
    shown = text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."
    return ValueError(f"{shown!r} is not a quantity")


def _power(text: str, suffix: str) -> int:
    """Return the power of ten of a suffix or an exponent, which upstream stores in 32 bits."""
    power = _DECIMAL.get(suffix)
    if power is not None:
        return power
    match = _EXPONENT.fullmatch(suffix)
    if match is None or len(suffix) == len(match[1]) + 1 or len(match[2]) > _INT64_DIGITS:
        raise _refused(text)
    power = int(match[1] + (match[2] or "0"))
    if not -INT64_MAX - 1 <= power <= INT64_MAX:
        raise _refused(text)
    return _int32(power)


def _int32(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def _short_decimal(sign: str, whole: str, fraction: str, power: int) -> Form | None:
    """Return the form, without the sign, of a number that upstream parses in the short way; None if it does not."""
    exponent = _int32(power - len(fraction))
    if len(whole) + len(fraction) > _SHORT_DIGITS or exponent < _FINEST:
        return None
    unscaled = int(whole + fraction)
    if unscaled > INT64_MAX + (sign == "-"):
        return None
    return Form(unscaled, min(exponent, _LARGEST_EXPONENT), is_small=True)


def _short_binary(whole: str, fraction: str, bits: int) -> Form | None:
    is_short = not fraction and len(whole) + bits * 3 // 10 < _SHORT_BINARY_DIGITS
    return Form(int(whole) << bits, 0, is_small=True) if is_short else None


def _nano(digits: str, power: int, bits: int) -> int:
    """Return `digits * 10**power * 2**bits` in billionths, rounded up, at most `_LARGEST_NANO`."""
    digits = digits.lstrip("0")
    if not digits:
        return 0
    size = len(digits) + power
    if size > _LARGEST_DIGITS:
        return _LARGEST_NANO
    if size < _VANISHING:
        return 1
    kept = _BINARY_DIGITS if bits else _DIGITS
    rest = digits[kept:]
    amount, shift = int(digits[:kept]), power - _FINEST + len(rest)
    if rest.strip("0"):
        amount += 1
    amount <<= bits
    factor: int = 10 ** abs(shift)
    return amount * factor if shift >= 0 else -(-amount // factor)


UNREADABLE: Final = Quantity(_LARGEST_NANO * 10**10)
"""An unreadable amount: greater than any sum of readable amounts."""


_BINARY_UNITS: Final = tuple((suffix, 2**bits) for suffix, bits in reversed(_BINARY.items()))
_DECIMAL_UNITS: Final = tuple((suffix, 10 ** (power - _FINEST)) for suffix, power in reversed(_DECIMAL.items()))
"""In billionths."""


def text(quantity: Quantity) -> str:
    """Return the quantity in the spelling of an API server: a whole number of the largest unit without a remainder.

    Powers of 1024 come before powers of 1000, because the original spelling is not stored.
    """
    nano = quantity.nano
    if not nano:
        return "0"
    whole, rest = divmod(nano, _NANO)
    if not rest and abs(whole) <= INT64_MAX:  # a larger binary number is cut off
        for suffix, unit in _BINARY_UNITS:
            if not whole % unit:
                return f"{whole // unit}{suffix}"
    suffix, unit = next((s, u) for s, u in _DECIMAL_UNITS if not nano % u)
    return f"{nano // unit}{suffix}"


NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
"""Always counted, in this order; every other resource must be a scalar."""

_NATIVE_DOMAIN: Final = "kubernetes.io/"
_SCALAR_PREFIXES: Final = ("hugepages-", "attachable-volumes-")
_QUOTA_PREFIX: Final = "requests."


def is_extended(name: str) -> bool:
    """Return whether a name is extended: `example.com/gpu` has a domain that is not Kubernetes' own."""
    return "/" in name and _NATIVE_DOMAIN not in name and not name.startswith(_QUOTA_PREFIX)


def is_scalar(name: str) -> bool:
    """Return whether the resource counts like an extended one.

    Those are extended resources, huge pages, volume attachments and `kubernetes.io/…`.
    """
    return is_extended(name) or name.startswith(_SCALAR_PREFIXES) or _NATIVE_DOMAIN in name


def domain(name: str) -> str:
    """Return the part before the slash; the whole name without one."""
    return name.split("/", 1)[0]
