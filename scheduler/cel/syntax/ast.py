"""Syntax trees, and their traversal.

Macros are already expanded, so there are only eight kinds of nodes. Nodes are compared by identity and hashable,
because the checker stores types by node. `at` is the offset in the source, in code points, for messages.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.cel.values import Value


@dataclass(eq=False, slots=True)
class Literal:
    """A literal: null, bool, int, uint, double, string or bytes."""

    value: Value
    at: int = 0


@dataclass(eq=False, slots=True)
class Ident:
    """A variable. A leading dot is kept: `.x` is x of the environment even inside a comprehension over x."""

    name: str
    at: int = 0


@dataclass(eq=False, slots=True)
class Select:
    """`operand.field`; with `test` it is `has(operand.field)`, with `optional` it is `operand.?field`."""

    operand: Node
    field: str
    test: bool = False
    optional: bool = False
    at: int = 0


@dataclass(eq=False, slots=True)
class Call:
    """`function(args)` or `target.function(args)`. Operators have cel-go's names, see `parser.OPERATORS`.

    `_&&_`, `_||_`, `_?_:_`, `_==_`, `!_`, `-_`, `_[_]`, `_[?_]`, `@in` …
    """

    function: str
    args: tuple[Node, ...]
    target: Node | None = None
    at: int = 0


@dataclass(eq=False, slots=True)
class ListExpr:
    """`[a, ?b]`; `optional` contains the positions with a question mark."""

    elements: tuple[Node, ...]
    optional: frozenset[int] = frozenset()
    at: int = 0


@dataclass(eq=False, slots=True)
class MapExpr:
    """`{k: v, ?k: v}`."""

    entries: tuple[tuple[Node, Node], ...]
    optional: frozenset[int] = frozenset()
    at: int = 0


@dataclass(eq=False, slots=True)
class StructExpr:
    """`a.b.C{f: v}`. It is parsed so that the checker can report the unknown type."""

    type_name: str
    entries: tuple[tuple[str, Node], ...]
    at: int = 0


@dataclass(eq=False, slots=True)
class Comprehension:
    """cel-go's fold. `iter_var2` is "" except for macros with two variables; users cannot write `accu_var`.

    accu = accu_init; for iter_var[, iter_var2] in iter_range: if not loop_condition: break; accu = loop_step; then
    result. With one variable, it iterates over a list's elements or a map's keys, with two over (index, element) or
    (key, value). `cel.bind(x, init, body)` is a fold over an empty list whose accu_var is x.
    """

    iter_range: Node
    iter_var: str
    iter_var2: str
    accu_var: str
    accu_init: Node
    loop_condition: Node
    loop_step: Node
    result: Node
    at: int = 0
    macro: str = ""
    """The name of the macro (`all`, `exists`, `map`, `bind` …), for optimizations of the compiler."""


_FRAMES_PER_LEVEL: Final = 6

Node: TypeAlias = Literal | Ident | Select | Call | ListExpr | MapExpr | StructExpr | Comprehension


def children(node: Node) -> tuple[Node, ...]:
    """Return the direct children of a node, in the order of the source if they have one."""
    match node:
        case Select():
            return (node.operand,)
        case Call():
            return node.args if node.target is None else (node.target, *node.args)
        case ListExpr():
            return node.elements
        case MapExpr():
            return tuple(each for entry in node.entries for each in entry)
        case StructExpr():
            return tuple(value for _, value in node.entries)
        case Comprehension():
            loop = (node.iter_range, node.accu_init, node.loop_condition, node.loop_step)
            return (*loop, node.result)
        case _:
            return ()


def depth(root: Node) -> int:
    """Return the number of levels of the tree."""
    deepest = 0
    pending = [(root, 1)]
    while pending:
        node, level = pending.pop()
        deepest = max(deepest, level)
        pending += ((each, level + 1) for each in children(node))
    return deepest


class _Stack:
    """Python's recursion limit, raised in all threads while expressions that need more are compiled or evaluated."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0

    @contextlib.contextmanager
    def of(self, levels: int) -> Iterator[None]:
        """Allow enough nested calls for this number of levels of the tree."""
        with self._lock:
            limit = sys.getrecursionlimit()
            if not self._users:
                self._before = limit
            self._users += 1
            sys.setrecursionlimit(max(limit, self._before + levels * _FRAMES_PER_LEVEL))
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    sys.setrecursionlimit(self._before)


stack_for: Final = _Stack().of
