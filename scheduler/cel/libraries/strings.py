"""The text functions of CEL's standard library, and version 2 of cel-go's strings extension.

`format` is that of cel-go before version 4 of that extension, with American English number formats.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from scheduler.cel.check.types import BOOL, DYN, INT, STRING, Overload, list_of
from scheduler.cel.errors import EvalError
from scheduler.cel.eval.running import fits
from scheduler.cel.go_format import ESCAPES, double, quoted, scalar
from scheduler.cel.libraries.declaring import Remembered, function, member
from scheduler.cel.libraries.times import duration_text, timestamp_text
from scheduler.cel.values import Duration, Timestamp, TypeValue, UInt, Value, type_name, unkey

_PRECISION: Final = 6
_MOST_DIGITS: Final = 340
_DIGITS: Final = re.compile(r"[0-9]*")
_SUPERSCRIPT: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_IN_HEX: Final = "only integers, byte buffers, and strings can be formatted as hex"
_AS_TEXT: Final = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
USES: Final[Mapping[str, str]] = {
    "s": f"string clause can only be used on {_AS_TEXT}",
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "x": _IN_HEX,
    "X": _IN_HEX,
    "o": "octal clause can only be used on integers",
}
"""Clause → text of the error for a value of another type."""
_WORDS_FOR_NUMBERS: Final = frozenset({"NaN", "Infinity", "-Infinity"})

_Clause = Callable[[Value], str]


class Template(NamedTuple):
    """A parsed pattern: texts and clauses, and the error of the clause after them."""

    parts: Sequence[str | _Clause]
    error: str | None = None

    def text(self, values: Sequence[Value]) -> str:
        """Return the text with the values in place of the clauses."""
        texts: list[str] = []
        used = size = 0
        try:
            for part in self.parts:
                if isinstance(part, str):
                    texts.append(part)
                else:
                    texts.append(part(values[used]))
                    used += 1
                size += len(texts[-1])
                fits(size)
        except EvalError as error:
            raise EvalError(f"error during formatting: {error}") from None
        except IndexError:
            raise EvalError(f"index {used} out of range") from None
        if self.error is not None:
            raise EvalError(self.error if used < len(values) else f"index {used} out of range")
        return "".join(texts)


def formatted(pattern: str, values: Sequence[Value]) -> str:
    """Return the pattern with its clauses replaced by the values."""
    return template_of(pattern).text(values)


@Remembered
def template_of(pattern: str) -> Template:
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
            return Template(parts, "unexpected end of string")
        else:
            try:
                at, clause = _clause(pattern, at + 1)
            except EvalError as error:
                return Template(parts, str(error))
            parts.append(clause)
    return Template(parts)


def _clause(pattern: str, at: int) -> tuple[int, _Clause]:
    """Return the position after the clause that follows a percent sign, and the clause."""
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
            return at + 1, _fixed(_PRECISION if precision is None else min(precision, _MOST_DIGITS))
        case "e":
            return at + 1, _scientific(_PRECISION if precision is None else min(precision, _MOST_DIGITS))
        case _ if letter in _CLAUSES:
            return at + 1, _CLAUSES[letter]
    shown = letter.encode()[:1].decode("latin-1")
    raise _malformed(f'unrecognized formatting clause "{shown}"')


def _malformed(why: str) -> EvalError:
    return EvalError(f"could not parse formatting clause: {why}")


def _unfit(clause: str, value: Value) -> EvalError:
    return EvalError(f"{USES[clause]}, was given {type_name(value)}")


def _string(value: Value) -> str:
    written = _STRINGS.get(type(value), _nested)(value)
    if written is None:
        raise _unfit("s", value)
    return written


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        why = "invalid UTF-8 in bytes, cannot convert to string"
        raise EvalError(f'could not convert argument "{why}" to string') from None


def _nested(value: Value) -> str | None:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_bounded(map(_literal, value)))}]"
    if isinstance(value, Mapping) and type_name(value) == "map":
        written = _bounded(_literal(value[name]) for name in value)
        entries = sorted(zip(map(_key, map(unkey, value)), written))
        return "{" + ", ".join(f"{name}:{each}" for name, each in entries) + "}"
    return None


def _bounded(texts: Iterable[str]) -> Iterator[str]:
    """Yield the same texts; raise CostExceeded when their total length is too large, as in deeply shared lists."""
    size = 0
    for text in texts:
        size += len(text) + 1
        fits(size)
        yield text


def _key(name: Value) -> str:
    if isinstance(name, float) or name is None or not isinstance(name, str | int):
        raise EvalError(f"no formatting function for map key of type {type_name(name)}")
    return quoted(name) if isinstance(name, str) else scalar(name)


def _literal(value: Value) -> str:
    """Return the value as it is written inside a list or map."""
    written = _LITERALS.get(type(value), _nested)(value)
    if written is None:
        raise EvalError(f"no formatting function for {type_name(value)}")
    return written


def _double(value: float) -> str:
    return f"{value:.6f}" if math.isfinite(value) else quoted(double(value))


def _is_integer(value: Value) -> bool:
    return type(value) in {int, UInt}


def _decimal(value: Value) -> str:
    if not _is_integer(value):
        raise _unfit("d", value)
    return str(value)


def _number(value: Value, clause: str) -> float:
    if type(value) is float:
        return value
    if isinstance(value, str) and value in _WORDS_FOR_NUMBERS:
        return float(value)
    raise _unfit(clause, value)


def _endless(number: float) -> str:
    return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"


def _fixed(digits: int) -> _Clause:
    def clause(value: Value) -> str:
        number = _number(value, "f")
        return f"{number or 0.0:,.{digits}f}" if math.isfinite(number) else _endless(number)

    return clause


def _scientific(width: int) -> _Clause:
    """Return the clause. Upstream uses the precision as a width; there are always six digits after the decimal point."""

    def clause(value: Value) -> str:
        number = _number(value, "e")
        if not math.isfinite(number):
            return _endless(number).rjust(width)
        mantissa, _, exponent = f"{number or 0.0:.6e}".partition("e")
        return f"{mantissa}×10{exponent.removeprefix('+').translate(_SUPERSCRIPT)}".rjust(width)

    return clause


def _binary(value: Value) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if not _is_integer(value):
        raise _unfit("b", value)
    return f"{value:b}"


def _hex(value: Value) -> str:
    if isinstance(value, str):
        return value.encode().hex()
    if isinstance(value, bytes):
        return value.hex()
    if not _is_integer(value):
        raise _unfit("x", value)
    return f"{value:x}"


def _octal(value: Value) -> str:
    if not _is_integer(value):
        raise _unfit("o", value)
    return f"{value:o}"


_CLAUSES: Final[Mapping[str, _Clause]] = {
    "s": _string,
    "d": _decimal,
    "b": _binary,
    "x": _hex,
    "X": lambda value: _hex(value).upper(),
    "o": _octal,
}

_STRINGS: Final[Mapping[type, _Clause]] = {
    str: str,
    type(None): lambda _: "null",
    bool: scalar,
    int: str,
    UInt: str,
    float: scalar,
    bytes: _decoded,
    Timestamp: timestamp_text,
    Duration: duration_text,
    TypeValue: lambda value: value.name,
}
"""By the class of a value."""
_LITERALS: Final[Mapping[type, _Clause]] = {
    **_STRINGS,
    str: quoted,
    bytes: lambda value: f"b{quoted(_decoded(value))}",
    float: _double,
    Timestamp: lambda value: f"timestamp({quoted(timestamp_text(value))})",
    Duration: lambda value: f"duration({quoted(duration_text(value))})",
}
"""As `_STRINGS`, inside a list or map."""


_SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_ASCII_SPACES: Final = "\t\n\v\f\r "
_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER: Final = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_ESCAPES: Final = str.maketrans(ESCAPES)


def _in_range(index: int, text: str) -> int:
    if not 0 <= index <= len(text):
        raise EvalError(f"index out of range: {index}")
    return index


def _char_at(text: str, index: int) -> str:
    return text[_in_range(index, text) : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if not part:
        return offset
    if offset < 0:
        raise EvalError(f"index out of range: {offset}")
    return text.find(part, offset)


def _last_index_from(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise EvalError(f"index out of range: {offset}")
    return -1 if offset >= len(text) else text.rfind(part, 0, offset + len(part))


def _substring(text: str, start: int) -> str:
    return text[_in_range(start, text) :]


def _range(text: str, start: int, end: int) -> str:
    if start > end:
        raise EvalError(f"invalid substring range. start: {start}, end: {end}")
    return text[_in_range(start, text) : _in_range(end, text)]


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    if not 0 < limit < len(text):
        return list(text)
    return [*text[: limit - 1], text[limit - 1 :]]


def _replaced(text: str, old: str, new: str, limit: int = -1) -> str:
    times = text.count(old) if limit < 0 else min(limit, text.count(old))
    fits(len(text) + times * (len(new) - len(old)))
    return text.replace(old, new, limit)


def _join(texts: Sequence[Value], separator: str = "") -> str:
    try:
        fits(sum(map(len, texts)) + len(separator) * (len(texts) - 1))
        return separator.join(texts)
    except TypeError:
        other = next(each for each in texts if not isinstance(each, str))
        raise EvalError(f"join: invalid input: {scalar(other)}") from None


def _lower(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_LOWER)


def _upper(text: str) -> str:
    return text.upper() if text.isascii() else text.translate(_UPPER)


def _trimmed(text: str) -> str:
    return text.strip(_ASCII_SPACES if text.isascii() else _SPACES)


_TEXT: Final = ((STRING,), STRING)
_PREDICATE: Final = ((STRING, STRING), BOOL)
_TEXTS: Final = list_of(STRING)
_TWO: Final = (STRING, STRING)
_THREE: Final = (STRING, STRING, STRING)

STRINGS: Final[tuple[Overload, ...]] = (
    member("contains", "contains_string", _PREDICATE, str.__contains__),
    member("startsWith", "starts_with_string", _PREDICATE, str.startswith),
    member("endsWith", "ends_with_string", _PREDICATE, str.endswith),
    member("charAt", "string_char_at_int", ((STRING, INT), STRING), _char_at),
    member("indexOf", "string_index_of_string", (_TWO, INT), _index_of),
    member("indexOf", "string_index_of_string_int", ((*_TWO, INT), INT), _index_of),
    member("lastIndexOf", "string_last_index_of_string", (_TWO, INT), str.rfind),
    member("lastIndexOf", "string_last_index_of_string_int", ((*_TWO, INT), INT), _last_index_from),
    member("lowerAscii", "string_lower_ascii", _TEXT, _lower),
    member("upperAscii", "string_upper_ascii", _TEXT, _upper),
    member("trim", "string_trim", _TEXT, _trimmed),
    member("replace", "string_replace_string_string", (_THREE, STRING), _replaced),
    member("replace", "string_replace_string_string_int", ((*_THREE, INT), STRING), _replaced),
    member("split", "string_split_string", (_TWO, _TEXTS), _split),
    member("split", "string_split_string_int", ((*_TWO, INT), _TEXTS), _split),
    member("substring", "string_substring_int", ((STRING, INT), STRING), _substring),
    member("substring", "string_substring_int_int", ((STRING, INT, INT), STRING), _range),
    member("join", "list_join", ((_TEXTS,), STRING), _join),
    member("join", "list_join_string", ((_TEXTS, STRING), STRING), _join),
    member("format", "string_format", ((STRING, list_of(DYN)), STRING), formatted),
    function("strings.quote", "strings_quote", _TEXT, lambda text: f'"{text.translate(_ESCAPES)}"'),
)
