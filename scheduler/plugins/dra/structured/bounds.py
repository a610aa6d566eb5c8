"""Necessary conditions that end a search early: counts of devices, of values and of counters (docs/spec/dra.md §10.4).

A state that a bound rejects has no solution. The module also finds interchangeable devices.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple

from scheduler.cache.devices.pools import DeviceKind
from scheduler.core.caching import Computed
from scheduler.core.cooperative import Work, awaited, submitted
from scheduler.plugins.dra.structured.constraints import AllocationConstraint, SeenValues, Values
from scheduler.plugins.dra.structured.feasibility import (
    Feasibility,
    Need,
    Position,
    SearchState,
    Solution,
    SolverAnswer,
    Taking,
    bits,
    can_match,
)
from scheduler.plugins.dra.structured.node_devices import Mask, NodeDevices
from scheduler.plugins.dra.structured.requests import (
    ClaimsToAllocate,
    RequestData,
)


class _Want(NamedTuple):
    request_data: RequestData
    mask: Mask
    needed: int


class Bounds:
    """The bounds of one search. `lists` maps the id of a request for all devices to these devices."""

    def __init__(self, demand: ClaimsToAllocate, node_devices: NodeDevices, lists: dict[int, list[int]]) -> None:
        self._demand = demand
        self._node_devices = node_devices
        self._lists = lists
        self._masks = Computed(self._mask_of)
        self.buckets = Computed(self._bucketed)
        """Constraint → all devices by their values of its attribute."""
        self.twin = Computed(self._twin_of)
        """Device → a number, equal for devices that are interchangeable while equally much of both is taken."""
        self._twin_numbers: dict[Hashable, int] = {}
        self._values: Computed[tuple[AllocationConstraint, DeviceKind], Values | None] = Computed(_values_of)
        self._wants = Computed(self._wants_of)
        self._needed: list[Need] = []
        self._feasibility = Feasibility(demand, node_devices, self.buckets, self.twin)
        first: dict[Hashable, RequestData] = {}
        self._alike = {each: first.setdefault(_likeness_of(each), each) for _, _, each in demand.request_data}

    def _mask_of(self, request_data: RequestData) -> Mask:
        """Return the devices that the request can have while no device is in use."""
        # The use of devices changes from state to state, and everything here does not. So a mask is computed once per
        # search, and each state costs one AND.
        numbers = bits(self._node_devices.selectable(request_data).mask)
        return sum(1 << number for number in numbers if self._is_possible(request_data, number))

    def _is_possible(self, request_data: RequestData, number: int) -> bool:
        node_devices = self._node_devices
        # Taints and the gate of partitionable devices do not depend on what is taken. They belong into the mask.
        if not node_devices.is_tolerated(request_data, number) or not node_devices.may_draw(number):
            return False
        return not node_devices.rules.consumable or node_devices.fits(request_data, number, {})

    # -- what is alike -------------------------------------------------------------------------------------------------

    def _twin_of(self, number: int) -> int:
        return self._twin_numbers.setdefault(self._likeness(number), len(self._twin_numbers))

    def _likeness(self, number: int) -> Hashable:
        node_devices, demand = self._node_devices, self._demand
        selected = tuple(
            (self._masks[request_data] >> number & 1, number in node_devices.faults(request_data))
            for request_data in dict.fromkeys(self._alike.values())
        )
        kind = node_devices.kind(number)
        values: tuple[Hashable, ...] = tuple(
            self._values[each, kind] for claim in demand.claims for each in claim.constraints
        )
        # A value of an unknown type is accepted on the first device and refuses every later one. So the position of
        # such a device matters, and no other device can stand for it.
        if frozenset() in values:
            values = (*values, number)  # it counts only if it comes first: not interchangeable
        # Two partitions are alike only within one pool: the counters of another pool have other amounts left.
        draws: Hashable = None
        if node_devices.devices[number].device.consumes_counters:
            draws = (node_devices.pool_of[number], tuple(sorted(kind.draws.items())))
        # Shares differ by the device's kind and by the amounts that claims already have of it.
        shared: Hashable = None
        if node_devices.shared >> number & 1:
            shared = (kind, node_devices.has_shares(number), tuple(sorted(node_devices.consumed(number).items())))
        return selected, values, draws, shared, node_devices.used >> number & 1

    # -- values --------------------------------------------------------------------------------------------------------

    def _bucketed(self, constraint: AllocationConstraint) -> dict[Values | None, Mask]:
        buckets: dict[Values | None, Mask] = {}
        for number, each in enumerate(self._node_devices.devices):
            values = self._values[constraint, each.kind]
            buckets[values] = buckets.get(values, 0) | 1 << number
        return buckets

    @property
    def has_odd_values(self) -> bool:
        """Whether devices have values that are not known before the search.

        Values of an unknown type count if the device comes first (§4.10).
        """
        constraints = [each for claim in self._demand.claims for each in claim.constraints]
        return any(frozenset() in self.buckets[each] for each in constraints)

    # -- whether it can be done ----------------------------------------------------------------------------------------

    def viable(self, position: Position, rest: Mask, state: SearchState) -> Mask:
        """Return the devices of `rest` that the current request may take next; none if the state has no solution."""
        # The bounds look at all open requests, not only at the current one. A device that the last request needs is
        # found missing at the first request.
        agreed = self._still_needed(position, rest, state)
        if agreed is None:
            return 0
        self._needed = agreed
        # Devices with admin access or shares can serve several requests, so counting them would reject solutions.
        whole = [(need.free, need.needed) for need in agreed if self._is_whole(need)]
        return agreed[0].free if can_match(whole) else 0

    @cached_property
    def is_solvable(self) -> bool:
        """Whether an integer program describes the search: values and amounts are known, and no amount is negative."""
        # A negative amount would add to a counter. The API admits it, upstream subtracts it, and a relaxation with
        # such terms proves nothing.
        draws = (amount for each in self._node_devices.devices for amount in each.kind.draws.values())
        return not self.has_odd_values and all(amount >= 0 for amount in draws)

    def solving(self, state: SearchState) -> Work[Solution | SolverAnswer]:
        """Solve the state for which `viable` was called last, in the worker thread."""
        return (yield from awaited(submitted(partial(self._feasibility.solve, self._needed, state))))

    def without(self, solution: Solution, request: tuple[int, int], number: int) -> Solution | None:
        """Return the rest of a solution in which the request gets the device or one like it; None if it gets none."""
        # The search goes by its order, and the solver picks any of several equal devices. If the search has taken a
        # twin of a device of the solution, the solution holds with both exchanged.
        mask = solution.get(request, 0)
        # Shares are not exchanged: after the first share, twins have different amounts left.
        if self._node_devices.shared >> number & 1:
            like = number if mask >> number & 1 else -1
        else:
            twin = self.twin[number]
            like = next((n for n in bits(mask & ~self._node_devices.shared) if self.twin[n] == twin), -1)
        return {**solution, request: mask ^ 1 << like} if like >= 0 else None

    def _still_needed(self, position: Position, rest: Mask, state: SearchState) -> list[Need] | None:
        """Return the needs of all requests from here on, the current one first; None if they cannot be satisfied."""
        needs: list[Need] = []
        # `used` has whole devices only. A shared device stays in the mask, and `_need` checks its amounts.
        allowed = ~state.used | self._node_devices.shared
        for c, r in self._open(position):
            wants = self._wants[c, r]
            # The current request has a fixed alternative and some devices already. Later ones in its order are its
            # only candidates.
            if (c, r) == (position.claim, position.request):
                one = wants[max(position.alternative, 0)]
                wants = (one._replace(mask=one.mask & rest, needed=one.needed - position.taken),)
            # Admin access ignores all use except by the claim itself.
            for_admin = ~state.own if c == position.claim else -1
            need = self._need(c, r, wants, (allowed, for_admin), state.taking)
            if need.free.bit_count() < need.needed:
                return None
            if need.needed:
                needs.append(need)
        return self._agreed(needs, position.claim, state.seen_values)

    def _is_whole(self, need: Need) -> bool:
        """Return whether no other request can have the need's devices."""
        return not need.is_admin and not need.free & self._node_devices.shared

    def _open(self, position: Position) -> Iterator[tuple[int, int]]:
        """Yield (claim, request) from here on, the current request first."""
        for c, claim in enumerate(self._demand.claims):
            for r in range(len(claim.requests)):
                if (c, r) >= (position.claim, position.request):
                    yield c, r

    def _wants_of(self, request: tuple[int, int]) -> tuple[_Want, ...]:
        c, r = request
        return tuple(
            _Want(
                request_data,
                self._masks[self._alike[request_data]],
                len(self._lists[id(request_data)]) if request_data.is_all else request_data.spec.count,
            )
            for request_data in self._demand.claims[c].requests[r].alternatives
        )

    def _need(self, c: int, r: int, wants: Sequence[_Want], allowed: tuple[Mask, Mask], taking: Taking) -> Need:
        """Return what a request needs with any alternative.

        `allowed`: masks for requests without and with admin access.
        """
        possible, union, least = [], 0, 1 << 30
        for request_data, mask, needed in wants:
            free = mask & allowed[request_data.is_admin]
            if taking:
                free &= ~sum(
                    1 << n
                    for n, taken in taking.items()
                    if free >> n & 1 and not self._node_devices.fits(request_data, n, taken)
                )
            # An alternative that has too few devices by itself is out. The remaining ones stay together: the union of their
            # devices and the smallest count is a bound for all of them.
            if free.bit_count() >= needed and (needed or not request_data.is_all):
                possible.append(request_data)
                union |= free
                least = min(least, needed)
        return Need(c, r, tuple(possible), union, least)

    # -- constraints ---------------------------------------------------------------------------------------------------

    def _agreed(self, needs: list[Need], c: int, seen_values: tuple[SeenValues, ...]) -> list[Need] | None:
        """Return the needs with the devices that the constraints allow; None if these are too few."""
        # A constraint binds the devices of one claim. Only the current claim has values that were seen; claims before
        # it are complete.
        for number in {need.claim for need in needs}:
            for at, constraint in enumerate(self._demand.claims[number].constraints):
                seen = seen_values[at] if number == c else ()
                scope = [i for i, need in enumerate(needs) if need.claim == number and need.concerns(constraint)]
                if not scope:
                    continue
                judge = self._matching if constraint.is_match else self._distinct
                allowed_devices = judge(constraint, [needs[i] for i in scope], seen)
                for i in scope:
                    needs[i] = needs[i]._replace(free=needs[i].free & allowed_devices)
                    if needs[i].free.bit_count() < needs[i].needed:
                        return None
        return needs

    def _matching(self, constraint: AllocationConstraint, needs: Sequence[Need], seen: SeenValues) -> Mask:
        """Return the devices with the value seen so far, or with a value that enough devices have."""
        buckets = self.buckets[constraint]
        # The first device has fixed the value, so the bound is exact.
        if seen:
            return sum(mask for values, mask in buckets.items() if values is not None and values & seen[0])
        # A list of values may overlap with several buckets. Counting per bucket would reject solutions, so only
        # devices without the attribute go.
        if any(values is not None and len(values) != 1 for values in buckets):
            return ~buckets.get(None, 0)
        # Before the first device, a value is possible only if enough devices have it: for the largest request, and
        # for all of them together. This is what rejects a NUMA node or PCIe root that is too small.
        least = max(need.needed for need in needs)
        whole = [need for need in needs if self._is_whole(need)]
        least = max(least, sum(need.needed for need in whole))
        return sum(
            mask
            for values, mask in buckets.items()
            if values is not None and mask.bit_count() >= least and self._suffices(mask, needs, whole)
        )

    def _suffices(self, mask: Mask, needs: Sequence[Need], whole: Sequence[Need]) -> bool:
        if any((need.free & mask).bit_count() < need.needed for need in needs):
            return False
        return can_match([(need.free & mask, need.needed) for need in whole])

    def _distinct(self, constraint: AllocationConstraint, needs: Sequence[Need], seen: SeenValues) -> Mask:
        """Return the devices whose values are not used yet, if there are enough different values."""
        allowed_devices, kinds = 0, []
        for values, mask in self.buckets[constraint].items():
            if values is not None and not any(values & each for each in seen):
                allowed_devices |= mask
                kinds.append(mask)
        # Each value can be used once, so values take the place of devices in Hall's condition.
        by_value = [(sum(1 << at for at, mask in enumerate(kinds) if mask & need.free), need.needed) for need in needs]
        return allowed_devices if can_match(by_value) else 0


def _likeness_of(request_data: RequestData) -> Hashable:
    """Return a key that is equal for requests that can have the same devices."""
    capacity = request_data.spec.capacity
    amounts = frozenset(capacity.requests.items()) if capacity is not None else None
    return request_data.selectors, request_data.spec.tolerations, amounts


def _values_of(key: tuple[AllocationConstraint, DeviceKind]) -> Values | None:
    constraint, kind = key
    return constraint.values(kind)
