"""Devices by the weight of what they draw: whether even the lightest choice is too heavy (docs/spec/dra.md §10.4).

If counters are weighed so that even the cheapest choice costs more than all that is left, nothing fits; weights that show
it are found by raising those of counters that the cheapest choice overdraws. And of devices that draw more than a (q+1)th
of a counter no more than q fit: counted so (as functions that are dual feasible do in bin packing), each counter gives some
more that must suffice.

Amounts are whole numbers throughout, weights are not; so what is refused for its weight must be too heavy by a margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Whole: TypeAlias = npt.NDArray[np.int64]
_Real: TypeAlias = npt.NDArray[np.float64]
_Flags: TypeAlias = npt.NDArray[np.bool_]

MARGIN: Final = 1e-9
_PARTS: Final = (1, 2, 3, 4)
"""Numbers q of large devices that are counted apart."""
_TRIES, _FIRST_TRIES = 10, 50
"""So often weights are changed before devices are decided on; at first they have farther to go."""
_PACE: Final = 0.6
_NONE: Final = np.zeros(0, dtype=np.int64)


class Weighed(NamedTuple):
    """What weighing says. `fits` are devices that will do; without them `share` says how often each was cheapest."""

    is_too_much: bool
    fits: Whole
    share: _Real
    cost: _Real
    excess: float
    """How much the cheapest choice costs beyond what is left; negative."""


class Share(NamedTuple):
    """So many of these rows; no more than so many of those that are limited, and of those that are had twice."""

    own: Whole
    needed: int
    limited: _Flags | None = None
    twice: _Flags | None = None
    limits: tuple[int, int] = (0, 0)

    @property
    def has_enough(self) -> bool:
        """Whether so many may be had, whatever they draw."""
        if self.limited is None or self.twice is None:
            return len(self.own) >= self.needed
        limited, twice = int(self.limited.sum()), int(self.twice.sum())
        marked = min(limited - twice + min(twice, self.limits[1]), self.limits[0])
        return len(self.own) - limited + marked >= self.needed


class Weights:
    """Those that were good, for the next time."""

    def __init__(self) -> None:
        self._weights: _Real = np.zeros(0)

    def of(self, amounts: Whole, left: Whole, owns: Sequence[Share], *, counters: int) -> Weighed:
        """Rows of amounts are devices, columns counters and behind them others. `owns`: of these devices so many each."""
        parts = _parts(amounts, np.maximum(left, 1), counters)
        is_first = len(self._weights) != parts.shape[1]
        weights = np.full(parts.shape[1], 1.0 / parts.shape[1]) if is_first else self._weights
        share, best = np.zeros(len(parts)), (-math.inf, weights)
        for tried in range(_FIRST_TRIES if is_first else _TRIES):
            cost = parts @ weights
            chosen = cheapest(cost, owns)
            excess = float(cost[chosen].sum()) - 1.0
            if excess > best[0]:
                best = excess, weights
            if excess > MARGIN:
                self._weights = weights
                return Weighed(True, _NONE, share, cost, excess)
            over = parts[chosen].sum(axis=0) - 1.0
            if over.max() <= MARGIN and (amounts[chosen].sum(axis=0) <= left).all():
                return Weighed(False, chosen, share, cost, excess)
            share[chosen] += 1
            weights = weights * np.exp(np.minimum(_PACE / math.sqrt(1 + tried / 10) * over, 50.0))
            weights /= weights.sum()
        self._weights = best[1]
        return Weighed(False, _NONE, share, parts @ best[1], best[0])


def _parts(amounts: Whole, left: Whole, counters: int) -> _Real:
    """Each draw as a part of what is left; of counters then rounded to whole qths where it is no whole number of (q+1)ths.

    The parts of devices that fit beside each other sum up to no more than one, rounded or not.
    """
    columns = [plain := amounts / left]
    amounts, left, plain = amounts[:, :counters], left[:counters], plain[:, :counters]
    for q in _PARTS:
        whole, rest = np.divmod(amounts * (q + 1), left)
        columns.append(np.where(rest == 0, plain, whole / q))
    return np.concatenate(columns, axis=1)


def cheapest(cost: _Real, owns: Sequence[Share]) -> Whole:
    """Of each group as many as it wants; fewer if limits do not leave as many."""
    chosen = [_cheapest_of(cost, each) for each in owns]
    return chosen[0] if len(chosen) == 1 else np.concatenate(chosen)


def _cheapest_of(cost: _Real, share: Share) -> Whole:
    own, count, limited, twice, limits = share
    if limited is None or twice is None:
        return own if count == len(own) else own[np.argpartition(cost[own], count - 1)[:count]]
    order = np.argsort(cost[own])
    limited, twice = limited[order], twice[order]
    open_ = ~twice | (twice.cumsum() <= limits[1])
    open_ &= ~limited | ((limited & open_).cumsum() <= limits[0])
    return own[order[open_][:count]]
