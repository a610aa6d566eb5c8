"""The devices of each node, and kinds of nodes with equal devices in equal use.

Nodes that differ only in names are one *kind*: a result for one of them holds for all, and an evenly filled cluster
has a few dozen kinds. Most pools belong to one node. The other pools are *shared*: `shared_pools` computes their
visibility. Source: docs/spec/dra.md §4.2, §10.4.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from scheduler.api.resource_v1 import DeviceId, ResourceSlice
from scheduler.cache.devices.allocation_state import AllocationState, DeviceUse
from scheduler.cache.devices.pools import (
    Content,
    CounterUse,
    Limit,
    Memo,
    PoolKey,
    PoolView,
    PublishedDevice,
    content_of,
)
from scheduler.cache.devices.shared_pools import NO_SHARED_POOLS, PoolSlices, PoolVisibility, SharedPoolVisibility
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.changes import ChangeLog
from scheduler.core.nodeset import EMPTY, NodeSet

_EMPTY_KINDS_MAX: Final = 4096
_REPLACED_MAX: Final = 64
"""A kind of devices that no node has any more is kept by at most this number of replaced nodes, and one in eight."""
_BACKLOG_MAX: Final = 8192
_ANSWERS_MAX: Final = 131_072
"""The total number of cached results about kinds of nodes; with twice as many, about 100 MB (`Limit`).

Without a limit, every demand would stay cached for every kind.
"""


@dataclass(slots=True, eq=False)
class NodeKind:
    """Nodes with equal devices in equal use. `memo` caches results, keyed by the caller."""

    key: tuple[Content, int, Hashable, int]
    visible_pools: PoolVisibility
    memo: Memo
    nodes: NodeSet = EMPTY
    free: int = 0
    """The number of the node's own devices that are not wholly allocated."""


@dataclass(slots=True, eq=False)
class _OwnPools:
    views: tuple[PoolView, ...]
    content: Content
    numbers: dict[DeviceId, int]


_NO_POOLS: Final = _OwnPools((), content_of(()), {})


class DeviceNodes(ChangeLog[int]):
    """The kinds of all nodes. The log contains the slots whose kind changed. Call `catch_up` before reading."""

    def __init__(self, nodes: Nodes, use: AllocationState, gates: frozenset[str]) -> None:
        super().__init__()
        self.placed = EMPTY
        """The nodes that have a kind."""
        self.visibility: ChangeLog[int] = ChangeLog()
        """The slots whose visible pools changed; changes of allocations are not recorded."""
        self._nodes = nodes
        self._use = use
        self._gates = gates
        self.pools_by_key: dict[PoolKey, PoolSlices] = {}
        self._pool_of: dict[str, PoolKey] = {}
        self._local: dict[str, dict[PoolKey, PoolSlices]] = {}
        self._own: dict[int, _OwnPools] = {}
        self._kind_at: dict[int, NodeKind] = {}
        self.shared = SharedPoolVisibility(nodes)
        self._kinds: dict[tuple[Content, int, Hashable, int], NodeKind] = {}
        self._answers = Limit(_ANSWERS_MAX)
        self._position = -1
        self._stale: set[str] = set()
        self._unplaced: set[int] = set()
        """The slots whose kind may have changed."""
        self._replaced = 0
        """The number of nodes whose devices have changed since the kinds without nodes were dropped."""

    # -- reading -------------------------------------------------------------------------------------------------------

    def kinds(self) -> Iterator[NodeKind]:
        """Return the kinds with at least one node."""
        return (kind for kind in self._kinds.values() if kind.nodes)

    def kind(self, slot: int) -> NodeKind | None:
        return self._kind_at.get(slot)

    def kind_if(self, slot: int, use: DeviceUse) -> NodeKind | None:
        """Return the node's kind in a hypothetical state of the devices that belong to it.

        Shared pools keep their current visibility.
        """
        own = self._own.get(slot)
        return None if own is None else self._kind_of(own, self.shared.of(slot), use)

    def is_shared(self, device: DeviceId) -> bool:
        """Return whether other nodes may see the device as well."""
        return PoolKey(device.driver, device.pool) in self.shared

    def pools(self, slot: int) -> tuple[PoolView, ...]:
        """Return all pools that the node sees, in the order in which they are tried."""
        own = self._own.get(slot, _NO_POOLS).views
        shared = self.shared.of(slot).views
        return tuple(sorted((*own, *shared), key=lambda view: view.order)) if shared else own

    def own_pools(self, slot: int) -> tuple[PoolView, ...]:
        """Return the pools that belong to the node."""
        return self._own.get(slot, _NO_POOLS).views

    def published(self, key: PoolKey) -> Iterable[ResourceSlice]:
        """Return all slices of a pool, of any generation."""
        pool = self.pools_by_key.get(key)
        return pool.slices.values() if pool is not None else ()

    def draws(self, key: PoolKey) -> CounterUse | None:
        """Return the shared capacities and counters of a pool and their use.

        Return None if the pool is missing, incomplete or invalid.
        """
        pool = self.pools_by_key.get(key)
        return pool.draws() if pool is not None else None

    def pool_of(self, name: str) -> tuple[PoolKey | None, ResourceSlice | None]:
        """Return the pool of a slice, and the slice that the pool has under this name."""
        key = self._pool_of.get(name)
        pool = self.pools_by_key.get(key) if key is not None else None
        return key, pool.slices.get(name) if pool is not None else None

    def entries(self, key: PoolKey, like: DeviceNodes) -> dict[str, object]:
        """Return what follows from the slices of a pool, for comparisons; of results only those that `like` has cached."""
        pool, other = self.pools_by_key.get(key), like.pools_by_key.get(key)
        if pool is None or other is None:
            return {}
        pool.wheres = other.wheres
        is_local = self._local.get(pool.home, {}).get(key) is pool
        fields = {"slices": set(pool.slices), "home node": pool.home, "at its node": is_local}
        return {**fields, "shared": key in self.shared, **pool.results(other)}

    def alone(self, key: PoolKey) -> DeviceNodes:
        """Return a new object with the slices of this pool."""
        alone = DeviceNodes(self._nodes, self._use, self._gates)
        for each in self.published(key):
            alone.set_slice(each)
        return alone

    def placement(self, slot: int) -> dict[str, object]:
        """Return the kind of a node, for comparisons."""
        kind, bit = self._kind_at.get(slot), 1 << slot
        is_placed = bool(self.placed & bit)
        return {
            "placed": is_placed,
            **(_shown(kind.key, kind.free, is_of_kind=bool(kind.nodes & bit)) if kind is not None else {}),
        }

    def placement_now(self, slot: int) -> dict[str, object]:
        """Return `placement` as it follows from the node's pools and their use."""
        if not self._nodes.present >> slot & 1:
            return {"placed": False}
        own = self._own_pools_of(slot)
        used, shares = _use_of(own, self._use)
        key = (own.content, used, shares, id(self.shared.of(slot)))
        return {"placed": True, **_shown(key, len(own.numbers) - used.bit_count(), is_of_kind=True)}

    # -- changing ------------------------------------------------------------------------------------------------------

    def set_slice(self, each: ResourceSlice) -> None:
        """Add or update a slice. Everything else is computed at the next read."""
        key = PoolKey(each.spec.driver, each.spec.pool.name)
        if self._pool_of.get(each.key, key) != key:
            self.remove_slice(each.key)
        self._pool_of[each.key] = key
        pool = self.pools_by_key.setdefault(key, PoolSlices(key, self._gates))
        pool.slices[each.key] = each
        self._settle(pool)

    def remove_slice(self, name: str) -> None:
        key = self._pool_of.pop(name, None)
        if key is None:
            return
        pool = self.pools_by_key[key]
        del pool.slices[name]
        self._settle(pool)

    def settle(self, key: PoolKey) -> None:
        """Compute again what follows from the slices of a pool, and from the pools of all nodes."""
        self._settle(self.pools_by_key[key])
        self._stale.update(self._nodes.name(slot) for slot in nodeset.each(self._nodes.present))

    def see_again(self, slot: int) -> None:
        """Compute again which shared pools the node sees."""
        for changed in self.shared.catch_up((slot,)):
            self._place(changed)

    def place_again(self, slot: int) -> None:
        """Compute the kind of a node again, in a new kind, whatever is wrong with the present one."""
        kind, bit = self._kind_at.pop(slot, None), 1 << slot
        self._kinds = {key: each for key, each in self._kinds.items() if each is not kind}
        for each in self.kinds():
            each.nodes &= ~bit
        self.placed &= ~bit
        if kind is not None:
            self._stale.update(self._nodes.name(other) for other in nodeset.each(kind.nodes & ~bit))
        self._own.pop(slot, None)
        self._place(slot)
        self.catch_up()

    def _settle(self, pool: PoolSlices) -> None:
        """Update the pool's home node and mark the nodes that are affected by its change."""
        pool.forget()
        self._unlink(pool)
        if not pool.slices:
            del self.pools_by_key[pool.key]
            return
        pool.home = self._home(pool)
        if pool.home:
            self._local.setdefault(pool.home, {})[pool.key] = pool
            self._stale.add(pool.home)
        else:
            self.shared.put(pool)

    def _unlink(self, pool: PoolSlices) -> None:
        self.shared.drop(pool.key)
        local_pools = self._local.get(pool.home)
        if local_pools is not None and local_pools.pop(pool.key, None) is not None:
            self._stale.add(pool.home)
            if not local_pools:
                del self._local[pool.home]

    def _home(self, pool: PoolSlices) -> str:
        """Return the node to which the pool belongs, or "" for a shared pool."""
        home = ""
        for each in pool.slices.values():
            spec = each.spec
            if not spec.node_name or spec.per_device_node_selection or (home and home != spec.node_name):
                return ""
            home = spec.node_name
        return home

    # -- catching up ---------------------------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """The number of changed nodes, pools or devices that are not processed yet."""
        return max(len(self._stale), self.shared.backlog, self._use.backlog)

    @property
    def behind(self) -> int:
        """The same, relabelled and unplaced nodes included."""
        return max(len(self._unplaced), self.backlog, self._nodes.relabelled.position - self._position)

    def keep_up(self) -> None:
        """Call `catch_up` if there is much to do, so that the backlog stays bounded even without reads."""
        if self.backlog > _BACKLOG_MAX:
            self.catch_up()

    def catch_up(self, most: int = sys.maxsize) -> None:
        """Process the changes of nodes, slices and allocations; of the nodes concerned, place at most this number.

        The cost is two comparisons, or that of the changed objects.
        """
        relabelled = self._relabelled()
        self._unplaced |= relabelled | self.shared.catch_up(relabelled) | self._changed_at_home()
        for device in self._use.take_changed():
            pool = self.pools_by_key.get(PoolKey(device.driver, device.pool))
            if pool is not None and not pool.home:
                self.shared.used(pool.key)
            elif pool is not None and (home := self._nodes.present_slot(pool.home)) is not None:
                self._unplaced.add(home)
        for _ in range(min(most, len(self._unplaced))):
            self._place(self._unplaced.pop())
        if self.shared.take_ended():  # a kind keeps all its visible devices alive, which may be thousands
            self._kinds = {
                key: kind
                for key, kind in self._kinds.items()
                if kind.visible_pools.count or kind.visible_pools is NO_SHARED_POOLS
            }
        if self._replaced > _REPLACED_MAX + len(self._kind_at) // 8:
            self._replaced = 0
            contents = {id(kind.key[0]) for kind in self._kind_at.values()}
            self._kinds = {key: kind for key, kind in self._kinds.items() if id(key[0]) in contents}
        if len(self._kinds) > _EMPTY_KINDS_MAX + 2 * len(self._kind_at):
            self._kinds = {key: kind for key, kind in self._kinds.items() if kind.nodes}

    def work_ahead(self, most: int) -> bool:
        """Process changes as `catch_up`, but place at most this number of nodes; return whether some are left.

        For idle time: a scheduler that has just started has all nodes before it, which take the first pod with devices
        60 µs each. Only the placing is bounded: which nodes see the changed shared pools is found at once, 4 µs for each
        node and all-nodes slice. Without devices there is nothing to do.
        """
        if not (self.pools_by_key and self.behind):
            return False
        self.catch_up(most)
        return bool(self._unplaced)

    def _relabelled(self) -> set[int]:
        """Return the slots whose node was added or removed, or changed its labels."""
        changed = self._nodes.relabelled
        if changed.position == self._position:
            return set()
        slots = changed.changed_since(self._position)
        self._position = changed.position
        stale = set(slots if slots is not None else range(self._nodes.capacity))
        for slot in stale:
            self._own.pop(slot, None)
        return stale

    def _changed_at_home(self) -> set[int]:
        """Return the slots whose own slices changed."""
        stale = set[int]()
        names, self._stale = self._stale, set()
        for name in names:
            there = self._nodes.present_slot(name)
            if there is not None:
                self._own.pop(there, None)
                stale.add(there)
        return stale

    def _place(self, slot: int) -> None:
        """Update the node's kind."""
        before = self._kind_at.get(slot)
        now = None
        if self._nodes.present >> slot & 1:
            own = self._own.get(slot)
            if own is None:
                own = self._own[slot] = self._own_pools_of(slot)
            now = self._kind_of(own, self.shared.of(slot), self._use)
        if now is before:
            return
        if before is not None:
            before.nodes &= ~(1 << slot)
        if now is None:
            self._kind_at.pop(slot, None)
            self._own.pop(slot, None)
            self.placed &= ~(1 << slot)
        else:
            now.nodes |= 1 << slot
            self.placed |= 1 << slot
            self._kind_at[slot] = now
        self.note(slot)
        if (
            before is None
            or now is None
            or before.key[0] is not now.key[0]
            or before.visible_pools is not now.visible_pools
        ):
            self.visibility.note(slot)
            self._replaced += 1

    def _kind_of(self, own: _OwnPools, visible_pools: PoolVisibility, use: DeviceUse) -> NodeKind:
        used, shares = _use_of(own, use)
        key = (own.content, used, shares, id(visible_pools))
        kind = self._kinds.get(key)
        if kind is None or kind.visible_pools is not visible_pools:
            kind = self._kinds[key] = NodeKind(
                key, visible_pools, Memo(self._answers), free=len(own.numbers) - used.bit_count()
            )
        return kind

    def _own_pools_of(self, slot: int) -> _OwnPools:
        pools = self._local.get(self._nodes.name(slot), {})
        if not pools:
            return _NO_POOLS
        seen = (pool.view(tuple(name for name, _ in pool.known_slices())) for pool in pools.values())
        views = sorted((view for view in seen if view is not None), key=lambda view: view.order)
        devices = [each.id for view in views for each in view.devices]
        numbers = {device: number for number, device in enumerate(devices)}
        return _OwnPools(tuple(views), content_of(tuple(view.content for view in views)), numbers)


def _shown(key: tuple[Content, int, Hashable, int], free: int, *, is_of_kind: bool) -> dict[str, object]:
    fields = {"devices": id(key[0]), "use": key[1:3], "shared pools": key[3]}
    return {**fields, "free devices": free, "node of its kind": is_of_kind}


def _use_of(own: _OwnPools, use: DeviceUse) -> tuple[int, Hashable]:
    used = 0
    shares: list[tuple[int, tuple[tuple[str, int], ...]]] = []
    for device, number in own.numbers.items():
        if use.is_exclusive(device):
            used |= 1 << number
        if use.shares(device):
            shares.append((number, tuple(sorted(use.consumed(device).items()))))
    return used, tuple(shares)


def usable(device: PublishedDevice, slot: int) -> bool:
    """Return whether the node may use a device that it sees."""
    return device.where is None or bool(device.where.nodes >> slot & 1)
