"""Whether parts fit on shared devices, each time as a later moment of the same search (docs/spec/dra.md §10.4).

All that the claims want is on a device already or still to be placed, and always the same. So with which parts each device can
be filled is found out once, for devices as they were at the outset; what is on one now only tells which of these are left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.turns import Work
from scheduler.plugins.dra.fillings import Fillings, Part, Room, TooMany
from scheduler.plugins.dra.packed import Packed
from scheduler.plugins.dra.parcels import Parcels

Row: TypeAlias = tuple[int, ...]
"""What a request takes of each shared device, packed; -1 where it can have none."""
_FILLINGS_MAX: Final = 8
_EFFORT: Final = 40_000


class Asked(NamedTuple):
    """What one request wants."""

    asks: tuple[int, ...]
    """Ids of its alternatives."""
    row: Row
    needed: int


class Outset:
    """For one search. Parts are numbered; who wants what is told by the id of an ask."""

    def __init__(
        self, packed: Packed, asked: Sequence[Asked], lefts: Sequence[int], widest: tuple[Row, int] | None
    ) -> None:
        """`lefts` is what there is of each device; of `widest` are devices that are yet to be begun."""
        self._packed = packed
        together: dict[tuple[Row, int], list[Asked]] = {}
        for each in asked:
            together.setdefault((each.row, each.needed), []).append(each)
        columns = [tuple(row[at] for row, _ in together) for at in range(len(lefts))]
        sorts: dict[Row, int] = {}
        for column in (*columns, *([widest[0]] if widest is not None else [])):
            sorts.setdefault(column, len(sorts))
        self._rooms = [Room(left, sorts[column]) for left, column in zip(lefts, columns, strict=True)]
        self._widest = [Room(widest[1], sorts[widest[0]])] if widest is not None else []
        parts = [
            (Part(takes, each[0].needed * len(each), len(each)), each)
            for takes, each in zip(zip(*sorts, strict=True), together.values(), strict=True)
        ]
        size = Parcels(packed, [part for part, _ in parts], self._rooms).size
        parts.sort(key=lambda each: size(each[0]), reverse=True)
        self._parts = [part for part, _ in parts]
        self.number_of = {ask: at for at, (_, some) in enumerate(parts) for each in some for ask in each.asks}
        self.rows = [each[0].row for _, each in parts]
        self._fillings: dict[tuple[int, ...], Fillings | None] = {}

    def may_do(
        self, wanted: Mapping[int, int], held: Mapping[int, Sequence[int]], open_: Sequence[bool], more: int
    ) -> Work[bool]:
        """Whether it may be that so many of each part find a place as well. Raises TooMany.

        `held`: place of a device → numbers of the parts on it. `open_`: which devices may be used, and `more` of the others.
        """
        key = (*open_, more)
        if key not in self._fillings:
            if len(self._fillings) >= _FILLINGS_MAX:
                self._fillings.clear()
            rooms = [room for room, is_open in zip(self._rooms, open_, strict=True) if is_open]
            self._fillings[key] = Fillings(self._packed, self._parts, [*rooms, *self._widest * more], effort=_EFFORT)
        fillings = self._fillings[key]
        if fillings is None:
            raise TooMany
        shifts = fillings.counts.shifts
        there = Counter(
            (room, sum(1 << shifts[number] for number in held.get(at, ())))
            for at, (room, is_open) in enumerate(zip(self._rooms, open_, strict=True))
            if is_open
        )
        if more:
            there[self._widest[0], 0] += more
        left = sum(count << shifts[number] for number, count in wanted.items())
        try:
            return (yield from fillings.may_do(left, there))
        except TooMany:
            self._fillings[key] = None
            raise
