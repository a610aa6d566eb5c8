"""Type checking: the type of each part of an expression, the variable it names, and its possible overloads.

Types, messages and error positions are those of cel-go's checker with Kubernetes' options: numbers compare across
types. Mixed literals are accepted here, see `validators`. This module does not know what functions compute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

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
    ObjectType,
    Overload,
    Type,
    assign,
    declared,
    is_closed,
    is_dyn,
    is_dyn_or_error,
    is_struct,
    is_variable,
    list_of,
    map_of,
    more_general,
    optional_of,
    shown,
    substitute,
    type_of,
    unwrap_optional,
    variable,
)
from scheduler.cel.errors import CompileError, Issue, report
from scheduler.cel.syntax.ast import Call, Comprehension, Ident, ListExpr, Literal, MapExpr, Node, Select, StructExpr
from scheduler.cel.values import UInt


class Inference:
    """Type variables and their inferred types."""

    __slots__ = ("_fresh", "_known_calls", "bound")

    def __init__(self) -> None:
        self.bound: dict[str, Type] = {}
        self._fresh = 0
        self._known_calls: dict[Hashable, tuple[tuple[Overload, ...], Type | None]] = {}

    def assign(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        """Return whether all of `given` fit `wanted`; if so, bind the type variables accordingly."""
        return assign(self.bound, given, wanted)

    def new_variable(self) -> Type:
        """Return a new type variable."""
        self._fresh += 1
        return variable(self._fresh - 1)

    def known(self, type_: Type, *, to_dyn: bool = False) -> Type:
        """Return the type with its bound variables replaced."""
        return substitute(self.bound, type_, to_dyn=to_dyn)

    def fitting(
        self, overloads: tuple[Overload, ...], given: Sequence[Type], *, is_member: bool
    ) -> tuple[tuple[Overload, ...], Type | None]:
        """Return all overloads that these arguments allow, and their result type: dyn if they disagree.

        Calls with equal arguments without type variables share one cached result, because a source may contain
        thousands.
        """
        key = (overloads, is_member, *given)
        known = self._known_calls.get(key)
        if known is not None:
            return known
        found = self._fitting(overloads, given, is_member=is_member)
        if (found[1] is None or is_closed(found[1])) and all(map(is_closed, given)):
            self._known_calls[key] = found
        return found

    def _fitting(
        self, overloads: Sequence[Overload], given: Sequence[Type], *, is_member: bool
    ) -> tuple[tuple[Overload, ...], Type | None]:
        fitting: list[Overload] = []
        result: Type | None = None
        for overload in overloads:
            if overload.member != is_member:
                continue
            wanted, gives = self._instance(overload)
            if not self.assign(given, wanted):
                continue
            fitting.append(overload)
            this = self.known(gives)
            if result is None:
                result = this
            elif not is_dyn(result) and this != result:
                result = DYN
        return tuple(fitting), result

    def _instance(self, overload: Overload) -> tuple[tuple[Type, ...], Type]:
        """Return its parameters and result with new type variables."""
        fresh: dict[str, Type] = {}
        for each in (overload.result, *overload.params):
            self._freshen(each, fresh)
        if not fresh:
            return overload.params, overload.result
        return tuple(substitute(fresh, each) for each in overload.params), substitute(fresh, overload.result)

    def _freshen(self, type_: Type, fresh: dict[str, Type]) -> None:
        if type_.is_parameter and type_.name not in fresh:
            fresh[type_.name] = self.new_variable()
        for each in type_.params:
            self._freshen(each, fresh)


class Variable:
    """The meaning of an identifier. Two variables of one name, in two scopes, are two objects."""

    __slots__ = ("is_local", "name", "names_type", "type")

    def __init__(self, name: str, type_: Type, *, is_local: bool = False, names_type: bool = False) -> None:
        self.name, self.type, self.is_local, self.names_type = name, type_, is_local, names_type


class Names:
    """All names that are visible at the checker's position."""

    __slots__ = ("_env", "_globals", "_locals")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._globals: dict[str, Variable] = {}
        self._locals: list[dict[str, Variable]] = []

    @contextlib.contextmanager
    def inside(self, *variables: Variable) -> Iterator[None]:
        """Hide other variables of these names inside the block."""
        self._locals.append({each.name: each for each in variables})
        try:
            yield
        finally:
            self._locals.pop()

    def look_up(self, name: str) -> Variable | None:
        """Return the variable or type of this name; None if there is none."""
        # As upstream, a name with a leading dot may refer to variables of macros.
        name = name.removeprefix(".")
        for scope in reversed(self._locals):
            if name in scope:
                return scope[name]
        if name not in self._globals:
            found = self._global(name)
            if found is None:
                return None
            self._globals[name] = found
        return self._globals[name]

    def _global(self, name: str) -> Variable | None:
        type_ = self._env.variables.get(name)
        if type_ is not None:
            return Variable(name, type_, names_type=type_.name == "type")
        if name in self._env.objects:
            return Variable(name, type_of(Type(name)), names_type=True)
        return None


def qualified_name(node: Node) -> str | None:
    """Return `a.b.c` if the node is only a qualified name."""
    names: list[str] = []
    while isinstance(node, Select) and not node.test and not node.optional:
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(names)])


_LITERALS: Final = {
    type(None): NULL,
    bool: BOOL,
    int: INT,
    UInt: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
}


@dataclass(frozen=True, slots=True)
class Checked:
    """An expression without type errors, with all results of the checker."""

    source: str
    root: Node
    result: Type
    types: dict[Node, Type]
    variables: dict[Node, Variable]
    """By identifier, or by selection if that is a qualified name."""
    calls: dict[Node, tuple[Overload, ...]]
    """More than one overload if the argument types are not fully known."""
    qualified: frozenset[Node]
    """Calls whose target is a part of the function's name: `optional.of(x)`."""
    scopes: dict[Node, tuple[Variable, ...]]
    """By comprehension: its accumulator, then its iteration variables."""


def check(root: Node, source: str, env: Env) -> Checked:
    """Check the expression; raise CompileError with all errors."""
    checker = _Checker(env)
    checker.check(root)
    if checker.issues:
        raise CompileError(report(source, checker.issues))
    types = {node: checker.known(type_) for node, type_ in checker.types.items()}
    return Checked(
        source=source,
        root=root,
        result=types[root],
        types=types,
        variables=checker.variables,
        calls=checker.calls,
        qualified=frozenset(checker.qualified),
        scopes=checker.scopes,
    )


@dataclass(slots=True)
class _Checker:
    env: Env
    issues: list[Issue] = field(default_factory=list)
    types: dict[Node, Type] = field(default_factory=dict)
    variables: dict[Node, Variable] = field(default_factory=dict)
    calls: dict[Node, tuple[Overload, ...]] = field(default_factory=dict)
    qualified: set[Node] = field(default_factory=set)
    scopes: dict[Node, tuple[Variable, ...]] = field(default_factory=dict)
    _inference: Inference = field(default_factory=Inference)
    _names: Names = field(init=False)

    def __post_init__(self) -> None:
        self._names = Names(self.env)

    def known(self, type_: Type) -> Type:
        """Return the final type."""
        return self._inference.known(type_, to_dyn=True)

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
        self.types[node] = type_
        return type_

    # --- names ---

    def _ident(self, node: Ident) -> Type:
        found = self._names.look_up(node.name)
        if found is None:
            return self._undeclared(node, node.name)
        self.variables[node] = found
        return found.type

    def _select(self, node: Select) -> Type:
        name = qualified_name(node)
        found = self._names.look_up(name) if name is not None else None
        if found is not None:
            self.variables[node] = found
            return found.type
        type_ = self._field(node)
        return BOOL if node.test else self._inference.known(type_)

    def _field(self, node: Select) -> Type:
        of_optional = self._inference.known(self.check(node.operand))
        operand, is_optional = unwrap_optional(of_optional)
        result = ERROR
        if operand.name == "map":
            result = operand.params[1]
        elif is_variable(operand):
            self._inference.assign((DYN,), (operand,))
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
            self.qualified.add(node)
            return self._resolved(node, f"{prefix.removeprefix('.')}.{node.function}", None)
        self.check(node.target)
        return self._resolved(node, node.function, node.target)

    def _resolved(self, node: Call, name: str, target: Node | None) -> Type:
        overloads = self.env.functions.get(name)
        if overloads is None:
            return self._undeclared(node, name)
        if name in {"_&&_", "_||_"}:
            return self._logical(node, overloads)
        given = [self.types[each] for each in (() if target is None else (target,)) + node.args]
        fitting, result = self._inference.fitting(overloads, given, is_member=target is not None)
        if result is None:
            known = [shown(self._inference.known(each, to_dyn=True)) for each in given]
            receiver = f"{known.pop(0)}." if target is not None else ""
            text = f"found no matching overload for '{name}' applied to '{receiver}({', '.join(known)})'"
            self._issue(node, text)
            return ERROR
        self.calls[node] = fitting
        return result

    def _logical(self, node: Call, overloads: tuple[Overload, ...]) -> Type:
        self.calls[node] = overloads
        before = len(self.issues)
        for each in node.args:
            if not self._inference.assign((self.types[each],), (BOOL,)):
                self._mismatch(each, BOOL, self.types[each])
        return BOOL if len(self.issues) == before else ERROR

    # --- literals ---

    def _list(self, node: ListExpr) -> Type:
        joined: Type | None = None
        for index, each in enumerate(node.elements):
            type_ = self._element(each, is_optional=index in node.optional)
            joined = self._join(joined, type_)
        return list_of(joined or self._inference.new_variable())

    def _map(self, node: MapExpr) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for index, (key, value) in enumerate(node.entries):
            keys = self._join(keys, self.check(key))
            type_ = self._element(value, is_optional=index in node.optional)
            values = self._join(values, type_)
        if keys is None or values is None:
            return map_of(self._inference.new_variable(), self._inference.new_variable())
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
        return more_general(previous, current) if self._inference.assign((previous,), (current,)) else DYN

    def _struct(self, node: StructExpr) -> Type:
        found = self._names.look_up(node.type_name)
        if found is None:
            return self._undeclared(node, node.type_name)
        for _, value in node.entries:
            self.check(value)
        if found.type.name != "type":
            self._issue(node, f"'{declared(found.type)}' is not a type")
            return ERROR
        known = self.env.objects.get(found.name)
        if known is None:
            self._issue(node, f"'{declared(found.type.params[0]).partition('(')[0]}' is not a message type")
            return ERROR
        for name, value in node.entries:
            self._field_of(known, name, value)
        return found.type.params[0]

    def _field_of(self, known: ObjectType, name: str, value: Node) -> None:
        type_ = known.fields.get(name)
        given = self.types[value]
        if type_ is None:
            self._issue(value, f"undefined field '{name}'")
        elif not self._inference.assign((type_,), (given,)):
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
        self.scopes[node] = (accu, *items)
        with self._names.inside(accu):
            with self._names.inside(*items):
                self._expect(node.loop_condition, BOOL)
                self._expect(node.loop_step, accu.type)
            result = self.check(node.result)
        return self._inference.known(result)

    def _range_types(self, node: Comprehension) -> tuple[Type, Type]:
        """Return the types of the iteration variables."""
        over = self._inference.known(self.types[node.iter_range])
        if over.name == "list":
            return (INT, over.params[0]) if node.iter_var2 else (over.params[0], DYN)
        if over.name == "map":
            return over.params[0], over.params[1]
        if over in {DYN, ERROR} or is_variable(over):
            self._inference.assign((DYN,), (over,))
            return DYN, DYN
        text = f"expression of type '{shown(over)}' cannot be range of a comprehension (must be list, map, or dynamic)"
        self._issue(node.iter_range, text)
        return ERROR, ERROR

    def _expect(self, node: Node, type_: Type) -> None:
        found = self.check(node)
        if not self._inference.assign((type_,), (found,)):
            self._mismatch(node, type_, found)

    # --- the rest ---

    def _undeclared(self, node: Node, name: str) -> Type:
        self._issue(node, f"undeclared reference to '{name}' (in container '')")
        return ERROR

    def _mismatch(self, node: Node, expected: Type, found: Type) -> None:
        self._issue(node, f"expected type '{shown(expected)}' but found '{shown(found)}'")

    def _issue(self, node: Node, text: str) -> None:
        self.issues.append(Issue(node.at, text))
