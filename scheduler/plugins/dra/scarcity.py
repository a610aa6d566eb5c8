"""Whether what is left of shared counters and of shared devices can be enough (docs/spec/dra.md §4.8, §4.9, §10.4).

Packing is hard, so this does not pack: it takes the smallest part for each device that is wanted, and fills up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from scheduler.plugins.dra.seats import Mask, Seats

if TYPE_CHECKING:
    from scheduler.plugins.dra.bounds import Need

Left: TypeAlias = Mapping[tuple[str, str], int]
"""(counter set, counter) → amount."""
Taking: TypeAlias = Mapping[int, Mapping[str, int]]
"""Number of a shared device → capacity → what the search has taken of it."""


class Scarcity:
    """For one search."""

    def __init__(self, seats: Seats) -> None:
        self._seats = seats
        self._draws: dict[int, dict[tuple[str, str], int]] = {}
        self._groups: dict[int, tuple[int, frozenset[str]]] = {}
        self._drawing: Mask | None = None

    def draws(self, number: int) -> dict[tuple[str, str], int]:
        """What a device takes of its pool's counters."""
        known = self._draws.get(number)
        if known is None:
            known = self._draws[number] = {}
            for each in self._seats.devices[number].device.consumes_counters:
                for counter, amount in each.counters.items():
                    key = each.counter_set, counter
                    known[key] = known.get(key, 0) + amount.value.nano
        return known

    def may_suffice(self, needs: Sequence[Need], taking: Taking, left: Callable[[int], Left]) -> bool:
        """Each need on its own, and all together."""
        shared, drawing = self._seats.shared, self._drawing_devices() & ~self._seats.shared
        drawn = [need for need in needs if not need.free & ~drawing]
        parts = [need for need in needs if not need.free & ~shared]
        for some in (*([need] for need in drawn), drawn if len(drawn) > 1 else []):
            if some and not self._counters_suffice(some, left):
                return False
        return not parts or self._parts_suffice(parts, taking)

    def _drawing_devices(self) -> Mask:
        if self._drawing is None:
            devices = self._seats.devices
            self._drawing = sum(1 << n for n, each in enumerate(devices) if each.device.consumes_counters)
        return self._drawing

    # -- counters ------------------------------------------------------------------------------------------------------

    def _counters_suffice(self, needs: Sequence[Need], left: Callable[[int], Left]) -> bool:
        wanted, union = 0, 0
        for need in needs:
            union |= need.free
            wanted += need.count
        groups = self._by_sets(union)
        room = 0
        for (pool, _), numbers in groups.items():
            room += self._fitting(numbers, left(pool))
        return room >= wanted and self._sums_suffice(needs, groups, left)

    def _by_sets(self, mask: Mask) -> dict[tuple[int, frozenset[str]], list[int]]:
        """Devices that draw on the same counter sets."""
        groups: dict[tuple[int, frozenset[str]], list[int]] = {}
        while mask:
            low = mask & -mask
            mask ^= low
            number = low.bit_length() - 1
            group = self._groups.get(number)
            if group is None:
                sets = frozenset(name for name, _ in self.draws(number))
                group = self._groups[number] = (self._seats.pool_of[number], sets)
            groups.setdefault(group, []).append(number)
        return groups

    def _fitting(self, numbers: Sequence[int], left: Left) -> int:
        """At most so many of these fit: by each counter, the smallest first."""
        most = len(numbers)
        for counter in {key for number in numbers for key in self.draws(number)}:
            amount, fitting = left.get(counter, 0), 0
            for draw in sorted(self.draws(number).get(counter, 0) for number in numbers):
                amount -= draw
                if amount < 0:
                    break
                fitting += 1
            most = min(most, fitting)
        return most

    def _sums_suffice(
        self,
        needs: Sequence[Need],
        groups: Mapping[tuple[int, frozenset[str]], Sequence[int]],
        left: Callable[[int], Left],
    ) -> bool:
        """Counters of the same name summed up over all sets, and of each need the smallest draw."""
        sets = {(pool, name) for pool, names in groups for name in names}
        sums: dict[str, int] = {}
        for pool in {pool for pool, _ in sets}:
            for (counter_set, counter), amount in left(pool).items():
                if (pool, counter_set) in sets:
                    sums[counter] = sums.get(counter, 0) + max(amount, 0)
        for counter, room in sums.items():
            least = 0
            for need in needs:
                draws = (self._drawn(number, counter) for group in groups.values() for number in group if need.free >> number & 1)
                least += need.count * min(draws, default=0)
            if least > room:
                return False
        return True

    def _drawn(self, number: int, counter: str) -> int:
        return sum(amount for (_, name), amount in self.draws(number).items() if name == counter)

    # -- parts of shared devices ---------------------------------------------------------------------------------------

    def _parts_suffice(self, needs: Sequence[Need], taking: Taking) -> bool:
        """By each capacity that all the devices have: the smallest part for each need."""
        seats, union = self._seats, 0
        for need in needs:
            union |= need.free
        numbers = [number for number in range(len(seats.devices)) if union >> number & 1]
        names = set(seats.devices[numbers[0]].device.capacity) if numbers else set()
        for number in numbers:
            names &= seats.devices[number].device.capacity.keys()
        wanted = sum(need.count for need in needs)
        for name in names:
            room = [self._room(number, name, taking) for number in numbers]
            least = [self._least(need, numbers, name) for need in needs]
            if sum(need.count * amount for need, amount in zip(needs, least, strict=True)) > sum(room):
                return False
            smallest = min(least)
            if smallest > 0 and sum(each // smallest for each in room) < wanted:
                return False
        return True

    def _room(self, number: int, name: str, taking: Taking) -> int:
        gone = self._seats.consumed(number).get(name, 0) + taking.get(number, {}).get(name, 0)
        return max(self._seats.devices[number].device.capacity[name].value.nano - gone, 0)

    def _least(self, need: Need, numbers: Sequence[int], name: str) -> int:
        amounts = (
            (self._seats.amounts(ask, number) or {}).get(name, 0)
            for ask in need.asks
            for number in numbers
            if need.free >> number & 1
        )
        return min(amounts, default=0)
