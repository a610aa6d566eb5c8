"""The state of a search for devices, and maximum matching between requests and devices.

Whether many can have what they want of the same devices at once, nothing twice.

Sets of devices are masks: bit *i* is device *i*. A want is a set and how many of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from scheduler.plugins.dra.constraints import AllocationConstraint, Known
from scheduler.plugins.dra.node_devices import Mask
from scheduler.plugins.dra.requests import RequestData

Left: TypeAlias = Mapping[tuple[str, str], int]
"""(counter set, counter) → amount."""
Taking: TypeAlias = Mapping[int, Mapping[str, int]]
"""Number of a shared device → capacity → amount that the search has taken."""


Witness: TypeAlias = Mapping[tuple[int, int], Mask]
"""(claim, request) → the devices that it gets in a solution of the integer program."""


class Position(NamedTuple):
    """The next device to choose: of which claim, request and alternative, after how many, from which place in the order."""

    claim: int = 0
    request: int = 0
    alternative: int = -1
    taken: int = 0
    start: int = 0


class SearchState(NamedTuple):
    """What a search has taken so far."""

    used: Mask
    """Devices that no other request can have."""
    own: Mask
    """The devices among them that the current claim has; a request of this claim with admin access cannot have these."""
    known: tuple[Known, ...]
    """For each constraint of the current claim, the values that it has seen."""
    taking: Taking
    left: Callable[[int], Left]
    """Pool → what is left of its counters."""


class Need(NamedTuple):
    """`needed` devices from `free` are missing, for each of the identical requests `requests` of a claim."""

    claim: int
    asks: tuple[RequestData, ...]
    """The request, or its alternatives that are left."""
    free: Mask
    needed: int
    requests: tuple[int, ...]

    @property
    def times(self) -> int:
        """Number of identical requests."""
        return len(self.requests)

    @property
    def total(self) -> int:
        """Number of devices for all identical requests; they are different devices, except shared ones."""
        return self.needed * self.times

    @property
    def is_admin(self) -> bool:
        """Whether devices that other requests have can be used, too."""
        return any(ask.is_admin for ask in self.asks)

    def concerns(self, constraint: AllocationConstraint) -> bool:
        """Whether the constraint holds for every alternative."""
        return all(constraint.concerns(ask.request, ask.full_name) for ask in self.asks)


def bits(mask: Mask) -> Iterator[int]:
    """The numbers in a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def can_match(needs: Iterable[tuple[Mask, int]]) -> bool:
    """Whether all these counts can be had at once, each of its own set, and nothing twice."""
    return _match(_merged(needs)) is not None


def first_of_match(own: tuple[Mask, int], others: Iterable[tuple[Mask, int]]) -> Mask:
    """What the first of these may have if all are to have enough; nothing if they cannot."""
    needs = [own, *_merged(others)]
    held = _match(needs)
    if held is None:
        return 0
    spare = held[0]
    for each in held:
        spare |= each
    open_ = ~spare | held[0]
    left = list(range(1, len(needs)))
    while movable := [at for at in left if needs[at][0] & open_]:
        for at in movable:
            open_ |= held[at]
        left = [at for at in left if at not in movable]
    return own[0] & open_


def _merged(needs: Iterable[tuple[Mask, int]]) -> list[tuple[Mask, int]]:
    together: dict[Mask, int] = {}
    for mask, count in needs:
        together[mask] = together.get(mask, 0) + count
    return list(together.items())


def _match(needs: Sequence[tuple[Mask, int]]) -> list[Mask] | None:
    """What each gets; None if it cannot be done. The smallest sets choose first. O(sets² × counts)."""
    held, taken = [0] * len(needs), 0
    for at in sorted(range(len(needs)), key=lambda at: needs[at][0].bit_count()):
        mask, count = needs[at]
        for _ in range(count):
            free = mask & ~taken
            if free:
                held[at] |= free & -free
                taken |= free & -free
                continue
            more = _make_room(needs, held, taken, at)
            if not more:
                return None
            taken |= more
    return held


def _make_room(needs: Sequence[tuple[Mask, int]], held: list[Mask], taken: Mask, at: int) -> Mask:
    """Let others move on until something is free for this one; what is taken then, 0 if nobody can."""
    came_from: dict[int, tuple[int, Mask]] = {at: (-1, 0)}
    queue = [at]
    for each in queue:
        mask = needs[each][0]
        free = mask & ~taken
        if free:
            return _move(held, came_from, each, free & -free)
        for other, theirs in enumerate(held):
            wanted = theirs & mask
            if wanted and other not in came_from:
                came_from[other] = (each, wanted & -wanted)
                queue.append(other)
    return 0


def _move(held: list[Mask], came_from: dict[int, tuple[int, Mask]], each: int, gained: Mask) -> Mask:
    """Along the way back: each gets one, and passes one on."""
    low = gained
    while each >= 0:
        held[each] |= low
        before, passed = came_from[each]
        held[each] &= ~passed
        each, low = before, passed
    return gained
