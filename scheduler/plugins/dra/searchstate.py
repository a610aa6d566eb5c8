"""The state of a search for devices, as its bounds and the integer program read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from scheduler.plugins.dra.constraints import Constraint, Known
from scheduler.plugins.dra.demand import Ask
from scheduler.plugins.dra.seats import Mask

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
    asks: tuple[Ask, ...]
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

    def concerns(self, constraint: Constraint) -> bool:
        """Whether the constraint holds for every alternative."""
        return all(constraint.concerns(ask.request, ask.full_name) for ask in self.asks)
