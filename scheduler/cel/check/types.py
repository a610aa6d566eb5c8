"""Types of the language, declarations of functions, and unification.

Unification decides whether a value of one type may be used as another type, and binds type variables. It follows
cel-go's checker, also where that is generous: `dyn` fits every type in both directions. A failed `assign` changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from scheduler.cel.values import Value


class Type(NamedTuple):
    """A type. `name` is cel-go's name in messages; list, map, optional_type and type have parameters.

    A type parameter of an overload has one upper-case letter as its name.
    """

    name: str
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(map(str, self.params))})"


DYN: Final = Type("dyn")
ANY: Final = Type("any")
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null_type")
TIMESTAMP: Final = Type("timestamp")
DURATION: Final = Type("duration")
QUANTITY: Final = Type("kubernetes.Quantity")
SEMVER: Final = Type("kubernetes.Semver")
URL: Final = Type("kubernetes.URL")
IP: Final = Type("net.IP")
CIDR: Final = Type("net.CIDR")
FORMAT: Final = Type("kubernetes.NamedFormat")
A: Final = Type("A")
B: Final = Type("B")
T: Final = Type("T")


def list_of(element: Type) -> Type:
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("optional_type", (value,))


def type_of(value: Type) -> Type:
    """Return `type(value)`, the type of `type(x)` and of a type's name."""
    return Type("type", (value,))


class Overload(msgspec.Struct, frozen=True, eq=False):
    """One signature of a function. Compared by identity.

    `call` gets evaluated arguments (the target first, for a member) whose run-time types fit `params`; it raises
    `EvalError`.
    """

    id: str
    name: str
    params: tuple[Type, ...]
    result: Type
    call: Callable[..., Value]
    member: bool = False


class ObjectType(msgspec.Struct, frozen=True):
    """A type with named fields, such as that of `device`; its values are mappings with all fields."""

    name: str
    fields: Mapping[str, Type]


@dataclass(frozen=True, slots=True)
class Env:
    """The declarations for an expression: variables, object types by name, functions."""

    variables: Mapping[str, Type]
    functions: Mapping[str, tuple[Overload, ...]]
    """By name; member and global overloads together."""
    objects: Mapping[str, ObjectType] = field(default_factory=dict)

    def extended(self, variables: Mapping[str, Any], objects: tuple[ObjectType, ...] = ()) -> Env:
        """Return a copy with additional variables and object types."""
        more = {each.name: each for each in objects}
        return Env({**self.variables, **variables}, self.functions, {**self.objects, **more})


ERROR: Final = Type("!error!")
"""The type of an expression whose error has been reported already."""

_OPAQUE = frozenset({"optional_type", "net.IP", "net.CIDR"})
_CONTAINERS = frozenset({"list", "map"}) | _OPAQUE
_NEVER_NULL = frozenset({"bool", "int", "uint", "double", "string", "bytes", "list", "map", "type"})
_DECLARED = {
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "any": "google.protobuf.Any",
}
_VARIABLE: Final = "_var"


def is_variable(type_: Type) -> bool:
    name = type_.name
    return name.startswith(_VARIABLE) or (len(name) == 1 and name.isupper())


@lru_cache(maxsize=128)
def is_closed(type_: Type) -> bool:
    """Return whether the type contains no type variable.

    Cached, because types may be nested several hundred levels deep.
    """
    return not is_variable(type_) and all(map(is_closed, type_.params))


def is_dyn(type_: Type) -> bool:
    return type_.name in {"dyn", "any"}


def is_dyn_or_error(type_: Type) -> bool:
    return is_dyn(type_) or type_ == ERROR


def is_struct(type_: Type) -> bool:
    """Return whether it is a type with fields, known or not: every name with a dot except those of opaque values."""
    return "." in type_.name and type_.name not in _OPAQUE


def unwrap_optional(type_: Type) -> tuple[Type, bool]:
    """Return the type inside an optional, and whether it was an optional."""
    return (type_.params[0], True) if type_.name == "optional_type" else (type_, False)


def shown(type_: Type) -> str:
    """Return the type as the checker's messages write it."""
    if type_.name == "null_type":
        return "null"
    if not type_.params:
        return type_.name
    return f"{type_.name}({', '.join(map(shown, type_.params))})"


def declared(type_: Type) -> str:
    """Return the type as the message about the result's type writes it."""
    name = declared_name(type_)
    return f"{name}({', '.join(map(declared, type_.params))})" if type_.params else name


def declared_name(type_: Type) -> str:
    """Return the name with which an expression refers to the type."""
    return _DECLARED.get(type_.name, type_.name)


def substitute(bound: Mapping[str, Type], type_: Type, *, to_dyn: bool = False) -> Type:
    """Return the type with its bound variables replaced, and its other variables by dyn if `to_dyn`."""
    while type_.name in bound:
        type_ = bound[type_.name]
    if is_variable(type_):
        return DYN if to_dyn else type_
    if not type_.params or is_closed(type_):
        return type_
    return Type(type_.name, tuple(substitute(bound, each, to_dyn=to_dyn) for each in type_.params))


def more_general(one: Type, other: Type) -> Type:
    """Return the more general of two types that unify."""
    return one if _is_no_more_specific(one, other) else other


def _is_no_more_specific(one: Type, other: Type) -> bool:
    if is_dyn(one) or is_variable(one):
        return True
    if is_dyn(other) or is_variable(other) or one.name != other.name:
        return False
    if one.name not in _CONTAINERS:
        return one.name == "type" or one == other
    return len(one.params) == len(other.params) and all(map(_is_no_more_specific, one.params, other.params))


class Inference:
    """Type variables and their inferred types."""

    __slots__ = ("_added", "_bound", "_fresh", "_known_calls")

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        """Name of a type variable → its type."""
        self._added: dict[str, Type] = {}
        """What the running `assign` binds if it succeeds. To copy all bindings would be quadratic in the source."""
        self._fresh = 0
        self._known_calls: dict[Hashable, tuple[tuple[Overload, ...], Type | None]] = {}

    def assign(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        """Return whether all of `given` fit `wanted`; if so, bind the type variables accordingly."""
        self._added = {}
        fits = self._all_fit(given, wanted)
        if fits:
            self._bound.update(self._added)
        return fits

    def new_variable(self) -> Type:
        self._fresh += 1
        return Type(f"{_VARIABLE}{self._fresh}")

    def resolved(self, type_: Type, *, to_dyn: bool = False) -> Type:
        """Return the type with its bound variables replaced."""
        return substitute(self._bound, type_, to_dyn=to_dyn)

    def fitting(
        self, overloads: tuple[Overload, ...], given: Sequence[Type], *, is_member: bool
    ) -> tuple[tuple[Overload, ...], Type | None]:
        """Return all overloads that these arguments allow, and their result type: dyn if they disagree.

        Calls with equal arguments without type variables share one cached result, because a source may contain
        thousands.
        """
        key = (overloads, is_member, *given)
        fits = self._known_calls.get(key)
        if fits is not None:
            return fits
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
            this = self.resolved(gives)
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
        if is_variable(type_) and type_.name not in fresh:
            fresh[type_.name] = self.new_variable()
        for each in type_.params:
            self._freshen(each, fresh)

    def _all_fit(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        return len(given) == len(wanted) and all(map(self._fits, given, wanted))

    def _fits(self, one: Type, other: Type) -> bool:
        if is_variable(other):
            fits, was_bound = self._binds(one, other)
            if fits or was_bound:
                return fits
        if is_variable(one):
            return self._binds(other, one)[0]
        if is_dyn_or_error(one) or is_dyn_or_error(other):
            return True
        if "null_type" in {one.name, other.name}:
            return one.name not in _NEVER_NULL and other.name not in _NEVER_NULL
        if one.name != other.name:
            return False
        return one.name not in _CONTAINERS or self._all_fit(one.params, other.params)

    def _binds(self, type_: Type, variable: Type) -> tuple[bool, bool]:
        """Return whether the variable may stand for the type, and whether it was bound before."""
        if type_ == variable:
            return True, True
        bound = self._type_of(variable)
        if bound is None:
            is_free = self._is_free_of(variable, type_)
            if is_free:
                self._added[variable.name] = type_
            return is_free, False
        if type_ == bound:
            return True, True
        if not self._fits(type_, bound):
            return False, True
        general = more_general(type_, bound)
        if self._is_free_of(variable, general):
            self._added[variable.name] = general
        return True, True

    def _type_of(self, variable: Type) -> Type | None:
        return self._added.get(variable.name) or self._bound.get(variable.name)

    def _is_free_of(self, variable: Type, within: Type) -> bool:
        """Return whether the variable does not occur in the type, also through bound variables."""
        if variable == within:
            return False
        if is_variable(within):
            bound = self._type_of(within)
            return bound is None or self._is_free_of(variable, bound)
        return is_closed(within) or all(self._is_free_of(variable, each) for each in within.params)
