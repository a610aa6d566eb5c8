"""How many of something are on each slot, with a log so that sums over domains follow one change at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.cache.change_log import ChangeLog

if TYPE_CHECKING:
    from scheduler.cache.domains import Domains


class SlotCounts(ChangeLog[int]):
    """Sparse: a slot that is not named holds none. Changed by the index that owns it, one pod at a time.

    The log has one entry per pod: the slot it came to, or `~slot` if it left.
    """

    __slots__ = ("counts", "domains")

    log_max = 512

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[int, int] = {}
        """Slot → how many, none of them 0; also slots whose Node object is gone."""
        self.domains: dict[tuple[str, int | None], Domains] = {}
        """Sums that were asked for, kept by `domains.of`."""

    def add(self, slot: int) -> None:
        """One more."""
        self.counts[slot] = self.counts.get(slot, 0) + 1
        self._record(slot)

    def remove(self, slot: int) -> None:
        """One fewer; KeyError if there was none."""
        left = self.counts.pop(slot) - 1
        if left:
            self.counts[slot] = left
        self._record(~slot)

    def put(self, slot: int, count: int) -> None:
        """Several at once, before anybody has read the log."""
        self.counts[slot] = self.counts.get(slot, 0) + count

    def _record(self, entry: int) -> None:
        if self.domains and self.note(entry):  # without sums there is no reader, and a new one reads the counts
            self._let_go()

    def _let_go(self) -> None:
        """Sums that nobody has asked for in a long time would have to be made anew, so nothing is kept for them."""
        self.domains = {key: sums for key, sums in self.domains.items() if self.reaches(sums.position)}
        if not self.domains:
            self.drop_all()
