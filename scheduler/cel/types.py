"""Types of the language, and how functions are declared (docs/spec/cel.md, KEP-2876)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from scheduler.cel.values import Value


class Type(NamedTuple):
    """`name` is cel-go's, as messages show it; parameters of list, map, optional_type and type follow.

    A type parameter of an overload has a name that is one upper-case letter.
    """

    name: str
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(map(str, self.params))})"

    @property
    def is_parameter(self) -> bool:
        return len(self.name) == 1 and self.name.isupper()


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
    """`list(element)`."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """`map(key, value)`."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """`optional_type(value)`."""
    return Type("optional_type", (value,))


def type_of(value: Type) -> Type:
    """`type(value)`: what `type(x)` and a type's name evaluate to."""
    return Type("type", (value,))


@dataclass(frozen=True, slots=True, eq=False)
class Overload:
    """One way to call a function. Compared by identity.

    `call` gets evaluated arguments (the target first, for a member) whose run-time types fit `params`; it raises
    `EvalError`. `cost` is upstream's run-time cost of one call, as a number or as a function that is called
    with the arguments and then the result; None is 1.
    """

    id: str
    name: str
    params: tuple[Type, ...]
    result: Type
    call: Callable[..., Value]
    member: bool = False
    cost: Callable[..., int] | int | None = None


@dataclass(frozen=True, slots=True)
class ObjectType:
    """A type with named fields, such as that of `device`; its values are mappings from field to value that hold all."""

    name: str
    fields: Mapping[str, Type]


@dataclass(frozen=True, slots=True)
class Env:
    """What an expression may name: variables, object types by name, functions."""

    variables: Mapping[str, Type]
    functions: Mapping[str, tuple[Overload, ...]]
    """By name; member and global overloads together."""
    objects: Mapping[str, ObjectType] = field(default_factory=dict)

    def extended(self, variables: Mapping[str, Any], objects: tuple[ObjectType, ...] = ()) -> Env:
        """This one, with more variables and object types."""
        more = {each.name: each for each in objects}
        return Env({**self.variables, **variables}, self.functions, {**self.objects, **more})
