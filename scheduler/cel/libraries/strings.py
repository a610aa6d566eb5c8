"""Texts: the standard's predicates, and cel-go's strings extension in its version 2."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Final

from scheduler.cel.check.types import BOOL, DYN, INT, STRING, Overload, list_of
from scheduler.cel.errors import EvalError
from scheduler.cel.eval.logic import size
from scheduler.cel.eval.running import fits
from scheduler.cel.go_format import ESCAPES, scalar
from scheduler.cel.libraries.declaring import (
    characters,
    deep_traversal,
    double_traversal,
    function,
    member,
    traversal,
)
from scheduler.cel.libraries.formatting import formatted
from scheduler.cel.values import Value

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


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


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


def _join_cost(*args_and_result: Value) -> int:
    return characters(size(args_and_result[-1]), 2)


def _contains_cost(text: str, part: str, *_: Value) -> int:
    return characters(len(text)) * characters(len(part))


_TEXT: Final = ((STRING,), STRING)
_PREDICATE: Final = ((STRING, STRING), BOOL)
_TEXTS: Final = list_of(STRING)
_TWO: Final = (STRING, STRING)
_THREE: Final = (STRING, STRING, STRING)

STRINGS: Final[tuple[Overload, ...]] = (
    member("contains", "contains_string", _PREDICATE, str.__contains__, _contains_cost),
    member("startsWith", "starts_with_string", _PREDICATE, str.startswith, traversal),
    member("endsWith", "ends_with_string", _PREDICATE, str.endswith, traversal),
    member("charAt", "string_char_at_int", ((STRING, INT), STRING), _char_at),
    member("indexOf", "string_index_of_string", (_TWO, INT), _index_of, deep_traversal),
    member("indexOf", "string_index_of_string_int", ((*_TWO, INT), INT), _index_of, deep_traversal),
    member("lastIndexOf", "string_last_index_of_string", (_TWO, INT), _last_index_of, deep_traversal),
    member("lastIndexOf", "string_last_index_of_string_int", ((*_TWO, INT), INT), _last_index_from, deep_traversal),
    member("lowerAscii", "string_lower_ascii", _TEXT, _lower, traversal),
    member("upperAscii", "string_upper_ascii", _TEXT, _upper, traversal),
    member("trim", "string_trim", _TEXT, _trimmed, traversal),
    member("replace", "string_replace_string_string", (_THREE, STRING), _replaced, double_traversal),
    member("replace", "string_replace_string_string_int", ((*_THREE, INT), STRING), _replaced, double_traversal),
    member("split", "string_split_string", (_TWO, _TEXTS), _split, double_traversal),
    member("split", "string_split_string_int", ((*_TWO, INT), _TEXTS), _split, double_traversal),
    member("substring", "string_substring_int", ((STRING, INT), STRING), _substring, traversal),
    member("substring", "string_substring_int_int", ((STRING, INT, INT), STRING), _range, traversal),
    member("join", "list_join", ((_TEXTS,), STRING), _join, _join_cost),
    member("join", "list_join_string", ((_TEXTS, STRING), STRING), _join, _join_cost),
    member("format", "string_format", ((STRING, list_of(DYN)), STRING), formatted, traversal),
    function("strings.quote", "strings_quote", _TEXT, lambda text: f'"{text.translate(_ESCAPES)}"', traversal),
)
