"""How many of something are on each slot, with a log so that sums over domains follow one change at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from scheduler.cache.domains import Domains

_LOG_MAX: Final = 2048


class SlotCounts:
    """Sparse: a slot that is not named holds none. Changed by the index that owns it, one pod at a time."""

    __slots__ = ("_log", "_log_start", "counts", "domains")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        """Slot → how many, none of them 0; also slots whose Node object is gone."""
        self.domains: dict[tuple[str, int | None], Domains] = {}
        """Sums that were asked for, kept by `domains.of`."""
        self._log: list[int] = []
        self._log_start = 0

    @property
    def position(self) -> int:
        """Where the log stands; give it to `changed_since` later."""
        return self._log_start + len(self._log)

    def changed_since(self, position: int) -> list[int] | None:
        """One entry per pod: the slot it came to, or `~slot` if it left. None when that is too long ago to tell."""
        behind = position - self._log_start
        return None if behind < 0 else self._log[behind:]

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
        if not self.domains:  # nobody follows: whoever begins to reads the counts
            return
        self._log.append(entry)
        if len(self._log) > _LOG_MAX:
            drop = _LOG_MAX // 2
            del self._log[:drop]
            self._log_start += drop
