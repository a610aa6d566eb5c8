"""Whether so many partitions fit what is left of shared counters, whatever else is asked (docs/spec/dra.md §4.8, §10.4).

Choosing so many devices whose draws stay within several counters is a knapsack of many dimensions. Two things make it easy
most of the time. If the counters are weighed so that even the cheapest choice costs more than all that is left, nothing
fits; weights that show it are found by raising those of counters that the cheapest choice overdraws. And of devices that
draw more than a (q+1)th of a counter no more than q fit: counted so (as functions that are dual feasible do in bin packing),
each counter gives some more that must suffice. What is left open is decided device by device.

Amounts are whole numbers throughout, weights are not; so what is refused for its weight must be too heavy by a margin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.core.turns import Work
from scheduler.plugins.dra.matching import bits
from scheduler.plugins.dra.seats import Mask, Seats

Left: TypeAlias = Mapping[tuple[str, str], int]
Need: TypeAlias = tuple[Mask, int]
"""So many different devices of these."""
_Whole: TypeAlias = npt.NDArray[np.int64]
_Real: TypeAlias = npt.NDArray[np.float64]

_PARTS: Final = (1, 2, 3, 4)
"""Numbers q of large devices that are counted apart."""
_TRIES, _FIRST_TRIES = 10, 50
"""So often weights are changed before devices are decided on; at first they have farther to go."""
_PACE: Final = 0.6
_MARGIN: Final = 1e-9
_LARGEST: Final = 1 << 52
_ENTRIES_MAX: Final = 200_000
"""Devices times counters: beyond it a look at all takes longer than it saves."""
_NODES_MAX: Final = 1000
_GIVE_UPS_MAX: Final = 3


class _Node(NamedTuple):
    """A partial choice: who may still be chosen, what is left, and how many each need still wants."""

    open: _Whole
    left: _Whole
    wanted: tuple[int, ...]
    chosen: tuple[int, ...]


class _Weighed(NamedTuple):
    """What weighing a node says. `fits` are devices that will do; without them `share` says how often each was cheapest."""

    is_too_much: bool
    fits: tuple[int, ...]
    share: _Real
    cost: _Real
    excess: float
    """How much the cheapest choice costs beyond what is left; negative."""


class Fitting:
    """For one search: it remembers weights that were good, and the last choice that fitted."""

    def __init__(self, seats: Seats, draws: Callable[[int], Mapping[tuple[str, str], int]]) -> None:
        self._seats = seats
        self._draws = draws
        self._numbers: dict[int, int] = {}
        """Number of a device that draws → its row."""
        self._rows: list[tuple[int, tuple[str, str], int]] = []
        """(pool, counter, the unit in which it is counted) of each column."""
        self._amounts: _Whole = np.zeros((0, 0), dtype=np.int64)
        self._group: _Whole = np.zeros(0, dtype=np.int64)
        self._weights: _Real = np.zeros(0)
        self._witness: tuple[int, ...] = ()
        self._give_ups = 0
        self.is_known = self._lay_out()
        """Whether there is anything that can be said: counters are drawn on, in amounts that can be counted."""

    def _lay_out(self) -> bool:
        seats = self._seats
        drawn: dict[tuple[int, tuple[str, str]], dict[int, int]] = {}
        for number, each in enumerate(seats.devices):
            if each.device.consumes_counters and not seats.shared >> number & 1:
                self._numbers[number] = len(self._numbers)
                for counter, amount in self._draws(number).items():
                    if amount > 0:
                        drawn.setdefault((seats.pool_of[number], counter), {})[number] = amount
        if not drawn or len(drawn) * len(self._numbers) > _ENTRIES_MAX:
            return False
        self._amounts = np.zeros((len(self._numbers), len(drawn)), dtype=np.int64)
        for column, ((pool, counter), amounts) in enumerate(drawn.items()):
            unit = math.gcd(*amounts.values())
            if sum(amounts.values()) // unit > _LARGEST:
                return False
            self._rows.append((pool, counter, unit))
            for number, amount in amounts.items():
                self._amounts[self._numbers[number], column] = amount // unit
        return True

    def may_fit(self, needs: Sequence[Need], left: Callable[[int], Left]) -> Work[bool]:
        """Whether all needs that only devices which draw can serve may be served at once. Yields now and then."""
        if not self.is_known or self._give_ups > _GIVE_UPS_MAX:
            return True
        groups = _apart(
            [need for need in needs if need[1] and all(number in self._numbers for number in bits(need[0]))]
        )
        rooms = {pool: left(pool) for pool in {pool for pool, _, _ in self._rows}}
        room = np.array(
            [
                min(rooms[pool].get(counter, _LARGEST * unit) // unit, int(self._amounts[:, column].sum()))
                for column, (pool, counter, unit) in enumerate(self._rows)
            ],
            dtype=np.int64,
        )
        blocked = {pool for pool, some in rooms.items() if any(amount < 0 for amount in some.values())}
        self._group = np.full(len(self._numbers), -1, dtype=np.int64)
        for at, (mask, _) in enumerate(groups):
            for number in bits(mask):
                if self._seats.pool_of[number] not in blocked:
                    self._group[self._numbers[number]] = at
        wanted = tuple(count for _, count in groups)
        if self._is_witnessed(wanted, room):
            return True
        open_ = np.flatnonzero(self._group >= 0)
        return (yield from self._decide(_Node(open_, np.maximum(room, 0), wanted, ())))

    def _is_witnessed(self, wanted: Sequence[int], room: _Whole) -> bool:
        """Whether the last choice that fitted has enough of what is wanted now."""
        chosen: list[int] = []
        for at, count in enumerate(wanted):
            own = [row for row in self._witness if self._group[row] == at][:count]
            if len(own) < count:
                return False
            chosen += own
        return bool((self._amounts[chosen].sum(axis=0) <= room).all())

    def _decide(self, root: _Node) -> Work[bool]:
        stack, seen = [root], 0
        while stack:
            node = stack.pop()
            seen += 1
            if seen > _NODES_MAX:
                self._give_ups += 1
                return True
            yield
            if not any(node.wanted):
                self._witness = node.chosen
                return True
            amounts = self._amounts[node.open]
            open_ = node.open[(amounts <= node.left).all(axis=1)]
            node = node._replace(open=open_)
            if any((self._group[open_] == at).sum() < count for at, count in enumerate(node.wanted)):
                continue
            found = self._weigh(node)
            if found.fits:
                self._witness = node.chosen + found.fits
                return True
            if not found.is_too_much:
                self._branch(node, found, stack)
        return False

    def _branch(self, node: _Node, found: _Weighed, stack: list[_Node]) -> None:
        """Leave out what would be too much in every choice, and decide on what is cheap most often and large."""
        keep = np.ones(len(node.open), dtype=np.bool_)
        group = self._group[node.open]
        for at, count in enumerate(node.wanted):
            own = np.flatnonzero(group == at)
            if count and count < len(own):
                dearest = np.partition(found.cost[own], count - 1)[count - 1]
                keep[own] = found.excess - dearest + found.cost[own] <= _MARGIN
            elif not count:
                keep[own] = False
        open_, share = node.open[keep], found.share[keep]
        if not len(open_):
            return
        size = (self._amounts[open_] / np.maximum(node.left, 1)).sum(axis=1)
        at = int(np.argmax(share * size)) if share.any() else 0
        row, rest = int(open_[at]), np.delete(open_, at)
        stack.append(node._replace(open=rest))
        own_group = int(self._group[row])
        wanted = tuple(count - (number == own_group) for number, count in enumerate(node.wanted))
        stack.append(_Node(rest, node.left - self._amounts[row], wanted, (*node.chosen, row)))

    # -- weighing ------------------------------------------------------------------------------------------------------

    def _weigh(self, node: _Node) -> _Weighed:
        amounts = self._amounts[node.open]
        parts = _parts(amounts, np.maximum(node.left, 1))
        group = self._group[node.open]
        owns = [(np.flatnonzero(group == at), count) for at, count in enumerate(node.wanted) if count]
        is_first = len(self._weights) != parts.shape[1]
        weights = np.full(parts.shape[1], 1.0 / parts.shape[1]) if is_first else self._weights
        share, best = np.zeros(len(parts)), (-math.inf, weights)
        for tried in range(_FIRST_TRIES if is_first else _TRIES):
            cost = parts @ weights
            cheapest = _cheapest(cost, owns)
            excess = float(cost[cheapest].sum()) - 1.0
            if excess > best[0]:
                best = excess, weights
            if excess > _MARGIN:
                self._weights = weights
                return _Weighed(True, (), share, cost, excess)
            if (amounts[cheapest].sum(axis=0) <= node.left).all():
                return _Weighed(False, tuple(int(row) for row in node.open[cheapest]), share, cost, excess)
            share[cheapest] += 1
            over = parts[cheapest].sum(axis=0) - 1.0
            weights = weights * np.exp(np.minimum(_PACE / math.sqrt(1 + tried / 10) * over, 50.0))
            weights /= weights.sum()
        self._weights = best[1]
        return _Weighed(False, (), share, parts @ best[1], best[0])


def _parts(amounts: _Whole, left: _Whole) -> _Real:
    """Each draw as a part of what is left; then rounded to whole qths where it is no whole number of (q+1)ths.

    The parts of devices that fit beside each other sum up to no more than one, rounded or not.
    """
    plain = amounts / left
    columns = [plain]
    for q in _PARTS:
        whole, rest = np.divmod(amounts * (q + 1), left)
        columns.append(np.where(rest == 0, plain, whole / q))
    return np.concatenate(columns, axis=1)


def _cheapest(cost: _Real, owns: Sequence[tuple[_Whole, int]]) -> _Whole:
    """Of each group as many as it wants."""
    chosen = [own if count == len(own) else own[np.argpartition(cost[own], count - 1)[:count]] for own, count in owns]
    return chosen[0] if len(chosen) == 1 else np.concatenate(chosen)


def _apart(needs: Sequence[Need]) -> list[Need]:
    """The same with sets that have no device in common: those that have are taken together."""
    out: list[Need] = []
    for mask, count in needs:
        together = (mask, count)
        rest = []
        for each in out:
            if each[0] & together[0]:
                together = (each[0] | together[0], each[1] + together[1])
            else:
                rest.append(each)
        out = [*rest, together]
    return out
