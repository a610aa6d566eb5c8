"""The searches of one profile: one per kind of nodes and claims, limited in time, cached with the kind (docs/adr/0010).

A search ahead that takes too long is suspended; `NodeSearches.verdict` goes on with it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from scheduler.cache.devices.allocation_state import AllocationState, DeviceUse
from scheduler.cache.devices.node_kinds import DeviceNodes, NodeKind
from scheduler.core.caching import BoundedCache
from scheduler.core.clock import Clock
from scheduler.core.cooperative import T, Work, metered
from scheduler.plugins.dra.structured.allocator import AllocationError, Allocator, FailedOnNode, Order, Picked
from scheduler.plugins.dra.structured.error_nodes import TimedOut
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures, CandidateDevices, NodeDevices
from scheduler.plugins.dra.structured.requests import ClaimsToAllocate

CANNOT_ALLOCATE: Final = "cannot allocate all claims"
LATE_S: Final = 60.0
"""A search that took too long is not repeated for this time, so that one pod does not block all other pods."""
LATEST_S: Final = 3600.0
"""The pause doubles with each repetition, up to this time, so that many such nodes are searched eventually."""
_MEMO_MAX: Final = 4096
_HERE_MAX: Final = 64
_SUSPENDED_MAX: Final = 16

Orders: TypeAlias = Callable[[ClaimsToAllocate, NodeDevices], Order]


class SearchLimits(NamedTuple):
    """Seconds that the search of one node may take, without pauses; 0 is no limit."""

    resting_s: float = 0.0
    """Limit of a search that yields: upstream's filterTimeout."""
    holding_s: float = 0.0
    """Limit of a search that blocks the event loop."""


LONGEST_ATTEMPT_S: Final = 30.0
"""Limit of an attempt's searches on all nodes, and of one node's search with filterTimeout 0."""
LONGEST_HOLD_S: Final = 2.0
"""Limit of a search that cannot yield: it blocks the event loop, and the renewal of the lease."""


_FIRST_STEP_S: Final = 1e-6
"""A search with a shorter limit ends before its first step, as upstream's does."""


def limits_of(filter_timeout_s: float, *, parity: bool) -> SearchLimits:
    """Return the limits for a filterTimeout, 0 for none. With parity it also limits searches that cannot yield."""
    if parity:
        return SearchLimits(filter_timeout_s, filter_timeout_s)
    resting_s = min(filter_timeout_s or LONGEST_ATTEMPT_S, LONGEST_ATTEMPT_S)
    return SearchLimits(resting_s, min(resting_s, LONGEST_HOLD_S))


class SearchVerdict(NamedTuple):
    """The result for a kind of nodes. `refusal` is "" if the claims fit.

    It has placeholders for the names of claims (`named`) and devices (`NodeVerdicts.text_on`).

    `failed`: the refusal is an error that ends the attempt.
    """

    refusal: str
    failed: bool
    stamp: int
    picked: tuple[Picked, ...] = ()


NO_DEVICES: Final = SearchVerdict(CANNOT_ALLOCATE, failed=False, stamp=0)
"""The verdict on a node without any device."""


class _Late(NamedTuple):
    """A search that was given up, and the time before which it is not repeated."""

    limit_s: float
    rest_s: float
    again_at: float
    stamp: int


class _Suspended(NamedTuple):
    """A search ahead that has taken too long, and what it has read of its node."""

    work: Work[SearchVerdict]
    slot: int
    in_use: Hashable
    stamp: int


Problem: TypeAlias = tuple[object, bytes, tuple[int, ...]]
"""The `NodeSearches`, the form of the claims, and the devices that each request can have."""
StoredVerdict: TypeAlias = tuple[SearchVerdict, tuple[int, ...]]


_Here: TypeAlias = BoundedCache[tuple[ClaimsToAllocate, int], tuple[NodeKind, Hashable, SearchVerdict]]


@dataclass(slots=True, eq=False)
class NodeSearches:
    """The searches of one profile: limits their time, and caches the results with the kinds of nodes."""

    on_nodes: DeviceNodes
    use: AllocationState
    clock: Clock
    rules: AllocatorFeatures
    limits: SearchLimits
    orders: Orders | None
    searched: Callable[[int], None] | None
    _here: _Here = field(default_factory=lambda: _Here(_HERE_MAX))
    _suspended: dict[tuple[ClaimsToAllocate, NodeKind], _Suspended] = field(default_factory=dict)

    def node_devices(self, slot: int, use: DeviceUse | None = None) -> NodeDevices:
        """Return a node's devices, with the current or another use. Texts are about all nodes of its kind."""
        use = self.use if use is None else use
        return NodeDevices(self.on_nodes, slot, use, rules=self.rules, is_for_kind=True)

    def known(self, demand: ClaimsToAllocate, kind: NodeKind) -> SearchVerdict | None:
        """Return the cached verdict for these claims, or for claims with equal forms and equal devices to select."""
        known: SearchVerdict | None = kind.memo.get(demand)
        if known is not None:
            return known if known.stamp == kind.visible_pools.stamp else None
        problem = self._problem(demand, kind)
        found: StoredVerdict | None = kind.memo.get(problem) if problem is not None else None
        if found is None:
            return None
        known = with_claims(found, demand)
        self._remember(kind, demand, known)
        return known

    def verdict(
        self,
        demand: ClaimsToAllocate,
        kind: NodeKind,
        slot: int,
        *,
        use: DeviceUse | None = None,
        limit_s: float | None = None,
    ) -> Work[SearchVerdict]:
        """Return the verdict on all nodes of the kind of `slot`, whichever shared pools they see. Raises TimedOut.

        The default of `limit_s` is `limits.resting_s`.
        """
        known = self.known(demand, kind)
        if known is not None:
            return known
        work = self._resumed(demand, kind) if use is None else None
        return (yield from self._within(work or self._searching(demand, kind, slot, use), demand, kind, limit_s))

    def ahead(self, demand: ClaimsToAllocate, kind: NodeKind, slot: int, *, limit_s: float) -> Work[SearchVerdict]:
        """As `verdict`, but a search that raises TimedOut is suspended, and `verdict` goes on with it."""
        known = self.known(demand, kind)
        if known is not None:
            return known
        work = self._searching(demand, kind, slot, None)
        try:
            return (yield from self._within(work, demand, kind, limit_s, keeps_open=True))
        except TimedOut:
            if inspect.getgeneratorstate(work) == inspect.GEN_SUSPENDED and not kind.visible_pools.views:
                if len(self._suspended) >= _SUSPENDED_MAX:
                    self._suspended.clear()
                in_use = self.node_devices(slot).in_use
                self._suspended[demand, kind] = _Suspended(work, slot, in_use, kind.visible_pools.stamp)
            raise

    def _resumed(self, demand: ClaimsToAllocate, kind: NodeKind) -> Work[SearchVerdict] | None:
        """Return the suspended search, unless what it reads has changed."""
        found = self._suspended.pop((demand, kind), None)
        if found is None or found.stamp != kind.visible_pools.stamp or self.on_nodes.kind(found.slot) is not kind:
            return None
        return found.work if found.in_use == self.node_devices(found.slot).in_use else None

    def here(
        self,
        demand: ClaimsToAllocate,
        kind: NodeKind,
        slot: int,
        use: DeviceUse | None = None,
        *,
        limit_s: float | None = None,
    ) -> Work[SearchVerdict]:
        """Return the verdict on this node; shared pools may have other numbers on other nodes. Raises TimedOut."""
        if not kind.visible_pools.views:
            return (yield from self.verdict(demand, kind, slot, use=use, limit_s=limit_s))
        work = self._searching_here(demand, kind, slot, use)
        return (yield from self._within(work, self._search_key(demand, slot, use), kind, limit_s))

    def _search_key(self, demand: ClaimsToAllocate, slot: int, use: DeviceUse | None) -> Hashable:
        """Return the key of a search that is not repeated for a while; with shared pools it contains their use."""
        return demand if use is None else (demand, slot, self.node_devices(slot, use).in_use)

    def _within(
        self, work: Work[T], key: Hashable, kind: NodeKind, limit_s: float | None, *, keeps_open: bool = False
    ) -> Work[T]:
        """Run the work; raise TimedOut when it has taken too long without pauses, and at once if it is known to."""
        limit_s = self.limits.resting_s if limit_s is None else limit_s
        late = self._late(kind, key)
        if late is not None and self.clock.now() < late.again_at and 0 < limit_s <= late.limit_s:
            raise TimedOut
        if 0 < limit_s < _FIRST_STEP_S:
            raise TimedOut
        left_s = limit_s or math.inf

        def spend(seconds: float) -> None:
            nonlocal left_s
            left_s -= seconds
            if left_s < 0:
                raise TimedOut

        try:
            return (yield from metered(work, self.clock, spend, keeps_open=keeps_open))
        except TimedOut:
            self._give_up(kind, key, limit_s)
            raise

    def _late(self, kind: NodeKind, key: Hashable) -> _Late | None:
        late: _Late | None = kind.memo.get((TimedOut, key))
        return late if late is not None and late.stamp == kind.visible_pools.stamp else None

    def _give_up(self, kind: NodeKind, key: Hashable, limit_s: float) -> None:
        """Remember a search that timed out, unless one with a higher limit is already remembered."""
        late, rest_s = self._late(kind, key), LATE_S
        if late is not None and late.limit_s >= limit_s:
            if late.limit_s > limit_s:
                return
            rest_s = min(2 * late.rest_s, LATEST_S)
        again_at = self.clock.now() + rest_s
        self._remember(kind, (TimedOut, key), _Late(limit_s, rest_s, again_at, kind.visible_pools.stamp))

    # -- searching -----------------------------------------------------------------------------------------------------

    def _searching(
        self, demand: ClaimsToAllocate, kind: NodeKind, slot: int, use: DeviceUse | None
    ) -> Work[SearchVerdict]:
        if kind.visible_pools.views:
            verdict = yield from self._searching_here(demand, kind, slot, use)
            self._remember(kind, demand, verdict)
            return verdict
        problem = self._problem(demand, kind)
        if problem is None:
            yield from self._selecting(demand, kind, slot)
            if (known := self.known(demand, kind)) is not None:
                return known
            problem = self._problem(demand, kind)
        verdict = yield from self._judging(demand, self.node_devices(slot, use), kind.visible_pools.stamp)
        self._remember(kind, demand, verdict)
        if problem is not None:
            self._remember(kind, problem, without_claims(verdict, demand))
        return verdict

    def _searching_here(
        self, demand: ClaimsToAllocate, kind: NodeKind, slot: int, use: DeviceUse | None
    ) -> Work[SearchVerdict]:
        """Search this node, unless all that a search reads of it is in the same use as last time."""
        node_devices = self.node_devices(slot, use)
        last = self._here.get((demand, slot))
        if last is not None and last[0] is kind and last[1] == node_devices.in_use:
            verdict = last[2]._replace(stamp=kind.visible_pools.stamp)
        else:
            verdict = yield from self._judging(demand, node_devices, kind.visible_pools.stamp)
        self._here.put((demand, slot), (kind, node_devices.in_use, verdict))
        return verdict

    def _judging(self, demand: ClaimsToAllocate, node_devices: NodeDevices, stamp: int) -> Work[SearchVerdict]:
        order = self.orders(demand, node_devices) if self.orders is not None else None
        search = Allocator(demand, node_devices, placeholders(demand), order=order)
        try:
            picked = yield from search.running()
        except FailedOnNode as error:
            return SearchVerdict(str(error), failed=False, stamp=stamp)
        except AllocationError as error:
            return SearchVerdict(str(error), failed=True, stamp=stamp)
        finally:
            if self.searched is not None:
                self.searched(search.steps)
        if picked is None:
            return SearchVerdict(CANNOT_ALLOCATE, failed=False, stamp=stamp)
        return SearchVerdict("", failed=False, stamp=stamp, picked=tuple(picked))

    def _remember(self, kind: NodeKind, key: Hashable, answer: SearchVerdict | StoredVerdict | _Late) -> None:
        if len(kind.memo) >= _MEMO_MAX:
            kind.memo.clear()
        kind.memo[key] = answer

    def _problem(self, demand: ClaimsToAllocate, kind: NodeKind) -> Problem | None:
        """Return a key of everything that a search on such nodes reads; None if it is unknown, or has no short key."""
        if not demand.form or kind.visible_pools.views:
            return None
        memo = kind.key[0].memo
        masks = []
        for _, _, request_data in demand.request_data:
            candidates: CandidateDevices | None = memo.get(request_data.selectors)
            if candidates is None or candidates.faults:
                return None
            masks.append(candidates.mask)
        return self, demand.form, tuple(masks)

    def _selecting(self, demand: ClaimsToAllocate, kind: NodeKind, slot: int) -> Work[None]:
        """Compute the devices that each request can select on such nodes."""
        if not demand.form:
            return
        memo = kind.key[0].memo
        node_devices: NodeDevices | None = None
        for _, _, request_data in demand.request_data:
            if request_data.selectors is None or memo.get(request_data.selectors) is not None:
                continue
            node_devices = node_devices or self.node_devices(slot)
            yield from request_data.selectors.evaluating(each.kind for each in node_devices.devices)
            if len(memo) > _MEMO_MAX:
                memo.clear()
            memo[request_data.selectors] = node_devices.selectable(request_data)


def without_claims(verdict: SearchVerdict, demand: ClaimsToAllocate) -> StoredVerdict:
    """Return a verdict that does not refer to the claims: for each picked device the index of its alternative."""
    return verdict, tuple(
        demand.claims[p.claim].requests[p.request].alternatives.index(p.request_data) for p in verdict.picked
    )


def with_claims(found: StoredVerdict, demand: ClaimsToAllocate) -> SearchVerdict:
    """Return the verdict for other claims of equal form."""
    verdict, alternatives = found
    requests = (
        demand.claims[p.claim].requests[p.request].alternatives[at] for p, at in zip(verdict.picked, alternatives)
    )
    return verdict._replace(
        picked=tuple(p._replace(request_data=request_data) for p, request_data in zip(verdict.picked, requests))
    )


def placeholders(demand: ClaimsToAllocate) -> tuple[str, ...]:
    """Return stand-ins for the claims' names in cached texts."""
    return tuple(f"\0{c}\0" for c in range(len(demand.claims)))


def named(text: str, names: Sequence[str]) -> str:
    """Replace the placeholders in the text by the names."""
    for c, name in enumerate(names):
        text = text.replace(f"\0{c}\0", name)
    return text
