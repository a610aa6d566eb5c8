"""Regular expressions of RE2: linear in the text, whatever the pattern."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import re2

from scheduler.cel.libraries.declaring import function, matching, member
from scheduler.cel.types import BOOL, INT, STRING, Overload, list_of
from scheduler.cel.values import EvalError

_KEPT_PATTERNS: Final = 1024
_QUIET: Final = re2.Options()
_QUIET.log_errors = False
_GO_WORDS: Final = (
    ("missing ]", "missing closing ]"),
    ("missing )", "missing closing )"),
    ("trailing \\", "trailing backslash at end of expression"),
    ("no argument for repetition operator", "missing argument to repetition operator"),
    ("invalid repetition size", "invalid repeat count"),
    ("bad repetition operator", "invalid nested repetition operator"),
    ("invalid perl operator", "invalid or unsupported Perl syntax"),
    ("invalid named capture group", "invalid named capture"),
)


def pattern_of(text: str) -> Any:
    """The compiled pattern. Raises EvalError with the text of Go's regexp package."""
    compiled = _compiled(text)
    if isinstance(compiled, EvalError):
        raise EvalError(str(compiled))
    return compiled


@lru_cache(maxsize=_KEPT_PATTERNS)
def _compiled(text: str) -> Any:
    if "\\C" in text.replace("\\\\", ""):  # RE2 has it, Go does not
        return EvalError("error parsing regexp: invalid escape sequence: `\\C`")
    try:
        return re2.compile(text, _QUIET)
    except re2.error as error:
        why = error.args[0]
        return EvalError(_in_go_words(why.decode(errors="replace") if isinstance(why, bytes) else str(why)))


def _in_go_words(why: str) -> str:
    for theirs, words in _GO_WORDS:
        if why.startswith(theirs):
            about = why.removeprefix(theirs).removeprefix(": ")
            return f"error parsing regexp: {words}: `{about}`"
    word, _, about = why.partition(": ")
    return f"error parsing regexp: {word}: `{about}`"


def _matches(text: str, pattern: str) -> bool:
    return pattern_of(pattern).search(text.encode()) is not None  # of bytes it does not translate offsets


def _found_pattern(text: str) -> Any:
    try:
        return pattern_of(text)
    except EvalError as error:
        raise EvalError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    match = _found_pattern(pattern).search(text.encode())
    return "" if match is None else match.group().decode()


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found: list[str] = []
    end = -1
    for match in _found_pattern(pattern).finditer(text) if limit else ():
        if match.start() == match.end() == end:  # Go ignores an empty match right behind another
            continue
        found.append(match.group())
        end = match.end()
        if len(found) == limit:
            break
    return found


_TWO: Final = (STRING, STRING)
_TEXTS: Final = list_of(STRING)

MATCHES: Final[tuple[Overload, ...]] = (
    function("matches", "matches", (_TWO, BOOL), _matches),
    member("matches", "matches_string", (_TWO, BOOL), _matches, matching),
)

REGEX: Final[tuple[Overload, ...]] = (
    member("find", "string_find_string", (_TWO, STRING), _find, matching),
    member("findAll", "string_find_all_string", (_TWO, _TEXTS), _find_all, matching),
    member("findAll", "string_find_all_string_int", ((*_TWO, INT), _TEXTS), _find_all, matching),
)
