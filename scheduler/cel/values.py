"""The values of expressions: their types, comparison, and use as keys.

| CEL | Python |
|---|---|
| null, bool, int, double, string, bytes | None, bool, int, float, str, bytes |
| uint | `UInt`, a subclass of int |
| list | list or tuple |
| map | any Mapping whose keys went through `key`; a map of strings is a plain dict |
| timestamp, duration | `Timestamp`, `Duration` |
| type | `TypeValue` |
| optional | `Optional` |
| quantity, semver, URL, IP, CIDR, format | classes of the libraries, with a class attribute `cel_type` |
| an object with fields | a Mapping that has `cel_type` |

Python's `True == 1` and `1 == 1.0` differ from CEL's equality: compare with `equal`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, ClassVar, Final, TypeAlias

from msgspec import Struct

from scheduler.cel.errors import EvalError
from scheduler.cel.eval.running import work

Value: TypeAlias = Any
"""Any of the types above."""


class UInt(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()


class Timestamp(Struct, frozen=True, eq=False, gc=False):
    """Nanoseconds since 1970-01-01T00:00:00Z, years 1 to 9999; `offset_s` east of UTC is only used for its text."""

    nanos: int
    offset_s: int = 0
    cel_type: ClassVar[str] = "timestamp"

    def __eq__(self, other: object) -> bool:
        return type(other) is Timestamp and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("timestamp", self.nanos))


class Duration(Struct, frozen=True, order=True, gc=False):
    """Nanoseconds in 64 bits."""

    nanos: int
    cel_type: ClassVar[str] = "duration"


class TypeValue(Struct, frozen=True, gc=False):
    """The result of `type(x)`, and the names of types."""

    name: str
    cel_type: ClassVar[str] = "type"


class Optional(Struct, frozen=True, eq=False):
    """The result of `optional.of(value)`, or none."""

    value: Value = None
    present: bool = True
    cel_type: ClassVar[str] = "optional_type"


NONE = Optional(present=False)


class BoolKey(Struct, eq=False):
    """A bool as a key of a map, because Python treats a bool as 0 or 1."""

    value: bool


_TRUE: Final = BoolKey(value=True)
_FALSE: Final = BoolKey(value=False)


def key(value: Value) -> Value:
    """Return the value as a key of a map: 1, 1u and 1.0 are one key, true is another. TypeError for an invalid key."""
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    hash(value)
    return value


def unkey(held: Value) -> Value:
    """Return the value from which `key` made this key."""
    return held.value if type(held) is BoolKey else held


_PLAIN_NAMES: Final[dict[type, str]] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    tuple: "list",
    dict: "map",
}
_LONG_NAMES: Final = {"timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}


def type_name(value: Value) -> str:
    """Return the name of `type(value)` at run time; messages about types use `timestamp` and `duration` instead."""
    plain = _PLAIN_NAMES.get(type(value))
    if plain is not None:
        return plain
    own: str | None = getattr(value, "cel_type", None)
    if own is not None:
        return _LONG_NAMES.get(own, own)
    return "map" if isinstance(value, Mapping) else "list"


_Pairs: TypeAlias = set[tuple[int, int]]
_NUMBERS: Final = frozenset({int, UInt, float})
_HOLDERS: Final = (list, tuple, Mapping)
_COMPARED_BY_PYTHON: Final[frozenset[type]] = frozenset(
    {int, UInt, float, str, bytes, bool, type(None), Timestamp, Duration, TypeValue}
)
"""Classes whose values Python compares as CEL does, and which are common; no containers."""
_ORDERED_BY_PYTHON: Final = frozenset({str, bytes, bool})
_OF_KUBERNETES: Final = ("kubernetes.", "net.")


def equal(left: Value, right: Value) -> bool:
    """Return `left == right`. Numbers of all types are compared; other values of different types are not equal.

    As in upstream, a value of Kubernetes' own types on the left raises EvalError. `!=` never fails: it is `not
    same(left, right)`.
    """
    if type(left) is not type(right) and right is not None and is_kubernetes(left):
        raise EvalError("no such overload")
    return same(left, right)


def is_kubernetes(value: Value) -> bool:
    """Return whether the value is a quantity, version, URL, address, network or format."""
    if type(value) in _PLAIN_NAMES or isinstance(value, Mapping):
        return False
    return str(getattr(value, "cel_type", "")).startswith(_OF_KUBERNETES)


def same(left: Value, right: Value, alike: _Pairs | None = None) -> bool:
    """Return the result of `equal`, but False for values that cannot be compared: inside lists, for `in`, for `!=`.

    `alike` are pairs of containers that are known to be equal. Shared containers would otherwise be compared
    exponentially often.
    """
    one, other = type(left), type(right)
    if one is other:
        if one in _COMPARED_BY_PYTHON:
            return bool(left == right)
        if one is Optional:
            if left.present is not right.present:
                return False
            return not left.present or same(left.value, right.value, alike)
    if one in _NUMBERS and other in _NUMBERS:
        return _compared_numbers(left, right) == 0
    if isinstance(left, _HOLDERS):
        alike = set() if alike is None else alike
        pair = id(left), id(right)
        if pair not in alike:
            if not _same_parts(left, right, alike):
                return False
            alike.add(pair)
        return True
    return one is other and bool(left == right)


def _same_parts(left: Value, right: Value, alike: _Pairs) -> bool:
    if isinstance(left, list | tuple):
        if not isinstance(right, list | tuple) or len(left) != len(right):
            return False
        work(1 + len(left))
        return all(map(same, left, right, repeat(alike)))
    if not isinstance(right, Mapping) or len(left) != len(right):
        return False
    work(1 + len(left))
    # The values are read by name, because an attribute of a device may fail when it is read.
    return all(_is_same_at(left[name], name, right, alike) for name in left)


def _is_same_at(value: Value, name: Value, right: Mapping[Any, Any], alike: _Pairs) -> bool:
    return name in right and same(value, right[name], alike)


def contains(values: Sequence[Value], value: Value) -> bool:
    if type(value) is str:
        return value in values
    work(1 + len(values))
    return any(map(same, repeat(value), values))


def compare(left: Value, right: Value) -> int:
    """Return -1, 0 or 1; raise EvalError for values without an order."""
    one, other = type(left), type(right)
    if one in _NUMBERS and other in _NUMBERS:
        order = _compared_numbers(left, right)
        if order is None:
            raise EvalError("NaN values cannot be ordered")
        return order
    if one is not other:
        raise EvalError("no such overload")
    if one in _ORDERED_BY_PYTHON:
        return int(left > right) - int(left < right)
    if isinstance(left, Timestamp | Duration):
        return int(left.nanos > right.nanos) - int(left.nanos < right.nanos)
    raise EvalError("no such overload")


_INT_RANGE: Final = (float(-(2**63)), float(2**63))
_UINT_RANGE: Final = (0.0, float(2**64))


def _compared_numbers(left: Any, right: Any) -> int | None:
    """Compare two numbers; None if one is NaN. As upstream, an integer is compared to a double as its nearest double."""
    if left != left or right != right:  # noqa: PLR0124  only NaN
        return None
    if type(left) is float and type(right) is not float:
        return _compared_to_double(left, right)
    if type(right) is float and type(left) is not float:
        return -_compared_to_double(right, left)
    return int(left > right) - int(left < right)


def _compared_to_double(double: float, integer: int) -> int:
    low, high = _UINT_RANGE if type(integer) is UInt else _INT_RANGE
    if double < low:
        return -1
    if double > high:
        return 1
    nearest = float(integer)
    return int(double > nearest) - int(double < nearest)
