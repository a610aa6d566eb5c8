"""The errors of expressions, and how they are shown with their place.

How what is wrong with an expression is shown: with its place, and the line of source under it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class CelError(Exception):
    """The text is upstream's, without the prefix that names the expression or the device."""


class CompileError(CelError):
    """The expression is not well-formed or not well-typed. The text is what follows `compilation failed: `."""


class EvalError(CelError):
    """This value cannot be computed. `&&`, `||`, `all` and `exists` may absorb it."""


class NoSuchKey(EvalError):
    """A map or an object does not have the key."""


class CostExceeded(CelError):
    """A limit of the evaluation is reached. It is never absorbed."""


_LONGEST_LINE_BYTES = 16384
_MOST_ERRORS = 100


class Issue(NamedTuple):
    """Something wrong, at an offset in code points."""

    at: int
    text: str


def report(source: str, issues: Iterable[Issue]) -> str:
    """All of them in the order of their places, as cel-go prints them."""
    found = list(issues)
    kept = sorted(found[:_MOST_ERRORS], key=lambda issue: issue.at)
    lines = [_shown(source, issue) for issue in kept]
    if len(found) > _MOST_ERRORS:
        lines.append(f"{len(found) - _MOST_ERRORS} more errors were truncated")
    return "\n".join(lines)


def _shown(source: str, issue: Issue) -> str:
    before = source[: issue.at]
    line_number = before.count("\n")
    column = len(before) - (before.rfind("\n") + 1)
    text = f"ERROR: <input>:{line_number + 1}:{column + 1}: {issue.text}"
    line = source.split("\n")[line_number].replace("\t", " ")
    if len(line.encode()) > _LONGEST_LINE_BYTES:
        return text
    dots = "".join("." if each.isascii() else "\uff0e" for each in line[:column])
    is_wide = column < len(line) and not line[column].isascii()
    caret = "\uff3e" if is_wide else "^"
    return f"{text}\n | {line}\n | {dots}{caret}"
