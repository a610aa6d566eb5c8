"""One evaluation of an expression: its variables, its cost and its limits.

Three limits end an evaluation, all with upstream's error of the cost limit: the number of steps, processor time, and the
size of results. Upstream has only a limit of costs, and charges next to nothing for some calls that take minutes or
all memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from scheduler.cel.errors import CostExceeded

COST_LIMIT: Final = 1_000_000
"""Upstream's limit for a device selector. Here a step costs one; upstream has a cost for each function."""
DEADLINE_NANOS: Final = 50_000_000
"""The processor time of the thread that an evaluation may take."""
LONGEST: Final = 2**15
"""The longest text in characters, and the longest sum of lists in elements.

It is three times the longest selector. No single call takes more than about 25 ms for this length, so the deadline is
checked in time.
"""
_MOST_MADE: Final = 2**23
"""The characters and elements that all calls of an evaluation may create: copies use much memory in little time."""
_LONG: Final = 256
"""Shorter results do not count, because the cost of their calls is high enough."""
_COST_BETWEEN_CHECKS: Final = 64
EXCEEDED: Final = "operation cancelled: actual cost limit exceeded"

processor_nanos: Callable[[], int] = time.thread_time_ns
"""The clock of the deadline: the processor time of this thread. Tests replace it."""


class Run:
    """The state of one evaluation. The code of each step charges its cost."""

    __slots__ = ("_ends_at", "_limit", "_made", "_nanos", "bindings", "cost", "next_check", "slots")

    def __init__(
        self, bindings: Mapping[str, Any], slots: int, *, limit: int = COST_LIMIT, nanos: int = DEADLINE_NANOS
    ) -> None:
        self.bindings = bindings
        self.slots: list[Any] = [None] * slots
        self.cost = 0
        self.next_check = min(limit, _COST_BETWEEN_CHECKS)
        """The cost above which loops and calls must call `check`."""
        self._limit = limit
        self._nanos = nanos
        self._ends_at: int | None = None
        """None before the first check, so that short evaluations do not read the clock."""
        self._made = 0

    def check(self) -> None:
        """Raise CostExceeded if the cost or the processor time is above its limit."""
        if self.cost > self._limit:
            raise CostExceeded(EXCEEDED)
        now = processor_nanos()
        if self._ends_at is None:
            self._ends_at = now + self._nanos
        elif now > self._ends_at:
            raise CostExceeded(EXCEEDED)
        self.next_check = min(self._limit, self.cost + _COST_BETWEEN_CHECKS)

    def looped(self) -> None:
        """Check the limits if necessary; called once per turn of every loop. Raise CostExceeded."""
        if self.cost > self.next_check:
            self.check()

    def work(self, amount: int) -> None:
        """Check the limits before work that may take longer than its cost suggests; `amount` is in units of cost."""
        self.next_check -= amount
        if self.cost > self.next_check:
            self.check()

    def afford(self, cost: int) -> None:
        """Raise CostExceeded if there is not enough cost left for a step with at least this cost.

        It is called before a step whose cost is high.
        """
        if self.cost + cost > self._limit:
            raise CostExceeded(EXCEEDED)

    def made(self, result: Any) -> None:
        """Count a text or list that a call has created."""
        size = len(result)
        if size > _LONG:
            self._made += size
            if self._made > _MOST_MADE or (size > LONGEST and type(result) is not list):
                raise CostExceeded(EXCEEDED)


class _Current(threading.local):
    """The evaluation of this thread, for library functions, which only get values."""

    run: Run | None = None


current: Final = _Current()


def work(amount: int) -> None:
    """Call `Run.work` of the evaluation of this thread. Outside of an evaluation nothing is limited."""
    if current.run is not None:
        current.run.work(amount)


def afford(cost: int) -> None:
    """Call `Run.afford` of the evaluation of this thread."""
    if current.run is not None:
        current.run.afford(cost)


def fits(size: int) -> None:
    """Raise CostExceeded if a text or list of this size must not be created from smaller ones."""
    if size > LONGEST:
        raise CostExceeded(EXCEEDED)


Code: TypeAlias = Callable[[Run], Any]
"""An expression that is ready for evaluation. Raises EvalError."""


class Failed:
    """An error as a variable's value; it is raised when the variable is read."""

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
    """Return the text of upstream's `%T` for a value of this type, which is part of some messages."""
    return _GO_TYPES.get(type_name, type_name)
