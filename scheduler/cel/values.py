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

from typing import Any, ClassVar, TypeAlias

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
    """Nanoseconds since 1970-01-01T00:00:00Z, years 1 to 9999."""

    __slots__ = ("nanos",)
    cel_type: ClassVar[str] = "timestamp"

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos

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
