"""Whether what is left of shared counters and of shared devices can be enough (docs/spec/dra.md §4.8, §4.9, §10.4).

Packing is hard, so this does not pack: it takes the smallest part for each device that is wanted, and fills up. Counters
whose names differ in their number only are also looked at together: drivers number the slices of a device's memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from scheduler.plugins.dra.matching import bits
from scheduler.plugins.dra.seats import Mask, Seats

if TYPE_CHECKING:
    from scheduler.plugins.dra.bounds import Need

Left: TypeAlias = Mapping[tuple[str, str], int]
"""(counter set, counter) → amount."""
Taking: TypeAlias = Mapping[int, Mapping[str, int]]
"""Number of a shared device → capacity → what the search has taken of it."""

_SUMS_MAX: Final = 1 << 14
"""Rooms that hold more units are not looked at so closely."""
_PARTS_MAX: Final = 1000


class _Rising:
    """What devices draw on some counters together, the least first."""

    __slots__ = ("_steps", "drawing")

    def __init__(self, draws: Iterable[tuple[int, int]]) -> None:
        """Of (device, amount); those that draw nothing may be left out."""
        steps: dict[int, Mask] = {}
        for number, amount in draws:
            steps[amount] = steps.get(amount, 0) | 1 << number
        steps.pop(0, None)
        self._steps = sorted(steps.items())
        self.drawing: Mask = sum(steps.values())

    def least(self, mask: Mask) -> int:
        """The least that any of these draws."""
        least = next((amount for amount, some in self._steps if mask & some), 0)
        return min(least, 0) if mask & ~self.drawing else least

    def fitting(self, mask: Mask, room: int) -> int:
        """At most so many of these fit."""
        fit = (mask & ~self.drawing).bit_count()
        for amount, some in self._steps:
            here = (mask & some).bit_count()
            if here * amount > room:
                return fit + room // amount
            fit += here
            room -= here * amount
        return fit


class _Together(NamedTuple):
    """Devices of a pool that draw on the same sets of counters."""

    pool: int
    sets: frozenset[str]
    mask: Mask
    risings: Sequence[tuple[Sequence[tuple[tuple[str, str], Mask]], _Rising]]
    """Counters, each with who draws on it: single ones, and families of one set."""


class Scarcity:
    """For one search."""

    def __init__(self, seats: Seats) -> None:
        self._seats = seats
        self._draws: dict[int, dict[tuple[str, str], int]] = {}
        self._groups: list[_Together] | None = None
        self._drawing: Mask = 0
        self._family_of: dict[str, str] = {}
        self._by_family: dict[str, _Rising] = {}

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

    def may_suffice(self, needs: Sequence[Need], left: Callable[[int], Left]) -> bool:
        """Whether counters may: for each need on its own, and for all together."""
        shared = self._seats.shared
        self._drawn_together()
        drawing = self._drawing & ~shared
        drawn = [need for need in needs if not need.free & ~drawing]
        if drawn:
            union, wanted = 0, 0
            for need in drawn:
                if not self._can_fit(need.free, need.total, left):
                    return False
                if not need.is_admin:  # who may have what others have, of which there need not be more
                    union |= need.free
                    wanted += need.total
            is_alone = len(drawn) == 1
            if not is_alone and wanted and not self._can_fit(union, wanted, left):
                return False
            if not (is_alone and len(self._drawn_together()) == 1) and not self._sums_suffice(drawn, left):
                return False
        return True

    # -- counters ------------------------------------------------------------------------------------------------------

    def _drawn_together(self) -> Sequence[_Together]:
        if self._groups is None:
            groups: dict[tuple[int, frozenset[str]], Mask] = {}
            for number, each in enumerate(self._seats.devices):
                if each.device.consumes_counters:
                    key = self._seats.pool_of[number], frozenset(name for name, _ in self.draws(number))
                    groups[key] = groups.get(key, 0) | 1 << number
                    self._drawing |= 1 << number
            self._groups = [_Together(*key, mask, self._risings(mask)) for key, mask in groups.items()]
        return self._groups

    def _risings(self, mask: Mask) -> Sequence[tuple[Sequence[tuple[tuple[str, str], Mask]], _Rising]]:
        drawn: dict[tuple[str, str], dict[int, int]] = {}
        families: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
        for number in bits(mask):
            for key, amount in self.draws(number).items():
                drawn.setdefault(key, {})[number] = amount
                families.setdefault((key[0], self._family(key[1])), {})[key] = None
        drawing = {key: sum(1 << number for number in amounts) for key, amounts in drawn.items()}
        singles = [(((key, drawing[key]),), _Rising(amounts.items())) for key, amounts in drawn.items()]
        several = []
        for keys in families.values():
            if len(keys) > 1:
                sums = ((number, sum(drawn[key].get(number, 0) for key in keys)) for number in bits(mask))
                several.append((tuple((key, drawing[key]) for key in keys), _Rising(sums)))
        return [*several, *singles]

    def _can_fit(self, mask: Mask, wanted: int, left: Callable[[int], Left]) -> bool:
        """Whether so many of these devices fit, going by each group of counter sets on its own."""
        room = 0
        for group in self._drawn_together():
            here = group.mask & mask
            if here:
                room += _fitting(group, here, left(group.pool))
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
        sets = {(group.pool, name) for group in self._drawn_together() if group.mask & union for name in group.sets}
        rooms: dict[str, int] = {}
        for pool in {pool for pool, _ in sets}:
            for (name, counter), amount in left(pool).items():
                if amount > 0 and (pool, name) in sets:
                    family = self._family(counter)
                    rooms[family] = rooms.get(family, 0) + amount
        for family, room in rooms.items():
            rising = self._rising_of(family)
            if sum(total * rising.least(mask) for mask, total in wanted.items()) > room:
                return False
        return True

    def _rising_of(self, family: str) -> _Rising:
        """What devices draw on all counters of a family, whatever their sets."""
        known = self._by_family.get(family)
        if known is None:
            sums = (
                (
                    number,
                    sum(amount for (_, name), amount in self.draws(number).items() if self._family(name) == family),
                )
                for number in bits(self._drawing)
            )
            known = self._by_family[family] = _Rising(sums)
        return known

    def _family(self, counter: str) -> str:
        """A counter's name without its number."""
        known = self._family_of.get(counter)
        if known is None:
            known = self._family_of[counter] = counter.rstrip("0123456789")
        return known

    # -- parts of shared devices ---------------------------------------------------------------------------------------

    def parts_suffice(self, needs: Sequence[Need], taking: Taking) -> bool:
        """By each capacity that all the devices have: the smallest part for each need."""
        seats, union = self._seats, 0
        needs = [need for need in needs if not need.free & ~seats.shared]
        for need in needs:
            union |= need.free
        numbers = [number for number in range(len(seats.devices)) if union >> number & 1]
        names = set(seats.devices[numbers[0]].device.capacity) if numbers else set()
        for number in numbers:
            names &= seats.devices[number].device.capacity.keys()
        for name in names:
            room = [self._room(number, name, taking) for number in numbers]
            parts = [self._parts(need, numbers, name) for need in needs]
            wanted = sum(need.total * min(each) for need, each in zip(needs, parts, strict=True))
            if wanted > sum(room) or wanted > most_filled(room, [(each, n.total) for each, n in zip(parts, needs)]):
                return False
            smallest = min(min(each) for each in parts)
            if smallest > 0 and sum(each // smallest for each in room) < sum(need.total for need in needs):
                return False
        return True

    def _room(self, number: int, name: str, taking: Taking) -> int:
        gone = self._seats.consumed(number).get(name, 0) + taking.get(number, {}).get(name, 0)
        return max(self._seats.devices[number].device.capacity[name].value.nano - gone, 0)

    def _parts(self, need: Need, numbers: Sequence[int], name: str) -> frozenset[int]:
        """What one device for the need may take of a capacity."""
        return frozenset(
            (self._seats.amounts(ask, number) or {}).get(name, 0)
            for ask in need.asks
            for number in numbers
            if need.free >> number & 1
        ) or frozenset((0,))


def most_filled(rooms: Sequence[int], parts: Sequence[tuple[frozenset[int], int]]) -> int:
    """At most so much of the rooms can be filled: some sums cannot be made of parts. (One of these amounts, how many)."""
    unit = math.gcd(*(amount for amounts, _ in parts for amount in amounts))
    if not unit or max(rooms) // unit > _SUMS_MAX or sum(len(each) * count for each, count in parts) > _PARTS_MAX:
        return sum(rooms)
    largest = max(rooms)
    sums, all_sums = 1, (1 << largest // unit + 1) - 1
    for amounts, count in parts:
        fitting = [amount // unit for amount in amounts if amount <= largest]
        for _ in range(count):
            for amount in fitting:
                sums |= sums << amount
            sums &= all_sums
    return sum(((sums & (2 << room // unit) - 1).bit_length() - 1) * unit for room in rooms)


def _fitting(group: _Together, mask: Mask, left: Left) -> int:
    """At most so many of these fit: by each counter and each family of counters, the smallest first."""
    most = mask.bit_count()
    for counters, rising in group.risings:
        room = 0
        for counter, drawing in counters:
            if drawing & mask:
                amount = left.get(counter, 0)
                if amount > 0:
                    room += amount
        most = min(most, rising.fitting(mask, room))
        if not most:
            break
    return most
