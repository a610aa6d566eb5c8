"""The cost that kube-apiserver estimates for a CEL selector, before any device is known.

A server refuses a selector whose worst case is too expensive. This module walks the tree and keeps sizes by node, as
`checker/cost.go` of cel-go 0.29 does; the charges of calls are in `call_costs`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from typing import Final, NamedTuple

from scheduler.cel.check.checker import Checked
from scheduler.cel.check.types import Env, is_struct
from scheduler.cel.eval.program import analyzed
from scheduler.cel.syntax.ast import Call, Comprehension, Ident, ListExpr, Literal, MapExpr, Node, Select, StructExpr
from scheduler.cel.syntax.macros import TARGET
from simulator.simulate.input.rules.call_costs import (
    ENDLESS,
    MOST,
    NEW_LIST,
    NEW_MAP,
    NEW_STRUCT,
    NO_PATH,
    Called,
    Entries,
    Path,
    Size,
    Value,
    charge,
    is_scalar,
    joined_entries,
    product,
)

COST_LIMIT: Final = 1_000_000
_ONE: Final = Size(1, 1)


def estimated_cost(expression: str, env: Env) -> int:
    """Return the cost of the worst case, at most 2**64 - 1; raise CompileError."""
    return analyzed(expression, env, lambda checked, _: min(_Estimate(checked).cost(checked.root), MOST))


class _Local(NamedTuple):
    """A variable of a macro."""

    path: Path = NO_PATH
    size: Size | None = None
    entries: Entries | None = None
    cost: int = 1
    """Upstream repeats the target of `optMap` where this tree has a variable, which then costs as much as the target."""


class _Estimate:
    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self._locals: dict[str, list[_Local]] = defaultdict(list)
        self._paths: dict[Node, Path] = {}
        self._sizes: dict[Node, Size] = {}
        self._entries: dict[Node, Entries] = {}

    def cost(self, node: Node) -> int:
        match node:
            case Literal():
                return 0
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListExpr():
                return self._list(node)
            case MapExpr():
                return self._map(node)
            case StructExpr():
                return NEW_STRUCT + sum(self.cost(value) for _, value in node.entries)
            case Comprehension():
                return self._binding(node) if node.macro == "bind" else self._fold(node)

    # -- names -------------------------------------------------------------------------------------------------------

    def _ident(self, node: Ident) -> int:
        local = self._local(node)
        self._paths[node] = Path([node.name], 1) if local is None else local.path
        return 1 if local is None else local.cost

    def _select(self, node: Select) -> int:
        if node in self._checked.variables:
            return 1
        cost = self.cost(node.operand)
        if node.test:
            return cost
        if node.optional:
            self._keep(node, self._size(node))
            return cost + 1
        type_ = self._checked.types[node.operand]
        self._paths[node] = self._path(node.operand).then(node.field)
        return cost + (type_.name == "map" or is_struct(type_))

    def _local(self, node: Node) -> _Local | None:
        named = self._locals[node.name] if isinstance(node, Ident) else None
        return named[-1] if named else None

    # -- sizes -------------------------------------------------------------------------------------------------------

    def _path(self, node: Node) -> Path:
        local = self._local(node)
        return self._paths.get(node, NO_PATH) if local is None else local.path

    def _size(self, node: Node) -> Size | None:
        if node in self._sizes:
            return self._sizes[node]
        match node:
            case Literal(str() | bytes() as text):
                return Size(len(text), len(text))
            case Literal():
                return _ONE
            case ListExpr():
                return Size(len(node.elements), len(node.elements))
            case MapExpr():
                return Size(len(node.entries), len(node.entries))
        size = self._path(node).size()
        if size is not None:
            self._sizes[node] = size
            return size
        if is_scalar(self._checked.types[node]):
            return _ONE
        local = self._local(node)
        return None if local is None else local.size

    def _size_or_endless(self, node: Node) -> Size:
        return self._size(node) or ENDLESS

    def _entries_of(self, node: Node) -> Entries | None:
        local = self._local(node)
        return self._entries.get(node) or (None if local is None else local.entries)

    def _keep(self, node: Node, size: Size | None, entries: Entries | None = None) -> None:
        if size is not None:
            self._sizes[node] = size
        if entries is not None:
            self._entries[node] = entries

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self, node: Call) -> int:
        if node.function == "dyn":
            cost = 1 + self.cost(node.args[0])
            self._keep(node, self._size(node.args[0]), self._entries_of(node.args[0]))
            return cost
        costs, args = [], []
        for each in node.args:
            costs.append(self.cost(each))
            args.append(self._value(each))
        target, of_target = None, 0
        if node.target is not None and node not in self._checked.qualified:
            of_target = self.cost(node.target)
            target = self._value(node.target)
        dearest, size = 0, None
        for overload in self._checked.calls[node]:
            own, result = charge(Called(overload.name, overload.id, target, tuple(args)))
            dearest = max(dearest, own)
            if result is not None:
                size = result if size is None else size.joined(result)
            if overload.id in {"index_list", "index_map"}:
                self._paths[node] = args[0].path.then("@items" if overload.id == "index_list" else "@values")
                entries = self._entries_of(node.args[0])
                size = None if entries is None else entries.value
            size = size or self._size(node)
        self._keep(node, size, self._joined(node))
        arguments = costs[0] + max(costs[1:]) if node.function == "_?_:_" else sum(costs)
        return of_target + dearest + arguments

    def _value(self, node: Node) -> Value:
        return Value(node, self._checked.types[node], self._size(node), self._path(node))

    def _joined(self, node: Call) -> Entries | None:
        """Return the entries of a result that is one of the arguments, or their sum."""
        if node.function not in {"_?_:_", "_+_"}:
            return None
        return joined_entries(*map(self._entries_of, node.args[-2:]))

    # -- literals ----------------------------------------------------------------------------------------------------

    def _list(self, node: ListExpr) -> int:
        cost = NEW_LIST + sum(map(self.cost, node.elements))
        self._keep(node, None, Entries(_ONE, self._sizes_of(node.elements), is_list=True))
        return cost

    def _map(self, node: MapExpr) -> int:
        keys, values = tuple(key for key, _ in node.entries), tuple(value for _, value in node.entries)
        cost = NEW_MAP + sum(self.cost(key) + self.cost(value) for key, value in node.entries)
        self._keep(node, None, Entries(self._sizes_of(keys), self._sizes_of(values), is_list=False))
        return cost

    def _sizes_of(self, nodes: Sequence[Node]) -> Size:
        sizes = [self._size_or_endless(each) for each in nodes]
        return reduce(Size.joined, sizes) if sizes else Size(0, 0)

    # -- macros ------------------------------------------------------------------------------------------------------

    def _binding(self, node: Comprehension) -> int:
        init = self.cost(node.accu_init)
        is_repeated = node.accu_var == TARGET
        self._push(node.accu_var, self._named(node.accu_init, cost=init if is_repeated else 1))
        cost = self.cost(node.result)
        self._locals[node.accu_var].pop()
        self._keep(node, self._size(node.result), self._entries_of(node.result))
        return cost if is_repeated else NEW_LIST + init + cost

    def _fold(self, node: Comprehension) -> int:
        cost = self.cost(node.iter_range) + self.cost(node.accu_init)
        self._push(node.accu_var, self._named(node.accu_init))
        items = self._items(node)
        for name, local in items:
            self._push(name, local)
        turn = self.cost(node.loop_condition) + self.cost(node.loop_step)
        for name, _ in items:
            self._locals[name].pop()
        cost += self.cost(node.result)
        self._locals[node.accu_var].pop()
        turns = self._size_or_endless(node.iter_range)
        if isinstance(node.accu_init, Literal):
            self._keep(node, self._size(node.accu_init))
        else:
            self._keep(node, turns, self._entries_of(node.loop_step))
        return cost + product(turns.most, turn)

    def _items(self, node: Comprehension) -> list[tuple[str, _Local]]:
        """Return the iteration variables."""
        entries, path = self._entries_of(node.iter_range), self._path(node.iter_range)
        is_list = self._checked.types[node.iter_range].name == "list" if entries is None else entries.is_list
        of_key, of_value = ("@indices", "@items") if is_list else ("@keys", "@values")
        key = None if entries is None else entries.key
        value = None if entries is None else entries.value
        if node.iter_var2:
            return [
                (node.iter_var, _Local(path.then(of_key), key)),
                (node.iter_var2, _Local(path.then(of_value), value)),
            ]
        if is_list:
            return [(node.iter_var, _Local(path.then(of_value), value))]
        return [(node.iter_var, _Local(path.then(of_key), key))]

    def _named(self, node: Node, *, cost: int = 1) -> _Local:
        return _Local(self._path(node), self._size(node), self._entries_of(node), cost)

    def _push(self, name: str, local: _Local) -> None:
        self._locals[name].append(local)
