"""Capacity objects by class, as columns: how much each node can still be given (docs/spec/volumes.md §3.4, §12.1 B-1).

An object is a pool of room that some nodes can draw from. `cache.ledger` books volumes in flight on pools; a booking only
makes a pool smaller, and the pools that share its room (`cache.sharedpools`). A pool never looks larger than its object says.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from scheduler.cache.nodegroups import NodeGroups, where_selector
from scheduler.cache.sharedpools import Pool, SharedPools
from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.storage import CSIStorageCapacity

if TYPE_CHECKING:
    from scheduler.cache.nodes import Nodes


class ClassPools:
    """The pools of one class. A slot that several pools serve is judged pool by pool."""

    def __init__(self, nodes: Nodes, groups: NodeGroups) -> None:
        self._nodes = nodes
        self._groups = groups
        self.pools: dict[str, Pool] = {}
        self._at: dict[int, list[Pool]] = {}
        self._by_group: dict[int, list[Pool]] = {}
        self.limit: npt.NDArray[np.int64] = np.full(nodes.capacity, -1, dtype=np.int64)
        self.spare: npt.NDArray[np.int64] = np.zeros(nodes.capacity, dtype=np.int64)
        self.is_used = np.zeros(nodes.capacity, dtype=np.bool_)
        self.crowded: NodeSet = EMPTY
        self._position = groups.position

    # -- changing ------------------------------------------------------------------------------------------------------

    def put(self, pool: Pool) -> None:
        """A pool came, or replaces the one of its key."""
        self.catch_up()
        old = self.pools.get(pool.key)
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

    def remove(self, key: str) -> Pool | None:
        """The pool is gone."""
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

    def set_in_flight(self, pool: Pool, size: int) -> None:
        """Set how many bytes are in flight from the pool."""
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
        """Follow nodes that came, changed their labels or went."""
        self._groups.catch_up()
        if self._position == self._groups.position and len(self.limit) == self._nodes.capacity:
            return
        changes = self._groups.changed_since(self._position)
        self._position = self._groups.position
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

    def at(self, slot: int) -> Sequence[Pool]:
        """The pools that a node can draw from, by key."""
        self.catch_up()
        return self._at.get(slot, ())

    # -- inside --------------------------------------------------------------------------------------------------------

    def _enter(self, slot: int, pool: Pool) -> None:
        bisect.insort(self._at.setdefault(slot, []), pool, key=_key)
        self._show(slot)

    def _leave(self, slot: int, pool: Pool) -> None:
        here = self._at.get(slot)
        if here is not None and pool in here:
            here.remove(pool)
            if not here:
                del self._at[slot]
            self._show(slot)

    def _show(self, slot: int) -> None:
        here = self._at.get(slot)
        bit = 1 << slot
        if here is not None and len(here) > 1:
            self.crowded |= bit
            return
        self.crowded &= ~bit
        if here is None:
            self.limit[slot] = -1
            return
        pool = here[0]
        self.limit[slot] = pool.limit
        self.spare[slot] = pool.spare
        self.is_used[slot] = pool.in_flight > 0

    def _rebuild(self) -> None:
        capacity = self._nodes.capacity
        self.limit = np.full(capacity, -1, dtype=np.int64)
        self.spare = np.zeros(capacity, dtype=np.int64)
        self.is_used = np.zeros(capacity, dtype=np.bool_)
        self.crowded = EMPTY
        self._at = {}
        for _, pool in sorted(self.pools.items()):
            for slot in nodeset.each(pool.group.nodes):
                self._at.setdefault(slot, []).append(pool)
        for slot in self._at:
            self._show(slot)


_FEW: Final = 16


def _key(pool: Pool) -> str:
    return pool.key


def _swap(pools: list[Pool], old: Pool, new: Pool) -> None:
    pools[pools.index(old)] = new


class Capacities:
    """All classes. What follows the objects of a class is told through `ClassPools`."""

    def __init__(self, nodes: Nodes, groups: NodeGroups, sharing: SharedPools | None = None) -> None:
        self._nodes = nodes
        self._groups = groups
        self.sharing = sharing if sharing is not None else SharedPools()
        self._classes: dict[str, ClassPools] = {}
        self._objects: dict[str, Pool] = {}
        self._segments: dict[int, dict[str, Pool]] = {}
        """Number of the node group → the pools of all classes that serve exactly these nodes, by key."""
        self.is_served = True
        """Whether the server has capacity objects at all; without, nobody is refused for want of space (§8 D5)."""

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Pool]:
        return iter(self._objects.values())

    def of(self, storage_class: str) -> ClassPools | None:
        """The pools of a class; None if it has none."""
        return self._classes.get(storage_class)

    def get(self, key: str) -> CSIStorageCapacity | None:
        """The object as the watch has it."""
        pool = self._objects.get(key)
        return pool.obj if pool is not None else None

    def pool(self, key: str) -> Pool | None:
        """The pool of an object."""
        return self._objects.get(key)

    def put(self, obj: CSIStorageCapacity) -> Pool:
        """An object came or changed. Its class never changes; if it does, it is another pool."""
        old = self._objects.get(obj.key)
        if old is not None and old.obj.storage_class_name != obj.storage_class_name:
            self.remove(obj.key)
            old = None
        stays = old is not None and old.obj.node_topology == obj.node_topology
        group = old.group if old is not None and stays else self._groups.acquire(where_selector(obj.node_topology))
        pool = Pool(obj, group)
        self._objects[obj.key] = pool
        pools = self._classes.get(obj.storage_class_name)
        if pools is None:
            pools = self._classes[obj.storage_class_name] = ClassPools(self._nodes, self._groups)
        pools.put(pool)
        if old is not None and not stays:
            self._leave_segment(old)
            self._groups.release(old.group)
        self._segments.setdefault(group.number, {})[pool.key] = pool
        self._count(pool)
        return pool

    def remove(self, key: str) -> Pool | None:
        """An object is gone; its pool, if there was one."""
        pool = self._objects.pop(key, None)
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

    def book(self, pool: Pool, size: int) -> None:
        """Count so many bytes more, or less, as in flight from the pool and from those that share its room."""
        pool.booked += size
        self._count(pool)
        for other in self.sharing_with(pool):
            self._count(other)

    def sharing_with(self, pool: Pool) -> list[Pool]:
        """The pools of other classes on the same nodes that draw from the same room. O(classes on these nodes)."""
        if not self.sharing.is_any:
            return []
        name = pool.obj.storage_class_name
        here = self._segments.get(pool.group.number, {})
        return [other for other in here.values() if self.sharing.shares(name, other.obj.storage_class_name)]

    def beside(self, pool: Pool) -> list[Pool]:
        """The pools of all other classes on the same nodes. O(classes on these nodes)."""
        here = self._segments.get(pool.group.number, {})
        return [other for other in here.values() if other.obj.storage_class_name != pool.obj.storage_class_name]

    def sharing_changed(self) -> set[str]:
        """Count every pool again, and return the classes that have more room now. O(pools).

        For when classes are known to share rooms, or not to, that were not before.
        """
        grown = set()
        for pool in self._objects.values():
            before = pool.in_flight
            self._count(pool)
            if pool.in_flight < before:
                grown.add(pool.obj.storage_class_name)
        return grown

    def _count(self, pool: Pool) -> None:
        size = pool.booked + sum(other.booked for other in self.sharing_with(pool))
        pools = self._classes.get(pool.obj.storage_class_name)
        if pools is not None and size != pool.in_flight:
            pools.set_in_flight(pool, size)

    def _leave_segment(self, pool: Pool) -> None:
        here = self._segments[pool.group.number]
        del here[pool.key]
        if not here:
            del self._segments[pool.group.number]
        for other in self.sharing_with(pool):
            self._count(other)
