"""Regular expressions of RE2, whose matching time is linear in the text for every pattern.

Some patterns and texts are matched by Python's `re` instead: the matches are the same, and the time is bounded. These
patterns are sequences of characters and simple classes, with few repetitions. For a short text, a call of RE2 costs
several times as much as the match.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Final, TypeAlias

import re2

from scheduler.cel.check.types import BOOL, INT, STRING, Overload, list_of
from scheduler.cel.errors import CostExceeded, EvalError
from scheduler.cel.eval.running import EXCEEDED, work
from scheduler.cel.libraries.declaring import function, matching, member

SHORT: Final = 12
_MOST_REPEATED: Final = 16
_MOST_WAYS: Final = 16
_FEW_WAYS: Final = 4
"""The number of ways in which optional parts such as `a?b{0,1}` may match; a failing match tries all of them."""
_ATOM: Final = re.compile(
    r"""
    (?P<atom> [A-Za-z0-9_/:;,@%&=~ !<>'"#-] | \\[.\-+*?()|^$] | \\[dw] | \.
      | \[ \^? (?:[A-Za-z0-9] - [A-Za-z0-9] | [A-Za-z0-9_./:])+ -? \] )
    (?P<times> [?*+] | \{ (?:0|[1-9][0-9]?) (?:,(?:0|[1-9][0-9]?))? \} )? (?![?*+{])
    """,  # `a{01}` is not a repetition
    re.VERBOSE,
)


_CODED: Final = re.compile(r"\\[0-9x]")


@dataclass(frozen=True, slots=True)
class Simple:
    """A pattern for Python's `re`."""

    pattern: re.Pattern[str]
    is_linear: bool
    """Whether the time is linear in the text. Other patterns are only for short texts."""
    takes_some: bool
    """Whether every match is non-empty."""


def simple(text: str) -> Simple | None:
    """Return Python's equivalent of a pattern that RE2 has accepted; None if it is not simple enough."""
    body = text.removeprefix("^")
    is_ended = body.endswith("$") and not body.endswith("\\$")
    body = body[:-1] if is_ended else body
    at = repeated = least = 0
    ways = 1
    endless: list[int] = []
    while at < len(body):
        match = _ATOM.match(body, at)
        if match is None:
            return None
        at = match.end()
        fewest, most = _times(match["times"])
        least += fewest
        if most is None:
            endless.append(at)
        elif fewest != most or most > 1:
            repeated += most
            ways *= most - fewest + 1
    if len(endless) > 1 or repeated > _MOST_REPEATED or ways > _MOST_WAYS or (endless and repeated):
        return None
    begin = "^" if text.startswith("^") else ""
    is_linear = endless == [len(body)] and not is_ended if endless else bool(begin) or ways <= _FEW_WAYS
    return Simple(re.compile(begin + body + (r"\Z" if is_ended else ""), re.ASCII), is_linear, least > 0)


def folding(text: str) -> bytes | None:
    """Return a table that replaces digits with the same meaning to the pattern, which RE2 has accepted, by one digit.

    A pattern without numeric escapes distinguishes adjacent digits only if it contains one of them. Return None if
    the pattern distinguishes all digits.
    """
    if _CODED.search(text):
        return None
    table = bytearray(range(256))
    one: int | None = None
    for digit in b"0123456789":
        if chr(digit) in text:
            one = None
        elif one is None:
            one = digit
        else:
            table[digit] = one
    return bytes(table) if table != bytes(range(256)) else None


def _times(written: str | None) -> tuple[int, int | None]:
    match written:
        case None:
            return 1, 1
        case "?":
            return 0, 1
        case "*":
            return 0, None
        case "+":
            return 1, None
    fewest, _, most = written[1:-1].partition(",")
    return int(fewest), int(most or fewest)


_KEPT_PATTERNS: Final = 1024
_KEPT_TEXTS: Final = 128
_LONG: Final = 256
_SHORT: Final = 64
_OFTEN: Final = 3
_LITERAL: Final = re.compile(r"[A-Za-z0-9_/:;,@%&=~ !<>'\"#-]+")
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
    """A compiled pattern of RE2, and an equivalent for Python's `re` that can be used for some texts."""

    __slots__ = ("_folding", "_goes_straight", "_known", "_longest", "_match", "_simple", "_text", "_uses", "size")

    def __init__(self, text: str) -> None:
        re2_pattern = _re2(text)
        self._match = _match_of(re2_pattern)
        self._text = text
        self._uses = 0
        self._simple: re.Pattern[str] | None = None
        self._folding: bytes | None = None
        self._known: dict[bytes, tuple[int, int]] = {}
        """Folded short text → span of its first match.

        Folding replaces characters that the pattern cannot distinguish by one.
        """
        self._longest = -1
        """The longest text for which Python's `re` may search for one match."""
        self._goes_straight = False
        """Whether Python's `re` may search for all matches in any text."""
        self.size: int = re2_pattern.programsize
        """The number of instructions of RE2's program."""

    def often(self) -> Pattern:
        """Prepare the pattern for frequent use, and return it."""
        if self._uses < _OFTEN:
            self._uses = _OFTEN
            found = simple(self._text)
            self._folding = folding(self._text)
            if found is not None:
                self._simple = found.pattern
                self._longest = sys.maxsize if found.is_linear else SHORT
                self._goes_straight = found.is_linear and found.takes_some
        return self

    def is_in(self, text: str) -> bool:
        """Return whether the pattern matches a part of the text."""
        if len(text) <= self._longest and self._simple is not None:
            return self._simple.search(text) is not None
        return self._first_span(text.encode())[0] >= 0

    def first(self, text: str) -> str:
        """Return the first part of the text that matches, or ""."""
        if len(text) <= self._longest and self._simple is not None:
            match = self._simple.search(text)
            return "" if match is None else match[0]
        encoded = text.encode()
        start, end = self._first_span(encoded)
        return "" if start < 0 else encoded[start:end].decode()

    def all(self, text: str, limit: int = -1) -> list[str]:
        """Return the parts that match, at most `limit`, or all if it is negative.

        An empty match right after another is ignored. Each search may scan the whole text, so each one may end the
        evaluation.
        """
        if len(text) > _LONG:
            self.often()
        if self._goes_straight and self._simple is not None:
            if limit < 0:
                return self._simple.findall(text)
            return [each[0] for each in islice(self._simple.finditer(text), limit)]
        return list(islice(self._parts(text.encode()), limit if limit >= 0 else None))

    def _span(self, text: bytes, at: int) -> tuple[int, int]:
        """Return the span of the next match.

        A match never starts inside a character, where RE2 does not see words either.
        """
        self._uses += 1
        if self._uses == _OFTEN:
            self._uses -= 1
            self.often()
        whole = len(text)
        if self.size * (whole - at) > _MOST_STEPS:
            raise CostExceeded(EXCEEDED)
        if whole > _LONG:
            work(whole)
        start, end = self._match(text, at, whole)[0]
        while 0 <= start < whole and text[start] & 0xC0 == 0x80:
            start, end = self._match(text, start + 1, whole)[0]
        return start, end

    def _first_span(self, text: bytes) -> tuple[int, int]:
        """Return the span of the first match; the spans of short texts are cached."""
        if self._folding is None or len(text) > _SHORT:
            return self._span(text, 0)
        folded = text.translate(self._folding)
        span = self._known.get(folded)
        if span is None:
            span = self._span(folded, 0)
            if len(self._known) >= _KEPT_TEXTS:
                self._known.clear()
            self._known[folded] = span
        return span

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


class _Literal(Pattern):
    """A pattern that matches only itself. Compiling it would take a hundred times as long as the search."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        self._text = text
        self.size = 0

    def often(self) -> Pattern:
        return self

    def is_in(self, text: str) -> bool:
        return self._text in text

    def first(self, text: str) -> str:
        return self._text if self._text in text else ""

    def all(self, text: str, limit: int = -1) -> list[str]:
        count = text.count(self._text)
        return [self._text] * (count if limit < 0 else min(count, limit))


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
        return _Literal(text) if _LITERAL.fullmatch(text) else Pattern(text)
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


def is_word(pattern: str) -> bool:
    """Return whether the pattern obviously matches only itself."""
    return pattern.isalnum() and pattern.isascii()


def _matches(text: str, pattern: str) -> bool:
    if is_word(pattern):
        return pattern in text
    return pattern_of(pattern).is_in(text)


def _found_pattern(text: str) -> Pattern:
    try:
        return pattern_of(text)
    except EvalError as error:
        raise EvalError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    if is_word(pattern):
        return pattern if pattern in text else ""
    return _found_pattern(pattern).first(text)


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return _found_pattern(pattern).all(text, limit)


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
