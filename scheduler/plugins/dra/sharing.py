"""Whether parts fit on shared devices, and how many more of these must be begun for it (docs/spec/dra.md §4.8, §4.9, §10.4).

A shared device draws on counters with its first part. So of those that nobody has a part of yet, and that draw, only the
least number that will do is said: whether the counters are enough for so many is for `fitting` to say.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.core.turns import Work
from scheduler.plugins.dra.demand import Ask, Demand
from scheduler.plugins.dra.fillings import Fillings, Part, Room, TooMany
from scheduler.plugins.dra.matching import bits
from scheduler.plugins.dra.outset import Asked, Outset, Row
from scheduler.plugins.dra.packed import Packed, packed_for
from scheduler.plugins.dra.parcels import Parcels
from scheduler.plugins.dra.scarcity import Taking
from scheduler.plugins.dra.seats import Mask, Seats

if TYPE_CHECKING:
    from scheduler.plugins.dra.bounds import Need, _Want
    from scheduler.plugins.dra.search import Picked

_DEVICES_MAX: Final = 64
_KNOWN_MAX: Final = 4096
_EFFORT: Final = 4000
_NOTHING: Final[Mapping[str, int]] = {}


class More(NamedTuple):
    """So many of these shared devices must be begun."""

    mask: Mask
    least: int


class _Moment(NamedTuple):
    """Where a search stands, by the parts of the outset: which are wanted, which each device has; which devices may be used."""

    wanted: Mapping[int, int]
    held: Mapping[int, Sequence[int]]
    is_open: tuple[bool, ...]
    rows: Sequence[tuple[Row, int]]
    is_exact: bool
    """Whether all that is wanted and had is among these."""

    def is_like(self, rows: Container[tuple[Row, int]]) -> bool:
        """Whether nothing more is known now."""
        return self.is_exact and all(row in rows for row in self.rows)


class _Now(NamedTuple):
    """The same as it is: what each want may have in truth."""

    rows: Mapping[tuple[Row, int], tuple[int, int]]
    """How many of it, and for how many requests."""
    parts: Sequence[Part]
    rooms: Sequence[Room]
    widest: Sequence[Room]


class Sharing:
    """For one search: it remembers what it has answered."""

    def __init__(self, demand: Demand, seats: Seats, wants: Callable[[int, int], Sequence[_Want]]) -> None:
        """`wants`: for a claim and its request what each alternative may have, and how many it needs."""
        self._demand = demand
        self._seats = seats
        self._wants = wants
        self._numbers = list(bits(seats.shared))
        self._places = {number: at for at, number in enumerate(self._numbers)}
        self._units: dict[str, int] = {}
        """Capacity → the unit in which it is counted."""
        self._amounts: dict[tuple[int, int], int] = {}
        """(id of an ask, device) → what it takes, packed."""
        self._whole: dict[int, tuple[int, ...]] = {}
        self._packed = Packed((), (), 0)
        self._lefts: dict[tuple[object, ...], int] = {}
        self._known: dict[object, bool | None] = {}
        self._begun: Outset | None = None
        self.is_known = 0 < len(self._numbers) <= _DEVICES_MAX and self._lay_out([ask for _, _, ask in demand.asks])
        """Whether there is anything that can be said."""

    def _lay_out(self, asks: Sequence[Ask]) -> bool:
        seats = self._seats
        taken: dict[tuple[int, int], Mapping[str, int]] = {}
        for ask in asks:
            for number in bits(seats.selectable(ask).mask & seats.shared):
                amounts = seats.amounts(ask, number)
                if amounts is not None:
                    taken[id(ask), number] = amounts
        for amounts in taken.values():
            for name, amount in amounts.items():
                self._units[name] = math.gcd(self._units.get(name, 0), amount)
        self._units = {name: unit for name, unit in self._units.items() if unit}
        for number in self._numbers:
            self._whole[number] = self._left_of(number, _NOTHING)
        self._packed = packed_for([max(each) * len(each) for each in zip(*self._whole.values(), strict=True)])
        for (ask_id, number), amounts in taken.items():
            units = [amounts.get(name, 0) // unit for name, unit in self._units.items()]
            if all(a <= b for a, b in zip(units, self._whole[number], strict=True)):
                self._amounts[ask_id, number] = self._packed.pack(units)
        return bool(self._units)

    # -- what is left of devices ---------------------------------------------------------------------------------------

    def _left_of(self, number: int, taking: Mapping[str, int]) -> tuple[int, ...]:
        capacity, gone = self._seats.devices[number].device.capacity, self._seats.consumed(number)
        return tuple(
            max(capacity[name].value.nano - gone.get(name, 0) - taking.get(name, 0), 0) // unit
            if name in capacity
            else 0
            for name, unit in self._units.items()
        )

    def _left(self, number: int, amounts: Mapping[str, int]) -> int:
        key = number, *amounts.items()
        known = self._lefts.get(key)
        if known is None:
            if len(self._lefts) >= _KNOWN_MAX:
                self._lefts.clear()
            known = self._lefts[key] = self._packed.pack(self._left_of(number, amounts))
        return known

    def lefts(self, taking: Taking) -> dict[int, int]:
        """What is left of each device that the search has taken a part of, packed."""
        return {number: self._left(number, amounts) for number, amounts in taking.items()} if self.is_known else {}

    def with_room(self, ask: Ask, mask: Mask, taking: Taking, lefts: Mapping[int, int]) -> Mask:
        """Those of the devices that have room for the ask beside what the search has taken of them."""
        if not self.is_known:
            full = (n for n, amounts in taking.items() if mask >> n & 1 and not self._seats.fits(ask, n, amounts))
            return mask & ~sum(1 << number for number in full)
        guards, amounts_of, ask_id = self._packed.guards, self._amounts, id(ask)
        for number, left in lefts.items():
            if mask >> number & 1:
                take = amounts_of.get((ask_id, number), -1)
                if take < 0 or (left | guards) - take & guards != guards:
                    mask ^= 1 << number
        return mask

    def _draws(self, number: int, taking: Taking) -> bool:
        """Whether its first part is yet to be taken, and draws on counters."""
        device = self._seats.devices[number].device
        return bool(device.consumes_counters) and number not in taking and not self._seats.has_shares(number)

    # -- what is asked -------------------------------------------------------------------------------------------------

    def missing(self, needs: Sequence[Need], taking: Taking, picked: Sequence[Picked]) -> Work[More | None]:
        """What must be begun for what they need of shared devices alone; None if that is not enough."""
        needs = [need for need in needs if need.free and not need.free & ~self._seats.shared]
        closed = [at for at, number in enumerate(self._numbers) if self._draws(number, taking)]
        then = self._moment(needs, picked, closed)
        now: _Now | None = None
        for least in range(len(closed) + 1):
            may = yield from self._may_be(then, least)
            if may is False:
                continue
            now = now or self._now(needs, taking, closed)
            if (yield from self._may_fit(now, least, is_sure=bool(may) and then.is_like(now.rows))):
                return More(sum(1 << self._numbers[at] for at in closed), least)
        return None

    def _now(self, needs: Sequence[Need], taking: Taking, closed: Sequence[int]) -> _Now:
        lefts = [self._left(number, taking.get(number, _NOTHING)) for number in self._numbers]
        rows: dict[tuple[Row, int], tuple[int, int]] = {}
        for need in needs:
            row = tuple(self._take(need, number, left) for number, left in zip(self._numbers, lefts, strict=True))
            count, most = rows.get((row, need.needed), (0, 0))
            rows[row, need.needed] = count + need.total, most + need.times
        columns = [tuple(row[at] for row, _ in rows) for at in range(len(lefts))]
        widest = self._widest([(columns[at], lefts[at]) for at in closed])
        sorts = {column: at for at, column in enumerate(dict.fromkeys((*columns, *(each[0] for each in widest))))}
        return _Now(
            rows,
            [Part(takes, count, most) for takes, (count, most) in zip(zip(*sorts), rows.values(), strict=True)],
            [Room(lefts[at], sorts[column]) for at, column in enumerate(columns) if at not in closed],
            [Room(left, sorts[column]) for column, left in widest],
        )

    def _take(self, need: Need, number: int, left: int) -> int:
        """What one device takes for the need at least, -1 if it cannot be had."""
        takes = [self._amounts[id(ask), number] for ask in need.asks if (id(ask), number) in self._amounts]
        if not takes or (not need.free >> number & 1 and any(self._packed.covers(left, each) for each in takes)):
            return -1
        return takes[0] if len(takes) == 1 else self._least(takes)

    def _least(self, takes: Sequence[int]) -> int:
        return self._packed.pack([min(each) for each in zip(*map(self._packed.fields, takes), strict=True)])

    def _widest(self, rooms: Sequence[tuple[Row, int]]) -> list[tuple[Row, int]]:
        """One that takes whatever one of these does: equal to all of them if they are equal. None of none."""
        if len(set(rooms)) < 2:
            return list(rooms[:1])
        left = self._packed.pack([max(each) for each in zip(*(self._packed.fields(left) for _, left in rooms))])
        column = []
        for takes in zip(*(column for column, _ in rooms), strict=True):
            own = [take for take in takes if take >= 0]
            column.append(self._least(own) if own else -1)
        return [(tuple(column), left)]

    def _may_fit(self, now: _Now, more: int, *, is_sure: bool) -> Work[bool]:
        """`is_sure`: if it is not plain that they do not."""
        rooms = [*now.rooms, *[room for room in now.widest for _ in range(more)]]
        key = tuple(now.parts), tuple(sorted(rooms))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            known = is_sure or (yield from self._packing(Parcels(self._packed, now.parts, rooms)))
            self._known[key] = known
        return known

    def _packing(self, parcels: Parcels) -> Work[bool]:
        if parcels.fit_largest_first():
            return True
        yield
        with contextlib.suppress(TooMany):
            return (yield from parcels.may_be_placed())
        fillings = Fillings(self._packed, parcels.parts, parcels.rooms, effort=_EFFORT)
        rooms = Counter((room, 0) for room in parcels.rooms)
        with contextlib.suppress(TooMany):
            return (yield from fillings.may_do(fillings.counts.pack([part.wanted for part in parcels.parts]), rooms))
        return True

    # -- as a later moment ---------------------------------------------------------------------------------------------

    @property
    def _outset(self) -> Outset:
        if self._begun is None:
            asked = []
            for c, claim in enumerate(self._demand.claims):
                for r in range(len(claim.requests)):
                    wants = self._wants(c, r)
                    counts = {want.needed for want in wants}
                    if len(counts) == 1 and not any(want.mask & ~self._seats.shared for want in wants):
                        row = tuple(self._least_for(wants, number) for number in self._numbers)
                        asked.append(Asked(tuple(id(want.ask) for want in wants), row, *counts))
            lefts = [self._left(number, _NOTHING) for number in self._numbers]
            closed = [at for at, number in enumerate(self._numbers) if self._draws(number, {})]
            rows = dict.fromkeys((each.row, each.needed) for each in asked)
            widest = self._widest([(tuple(row[at] for row, _ in rows), lefts[at]) for at in closed])
            self._begun = Outset(self._packed, asked, lefts, widest[0] if widest else None)
        return self._begun

    def _least_for(self, wants: Sequence[_Want], number: int) -> int:
        takes = [self._amounts.get((id(want.ask), number), -1) for want in wants if want.mask >> number & 1]
        takes = [take for take in takes if take >= 0]
        return self._least(takes) if len(takes) > 1 else takes[0] if takes else -1

    def _moment(self, needs: Sequence[Need], picked: Sequence[Picked], closed: Sequence[int]) -> _Moment:
        outset, is_exact = self._outset, True
        wanted: Counter[int] = Counter()
        rows = []
        for need in needs:
            number = outset.number_of.get(id(need.asks[0]), -1)
            if number >= 0:
                wanted[number] += need.total
                rows.append((outset.rows[number], need.needed))
            else:
                is_exact = False
        held: dict[int, list[int]] = {}
        for pick in picked:
            if pick.amounts is not None:
                number = outset.number_of.get(id(pick.ask), -1)
                is_exact = is_exact and number >= 0
                if number >= 0:
                    held.setdefault(self._places[pick.number], []).append(number)
        return _Moment(wanted, held, tuple(at not in closed for at in range(len(self._numbers))), rows, is_exact)

    def _may_be(self, then: _Moment, more: int) -> Work[bool | None]:
        """None if it cannot be said."""
        key = (
            frozenset(then.wanted.items()),
            tuple((at, *sorted(some)) for at, some in sorted(then.held.items())),
            then.is_open,
            more,
        )
        if key not in self._known:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            try:
                self._known[key] = yield from self._outset.may_do(then.wanted, then.held, then.is_open, more)
            except TooMany:
                self._known[key] = None
        return self._known[key]
