"""What Kubernetes has checked of a well-typed expression on top: literals that could only fail, and mixed literals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from scheduler.cel.ast import Call, ListExpr, Literal, MapExpr, Node
from scheduler.cel.checker import Checked
from scheduler.cel.errors import CompileError, EvalError
from scheduler.cel.formatcalls import format_issues
from scheduler.cel.libraries.regex import pattern_of
from scheduler.cel.report import Issue, report
from scheduler.cel.tree import children
from scheduler.cel.types import Type
from scheduler.cel.unify import shown

_TAKES_ANYTHING: Final = "format"
"""The function whose arguments are a list that may be mixed."""


def validate(checked: Checked) -> None:
    """Raises CompileError with all that is wrong."""
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
    """Lists first, then maps, as upstream goes."""
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
    """All nodes, each before those under it."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending += reversed(children(node))
