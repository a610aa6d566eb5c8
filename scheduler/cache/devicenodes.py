"""Which devices each node sees, and which nodes are alike in that: their devices, and what of them is in use.

Nodes that differ in nothing but names are one *kind*; what is found out about one of them holds for all, and a cluster
that fills evenly has a few dozen. Most pools live on one node. The others are *shared*; nodes that see the same parts of
the same shared pools have one `Sight` of them, whose stamp grows when any device of these is taken or given back.
Source: docs/spec/dra.md §4.2, §10.4.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from scheduler.cache.devicepools import Content, PoolKey, PoolState, PoolView, Published, content_of, view_of
from scheduler.cache.deviceuse import DeviceUse, Use
from scheduler.cache.followed import Followed
from scheduler.cache.selecting import matching_selector
from scheduler.core import nodeset
from scheduler.core.devices import Device, DeviceId, ResourceSlice
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.placement import selector_problem
from scheduler.core.pod import NodeSelector

if TYPE_CHECKING:
    from scheduler.cache.nodes import Nodes

_LOG_MAX: Final = 65_536
_EMPTY_KINDS_MAX: Final = 4096


@dataclass(slots=True, eq=False)
class Sight:
    """The shared pools that some nodes see."""

    views: tuple[PoolView, ...] = ()
    stamp: int = 0


_NOTHING: Final = Sight()
_Parts: TypeAlias = tuple[tuple[PoolKey, str, tuple[int, ...]], ...]
"""Pool, slice, and the devices that say themselves that they can be used there."""


@dataclass(slots=True, eq=False)
class NodeKind:
    """Nodes with equal devices in equal use. `memo` is for what was found out, keyed by whom it was asked for."""

    key: tuple[Content, int, Hashable, int]
    sight: Sight
    nodes: NodeSet = EMPTY
    memo: dict[Hashable, Any] = field(default_factory=dict)
    free: int = 0
    """How many of the node's own devices nobody has as a whole."""


@dataclass(slots=True, eq=False)
class _Pool:
    key: PoolKey
    slices: dict[str, ResourceSlice] = field(default_factory=dict)
    home: str = ""
    """The node it lives on; "" for a shared one."""
    views: dict[Hashable, PoolView | None] = field(default_factory=dict)
    sights: list[Sight] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Here:
    """What lives on one node."""

    views: tuple[PoolView, ...]
    content: Content
    numbers: dict[DeviceId, int]


_NOBODY_HERE: Final = _Here((), content_of(()), {})


class DeviceNodes(Followed[int]):
    """The log has the slots whose kind changed. `catch_up` before reading."""

    def __init__(self, nodes: Nodes, use: DeviceUse, *, partitionable: bool = True) -> None:
        super().__init__()
        self.problem = ""
        """A slice whose node selector cannot be parsed: nothing can be allocated while it is there (§4.2)."""
        self.shared_stamp = 0
        """Grows when a device of any shared pool is taken or given back."""
        self.placed = EMPTY
        """Nodes that are of a kind."""
        self._nodes = nodes
        self._use = use
        self._partitionable = partitionable
        self._pools: dict[PoolKey, _Pool] = {}
        self._pool_of: dict[str, PoolKey] = {}
        self._local: dict[str, dict[PoolKey, _Pool]] = {}
        self._shared: dict[PoolKey, _Pool] = {}
        self._here: dict[int, _Here] = {}
        self._kind_at: dict[int, NodeKind] = {}
        self._sight_at: dict[int, Sight] = {}
        self._sights: dict[_Parts, Sight] = {}
        self._kinds: dict[tuple[Content, int, Hashable, int], NodeKind] = {}
        self._position = nodes.relabelled.position
        self._stale: set[str] = set()
        self._shared_is_stale = False
        self._is_new = True

    # -- reading -------------------------------------------------------------------------------------------------------

    def kinds(self) -> Iterator[NodeKind]:
        """Those that any node is of."""
        return (kind for kind in self._kinds.values() if kind.nodes)

    def kind(self, slot: int) -> NodeKind | None:
        """The kind of this node."""
        return self._kind_at.get(slot)

    def kind_if(self, slot: int, use: Use) -> NodeKind | None:
        """Of which kind the node would be if its devices were in that use; shared pools keep the sight that they have."""
        here = self._here.get(slot)
        return None if here is None else self._kind_of(here, self._sight_at.get(slot, _NOTHING), use)

    def is_shared(self, device: DeviceId) -> bool:
        """Whether other nodes may see it as well."""
        return PoolKey(device.driver, device.pool) in self._shared

    @property
    def has_shared(self) -> bool:
        """Whether there is any device of which that may be said."""
        return bool(self._shared)

    def pools(self, slot: int) -> tuple[PoolView, ...]:
        """All pools that the node sees, in the order in which they are tried."""
        here = self._here.get(slot, _NOBODY_HERE).views
        shared = self._sight_at.get(slot, _NOTHING).views
        return tuple(sorted((*here, *shared), key=lambda view: view.order)) if shared else here

    def published(self, key: PoolKey) -> Iterable[ResourceSlice]:
        """All slices of a pool, of whatever generation."""
        pool = self._pools.get(key)
        return pool.slices.values() if pool is not None else ()

    # -- changing ------------------------------------------------------------------------------------------------------

    def set_slice(self, each: ResourceSlice) -> None:
        """A slice came or changed. Nothing is worked out before somebody asks."""
        key = PoolKey(each.spec.driver, each.spec.pool.name)
        if self._pool_of.get(each.key, key) != key:
            self.remove_slice(each.key)
        self._pool_of[each.key] = key
        pool = self._pools.setdefault(key, _Pool(key))
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

    def _settle(self, pool: _Pool) -> None:
        """The pool has changed: where does it live, and who has to look again."""
        pool.views.clear()
        self._unlink(pool)
        if not pool.slices:
            del self._pools[pool.key]
            return
        pool.home = self._home(pool)
        if pool.home:
            self._local.setdefault(pool.home, {})[pool.key] = pool
            self._stale.add(pool.home)
        else:
            self._shared[pool.key] = pool
            self._shared_is_stale = True

    def _unlink(self, pool: _Pool) -> None:
        if self._shared.pop(pool.key, None) is not None:
            self._shared_is_stale = True
        here = self._local.get(pool.home)
        if here is not None and here.pop(pool.key, None) is not None:
            self._stale.add(pool.home)
            if not here:
                del self._local[pool.home]

    def _home(self, pool: _Pool) -> str:
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
            own = self._view(pool, self._at_home(pool))
            counters = tuple(name for name in sorted(pool.slices) if pool.slices[name].spec.shared_counters)
            others = self._view(pool, counters)
            if own is None or own.state is not PoolState.GOOD:
                return ""
            if others is not None and others.state is not PoolState.GOOD:
                return ""
        return home

    def _at_home(self, pool: _Pool) -> tuple[str, ...]:
        """The slices of a pool that its own node sees."""
        if self._partitionable:
            return tuple(sorted(pool.slices))
        seen = (name for name, each in pool.slices.items() if not _is_ignored(each))
        return tuple(sorted(seen))

    # -- catching up ---------------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Take in what changed of nodes, slices and use. Two comparisons if nothing did; else what changed is looked at."""
        stale = self._stale_slots()
        if self._shared_is_stale:
            self._shared_is_stale = False
            stale |= self._look_around()
        for device in self._use.take_changed():
            self._used(device, stale)
        for slot in stale:
            self._place(slot)
        if len(self._kinds) > _EMPTY_KINDS_MAX + 2 * len(self._kind_at):
            self._kinds = {key: kind for key, kind in self._kinds.items() if kind.nodes}

    def _stale_slots(self) -> set[int]:
        """Slots whose node, or whose own slices, changed."""
        changed = self._nodes.relabelled
        stale: set[int] = set()
        if changed.position != self._position or self._is_new:
            slots = changed.changed_since(self._position) if not self._is_new else None
            self._position, self._is_new = changed.position, False
            stale.update(slots if slots is not None else range(self._nodes.capacity))
            for slot in stale:
                self._here.pop(slot, None)
            self._shared_is_stale = self._shared_is_stale or bool(self._shared)
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
        self.shared_stamp += 1
        for sight in pool.sights:
            sight.stamp += 1

    def _place(self, slot: int) -> None:
        """Of which kind is the node now."""
        before = self._kind_at.get(slot)
        now = None
        if self._nodes.present >> slot & 1:
            here = self._here.get(slot)
            if here is None:
                here = self._here[slot] = self._look_here(self._nodes.name(slot))
            now = self._kind_of(here, self._sight_at.get(slot, _NOTHING), self._use)
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
        self._log.append(slot)
        if len(self._log) > _LOG_MAX:
            self._forget_half()

    def _kind_of(self, here: _Here, sight: Sight, use: Use) -> NodeKind:
        used, shares = _use_of(here, use)
        key = (here.content, used, shares, id(sight))
        kind = self._kinds.get(key)
        if kind is None or kind.sight is not sight:
            kind = self._kinds[key] = NodeKind(key, sight, free=len(here.numbers) - used.bit_count())
        return kind

    def _look_here(self, name: str) -> _Here:
        pools = self._local.get(name)
        if not pools:
            return _NOBODY_HERE
        views = [view for pool in pools.values() if (view := self._view(pool, self._at_home(pool))) is not None]
        views.sort(key=lambda view: view.order)
        devices = [each.id for view in views for each in view.devices]
        numbers = {device: number for number, device in enumerate(devices)}
        return _Here(tuple(views), content_of(tuple(view.content for view in views)), numbers)

    # -- shared pools --------------------------------------------------------------------------------------------------

    def _look_around(self) -> set[int]:
        """Work out anew who sees which shared slices. O(nodes seen from), and only after nodes or those slices changed."""
        self.problem = ""
        seen: dict[int, list[tuple[PoolKey, str, tuple[int, ...]]]] = {}
        wheres: dict[PoolKey, dict[tuple[str, int], NodeSet]] = {}
        for key in sorted(self._shared):
            own = wheres[key] = {}
            for name, each in sorted(self._shared[key].slices.items()):
                for slot, devices in self._who_sees(each, own):
                    seen.setdefault(slot, []).append((key, name, devices))
        for pool in self._shared.values():
            pool.sights.clear()
        sights: dict[_Parts, Sight] = {}
        changed = set(self._sight_at) - set(seen)
        for slot in changed:
            del self._sight_at[slot]
        for slot, parts in seen.items():
            what = tuple(parts)
            sight = sights.get(what)
            if sight is None:
                sight = sights[what] = self._sight(what, wheres)
            self._sight_at[slot] = sight
            changed.add(slot)
        self._sights = sights
        self.shared_stamp += 1
        return changed

    def _who_sees(
        self, each: ResourceSlice, wheres: dict[tuple[str, int], NodeSet]
    ) -> Iterable[tuple[int, tuple[int, ...]]]:
        """Slots that see the slice, with the places of the devices that they may use if these say so themselves."""
        spec = each.spec
        if not self._partitionable and _is_ignored(each):
            return
        if spec.shared_counters:
            everywhere = self._nodes.present
        elif spec.node_name or spec.all_nodes or spec.node_selector is not None:
            everywhere = self._where(spec.node_name, spec.all_nodes, spec.node_selector, f"slice {each.key}")
        elif spec.per_device_node_selection:
            everywhere = EMPTY
        else:
            return
        at: dict[int, list[int]] = {}
        if spec.per_device_node_selection:
            for place, device in enumerate(spec.devices):
                wheres[each.key, place] = nodes = self._where_device(device, each.key)
                if not spec.shared_counters:
                    for slot in nodeset.each(nodes):
                        at.setdefault(slot, []).append(place)
        for slot in nodeset.each(everywhere):
            at.setdefault(slot, [])
        for slot, places in at.items():
            yield slot, tuple(places)

    def _where_device(self, device: Device, slice_name: str) -> NodeSet:
        about = f"device {device.name} in slice {slice_name}"
        return self._where(device.node_name, device.all_nodes, device.node_selector, about)

    def _where(
        self, node_name: str | None, all_nodes: bool | None, selector: NodeSelector | None, about: str
    ) -> NodeSet:
        if node_name:
            return self._nodes.by_name((node_name,))
        if all_nodes:
            return self._nodes.present
        if selector is None:
            return EMPTY
        wrong = selector_problem(selector)
        if wrong and not self.problem:
            self.problem = f"failed to perform node selection for {about}: failed to parse node selector: {wrong}"
        return matching_selector(self._nodes, selector)

    def _sight(
        self,
        parts: _Parts,
        wheres: dict[PoolKey, dict[tuple[str, int], NodeSet]],
    ) -> Sight:
        """What a node sees that sees these slices: the old sight, if nothing of it has changed."""
        by_pool: dict[PoolKey, list[str]] = {}
        for key, name, _ in parts:
            by_pool.setdefault(key, []).append(name)
        views = {}
        for key, names in by_pool.items():
            view = self._view(self._shared[key], tuple(names), wheres[key])
            if view is not None:
                views[key] = view
        sight = self._sights.get(parts)
        if sight is None or sight.views != tuple(views.values()):
            sight = Sight(tuple(views.values()))
        for key in views:
            self._shared[key].sights.append(sight)
        return sight

    def _view(
        self, pool: _Pool, names: tuple[str, ...], wheres: dict[tuple[str, int], NodeSet] | None = None
    ) -> PoolView | None:
        known = (names, tuple(sorted((wheres or {}).items())))
        if known not in pool.views:
            visible = [pool.slices[name] for name in names]
            pool.views[known] = view_of(
                pool.key, visible, pool.slices.values(), partitionable=self._partitionable, wheres=wheres
            )
        return pool.views[known]


def _use_of(here: _Here, use: Use) -> tuple[int, Hashable]:
    used = 0
    shares: list[tuple[int, tuple[tuple[str, int], ...]]] = []
    for device, number in here.numbers.items():
        if use.is_exclusive(device):
            used |= 1 << number
        if use.shares(device):
            shares.append((number, tuple(sorted(use.consumed(device).items()))))
    return used, tuple(shares)


def _is_ignored(each: ResourceSlice) -> bool:
    """Without partitions, slices that need them are not looked at (§4.2)."""
    return each.spec.per_device_node_selection is not None or bool(each.spec.shared_counters)


def usable(device: Published, slot: int) -> bool:
    """Whether the node may use a device that it sees."""
    return device.where is None or bool(device.where >> slot & 1)
