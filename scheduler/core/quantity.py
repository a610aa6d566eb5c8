"""Kubernetes quantities as exact integers.

A quantity is parsed once, where an object is decoded, and interned: a cluster uses few distinct ones.
Rounding is upwards, as the scheduler's (docs/spec/core.md §A.1).
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_UP, Context, Decimal
from typing import ClassVar, Final, NamedTuple

_SUFFIX: Final = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
_FORM: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,4})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?"
)
_EXACT: Final = Context(prec=80)
_MAX: Final = 2**63 - 1
_LARGEST: Final = Decimal(_MAX)
_NANO: Final = Decimal(10**9)


class Form(NamedTuple):
    """`unscaled * 10**exponent`. `is_small`: upstream keeps it in 64 bits, and calls only such numbers integers."""

    unscaled: int
    exponent: int
    is_small: bool


class Quantity:
    """One amount, in the units the scheduler asks for. Equal amounts are equal, whatever their spelling.

    `value` is whole units, `milli` thousandths; both rounded up and capped at int64 as upstream's. `nano` is exact, for
    comparing: as upstream reads a quantity, no finer than nano, and no greater than int64 with a binary suffix.
    `form` is upstream's own number, which only selectors can see.
    """

    __slots__ = ("form", "milli", "nano", "value")
    cel_type: ClassVar[str] = "kubernetes.Quantity"

    def __init__(self, *, value: int, milli: int, nano: int, form: Form | None = None) -> None:
        self.value = value
        self.milli = milli
        self.nano = nano
        self.form = form or Form(nano, -9, is_small=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nano == other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __repr__(self) -> str:
        return f"Quantity({self.milli}m)"


_interned: dict[str | int | float, Quantity] = {}


def parse(raw: str | float) -> Quantity:
    """`"100m"`, `"1Gi"`, `2` → Quantity. Raises ValueError naming the text. Interned: a repeat costs a dict look-up."""
    known = _interned.get(raw)
    if known is not None:
        return known
    match = _FORM.fullmatch(str(raw))
    if match is None:
        raise ValueError(f"{raw!r} is not a quantity")
    number, exponent, suffix = match.groups()
    amount = _EXACT.multiply(Decimal(number + (exponent or "")), _SUFFIX[suffix or ""])
    if suffix and suffix.endswith("i"):
        amount = max(-_LARGEST, min(_LARGEST, amount))
    nano = int(_EXACT.multiply(amount, _NANO).to_integral_value(rounding=ROUND_UP, context=_EXACT))
    is_capped = suffix is not None and suffix.endswith("i") and abs(amount) == _LARGEST
    large = Form(int(amount), 0, is_small=False) if is_capped else Form(nano, -9, is_small=False)
    form = _small_form(number, exponent, suffix) or large
    quantity = _of_amount(amount, nano, form)
    if len(_interned) < 100_000:
        _interned[raw] = quantity
    return quantity


def _of_amount(amount: Decimal, nano: int, form: Form) -> Quantity:
    return Quantity(value=_up(amount), milli=_up(_EXACT.multiply(amount, Decimal(1000))), nano=nano, form=form)


def _small_form(number: str, exponent: str | None, suffix: str | None) -> Form | None:
    """How upstream keeps a number that it reads the short way; None if it does not."""
    whole, _, fraction = number.lstrip("+-").partition(".")
    whole = whole.lstrip("0") or "0"
    sign = -1 if number.startswith("-") else 1
    if suffix and suffix.endswith("i"):
        bits = int(_SUFFIX[suffix]).bit_length() - 1
        product = int(whole) << bits
        is_short = not fraction and 15 - len(whole) - bits * 3 // 10 - 1 >= 0 and product <= _MAX
        return Form(sign * product, 0, is_small=True) if is_short else None
    scale = (int(exponent[1:]) if exponent else _SUFFIX[suffix or ""].adjusted()) - len(fraction)
    is_short = len(whole) + len(fraction) <= 18 and scale >= -9
    return Form(sign * int(whole + fraction), scale, is_small=True) if is_short else None


def from_nano(nano: int) -> Quantity:
    """The quantity of that many billionths."""
    amount = _EXACT.divide(Decimal(nano), _NANO)
    return Quantity(value=_up(amount), milli=_up(_EXACT.multiply(amount, Decimal(1000))), nano=nano)


def _up(amount: Decimal) -> int:
    whole = int(amount.to_integral_value(rounding=ROUND_CEILING, context=_EXACT))
    return max(-_MAX, min(_MAX, whole))


_BINARY: Final = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_DECIMAL: Final = (
    ("E", 27),
    ("P", 24),
    ("T", 21),
    ("G", 18),
    ("M", 15),
    ("k", 12),
    ("", 9),
    ("m", 6),
    ("u", 3),
    ("n", 0),
)
"""With the power of ten that each is in billionths."""


def text(quantity: Quantity) -> str:
    """The quantity as an API server spells it: a whole number of the largest unit that leaves nothing over.

    1024 and its powers go before 1000 and its own: how the quantity was spelled once is not known any more.
    """
    nano = quantity.nano
    whole, rest = divmod(nano, 10**9)
    if whole and not rest and abs(whole) <= _MAX:  # beyond, a binary number is cut off
        for suffix in _BINARY:
            unit = int(_SUFFIX[suffix])
            if not whole % unit:
                return f"{whole // unit}{suffix}"
    suffix, power = next((s, p) for s, p in _DECIMAL if nano and not nano % 10**p) if nano else ("", 9)
    return f"{nano // 10**power}{suffix}"
