"""Which pods on nodes use which claims, counted as pods come and leave, trials included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.cache.followed import Followed
from scheduler.core.podinfo import PodInfo

_LOG_MAX: Final = 65_536
_NOBODY: Final[Mapping[int, int]] = {}


class ClaimUsers(Followed[tuple[int, str]]):
    """Claim → node slots → how many of its pods use it. The log has (slot, claim key) where a use began or ended."""

    __slots__ = ("_at", "_slots")

    def __init__(self) -> None:
        super().__init__()
        self._slots: dict[str, dict[int, int]] = {}
        self._at: dict[int, dict[str, None]] = {}

    def add(self, slot: int, info: PodInfo) -> None:
        """A pod with claims is on the node."""
        for key in {use.key for use in info.claims}:
            slots = self._slots.setdefault(key, {})
            slots[slot] = slots.get(slot, 0) + 1
            if slots[slot] == 1:
                self._at.setdefault(slot, {})[key] = None
                self._note(slot, key)

    def remove(self, slot: int, info: PodInfo) -> None:
        """It is not any more."""
        for key in {use.key for use in info.claims}:
            slots = self._slots[key]
            slots[slot] -= 1
            if slots[slot]:
                continue
            del slots[slot]
            if not slots:
                del self._slots[key]
            del self._at[slot][key]
            if not self._at[slot]:
                del self._at[slot]
            self._note(slot, key)

    def slots(self, key: str) -> Mapping[int, int]:
        """Slot → pods there that use the claim. A live view: do not keep it."""
        return self._slots.get(key, _NOBODY)

    def at(self, slot: int) -> Mapping[str, None]:
        """The claims used on a node. A live view."""
        return self._at.get(slot, {})

    def _note(self, slot: int, key: str) -> None:
        self._log.append((slot, key))
        if len(self._log) > _LOG_MAX:
            self._forget_half()
