"""What generated source calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

from scheduler.cel.attributes import MISSING, find, pick
from scheduler.cel.calls import Invocation
from scheduler.cel.costs import size
from scheduler.cel.folds import items_of, pairs_of
from scheduler.cel.gotext import scalar
from scheduler.cel.logic import cost_of_equality
from scheduler.cel.running import EXCEEDED, Failed, Run
from scheduler.cel.strain import nanos_of_equality, strain_of_sum
from scheduler.cel.values import NONE, CostExceeded, EvalError, Optional, Value, equal, key, same, unkey

_COST_BETWEEN_CHECKS: Final = 300


class Unusual(Exception):
    """The closures have to decide."""


class Stopped(Exception):
    """What the caller's check raised."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class Free:
    """In place of a Run, where costs are of no interest."""

    __slots__ = ("cost",)

    def __init__(self) -> None:
        self.cost = 0

    def afford(self, cost: int) -> None:
        """As a Run."""

    def strain(self, nanos: int) -> None:
        """As a Run."""


def ticking(limit: int, check: Callable[[], None] | None) -> tuple[int, Callable[[int], int]]:
    """The cost at which to call the function; it gives the next such cost, or raises."""

    def tick(cost: int) -> int:
        if cost > limit:
            raise CostExceeded(EXCEEDED)
        if check is not None:
            try:
                check()
            except BaseException as error:  # noqa: BLE001  whatever it is, it is the caller's
                raise Stopped(error) from None
        return min(limit, cost + _COST_BETWEEN_CHECKS)

    return limit if check is None else min(limit, _COST_BETWEEN_CHECKS), tick


def picked(holder: Value, name: Value) -> Value:
    """`holder[name]`, of what is no optional."""
    if isinstance(holder, Optional):
        raise Unusual
    return pick(holder, name)


def found(holder: Value, name: Value) -> Value:
    """`holder[name]`, or MISSING."""
    if isinstance(holder, Optional):
        raise Unusual
    return find(holder, name)


def is_found(holder: Value, name: Value) -> bool:
    """`has(holder.name)`."""
    return found(holder, name) is not MISSING


def missed(holder: Value, name: str) -> Value:
    """`holder[name]`, which did not go well."""
    if type(holder) is dict:
        raise EvalError(f"no such key: {name}")
    return picked(holder, name)


def hashed(name: Value) -> Value:
    """As `key`. When the error would have come is not known here."""
    try:
        return key(name)
    except TypeError:
        raise Unusual from None


def exceed() -> NoReturn:
    """It would cost too much, or take too long."""
    raise CostExceeded(EXCEEDED)


def summed(run: Run, invoke: Invocation, one: Value, other: Value) -> Value:
    """`one + other`, which for lists makes a third."""
    strain_of_sum(run, one, other)
    if type(one) is list and type(other) is list:
        run.cost += 1
        return one + other
    return invoke(run, one, other)


def compared(run: Run, one: Value, other: Value) -> bool:
    """`one == other`."""
    if nanos := nanos_of_equality(one):
        run.strain(nanos)
    return equal(one, other)


def alike(run: Run, one: Value, other: Value) -> bool:
    """`!(one != other)`."""
    if nanos := nanos_of_equality(one):
        run.strain(nanos)
    return same(one, other)


def merge(entries: dict[Value, Value], more: Mapping[Any, Value]) -> None:
    """Into a map that is being made."""
    if not isinstance(more, dict):
        raise Unusual
    for name, value in more.items():
        if name in entries:
            raise EvalError(taken(name))
        entries[name] = value


def taken(name: Value) -> str:
    """What is wrong with a second entry for a key."""
    return f"insert failed: key {scalar(unkey(name))} already exists"


def items(value: Value) -> Iterable[Value]:
    """What a loop of one variable goes over."""
    return value if type(value) is list else items_of(value)


NAMES: Final[Mapping[str, object]] = {
    "Unusual": Unusual,
    "Optional": Optional,
    "MISSING": MISSING,
    "NONE": NONE,
    "FREE": Free(),
    "compared": compared,
    "alike": alike,
    "cost_of_equality": cost_of_equality,
    "picked": picked,
    "found": found,
    "is_found": is_found,
    "exceed": exceed,
    "summed": summed,
    "merge": merge,
    "taken": taken,
    "items": items,
    "pairs": pairs_of,
    "hashed": hashed,
    "missed": missed,
    "size": size,
    "EvalError": EvalError,
    "Failed": Failed,
}
"""The global names of generated source."""
