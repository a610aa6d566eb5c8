"""Conversions between types: `int`, `uint`, `double`, `string`, `bytes`, `bool`, `dyn`, `type`."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Final

from scheduler.cel.check.types import BOOL, BYTES, DOUBLE, DYN, INT, STRING, UINT, A, Overload, type_of
from scheduler.cel.errors import EvalError
from scheduler.cel.go_format import double as double_text, scalar
from scheduler.cel.libraries.declaring import function
from scheduler.cel.libraries.operators import int64, uint64
from scheduler.cel.values import TypeValue, UInt, Value, type_name

_MOST_DIGITS: Final = 18
_INT: Final = re.compile(r"[+-]?[0-9]+")
_UINT: Final = re.compile(r"[0-9]+")
_DOUBLE: Final = re.compile(r"[+-]?(?=\.?[0-9])[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9]+)?")
_HEX_DOUBLE: Final = re.compile(r"[+-]?0[xX](?=\.?[0-9a-fA-F])[0-9a-fA-F]*(?:\.[0-9a-fA-F]*)?[pP][+-]?[0-9]+")
_NO_NUMBER: Final = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE)
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def refused(from_: str, to: str) -> EvalError:
    """Return upstream's error for a value that cannot be converted."""
    return EvalError(f"type conversion error from '{from_}' to '{to}'")


def _text_to_int(text: str) -> int:
    if text.isdecimal() and len(text) <= _MOST_DIGITS and text.isascii():
        return int(text)
    value = int(text) if len(text) < 100 and _INT.fullmatch(text) else None
    if value is None or not -(2**63) <= value < 2**63:
        raise refused("string", "int")
    return value


def _text_to_uint(text: str) -> UInt:
    if text.isdecimal() and len(text) <= _MOST_DIGITS and text.isascii():
        return UInt(text)
    value = int(text) if len(text) < 100 and _UINT.fullmatch(text) else None
    if value is None or value >= 2**64:
        raise refused("string", "uint")
    return UInt(value)


def to_double(text: str) -> float:
    """Convert a text as Go does: also hexadecimal numbers and underscores, but no number that is too large."""
    try:
        if _DOUBLE.fullmatch(text):
            value = float(text)
        elif _NO_NUMBER.fullmatch(text):
            return float(text)
        elif _HEX_DOUBLE.fullmatch(text):
            value = float.fromhex(text)
        else:
            raise refused("string", "double")
    except (ValueError, OverflowError):
        raise refused("string", "double") from None
    if math.isinf(value):
        raise refused("string", "double")
    return value


def _text_to_bool(text: str) -> bool:
    try:
        return _BOOLS[text]
    except KeyError:
        raise refused("string", "bool") from None


def _double_to_int(value: float) -> int:
    if not -(2.0**63) < value < 2.0**63:
        raise EvalError("integer overflow")
    return int(value)


def _double_to_uint(value: float) -> UInt:
    if not 0 <= value < 2.0**64:
        raise EvalError("unsigned integer overflow")
    return UInt(value)


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvalError("invalid UTF-8 in bytes, cannot convert to string") from None


_type_value: Final = cache(TypeValue)


def itself(value: Value) -> Value:
    return value


CONVERSIONS: Final[tuple[Overload, ...]] = (
    function("int", "int64_to_int64", ((INT,), INT), itself),
    function("int", "double_to_int64", ((DOUBLE,), INT), _double_to_int),
    function("int", "string_to_int64", ((STRING,), INT), _text_to_int),
    function("int", "uint64_to_int64", ((UINT,), INT), lambda value: int64(int(value))),
    function("uint", "uint64_to_uint64", ((UINT,), UINT), itself),
    function("uint", "double_to_uint64", ((DOUBLE,), UINT), _double_to_uint),
    function("uint", "int64_to_uint64", ((INT,), UINT), uint64),
    function("uint", "string_to_uint64", ((STRING,), UINT), _text_to_uint),
    function("double", "double_to_double", ((DOUBLE,), DOUBLE), itself),
    function("double", "int64_to_double", ((INT,), DOUBLE), float),
    function("double", "string_to_double", ((STRING,), DOUBLE), to_double),
    function("double", "uint64_to_double", ((UINT,), DOUBLE), float),
    function("string", "string_to_string", ((STRING,), STRING), itself),
    function("string", "bool_to_string", ((BOOL,), STRING), scalar),
    function("string", "bytes_to_string", ((BYTES,), STRING), _decoded),
    function("string", "double_to_string", ((DOUBLE,), STRING), double_text),
    function("string", "int64_to_string", ((INT,), STRING), str),
    function("string", "uint64_to_string", ((UINT,), STRING), str),
    function("bytes", "bytes_to_bytes", ((BYTES,), BYTES), itself),
    function("bytes", "string_to_bytes", ((STRING,), BYTES), str.encode),
    function("bool", "bool_to_bool", ((BOOL,), BOOL), itself),
    function("bool", "string_to_bool", ((STRING,), BOOL), _text_to_bool),
    function("dyn", "to_dyn", ((A,), DYN), itself),
    function("type", "type", ((A,), type_of(A)), lambda value: _type_value(type_name(value))),
)
