"""Type checking: the type of each part of an expression, the variable it names, and its possible overloads.

Types, messages and error positions are those of cel-go's checker with Kubernetes' options: numbers compare across
types. Mixed literals are accepted here, see `validators`. This module does not know what functions compute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from scheduler.cel.check.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    Env,
    Inference,
    ObjectType,
    Overload,
    Type,
    declared,
    declared_name,
    is_dyn,
    is_dyn_or_error,
    is_struct,
    is_variable,
    list_of,
    map_of,
    more_general,
    optional_of,
    shown,
    type_of,
    unwrap_optional,
)
from scheduler.cel.errors import CompileError, Issue, report
from scheduler.cel.syntax.ast import Call, Comprehension, Ident, ListExpr, Literal, MapExpr, Node, Select, StructExpr
from scheduler.cel.values import UInt


class Variable(msgspec.Struct, frozen=True, eq=False):
    """The meaning of an identifier. Two local variables of one name, in two scopes, are two objects."""

    name: str
    type: Type
    is_local: bool = False
    names_type: bool = False


def qualified_name(node: Node) -> str | None:
    """Return `a.b.c` if the node is only a qualified name."""
    names: list[str] = []
    while isinstance(node, Select) and not node.test and not node.optional:
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(names)])


_LITERALS: Final = {type(None): NULL, bool: BOOL, int: INT, UInt: UINT, float: DOUBLE, str: STRING, bytes: BYTES}


@dataclass(slots=True)
class Checked:
    """An expression without type errors, with all results of the checker."""

    source: str
    root: Node
    result: Type = ERROR
    types: dict[Node, Type] = field(default_factory=dict)
    variables: dict[Node, Variable] = field(default_factory=dict)
    """By identifier, or by selection if that is a qualified name."""
    calls: dict[Node, tuple[Overload, ...]] = field(default_factory=dict)
    """More than one overload if the argument types are not fully known."""
    qualified: set[Node] = field(default_factory=set)
    """Calls whose target is a part of the function's name: `optional.of(x)`."""
    scopes: dict[Node, tuple[Variable, ...]] = field(default_factory=dict)
    """By comprehension: its accumulator, then its iteration variables."""


def check(root: Node, source: str, env: Env) -> Checked:
    """Check the expression; raise CompileError with all errors."""
    checked = Checked(source, root)
    checker = _Checker(env, checked)
    checker.check(root)
    if checker.issues:
        raise CompileError(report(source, checker.issues))
    resolved = checker.inference.resolved
    checked.types = {node: resolved(type_, to_dyn=True) for node, type_ in checked.types.items()}
    checked.result = checked.types[root]
    return checked


@dataclass(slots=True)
class _Checker:
    env: Env
    checked: Checked
    issues: list[Issue] = field(default_factory=list)
    inference: Inference = field(default_factory=Inference)
    scopes: list[dict[str, Variable]] = field(default_factory=list)
    """The variables of the enclosing macros, outermost first."""

    def check(self, node: Node) -> Type:
        """Return the type of the node, which may still contain type variables."""
        match node:
            case Literal():
                type_ = _LITERALS[type(node.value)]
            case Ident():
                type_ = self._ident(node)
            case Select():
                type_ = self._select(node)
            case Call():
                type_ = self._call(node)
            case ListExpr():
                type_ = self._list(node)
            case MapExpr():
                type_ = self._map(node)
            case StructExpr():
                type_ = self._struct(node)
            case Comprehension():
                type_ = self._comprehension(node)
        self.checked.types[node] = type_
        return type_

    # --- names ---

    def _look_up(self, name: str) -> Variable | None:
        """Return the variable or type of this name; None if there is none."""
        # As upstream, a name with a leading dot may refer to variables of macros.
        name = name.removeprefix(".")
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        type_ = self.env.variables.get(name)
        if type_ is not None:
            return Variable(name, type_, names_type=type_.name == "type")
        if name in self.env.objects:
            return Variable(name, type_of(Type(name)), names_type=True)
        return None

    def _ident(self, node: Ident) -> Type:
        found = self._look_up(node.name)
        if found is None:
            return self._undeclared(node, node.name)
        self.checked.variables[node] = found
        return found.type

    def _select(self, node: Select) -> Type:
        name = qualified_name(node)
        found = self._look_up(name) if name is not None else None
        if found is not None:
            self.checked.variables[node] = found
            return found.type
        type_ = self._field(node)
        return BOOL if node.test else self.inference.resolved(type_)

    def _field(self, node: Select) -> Type:
        of_optional = self.inference.resolved(self.check(node.operand))
        operand, is_optional = unwrap_optional(of_optional)
        result = ERROR
        if operand.name == "map":
            result = operand.params[1]
        elif is_variable(operand):
            self.inference.assign((DYN,), (operand,))
            result = DYN
        elif is_struct(operand):
            result = self._object_field(node, operand)
        else:
            if not is_dyn_or_error(operand):
                self._issue(node, f"type '{shown(operand)}' does not support field selection")
            result = DYN
        return optional_of(result) if is_optional or node.optional else result

    def _object_field(self, node: Select, type_: Type) -> Type:
        object_type = self.env.objects.get(type_.name)
        if object_type is None:
            self._issue(node, f"unexpected failed resolution of '{type_.name}'")
        elif node.field in object_type.fields:
            return object_type.fields[node.field]
        else:
            self._issue(node, f"undefined field '{node.field}'")
        return ERROR

    # --- calls ---

    def _call(self, node: Call) -> Type:
        for each in node.args:
            self.check(each)
        if node.target is None:
            return self._resolved(node, node.function.removeprefix("."), None)
        prefix = qualified_name(node.target)
        if prefix is not None and f"{prefix.removeprefix('.')}.{node.function}" in self.env.functions:
            self.checked.qualified.add(node)
            return self._resolved(node, f"{prefix.removeprefix('.')}.{node.function}", None)
        self.check(node.target)
        return self._resolved(node, node.function, node.target)

    def _resolved(self, node: Call, name: str, target: Node | None) -> Type:
        overloads = self.env.functions.get(name)
        if overloads is None:
            return self._undeclared(node, name)
        if name in {"_&&_", "_||_"}:
            return self._logical(node, overloads)
        given = [self.checked.types[each] for each in (() if target is None else (target,)) + node.args]
        fitting, result = self.inference.fitting(overloads, given, is_member=target is not None)
        if result is None:
            resolved = [shown(self.inference.resolved(each, to_dyn=True)) for each in given]
            receiver = f"{resolved.pop(0)}." if target is not None else ""
            text = f"found no matching overload for '{name}' applied to '{receiver}({', '.join(resolved)})'"
            self._issue(node, text)
            return ERROR
        self.checked.calls[node] = fitting
        return result

    def _logical(self, node: Call, overloads: tuple[Overload, ...]) -> Type:
        self.checked.calls[node] = overloads
        before = len(self.issues)
        for each in node.args:
            if not self.inference.assign((self.checked.types[each],), (BOOL,)):
                self._mismatch(each, BOOL, self.checked.types[each])
        return BOOL if len(self.issues) == before else ERROR

    # --- literals ---

    def _list(self, node: ListExpr) -> Type:
        joined: Type | None = None
        for index, each in enumerate(node.elements):
            type_ = self._element(each, is_optional=index in node.optional)
            joined = self._join(joined, type_)
        return list_of(joined or self.inference.new_variable())

    def _map(self, node: MapExpr) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for index, (key, value) in enumerate(node.entries):
            keys = self._join(keys, self.check(key))
            type_ = self._element(value, is_optional=index in node.optional)
            values = self._join(values, type_)
        if keys is None or values is None:
            return map_of(self.inference.new_variable(), self.inference.new_variable())
        return map_of(keys, values)

    def _element(self, node: Node, *, is_optional: bool) -> Type:
        type_ = self.check(node)
        if not is_optional:
            return type_
        inner, was_optional = unwrap_optional(type_)
        if not was_optional and not is_dyn(inner):
            self._mismatch(node, optional_of(inner), inner)
        return inner

    def _join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        return more_general(previous, current) if self.inference.assign((previous,), (current,)) else DYN

    def _struct(self, node: StructExpr) -> Type:
        found = self._look_up(node.type_name)
        if found is None:
            return self._undeclared(node, node.type_name)
        for _, value in node.entries:
            self.check(value)
        if found.type.name != "type":
            self._issue(node, f"'{declared(found.type)}' is not a type")
            return ERROR
        object_type = self.env.objects.get(found.name)
        if object_type is None:
            self._issue(node, f"'{declared_name(found.type.params[0])}' is not a message type")
            return ERROR
        for name, value in node.entries:
            self._field_of(object_type, name, value)
        return found.type.params[0]

    def _field_of(self, object_type: ObjectType, name: str, value: Node) -> None:
        type_ = object_type.fields.get(name)
        given = self.checked.types[value]
        if type_ is None:
            self._issue(value, f"undefined field '{name}'")
        elif not self.inference.assign((type_,), (given,)):
            text = f"expected type of field '{name}' is '{shown(type_)}' but provided type is '{shown(given)}'"
            self._issue(value, text)

    # --- macros ---

    def _comprehension(self, node: Comprehension) -> Type:
        self.check(node.iter_range)
        accu = Variable(node.accu_var, self.check(node.accu_init), is_local=True)
        first, second = self._range_types(node)
        items = [Variable(node.iter_var, first, is_local=True)]
        if node.iter_var2:
            items.append(Variable(node.iter_var2, second, is_local=True))
        self.checked.scopes[node] = (accu, *items)
        self.scopes.append({accu.name: accu})
        self.scopes.append({each.name: each for each in items})
        self._expect(node.loop_condition, BOOL)
        self._expect(node.loop_step, accu.type)
        self.scopes.pop()
        result = self.check(node.result)
        self.scopes.pop()
        return self.inference.resolved(result)

    def _range_types(self, node: Comprehension) -> tuple[Type, Type]:
        """Return the types of the iteration variables."""
        over = self.inference.resolved(self.checked.types[node.iter_range])
        if over.name == "list":
            return (INT, over.params[0]) if node.iter_var2 else (over.params[0], DYN)
        if over.name == "map":
            return over.params[0], over.params[1]
        if over in {DYN, ERROR} or is_variable(over):
            self.inference.assign((DYN,), (over,))
            return DYN, DYN
        text = f"expression of type '{shown(over)}' cannot be range of a comprehension (must be list, map, or dynamic)"
        self._issue(node.iter_range, text)
        return ERROR, ERROR

    def _expect(self, node: Node, type_: Type) -> None:
        found = self.check(node)
        if not self.inference.assign((type_,), (found,)):
            self._mismatch(node, type_, found)

    # --- the rest ---

    def _undeclared(self, node: Node, name: str) -> Type:
        self._issue(node, f"undeclared reference to '{name}' (in container '')")
        return ERROR

    def _mismatch(self, node: Node, expected: Type, found: Type) -> None:
        self._issue(node, f"expected type '{shown(expected)}' but found '{shown(found)}'")

    def _issue(self, node: Node, text: str) -> None:
        self.issues.append(Issue(node.at, text))
