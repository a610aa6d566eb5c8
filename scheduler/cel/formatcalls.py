"""`"…".format([…])`, as far as it can be judged before anything is known but types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from scheduler.cel.ast import Call, ListExpr, Literal, MapExpr, Node
from scheduler.cel.checker import Checked
from scheduler.cel.errors import EvalError
from scheduler.cel.libraries.formatting import formatted
from scheduler.cel.report import Issue
from scheduler.cel.unify import declared

_CLAUSE: Final = re.compile(r"%(?:(?P<percent>%)|(?:\.[0-9]+)?(?P<letter>[sdfebxXo]))?")
_WHOLE: Final = frozenset({"int", "uint"})
_REAL: Final = frozenset({"double", "string"})
_HEX: Final = (
    _WHOLE | {"string", "bytes"},
    "only integers, byte buffers, and strings can be formatted as hex",
)
_SHOWABLE: Final = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
_TEXT: Final = (
    _WHOLE | _REAL | {"list", "map", "bool", "timestamp", "bytes", "duration", "type", "null_type"},
    f"string clause can only be used on {_SHOWABLE}",
)
_CLAUSES: Final = {
    "s": _TEXT,
    "d": (_WHOLE, "decimal clause can only be used on integers"),
    "f": (_REAL, "fixed-point clause can only be used on doubles"),
    "e": (_REAL, "scientific clause can only be used on doubles"),
    "b": (_WHOLE | {"bool"}, "only integers and bools can be formatted as binary"),
    "x": _HEX,
    "X": _HEX,
    "o": (_WHOLE, "octal clause can only be used on integers"),
}


def format_issues(checked: Checked, node: Call) -> Iterator[Issue]:
    """What is wrong with a literal pattern for a literal list."""
    pattern, values = node.target, node.args[0] if len(node.args) == 1 else None
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str) or not isinstance(values, ListExpr):
        return
    used = 0
    for clause in _CLAUSE.finditer(pattern.value):
        if clause["percent"]:
            continue
        problem = _problem(checked, pattern.value, clause, values.elements[used : used + 1])
        if problem is not None:
            at, text = problem
            yield Issue(node.at if at is None else at, text or f"index {used} out of range")
            return
        used += 1
    if len(values.elements) > used:
        given = len(values.elements)
        yield Issue(node.at, f"too many arguments supplied to string.format (expected {used}, got {given})")


def _problem(
    checked: Checked, pattern: str, clause: re.Match[str], value: tuple[Node, ...]
) -> tuple[int | None, str] | None:
    """The place, if it is not the call's, and the text, which is empty if there is no value."""
    if clause.start() + 1 == len(pattern):
        return None, "unexpected end of string"
    if not value:
        return None, ""
    if clause["letter"] is None:
        try:
            formatted(pattern[clause.start() :], [0])
        except EvalError as error:
            return None, str(error)
    allowed, words = _CLAUSES[clause["letter"]]
    wrong = _wrong(checked, value[0], allowed, is_deep=clause["letter"] == "s")
    if wrong is None:
        return None
    name = declared(checked.types[wrong]).partition("(")[0]
    return wrong.at, f"error during formatting: {words}, was given {name}"


def _wrong(checked: Checked, node: Node, allowed: frozenset[str], *, is_deep: bool) -> Node | None:
    """The node whose type is not allowed: this one, or one in it."""
    if checked.types[node].name not in allowed | {"dyn"}:
        return node
    inner: tuple[Node, ...] = ()
    if is_deep and isinstance(node, ListExpr):
        inner = node.elements
    elif is_deep and isinstance(node, MapExpr):
        inner = tuple(each for entry in node.entries for each in entry)
    found = (_wrong(checked, each, allowed, is_deep=True) for each in inner)
    return next((each for each in found if each is not None), None)
