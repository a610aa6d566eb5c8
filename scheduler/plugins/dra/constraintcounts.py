"""How many of the free devices of one node a constraint lets a claim have together, for `/debug/pod`.

Each constraint is counted alone. The counts are upper bounds: a claim may still fail because no set of devices satisfies
all its constraints and requests at once. Fewer than are wanted means that this constraint cannot be satisfied there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from scheduler.plugins.dra.constraints import Constraint, Values
from scheduler.plugins.dra.demand import ClaimDemand
from scheduler.plugins.dra.seats import Seats

Free = Mapping[str, Collection[int]]
"""By full name of an ask: the numbers of the devices that are free for it."""


class Counted(NamedTuple):
    """One constraint on one node: how many devices are wanted together, and how many there can be."""

    wanted: int
    most: int


class _Option(NamedTuple):
    """One alternative of a request: how many devices it wants, and the values of those that are free."""

    wanted: int
    values: Mapping[int, Values]


def counted(constraint: Constraint, claim: ClaimDemand, seats: Seats, free: Free) -> Counted:
    """Count the devices of all requests that the constraint concerns, whatever alternative they take."""
    requests = list(_options(constraint, claim, seats, free))
    wanted = sum(min(option.wanted for option in options) for options in requests)
    if not constraint.is_match:
        return Counted(wanted, _distinct(requests))
    values = {value for options in requests for option in options for seen in option.values.values() for value in seen}
    return Counted(wanted, max((_alike(requests, value) for value in values), default=0))


def _options(constraint: Constraint, claim: ClaimDemand, seats: Seats, free: Free) -> Iterator[Sequence[_Option]]:
    """The alternatives of each request. A request with an alternative that is not concerned can always evade."""
    for request in claim.requests:
        if not all(constraint.concerns(ask.request, ask.full_name) for ask in request.asks):
            continue
        options = []
        for ask in request.asks:
            numbers = free[ask.full_name]
            values = {number: constraint.values(seats.kind(number)) or frozenset() for number in numbers}
            options.append(_Option(max(1, len(numbers)) if ask.is_all else ask.spec.count, values))
        yield options


def _alike(requests: Sequence[Sequence[_Option]], value: tuple[str, object]) -> int:
    """How many devices with this value the requests can take."""
    taken, there = 0, set[int]()
    for options in requests:
        with_value = [{number for number, seen in option.values.items() if value in seen} for option in options]
        taken += max(min(option.wanted, len(those)) for option, those in zip(options, with_value, strict=True))
        there.update(*with_value)
    return min(taken, len(there))


def _distinct(requests: Sequence[Sequence[_Option]]) -> int:
    """How many devices can differ: each needs a value of its own."""
    taken, there = 0, set[tuple[str, object]]()
    for options in requests:
        values = [{value for seen in option.values.values() for value in seen} for option in options]
        devices = [sum(map(bool, option.values.values())) for option in options]
        taken += max(
            min(option.wanted, count, len(own)) for option, count, own in zip(options, devices, values, strict=True)
        )
        there.update(*values)
    return min(taken, len(there))
