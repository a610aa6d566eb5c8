"""What expressions evaluate to, and how those things are told apart, compared and used as keys.

| CEL | Python |
|---|---|
| null, bool, int, double, string, bytes | None, bool, int, float, str, bytes |
| uint | `UInt`, an int of its own class |
| list | list or tuple |
| map | any Mapping whose keys went through `key`; a map of strings is a plain dict |
| timestamp, duration | `Timestamp`, `Duration` |
| type | `TypeValue` |
| optional | `Optional` |
| quantity, semver, URL, IP, CIDR, format | classes of the libraries, with a class attribute `cel_type` |
| an object with fields | a Mapping that has `cel_type` |

Python's `True == 1` and `1 == 1.0` are never CEL's: compare with `equal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, ClassVar, Final, TypeAlias

Value: TypeAlias = Any
"""Any of the above."""


class CelError(Exception):
    """The text is upstream's, without what it was said about."""


class CompileError(CelError):
    """The expression is not well-formed or not well-typed. The text is what follows `compilation failed: `."""


class EvalError(CelError):
    """This value cannot be computed. `&&`, `||`, `all` and `exists` may absorb it."""


class CostExceeded(CelError):
    """Never absorbed."""


class UInt(int):
    """64 bits, no sign."""

    __slots__ = ()


class Timestamp:
    """Nanoseconds since 1970-01-01T00:00:00Z, years 1 to 9999; `offset_s` east of UTC is only for writing it down."""

    __slots__ = ("nanos", "offset_s")
    cel_type: ClassVar[str] = "timestamp"

    def __init__(self, nanos: int, offset_s: int = 0) -> None:
        self.nanos, self.offset_s = nanos, offset_s

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("timestamp", self.nanos))


class Duration:
    """Nanoseconds, 64 bits."""

    __slots__ = ("nanos",)
    cel_type: ClassVar[str] = "duration"

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("duration", self.nanos))


class TypeValue:
    """`type(x)`, and the names of types."""

    __slots__ = ("name",)
    cel_type: ClassVar[str] = "type"

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeValue) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("type", self.name))


class Optional:
    """`optional.of(value)`, or none."""

    __slots__ = ("present", "value")
    cel_type: ClassVar[str] = "optional_type"

    def __init__(self, value: Value = None, *, present: bool = True) -> None:
        self.value, self.present = value, present


NONE = Optional(present=False)


class BoolKey:
    """A bool as a key of a map, where Python would take it for 0 or 1."""

    __slots__ = ("value",)

    def __init__(self, *, value: bool) -> None:
        self.value = value


_TRUE: Final = BoolKey(value=True)
_FALSE: Final = BoolKey(value=False)


def key(value: Value) -> Value:
    """The value as a key of a map: 1, 1u and 1.0 are one key, true is another. TypeError for what cannot be one."""
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    hash(value)
    return value


def unkey(held: Value) -> Value:
    """The value that `key` made a key of."""
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
    """What `type(value)` is called at run time; messages about types say `timestamp` and `duration` for short."""
    plain = _PLAIN_NAMES.get(type(value))
    if plain is not None:
        return plain
    own: str | None = getattr(value, "cel_type", None)
    if own is not None:
        return _LONG_NAMES.get(own, own)
    return "map" if isinstance(value, Mapping) else "list"


_Pairs: TypeAlias = set[tuple[int, int]]
_NUMBERS: Final = frozenset({int, UInt, float})
_LISTS: Final = frozenset({list, tuple})
_COMPARED_BY_PYTHON: Final = frozenset({int, UInt, float, str, bytes, bool, type(None)})
_ALIKE: Final = frozenset({int, str, bytes, bool})
_atoms: set[type] = set()
"""Classes whose values were seen to be no containers, and to compare as Python compares them."""
_ORDERED_BY_PYTHON: Final = frozenset({str, bytes, bool})
_OF_KUBERNETES: Final = ("kubernetes.", "net.")


def equal(left: Value, right: Value) -> bool:
    """`left == right`. Numbers are compared across their types; else values of two types are not equal.

    A value of Kubernetes' own types on the left does not even allow the question: EvalError, upstream's asymmetry.
    `!=` never fails: it is `not same(left, right)`.
    """
    one = type(left)
    if one is type(right):
        return bool(left == right) if one in _COMPARED_BY_PYTHON or one in _atoms else same(left, right)
    if right is not None and is_kubernetes(left):
        raise EvalError("no such overload")
    return same(left, right)


def is_kubernetes(value: Value) -> bool:
    """Whether the value is a quantity, version, URL, address, network or format."""
    if type(value) in _COMPARED_BY_PYTHON or isinstance(value, Mapping):
        return False
    return str(getattr(value, "cel_type", "")).startswith(_OF_KUBERNETES)


def same(left: Value, right: Value, alike: _Pairs | None = None) -> bool:
    """As `equal`, but two values that cannot be compared are simply not equal: inside lists, for `in`, for `!=`.

    `alike` are containers that have been found to be equal. They may hold each other more often than anybody could count.
    """
    one, other = type(left), type(right)
    if one is other and (one in _COMPARED_BY_PYTHON or one in _atoms):
        return bool(left == right)
    if one in _NUMBERS and other in _NUMBERS:
        return _compared_numbers(left, right) == 0
    if one in _LISTS or other in _LISTS or isinstance(left, list | tuple | Mapping | Optional):
        alike = set() if alike is None else alike
        pair = id(left), id(right)
        if pair not in alike:
            if not _same_parts(left, right, alike):
                return False
            alike.add(pair)
        return True
    if one is not other:
        return False
    _atoms.add(one)
    return bool(left == right)


def _same_parts(left: Value, right: Value, alike: _Pairs) -> bool:
    if isinstance(left, list | tuple):
        if not isinstance(right, list | tuple) or len(left) != len(right):
            return False
        if _are_alike(left, right):
            return list(left) == list(right)
        return all(map(same, left, right, repeat(alike)))
    if isinstance(left, Mapping):
        return isinstance(right, Mapping) and _same_entries(left, right, alike)
    if isinstance(left, Optional):
        if not isinstance(right, Optional) or left.present is not right.present:
            return False
        return not left.present or same(left.value, right.value, alike)
    return False


def _same_entries(left: Mapping[Any, Value], right: Mapping[Any, Value], alike: _Pairs) -> bool:
    if len(left) != len(right):
        return False
    if type(left) is type(right) is dict and _are_alike(left.values(), right.values()):
        return left == right
    return all(name in right and same(value, right[name], alike) for name, value in left.items())


def _are_alike(one: Iterable[Value], other: Iterable[Value]) -> bool:
    """Whether all of them have one class, that compares in Python as in CEL."""
    kinds = {*map(type, one), *map(type, other)}
    return len(kinds) == 1 and kinds <= _ALIKE


def contains(values: Sequence[Value], value: Value) -> bool:
    """Whether the list holds the value. Python looks for texts and for most integers as CEL would, and in no time."""
    if type(value) is str:
        return value in values
    if type(value) is int and -_EXACT <= value <= _EXACT:
        is_found = value in values
        if not is_found or value not in {0, 1}:  # which to Python are booleans too
            return is_found
    if type(value) is float and value == value and {*map(type, values)} == {float}:  # noqa: PLR0124  no NaN
        return value in values
    return any(same(value, each) for each in values)


_EXACT: Final = 2**53
"""Up to here every integer is a double."""


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1. Raises EvalError for values without order between them."""
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
    """None if one is NaN. An integer next to a double is taken for the double nearest to it, as upstream does."""
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
