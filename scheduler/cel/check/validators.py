"""Kubernetes' additional validation of a well-typed expression: literals that can only fail, and mixed literals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from scheduler.cel.check.checker import Checked
from scheduler.cel.check.types import Type, declared_name, shown
from scheduler.cel.errors import CompileError, EvalError, Issue, report
from scheduler.cel.libraries.regex import pattern_of
from scheduler.cel.libraries.strings import USES, formatted
from scheduler.cel.syntax.ast import Call, ListExpr, Literal, MapExpr, Node, children

_CLAUSE: Final = re.compile(r"%(?:(?P<percent>%)|(?:\.[0-9]+)?(?P<letter>[sdfebxXo]))?")
_WHOLE: Final = frozenset({"int", "uint"})
_REAL: Final = frozenset({"double", "string"})
_HEX: Final = _WHOLE | {"string", "bytes"}
_ALLOWED: Final = {
    "s": _WHOLE | _REAL | {"list", "map", "bool", "timestamp", "bytes", "duration", "type", "null_type"},
    "d": _WHOLE,
    "f": _REAL,
    "e": _REAL,
    "b": _WHOLE | {"bool"},
    "x": _HEX,
    "X": _HEX,
    "o": _WHOLE,
}
"""Clause → names of the types that it accepts."""


def _problem(
    checked: Checked, pattern: str, clause: re.Match[str], value: Sequence[Node]
) -> tuple[int | None, str] | None:
    """Return the position, if it is not the call's, and the text, which is empty for a missing value."""
    if clause.start() + 1 == len(pattern):
        return None, "unexpected end of string"
    if not value:
        return None, ""
    letter = clause["letter"]
    if letter is None:
        try:
            formatted(pattern[clause.start() :], [0])
        except EvalError as error:
            return None, str(error)
    wrong = _wrong(checked, value[0], _ALLOWED[letter], is_deep=letter == "s")
    if wrong is None:
        return None
    name = declared_name(checked.types[wrong])
    return wrong.at, f"error during formatting: {USES[letter]}, was given {name}"


def _wrong(checked: Checked, node: Node, allowed: frozenset[str], *, is_deep: bool) -> Node | None:
    """Return the node whose type is not allowed: this one, or one inside it."""
    if checked.types[node].name not in allowed | {"dyn"}:
        return node
    inner = children(node) if is_deep and isinstance(node, ListExpr | MapExpr) else ()
    found = (_wrong(checked, each, allowed, is_deep=True) for each in inner)
    return next((each for each in found if each is not None), None)


def validate(checked: Checked) -> None:
    """Raise CompileError with all errors."""
    nodes = list(_walk(checked.root))
    issues = [*_bad_literals(checked, nodes), *_mixed(checked, nodes), *_bad_formats(checked, nodes)]
    if issues:
        raise CompileError(report(checked.source, issues))


def _bad_literals(checked: Checked, nodes: Sequence[Node]) -> Iterator[Issue]:
    for name in ("duration", "timestamp", "matches"):
        for node in nodes:
            if not isinstance(node, Call) or node.function != name or not node.args:
                continue
            first = node.args[0]
            if not isinstance(first, Literal):
                continue
            read = pattern_of if name == "matches" else checked.calls[node][0].call
            try:
                read(first.value)
            except EvalError:
                yield Issue(first.at, f"invalid {name} argument")


def _bad_formats(checked: Checked, nodes: Sequence[Node]) -> Iterator[Issue]:
    """Yield the errors of literal patterns with a literal list."""
    for node in nodes:
        match node:
            case Call("format", (ListExpr(values),), Literal(str(pattern)), at):
                yield from _bad_format(checked, pattern, values, at)


def _bad_format(checked: Checked, pattern: str, values: Sequence[Node], at: int) -> Iterator[Issue]:
    used = 0
    for clause in _CLAUSE.finditer(pattern):
        if clause["percent"]:
            continue
        problem = _problem(checked, pattern, clause, values[used : used + 1])
        if problem is not None:
            where, text = problem
            yield Issue(at if where is None else where, text or f"index {used} out of range")
            return
        used += 1
    if len(values) > used:
        yield Issue(at, f"too many arguments supplied to string.format (expected {used}, got {len(values)})")


def _mixed(checked: Checked, nodes: Sequence[Node]) -> Iterator[Issue]:
    """Yield the mixed literals: lists first, then maps, as upstream does. The arguments of `format` may be mixed."""
    exempt = {inner for node in nodes if isinstance(node, Call) and node.function == "format" for inner in _walk(node)}
    for node in nodes:
        if isinstance(node, ListExpr) and node not in exempt:
            yield from _mixed_list(checked, node)
    for node in nodes:
        if isinstance(node, MapExpr) and node not in exempt:
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


def _walk(root: Node) -> Iterator[Node]:
    """Yield all nodes, parents first."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending += reversed(children(node))
