"""Whether parts fit into rooms together: parts of shared devices, of several capacities at once (docs/spec/dra.md §4.9, §10.4).

That is packing into bins of several dimensions. Large parts first, each where the least is left over, finds most of what can
be found. Else parts are placed one by one for a while; how rooms can be filled as a whole is for `fillings` to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from scheduler.core.turns import Work
from scheduler.plugins.dra.fillings import Part, Room, TooMany
from scheduler.plugins.dra.packed import Packed

_PLACINGS_MAX: Final = 200


class Parcels:
    """Parts that are to be put into rooms. The largest first, by what they take of all that there is."""

    def __init__(self, packed: Packed, parts: Sequence[Part], rooms: Sequence[Room]) -> None:
        self._packed = packed
        self.rooms = [room for room in rooms if any(each.takes[room.sort] >= 0 for each in parts)]
        sums = [sum(each) for each in zip(*(packed.fields(room.left) for room in self.rooms), strict=True)]
        self._scale = [1 / max(each, 1) for each in sums or [0] * len(packed.widths)]
        self.parts = sorted(parts, key=self.size, reverse=True)

    def size(self, part: Part) -> float:
        """Of all that there is."""
        return max((self._weight(take) for take in set(part.takes) if take >= 0), default=0.0)

    def _weight(self, amounts: int) -> float:
        total: float = sum(a * b for a, b in zip(self._packed.fields(amounts), self._scale, strict=True))
        return total

    def fit_largest_first(self) -> bool:
        """Whether they do when each goes where the least is left over."""
        guards, rooms = self._packed.guards, self.rooms
        lefts = [room.left for room in rooms]
        weights = [self._weight(left) for left in lefts]
        for part in self.parts:
            takes = [part.takes[room.sort] for room in rooms]
            lighter = {take: self._weight(take) for take in set(takes) if take >= 0}
            inside = [0] * len(lefts)
            for _ in range(part.wanted):
                best, best_left = -1, math.inf
                for at, take in enumerate(takes):
                    if take < 0 or (lefts[at] | guards) - take & guards != guards or inside[at] == part.most:
                        continue
                    left = weights[at] - lighter[take]
                    if left < best_left:
                        best, best_left = at, left
                if best < 0:
                    return False
                lefts[best] -= takes[best]
                weights[best] = best_left
                inside[best] += 1
        return True

    def may_be_placed(self) -> Work[bool]:
        """Part by part, each first where the least is left. Raises TooMany."""
        items = [part for part in self.parts for _ in range(part.wanted)]
        stack = [(0, tuple(room.left for room in self.rooms))]
        failed: set[object] = set()
        while stack:
            at, lefts = stack.pop()
            if at == len(items):
                return True
            key = at, tuple(sorted(zip(lefts, (room.sort for room in self.rooms), strict=True)))
            if key in failed:
                continue
            failed.add(key)
            if len(failed) > _PLACINGS_MAX:
                raise TooMany
            if len(failed) % 16 == 0:
                yield
            choices: dict[Room, int] = {}
            for number, room in enumerate(self.rooms):
                take = items[at].takes[room.sort]
                if take >= 0 and self._packed.covers(lefts[number], take):
                    choices.setdefault(Room(lefts[number] - take, room.sort), number)
            for room, number in sorted(choices.items(), key=lambda each: -self._weight(each[0].left)):
                stack.append((at + 1, (*lefts[:number], room.left, *lefts[number + 1 :])))
        return False
