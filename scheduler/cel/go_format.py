"""Formatting of values as Go does it, for texts that are equal to upstream's."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

from msgspec.json import Encoder

from scheduler.cel.values import Value

ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def quoted(text: str) -> str:
    """Return the text of `%q`."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(ESCAPES.get(each) or _shown(each) for each in text) + '"'


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as decoded by `surrogateescape`
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_SHORT: Final = (1e-4, 1e6)
_LONG: Final = 1e16
_EXPONENTS: Final = tuple(f"e+{power:02d}" for power in range(17))
_shortest: Final = Encoder().encode
"""The same digits as `repr`, many times faster; the exponent has no plus and no zeros."""


def double(value: float) -> str:
    """Return the text of `%g`: the shortest text for the number, with an exponent from a million on."""
    if _SHORT[0] <= (magnitude := abs(value)) < _SHORT[1]:
        return _shortest(value).decode().removesuffix(".0")
    if _LONG <= magnitude < math.inf:
        return _shortest(value).decode().replace("e", "e+")
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{value:+}".replace("inf", "Inf")
    if not value:
        return "-0" if math.copysign(1, value) < 0 else "0"
    return _exponential(value) if value > 0 else f"-{_exponential(-value)}"


def _exponential(value: float) -> str:
    """Return the text of a number with an exponent, where the fast encoder writes none or one that differs from Go's."""
    text = _shortest(value).decode()
    if value >= 1:
        whole, _, fraction = text.partition(".")
        figures = (whole[1:] + fraction).rstrip("0")
        exponent = _EXPONENTS[len(whole) - 1]
        return f"{whole[0]}.{figures}{exponent}" if figures else whole[0] + exponent
    figures, exponent, power = text.partition("e-")
    if exponent:
        return f"{figures}e-{power:0>2}"
    figures = text[2:].lstrip("0")
    return f"{figures[0]}{'.' if len(figures) > 1 else ''}{figures[1:]}e-{len(text) - 1 - len(figures):02d}"


def without_exponent(value: float) -> str:
    """Return the text without an exponent, as in the text of a duration."""
    if _SHORT[0] <= abs(value) < _LONG:
        return _shortest(value).decode().removesuffix(".0")
    return f"{Decimal(repr(value)):f}".removesuffix(".0")


def scalar(value: Value) -> str:
    """Return the text of `%v` for a key or an element in a message."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return double(value) if isinstance(value, float) else str(value)
