"""One evaluation of an expression: what it may see, and what it has cost so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from scheduler.cel.values import CostExceeded, Value

COST_LIMIT: Final = 1_000_000
"""Upstream's, for a device selector."""
MOST_NANOS: Final = 40_000_000
"""What `strain` lets an evaluation take."""
ERROR_NANOS: Final = 800
"""What it takes to raise an error and to catch it."""
_LOOPS_BETWEEN_CHECKS: Final = 100
EXCEEDED: Final = "operation cancelled: actual cost limit exceeded"


class Run:
    """The state of one evaluation. Costs are charged by whoever does the work."""

    __slots__ = ("_check", "_limit", "_loops", "bindings", "cost", "patterns", "slots", "strained_nanos")

    def __init__(
        self,
        bindings: Mapping[str, Value],
        slots: int,
        *,
        limit: int = COST_LIMIT,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.bindings = bindings
        self.slots: list[Value] = [None] * slots
        self.cost = 0
        self.strained_nanos = 0
        self.patterns: set[str] = set()
        """What has been read lately."""
        self._limit = limit
        self._loops = 0
        self._check = check

    def looped(self) -> None:
        """To be called once per turn of every loop. Raises CostExceeded, or whatever the caller's check raises."""
        if self.cost > self._limit:
            raise CostExceeded(EXCEEDED)
        self._loops += 1
        if self._check is not None and self._loops % _LOOPS_BETWEEN_CHECKS == 0:
            self._check()

    def afford(self, cost: int) -> None:
        """To be called before work that will cost so much at least, if it is a lot."""
        if self.cost + cost > self._limit:
            raise CostExceeded(EXCEEDED)

    def strain(self, nanos: int) -> None:
        """To be called before work that takes so long and costs next to nothing."""
        self.strained_nanos += nanos
        if self.strained_nanos > MOST_NANOS:
            raise CostExceeded(EXCEEDED)

    def settle(self) -> None:
        """To be called at the end: what was not in a loop counts too."""
        if self.cost > self._limit:
            raise CostExceeded(EXCEEDED)


Code: TypeAlias = Callable[[Run], Value]
"""An expression, ready to be evaluated. Raises EvalError."""


class Failed:
    """An error that was kept as a variable's value: it is raised when somebody looks."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


_GO_TYPES: Final = {
    "null_type": "types.Null",
    "bool": "types.Bool",
    "int": "types.Int",
    "uint": "types.Uint",
    "double": "types.Double",
    "string": "types.String",
    "bytes": "types.Bytes",
    "list": "*types.baseList",
    "map": "*types.baseMap",
    "optional_type": "*types.Optional",
    "type": "*types.Type",
    "google.protobuf.Timestamp": "types.Timestamp",
    "google.protobuf.Duration": "types.Duration",
    "kubernetes.Quantity": "cel.Quantity",
    "kubernetes.Semver": "cel.Semver",
    "kubernetes.URL": "cel.URL",
    "kubernetes.NamedFormat": "*cel.Format",
    "net.IP": "cel.IP",
    "net.CIDR": "cel.CIDR",
}


def go_type(type_name: str) -> str:
    """What upstream's `%T` prints for a value of this type; some messages hold it."""
    return _GO_TYPES.get(type_name, type_name)
