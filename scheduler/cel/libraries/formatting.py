"""`"%s is %.2f".format([...])` as cel-go had it before version 4 of its strings extension, in American English."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from scheduler.cel.gotext import double, quoted, scalar
from scheduler.cel.libraries.times import duration_text, timestamp_text
from scheduler.cel.values import Duration, EvalError, Timestamp, TypeValue, UInt, Value, type_name, unkey

_KEPT: Final = 256
_LONGEST_KEPT: Final = 256
_PRECISION: Final = 6
_MOST_DIGITS: Final = 340
_DIGITS: Final = re.compile(r"[0-9]*")
_RAISED: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_FOR_STRING: Final = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
_WORDS_FOR_NUMBERS: Final = frozenset({"NaN", "Infinity", "-Infinity"})

_Clause = Callable[[Value], str]


class _Template(NamedTuple):
    """Texts and clauses, and what is wrong with the clause behind them."""

    parts: tuple[str | _Clause, ...]
    error: str | None


def formatted(pattern: str, values: Sequence[Value]) -> str:
    """The text with its clauses replaced by the values."""
    template = _template(pattern) if len(pattern) <= _LONGEST_KEPT else _template.__wrapped__(pattern)
    texts: list[str] = []
    used = 0
    try:
        for part in template.parts:
            if isinstance(part, str):
                texts.append(part)
            else:
                texts.append(part(values[used]))
                used += 1
    except EvalError as error:
        raise EvalError(f"error during formatting: {error}") from None
    except IndexError:
        raise EvalError(f"index {used} out of range") from None
    if template.error is not None:
        raise EvalError(template.error if used < len(values) else f"index {used} out of range")
    return "".join(texts)


@lru_cache(maxsize=_KEPT)
def _template(pattern: str) -> _Template:
    parts: list[str | _Clause] = []
    at = 0
    while at < len(pattern):
        if pattern[at] != "%":
            end = pattern.find("%", at)
            end = len(pattern) if end < 0 else end
            parts.append(pattern[at:end])
            at = end
        elif pattern.startswith("%%", at):
            parts.append("%")
            at += 2
        elif at + 1 == len(pattern):
            return _Template(tuple(parts), "unexpected end of string")
        else:
            try:
                at, clause = _clause(pattern, at + 1)
            except EvalError as error:
                return _Template(tuple(parts), str(error))
            parts.append(clause)
    return _Template(tuple(parts), None)


def _clause(pattern: str, at: int) -> tuple[int, _Clause]:
    """What follows a percent sign, and where that ends."""
    precision: int | None = None
    if pattern[at] == ".":
        digits = _DIGITS.match(pattern, at + 1)
        assert digits is not None
        if digits.end() == len(pattern):
            raise _malformed("error while parsing precision: could not find end of precision specifier")
        if not digits[0] or len(digits[0]) > 18:
            why = "value out of range" if digits[0] else "invalid syntax"
            raise _malformed(
                "error while parsing precision: error while converting precision to integer: "
                f"strconv.Atoi: parsing {quoted(digits[0])}: {why}"
            )
        precision, at = int(digits[0]), digits.end()
    letter = pattern[at]
    match letter:
        case "f":
            return at + 1, lambda value: _fixed(value, precision)
        case "e":
            return at + 1, lambda value: _scientific(value, precision)
        case _ if letter in _CLAUSES:
            return at + 1, _CLAUSES[letter]
    shown = letter.encode()[:1].decode("latin-1")
    raise _malformed(f'unrecognized formatting clause "{shown}"')


def _malformed(why: str) -> EvalError:
    return EvalError(f"could not parse formatting clause: {why}")


def _string(value: Value) -> str:
    if type(value) is str:
        return value
    match value:
        case None:
            return "null"
        case bool() | int() | float():
            return scalar(value)
        case str():
            return value
        case bytes():
            return _decoded(value)
        case Timestamp():
            return timestamp_text(value)
        case Duration():
            return duration_text(value)
        case TypeValue():
            return value.name
    nested = _nested(value)
    if nested is None:
        raise EvalError(f"string clause can only be used on {_FOR_STRING}, was given {type_name(value)}")
    return nested


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        why = "invalid UTF-8 in bytes, cannot convert to string"
        raise EvalError(f'could not convert argument "{why}" to string') from None


def _nested(value: Value) -> str | None:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, Mapping) and type_name(value) == "map":
        entries = sorted((_key(unkey(name)), _literal(each)) for name, each in value.items())
        return "{" + ", ".join(f"{name}:{each}" for name, each in entries) + "}"
    return None


def _key(name: Value) -> str:
    if isinstance(name, float) or name is None or not isinstance(name, str | int):
        raise EvalError(f"no formatting function for map key of type {type_name(name)}")
    return quoted(name) if isinstance(name, str) else scalar(name)


def _literal(value: Value) -> str:
    """As it would be written in an expression, inside a list or map."""
    match value:
        case str():
            return quoted(value)
        case bytes():
            return f"b{quoted(_decoded(value))}"
        case float():
            return f"{value:.6f}" if math.isfinite(value) else quoted(double(value))
        case Timestamp():
            return f"timestamp({quoted(timestamp_text(value))})"
        case Duration():
            return f"duration({quoted(duration_text(value))})"
        case None | bool() | int() | TypeValue():
            return _string(value)
    nested = _nested(value)
    if nested is None:
        raise EvalError(f"no formatting function for {type_name(value)}")
    return nested


def _is_integer(value: Value) -> bool:
    return type(value) in {int, UInt}


def _decimal(value: Value) -> str:
    if type(value) is int:
        return str(value)
    if not _is_integer(value):
        raise EvalError(f"decimal clause can only be used on integers, was given {type_name(value)}")
    return str(value)


def _number(value: Value, clause: str) -> float:
    if type(value) is float:
        return value
    if isinstance(value, str) and value in _WORDS_FOR_NUMBERS:
        return float(value)
    raise EvalError(f"{clause} clause can only be used on doubles, was given {type_name(value)}")


def _endless(number: float) -> str:
    return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"


def _fixed(value: Value, precision: int | None) -> str:
    number = value if type(value) is float else _number(value, "fixed-point")
    if not math.isfinite(number):
        return _endless(number)
    digits = _PRECISION if precision is None else min(precision, _MOST_DIGITS)
    text = f"{number:,.{digits}f}"
    return text.removeprefix("-") if number == 0 else text


def _scientific(value: Value, precision: int | None) -> str:
    """Upstream takes the precision for a width; six digits follow the point whatever it says."""
    number = _number(value, "scientific")
    width = _PRECISION if precision is None else min(precision, _MOST_DIGITS)
    if not math.isfinite(number):
        return _endless(number).rjust(width)
    mantissa, exponent = f"{abs(number) if number == 0 else number:.6e}".split("e")
    return f"{mantissa}×10{exponent.removeprefix('+').translate(_RAISED)}".rjust(width)


def _binary(value: Value) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if not _is_integer(value):
        raise EvalError(f"only integers and bools can be formatted as binary, was given {type_name(value)}")
    return f"{value:b}"


def _hex(value: Value) -> str:
    if isinstance(value, str):
        return value.encode().hex()
    if isinstance(value, bytes):
        return value.hex()
    if not _is_integer(value):
        kind = type_name(value)
        raise EvalError(f"only integers, byte buffers, and strings can be formatted as hex, was given {kind}")
    return f"{value:x}"


def _octal(value: Value) -> str:
    if not _is_integer(value):
        raise EvalError(f"octal clause can only be used on integers, was given {type_name(value)}")
    return f"{value:o}"


_CLAUSES: Final[Mapping[str, _Clause]] = {
    "s": _string,
    "d": _decimal,
    "b": _binary,
    "x": _hex,
    "X": lambda value: _hex(value).upper(),
    "o": _octal,
}
