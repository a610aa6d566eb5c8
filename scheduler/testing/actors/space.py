"""The room of a storage backend: so many bytes per segment, of which every volume takes its share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class Space:
    """Segments and their bytes. A volume that was made keeps its share until it is given back."""

    def __init__(self, size_bytes: Mapping[str, int]) -> None:
        self.size_bytes = dict(size_bytes)
        """May be changed: storage is added, or lost."""
        self._shares: dict[str, tuple[str, int]] = {}
        self._used: Counter[str] = Counter()

    def free_bytes(self, segment: str) -> int:
        """What is left there; below zero once storage was lost."""
        return self.size_bytes.get(segment, 0) - self._used[segment]

    def take(self, volume: str, segment: str, size: int) -> bool:
        """Room for a volume of this name, which has it already if it was asked before; False if there is not enough."""
        if self._shares.get(volume) == (segment, size):
            return True
        self.give_back(volume)
        if size > self.free_bytes(segment):
            return False
        self._shares[volume] = (segment, size)
        self._used[segment] += size
        return True

    def give_back(self, volume: str) -> str:
        """It was deleted; returns the segment it was in, "" if it is not known. Idempotent."""
        segment, size = self._shares.pop(volume, ("", 0))
        self._used[segment] -= size
        return segment

    def overdrawn(self) -> list[str]:
        """Never more made than there is: the segments of which that is not true."""
        return [
            f"segment {segment}: {used} bytes made, {self.size_bytes.get(segment, 0)} there"
            for segment, used in sorted(self._used.items())
            if used > self.size_bytes.get(segment, 0)
        ]
