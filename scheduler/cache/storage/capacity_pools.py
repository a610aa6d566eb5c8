"""One CSIStorageCapacity object as a pool of storage, and which classes share their pools (docs/spec/volumes.md §12.1 B-1).

A driver publishes one object per class and segment. No object says whether two classes of the driver use the same
storage, such as one volume group. It is learned: if the capacity of one class falls by the volumes that were created
for another class on the same nodes, they share it. If it falls by less, they do not.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Final

from scheduler.api.quantity import Quantity
from scheduler.api.storage_v1 import CSIStorageCapacity
from scheduler.cache.nodes.node_groups import NodeGroup

LEARNED: Final = "learned"
ALL: Final = "all"
NONE: Final = "none"
"""The values of `storagePoolSharing`."""

_REMEMBERED_S: Final = 600.0
"""Older volumes are not evidence, because a driver publishes at least that often."""


_UNKNOWN: Final = 2**62
"""The capacity of a pool that only has a largest volume. Sums of sizes stay within int64."""
_NANO: Final = 10**9
_MOST: Final = 2**63 - 1


def uneven(request: Quantity) -> int | None:
    """Return a request in billionths if it is not a whole number of bytes within int64; None for other requests.

    Limits of pools are columns of whole bytes, which decide exactly for whole requests alone.
    """
    return request.nano if request.nano % _NANO or request.nano > _MOST * _NANO else None


class CapacityPool:
    """One capacity object, its nodes, and the volumes in flight."""

    __slots__ = ("_limit_nano", "booked", "capacity", "group", "in_flight", "key", "limit", "obj", "published")

    def __init__(self, obj: CSIStorageCapacity, group: NodeGroup) -> None:
        self.key = obj.key
        self.group = group
        self.booked = 0
        """Bytes in flight of this pool's own class."""
        self.in_flight = 0
        """`booked`, plus the bytes that are booked on pools with shared storage."""
        self.obj = obj
        limit, capacity = obj.limit, obj.capacity
        self._limit_nano = -_NANO if limit is None else limit.nano
        self.limit = min(self._limit_nano // _NANO, _MOST)
        """The largest volume in whole bytes; -1 for an object without any size."""
        self.capacity = _UNKNOWN if capacity is None else min(capacity.nano // _NANO, _UNKNOWN)
        self.published = capacity.value if capacity is not None else 0
        """The bytes of the object for scores: rounded up as upstream does, and 0 without a capacity."""

    @property
    def spare(self) -> int:
        """The bytes that are left, for a column: -1 for an overfull pool, whatever its excess."""
        return max(self.capacity - self.in_flight, -1)

    def holds(self, size: int, nano: int | None = None) -> bool:
        """Return whether the pool may hold a volume of this size, if nothing is in flight. `nano` is the size if `uneven`.

        Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go capacitySufficient
        """
        return size <= self.limit if nano is None else nano <= self._limit_nano

    def takes(self, size: int, *, before: int = 0, nano: int | None = None) -> bool:
        """Return whether a volume fits, given the volumes in flight and the `before` bytes of the same pod."""
        # An empty pool is compared with its largest volume only, as upstream does. Upstream knows nothing of volumes
        # in flight, so the published capacity matters once there are some.
        taken = self.in_flight + before
        return self.holds(size, nano) and (taken == 0 or taken + size <= self.capacity)


class SharedPools:
    """The classes with shared storage, and the recently created volumes. Only the scheduling loop uses it."""

    def __init__(self, provisioner_of: Callable[[str], str]) -> None:
        """Get the provisioner of a class from `provisioner_of`, "" for an unknown class."""
        self._provisioner_of = provisioner_of
        self.mode = LEARNED
        self._learned: set[frozenset[str]] = set()
        self._made: dict[str, deque[tuple[float, int]]] = {}
        """Key of the capacity object → time and size of the volumes that were created from it."""
        self._written_at: dict[str, float] = {}
        """Key of the capacity object → time of the last change of its capacity."""

    @property
    def is_any(self) -> bool:
        """Whether any two classes may share storage."""
        return self.mode == ALL or (self.mode == LEARNED and bool(self._learned))

    def shares(self, storage_class: str, other: str) -> bool:
        """Return whether two different classes share storage on the nodes of both."""
        if storage_class == other or self.mode == NONE:
            return False
        if self.mode == LEARNED:
            return frozenset((storage_class, other)) in self._learned
        # Two classes that are not known have the same empty provisioner, and nothing else in common.
        provisioner = self._provisioner_of(storage_class)
        return bool(provisioner) and provisioner == self._provisioner_of(other)

    def made(self, pool: CapacityPool, size: int, now: float) -> None:
        """Record that a volume was created from the pool."""
        made = self._made.setdefault(pool.key, deque())
        made.append((now, size))
        while now - made[0][0] > _REMEMBERED_S:
            made.popleft()

    def forget(self, key: str) -> None:
        """Drop the data of a capacity object that is gone."""
        self._made.pop(key, None)
        self._written_at.pop(key, None)

    def learn(
        self, old: CapacityPool, new: CapacityPool, other_pools: list[CapacityPool], *, now: float, grace_s: float
    ) -> bool:
        """Compare the change of a pool's capacity with the volumes created since its last change.

        `other_pools` are the pools of other classes on the same nodes. The object may or may not count a volume that
        was created at most `grace_s` before this change or before the last one. Then nothing is learned. Return
        whether anything was learned.
        """
        written_at = self._written_at.get(new.key, -math.inf)
        since = max(written_at - grace_s, now - _REMEMBERED_S)
        self._written_at[new.key] = now
        # A change to or from an unknown size says nothing about bytes.
        if old.obj.capacity is None or new.obj.capacity is None:
            return False
        driver = self._provisioner_of(new.obj.storage_class_name)
        own = self._sizes(new.key, since)
        others: dict[str, list[tuple[float, int]]] = {}
        for pool in other_pools:
            name = pool.obj.storage_class_name
            if driver and self._provisioner_of(name) == driver and (made := self._sizes(pool.key, since)):
                others.setdefault(name, []).extend(made)
        times = [at for made in (own, *others.values()) for at, _ in made]
        # A volume near the edge of the interval may be counted in this change, the one before, or the next. A wrong
        # conclusion would make two classes count each other's volumes, so such an interval proves nothing.
        if not others or min(times) <= written_at or now - max(times) < grace_s:
            return False
        given = {name: sum(size for _, size in made) for name, made in others.items()}
        fell = old.capacity - new.capacity - sum(size for _, size in own)  # more than by the class's own volumes
        pairs = {frozenset((new.obj.storage_class_name, name)) for name, size in given.items() if size}
        before = set(self._learned)
        # The fall beyond the class's own volumes is explained by the volumes of the other classes, or it is not. In
        # between, another cause is as likely, for instance a volume that was deleted.
        if fell >= sum(given.values()):
            self._learned |= pairs
        elif 2 * fell < min(given.values()):
            self._learned -= pairs
        return self._learned != before

    def _sizes(self, key: str, since: float) -> list[tuple[float, int]]:
        return [(at, size) for at, size in self._made.get(key, ()) if at > since]
