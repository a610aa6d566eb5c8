"""Kubernetes quantities as exact integers.

A quantity is parsed once, where an object is decoded, and interned: a cluster uses few distinct ones.
Rounding is upwards, as the scheduler's (docs/spec/core.md §A.1).
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_UP, Context, Decimal
from typing import Final

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
_FORM: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,4})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?")
_EXACT: Final = Context(prec=80)
_MAX: Final = 2**63 - 1
_LARGEST: Final = Decimal(_MAX)
_NANO: Final = Decimal(10**9)


class Quantity:
    """One amount, in the units the scheduler asks for. Equal amounts are equal, whatever their spelling.

    `value` is whole units, `milli` thousandths; both rounded up and capped at int64 as upstream's. `nano` is exact, for
    comparing: as upstream reads a quantity, no finer than nano, and no greater than int64 with a binary suffix.
    """

    __slots__ = ("milli", "nano", "value")

    def __init__(self, *, value: int, milli: int, nano: int) -> None:
        self.value = value
        self.milli = milli
        self.nano = nano

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
    quantity = Quantity(value=_up(amount), milli=_up(_EXACT.multiply(amount, Decimal(1000))), nano=nano)
    if len(_interned) < 100_000:
        _interned[raw] = quantity
    return quantity


def _up(amount: Decimal) -> int:
    whole = int(amount.to_integral_value(rounding=ROUND_CEILING, context=_EXACT))
    return max(-_MAX, min(_MAX, whole))
