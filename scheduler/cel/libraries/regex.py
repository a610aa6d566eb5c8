"""Regular expressions of RE2: linear in the text, whatever the pattern.

Patterns that Python's `re` may match instead of RE2: the same matches, and no way to go on for long.

Only sequences of characters and simple classes, with few repetitions. For a short text the call of RE2 costs several
times what the match does.
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
"""In which `a?b{0,1}` and the like may match at one place: all are tried where what follows does not match."""
_ATOM: Final = re.compile(
    r"""
    (?P<atom> [A-Za-z0-9_/:;,@%&=~ !<>'"#-] | \\[.\-+*?()|^$] | \\[dw] | \.
      | \[ \^? (?:[A-Za-z0-9] - [A-Za-z0-9] | [A-Za-z0-9_./:])+ -? \] )
    (?P<times> [?*+] | \{ (?:0|[1-9][0-9]?) (?:,(?:0|[1-9][0-9]?))? \} )? (?![?*+{])
    """,  # `a{01}` repeats nothing
    re.VERBOSE,
)


_CODED: Final = re.compile(r"\\[0-9x]")


@dataclass(frozen=True, slots=True)
class Simple:
    """A pattern of that kind."""

    pattern: re.Pattern[str]
    is_linear: bool
    """Whether it takes no longer than in proportion to the text. If not it is for short texts only."""
    takes_some: bool
    """Whether no match is empty."""


def simple(text: str) -> Simple | None:
    """The pattern, which RE2 has accepted, as one of Python's. None if it is not that simple."""
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
    """A table that makes one digit of all those that the pattern, which RE2 has accepted, cannot tell apart.

    What has no code in it tells a digit from its neighbour only where it names one of them. None if all are told apart.
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
"""Larger patterns are refused: one of the default of 8 MiB takes 150 ms to compile, one of this size 40 ms, in one call."""
_MOST_STEPS: Final = 10_000_000
"""Instructions of a pattern times bytes of a text: RE2 may look at all of a large pattern for each byte, 2 ns each."""
_WORK: Final = 1000
"""More than the cost between two looks at the clock."""
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
"""With a text, where to begin, and its length: where the match and its groups are, -1 if there is none."""


class Pattern:
    """A compiled pattern: RE2's, and a simpler one that may do instead for some texts."""

    __slots__ = ("_folding", "_goes_straight", "_known", "_longest", "_match", "_simple", "_text", "_uses", "size")

    def __init__(self, text: str) -> None:
        re2_pattern = _re2(text)
        self._match = _match_of(re2_pattern)
        self._text = text
        self._uses = 0
        self._simple: re.Pattern[str] | None = None
        self._folding: bytes | None = None
        self._known: dict[bytes, tuple[int, int]] = {}
        """Where short texts match, by what becomes of them when characters that are all the same to the pattern become one."""
        self._longest = -1
        """The simple one may do for texts that are no longer."""
        self._goes_straight = False
        """Whether it finds all matches in any text."""
        self.size: int = re2_pattern.programsize
        """Instructions of RE2's program."""

    def often(self) -> Pattern:
        """This one, which will be used so often that it is worth some work."""
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
        """Whether it matches some part of the text."""
        if len(text) <= self._longest and self._simple is not None:
            return self._simple.search(text) is not None
        return self._first_span(text.encode())[0] >= 0

    def first(self, text: str) -> str:
        """The first part of the text that it matches, or ""."""
        if len(text) <= self._longest and self._simple is not None:
            match = self._simple.search(text)
            return "" if match is None else match[0]
        encoded = text.encode()
        start, end = self._first_span(encoded)
        return "" if start < 0 else encoded[start:end].decode()

    def all(self, text: str, limit: int = -1) -> list[str]:
        """The parts that it matches, so many at most; all if negative. An empty one right behind another is ignored.

        Each search may look at all of the text, so each one may end the evaluation.
        """
        if len(text) > _LONG:
            self.often()
        if self._goes_straight and self._simple is not None:
            if limit < 0:
                return self._simple.findall(text)
            return [each[0] for each in islice(self._simple.finditer(text), limit)]
        return list(islice(self._parts(text.encode()), limit if limit >= 0 else None))

    def _span(self, text: bytes, at: int) -> tuple[int, int]:
        """Of the next match. None begins in the midst of a character, where RE2 sees no words either."""
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
        """Of the first match; those of short texts are remembered."""
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
                while at < whole and text[at] & 0xC0 == 0x80:  # not in the midst of a character
                    at += 1


class _Literal(Pattern):
    """A pattern that matches itself only. Reading it would take a hundred times as long as looking for it."""

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
    """`re2.compile` looks for the pattern among its own, which takes longer than to read most."""
    make = getattr(re2, "_Regexp", None)
    return re2.compile(text, _QUIET) if make is None else make(text, _QUIET)


def _match_of(pattern: Any) -> _Match:
    """What RE2 itself does: what google-re2 has around it takes four times as long, and does where that is not there."""
    try:
        match: _Match = partial(pattern._regexp.Match, re2._re2.RE2.Anchor.UNANCHORED)  # noqa: SLF001
        match(b"", 0, 0)
    except (AttributeError, TypeError):

        def match(text: bytes, at: int, _whole: int) -> Sequence[tuple[int, int]]:
            found = pattern.search(text, at)
            return [_NOWHERE if found is None else found.span()]

    return match


def pattern_of(text: str) -> Pattern:
    """The compiled pattern. Raises EvalError with the text of Go's regexp package."""
    compiled = _compiled(text)
    if isinstance(compiled, Pattern):
        return compiled
    raise EvalError(str(compiled))


@lru_cache(maxsize=_KEPT_PATTERNS)
def _compiled(text: str) -> Pattern | EvalError:
    work(_WORK)
    if "\\C" in text.replace("\\\\", ""):  # RE2 has it, Go does not
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
    """Whether the pattern is one that matches itself only, as far as that is seen at once."""
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
