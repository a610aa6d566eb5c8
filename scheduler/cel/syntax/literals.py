"""Conversion of number and string tokens to values. Errors are `ValueError`s with cel-go's text."""

from __future__ import annotations

import math
import re
from typing import Final

from scheduler.cel.syntax import lexer
from scheduler.cel.values import UInt, Value

_LONGEST_NUMBER: Final = 4000
"""Python rejects longer numbers; except for leading zeros, a 64-bit number never has this length."""
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
# The lexer accepts the digits that belong to each letter, but does not stop before further digits.
_ESCAPES: Final = re.compile(r"\\(?:[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|[\s\S])")


def value(kind: str, text: str, *, is_negative: bool) -> Value:
    """Return the value of a token. A sign before a number belongs to it, so that the lowest number can be written."""
    match kind:
        case lexer.INT:
            return to_int(text, is_negative=is_negative)
        case lexer.FLOAT:
            return to_double(text, is_negative=is_negative)
        case lexer.UINT:
            return to_uint(text)
        case lexer.STRING:
            return to_string(text)
        case lexer.BYTES:
            return to_bytes(text)
        case _:
            return _CONSTANTS[kind]


def to_int(text: str, *, is_negative: bool = False) -> int:
    """Convert `12` or `0x1F`."""
    number = _magnitude(text)
    if number is None or number > (1 << 63) - (not is_negative):
        raise ValueError("invalid int literal")
    return -number if is_negative else number


def to_uint(text: str) -> UInt:
    """Convert `12u` or `0x1Fu`."""
    number = _magnitude(text[:-1])
    if number is None or number >= 1 << 64:
        raise ValueError("invalid uint literal")
    return UInt(number)


def _magnitude(text: str) -> int | None:
    digits = text.removeprefix("0x").lstrip("0")
    if len(digits) > _LONGEST_NUMBER:
        return None
    return int(digits or "0", 16 if text.startswith("0x") else 10)


def to_double(text: str, *, is_negative: bool = False) -> float:
    """Convert a double; a number that is too large for 64 bits is an error, one that is too small is zero."""
    number = float(text)
    if math.isinf(number):
        raise ValueError("invalid double literal")
    return -number if is_negative else number


def to_string(text: str) -> str:
    """Remove quotes and prefix, and decode escapes; every line ending becomes a newline."""
    body, is_raw = _unquoted(text)
    if is_raw or "\\" not in body:
        return body
    return _ESCAPES.sub(lambda match: _character(match.group()), body)


def to_bytes(text: str) -> bytes:
    """Decode a text to UTF-8 as `to_string` does, but hexadecimal and octal escapes are bytes."""
    body, is_raw = _unquoted(text[1:])
    if is_raw or "\\" not in body:
        return body.encode()
    pieces: list[bytes] = []
    done = 0
    for match in _ESCAPES.finditer(body):
        pieces += (body[done : match.start()].encode(), _byte(match.group()))
        done = match.end()
    pieces.append(body[done:].encode())
    return b"".join(pieces)


def _unquoted(text: str) -> tuple[str, bool]:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    is_raw = text[0] in "rR"
    text = text[is_raw:]
    width = 3 if len(text) >= 6 and text[:3] in {'"""', "'''"} else 1
    return text[width:-width], is_raw


def _character(escape: str) -> str:
    code = _code(escape)
    if code is None:
        return _SIMPLE.get(escape[1], escape[1])
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError("invalid unicode code point")
    return chr(code)


def _byte(escape: str) -> bytes:
    if escape[1] in "uU":
        raise ValueError("unable to unescape string")
    code = _code(escape)
    return _SIMPLE.get(escape[1], escape[1]).encode() if code is None else bytes((code,))


def _code(escape: str) -> int | None:
    if escape[1] in "xXuU":
        return int(f"0x{escape[2:]}", base=0)
    return int(escape[1:], base=8) if escape[1] in "0123" else None
