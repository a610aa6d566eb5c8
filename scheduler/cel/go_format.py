"""Formatting of values as Go does it, for texts that are equal to upstream's."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

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


def double(value: float) -> str:
    """Return the text of `%g`: the shortest text for the number, with an exponent from a million on."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{value:+}".replace("inf", "Inf")
    if not value or 1e-4 <= abs(value) < 1e6:
        return repr(value).removesuffix(".0")
    shortest = f"{Decimal(repr(value)).normalize():e}"  # rounding `value` itself again would break a tie the other way
    mantissa, _, exponent = shortest.partition("e")
    return f"{mantissa}e{int(exponent):+03d}"


def without_exponent(value: float) -> str:
    """Return the text without an exponent, as in the text of a duration."""
    return f"{Decimal(repr(value)):f}".removesuffix(".0")


def scalar(value: Value) -> str:
    """Return the text of `%v` for a key or an element in a message."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return double(value) if isinstance(value, float) else str(value)
