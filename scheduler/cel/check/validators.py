"""Kubernetes' additional validation of a well-typed expression: literals that can only fail, and mixed literals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from scheduler.cel.check.checker import Checked
from scheduler.cel.check.types import Type, declared, shown
from scheduler.cel.errors import CompileError, EvalError, Issue, report
from scheduler.cel.libraries.regex import pattern_of
from scheduler.cel.libraries.strings import formatted
from scheduler.cel.syntax.ast import Call, ListExpr, Literal, MapExpr, Node, children

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
    """Yield the error of a literal pattern with a literal list."""
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
    """Return the position, if it is not the call's, and the text, which is empty for a missing value."""
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
    """Return the node whose type is not allowed: this one, or one inside it."""
    if checked.types[node].name not in allowed | {"dyn"}:
        return node
    inner: tuple[Node, ...] = ()
    if is_deep and isinstance(node, ListExpr):
        inner = node.elements
    elif is_deep and isinstance(node, MapExpr):
        inner = tuple(each for entry in node.entries for each in entry)
    found = (_wrong(checked, each, allowed, is_deep=True) for each in inner)
    return next((each for each in found if each is not None), None)


_TAKES_ANYTHING: Final = "format"
"""The function whose arguments are a list that may be mixed."""


def validate(checked: Checked) -> None:
    """Raise CompileError with all errors."""
    nodes = list(_walk(checked.root))
    issues = [*_bad_literals(checked, nodes), *_mixed(checked, nodes), *_bad_formats(checked, nodes)]
    if issues:
        raise CompileError(report(checked.source, issues))


def _bad_literals(checked: Checked, nodes: Sequence[Node]) -> Iterator[Issue]:
    checks: dict[str, Callable[[Call, Literal], bool]] = {
        "duration": lambda call, literal: _can_be_called(checked, call, literal),
        "timestamp": lambda call, literal: _can_be_called(checked, call, literal),
        "matches": lambda _call, literal: _is_pattern(literal),
    }
    for name, is_good in checks.items():
        for node in nodes:
            if not isinstance(node, Call) or node.function != name or not node.args:
                continue
            first = node.args[0]
            if isinstance(first, Literal) and not is_good(node, first):
                yield Issue(first.at, f"invalid {name} argument")


def _can_be_called(checked: Checked, call: Call, literal: Literal) -> bool:
    try:
        checked.calls[call][0].call(literal.value)
    except EvalError:
        return False
    return True


def _is_pattern(literal: Literal) -> bool:
    try:
        pattern_of(literal.value)
    except EvalError:
        return False
    return True


def _bad_formats(checked: Checked, nodes: Sequence[Node]) -> Iterator[Issue]:
    for node in nodes:
        if isinstance(node, Call) and node.function == _TAKES_ANYTHING and node not in checked.qualified:
            yield from format_issues(checked, node)


def _mixed(checked: Checked, nodes: Sequence[Node]) -> Iterator[Issue]:
    """Yield the mixed literals: lists first, then maps, as upstream does."""
    exempt = set(_exempt(nodes))
    nodes = [node for node in nodes if node not in exempt]
    for node in nodes:
        if isinstance(node, ListExpr):
            yield from _mixed_list(checked, node)
    for node in nodes:
        if isinstance(node, MapExpr):
            yield from _mixed_map(checked, node)


def _mixed_list(checked: Checked, node: ListExpr) -> Iterator[Issue]:
    types = [_held(checked, each, is_optional=index in node.optional) for index, each in enumerate(node.elements)]
    for each, type_ in zip(node.elements, types):
        if type_ != types[0]:
            yield _mismatch(each, types[0], type_)
            return


def _mixed_map(checked: Checked, node: MapExpr) -> Iterator[Issue]:
    keys = [checked.types[key] for key, _ in node.entries]
    values = [
        _held(checked, value, is_optional=index in node.optional) for index, (_, value) in enumerate(node.entries)
    ]
    for (key, value), key_type, value_type in zip(node.entries, keys, values):
        if key_type != keys[0]:
            yield _mismatch(key, keys[0], key_type)
        if value_type != values[0]:
            yield _mismatch(value, values[0], value_type)


def _held(checked: Checked, node: Node, *, is_optional: bool) -> Type:
    type_ = checked.types[node]
    return type_.params[0] if is_optional and type_.params else type_


def _mismatch(node: Node, expected: Type, found: Type) -> Issue:
    return Issue(node.at, f"expected type '{shown(expected)}' but found '{shown(found)}'")


def _exempt(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        if isinstance(node, Call) and node.function == _TAKES_ANYTHING:
            yield from _walk(node)


def _walk(root: Node) -> Iterator[Node]:
    """Yield all nodes, parents first."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending += reversed(children(node))
