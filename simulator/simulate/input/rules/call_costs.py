"""The estimated cost of calls in a CEL selector, from the sizes of their arguments.

Sizes have a minimum and a maximum, costs only a maximum. Parts of the device have the limits of a ResourceSlice, and a
size that nothing limits is endless.

Charges of cel-go's own functions are those of its `checker/cost.go` and `ext/lists.go`, version 0.29.

Upstream: staging/src/k8s.io/apiserver/pkg/cel/library/cost.go CostEstimator
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from scheduler.cel.check.types import Type
from scheduler.cel.syntax.ast import Literal, Node

MOST: Final = 2**64 - 1
_PER_CHARACTER: Final = 0.1
_PER_PATTERN_CHARACTER: Final = 0.25
NEW_LIST, NEW_MAP, NEW_STRUCT = 10, 30, 40
_AUTHORIZATION: Final = 350_000
_LONGEST_FORMAT: Final = 64
_LONGEST_FORMAT_PATTERN: Final = 128
_LONGEST_ADDRESS: Final = 16


# -- sizes -----------------------------------------------------------------------------------------------------------


class Size(NamedTuple):
    """Characters, bytes, elements or entries."""

    least: int
    most: int

    def __add__(self, other: Size) -> Size:  # type: ignore[override]
        return Size(min(self.least + other.least, MOST), min(self.most + other.most, MOST))

    def times(self, other: Size) -> Size:
        return Size(product(self.least, other.least), product(self.most, other.most))

    def joined(self, other: Size) -> Size:
        """Return the size of a value that is one of two."""
        return Size(min(self.least, other.least), max(self.most, other.most))

    def cost(self, factor: float) -> int:
        """Return the cost of a traversal."""
        return _scaled(self.most, factor)


ENDLESS: Final = Size(0, MOST)
_ONE: Final = Size(1, 1)
_SCALARS: Final = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})


def product(one: int, other: int) -> int:
    return min(one * other, MOST)


def _scaled(amount: int, factor: float) -> int:
    """Multiply as Go does, with doubles."""
    product = math.ceil(float(amount) * factor)
    return min(product, MOST)


def is_scalar(type_: Type) -> bool:
    return type_.name in _SCALARS or (type_.name == "optional_type" and is_scalar(type_.params[0]))


class Entries(NamedTuple):
    """The sizes of the keys and values of a list or map that the expression builds."""

    key: Size
    value: Size
    is_list: bool


def joined_entries(one: Entries | None, other: Entries | None) -> Entries | None:
    if one is None or other is None:
        return None
    return Entries(one.key.joined(other.key), one.value.joined(other.value), one.is_list)


class Declared(NamedTuple):
    """The largest size of a part of the device, and the declarations of its parts.

    Upstream: staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go sizeEstimator
    """

    most: int = 0
    fields: Mapping[str, Declared] = {}
    key: Declared | None = None
    element: Declared | None = None

    def part(self, name: str) -> Declared | None:
        if name in {"@items", "@values"}:
            return self.element
        if name == "@keys":
            return self.key
        return self.fields.get(name) or (self.element if self.element is _ATTRIBUTE else None)


_ATTRIBUTE: Final = Declared(64)
_DOMAIN: Final = Declared(63)
_IDENTIFIER: Final = Declared(32)
_DEVICE: Final = Declared(
    fields={
        "driver": Declared(63),
        "allowMultipleAllocations": Declared(1),
        "attributes": Declared(32, key=_DOMAIN, element=Declared(32, key=_IDENTIFIER, element=_ATTRIBUTE)),
        "capacity": Declared(32, key=_DOMAIN, element=Declared(32, key=_IDENTIFIER, element=Declared())),
    }
)


class Path(NamedTuple):
    """The names that lead to a part of a variable. It behaves as a slice of Go.

    Upstream appends to one slice twice, and the second name replaces the first one if the array has a free element. So a
    loop over the keys and values of one map gets the sizes of values for both.
    """

    names: list[str]
    length: int

    def then(self, name: str) -> Path:
        names = self.names
        if self.length == len(names):
            names = [*names, *[""] * max(self.length, 1)]
        names[self.length] = name
        return Path(names, self.length + 1)

    def size(self, *more: str) -> Size | None:
        """Return the size of the part, or of a part of it; None if it has no limit."""
        if not self.length:
            return None
        variable, *names = *self.names[: self.length], *more
        declared: Declared | None = _DEVICE if variable == "device" else None
        for name in names:
            if declared is None:
                return None
            declared = declared.part(name)
        return None if declared is None else Size(0, declared.most)


NO_PATH: Final = Path([], 0)


# -- calls -----------------------------------------------------------------------------------------------------------


class Value(NamedTuple):
    """A target or an argument of a call."""

    node: Node
    type: Type
    known_size: Size | None
    path: Path

    @property
    def size(self) -> Size:
        return self.known_size or ENDLESS

    @property
    def element_size(self) -> Size:
        return self.path.size("@items") or ENDLESS

    def number(self, otherwise: int) -> int:
        """Return the number if the value is a literal integer."""
        match self.node:
            case Literal(int() as number) if type(number) is int:
                return number
        return otherwise


class Called(NamedTuple):
    function: str
    overload: str
    target: Value | None
    args: tuple[Value, ...]

    @property
    def first(self) -> Value:
        """The target, or the first argument if there is none."""
        return self.args[0] if self.target is None else self.target


Charge: TypeAlias = tuple[int, Size | None]
"""The cost of a call without its arguments, and the size of its result if it is known."""
_Charging: TypeAlias = "Callable[[Called], Charge | None]"


def _nominal(_: Called) -> Charge:
    return 1, None


def _traversal(factor: float = 1, *, keeps_size: bool = False) -> _Charging:
    def charging(call: Called) -> Charge:
        size = call.first.size
        return size.cost(factor * _PER_CHARACTER), size if keeps_size else None

    return charging


def _of_argument(call: Called) -> Charge:
    return call.args[0].size.cost(_PER_CHARACTER), None


def _selector(call: Called) -> Charge:
    size = call.args[0].size
    return NEW_LIST + size.cost(_PER_CHARACTER) + _scaled(size.cost(0.5), NEW_LIST + NEW_STRUCT), None


def _search(call: Called) -> Charge | None:
    target = call.target
    if target is None:
        return None
    if not target.type.params:
        return target.size.cost(1 if call.function == "includes" else _PER_CHARACTER), None
    each = 1
    if target.type.params[0].name in {"string", "bytes"}:
        each += target.element_size.cost(_PER_CHARACTER)
    return product(target.size.most, each), None


def _replacement(call: Called) -> Charge | None:
    if call.target is None or len(call.args) < 2:
        return None
    size, old, new = call.target.size, call.args[0].size, call.args[1].size
    most, least = (0, size.most), (0, size.least)
    """How often a text is replaced, and the length that remains."""
    if old.least == 0:
        most = min(size.most + 1, MOST), size.most
    elif new.most > old.least:
        most = math.ceil(size.most / old.least), 0
    if old.most == 0:
        least = min(size.least + 1, MOST), size.least
    elif old.most > new.least:
        least = math.ceil(size.least / old.most), 0
    result = Size(least[0], most[0]).times(new) + Size(least[1], most[1])
    return size.cost(2 * _PER_CHARACTER), result


def _split(call: Called) -> Charge:
    size = call.first.size
    most = call.args[1].number(size.most) if len(call.args) > 1 else size.most
    return size.cost(2 * _PER_CHARACTER), Size(0, most & MOST)


def _joining(call: Called) -> Charge | None:
    if call.target is None:
        return None
    count, result = call.target.size, Size(0, 0)
    if call.target.type.params:
        result = count.times(call.target.element_size)
    if call.args:
        result += call.args[0].size.times(Size(max(count.least - 1, 0), max(count.most - 1, 0)))
    return result.cost(_PER_CHARACTER), result


def _matching(text: Value, pattern: Value) -> int:
    return product((text.size + _ONE).cost(_PER_CHARACTER), pattern.size.cost(_PER_PATTERN_CHARACTER))


def _found(call: Called) -> Charge | None:
    if call.target is None:
        return None
    return _matching(call.target, call.args[0]), Size(0, call.target.size.most)


def _matches(call: Called) -> Charge:
    return _matching(call.first, call.args[-1]), None


def _address(call: Called) -> Charge | None:
    return _nominal(call) if call.overload == "cidr_ip" else _of_argument(call) if call.args else None


def _contains_address(call: Called) -> Charge:
    cost = _scaled(2 * _LONGEST_ADDRESS, _PER_CHARACTER)
    if call.function == "containsCIDR":
        cost += _scaled(_LONGEST_ADDRESS, _PER_CHARACTER) + 1
    if call.overload.endswith("_string"):
        cost += call.args[0].size.cost(_PER_CHARACTER)
    return cost, None


def _validation(call: Called) -> Charge:
    cost = call.args[0].size.cost(_PER_CHARACTER)
    return _scaled(cost, _LONGEST_FORMAT_PATTERN * _PER_PATTERN_CHARACTER), None


def _equality(call: Called) -> Charge | None:
    """Return the cost of `==` for Kubernetes' own types."""
    left, right = call.args
    if left.type.name != right.type.name:
        return None
    if left.type.name in {"net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver", *_CHECKS}:
        return 1, None
    if left.type.name == "kubernetes.NamedFormat":
        return _scaled(_LONGEST_FORMAT, _PER_CHARACTER), None
    if left.type.name == "kubernetes.URL":
        return (right.known_size or _ONE).cost(_PER_CHARACTER), None
    return None


_CHECKS: Final = tuple(
    f"kubernetes.authorization.{name}"
    for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
)


def _comparison(call: Called) -> Charge:
    return _scaled(min(each.size.most for each in _values(call)), _PER_CHARACTER), None


def _values(call: Called) -> tuple[Value, ...]:
    return call.args if call.target is None else (call.target, *call.args)


def _contained(call: Called) -> Charge:
    assert call.target is not None
    return product(call.target.size.cost(_PER_CHARACTER), call.args[0].size.cost(_PER_CHARACTER)), None


def _sum(call: Called) -> Charge:
    size = call.args[0].size + call.args[1].size
    return 1 if call.overload == "add_list" else size.cost(_PER_CHARACTER), size


def _to_bytes(call: Called) -> Charge:
    size = call.args[0].size
    return size.cost(_PER_CHARACTER), Size(size.least, size.most * 4 & MOST)


def _to_string(call: Called) -> Charge:
    size = call.args[0].size
    return size.cost(_PER_CHARACTER), Size(size.least // 4, size.most)


def _quoted(call: Called) -> Charge:
    size = call.args[0].size
    return size.cost(_PER_CHARACTER), Size(size.least + 2 & MOST, size.most * 2 + 2 & MOST)


def _new_list(size: Size, factor: float = 1) -> Charge:
    return size.cost(factor) + 1 + NEW_LIST, size


def _slice(call: Called) -> Charge:
    count = max(call.args[1].number(call.first.size.most), 0) - max(call.args[0].number(0), 0) & MOST
    return _new_list(Size(count, count))


def _range(call: Called) -> Charge:
    count = max(call.args[0].number(MOST), 0)
    return _new_list(Size(count, count))


def _flat(call: Called) -> Charge:
    return _new_list(call.first.size, max(call.args[0].number(MOST), 0) if call.args else 1)


def _sorted(call: Called) -> Charge:
    compared = call.args[0] if call.args else call.first
    is_text = call.overload.startswith(("list_string_", "list_bytes_"))
    return _new_list(compared.size.times(compared.size), 2 + _PER_CHARACTER * is_text)


def _sets(call: Called) -> Charge:
    factor = 2 if call.function == "sets.equivalent" else 1
    return call.args[0].size.times(call.args[1].size).cost(factor) + 1, None


_CONSTANT: Final = """
    serviceAccount path group resource subresource namespace name allowed reason error errored masked
    prefixLength family isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast sign
    asInteger isInteger asApproximateFloat isGreaterThan isLessThan compareTo add sub major minor patch
    getScheme getHostname getHost getPort getEscapedPath getQuery format.named
"""
_BY_NAME: Final[Mapping[str, _Charging]] = {
    **dict.fromkeys(_CONSTANT.split(), _nominal),
    "check": lambda _: (_AUTHORIZATION, None),
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selector),
    **dict.fromkeys(["isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"], _search),
    **dict.fromkeys(["url", "lowerAscii", "upperAscii", "substring", "trim"], _traversal(keeps_size=True)),
    **dict.fromkeys(["cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"], _of_argument),
    "replace": _replacement,
    "split": _split,
    "join": _joining,
    **dict.fromkeys(("find", "findAll"), _found),
    "ip": _address,
    "ip.isCanonical": _traversal(2),
    **dict.fromkeys(("containsIP", "containsCIDR"), _contains_address),
    "validate": _validation,
    "_==_": _equality,
    **dict.fromkeys(("sort", "@sortByAssociatedKeys"), _sorted),
}
_ORDERS: Final = ("less", "less_equals", "greater", "greater_equals")
_BY_OVERLOAD: Final[Mapping[str, _Charging]] = {
    **dict.fromkeys(("logical_and", "logical_or"), lambda _: (0, None)),
    "conditional": lambda call: (0, call.args[1].size.joined(call.args[2].size)),
    "string_format": _traversal(),
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_string,
    "strings_quote": _quoted,
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _of_argument),
    "in_list": lambda call: (call.args[1].size.most, None),
    **dict.fromkeys(("matches", "matches_string"), _matches),
    "contains_string": _contained,
    **dict.fromkeys(("add_string", "add_bytes", "add_list"), _sum),
    **dict.fromkeys((f"{word}_{type_}" for word in _ORDERS for type_ in ("string", "bytes")), _comparison),
    **dict.fromkeys(("equals", "not_equals"), _comparison),
    "list_slice": _slice,
    **dict.fromkeys(("list_flatten", "list_flatten_int"), _flat),
    "lists_range": _range,
    "list_reverse": lambda call: _new_list(call.first.size),
    "list_distinct": lambda call: _new_list(call.first.size.times(call.first.size), 2),
    **dict.fromkeys(
        ("list_sets_contains_list", "list_sets_intersects_list", "list_sets_equivalent_list"),
        _sets,
    ),
}


def charge(call: Called) -> Charge:
    for table, name in ((_BY_NAME, call.function), (_BY_OVERLOAD, call.overload)):
        charging = table.get(name)
        if charging is not None and (found := charging(call)) is not None:
            return found
    return 1, None
