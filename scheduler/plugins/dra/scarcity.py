"""Whether what is left of shared counters and of shared devices can be enough (docs/spec/dra.md §4.8, §4.9, §10.4).

Packing is hard, so this does not pack: it takes the smallest part for each device that is wanted, and fills up. Counters
whose names differ in their number only are also looked at together: drivers number the slices of a device's memory.
"""

from __future__ import annotations

import bisect
import itertools
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
        self._groups: list[tuple[int, frozenset[str], Mask]] | None = None
        self._drawing: Mask = 0
        self._ladders: dict[Mask, dict[frozenset[tuple[str, str]], list[int]]] = {}
        self._least: dict[Mask, dict[str, int]] = {}
        self._family_of: dict[str, str] = {}

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
        shared = self._seats.shared
        parts = [need for need in needs if not need.free & ~shared]
        self._drawn_together()
        drawing = self._drawing & ~shared
        drawn = [need for need in needs if not need.free & ~drawing]
        if drawn:
            union, wanted = 0, 0
            for need in drawn:
                union |= need.free
                wanted += need.total
                if not self._can_fit(need.free, need.total, left):
                    return False
            if not self._can_fit(union, wanted, left) or not self._sums_suffice(drawn, left):
                return False
        return not parts or self._parts_suffice(parts, taking)

    # -- counters ------------------------------------------------------------------------------------------------------

    def _drawn_together(self) -> Sequence[tuple[int, frozenset[str], Mask]]:
        """(pool, counter sets, devices that draw on these)."""
        if self._groups is None:
            groups: dict[tuple[int, frozenset[str]], Mask] = {}
            for number, each in enumerate(self._seats.devices):
                if each.device.consumes_counters:
                    key = self._seats.pool_of[number], frozenset(name for name, _ in self.draws(number))
                    groups[key] = groups.get(key, 0) | 1 << number
                    self._drawing |= 1 << number
            self._groups = [(pool, sets, mask) for (pool, sets), mask in groups.items()]
        return self._groups

    def _can_fit(self, mask: Mask, wanted: int, left: Callable[[int], Left]) -> bool:
        """Whether so many of these devices fit, going by each group of counter sets on its own."""
        room = 0
        for pool, _, group in self._drawn_together():
            here = group & mask
            if here:
                room += self._fitting(here, left(pool))
                if room >= wanted:
                    return True
        return False

    def _sums_suffice(self, needs: Sequence[Need], left: Callable[[int], Left]) -> bool:
        """By each family of counters, summed up over all sets: of each need the smallest draw."""
        union = 0
        wanted: dict[Mask, int] = {}
        for need in needs:
            union |= need.free
            wanted[need.free] = wanted.get(need.free, 0) + need.total
        sets = {(pool, name) for pool, names, mask in self._drawn_together() if mask & union for name in names}
        rooms: dict[str, int] = {}
        for pool in {pool for pool, _ in sets}:
            for (name, counter), amount in left(pool).items():
                if amount > 0 and (pool, name) in sets:
                    family = self._family(counter)
                    rooms[family] = rooms.get(family, 0) + amount
        least = [(total, self._least_of(mask)) for mask, total in wanted.items()]
        return all(sum(total * each.get(family, 0) for total, each in least) <= room for family, room in rooms.items())

    def _fitting(self, mask: Mask, left: Left) -> int:
        """At most so many of these fit: by each counter and each family of counters, the smallest first."""
        most = mask.bit_count()
        for counters, ladder in self._ladders_of(mask).items():
            room = 0
            for counter in counters:
                amount = left.get(counter, 0)
                if amount > 0:
                    room += amount
            if room < ladder[most - 1]:
                most = bisect.bisect_right(ladder, room)
                if not most:
                    return 0
        return most

    def _ladders_of(self, mask: Mask) -> dict[frozenset[tuple[str, str]], list[int]]:
        """Counters → what the smallest, the two smallest, … of the devices draw on them together."""
        known = self._ladders.get(mask)
        if known is None:
            draws = [self.draws(number) for number in range(mask.bit_length()) if mask >> number & 1]
            every = {key for each in draws for key in each}
            families: dict[tuple[str, str], set[tuple[str, str]]] = {}
            for key in every:
                families.setdefault((key[0], self._family(key[1])), set()).add(key)
            together = {frozenset((key,)) for key in every} | {frozenset(keys) for keys in families.values()}
            known = self._ladders[mask] = {
                keys: list(itertools.accumulate(sorted(sum(each.get(key, 0) for key in keys) for each in draws)))
                for keys in together
            }
        return known

    def _least_of(self, mask: Mask) -> dict[str, int]:
        """Family of counters → the least that any of the devices draws on it."""
        known = self._least.get(mask)
        if known is None:
            sums = []
            for number in range(mask.bit_length()):
                if mask >> number & 1:
                    sums.append(own := dict[str, int]())
                    for (_, counter), amount in self.draws(number).items():
                        own[self._family(counter)] = own.get(self._family(counter), 0) + amount
            families = {family for own in sums for family in own}
            known = self._least[mask] = {family: min(own.get(family, 0) for own in sums) for family in families}
        return known

    def _family(self, counter: str) -> str:
        """A counter's name without its number."""
        known = self._family_of.get(counter)
        if known is None:
            known = self._family_of[counter] = counter.rstrip("0123456789")
        return known

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
        wanted = sum(need.total for need in needs)
        for name in names:
            room = [self._room(number, name, taking) for number in numbers]
            least = [self._least_part(need, numbers, name) for need in needs]
            if sum(need.total * amount for need, amount in zip(needs, least, strict=True)) > sum(room):
                return False
            smallest = min(least)
            if smallest > 0 and sum(each // smallest for each in room) < wanted:
                return False
        return True

    def _room(self, number: int, name: str, taking: Taking) -> int:
        gone = self._seats.consumed(number).get(name, 0) + taking.get(number, {}).get(name, 0)
        return max(self._seats.devices[number].device.capacity[name].value.nano - gone, 0)

    def _least_part(self, need: Need, numbers: Sequence[int], name: str) -> int:
        amounts = (
            (self._seats.amounts(ask, number) or {}).get(name, 0)
            for ask in need.asks
            for number in numbers
            if need.free >> number & 1
        )
        return min(amounts, default=0)
