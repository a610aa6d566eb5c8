"""With which parts rooms can be filled so that no more is wasted than there is to spare (docs/spec/dra.md §4.9, §10.4).

The fuller rooms must be, the fewer such fillings there are. Of each room one is chosen, first where there is the least
choice: for the room, or for the sort of parts, that is in the fewest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from scheduler.core.turns import Work
from scheduler.plugins.dra.packed import Packed, packed_for

_LISTED_MAX: Final = 10_000
_EFFORT_MAX: Final = 60_000
"""Fillings that are compared with what is left, in one question: the same time."""
_SUMS_MAX: Final = 1 << 14
_HELD_MAX: Final = 1024
_REST_EVERY: Final = 512
_PRESENT_BITS: Final = 20


class Part(NamedTuple):
    """So many equal parts."""

    takes: tuple[int, ...]
    """What it takes of each sort of room, packed; -1 where it cannot be."""
    wanted: int
    most: int
    """So many of them in one room."""


class Room(NamedTuple):
    """What is left of it, packed, and its sort."""

    left: int
    sort: int


class TooMany(Exception):
    """More than can be looked at."""


class _Filling(NamedTuple):
    """How many of each part, and behind these what is wasted, packed; and one bit in the field of each part that is there."""

    taken: int
    present: int


class Fillings:
    """Those of some rooms with some parts, kept for questions that begin with parts in the rooms already."""

    def __init__(self, packed: Packed, parts: Sequence[Part], rooms: Sequence[Room], *, effort: int) -> None:
        """Parts are best ordered by size, the largest first. Amounts may be as large as those of all rooms together.

        `effort`: how many partial fillings may be looked at, a microsecond each.
        """
        self._effort = effort
        self._packed = packed
        self._parts = parts
        self.counts = packed_for([part.wanted for part in parts])
        self._wastes = self.counts.guards.bit_length()
        sorts = {room.sort for room in rooms}
        self._least = [self._least_of(part, sorts) for part in parts]
        sums = [sum(each) for each in zip(*(packed.fields(room.left) for room in rooms), strict=True)]
        self.spare = sums or [0] * len(packed.widths)
        for part, least in zip(parts, self._least, strict=True):
            self.spare = [a - b * part.wanted for a, b in zip(self.spare, packed.fields(least), strict=True)]
        self._largest = [max(each) for each in zip(*(packed.fields(room.left) for room in rooms), strict=True)]
        self._reach: list[list[int]] | None = None
        self._listed: dict[Room, list[_Filling]] = {}
        self._holding: dict[tuple[Room, int], list[_Filling]] = {}
        self._seen = 0

    def _least_of(self, part: Part, sorts: set[int]) -> int:
        """Of each capacity what it takes at least, wherever it is."""
        takes = [self._packed.fields(part.takes[sort]) for sort in sorts if part.takes[sort] >= 0]
        return self._packed.pack([min(each) for each in zip(*takes, strict=True)]) if takes else 0

    def may_do(self, left: int, rooms: Mapping[tuple[Room, int], int]) -> Work[bool]:
        """Whether so many parts more can be had (packed as `counts`). Raises TooMany.

        `rooms`: each with the parts in it already, which count as if they took the least; and how many are so.
        """
        if min(self.spare, default=0) < 0:
            return False
        fillings = []
        for room, held in rooms:
            fillings.append((yield from self._of(room, held)))
        wanted = left | self._packed.pack(self.spare) << self._wastes
        return (yield from self._choosing(wanted, tuple(rooms.values()), tuple(fillings)))

    # -- listing -------------------------------------------------------------------------------------------------------

    def _of(self, room: Room, held: int) -> Work[list[_Filling]]:
        """What may be added to a room that holds these already."""
        known = self._holding.get((room, held))
        if known is None:
            if room not in self._listed:
                self._listed[room] = yield from self._listing(room)
            guards = self.counts.guards
            known = self._listed[room]
            if held:
                rests = [each.taken - held for each in known if ((each.taken | guards) - held & guards) == guards]
                known = [_Filling(rest, self._present(rest)) for rest in rests]
            if len(self._holding) >= _HELD_MAX:
                self._holding.clear()
            self._holding[room, held] = known
        return known

    def _present(self, taken: int) -> int:
        out = 0
        for at, (shift, width) in enumerate(zip(self.counts.shifts, self.counts.widths, strict=True)):
            if taken >> shift & (1 << width) - 1:
                out |= 1 << at * _PRESENT_BITS
        return out

    def _listing(self, room: Room) -> Work[list[_Filling]]:
        out = []
        for filling in self._all_of(room):
            self._seen += 1
            if self._seen % _REST_EVERY == 0:
                yield
            if filling is not None:
                out.append(filling)
            if self._seen > self._effort or len(out) > _LISTED_MAX:
                raise TooMany
        return out

    def _sums(self) -> list[list[int]]:
        """Per capacity and part: the sums, as bits, that this part and those behind can make; none if they are too many."""
        if self._reach is None:
            self._reach = []
            for at, most in enumerate(self._largest):
                sums, rows = 1, [1]
                for part, least in zip(reversed(self._parts), reversed(self._least), strict=True):
                    amount = self._packed.fields(least)[at]
                    for _ in range(part.wanted if amount and most <= _SUMS_MAX else 0):
                        sums |= sums << amount & (2 << most) - 1
                    rows.append(sums)
                self._reach.append(rows[::-1] if most <= _SUMS_MAX else [])
        return self._reach

    def _all_of(self, room: Room) -> Iterator[_Filling | None]:
        """And None for each partial one that was looked at."""
        packed, parts, counts, sums = self._packed, self._parts, self.counts, self._sums()
        # part, what is left of the room, what is left if parts take the least, the filling
        stack = [(0, room.left, room.left, 0, 0)]
        while stack:
            at, left, unfilled, taken, present = stack.pop()
            yield None
            if not self._may_be_filled(at, unfilled, sums):
                continue
            if at == len(parts):
                yield _Filling(taken | unfilled << self._wastes, present)
                continue
            part, least = parts[at], self._least[at]
            take = part.takes[room.sort]
            stack.append((at + 1, left, unfilled, taken, present))
            for number in range(1, min(part.wanted, part.most) + 1 if take >= 0 else 1):
                if not packed.covers(left, take):
                    break
                left, unfilled = left - take, unfilled - least
                more = taken + (number << counts.shifts[at])
                stack.append((at + 1, left, unfilled, more, present | 1 << at * _PRESENT_BITS))

    def _may_be_filled(self, at: int, unfilled: int, sums: list[list[int]]) -> bool:
        """Whether the parts from here on can leave no more than there is to spare."""
        for rows, shift, width, spare in zip(sums, self._packed.shifts, self._packed.widths, self.spare):
            room = unfilled >> shift & (1 << width) - 1
            if rows and room > spare and room - ((rows[at] & (2 << room) - 1).bit_length() - 1) > spare:
                return False
        return True

    # -- choosing ------------------------------------------------------------------------------------------------------

    def _choosing(self, wanted: int, times: tuple[int, ...], fillings: tuple[Sequence[_Filling], ...]) -> Work[bool]:
        """Whether one for each room make up all parts."""
        guards, all_counts = self.counts.guards | self._packed.guards << self._wastes, (1 << self._wastes) - 1
        stack = [(wanted, times, fillings)]
        failed: set[tuple[int, tuple[int, ...]]] = set()
        effort = 0
        while stack:
            left, times, fillings = stack.pop()
            if not left & all_counts:
                return True
            if (left, times) in failed:
                continue
            failed.add((left, times))
            yield
            effort += sum(map(len, fillings))
            if effort > _EFFORT_MAX:
                raise TooMany
            roomy = left | guards
            open_ = tuple(
                [each for each in some if (roomy - each.taken) & guards == guards] if count else []
                for some, count in zip(fillings, times, strict=True)
            )
            for at, each in self._fewest(left, open_, times):
                stack.append((left - each.taken, (*times[:at], times[at] - 1, *times[at + 1 :]), open_))
        return False

    def _fewest(
        self, left: int, open_: Sequence[Sequence[_Filling]], times: Sequence[int]
    ) -> list[tuple[int, _Filling]]:
        """(room, filling) for the room, or for the part, for which there are fewest; those that waste most come first."""
        best = min((at for at, count in enumerate(times) if count), key=lambda at: len(open_[at]), default=-1)
        if best < 0 or not open_[best]:
            return []
        present = sum(each.present for some in open_ for each in some)
        counts = self.counts.fields(left & (1 << self._wastes) - 1)
        seen = {
            at: present >> at * _PRESENT_BITS & (1 << _PRESENT_BITS) - 1 for at, count in enumerate(counts) if count
        }
        part = min(seen, key=seen.__getitem__)
        if seen[part] < len(open_[best]):
            bit = 1 << part * _PRESENT_BITS
            chosen = [(at, each) for at, some in enumerate(open_) for each in some if each.present & bit]
        else:
            chosen = [(best, each) for each in open_[best]]
        return sorted(chosen, key=lambda each: -(each[1].taken >> self._wastes))
