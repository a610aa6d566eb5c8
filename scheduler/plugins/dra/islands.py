"""Whether devices fit that draw on counters of several boards, board by board (docs/spec/dra.md §4.8, §10.4).

Partitions of one GPU have nothing to do with those of another but that the claims want so many of both together. So it is
found out for each such island alone how many of which sort fit on it, which is known at once for all that are alike, and
then how they add up. Sorts can be weighed: if no island has more than so much of all sorts, by weight, and that is not
enough, nothing fits.

Amounts and counts are packed into one integer each, with a spare bit between, so that all are compared at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.core.turns import Work

Counts: TypeAlias = tuple[int, ...]
"""How many of each sort."""

_STATES_MAX: Final = 4000
"""In adding up: beyond it somebody else must decide."""
_EFFORT_MAX: Final = 20_000
"""For one island: pairs of counts that are compared, and eight for each device that is decided on. A few milliseconds."""
_DEVICES_MAX: Final = 64
_KNOWN_MAX: Final = 1024
"""So many islands are remembered, some kilobytes each: nodes are alike, and a search comes back to what it has changed."""
_TRIES: Final = 10
_MARGIN: Final = 1e-6


class Island(NamedTuple):
    """What may be had on it: per device its sort, and what it draws on each counter; and what is left of these."""

    devices: tuple[tuple[int, Counts], ...]
    left: Counts


class TooMany(Exception):
    """There is more to it than can be looked at."""


def may_fit(islands: Sequence[Island], wanted: Counts) -> Work[bool]:
    """Whether they have so many of each sort together. Raises TooMany."""
    choices = []
    for island in sorted(islands):
        own = [sort for sort, _ in island.devices]
        most = _most_on(island, tuple(min(count, own.count(sort)) for sort, count in enumerate(wanted)))
        if not most:
            raise TooMany
        choices.append(most)
        yield
    if not choices:
        return not any(wanted)
    return (yield from _adding_up(choices, wanted))


@lru_cache(maxsize=_KNOWN_MAX)
def _most_on(island: Island, wanted: Counts) -> tuple[Counts, ...]:
    """The counts that fit and that none which fits exceeds; nothing if these are too many to be found."""
    if len(island.devices) > _DEVICES_MAX:
        return ()
    shifts, guards, left = _packing(island.left)
    sorts, all_sorts, most = _packing(wanted)
    draws = [(1 << sorts[sort], sum(map(int.__lshift__, amounts, shifts))) for sort, amounts in island.devices]
    fields = [(1 << width) - 1 << shift for width, shift in zip(_widths(island.left), shifts)]
    needed = [0]
    for _, amounts in reversed(island.devices):
        needed.append(needed[-1] | sum(field for field, amount in zip(fields, amounts) if amount))
    needed.reverse()
    # from the last device on: what is left of the counters → what fits then
    known: dict[tuple[int, int], list[int]] = {}
    effort = 0

    def fitting(at: int, left: int) -> list[int]:
        if at == len(draws):
            return [0]
        nonlocal effort
        key = at, left & needed[at]
        if key not in known:
            effort += 8
            if effort > _EFFORT_MAX:
                raise TooMany
            found = fitting(at + 1, key[1])
            one, amounts = draws[at]
            rest = (key[1] | guards) - amounts
            if rest & guards == guards:
                more = (each + one for each in fitting(at + 1, rest ^ guards))
                both = {*found, *(each for each in more if _covers(most, each, all_sorts))}
                effort += len(both) ** 2
                found = _greatest(both, all_sorts)
            known[key] = found
        return known[key]

    with contextlib.suppress(TooMany):
        widths = _widths(wanted)
        return tuple(
            tuple(each >> shift & (1 << width) - 1 for shift, width in zip(sorts, widths, strict=True))
            for each in fitting(0, left)
        )
    return ()


def _adding_up(choices: Sequence[Sequence[Counts]], wanted: Counts) -> Work[bool]:
    """Whether one of each add up to what is wanted."""
    weights, most = _weigh(choices, wanted)
    if not len(most):
        return False
    failed: set[tuple[int, Counts]] = set()
    stack: list[tuple[int, Counts]] = [(0, wanted)]
    while stack:
        state = at, left = stack.pop()
        if not any(left):
            return True
        if at == len(choices) or state in failed or float(weights @ left) > most[at] + _MARGIN:
            continue
        failed.add(state)
        if len(failed) > _STATES_MAX:
            raise TooMany
        if len(failed) % 64 == 0:
            yield
        rests = {tuple(max(a - b, 0) for a, b in zip(left, each)) for each in choices[at]}
        stack.extend((at + 1, rest) for rest in sorted(rests, key=lambda rest: -float(weights @ rest)))
    return False


def _weigh(choices: Sequence[Sequence[Counts]], wanted: Counts) -> tuple[npt.NDArray[np.float64], list[float]]:
    """Weights of the sorts under which there is least to spare, and what islands from each on have at most; [] if too little."""
    several: dict[tuple[Counts, ...], int] = {}
    for each in choices:
        several[tuple(each)] = several.get(tuple(each), 0) + 1
    tables = [(np.array(each, dtype=np.float64), times) for each, times in several.items()]
    target = np.array(wanted, dtype=np.float64)
    weights = best = 1 / np.maximum(np.max([table.max(axis=0) for table, _ in tables], axis=0), 1)
    least = -np.inf
    for tried in range(_TRIES):
        got, worth = np.zeros(len(wanted)), 0.0
        for table, times in tables:
            values = table @ weights
            at = int(values.argmax())
            got += times * table[at]
            worth += times * float(values[at])
        short = float(weights @ target) - worth
        if short > least:
            least, best = short, weights
        if short > _MARGIN:
            return best, []
        weights = weights * np.exp(np.clip((target - got) / (target + 1), -1, 1) / np.sqrt(1 + tried))
        weights /= weights.sum()
    rest, most = 0.0, [0.0]
    for each in reversed(choices):
        rest += max(float(best @ counts) for counts in each)
        most.append(rest)
    return best, most[::-1]


def _widths(amounts: Counts) -> list[int]:
    return [amount.bit_length() + 1 for amount in amounts]


def _packing(amounts: Counts) -> tuple[list[int], int, int]:
    """Where each is, the spare bits, and all of them together."""
    shifts, guards, packed, at = [], 0, 0, 0
    for amount, width in zip(amounts, _widths(amounts)):
        shifts.append(at)
        packed |= amount << at
        at += width
        guards |= 1 << at - 1
    return shifts, guards, packed


def _covers(more: int, less: int, guards: int) -> bool:
    return (more | guards) - less & guards == guards


def _greatest(counts: set[int], guards: int) -> list[int]:
    return [each for each in counts if not any(other != each and _covers(other, each, guards) for other in counts)]
