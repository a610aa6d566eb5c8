"""Which devices each node sees, and which nodes are alike in that: their devices, and what of them is in use.

Nodes that differ in nothing but names are one *kind*; what is found out about one of them holds for all, and a cluster
that fills evenly has a few dozen. Most pools live on one node. The others are *shared*: `devicesights` follows who sees
what of them. Source: docs/spec/dra.md §4.2, §10.4.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler.api.resource_v1 import DeviceId, ResourceSlice
from scheduler.cache.devices.allocation_state import AllocationState, DeviceUse
from scheduler.cache.devices.memos import Limit, Memo
from scheduler.cache.devices.pools import Content, CounterUse, PoolKey, PoolState, PoolView, PublishedDevice, content_of
from scheduler.cache.devices.shared_pools import NO_SIGHT, PoolSlices, PoolVisibility, SharedPoolVisibility, is_ignored
from scheduler.core.changes import ChangeLog
from scheduler.core.nodeset import EMPTY, NodeSet

if TYPE_CHECKING:
    from scheduler.cache.nodes.nodes import Nodes

_EMPTY_KINDS_MAX: Final = 4096
_BACKLOG_MAX: Final = 8192
_ANSWERS_MAX: Final = 131_072
"""About kinds of nodes, in all; some 100 MB when twice as many are there (`memos`). Without it every demand that was ever seen
would be remembered of every kind."""


@dataclass(slots=True, eq=False)
class NodeKind:
    """Nodes with equal devices in equal use. `memo` is for what was found out, keyed by whom it was asked for."""

    key: tuple[Content, int, Hashable, int]
    visible_pools: PoolVisibility
    memo: Memo
    nodes: NodeSet = EMPTY
    free: int = 0
    """How many of the node's own devices nobody has as a whole."""


@dataclass(slots=True, eq=False)
class _Here:
    """What lives on one node."""

    views: tuple[PoolView, ...]
    content: Content
    numbers: dict[DeviceId, int]


_NOBODY_HERE: Final = _Here((), content_of(()), {})


class DeviceNodes(ChangeLog[int]):
    """The log has the slots whose kind changed. `catch_up` before reading."""

    def __init__(self, nodes: Nodes, use: AllocationState, *, partitionable: bool = True) -> None:
        super().__init__()
        self.placed = EMPTY
        """Nodes that are of a kind."""
        self.visibility: ChangeLog[int] = ChangeLog()
        """The slots whose nodes see other pools than before; what is in use of the pools is not noted."""
        self._nodes = nodes
        self._use = use
        self._partitionable = partitionable
        self._pools: dict[PoolKey, PoolSlices] = {}
        self._pool_of: dict[str, PoolKey] = {}
        self._local: dict[str, dict[PoolKey, PoolSlices]] = {}
        self._here: dict[int, _Here] = {}
        self._kind_at: dict[int, NodeKind] = {}
        self._sights = SharedPoolVisibility(nodes, partitionable=partitionable)
        self._kinds: dict[tuple[Content, int, Hashable, int], NodeKind] = {}
        self._answers = Limit(_ANSWERS_MAX)
        self._position = nodes.relabelled.position
        self._stale: set[str] = set()
        self._is_new = True

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def problem(self) -> str:
        """A slice whose node selector cannot be parsed: nothing can be allocated while it is there (§4.2)."""
        return self._sights.problem

    @property
    def shared_stamp(self) -> int:
        """Grows when a device of any shared pool is taken or given back."""
        return self._sights.stamp

    def kinds(self) -> Iterator[NodeKind]:
        """Those that any node is of."""
        return (kind for kind in self._kinds.values() if kind.nodes)

    def kind(self, slot: int) -> NodeKind | None:
        """The kind of this node."""
        return self._kind_at.get(slot)

    def kind_if(self, slot: int, use: DeviceUse) -> NodeKind | None:
        """Of which kind the node would be if its devices were in that use; shared pools keep the sight that they have."""
        here = self._here.get(slot)
        return None if here is None else self._kind_of(here, self._sights.of(slot), use)

    def is_shared(self, device: DeviceId) -> bool:
        """Whether other nodes may see it as well."""
        return PoolKey(device.driver, device.pool) in self._sights

    @property
    def has_shared(self) -> bool:
        """Whether there is any device of which that may be said."""
        return len(self._sights) > 0

    def pools(self, slot: int) -> tuple[PoolView, ...]:
        """All pools that the node sees, in the order in which they are tried."""
        here = self._here.get(slot, _NOBODY_HERE).views
        shared = self._sights.of(slot).views
        return tuple(sorted((*here, *shared), key=lambda view: view.order)) if shared else here

    def own_pools(self, slot: int) -> tuple[PoolView, ...]:
        """Those that live on the node."""
        return self._here.get(slot, _NOBODY_HERE).views

    def published(self, key: PoolKey) -> Iterable[ResourceSlice]:
        """All slices of a pool, of whatever generation."""
        pool = self._pools.get(key)
        return pool.slices.values() if pool is not None else ()

    def draws(self, key: PoolKey) -> CounterUse | None:
        """What is shared of a pool, and drawn by its devices; None if it is not there, or not all of it as it should be."""
        pool = self._pools.get(key)
        return pool.draws(partitionable=self._partitionable) if pool is not None else None

    # -- changing ------------------------------------------------------------------------------------------------------

    def set_slice(self, each: ResourceSlice) -> None:
        """A slice came or changed. Nothing is worked out before somebody asks."""
        key = PoolKey(each.spec.driver, each.spec.pool.name)
        if self._pool_of.get(each.key, key) != key:
            self.remove_slice(each.key)
        self._pool_of[each.key] = key
        pool = self._pools.setdefault(key, PoolSlices(key))
        pool.slices[each.key] = each
        self._settle(pool)

    def remove_slice(self, name: str) -> None:
        """A slice is gone."""
        key = self._pool_of.pop(name, None)
        if key is None:
            return
        pool = self._pools[key]
        del pool.slices[name]
        self._settle(pool)

    def _settle(self, pool: PoolSlices) -> None:
        """The pool has changed: where does it live, and who has to look again."""
        pool.forget()
        self._unlink(pool)
        if not pool.slices:
            del self._pools[pool.key]
            return
        pool.home = self._home(pool)
        if pool.home:
            self._local.setdefault(pool.home, {})[pool.key] = pool
            self._stale.add(pool.home)
        else:
            self._sights.put(pool)

    def _unlink(self, pool: PoolSlices) -> None:
        self._sights.drop(pool.key)
        here = self._local.get(pool.home)
        if here is not None and here.pop(pool.key, None) is not None:
            self._stale.add(pool.home)
            if not here:
                del self._local[pool.home]

    def _home(self, pool: PoolSlices) -> str:
        """A pool with counters is seen everywhere while something is wrong with it, because counters are (§4.2)."""
        counts = False
        home = ""
        for each in pool.slices.values():
            spec = each.spec
            if not spec.node_name or spec.per_device_node_selection or (home and home != spec.node_name):
                return ""
            home = spec.node_name
            counts = counts or bool(spec.shared_counters)
        if counts and self._partitionable:
            own = pool.view(self._at_home(pool), partitionable=self._partitionable)
            counters = tuple(name for name in sorted(pool.slices) if pool.slices[name].spec.shared_counters)
            others = pool.view(counters, partitionable=self._partitionable)
            if own is None or own.state is not PoolState.GOOD:
                return ""
            if others is not None and others.state is not PoolState.GOOD:
                return ""
        return home

    def _at_home(self, pool: PoolSlices) -> tuple[str, ...]:
        """The slices of a pool that its own node sees."""
        if self._partitionable:
            return tuple(sorted(pool.slices))
        seen = (name for name, each in pool.slices.items() if not is_ignored(each))
        return tuple(sorted(seen))

    # -- catching up ---------------------------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """How many nodes, pools or devices have changed that are not taken in yet."""
        return max(len(self._stale), self._sights.backlog, self._use.backlog)

    def keep_up(self) -> None:
        """Catch up if there is much. Where others allocate all devices nobody asks, and it would grow for ever."""
        if self.backlog > _BACKLOG_MAX:
            self.catch_up()

    def catch_up(self) -> None:
        """Take in what changed of nodes, slices and use. Two comparisons if nothing did; else what changed is looked at."""
        stale = self._relabelled()
        stale |= self._sights.catch_up(stale) | self._changed_at_home()
        for device in self._use.take_changed():
            self._used(device, stale)
        for slot in stale:
            self._place(slot)
        if self._sights.take_ended():  # a kind keeps all devices that it sees: thousands, of a large pool
            self._kinds = {
                key: kind
                for key, kind in self._kinds.items()
                if kind.visible_pools.count or kind.visible_pools is NO_SIGHT
            }
        if len(self._kinds) > _EMPTY_KINDS_MAX + 2 * len(self._kind_at):
            self._kinds = {key: kind for key, kind in self._kinds.items() if kind.nodes}

    def _relabelled(self) -> set[int]:
        """Slots whose node came, changed its labels, or went."""
        changed = self._nodes.relabelled
        if changed.position == self._position and not self._is_new:
            return set()
        slots = changed.changed_since(self._position) if not self._is_new else None
        self._position, self._is_new = changed.position, False
        stale = set(slots if slots is not None else range(self._nodes.capacity))
        for slot in stale:
            self._here.pop(slot, None)
        return stale

    def _changed_at_home(self) -> set[int]:
        """Slots whose own slices changed."""
        stale = set[int]()
        names, self._stale = self._stale, set()
        for name in names:
            there = self._nodes.present_slot(name)
            if there is not None:
                self._here.pop(there, None)
                stale.add(there)
        return stale

    def _used(self, device: DeviceId, stale: set[int]) -> None:
        pool = self._pools.get(PoolKey(device.driver, device.pool))
        if pool is None:
            return
        if pool.home:
            slot = self._nodes.present_slot(pool.home)
            if slot is not None:
                stale.add(slot)
            return
        self._sights.used(pool.key)

    def _place(self, slot: int) -> None:
        """Of which kind is the node now."""
        before = self._kind_at.get(slot)
        now = None
        if self._nodes.present >> slot & 1:
            here = self._here.get(slot)
            if here is None:
                here = self._here[slot] = self._look_here(self._nodes.name(slot))
            now = self._kind_of(here, self._sights.of(slot), self._use)
        if now is before:
            return
        if before is not None:
            before.nodes &= ~(1 << slot)
        if now is None:
            self._kind_at.pop(slot, None)
            self._here.pop(slot, None)
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

    def _kind_of(self, here: _Here, visible_pools: PoolVisibility, use: DeviceUse) -> NodeKind:
        used, shares = _use_of(here, use)
        key = (here.content, used, shares, id(visible_pools))
        kind = self._kinds.get(key)
        if kind is None or kind.visible_pools is not visible_pools:
            kind = self._kinds[key] = NodeKind(
                key, visible_pools, Memo(self._answers), free=len(here.numbers) - used.bit_count()
            )
        return kind

    def _look_here(self, name: str) -> _Here:
        pools = self._local.get(name)
        if not pools:
            return _NOBODY_HERE
        views = [
            view
            for pool in pools.values()
            if (view := pool.view(self._at_home(pool), partitionable=self._partitionable)) is not None
        ]
        views.sort(key=lambda view: view.order)
        devices = [each.id for view in views for each in view.devices]
        numbers = {device: number for number, device in enumerate(devices)}
        return _Here(tuple(views), content_of(tuple(view.content for view in views)), numbers)


def _use_of(here: _Here, use: DeviceUse) -> tuple[int, Hashable]:
    used = 0
    shares: list[tuple[int, tuple[tuple[str, int], ...]]] = []
    for device, number in here.numbers.items():
        if use.is_exclusive(device):
            used |= 1 << number
        if use.shares(device):
            shares.append((number, tuple(sorted(use.consumed(device).items()))))
    return used, tuple(shares)


def usable(device: PublishedDevice, slot: int) -> bool:
    """Whether the node may use a device that it sees."""
    return device.where is None or bool(device.where.nodes >> slot & 1)
