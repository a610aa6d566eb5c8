"""The errors of expressions, and their texts with position and source line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class CelError(Exception):
    """An error of an expression. The text is upstream's, without the prefix that names the expression or the device."""


class CompileError(CelError):
    """The expression is not well-formed or not well-typed. The text is the part after `compilation failed: `."""


class EvalError(CelError):
    """This value cannot be computed. `&&`, `||`, `all` and `exists` may absorb it."""


class NoSuchKey(EvalError):
    """A map or an object does not have the key."""


class CostExceeded(CelError):
    """The evaluation reached a limit. This error is never absorbed."""


_LONGEST_LINE_BYTES = 16384
_MOST_ERRORS = 100


class Issue(NamedTuple):
    """An error at an offset in code points."""

    at: int
    text: str


def report(source: str, issues: Iterable[Issue]) -> str:
    """Return the text of all issues in the order of their positions, as cel-go prints them."""
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
