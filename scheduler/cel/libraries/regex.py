"""Regular expressions of RE2, whose matching time is linear in the text for every pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Final, TypeAlias

import re2

from scheduler.cel.check.types import BOOL, INT, STRING, Overload, list_of
from scheduler.cel.errors import CostExceeded, EvalError
from scheduler.cel.eval.running import EXCEEDED, work
from scheduler.cel.libraries.declaring import function, member

_KEPT_PATTERNS: Final = 1024
_LONG: Final = 256
_NOWHERE: Final = (-1, -1)
_QUIET: Final = re2.Options()
_QUIET.log_errors = False
_QUIET.never_capture = True
_QUIET.max_mem = 2 * 2**20
"""Larger patterns are rejected.

One call of the compiler takes up to 40 ms with this limit, 150 ms with the default of 8 MiB.
"""
_MOST_STEPS: Final = 10_000_000
"""Instructions of a pattern times bytes of a text.

For each byte, RE2 may run a whole large pattern, at 2 ns per instruction.
"""
_WORK: Final = 1000
"""More than the cost between two checks of the deadline."""
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


_Match: TypeAlias = Callable[[bytes, int, int], Sequence[tuple[int, int]]]
"""A function of the text, the start and its length. It returns the spans of the match and its groups, -1 without one."""


class Pattern:
    __slots__ = ("_match", "_size")

    def __init__(self, text: str) -> None:
        pattern = _re2(text)
        self._match = _match_of(pattern)
        self._size: int = pattern.programsize
        """The number of instructions of RE2's program."""

    def is_in(self, text: str) -> bool:
        """Return whether the pattern matches a part of the text."""
        return self._span(text.encode(), 0)[0] >= 0

    def first(self, text: str) -> str:
        """Return the first part of the text that matches, or ""."""
        encoded = text.encode()
        start, end = self._span(encoded, 0)
        return "" if start < 0 else encoded[start:end].decode()

    def all(self, text: str, limit: int = -1) -> list[str]:
        """Return the parts that match, at most `limit`, or all if it is negative.

        An empty match right after another is ignored. Each search may scan the whole text, so each one may end the
        evaluation.
        """
        return list(islice(self._parts(text.encode()), limit if limit >= 0 else None))

    def _span(self, text: bytes, at: int) -> tuple[int, int]:
        """Return the span of the next match.

        A match never starts inside a character, where RE2 does not see words either.
        """
        whole = len(text)
        if self._size * (whole - at) > _MOST_STEPS:
            raise CostExceeded(EXCEEDED)
        if whole > _LONG:
            work(whole)
        start, end = self._match(text, at, whole)[0]
        while 0 <= start < whole and text[start] & 0xC0 == 0x80:
            start, end = self._match(text, start + 1, whole)[0]
        return start, end

    def _parts(self, text: bytes) -> Iterator[str]:
        at, before, whole = 0, -1, len(text)
        while at <= whole:
            start, end = self._span(text, at)
            if start < 0:
                return
            if start < end or end != before:
                yield text[start:end].decode()
            before = at = end
            if start == end:
                at += 1
                while at < whole and text[at] & 0xC0 == 0x80:  # not inside a character
                    at += 1


def _re2(text: str) -> Any:
    """Compile a pattern without the cache of `re2.compile`, whose look-up takes longer than most compilations."""
    make = getattr(re2, "_Regexp", None)
    return re2.compile(text, _QUIET) if make is None else make(text, _QUIET)


def _match_of(pattern: Any) -> _Match:
    """Return RE2's own match function, or google-re2's wrapper if it is not available.

    The wrapper takes four times as long.
    """
    try:
        match: _Match = partial(pattern._regexp.Match, re2._re2.RE2.Anchor.UNANCHORED)  # noqa: SLF001
        match(b"", 0, 0)
    except (AttributeError, TypeError):

        def match(text: bytes, at: int, _whole: int) -> Sequence[tuple[int, int]]:
            found = pattern.search(text, at)
            return [_NOWHERE if found is None else found.span()]

    return match


def pattern_of(text: str) -> Pattern:
    """Return the compiled pattern; raise EvalError with the text of Go's regexp package."""
    compiled = _compiled(text)
    if isinstance(compiled, Pattern):
        return compiled
    raise EvalError(str(compiled))


@lru_cache(maxsize=_KEPT_PATTERNS)
def _compiled(text: str) -> Pattern | EvalError:
    work(_WORK)
    if "\\C" in text.replace("\\\\", ""):  # valid in RE2, but not in Go
        return EvalError("error parsing regexp: invalid escape sequence: `\\C`")
    try:
        return Pattern(text)
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
    return pattern_of(pattern).is_in(text)


def _found_pattern(text: str) -> Pattern:
    try:
        return pattern_of(text)
    except EvalError as error:
        raise EvalError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    return _found_pattern(pattern).first(text)


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return _found_pattern(pattern).all(text, limit)


_TWO: Final = (STRING, STRING)
_TEXTS: Final = list_of(STRING)

MATCHES: Final[tuple[Overload, ...]] = (
    function("matches", "matches", (_TWO, BOOL), _matches),
    member("matches", "matches_string", (_TWO, BOOL), _matches),
)

REGEX: Final[tuple[Overload, ...]] = (
    member("find", "string_find_string", (_TWO, STRING), _find),
    member("findAll", "string_find_all_string", (_TWO, _TEXTS), _find_all),
    member("findAll", "string_find_all_string_int", ((*_TWO, INT), _TEXTS), _find_all),
)
