"""Nodes on which an allocation may end in an error, so that the attempt must end with it (docs/spec/dra.md §3.4, §4.4, §5.5).

An error on any candidate node ends the attempt, also where other nodes fit. So the nodes on which the allocator may meet one
are searched before a node is chosen. These nodes follow from what they see, not from what is in use: a kind of device on
which a selector fails, or, for a request for all devices, a pool that is not whole, or too many devices. Selectors are
evaluated once per kind of device. After that a demand costs a few comparisons until what a node sees changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from scheduler.api.resource_v1 import RESULTS_MAX
from scheduler.cache.devices.node_kinds import DeviceNodes
from scheduler.cache.devices.pools import PoolState, PoolView
from scheduler.core import nodeset
from scheduler.core.caching import BoundedCache
from scheduler.core.cooperative import Work
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.plugins.dra.requests import ClaimsToAllocate, ClaimToAllocate, RequestAlternatives
from scheduler.plugins.dra.selectors import SelectorFault, Selectors

_TRACKED_MAX: Final = 4096
_DEMANDS_MAX: Final = 1024

_Count: TypeAlias = Callable[[Iterable[PoolView]], Work[int]]


@dataclass(slots=True, eq=False)
class _Tracked:
    """The nodes whose pools count for more than `above`, as of `position` in the log of what nodes see."""

    count: _Count
    above: int
    nodes: NodeSet = EMPTY
    position: int | None = None


class ErrorNodes:
    """Those of one profile. Single owner: the scheduling loop."""

    def __init__(self, on_nodes: DeviceNodes) -> None:
        self._on_nodes = on_nodes
        self._tracked: BoundedCache[Hashable, _Tracked] = BoundedCache(_TRACKED_MAX)
        self._of_demand: BoundedCache[ClaimsToAllocate, tuple[_Tracked, ...]] = BoundedCache(_DEMANDS_MAX)

    def of(self, demand: ClaimsToAllocate) -> Work[NodeSet]:
        """Nodes that must be searched before one is chosen."""
        self._on_nodes.catch_up()
        tracked = self._tracked_for(demand)
        if tracked is None:
            return self._on_nodes.placed
        out = EMPTY
        for each in tracked:
            if each.position != self._on_nodes.visibility.position:
                yield from self._following(each)
            out |= each.nodes
        return out

    def _following(self, tracked: _Tracked) -> Work[None]:
        """Costs the nodes that see something else than before; all kinds of nodes the first time."""
        on_nodes = self._on_nodes
        position = on_nodes.visibility.position
        changed = on_nodes.visibility.changed_since(tracked.position) if tracked.position is not None else None
        counts: dict[object, int] = {}
        if changed is None:
            nodes = EMPTY
            for kind in list(on_nodes.kinds()):
                if (yield from self._counts(tracked, kind.nodes.bit_length() - 1, counts)):
                    nodes |= kind.nodes
        else:
            slots = set(changed)
            nodes = tracked.nodes & ~nodeset.of(slots)
            for slot in slots:
                if (yield from self._counts(tracked, slot, counts)):
                    nodes |= 1 << slot
        tracked.nodes, tracked.position = nodes, position

    def _counts(self, tracked: _Tracked, slot: int, counts: dict[object, int]) -> Work[bool]:
        """Whether this node is one of them. `counts` has what was counted of equal pools."""
        kind = self._on_nodes.kind(slot)
        if kind is None:
            return False
        content, visible_pools = kind.key[0], kind.visible_pools
        if content not in counts:
            counts[content] = yield from tracked.count(self._on_nodes.own_pools(slot))
        if visible_pools not in counts:
            counts[visible_pools] = yield from tracked.count(visible_pools.views)
        return counts[content] + counts[visible_pools] > tracked.above

    def _tracked_for(self, demand: ClaimsToAllocate) -> tuple[_Tracked, ...] | None:
        """None if something is wrong with the demand itself: then each node is in error."""
        if not demand.form:
            return None
        return self._of_demand.get_or_make(demand, lambda: tuple(dict.fromkeys(self._conditions(demand))))

    def _conditions(self, demand: ClaimsToAllocate) -> Iterator[_Tracked]:
        for _, _, ask in demand.asks:
            if ask.selectors is not None:
                yield self._where(("faults", ask.selectors), partial(_with_a_fault, ask.selectors), above=0)
        for claim in demand.claims:
            least, lists = _least(claim.requests)
            if lists or least > RESULTS_MAX:
                above = (RESULTS_MAX - least) // max(lists, 1) if least <= RESULTS_MAX else -1
                yield self._where(("devices", above), _devices, above=above)
            if any(ask.is_all for request in claim.requests for ask in request.asks):
                yield self._where("bad pools", _bad_pools, above=0)
            if _has_constrained_lists(claim):
                yield self._where(("devices", 0), _devices, above=0)

    def _where(self, key: Hashable, count: _Count, *, above: int) -> _Tracked:
        return self._tracked.get_or_make(key, lambda: _Tracked(count, above))


def _least(requests: Iterable[RequestAlternatives]) -> tuple[int, int]:
    """How many devices a claim wants at least, and how many of its requests want all there are beside that (§4.4)."""
    least = lists = 0
    for request in requests:
        counts = [ask.spec.count for ask in request.asks if not ask.is_all]
        least += min(counts, default=0)
        lists += not counts
    return least, lists


def _has_constrained_lists(claim: ClaimToAllocate) -> bool:
    """Whether a device of a request for all devices may break a constraint, which is an error (§4.7)."""
    lists = [ask for request in claim.requests for ask in request.asks if ask.is_all]
    return any(each.concerns(ask.request, ask.full_name) for ask in lists for each in claim.constraints)


def _with_a_fault(selectors: Selectors, views: Iterable[PoolView]) -> Work[int]:
    for kind in dict.fromkeys(each.kind for view in views for each in view.devices):
        yield from selectors.evaluating((kind,))
        if isinstance(selectors.of(kind), SelectorFault):
            return 1
        yield
    return 0


def _bad_pools(views: Iterable[PoolView]) -> Work[int]:
    yield
    return sum(view.state is not PoolState.GOOD for view in views)


def _devices(views: Iterable[PoolView]) -> Work[int]:
    yield
    return sum(len(view.devices) for view in views)
