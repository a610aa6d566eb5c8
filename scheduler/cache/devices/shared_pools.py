"""The visibility of shared pools: which nodes see which slices (docs/spec/dra.md §4.2).

A pool that does not belong to one node is *shared*. Nodes that see the same parts of the same shared pools have one
`PoolVisibility`. It is updated as nodes are added, relabelled and removed. A changed node costs a look-up per label
and the slices that it sees. A changed pool costs the nodes that saw it before or see it now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from scheduler.api.core_v1 import NodeSelector
from scheduler.api.node_affinity import selector_problem
from scheduler.api.resource_v1 import Device, ResourceSlice, ResourceSliceSpec
from scheduler.cache.devices.pools import CounterUse, NodeMatch, PoolKey, PoolView, draws_of, gather_pool
from scheduler.cache.nodes.node_groups import NodeGroup, NodeGroups, matching_selector, where_affinity
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.feature_gates import PARTITIONABLE
from scheduler.core.nodeset import EMPTY, NodeSet

_Parts: TypeAlias = tuple[tuple[PoolKey, str, tuple[int, ...]], ...]
"""Pool, slice, and the positions of its devices with their own node selection that can be used there."""
_Seen: TypeAlias = tuple[PoolKey, str, int]
"""Pool, slice and device; `_WHOLE` stands for the whole slice."""
_WHOLE: Final = -1


@dataclass(slots=True, eq=False)
class PoolSlices:
    """All slices of a pool, of any generation."""

    key: PoolKey
    gates: frozenset[str]
    slices: dict[str, ResourceSlice] = field(default_factory=dict)
    home: str = ""
    """The node to which the pool belongs; "" for a shared pool."""
    wheres: dict[tuple[str, int], NodeMatch] = field(default_factory=dict)
    """Slice and position → nodes of a device with its own node selection."""
    views: dict[tuple[str, ...], PoolView | None] = field(default_factory=dict)
    """Names of visible slices → the view of nodes that see them; cleared when anything in the pool changes."""
    _draws: tuple[CounterUse | None] | None = None

    def forget(self) -> None:
        """Clear the cached results after a change of the pool."""
        self.views.clear()
        self._draws = None

    def known_slices(self) -> list[tuple[str, ResourceSlice]]:
        """Return the slices by name, without those that need partitionable devices if there are none (§4.2)."""
        return [
            (name, each)
            for name, each in sorted(self.slices.items())
            if PARTITIONABLE in self.gates
            or (each.spec.per_device_node_selection is None and not each.spec.shared_counters)
        ]

    def view(self, names: tuple[str, ...]) -> PoolView | None:
        """Return the pool as seen by a node that sees these slices."""
        if names not in self.views:
            self.views[names] = gather_pool(
                self.key,
                [self.slices[name] for name in names],
                self.slices.values(),
                partitionable=PARTITIONABLE in self.gates,
                wheres=self.wheres,
            )
        return self.views[names]

    def results(self, like: PoolSlices) -> dict[str, object]:
        """Return the results that `like` has cached, for comparisons. Equal contents are one object."""
        views = {names: self.view(names) for names in like.views}
        contents = {
            names: view and (id(view.content), [each.id for each in view.devices]) for names, view in views.items()
        }
        draws = self.draws() if like._draws is not None else None
        names = ("capacities", "counters", "drawn", "drawers") if draws is not None else ()
        return {"devices of views": contents, "draws": [getattr(draws, name) for name in names]}

    def draws(self) -> CounterUse | None:
        """Return the pool's shared capacities and counters; None if the pool is incomplete or invalid."""
        if self._draws is None:
            self._draws = (draws_of(self.key, self.slices.values(), partitionable=PARTITIONABLE in self.gates),)
        return self._draws[0]


@dataclass(slots=True, eq=False, weakref_slot=True)
class PoolVisibility:
    """The shared pools that some nodes see."""

    views: tuple[PoolView, ...] = ()
    stamp: int = 0
    """A number that grows when a device of any of these pools is allocated or released."""
    parts: _Parts = ()
    count: int = 0
    """The number of nodes with this visibility."""


NO_SHARED_POOLS: Final = PoolVisibility()


@dataclass(slots=True, eq=False)
class _Place:
    """Nodes that cannot be described by labels alone."""

    nodes: NodeSet = EMPTY
    rule: str | NodeSelector = ""
    """The name of a node, or the selector of the nodes."""
    users: int = 0


class SharedPoolVisibility:
    """The visibility of all shared pools. Only `DeviceNodes` changes it. Call `catch_up` before reading."""

    def __init__(self, nodes: Nodes) -> None:
        self.problem = ""
        """The first slice, in the order of pools and slices, whose node selector cannot be parsed.

        Nothing can be allocated while it exists (§4.2).
        """
        self.stamp = 0
        """A number that grows when a device of a shared pool is allocated or released."""
        self._nodes = nodes
        self._pools: dict[PoolKey, PoolSlices] = {}
        self._changed: dict[PoolKey, None] = {}
        self._problems: dict[PoolKey, str] = {}
        self._parts_of: dict[PoolKey, list[tuple[NodeMatch, _Seen]]] = {}
        self._users: dict[NodeMatch, dict[_Seen, None]] = {}
        self.groups = NodeGroups(nodes)
        self._everywhere = _Place()
        self._nowhere = _Place()
        self._named: dict[str, _Place] = {}
        self._by_fields: dict[NodeSelector, _Place] = {}
        """Selectors by node fields. There are hardly any, so each one is evaluated again when a node changes."""
        self._names: dict[int, str] = {}
        self._at: dict[int, PoolVisibility] = {}
        self._by_parts: dict[_Parts, PoolVisibility] = {}
        self._of_pool: dict[PoolKey, dict[PoolVisibility, None]] = {}
        self._has_ended = False

    def __len__(self) -> int:
        return len(self._pools)

    def __contains__(self, key: PoolKey) -> bool:
        return key in self._pools

    @property
    def backlog(self) -> int:
        """The number of changed pools that are not processed yet."""
        return len(self._changed)

    def take_ended(self) -> bool:
        """Return whether a visibility has lost its last node since the last call."""
        has_ended, self._has_ended = self._has_ended, False
        return has_ended

    def of(self, slot: int) -> PoolVisibility:
        """Return the shared pools that the node sees."""
        return self._at.get(slot, NO_SHARED_POOLS)

    def entries(self, slot: int) -> dict[str, object]:
        """Return what is known of a node, and the nodes of each place, for comparisons."""
        name = self._names.get(slot, "")
        places = (self._everywhere, *self._by_fields.values(), self._named.get(name, self._nowhere))
        return {"name": name, "visible slices": self.of(slot).parts, "places": [place.nodes for place in places]}

    # -- changing ------------------------------------------------------------------------------------------------------

    def put(self, pool: PoolSlices) -> None:
        """Add or update a shared pool. Everything else is computed in `catch_up`."""
        self._pools[pool.key] = pool
        self._changed[pool.key] = None

    def drop(self, key: PoolKey) -> None:
        """Remove a pool that is gone or belongs to one node now; do nothing if it was not shared."""
        if self._pools.pop(key, None) is not None:
            self._changed[key] = None

    def used(self, key: PoolKey) -> None:
        """Record that a device of the pool was allocated or released."""
        self.stamp += 1
        for visible_pools in self._of_pool.get(key, ()):
            visible_pools.stamp += 1

    def catch_up(self, relabelled: Iterable[int]) -> set[int]:
        """Process the changed pools and these nodes; return the slots whose visibility changed."""
        stale = set(relabelled)
        if stale:
            self._update_places(stale)
        changed, self._changed = self._changed, {}
        if not changed and not self._pools:
            return set()
        seen = EMPTY
        for key in changed:
            before = self._parts_of.pop(key, ())
            seen |= self._forget(key, before)
            if key in self._pools:
                seen |= self._add(self._pools[key])
            for where, _ in before:  # released last, so that a group which is still used is not created again
                self._release(where)
        if changed:
            self.problem = self._problems[min(self._problems)] if self._problems else ""
        stale.update(nodeset.each(seen))
        return {slot for slot in stale if self._update(slot)}

    # -- where things are ----------------------------------------------------------------------------------------------

    def _update_places(self, slots: set[int]) -> None:
        nodes = self._nodes
        self.groups.catch_up()
        self._everywhere.nodes = nodes.present
        for slot in slots:
            before = self._names.pop(slot, "")
            if nodes.present >> slot & 1:
                self._names[slot] = nodes.name(slot)
            for name in {before, self._names.get(slot, "")}:
                if name in self._named:
                    self._named[name].nodes = nodes.by_name((name,))
        for selector, place in self._by_fields.items():
            place.nodes = matching_selector(nodes, selector)

    def _hold(self, key: PoolKey, of: ResourceSliceSpec | Device, about: str) -> NodeMatch:
        """Return the nodes that can use a slice or a device; they are kept up to date until the pool changes."""
        name, selector = of.node_name, of.node_selector
        where: NodeMatch
        if of.all_nodes and not name:
            where = self._everywhere
        elif name:
            where = self._named.setdefault(name, _Place(self._nodes.by_name((name,)), name))
        elif selector is None:
            where = self._nowhere
        else:
            problem = selector_problem(selector)
            if problem:
                text = f"failed to perform node selection for {about}: failed to parse node selector: {problem}"
                self._problems.setdefault(key, text)
            if any(term.match_fields for term in selector.node_selector_terms):
                where = self._by_fields.setdefault(selector, _Place(matching_selector(self._nodes, selector), selector))
            else:
                where = self.groups.acquire(where_affinity(selector))
        if isinstance(where, _Place):
            where.users += 1
        return where

    def _release(self, where: NodeMatch) -> None:
        if isinstance(where, NodeGroup):
            self.groups.release(where)
        elif isinstance(where, _Place):
            where.users -= 1
            if where.users:
                return
            if isinstance(where.rule, str):
                self._named.pop(where.rule, None)
            else:
                del self._by_fields[where.rule]

    # -- what is there -------------------------------------------------------------------------------------------------

    def _add(self, pool: PoolSlices) -> NodeSet:
        """Record the nodes that see the slices of a pool, and return them."""
        found = self._parts_of[pool.key] = list(self._seen_of(pool))
        nodes = EMPTY
        for where, seen in found:
            self._users.setdefault(where, {})[seen] = None
            nodes |= where.nodes
        return nodes

    def _seen_of(self, pool: PoolSlices) -> Iterator[tuple[NodeMatch, _Seen]]:
        """Yield the pool's slices and devices with their nodes (§4.2)."""
        key, pool.wheres = pool.key, {}
        for name, each in pool.known_slices():
            spec = each.spec
            if spec.node_name or spec.all_nodes or spec.node_selector is not None:
                yield self._hold(key, spec, f"slice {name}"), (key, name, _WHOLE)
            if not spec.per_device_node_selection:
                continue
            for at, device in enumerate(spec.devices):
                where = self._hold(key, device, f"device {device.name} in slice {name}")
                pool.wheres[name, at] = where
                yield where, (key, name, at)

    def _forget(self, key: PoolKey, parts: Iterable[tuple[NodeMatch, _Seen]]) -> NodeSet:
        """Remove the pool, and return the nodes that saw these parts, except nodes that have changed since."""
        nodes = EMPTY
        for where, seen in parts:
            nodes |= where.nodes
            users = self._users[where]
            del users[seen]
            if not users:
                del self._users[where]
        self._problems.pop(key, None)
        for visible_pools in self._of_pool.pop(key, ()):
            self._by_parts.pop(visible_pools.parts, None)
        return nodes

    def _update(self, slot: int) -> bool:
        """Update the visibility of the node; return whether it changed."""
        parts = self._parts(slot)
        before, now = self._at.get(slot), None
        if parts:
            now = self._by_parts.get(parts)
            if now is None:
                now = self._by_parts[parts] = self._visible_pools(parts)
        if now is before:
            return False
        if now is not None:
            now.count += 1
            self._at[slot] = now
        else:
            del self._at[slot]
        if before is not None:
            before.count -= 1
            if not before.count:
                self._end(before)
        return True

    def _parts(self, slot: int) -> _Parts:
        found: dict[tuple[PoolKey, str], list[int]] = {}
        for where in self._wheres(slot):
            for key, name, at in self._users.get(where, ()):
                places = found.setdefault((key, name), [])
                if at != _WHOLE:
                    places.append(at)
        return tuple((key, name, tuple(sorted(found[key, name]))) for key, name in sorted(found))

    def _wheres(self, slot: int) -> Iterator[NodeMatch]:
        name = self._names.get(slot)
        if name is None:
            return
        yield self._everywhere
        if name in self._named:
            yield self._named[name]
        yield from self.groups.of(slot)
        yield from (place for place in self._by_fields.values() if place.nodes >> slot & 1)

    def _visible_pools(self, parts: _Parts) -> PoolVisibility:
        by_pool: dict[PoolKey, list[str]] = {}
        for key, name, _ in parts:
            by_pool.setdefault(key, []).append(name)
        views = (self._pools[key].view(tuple(names)) for key, names in by_pool.items())
        visible_pools = PoolVisibility(tuple(view for view in views if view is not None), parts=parts)
        for key in by_pool:
            self._of_pool.setdefault(key, {})[visible_pools] = None
        return visible_pools

    def _end(self, visible_pools: PoolVisibility) -> None:
        """Drop a visibility without nodes. No node can get it again."""
        self._has_ended = True
        if self._by_parts.get(visible_pools.parts) is visible_pools:
            del self._by_parts[visible_pools.parts]
        for key in {key for key, _, _ in visible_pools.parts}:
            groups = self._of_pool.get(key)
            if groups is not None:
                groups.pop(visible_pools, None)
                if not groups:
                    del self._of_pool[key]
