"""Patterns that Python's `re` may match instead of RE2: the same matches, and no way to go on for long.

Only sequences of characters and simple classes, with few repetitions. For a short text the call of RE2 costs several
times what the match does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

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
