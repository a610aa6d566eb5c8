"""The verdicts on all nodes for the claims of a pod, and the searches that find them (docs/adr/0010).

Nodes with equal devices in equal use are searched once, for all pods with equal claims, and only nodes that changed are
searched again. A search that takes too long is postponed: Filter lets the node pass, and Verify goes on with the search
if the node is chosen.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from operator import or_
from typing import Final, NamedTuple, TypeAlias

from scheduler.api.resource_v1 import AllocationResult
from scheduler.cache.devices.allocation_state import AllocationState, DeviceUse
from scheduler.cache.devices.node_kinds import DeviceNodes, NodeKind
from scheduler.core import nodeset
from scheduler.core.caching import BoundedCache
from scheduler.core.clock import Clock
from scheduler.core.cooperative import Work, finish, metered
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.plugins.dra.structured.allocation_result import results
from scheduler.plugins.dra.structured.allocator import AllocationError, Allocator, FailedOnNode, Order, Picked
from scheduler.plugins.dra.structured.error_nodes import TimedOut
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures, NodeDevices
from scheduler.plugins.dra.structured.requests import ClaimsToAllocate

CANNOT_ALLOCATE: Final = "cannot allocate all claims"
BACKOFF_S: Final = 60.0
"""A search that took too long is not repeated for this time, so that one pod does not block all other pods."""
BACKOFF_MAX_S: Final = 3600.0
"""The back-off doubles with each repetition, up to this time, so that many such nodes are searched eventually."""
LONGEST_ATTEMPT_S: Final = 30.0
"""Limit of an attempt's searches on all nodes, and of one node's search with filterTimeout 0."""
LONGEST_HOLD_S: Final = 2.0
"""Limit of a search that cannot yield: it blocks the event loop, and the renewal of the lease."""
_FIRST_STEP_S: Final = 1e-6
"""A search with a shorter limit ends before its first step, as upstream's does."""
_BUDGET_S: Final = 0.0003
_AHEAD_S: Final = 0.002
"""A search that takes longer is postponed until Verify, if the node is chosen: some searches take seconds."""
_KINDS_MAX: Final = 512
_DEMANDS_MAX: Final = 1024
_SEARCHED_NODES_MAX: Final = 64
_SUSPENDED_MAX: Final = 16

Orders: TypeAlias = Callable[[ClaimsToAllocate, NodeDevices], Order]


class SearchLimits(NamedTuple):
    """Seconds that the search of one node may take, without pauses; 0 is no limit."""

    resting_s: float = 0.0
    """Limit of a search that yields: upstream's filterTimeout."""
    holding_s: float = 0.0
    """Limit of a search that blocks the event loop."""


_NO_LIMITS: Final = SearchLimits()


def limits_of(filter_timeout_s: float, *, parity: bool) -> SearchLimits:
    """Return the limits for a filterTimeout, 0 for none. With parity it also limits searches that cannot yield."""
    # kube-scheduler searches in a goroutine per node, and a long search delays nothing else. In parity its limit
    # therefore holds everywhere, whatever it costs.
    if parity:
        return SearchLimits(filter_timeout_s, filter_timeout_s)
    resting_s = min(filter_timeout_s or LONGEST_ATTEMPT_S, LONGEST_ATTEMPT_S)
    return SearchLimits(resting_s, min(resting_s, LONGEST_HOLD_S))


class SearchVerdict(NamedTuple):
    """The result for a kind of nodes. `refusal` is "" if the claims fit.

    It has placeholders for the names of claims (`named`) and devices (`NodeVerdicts.text_on`).

    `failed`: the refusal is an error that ends the attempt.
    """

    refusal: str = ""
    failed: bool = False
    picked: tuple[Picked, ...] = ()


NO_DEVICES: Final = SearchVerdict(CANNOT_ALLOCATE)
"""The verdict on a node without any device."""


class _Backoff(NamedTuple):
    """A search that took too long, and the time before which it is not repeated with the same or a smaller limit."""

    stamp: int
    limit_s: float = -1.0
    pause_s: float = 0.0
    until: float = 0.0


class _Suspended(NamedTuple):
    """A search that was postponed, and the use of the devices that it has read."""

    work: Work[SearchVerdict]
    slot: int
    in_use: Hashable


@dataclass(slots=True)
class ClaimsVerdicts:
    """The verdicts on all nodes for one `ClaimsToAllocate`. The sets are disjoint; other nodes were not searched."""

    position: int
    shared_stamp: int
    fit: NodeSet = EMPTY
    refused: dict[str, NodeSet] = field(default_factory=dict)
    failed: dict[str, NodeSet] = field(default_factory=dict)
    postponed: NodeSet = EMPTY
    """Nodes whose search took too long; Verify searches them."""

    @property
    def erring(self) -> NodeSet:
        """Nodes whose search ends the attempt."""
        return reduce(or_, self.failed.values(), EMPTY)

    @property
    def searched(self) -> NodeSet:
        """Nodes with a known verdict."""
        return reduce(or_, self.refused.values(), self.fit | self.erring)

    def note(self, verdict: SearchVerdict, nodes: NodeSet) -> None:
        """Record a verdict on nodes without one."""
        self.postponed &= ~nodes
        if not verdict.refusal:
            self.fit |= nodes
        else:
            into = self.failed if verdict.failed else self.refused
            into[verdict.refusal] = into.get(verdict.refusal, EMPTY) | nodes

    def forget(self, nodes: NodeSet) -> None:
        self.fit &= ~nodes
        self.postponed &= ~nodes
        self.refused = {text: rest for text, some in self.refused.items() if (rest := some & ~nodes)}
        self.failed = {text: rest for text, some in self.failed.items() if (rest := some & ~nodes)}


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
        self._use = use
        self._clock = clock
        self._rules = rules
        self.limits: Final = limits
        self._orders = orders
        self._on_search = searched
        self._ahead_s = min(_AHEAD_S, limits.resting_s or _AHEAD_S)
        self._verdicts: BoundedCache[ClaimsToAllocate, ClaimsVerdicts] = BoundedCache(_DEMANDS_MAX)
        self._by_node: BoundedCache[tuple[ClaimsToAllocate, int], tuple[NodeKind, Hashable, SearchVerdict]]
        self._by_node = BoundedCache(_SEARCHED_NODES_MAX)
        """The last results for nodes that see shared pools: these have other numbers on each node."""
        self._suspended: BoundedCache[tuple[ClaimsToAllocate, NodeKind], _Suspended] = BoundedCache(_SUSPENDED_MAX)

    # -- all nodes -----------------------------------------------------------------------------------------------------

    def search_some(self, demand: ClaimsToAllocate, nodes: NodeSet) -> Work[ClaimsVerdicts]:
        """Return the current verdicts after searching some of the nodes without one, for about `_BUDGET_S`.

        It never searches all kinds of nodes: these can be as many as nodes.
        """
        # A new demand meets thousands of nodes. Filter needs only some that fit, because the best ones are verified;
        # the rest is found in later attempts, a fraction of a millisecond at a time.
        verdicts = self._current(demand)
        until = self._clock.now() + _BUDGET_S
        for kind, new in self._kinds_of(nodes, verdicts.searched | verdicts.postponed):
            yield from self._search_kind(demand, verdicts, kind, nodes=new, limit_s=self._ahead_s)
            if self._clock.now() > until:
                break
        return verdicts

    def search_all(self, demand: ClaimsToAllocate, nodes: NodeSet) -> Work[ClaimsVerdicts]:
        """Return the verdicts after searching each kind of these nodes. Searches that take too long are postponed."""
        verdicts = self._current(demand)
        for kind, new in self._kinds_of(nodes, verdicts.searched):
            yield from self._search_kind(demand, verdicts, kind, nodes=new)
            yield
        return verdicts

    def first_error(self, demand: ClaimsToAllocate, nodes: NodeSet) -> Work[tuple[int, str] | None]:
        """Return slot and error of the first of these nodes whose search ends the attempt.

        A search that takes too long is left to Verify.
        """
        verdicts = self._current(demand)
        # Slots in ascending order are the order in which the cache holds the nodes, so the error that is raised does
        # not depend on what was searched before.
        candidates = nodes & self._on_nodes.placed
        while candidates := candidates & ~(verdicts.searched & ~verdicts.erring):
            first = candidates & -candidates
            text = next((text for text, some in verdicts.failed.items() if some & first), "")
            if text:
                return first.bit_length() - 1, text
            kind = self._on_nodes.kind(first.bit_length() - 1)
            assert kind is not None
            new = kind.nodes & ~verdicts.searched
            yield from self._search_kind(demand, verdicts, kind, nodes=new)
            candidates &= ~(new & verdicts.postponed)
            yield
        return None

    def _current(self, demand: ClaimsToAllocate) -> ClaimsVerdicts:
        """Return the verdicts without those on nodes that have changed."""
        on_nodes = self._on_nodes
        on_nodes.catch_up()
        verdicts = self._verdicts.get(demand)
        changed = on_nodes.changed_since(verdicts.position) if verdicts is not None else None
        # Shared pools concern any number of nodes, so their changes are not followed node by node. A result is cheap
        # to find again in the memo of the kind.
        if verdicts is None or changed is None or verdicts.shared_stamp != on_nodes.shared.stamp:
            return self._verdicts.put(demand, ClaimsVerdicts(on_nodes.position, on_nodes.shared.stamp))
        verdicts.position = on_nodes.position
        slots = set(changed)
        if slots:
            verdicts.forget(nodeset.of(slots))
        return verdicts

    def _kinds_of(self, nodes: NodeSet, searched: NodeSet) -> Iterator[tuple[NodeKind, NodeSet]]:
        """Yield each kind of these nodes that is not searched, and all its nodes that are not searched."""
        unsearched = nodes & self._on_nodes.placed & ~searched
        while unsearched:
            kind = self._on_nodes.kind((unsearched & -unsearched).bit_length() - 1)
            assert kind is not None
            # One search answers for all nodes of the kind, also for those that this attempt does not look at.
            new = kind.nodes & ~searched
            yield kind, new
            unsearched &= ~new

    def _search_kind(
        self,
        demand: ClaimsToAllocate,
        verdicts: ClaimsVerdicts,
        kind: NodeKind,
        *,
        nodes: NodeSet,
        limit_s: float | None = None,
    ) -> Work[None]:
        """Search nodes of one kind; with `limit_s` ahead of Verify, which goes on with a search that took longer."""
        slot = nodes.bit_length() - 1
        try:
            verdict = yield from self._of_kind(demand, kind, slot, limit_s=limit_s, suspends=limit_s is not None)
        # The node is neither fit nor refused: Filter lets it pass, and only if it is the best node does Verify spend
        # the time.
        except TimedOut:
            verdicts.postponed |= nodes
        else:
            verdicts.note(verdict, nodes)

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
        # The loop runs in each attempt. With more kinds than this the cluster is so mixed that a tie between equal
        # nodes is rare.
        kinds = list(islice(self._on_nodes.kinds(), _KINDS_MAX + 1))
        if len(kinds) > _KINDS_MAX:
            return nodes
        free_devices = [(kind.free, some) for kind in kinds if (some := kind.nodes & nodes)]
        fewest = min((free for free, _ in free_devices), default=0)
        return reduce(or_, (some for free, some in free_devices if free == fewest), EMPTY) or nodes

    # -- one node ------------------------------------------------------------------------------------------------------

    def verdict(self, demand: ClaimsToAllocate, slot: int, *, limit_s: float | None = None) -> Work[SearchVerdict]:
        """Return the exact verdict for one node. Raises TimedOut."""
        kind = self._on_nodes.kind(slot)
        if kind is None:
            return NO_DEVICES
        verdict = yield from self._of_kind(demand, kind, slot, limit_s=limit_s)
        # Verify has found out what Filter has postponed. The next pod with this demand profits.
        verdicts = self._verdicts.get(demand)
        if verdicts is not None and verdicts.postponed & kind.nodes:
            verdicts.note(verdict, verdicts.postponed & kind.nodes)
        return verdict

    def picked(
        self, demand: ClaimsToAllocate, slot: int, use: DeviceUse | None = None, *, limit_s: float | None = None
    ) -> Work[SearchVerdict]:
        """Return the devices that the claims would get on this node, or why none. Raises TimedOut.

        `use`: as if devices were in this use. The verdict is then cached for all nodes of the same kind in this use,
        unless the node sees a shared pool. The default of `limit_s` is `limits.resting_s`.
        """
        if use is None:
            verdict = yield from self.verdict(demand, slot, limit_s=limit_s)
            kind = self._on_nodes.kind(slot)
            # The picked devices are numbers. They mean the same devices on all nodes of a kind, unless a pool of the
            # network sorts between the node's own ones.
            if kind is None or verdict.refusal or not kind.visible_pools.views:
                return verdict
        else:
            self._on_nodes.catch_up()
            kind = self._on_nodes.kind_if(slot, use)
            if kind is None:
                return NO_DEVICES
            if not kind.visible_pools.views:
                return (yield from self._of_kind(demand, kind, slot, use, limit_s=limit_s))
        search = self._search_node(demand, kind, slot, use)
        key = demand if use is None else (demand, slot, self._node_devices(slot, use).in_use)
        return (yield from self._limited(search, kind, key, limit_s))

    def allocate(
        self,
        demand: ClaimsToAllocate,
        slot: int,
        *,
        node_name: str,
        names: Sequence[str],
        rng: random.Random,
        use: DeviceUse | None = None,
    ) -> tuple[AllocationResult, ...] | SearchVerdict:
        """Return the claims' allocations on this node, or the verdict that refuses them.

        Raises AllocationError, TimedOut.

        Blocks the event loop while it searches, for at most `limits.holding_s`, unless `picked` has run before.
        `use`: as `picked`.
        """
        # Reserve must not yield: between the search and the booking no other pod may take the devices. `picked` has
        # run in `prepare_reserve`, so this call mostly reads the memo.
        verdict = finish(self.picked(demand, slot, use, limit_s=self.limits.holding_s))
        if verdict.refusal or self._on_nodes.kind(slot) is None:
            return verdict
        node_devices = self._node_devices(slot, use)
        return results(demand, verdict.picked, node_devices, node_name=node_name, names=names, rng=rng)

    def text_on(self, slot: int, text: str, names: Sequence[str]) -> str:
        """Return a refusal with the names of the claims and of the node's devices."""
        if "\1" in text:
            text = self._node_devices(slot).placed(text)
        return named(text, names)

    # -- one search for all nodes of a kind ----------------------------------------------------------------------------

    def _of_kind(
        self,
        demand: ClaimsToAllocate,
        kind: NodeKind,
        slot: int,
        use: DeviceUse | None = None,
        *,
        limit_s: float | None = None,
        suspends: bool = False,
    ) -> Work[SearchVerdict]:
        """Return the verdict on all nodes of the kind of `slot`, whichever shared pools they see. Raises TimedOut.

        `suspends`: a later call goes on with a search that took too long.
        """
        verdict = self._cached(demand, kind)
        if verdict is not None:
            return verdict
        # A search ahead of Verify never goes on with another one: while it backs off it ends before its first step.
        resumed = None if suspends else self._resumed(demand, kind)
        search = resumed or self._search(demand, kind, slot, use)
        try:
            return (yield from self._limited(search, kind, demand, limit_s, keeps_open=suspends))
        except TimedOut:
            # A search that timed out within its step cannot go on: an exception has ended its generator.
            is_suspended = inspect.getgeneratorstate(search) == inspect.GEN_SUSPENDED
            if suspends and is_suspended and not kind.visible_pools.views:
                in_use = self._node_devices(slot).in_use
                self._suspended.put((demand, kind), _Suspended(search, slot, in_use))
            raise

    def _resumed(self, demand: ClaimsToAllocate, kind: NodeKind) -> Work[SearchVerdict] | None:
        """Return the suspended search, unless what it reads has changed."""
        # The search reads counters when it needs them. If the node has become another kind and returned, it may have
        # read both states.
        found = self._suspended.pop((demand, kind))
        if found is None or self._on_nodes.kind(found.slot) is not kind:
            return None
        return found.work if found.in_use == self._node_devices(found.slot).in_use else None

    def _limited(
        self,
        search: Work[SearchVerdict],
        kind: NodeKind,
        key: Hashable,
        limit_s: float | None,
        *,
        keeps_open: bool = False,
    ) -> Work[SearchVerdict]:
        """Run the search; raise TimedOut when it has taken too long without pauses, and at once while it backs off."""
        limit_s = self.limits.resting_s if limit_s is None else limit_s
        key, stamp = (self, TimedOut, key), kind.visible_pools.stamp
        backoff: _Backoff | None = kind.memo.get(key)
        if backoff is None or backoff.stamp != stamp:
            backoff = _Backoff(stamp)
        # A smaller limit cannot succeed where a larger one has not. A larger limit may: a search ahead has 2 ms, and
        # Verify ten seconds.
        if 0 < limit_s < _FIRST_STEP_S or (0 < limit_s <= backoff.limit_s and self._clock.now() < backoff.until):
            raise TimedOut
        left_s = limit_s or math.inf

        def spend(seconds: float) -> None:
            nonlocal left_s
            left_s -= seconds
            if left_s < 0:
                raise TimedOut

        try:
            return (yield from metered(search, self._clock, spend, keeps_open=keeps_open))
        except TimedOut:
            # A search with a small limit must not shorten the back-off of one with a large limit. The same limit that
            # is exceeded again doubles it.
            if limit_s >= backoff.limit_s:
                pause_s = min(2 * backoff.pause_s, BACKOFF_MAX_S) if limit_s == backoff.limit_s else BACKOFF_S
                kind.memo[key] = _Backoff(stamp, limit_s, pause_s, self._clock.now() + pause_s)
            raise

    # -- the search ----------------------------------------------------------------------------------------------------

    def _cached(self, demand: ClaimsToAllocate, kind: NodeKind) -> SearchVerdict | None:
        """Return the result of an equal search: of claims with an equal form and equal devices to select."""
        stamp, verdict = kind.memo.get(self._key(demand, kind)) or (None, None)
        return verdict if stamp == kind.visible_pools.stamp else None

    def _key(self, demand: ClaimsToAllocate, kind: NodeKind) -> Hashable:
        """Return a key of everything that a search on such nodes reads of the claims.

        These are the claims themselves where a selector fails, because texts quote it, or is not evaluated yet.
        """
        # Claims with different selectors often select the same devices. Their search is the same search, so the key
        # has the selected devices in place of the selectors.
        if demand.form and not kind.visible_pools.views:
            masks = []
            for _, _, request_data in demand.request_data:
                selected = kind.key[0].memo.get(request_data.selectors)
                if selected is None or selected.faults:
                    return self, demand
                masks.append(selected.mask)
            return self, demand.form, tuple(masks)
        return self, demand

    def _search(
        self, demand: ClaimsToAllocate, kind: NodeKind, slot: int, use: DeviceUse | None
    ) -> Work[SearchVerdict]:
        if kind.visible_pools.views:
            verdict = yield from self._search_node(demand, kind, slot, use)
        else:
            node_devices = self._node_devices(slot, use)
            # Before this step the key is not known, because it contains what the selectors select. Another demand may
            # have led to the same key.
            yield from self._select(demand, kind, node_devices)
            cached = self._cached(demand, kind)
            if cached is not None:
                return cached
            verdict = yield from self._allocator(demand, node_devices)
        kind.memo[self._key(demand, kind)] = kind.visible_pools.stamp, verdict
        return verdict

    def _select(self, demand: ClaimsToAllocate, kind: NodeKind, node_devices: NodeDevices) -> Work[None]:
        """Compute the devices that each request can select on such nodes."""
        memo = kind.key[0].memo
        for _, _, request_data in demand.request_data if demand.form else ():
            if request_data.selectors is not None and memo.get(request_data.selectors) is None:
                yield from request_data.selectors.evaluating(each.kind for each in node_devices.devices)
                memo[request_data.selectors] = node_devices.selectable(request_data)

    def _search_node(
        self, demand: ClaimsToAllocate, kind: NodeKind, slot: int, use: DeviceUse | None
    ) -> Work[SearchVerdict]:
        """Search this node, unless everything that a search reads of it is in the same use as last time."""
        node_devices = self._node_devices(slot, use)
        cached_kind, in_use, verdict = self._by_node.get((demand, slot)) or (None, None, NO_DEVICES)
        # Reserve makes this call again right after `prepare_reserve`. Shared pools make it different on each node, so
        # few nodes are kept.
        if cached_kind is not kind or in_use != node_devices.in_use:
            verdict = yield from self._allocator(demand, node_devices)
        self._by_node.put((demand, slot), (kind, node_devices.in_use, verdict))
        return verdict

    def _allocator(self, demand: ClaimsToAllocate, node_devices: NodeDevices) -> Work[SearchVerdict]:
        order = self._orders(demand, node_devices) if self._orders is not None else None
        # The text of a refusal names claims and devices. Placeholders stand for both, so that one text serves all
        # pods and all nodes of the kind.
        search = Allocator(demand, node_devices, placeholders(demand), order=order)
        try:
            picked = yield from search.running()
        except (FailedOnNode, AllocationError) as error:
            return SearchVerdict(str(error), failed=isinstance(error, AllocationError))
        finally:
            if self._on_search is not None:
                self._on_search(search.steps)
        return SearchVerdict(picked=tuple(picked)) if picked is not None else NO_DEVICES

    def _node_devices(self, slot: int, use: DeviceUse | None = None) -> NodeDevices:
        """Return a node's devices, with the current or another use. Texts are about all nodes of its kind."""
        return NodeDevices(self._on_nodes, slot, self._use if use is None else use, rules=self._rules, is_for_kind=True)


def placeholders(demand: ClaimsToAllocate) -> tuple[str, ...]:
    """Return stand-ins for the claims' names in cached texts."""
    return tuple(f"\0{c}\0" for c in range(len(demand.claims)))


def named(text: str, names: Sequence[str]) -> str:
    """Replace the placeholders in the text by the names."""
    for c, name in enumerate(names):
        text = text.replace(f"\0{c}\0", name)
    return text
