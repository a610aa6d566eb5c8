"""Search results for all nodes, kept for all pods with equal claims (docs/adr/0010).

A kind of nodes is searched once per `ClaimsToAllocate`, and only nodes that changed are looked at again. A search
that takes too long is postponed: Filter lets the node pass, and Verify searches the chosen node.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from operator import or_
from typing import Final

from scheduler.api.resource_v1 import AllocationResult
from scheduler.cache.devices.allocation_state import AllocationState, DeviceUse
from scheduler.cache.devices.node_kinds import DeviceNodes, NodeKind
from scheduler.core import nodeset
from scheduler.core.caching import BoundedCache
from scheduler.core.clock import Clock
from scheduler.core.cooperative import Work, finish
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.plugins.dra.structured.allocation_result import results
from scheduler.plugins.dra.structured.error_nodes import TimedOut
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures
from scheduler.plugins.dra.structured.node_searches import (
    NO_DEVICES,
    NodeSearches,
    Orders,
    SearchLimits,
    SearchVerdict,
    named,
)
from scheduler.plugins.dra.structured.requests import ClaimsToAllocate

_NO_LIMITS: Final = SearchLimits()
_BUDGET_S: Final = 0.0003
_AHEAD_S: Final = 0.002
"""A search that takes longer is postponed until Verify, if the node is chosen: some searches take seconds."""
_FEW: Final = 16
_KINDS_MAX: Final = 512
_VERDICTS_MAX: Final = 1024


@dataclass(slots=True)
class ClaimsVerdicts:
    """The verdicts on all nodes for one `ClaimsToAllocate`. The sets are disjoint; other nodes were not searched."""

    position: int
    shared_stamp: int
    fit: NodeSet = EMPTY
    refused: dict[str, NodeSet] = field(default_factory=dict)
    failed: dict[str, NodeSet] = field(default_factory=dict)
    put_off: NodeSet = EMPTY
    """Nodes whose search took too long; Verify searches them."""
    kinds_left: bool = True

    @property
    def erring(self) -> NodeSet:
        """Nodes whose search ends the attempt."""
        return reduce(or_, self.failed.values(), EMPTY)

    @property
    def seen(self) -> NodeSet:
        """Nodes with a known verdict."""
        return reduce(or_, self.refused.values(), self.fit | self.erring)


class NodeVerdicts:
    """The verdicts of one profile. Single owner: the scheduling loop."""

    def __init__(  # noqa: PLR0913 (what a search needs)
        self,
        on_nodes: DeviceNodes,
        use: AllocationState,
        clock: Clock,
        rules: AllocatorFeatures,
        *,
        limits: SearchLimits = _NO_LIMITS,
        orders: Orders | None = None,
        searched: Callable[[int], None] | None = None,
    ) -> None:
        """Take the order of candidates (`orders`, None is upstream's) and a callback for the steps of each search."""
        self._on_nodes = on_nodes
        self._clock = clock
        self.limits: Final = limits
        self._searches = NodeSearches(on_nodes, use, clock, rules, limits, orders, searched)
        self._ahead_s = min(_AHEAD_S, limits.resting_s or _AHEAD_S)
        self._verdicts: BoundedCache[ClaimsToAllocate, ClaimsVerdicts] = BoundedCache(_VERDICTS_MAX)

    def look(self, demand: ClaimsToAllocate, nodes: NodeSet) -> Work[ClaimsVerdicts]:
        """Return the current verdicts after searching some of the nodes without one."""
        verdicts = yield from self._current(demand)
        if verdicts.kinds_left:
            yield from self._look_at_kinds(demand, verdicts, nodes)
        return verdicts

    def look_at_all(self, demand: ClaimsToAllocate, nodes: NodeSet) -> Work[ClaimsVerdicts]:
        """Return the verdicts after searching each kind of these nodes. Searches that take too long are postponed."""
        verdicts = yield from self._current(demand)
        for kind, new in self._kinds_of(nodes, verdicts.seen):
            yield from self._look_at(demand, verdicts, kind, nodes=new)
            yield
        verdicts.kinds_left = bool(self._on_nodes.placed & ~(verdicts.seen | verdicts.put_off))
        return verdicts

    def first_error(self, demand: ClaimsToAllocate, nodes: NodeSet) -> Work[tuple[int, str] | None]:
        """Return slot and error of the first of these nodes whose search ends the attempt.

        A search that takes too long is left to Verify.
        """
        verdicts = yield from self._current(demand)
        left = nodes & self._on_nodes.placed
        while left := left & ~(verdicts.seen & ~verdicts.erring):
            first = left & -left
            text = next((text for text, some in verdicts.failed.items() if some & first), "")
            if text:
                return first.bit_length() - 1, text
            kind = self._on_nodes.kind(first.bit_length() - 1)
            assert kind is not None
            new = kind.nodes & ~verdicts.seen
            yield from self._look_at(demand, verdicts, kind, nodes=new)
            left &= ~(new & verdicts.put_off)
            yield
        return None

    def _current(self, demand: ClaimsToAllocate) -> Work[ClaimsVerdicts]:
        on_nodes = self._on_nodes
        on_nodes.catch_up()
        verdicts = self._verdicts.get(demand)
        changed = on_nodes.changed_since(verdicts.position) if verdicts is not None else None
        if verdicts is None or changed is None or verdicts.shared_stamp != on_nodes.shared.stamp:
            return self._verdicts.put(demand, ClaimsVerdicts(on_nodes.position, on_nodes.shared.stamp))
        verdicts.position = on_nodes.position
        if changed:
            yield from self._look_again(demand, verdicts, set(changed))
        return verdicts

    def verdict(self, demand: ClaimsToAllocate, slot: int, *, limit_s: float | None = None) -> Work[SearchVerdict]:
        """Return the exact verdict for one node. Raises TimedOut."""
        kind = self._on_nodes.kind(slot)
        if kind is None:
            return NO_DEVICES
        verdict = yield from self._searches.verdict(demand, kind, slot, limit_s=limit_s)
        verdicts = self._verdicts.get(demand)
        if verdicts is not None and verdicts.put_off & kind.nodes:
            self._note(verdicts, verdict, verdicts.put_off & kind.nodes)
        return verdict

    def text_on(self, slot: int, text: str, names: Sequence[str]) -> str:
        """Return a refusal with the names of the claims and of the node's devices."""
        if "\1" in text:
            text = self._searches.node_devices(slot).placed(text)
        return named(text, names)

    def fit(self, demand: ClaimsToAllocate) -> NodeSet:
        """Return the nodes that are known to have the devices."""
        verdicts = self._verdicts.get(demand)
        return verdicts.fit if verdicts is not None else EMPTY

    def is_settled(self, demand: ClaimsToAllocate, slot: int) -> bool:
        """Return whether the node is known to have the devices, and `allocate` needs no search: it sees no shared pool."""
        kind = self._on_nodes.kind(slot)
        return bool(self.fit(demand) >> slot & 1) and kind is not None and not kind.visible_pools.views

    def fullest(self, nodes: NodeSet) -> NodeSet:
        """Return those of the nodes with the fewest free devices.

        O(kinds of nodes); with more than `_KINDS_MAX` kinds it returns all nodes.
        """
        kinds = list(islice(self._on_nodes.kinds(), _KINDS_MAX + 1))
        if len(kinds) > _KINDS_MAX:
            return nodes
        found = [(kind.free, here) for kind in kinds if (here := kind.nodes & nodes)]
        fewest = min((free for free, _ in found), default=0)
        return reduce(or_, (here for free, here in found if free == fewest), EMPTY) or nodes

    def picked(
        self, demand: ClaimsToAllocate, slot: int, use: DeviceUse | None = None, *, limit_s: float | None = None
    ) -> Work[SearchVerdict]:
        """Return the devices that the claims would get on this node, or why none. Raises TimedOut.

        `use`: as if devices were in this use. The verdict is then cached for all nodes of the same kind in this use,
        unless the node sees a shared pool.
        """
        if use is not None:
            self._on_nodes.catch_up()
            kind = self._on_nodes.kind_if(slot, use)
            if kind is None:
                return NO_DEVICES
            return (yield from self._searches.here(demand, kind, slot, use, limit_s=limit_s))
        verdict = yield from self.verdict(demand, slot, limit_s=limit_s)
        kind = self._on_nodes.kind(slot)
        if kind is not None and kind.visible_pools.views and not verdict.refusal:
            verdict = yield from self._searches.here(demand, kind, slot, limit_s=limit_s)
        return verdict

    def allocate(
        self,
        demand: ClaimsToAllocate,
        slot: int,
        *,
        node_name: str,
        names: Sequence[str],
        chance: random.Random,
        use: DeviceUse | None = None,
    ) -> tuple[AllocationResult, ...] | SearchVerdict:
        """Return the claims' allocations on this node, or the verdict that refuses them.

        Raises AllocationError, TimedOut.

        Blocks the event loop while it searches, for at most `limits.holding_s`, unless `picked` has run before.
        `use`: as `picked`.
        """
        verdict = finish(self.picked(demand, slot, use, limit_s=self.limits.holding_s))
        if verdict.refusal or self._on_nodes.kind(slot) is None:
            return verdict
        node_devices = self._searches.node_devices(slot, use)
        return results(demand, verdict.picked, node_devices, node_name=node_name, names=names, chance=chance)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _look_again(self, demand: ClaimsToAllocate, verdicts: ClaimsVerdicts, slots: set[int]) -> Work[None]:
        """Search changed nodes: a few at once, many like new ones."""
        self._forget(verdicts, nodeset.of(slots))
        were_left, verdicts.kinds_left = verdicts.kinds_left, True  # also if this ends early
        if len(slots) > _FEW:
            return
        until = self._clock.now() + _AHEAD_S
        for slot in slots:
            if self._clock.now() > until:
                return
            kind = self._on_nodes.kind(slot)
            if kind is not None:
                yield from self._look_at(demand, verdicts, kind, nodes=1 << slot, limit_s=self._ahead_s)
        verdicts.kinds_left = were_left

    def _look_at_kinds(self, demand: ClaimsToAllocate, verdicts: ClaimsVerdicts, nodes: NodeSet) -> Work[None]:
        """Search new kinds for about `_BUDGET_S`. It never looks at all kinds: these can be as many as nodes."""
        until = self._clock.now() + _BUDGET_S
        for kind, new in self._kinds_of(nodes, verdicts.seen | verdicts.put_off):
            yield from self._look_at(demand, verdicts, kind, nodes=new, limit_s=self._ahead_s)
            if self._clock.now() > until:
                break
        verdicts.kinds_left = bool(self._on_nodes.placed & ~(verdicts.seen | verdicts.put_off))

    def _kinds_of(self, nodes: NodeSet, seen: NodeSet) -> Iterator[tuple[NodeKind, NodeSet]]:
        """Yield each kind of these nodes that is not seen, and all its nodes that are not seen."""
        left = nodes & self._on_nodes.placed & ~seen
        while left:
            kind = self._on_nodes.kind((left & -left).bit_length() - 1)
            assert kind is not None
            new = kind.nodes & ~seen
            yield kind, new
            left &= ~new

    def _look_at(
        self,
        demand: ClaimsToAllocate,
        verdicts: ClaimsVerdicts,
        kind: NodeKind,
        *,
        nodes: NodeSet,
        limit_s: float | None = None,
    ) -> Work[None]:
        """Search nodes of one kind; with `limit_s` ahead of Verify."""
        slot = nodes.bit_length() - 1
        try:
            if limit_s is None:
                verdict = yield from self._searches.verdict(demand, kind, slot)
            else:
                verdict = yield from self._searches.ahead(demand, kind, slot, limit_s=limit_s)
        except TimedOut:
            verdicts.put_off |= nodes
        else:
            self._note(verdicts, verdict, nodes)

    def _note(self, verdicts: ClaimsVerdicts, verdict: SearchVerdict, nodes: NodeSet) -> None:
        verdicts.put_off &= ~nodes
        if not verdict.refusal:
            verdicts.fit |= nodes
        else:
            into = verdicts.failed if verdict.failed else verdicts.refused
            into[verdict.refusal] = into.get(verdict.refusal, EMPTY) | nodes

    def _forget(self, verdicts: ClaimsVerdicts, nodes: NodeSet) -> None:
        verdicts.fit &= ~nodes
        verdicts.put_off &= ~nodes
        verdicts.refused = {text: left for text, some in verdicts.refused.items() if (left := some & ~nodes)}
        verdicts.failed = {text: left for text, some in verdicts.failed.items() if (left := some & ~nodes)}
