"""Whether so many devices can be had together, whatever else is asked (docs/spec/dra.md §4.8, §4.10, §10.4).

Choosing so many devices whose draws stay within several counters is a knapsack of many dimensions; a value that no two
devices may share is a counter with one of something. Of two devices of which one draws no more than the other on anything,
the lesser is taken first. Devices of several boards are looked at board by board (`islands`). What is left open is weighed
(`weighing`), and then decided device by device.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.core.turns import Work
from scheduler.plugins.dra import islands
from scheduler.plugins.dra.groups import Group, Wanted, apart
from scheduler.plugins.dra.islands import Island, TooMany
from scheduler.plugins.dra.matching import bits
from scheduler.plugins.dra.seats import Mask, Seats
from scheduler.plugins.dra.weighing import MARGIN, Share, Weighed, Weights, Whole, cheapest

Left: TypeAlias = Mapping[tuple[str, str], int]
_Flags: TypeAlias = npt.NDArray[np.bool_]

_LARGEST: Final = 1 << 52
_ENTRIES_MAX: Final = 200_000
"""Devices times counters: beyond it a look at all takes longer than it saves."""
_PAIRS_MAX: Final = 4_000_000
"""Devices squared times counters: beyond it devices are not compared."""
_NODES_MAX: Final = 1000
_GIVE_UPS_MAX: Final = 3


class _Node(NamedTuple):
    """A partial choice: who may still be chosen, what is left, and how many each group still wants."""

    open: Whole
    left: Whole
    wanted: tuple[int, ...]
    limits: tuple[int, int]
    """How many that are limited may still be chosen, and how many twice."""
    chosen: tuple[int, ...]


class Fitting:
    """For one search: it remembers weights that were good, and the last choice that fitted.

    `unlike` are the sets of devices of which a claim may have one.
    """

    def __init__(
        self, seats: Seats, draws: Callable[[int], Mapping[tuple[str, str], int]], unlike: Sequence[Mask] = ()
    ) -> None:
        self._seats = seats
        self._draws = draws
        self._counters: list[tuple[int, tuple[str, str], int]] = []
        """(pool, counter, the unit in which it is counted) of each column; `unlike` are the columns behind."""
        self._all_amounts: Whole = np.zeros((0, 0), dtype=np.int64)
        self._below: _Flags | None = None
        self._weights = Weights()
        self._witness: _Flags = np.zeros(0, dtype=np.bool_)
        self._give_ups = 0
        self._island_of: list[int] = []
        self._columns_of: list[Whole] = []
        self.is_known = self._lay_out(unlike if len(unlike) * len(seats.devices) <= _ENTRIES_MAX // 2 else ())
        """Whether there is anything that can be said: counters are drawn on, in amounts that can be counted."""
        # of the question under way, by row:
        self._device: Whole = np.zeros(0, dtype=np.int64)
        self._group: Whole = np.zeros(0, dtype=np.int64)
        self._rank: Whole = np.zeros(0, dtype=np.int64)
        """0 for what is not limited, 1 for what only an administrator may have, 2 for what is had a second time."""
        self._is_limited = False
        self._amounts: Whole = np.zeros((0, 0), dtype=np.int64)

    def _lay_out(self, unlike: Sequence[Mask]) -> bool:
        seats, count = self._seats, len(self._seats.devices)
        drawn: dict[tuple[int, tuple[str, str]], dict[int, int]] = {}
        for number, each in enumerate(seats.devices):
            if each.device.consumes_counters:
                for counter, amount in self._draws(number).items():
                    if amount > 0:
                        drawn.setdefault((seats.pool_of[number], counter), {})[number] = amount
        width = len(drawn) + len(unlike)
        if not width or width * count > _ENTRIES_MAX:
            return False
        self._all_amounts = np.zeros((count, width), dtype=np.int64)
        for column, ((pool, counter), amounts) in enumerate(drawn.items()):
            unit = math.gcd(*amounts.values())
            if sum(amounts.values()) // unit > _LARGEST:
                return False
            self._counters.append((pool, counter, unit))
            for number, amount in amounts.items():
                self._all_amounts[number, column] = amount // unit
        for column, mask in enumerate(unlike, len(drawn)):
            self._all_amounts[list(bits(mask)), column] = 1
        self._witness = np.zeros(2 * count, dtype=np.bool_)
        self._find_islands(len(drawn))
        return True

    def _find_islands(self, counters: int) -> None:
        """Counters that devices draw on together, with these devices; -1 for those that draw on none."""
        drawn = [sum(1 << int(column) for column in np.flatnonzero(row)) for row in self._all_amounts[:, :counters]]
        apart: list[int] = []
        for own in set(drawn):
            apart = [*(each for each in apart if not each & own), own | sum(each for each in apart if each & own)]
        apart = [each for each in apart if each]
        self._columns_of = [np.array(list(bits(each)), dtype=np.int64) for each in apart]
        self._island_of = [next((at for at, each in enumerate(apart) if each & own), -1) for own in drawn]

    def may_fit(self, wanted: Sequence[Wanted], left: Callable[[int], Left]) -> Work[bool]:
        """Whether all of it may be had at once, of devices that nobody else may use as well. Yields now and then."""
        if not self.is_known or self._give_ups > _GIVE_UPS_MAX:
            return True
        groups = apart(wanted)
        if not groups or not (self._counters or any(each.unlike for each in groups)):
            return True
        room = self._ask(groups, left)
        counts = tuple(each.needed for each in groups)
        limits = next(((each.limited, each.doubled) for each in groups if each.limited), (0, 0))
        if self._is_witnessed(counts, limits, room):
            return True
        rows = np.arange(len(self._device))
        rows = rows[(self._amounts <= room).all(axis=1)]
        if self._compares:
            rows = rows[self._lesser(rows, rows).sum(axis=0) < np.array(counts)[self._group[rows]]]
        if len(self._columns_of) > 1 and not any(each.unlike for each in groups):
            with contextlib.suppress(TooMany):
                found = yield from islands.may_fit(self._on_islands(rows, room), counts)
                if not found or not self._is_limited:
                    return found
        return (yield from self._decide(_Node(rows, room, counts, limits, ())))

    def _on_islands(self, rows: Whole, room: Whole) -> Sequence[Island]:
        """What is asked, island by island."""
        devices: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        for row, device, group in zip(
            rows.tolist(), self._device[rows].tolist(), self._group[rows].tolist(), strict=True
        ):
            at = self._island_of[device]
            amounts = self._amounts[row, self._columns_of[at]].tolist() if at >= 0 else ()
            devices.setdefault(at, []).append((group, tuple(amounts)))
        return [
            Island(tuple(some), tuple(room[self._columns_of[at]].tolist()) if at >= 0 else ())
            for at, some in devices.items()
        ]

    def _ask(self, groups: Sequence[Group], left: Callable[[int], Left]) -> Whole:
        """Make rows of what each group may have; what is left of each column."""
        rooms = {pool: left(pool) for pool in {pool for pool, _, _ in self._counters}}
        blocked = {pool for pool, some in rooms.items() if any(amount < 0 for amount in some.values())}
        devices = self._seats.devices
        rows = [
            (n, at, rank)
            for at, each in enumerate(groups)
            for rank, some in enumerate((each.mask & ~each.for_admin, each.for_admin, each.twice))
            for n in bits(some)
            if not devices[n].device.consumes_counters or self._seats.pool_of[n] not in blocked
        ]
        self._device, self._group, self._rank = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        self._is_limited = bool(self._rank.any())
        self._amounts = self._all_amounts[self._device]
        first = len(self._counters)
        for column in range(first, self._amounts.shape[1]):
            for at, each in enumerate(groups):
                if column - first not in each.unlike:
                    self._amounts[self._group == at, column] = 0
        most = self._all_amounts.sum(axis=0) * 2 * len(groups)  # some may be had twice
        room = [
            min(max(rooms[pool].get(counter, _LARGEST * unit), 0) // unit, int(most[column]))
            for column, (pool, counter, unit) in enumerate(self._counters)
        ]
        return np.array(room + [1] * (len(most) - first), dtype=np.int64)

    def _is_witnessed(self, counts: Sequence[int], limits: tuple[int, int], room: Whole) -> bool:
        """Whether the last choice that fitted has enough of what is wanted now."""
        chosen: list[int] = []
        known = self._witness[self._flags_of(slice(None))]
        for at, count in enumerate(counts):
            own = np.flatnonzero(known & (self._group == at))[:count]
            if len(own) < count:
                return False
            chosen += own.tolist()
        if self._is_limited and min(self._fewer(limits, chosen)) < 0:
            return False
        return bool((self._amounts[chosen].sum(axis=0) <= room).all())

    @property
    def _compares(self) -> bool:
        """Whether devices are so few that each is compared with each."""
        count, width = self._all_amounts.shape
        return bool(count * count * width <= _PAIRS_MAX)

    def _lesser(self, rows: Whole, than: Whole) -> _Flags:
        """[one, other]: one of these rows serves as well as the other, and draws no more; of equal ones the first."""
        if self._below is None:
            below = np.all(self._all_amounts[:, None, :] <= self._all_amounts[None, :, :], axis=2)
            self._below = below & ~(below.T & np.tri(len(below), dtype=np.bool_))
        alike: _Flags = self._group[rows][:, None] == self._group[than]
        if self._is_limited:
            alike &= self._rank[rows][:, None] <= self._rank[than]
        return alike & self._below[np.ix_(self._device[rows], self._device[than])]

    def _decide(self, root: _Node) -> Work[bool]:
        stack, seen = [root], 0
        while stack:
            node = stack.pop()
            seen += 1
            if seen > _NODES_MAX:
                self._give_ups += 1
                return True
            yield
            if any(count < 0 for count in (*node.wanted, *node.limits)) or (node.left < 0).any():
                continue
            if not any(node.wanted):
                self._remember(node.chosen)
                return True
            node = node._replace(open=node.open[(self._amounts[node.open] <= node.left).all(axis=1)])
            shares = self._shares(node)
            if not all(share.has_enough for share in shares):
                continue
            found = self._weigh(node, shares)
            if len(found.fits):
                self._remember((*node.chosen, *node.open[found.fits].tolist()))
                return True
            if not found.is_too_much:
                self._branch(node, found, shares, stack)
        return False

    def _remember(self, rows: Sequence[int]) -> None:
        self._witness[:] = False
        self._witness[self._flags_of(list(rows))] = True

    def _flags_of(self, rows: list[int] | slice) -> Whole:
        """Their places in a witness."""
        flags: Whole = self._device[rows] + (self._rank[rows] == 2) * (len(self._witness) // 2)
        return flags

    def _fewer(self, limits: tuple[int, int], taken: Whole | list[int]) -> tuple[int, int]:
        """What is left of the limits."""
        ranks = self._rank[taken]
        return limits[0] - int((ranks > 0).sum()), limits[1] - int((ranks == 2).sum())

    def _shares(self, node: _Node) -> list[Share]:
        """What each group that wants something may have, as far as limits go."""
        group, ranks = self._group[node.open], self._rank[node.open]
        shares = []
        for at, count in enumerate(node.wanted):
            own = np.flatnonzero(group == at)
            if count and ranks[own].any():
                twice, limited = ranks[own] == 2, ranks[own] > 0
                shares.append(Share(own, count, limited, twice, node.limits))
            elif count:
                shares.append(Share(own, count))
        return shares

    def _branch(self, node: _Node, found: Weighed, shares: Sequence[Share], stack: list[_Node]) -> None:
        """Leave out what would be too much in every choice, and decide on what is cheap most often and large.

        With a device come those that draw less in its place, and without it those that draw more are left out.
        """
        keep = np.zeros(len(node.open), dtype=np.bool_)
        for share in shares:
            dearest = found.cost[cheapest(found.cost, (share,))].max()
            keep[share.own] = found.excess - dearest + found.cost[share.own] <= MARGIN
        open_, often = node.open[keep], found.share[keep]
        if not len(open_):
            return
        size = (self._amounts[open_] / np.maximum(node.left, 1)).sum(axis=1)
        at = int(np.argmax(often * size)) if often.any() else 0
        one = open_[at : at + 1]
        more = less = np.zeros(len(open_), dtype=np.bool_)
        if self._compares:
            more, less = self._lesser(one, open_)[0], self._lesser(open_, one)[:, 0]
        more[at] = less[at] = True
        stack.append(node._replace(open=open_[~more]))
        taken = open_[less]
        own_group = int(self._group[one[0]])
        wanted = tuple(count - (len(taken) if number == own_group else 0) for number, count in enumerate(node.wanted))
        left = node.left - self._amounts[taken].sum(axis=0)
        limits = self._fewer(node.limits, taken) if self._is_limited else node.limits
        stack.append(_Node(open_[~less], left, wanted, limits, (*node.chosen, *taken.tolist())))

    def _weigh(self, node: _Node, shares: Sequence[Share]) -> Weighed:
        return self._weights.of(self._amounts[node.open], node.left, shares, counters=len(self._counters))
