"""What can be said of a search without searching: too few devices, too few equal values, devices that are alike.

Every bound is a necessary condition, so what it cuts off holds no solution (docs/spec/dra.md §10.4).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from scheduler.plugins.dra.constraints import Constraint, Known, Values
from scheduler.plugins.dra.demand import Ask, Demand
from scheduler.plugins.dra.seats import Mask, Seats

if TYPE_CHECKING:
    from scheduler.plugins.dra.search import _Position


class Bounds:
    """For one search."""

    def __init__(self, demand: Demand, seats: Seats) -> None:
        self._demand = demand
        self._seats = seats
        self._masks: dict[int, Mask] = {}
        self._buckets: dict[int, dict[Values | None, Mask]] = {}
        self._twins: dict[int, Hashable] = {}

    def mask(self, ask: Ask) -> Mask:
        """Devices that the ask may have while nobody uses them."""
        known = self._masks.get(id(ask))
        if known is None:
            seats = self._seats
            known = seats.selectable(ask).mask
            for number in range(len(seats.devices)):
                if known >> number & 1 and not self._is_possible(ask, number):
                    known ^= 1 << number
            self._masks[id(ask)] = known
        return known

    def _is_possible(self, ask: Ask, number: int) -> bool:
        seats = self._seats
        if not seats.is_tolerated(ask, number) or not seats.may_draw(number):
            return False
        return not seats.rules.consumable or seats.fits(ask, number, {})

    def twin(self, number: int) -> Hashable:
        """Equal for devices that are interchangeable in this search while equally much of both is taken."""
        seats = self._seats
        known = self._twins.get(number)
        if known is None:
            asks = tuple(
                (self.mask(ask) >> number & 1, number in seats.selectable(ask).faults)
                for _, _, ask in self._demand.asks
            )
            kind = seats.kind(number)
            values = tuple(con.values(kind) for claim in self._demand.claims for con in claim.constraints)
            consumes = seats.devices[number].device.consumes_counters
            draws: Hashable = None
            if consumes:
                draws = (
                    seats.pool_of[number],
                    tuple(
                        (c.counter_set, tuple(sorted((n, a.value.nano) for n, a in c.counters.items())))
                        for c in consumes
                    ),
                )
            shared: Hashable = None
            if seats.shared >> number & 1:
                shared = (kind, seats.has_shares(number), tuple(sorted(seats.consumed(number).items())))
            known = self._twins[number] = (asks, values, draws, shared, seats.used >> number & 1)
        return known

    def bucket(self, constraint: Constraint, values: Values | None) -> Mask:
        """Devices with exactly these values of the constraint's attribute."""
        return self.buckets(constraint).get(values, 0)

    def buckets(self, constraint: Constraint) -> dict[Values | None, Mask]:
        """All devices by their values."""
        known = self._buckets.get(id(constraint))
        if known is None:
            known = self._buckets[id(constraint)] = {}
            for number in range(len(self._seats.devices)):
                values = constraint.values(self._seats.kind(number))
                known[values] = known.get(values, 0) | 1 << number
        return known

    @property
    def has_odd_values(self) -> bool:
        """Whether a constraint meets values that it does not understand: those count if they come first (§4.10)."""
        claims = self._demand.claims
        return any(frozenset() in self.buckets(constraint) for claim in claims for constraint in claim.constraints)

    def may_succeed(self, position: _Position, order: Sequence[int], used: Mask, known: tuple[Known, ...]) -> bool:
        """Whether enough is left for the request under way, and for all that the claims still ask for together."""
        rest = 0
        for number in order[position.start :]:
            rest |= 1 << number
        needs: dict[Mask, int] = {}
        claims = self._demand.claims
        for c in range(position.claim, len(claims)):
            claim = claims[c]
            first = position.request if c == position.claim else 0
            for r in range(first, len(claim.requests)):
                request = claim.requests[r]
                here = c == position.claim and r == position.request
                if request.is_list and not here:
                    continue
                ask = request.asks[max(position.alternative, 0) if here else 0]
                if ask.is_all or ask.is_admin:
                    continue
                free = self.mask(ask) & (~used | self._seats.shared)
                needed = ask.spec.count
                if here:
                    free &= rest
                    needed -= position.taken
                free = self._agreeing(ask, c, free, known if c == position.claim else None, needed)
                if free.bit_count() < needed:
                    return False
                if not free & self._seats.shared:
                    needs[free] = needs.get(free, 0) + needed
        return _hall(needs)

    def _agreeing(self, ask: Ask, c: int, free: Mask, known: tuple[Known, ...] | None, needed: int) -> Mask:
        """Those of the free devices that constraints leave."""
        for at, constraint in enumerate(self._demand.claims[c].constraints):
            if not constraint.concerns(ask.request, ask.full_name):
                continue
            seen = known[at] if known is not None else ()
            if constraint.is_match:
                free = self._matching(constraint, free, seen, needed)
            else:
                free = self._distinct(constraint, free, seen, needed)
        return free

    def _matching(self, constraint: Constraint, free: Mask, seen: Known, needed: int) -> Mask:
        buckets = self.buckets(constraint)
        if seen:
            return sum(mask & free for values, mask in buckets.items() if values is not None and values & seen[0])
        if any(values is not None and len(values) != 1 for values in buckets):
            return free & ~buckets.get(None, 0)
        enough = (mask & free for values, mask in buckets.items() if values is not None)
        return sum(mask for mask in enough if mask.bit_count() >= needed)

    def _distinct(self, constraint: Constraint, free: Mask, seen: Known, needed: int) -> Mask:
        left = 0
        different = 0
        for values, mask in self.buckets(constraint).items():
            if values is not None and mask & free and not any(values & each for each in seen):
                left |= mask & free
                different += 1
        return left if different >= needed else 0


def _hall(needs: dict[Mask, int]) -> bool:
    """No set of candidates is asked for more often than it has members; only sets that are asked for are looked at."""
    return all(sum(count for other, count in needs.items() if other & ~mask == 0) <= mask.bit_count() for mask in needs)
