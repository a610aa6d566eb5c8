"""Which storage classes draw from the same room (docs/spec/volumes.md §12.1 B-1).

A driver publishes one CSIStorageCapacity per class and segment, and no object says whether two classes of the driver use
one volume group or two. It is learned from what the driver publishes: when the room of one class falls by the volumes
that were made for another class on the same nodes, the two share it. When it falls by less, they do not.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from scheduler.cache.nodegroups import NodeGroup
from scheduler.core.storage import CSIStorageCapacity

LEARNED: Final = "learned"
ALL: Final = "all"
NONE: Final = "none"
"""The values of `storagePoolSharing`."""

_REMEMBERED_S: Final = 600.0
"""Volumes that are older prove nothing: a driver publishes at least that often."""


_UNTOLD: Final = 2**62
"""Room of a pool that only tells its largest volume. Sums of sizes stay within int64."""


class Pool:
    """One capacity object, the nodes that can draw from it, and what is in flight."""

    __slots__ = ("booked", "group", "in_flight", "key", "limit", "obj", "room")

    def __init__(self, obj: CSIStorageCapacity, group: NodeGroup) -> None:
        self.key = obj.key
        self.group = group
        self.booked = 0
        """Bytes in flight of this pool's own class."""
        self.in_flight = 0
        """`booked`, and what is booked on the pools that share its room."""
        self.obj = obj
        limit, capacity = obj.limit, obj.capacity
        self.limit = -1 if limit is None else limit.value
        """The largest volume; -1 for an object that tells nothing."""
        self.room = _UNTOLD if capacity is None else min(capacity.value, _UNTOLD)

    @property
    def spare(self) -> int:
        """What is left, for a column: a pool that is more than full is just full, however much was asked of it."""
        return max(self.room - self.in_flight, -1)

    def takes(self, size: int, *, before: int = 0) -> bool:
        """Whether a volume fits behind what is in flight and the `before` bytes of the same pod."""
        taken = self.in_flight + before
        return size <= self.limit and (taken == 0 or taken + size <= self.room)


class SharedPools:
    """The classes that share rooms, and the volumes that were made lately. Single owner: the scheduling loop."""

    def __init__(self, provisioner_of: Callable[[str], str] = lambda _: "") -> None:
        """`provisioner_of` returns the provisioner of a class by name, "" for a class that is not known."""
        self._provisioner_of = provisioner_of
        self.mode = LEARNED
        self._learned: set[frozenset[str]] = set()
        self._made: dict[str, deque[tuple[float, int]]] = {}
        """Key of the capacity object → when volumes of its class were made from it, and their sizes."""
        self._written_at: dict[str, float] = {}
        """Key of the capacity object → when its room changed last."""

    @property
    def is_any(self) -> bool:
        """Whether any two classes may share."""
        return self.mode == ALL or (self.mode == LEARNED and bool(self._learned))

    def shares(self, storage_class: str, other: str) -> bool:
        """Return whether two different classes draw from one room on the nodes that both serve."""
        if storage_class == other or self.mode == NONE:
            return False
        if self.mode == LEARNED:
            return frozenset((storage_class, other)) in self._learned
        provisioner = self._provisioner_of(storage_class)
        return bool(provisioner) and provisioner == self._provisioner_of(other)

    def made(self, pool: Pool, size: int, now: float) -> None:
        """Remember that a volume was made from the pool."""
        made = self._made.setdefault(pool.key, deque())
        made.append((now, size))
        while now - made[0][0] > _REMEMBERED_S:
            made.popleft()

    def forget(self, key: str) -> None:
        """The capacity object is gone."""
        self._made.pop(key, None)
        self._written_at.pop(key, None)

    def learn(self, old: Pool, new: Pool, beside: list[Pool], *, now: float, grace_s: float) -> bool:
        """Compare how far a pool's room fell with the volumes made since it changed last; return whether that taught us.

        `beside` are the pools of other classes on the same nodes. A volume that came at most `grace_s` before this write,
        or before the last one, may or may not be counted there; then nothing is learned.
        """
        written_at = self._written_at.get(new.key, -math.inf)
        since = max(written_at - grace_s, now - _REMEMBERED_S)
        self._written_at[new.key] = now
        if old.obj.capacity is None or new.obj.capacity is None:
            return False
        driver = self._provisioner_of(new.obj.storage_class_name)
        own = self._sizes(new.key, since)
        others: dict[str, list[tuple[float, int]]] = {}
        for pool in beside:
            name = pool.obj.storage_class_name
            if driver and self._provisioner_of(name) == driver and (made := self._sizes(pool.key, since)):
                others.setdefault(name, []).extend(made)
        times = [at for made in (own, *others.values()) for at, _ in made]
        if not others or min(times) <= written_at or now - max(times) < grace_s:
            return False
        given = {name: sum(size for _, size in made) for name, made in others.items()}
        return self._conclude(new.obj.storage_class_name, old.room - new.room - sum(size for _, size in own), given)

    def _conclude(self, storage_class: str, fell: int, given: Mapping[str, int]) -> bool:
        """By `fell` bytes more than its own volumes did the class's room shrink; other classes were given volumes."""
        pairs = {frozenset((storage_class, name)) for name, size in given.items() if size}
        before = set(self._learned)
        if fell >= sum(given.values()):
            self._learned |= pairs
        elif 2 * fell < min(given.values()):
            self._learned -= pairs
        return self._learned != before

    def _sizes(self, key: str, since: float) -> list[tuple[float, int]]:
        return [(at, size) for at, size in self._made.get(key, ()) if at > since]
