"""Texts as Go writes them: what upstream prints is what users see."""

from __future__ import annotations

import math
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
    """`%q`."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(ESCAPES.get(each) or _shown(each) for each in text) + '"'


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as `surrogateescape` decodes it
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_SHORT: Final = (1e-4, 1e6)
_LONG: Final = 1e16


def double(value: float) -> str:
    """`%g`: the shortest text that reads back as the same number, with an exponent from a million on."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{value:+}".replace("inf", "Inf")
    if _SHORT[0] <= abs(value) < _SHORT[1]:  # Python writes it in the same way, but for `.0`
        return repr(value).removesuffix(".0")
    if abs(value) >= _LONG:  # and here, too
        return repr(value)
    sign, figures, point = _decimal(value)
    if -4 <= point - 1 < 6:
        return sign + _placed(figures, point)
    fraction = f".{figures[1:]}" if len(figures) > 1 else ""
    return f"{sign}{figures[0]}{fraction}e{'-' if point < 1 else '+'}{abs(point - 1):02d}"


def without_exponent(value: float) -> str:
    """The same number without an exponent, as in the text of a duration."""
    if _SHORT[0] <= abs(value) < _LONG:
        return repr(value).removesuffix(".0")
    sign, figures, point = _decimal(value)
    return sign + _placed(figures, point)


def scalar(value: Value) -> str:
    """`%v` of what a message shows: a key, an element."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return double(value) if isinstance(value, float) else str(value)


def _decimal(value: float) -> tuple[str, str, int]:
    """Sign, figures, and after how many of them the point is."""
    text = repr(value)
    mantissa, _, exponent = text.removeprefix("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    all_figures = (whole + fraction).lstrip("0")
    figures = all_figures.rstrip("0") or "0"
    point = len(all_figures) - len(fraction) + int(exponent or 0) if all_figures else 1
    return "-" if text.startswith("-") else "", figures, point


def _placed(figures: str, point: int) -> str:
    if point <= 0:
        return f"0.{'0' * -point}{figures}"
    if point >= len(figures):
        return figures + "0" * (point - len(figures))
    return f"{figures[:point]}.{figures[point:]}"
