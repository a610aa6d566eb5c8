"""CSIStorageCapacity objects as columns: the storage that is left on each node (docs/spec/volumes.md §3.4, §12.1 B-1).

An object is a pool of storage for some nodes. `cache.capacity_reservations` reserves volumes in flight on pools. A
reservation makes its pool smaller, and the pools that share the same storage. A pool never looks larger than its
object says.

`CapacityCheck` computes for all nodes at once what the claims of one pod would take from the pools.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.api.storage_v1 import CSIStorageCapacity
from scheduler.cache.nodes.node_groups import NodeGroups, where_selector
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.capacity_pools import CapacityPool, SharedPools
from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, Mask, NodeSet


class ClassPools:
    """The pools of one class. A slot with several pools is checked pool by pool."""

    def __init__(self, nodes: Nodes, groups: NodeGroups) -> None:
        self._nodes = nodes
        self._groups = groups
        self.pools: dict[str, CapacityPool] = {}
        self._by_group: dict[int, list[CapacityPool]] = {}
        self._rebuild()
        self._position = groups.position

    # -- changing ------------------------------------------------------------------------------------------------------

    def put(self, pool: CapacityPool) -> None:
        """Add a pool, or replace the one with its key."""
        self.catch_up()
        old = self.pools.get(pool.key)
        # Drivers write their objects every minute, mostly with the same nodes. Then only the numbers of these nodes
        # change.
        if old is not None and old.group is pool.group:
            pool.booked, pool.in_flight = old.booked, old.in_flight
            self.pools[pool.key] = pool
            _swap(self._by_group[pool.group.number], old, pool)
            for slot in nodeset.each(pool.group.nodes):
                _swap(self._at[slot], old, pool)
                self._show(slot)
            return
        if old is not None:
            self.remove(old.key)
        self.pools[pool.key] = pool
        self._by_group.setdefault(pool.group.number, []).append(pool)
        for slot in nodeset.each(pool.group.nodes):
            self._enter(slot, pool)

    def remove(self, key: str) -> CapacityPool | None:
        """Remove the pool of an object that is gone."""
        self.catch_up()
        pool = self.pools.pop(key, None)
        if pool is None:
            return None
        self._by_group[pool.group.number].remove(pool)
        if not self._by_group[pool.group.number]:
            del self._by_group[pool.group.number]
        for slot in nodeset.each(pool.group.nodes):
            self._leave(slot, pool)
        return pool

    def set_in_flight(self, pool: CapacityPool, size: int) -> None:
        """Set the bytes in flight of the pool."""
        self.catch_up()
        pool.in_flight = size
        nodes = pool.group.nodes
        if nodes.bit_count() <= _FEW:
            for slot in nodeset.each(nodes):
                self._show(slot)
        else:
            mask = nodeset.to_mask(nodes, self._nodes.capacity)
            self.spare[mask] = pool.spare
            self.is_used[mask] = pool.in_flight > 0

    def catch_up(self) -> None:
        """Process nodes that were added, relabelled or removed."""
        self._groups.catch_up()
        if self._position == self._groups.position and len(self.limit) == self._nodes.capacity:
            return
        changes = self._groups.changed_since(self._position)
        self._position = self._groups.position
        # The log of node groups has a limited length, and the columns have the length of the node table. In both
        # cases the columns are built again from the pools.
        if changes is None or len(self.limit) != self._nodes.capacity:
            self._rebuild()
            return
        for group, slot in changes:
            for pool in self._by_group.get(group.number, ()):
                if not group.nodes >> slot & 1:
                    self._leave(slot, pool)
                elif pool not in self._at.get(slot, ()):
                    self._enter(slot, pool)

    # -- reading -------------------------------------------------------------------------------------------------------

    def at(self, slot: int) -> Sequence[CapacityPool]:
        """Return the pools of a node, sorted by key."""
        self.catch_up()
        return self._at.get(slot, ())

    def within(self, nodes: NodeSet, *, most: int | None) -> set[CapacityPool]:
        """Return the pools of these nodes, or `most` of them. O(pools) or O(nodes), whichever are fewer."""
        self.catch_up()
        found: set[CapacityPool] = set()
        # A class has a pool for each node with a local driver, and one or two for a shared one. The search takes the
        # shorter side.
        if len(self.pools) < nodes.bit_count():
            pools: Iterable[CapacityPool] = (pool for pool in self.pools.values() if pool.group.nodes & nodes)
        else:
            pools = (pool for slot in nodeset.each(nodes) for pool in self._at.get(slot, ()))
        for pool in pools:
            found.add(pool)
            if len(found) == most:
                break
        return found

    def holding(self, size: int, nano: int | None) -> Mask:
        """Return the slots with one pool that may hold a volume of this size. O(slots); each is tried if `uneven`."""
        if nano is None:
            return self.limit >= size
        mask = np.zeros(len(self.limit), dtype=np.bool_)
        mask[[slot for slot, pools in self._at.items() if len(pools) == 1 and pools[0].holds(size, nano)]] = True
        return mask

    def serves(self, pool: CapacityPool, nodes: NodeSet) -> bool:
        """Return whether the pool is one of the class and serves any of these nodes."""
        self.catch_up()
        return self.pools.get(pool.key) is pool and bool(pool.group.nodes & nodes)

    def _enter(self, slot: int, pool: CapacityPool) -> None:
        bisect.insort(self._at.setdefault(slot, []), pool, key=attrgetter("key"))
        self._show(slot)

    def _leave(self, slot: int, pool: CapacityPool) -> None:
        pools = self._at.get(slot)
        if pools is not None and pool in pools:
            pools.remove(pool)
            if not pools:
                del self._at[slot]
            self._show(slot)

    def _show(self, slot: int) -> None:
        pools = self._at.get(slot)
        bit = 1 << slot
        # The columns have one number per node, which cannot describe several pools. These nodes are checked pool by
        # pool; they are few in practice.
        if pools is not None and len(pools) > 1:
            self.crowded |= bit
            return
        self.crowded &= ~bit
        if pools is None:
            self.limit[slot] = -1
            return
        pool = pools[0]
        self.limit[slot] = pool.limit
        self.spare[slot] = pool.spare
        self.is_used[slot] = pool.in_flight > 0
        self.published[slot] = pool.published

    def entries(self, slot: int) -> dict[str, object]:
        """Return what the columns hold for a node, for comparisons."""
        # Of a node with several pools the columns hold nothing: the filter reads its pools one by one.
        pools = self._at.get(slot, [])
        fields = {"several pools": self.crowded >> slot & 1, "pools": [pool.key for pool in pools]}
        if not pools or len(pools) > 1:
            return fields if pools else {**fields, "largest volume": self.limit.item(slot)}
        numbers = (self.limit.item(slot), self.spare.item(slot), self.is_used.item(slot), self.published.item(slot))
        return {**fields, **_shown(*numbers)}

    def expected(self, slot: int) -> dict[str, object]:
        """Return `entries` as they follow from the pools. O(pools of the class at the node's groups)."""
        # From the groups of the node and not from `_at`, which may be what is wrong.
        numbers = (group.number for group in self._groups.of(slot))
        pools = sorted((pool for number in numbers for pool in self._by_group.get(number, ())), key=attrgetter("key"))
        fields = {"several pools": int(len(pools) > 1), "pools": [pool.key for pool in pools]}
        if not pools or len(pools) > 1:
            return fields if pools else {**fields, "largest volume": -1}
        pool = pools[0]
        return {**fields, **_shown(pool.limit, pool.spare, pool.in_flight > 0, pool.published)}

    def rebuild(self) -> None:
        """Compute the columns again from the pools."""
        # Both indexes come from the pools, so that a fault in one cannot survive in the other.
        self._by_group = {}
        for pool in self.pools.values():
            self._by_group.setdefault(pool.group.number, []).append(pool)
        self._rebuild()

    def _rebuild(self) -> None:
        capacity = self._nodes.capacity
        self.limit: npt.NDArray[np.int64] = np.full(capacity, -1, dtype=np.int64)
        self.spare: npt.NDArray[np.int64] = np.zeros(capacity, dtype=np.int64)
        self.is_used = np.zeros(capacity, dtype=np.bool_)
        self.published: npt.NDArray[np.int64] = np.zeros(capacity, dtype=np.int64)
        self.crowded: NodeSet = EMPTY
        self._at: dict[int, list[CapacityPool]] = {}
        # By key, as `_enter` inserts them, so that a rebuilt index equals one that was maintained.
        for _, pool in sorted(self.pools.items()):
            for slot in nodeset.each(pool.group.nodes):
                self._at.setdefault(slot, []).append(pool)
        for slot in self._at:
            self._show(slot)


_FEW: Final = 16


def _shown(limit: int, spare: int, is_used: bool, published: int) -> dict[str, object]:
    return {"largest volume": limit, "bytes left": spare, "in use": is_used, "bytes published": published}


def _swap(pools: list[CapacityPool], old: CapacityPool, new: CapacityPool) -> None:
    pools[pools.index(old)] = new


class Capacities:
    """The pools of all classes. Changes of a class's objects go through `ClassPools`.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go hasEnoughCapacity, capacitySufficient
    """

    def __init__(self, nodes: Nodes, groups: NodeGroups, sharing: SharedPools) -> None:
        self._nodes = nodes
        self._groups = groups
        self.sharing = sharing
        self._classes: dict[str, ClassPools] = {}
        self.objects: dict[str, CapacityPool] = {}
        self.segments: dict[int, dict[str, CapacityPool]] = {}
        """Number of the node group → the pools of all classes on exactly these nodes, by key."""
        self.is_served = True
        """Whether the API server has capacity objects; without them, no pod is rejected for missing storage (§8 D5)."""

    def __len__(self) -> int:
        return len(self.objects)

    def __iter__(self) -> Iterator[CapacityPool]:
        return iter(self.objects.values())

    def of(self, storage_class: str) -> ClassPools | None:
        return self._classes.get(storage_class)

    def pool(self, key: str) -> CapacityPool | None:
        return self.objects.get(key)

    def put(self, obj: CSIStorageCapacity) -> CapacityPool:
        """Add or update an object. Its class is immutable; an object with a different class is a new pool."""
        old = self.objects.get(obj.key)
        if old is not None and old.obj.storage_class_name != obj.storage_class_name:
            self.remove(obj.key)
            old = None
        stays = old is not None and old.obj.node_topology == obj.node_topology
        group = old.group if old is not None and stays else self._groups.acquire(where_selector(obj.node_topology))
        pool = CapacityPool(obj, group)
        self.objects[obj.key] = pool
        pools = self._classes.get(obj.storage_class_name)
        if pools is None:
            pools = self._classes[obj.storage_class_name] = ClassPools(self._nodes, self._groups)
        pools.put(pool)
        if old is not None and not stays:
            self._leave_segment(old)
            self._groups.release(old.group)
        self.segments.setdefault(group.number, {})[pool.key] = pool
        self._count(pool)
        return pool

    def remove(self, key: str) -> CapacityPool | None:
        """Remove an object that is gone; return its pool, if there was one."""
        pool = self.objects.pop(key, None)
        if pool is None:
            return None
        storage_class = pool.obj.storage_class_name
        pools = self._classes[storage_class]
        pools.remove(key)
        if not pools.pools:
            del self._classes[storage_class]
        self._leave_segment(pool)
        self._groups.release(pool.group)
        return pool

    # -- what is in flight ---------------------------------------------------------------------------------------------

    def book(self, pool: CapacityPool, size: int) -> None:
        """Add bytes in flight to the pool and to the pools with shared storage; `size` may be negative."""
        # `booked` belongs to the pool's own class, `in_flight` is derived from all classes on the same storage. Only
        # the first is changed here, so the second can be recomputed at any time.
        pool.booked += size
        for each in self.on_storage_of(pool):
            self._count(each)

    def sharing_with(self, pool: CapacityPool) -> list[CapacityPool]:
        """Return the pools of other classes on the same nodes with shared storage. O(classes on these nodes)."""
        if not self.sharing.is_any:
            return []
        name = pool.obj.storage_class_name
        pools = self.segments.get(pool.group.number, {})
        return [other for other in pools.values() if self.sharing.shares(name, other.obj.storage_class_name)]

    def on_storage_of(self, pool: CapacityPool) -> list[CapacityPool]:
        """Return the pool and those with shared storage."""
        return [pool, *self.sharing_with(pool)]

    def other_classes(self, pool: CapacityPool) -> list[CapacityPool]:
        """Return the pools of all other classes on the same nodes. O(classes on these nodes)."""
        pools = self.segments.get(pool.group.number, {})
        return [other for other in pools.values() if other.obj.storage_class_name != pool.obj.storage_class_name]

    def sharing_changed(self) -> set[str]:
        """Count every pool again after a change of shared storage; return the classes that have more storage now.

        O(pools).
        """
        grown = set()
        for pool in self.objects.values():
            before = pool.in_flight
            self._count(pool)
            if pool.in_flight < before:
                grown.add(pool.obj.storage_class_name)
        return grown

    def recount(self, booked: Mapping[str, int]) -> None:
        """Set the bytes in flight of all pools to these sums by key. O(pools)."""
        for pool in self.objects.values():
            pool.booked = booked.get(pool.key, 0)
        self.sharing_changed()

    def total(self, pool: CapacityPool, booked: Mapping[str, int]) -> int:
        """Return the bytes in flight of a pool and of those with shared storage."""
        return sum(booked.get(each.key, 0) for each in self.on_storage_of(pool))

    def _count(self, pool: CapacityPool) -> None:
        size = sum(each.booked for each in self.on_storage_of(pool))
        pools = self._classes.get(pool.obj.storage_class_name)
        if pools is not None and size != pool.in_flight:
            pools.set_in_flight(pool, size)

    def _leave_segment(self, pool: CapacityPool) -> None:
        pools = self.segments[pool.group.number]
        del pools[pool.key]
        if not pools:
            del self.segments[pool.group.number]
        # What was booked on this pool no longer counts against the pools that shared its storage.
        for other in self.sharing_with(pool):
            self._count(other)


_MOST_STEPS: Final = 2000
"""Steps of the search for pools for all claims of a pod. With three pools it tries all placements of seven claims."""


VolumeSize: TypeAlias = tuple[int, int | None]
"""The bytes of a volume, and its size in billionths if it is `uneven`."""


class CapacityCheck:
    """The check for one class. With `together`, claims add up; without, each claim is only compared with the limit.

    Nothing is reserved permanently; `cache.capacity_reservations` does that once a node is chosen.
    """

    def __init__(self, pools: ClassPools, *, together: bool) -> None:
        self.pools = pools
        self._together = together
        self.drawn: npt.NDArray[np.int64] | None = None
        self.sizes: dict[int, list[VolumeSize]] = {}
        self.taken_from: dict[int, list[CapacityPool]] = {}
        """Slot → the pools of the claims with these sizes, in the order of the calls of `at`."""
        self.sums: dict[int, Counter[CapacityPool]] = {}
        """Slot → the bytes that these claims take from each pool."""
        self.sharing: list[CapacityCheck] = []

    def share(self, other: CapacityCheck) -> None:
        """Let both checks take from the same storage."""
        self.sharing.append(other)
        other.sharing.append(self)

    def next(self, size: int, nodes: NodeSet, *, nano: int | None = None) -> NodeSet:
        """Return the nodes that take one more volume of `size` bytes. `nano` is its size in billionths if `uneven`.

        O(nodes / 64), more where a node has several pools, and for an uneven size.
        """
        pools = self.pools
        # A claim of another class of the same pod may take from a node's other pools. So a node that is crowded for
        # any of the pod's classes is checked one by one.
        crowded = pools.crowded
        for other in self.sharing:
            crowded |= other.pools.crowded
        simple = nodes & ~crowded
        takes = EMPTY
        if simple:
            fits = pools.holding(size, nano)
            if self._together:
                # The first volume of a pod on an untouched pool may exceed the published capacity, as upstream
                # permits. The second one may not: `is_used | drawn > 0`.
                drawn = self._drawn_in_all()
                if drawn is None:
                    fits &= (pools.spare >= size) | ~pools.is_used
                else:
                    fits &= (pools.spare - drawn >= size) | ~(pools.is_used | (drawn > 0))
            takes = nodeset.from_mask(fits) & simple
            if self._together and takes:
                if self.drawn is None:
                    self.drawn = np.zeros(len(pools.limit), dtype=np.int64)
                self.drawn[nodeset.to_mask(takes, len(pools.limit))] += size
        for slot in nodeset.each(nodes & crowded):
            if self.at(slot, size, nano=nano):
                takes |= 1 << slot
        return takes

    def at(self, slot: int, size: int, *, nano: int | None = None) -> bool:
        """Return whether a node takes one more volume, and add its pool to `taken_from`.

        That is the pool with most storage left, if possible.
        """
        sizes, taken_from = self.sizes.setdefault(slot, []), self.taken_from.setdefault(slot, [])
        best: CapacityPool | None = None
        most = -1
        # The pool with most storage left is a good guess that is right for almost all pods. Only if it fails are all
        # volumes of the pod placed again, which is a bin-packing problem.
        for pool in self.pools.at(slot):
            before = self._before(slot, pool)
            takes = pool.takes(size, before=before, nano=nano) if self._together else pool.holds(size, nano)
            remaining = pool.capacity - pool.in_flight - before
            if takes and (best is None or remaining > most):
                best, most = pool, remaining
        if best is not None:
            taken_from.append(best)
            self.sums.setdefault(slot, Counter())[best] += size
        elif not self._together or not sizes or not self._place_all_again(slot, [*sizes, (size, nano)]):
            return False
        sizes.append((size, nano))
        return True

    def _drawn_in_all(self) -> npt.NDArray[np.int64] | None:
        total = self.drawn
        for other in self.sharing:
            if other.drawn is not None:
                total = other.drawn if total is None else total + other.drawn
        return total

    def _before(self, slot: int, pool: CapacityPool) -> int:
        """Return the bytes that claims of the pod take from the storage of this pool."""
        total = 0
        for drawing in (self, *self.sharing):
            taken = list(drawing.sums.get(slot, {}).items())
            if drawing.drawn is not None:  # by `next`, before several pools of the node were known
                taken += [(other, int(drawing.drawn[slot])) for other in drawing.pools.at(slot)[:1]]
            shares = drawing is not self
            total += sum(size for other, size in taken if other is pool or (shares and other.group is pool.group))
        return total

    def _place_all_again(self, slot: int, sizes: list[VolumeSize]) -> bool:
        """Place all volumes again, the largest first, because taking the pool with most storage left did not place all."""
        before, sums = self.taken_from.pop(slot), self.sums.pop(slot, Counter())
        pools = list(self.pools.at(slot))
        drawn = [self._before(slot, pool) for pool in pools]
        # The largest first: a volume that fits few pools is placed before the small ones have used them up.
        order = sorted(range(len(sizes)), key=lambda at: -sizes[at][0])
        found = _placement(pools, drawn, [sizes[at] for at in order])
        if found is None:
            self.taken_from[slot], self.sums[slot] = before, sums
            return False
        placed = dict(zip(order, found))
        self.taken_from[slot] = [pools[placed[at]] for at in range(len(sizes))]
        sums = self.sums[slot] = Counter()
        for pool, (size, _) in zip(self.taken_from[slot], sizes):
            sums[pool] += size
        return True


def _placement(pools: list[CapacityPool], drawn: list[int], sizes: list[VolumeSize]) -> list[int] | None:
    """Return the number of the pool of each volume, of volumes sorted by size, the largest first.

    A depth-first search; None if there is no placement, or if none was found within the limit of steps.
    """
    placed: list[int] = []
    steps = 0

    def place() -> bool:
        nonlocal steps
        at = len(placed)
        if at == len(sizes):
            return True
        # Equal volumes are interchangeable. Without this cut the search would try every permutation of them.
        is_same = at > 0 and sizes[at - 1] == sizes[at]
        for number in range(placed[-1] if is_same else 0, len(pools)):
            steps += 1
            # A pod with many volumes on a node with many pools could take seconds. Refusing the node is safe: the pod
            # waits, and nothing is promised twice.
            if steps > _MOST_STEPS:
                return False
            size, nano = sizes[at]
            if pools[number].takes(size, before=drawn[number], nano=nano):
                drawn[number] += size
                placed.append(number)
                if place():
                    return True
                placed.pop()
                drawn[number] -= size
        return False

    return placed if place() else None
