"""Devices that nominated pods will have, and the claims that hold a node's devices (docs/spec/dra.md §1, §10).

The switch `devicePreemption` enables this. No device is reserved: a search picks the devices of nominated pods when
they are needed. The module remembers which devices were refused to other pods, and retries these pods when the
devices become available: the nomination ended, or the pod got, or will get, different devices.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from scheduler.api.core_v1 import Node
from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import (
    AllocationResult,
    ConsumerReference,
    DeviceClass,
    DeviceId,
    ResourceClaim,
    ResourceSlice,
)
from scheduler.cache.cluster import Cluster
from scheduler.cache.devices.allocation_state import AllocationState, HypotheticalState
from scheduler.cache.devices.claim_tracker import is_made_for
from scheduler.cache.devices.manager import may_be_devices
from scheduler.cache.devices.pools import PoolKey, PoolView
from scheduler.cache.devices.shared_pools import PoolVisibility
from scheduler.core import nodeset
from scheduler.core.caching import BoundedCache
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.core.feature_gates import CONSUMABLE
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState
from scheduler.framework.preemption_state import Preempting
from scheduler.plugins.dra.claims import claim_keys
from scheduler.plugins.dra.hints import FREED, Frees
from scheduler.plugins.dra.state import STATE, DeviceState, Variant
from scheduler.plugins.dra.structured.allocator import AllocationError
from scheduler.plugins.dra.structured.error_nodes import TimedOut
from scheduler.plugins.dra.structured.node_verdicts import LONGEST_HOLD_S, NodeVerdicts, SearchVerdict
from scheduler.plugins.dra.structured.requests import ClaimsToAllocate


@dataclass(slots=True, eq=False)
class HypotheticalNode:
    """One node in a dry run."""

    slot: int
    claims: Sequence[ResourceClaim]
    """Claims with devices that the node sees."""
    gone: set[str] = field(default_factory=set)
    """Uids of pods that have left the node."""
    kept: tuple[AllocationResult, ...] = ()

    def clone(self) -> HypotheticalNode:
        """Copy the node for a nested dry run."""
        return HypotheticalNode(self.slot, self.claims, set(self.gone), self.kept)

    @property
    def freed(self) -> frozenset[str]:
        """Claims whose users have all left."""
        gone = self.gone
        return frozenset(
            claim.uid
            for claim in self.claims
            if (users := claim.status.reserved_for) and gone.issuperset([user.uid for user in users])
        )


class DeviceHolders:
    """The claims that hold a node's devices, read from the cache."""

    def __init__(self, cluster: Cluster, preempting: Preempting) -> None:
        self._cluster = cluster
        self._devices = cluster.devices
        self._preempting = preempting

    def at(self, slot: int, known: dict[int, dict[str, ResourceClaim]]) -> tuple[ResourceClaim, ...]:
        """Return the claims with devices that the node sees. `known` caches the claims per pool."""
        found: dict[str, ResourceClaim] = {}
        for view in self._devices.on_nodes.pools(slot):
            if id(view) not in known:
                known[id(view)] = dict(self._claims_of(view))
            found |= known[id(view)]
        return tuple(found.values())

    def _claims_of(self, pool: PoolView) -> Iterator[tuple[str, ResourceClaim]]:
        """Yield claims as they are written; an allocation in flight cannot be preempted."""
        use = self._devices.use
        for each in (*pool.devices, *pool.elsewhere):
            for uid in (*use.holders(each.id), *(share.claim_uid for share in use.shares(each.id))):
                claim = self._devices.claims.by_uid(uid)
                if claim is not None and claim.is_allocated:
                    yield uid, claim

    def leaving(self, as_if: HypotheticalNode) -> frozenset[str]:
        """Return the claims that become free without further preemption: all their users are leaving or gone."""
        return frozenset(
            claim.uid for claim in as_if.claims if all(self._is_leaving(user) for user in claim.status.reserved_for)
        )

    def _is_leaving(self, user: ConsumerReference) -> bool:
        if user.api_group or user.resource != "pods":
            return False
        if self._cluster.is_broken(user.uid):
            return False
        pod = self._cluster.get(user.uid)
        if pod is None and self._preempting.is_nominated(user.uid):
            return False  # it is being bound, and keeps the claim
        if pod is None or pod.pod.metadata.deletion_timestamp is not None:
            return True
        return self._preempting.is_doomed(user.uid) or self._preempting.preemptor_of(user.uid) is not None


_REMEMBERED: Final = 4096

Look: TypeAlias = Callable[[CycleState, PodInfo, NodeSet], object | None]
"""DynamicResources' PreFilter: if it returns None, the state has what the pod requests."""
Kept: TypeAlias = tuple[AllocationResult, ...]
Part: TypeAlias = tuple[DeviceId, frozenset[tuple[str, int]] | None, int]
"""A device, or the n-th share of it with these amounts."""


class _Nominated(NamedTuple):
    """A nominated pod that requests devices."""

    slot: int
    pod: PodInfo
    variant: Variant


class _Pick(NamedTuple):
    """The devices that a nominated pod will have on its node, and those of them that other nodes see too."""

    kept: Kept
    shared: Kept


class _NodePicks(NamedTuple):
    """Cached device picks of the pods nominated to one node, in order; valid while `valid_for` is unchanged."""

    valid_for: tuple[object, ...]
    picks: tuple[_Pick, ...]


class _Avoided(NamedTuple):
    """Devices that other pods did not get because this nominated pod will have them."""

    pod: PodInfo
    parts: set[Part]
    newest: Kept
    """The last devices that were picked; all of them are in `parts`."""


class NominatedDevices:
    """The picks of one profile. Changes only its own caches."""

    def __init__(self, handle: Handle, verdicts: NodeVerdicts, look: Look, holders: DeviceHolders) -> None:
        self._cluster = handle.cluster
        self._nodes = handle.cluster.nodes
        self._devices = handle.cluster.devices
        self._verdicts = verdicts
        self._look = look
        self._preempting = handle.preempting
        self._holders = holders
        self._clock = handle.clock
        self._shares_count = CONSUMABLE in handle.feature_gates
        self._reached: WeakKeyDictionary[PoolVisibility, dict[ClaimsToAllocate, bool]] = WeakKeyDictionary()
        self._picks: BoundedCache[int, _NodePicks] = BoundedCache(_REMEMBERED)
        """By slot."""
        self._avoided: dict[str, _Avoided] = {}
        """By uid of the nominated pod."""
        self._limit = _REMEMBERED

    # -- devices of nominated pods -------------------------------------------------------------------------------------

    def on(self, known: DeviceState, as_if: HypotheticalNode, other: PodInfo) -> Kept:
        """Return the devices that the pod will have on its nominated node, besides those already kept there."""
        kept = self._pick(known, as_if, self._variant_of(other, as_if.slot))
        self._note(other, kept)
        return kept

    def elsewhere(self, known: DeviceState, pod: PodInfo, slot: int) -> Kept:
        """Return the devices this node sees that pods nominated to other nodes will have."""
        if not self._devices.on_nodes.has_shared:
            return ()
        if known.kept_elsewhere is None:
            known.kept_elsewhere = self._of_shared(known, pod)
        return tuple(each for there, some in known.kept_elsewhere.items() if there != slot for each in some)

    def as_if(self, without: frozenset[str], kept: Sequence[AllocationResult]) -> HypotheticalState:
        """Return the device use as if these claims had freed their devices and the kept devices were taken."""
        besides = AllocationState(shares_count=self._shares_count)
        for at, allocation in enumerate(kept):
            besides.hold(f"kept {at}", allocation)
        return HypotheticalState(self._devices.use, without, besides)

    def _variant_of(self, other: PodInfo, slot: int) -> Variant | None:
        """Return the variant of a pod nominated to the node; None if it requests no devices there."""
        state = CycleState()
        if self._look(state, other, 1 << slot) is not None or self._devices.on_nodes.problem:
            return None
        variant = state.get(STATE).variant(slot)
        return variant if variant is not None and variant.demand is not None else None

    def _pick(self, known: DeviceState, as_if: HypotheticalNode, variant: Variant | None) -> Kept:
        """Return the devices that a nominated pod will have: free ones if they suffice, else also leaving pods'.

        Returns nothing once the blocking searches of this attempt have taken `LONGEST_HOLD_S` together.
        """
        if variant is None or variant.demand is None:
            return ()
        freed = as_if.freed
        for without in (freed, freed | self._holders.leaving(as_if)):
            began = self._clock.now()
            if known.blocked_s >= LONGEST_HOLD_S:
                return ()
            try:
                found = self._verdicts.allocate(
                    variant.demand,
                    as_if.slot,
                    node_name=self._nodes.name(as_if.slot),
                    names=variant.names,
                    chance=random.Random(0),  # for share ids that are never written
                    use=self.as_if(without, as_if.kept),
                    limit_s=LONGEST_HOLD_S - known.blocked_s,
                )
            except (TimedOut, AllocationError):
                return ()
            finally:
                known.blocked_s += self._clock.now() - began
            if not isinstance(found, SearchVerdict):
                return found
        return ()

    def _of_shared(self, known: DeviceState, pod: PodInfo) -> dict[int, Kept]:
        """Return the shared devices that nominated pods will have, per node.

        O(nominated pods), and a search for each pod on a node where it may get shared devices.
        """
        nominated = list(self._nominated(but=pod))
        reached = nodeset.of(each.slot for each in nominated if self._reaches_shared(each))
        found: dict[int, Kept] = {}
        for each, pick in self._picks_of(known, nominated, reached):
            self._note(each.pod, pick.kept)
            found[each.slot] = found.get(each.slot, ()) + pick.shared
        return found

    def _nominated(self, *, but: PodInfo) -> Iterator[_Nominated]:
        """Yield nominated pods that request devices and have equal or higher priority, in order of nomination."""
        for name, other in self._preempting.nominated():
            slot = self._nodes.present_slot(name)
            if slot is None or self._cluster.get(other.uid):
                continue
            if other.uid == but.uid or other.priority < but.priority:
                continue
            variant = self._variant_of(other, slot)
            if variant is not None:
                yield _Nominated(slot, other, variant)

    def _picks_of(
        self, known: DeviceState, nominated: Iterable[_Nominated], nodes: NodeSet
    ) -> Iterator[tuple[_Nominated, _Pick]]:
        """Yield the devices that each nominated pod will have, on these nodes."""
        claims: dict[int, dict[str, ResourceClaim]] = {}
        by_slot: dict[int, list[_Nominated]] = {}
        for each in nominated:
            if nodes >> each.slot & 1:
                by_slot.setdefault(each.slot, []).append(each)
        for slot, here in by_slot.items():
            yield from zip(here, self._picks_on(known, slot, [each.variant for each in here], claims))

    def _picks_on(
        self, known: DeviceState, slot: int, variants: Sequence[Variant], claims: dict[int, dict[str, ResourceClaim]]
    ) -> tuple[_Pick, ...]:
        """Return the devices that the pods nominated to the node will have there, one after the other.

        Cached while the node sees the same devices in the same use of the same claims, and the same claims are
        leaving.
        """
        as_if = HypotheticalNode(slot, self._holders.at(slot, claims))
        kind = self._devices.on_nodes.kind(slot)
        if kind is None:
            return (_Pick((), ()),) * len(variants)
        requested = tuple((variant.demand, variant.names) for variant in variants)
        valid_for = (requested, kind, kind.visible_pools.stamp, self._holders.leaving(as_if), as_if.claims)
        last = self._picks.get(slot)
        if last is None or last.valid_for != valid_for:
            last = self._picks.put(slot, _NodePicks(valid_for, tuple(self._searched(known, as_if, variants))))
        return last.picks

    def _searched(self, known: DeviceState, as_if: HypotheticalNode, variants: Sequence[Variant]) -> Iterator[_Pick]:
        is_shared = self._devices.on_nodes.is_shared
        for variant in variants:
            kept = self._pick(known, as_if, variant)
            as_if.kept += kept
            yield _Pick(kept, tuple(one for one in kept if any(is_shared(each.id) for each in one.devices.results)))

    def _reaches_shared(self, nominated: _Nominated) -> bool:
        """Return whether any request can select a device of a shared pool that the node sees, free or not."""
        demand = nominated.variant.demand
        assert demand is not None
        kind = self._devices.on_nodes.kind(nominated.slot)
        views = kind.visible_pools.views if kind is not None else ()
        if kind is None or not views:
            return False
        answers = self._reached.setdefault(kind.visible_pools, {})
        known = answers.get(demand)
        if known is None:
            if len(answers) >= _REMEMBERED:
                answers.clear()
            selectors = {
                request_data.selectors
                for _, _, request_data in demand.request_data
                if request_data.selectors is not None
            }
            kinds = {each.kind for view in views for each in view.devices}
            known = any(each.of(device) is not False for each in selectors for device in kinds)
            answers[demand] = known
        return known

    # -- pods that wait for these devices ------------------------------------------------------------------------------

    def _note(self, other: PodInfo, kept: Kept) -> None:
        """Record devices for which another pod may be refused."""
        before = self._avoided.get(other.uid)
        if before is not None and before.newest is kept and before.pod is other:
            return
        parts = self._parts(kept)
        if before is not None:
            parts |= before.parts
        if not parts:
            return
        if len(self._avoided) >= self._limit:
            self._forget_ended(self._where())
            self._limit = max(_REMEMBERED, 2 * len(self._avoided))
        self._avoided[other.uid] = _Avoided(other, parts, kept)

    def _parts(self, kept: Kept) -> set[Part]:
        times: Counter[object] = Counter()
        parts: set[Part] = set()
        for result in (result for each in kept for result in each.devices.results if not result.admin_access):
            amounts = None
            if result.share_id is not None and self._shares_count:
                amounts = frozenset((name, amount.nano) for name, amount in (result.consumed_capacity or {}).items())
            parts.add((result.id, amounts, times[result.id, amounts]))
            times[result.id, amounts] += 1
        return parts

    def _where(self) -> dict[str, str]:
        """Return uid → node of all nominated pods."""
        return {other.uid: name for name, other in self._preempting.nominated()}

    def _forget_ended(self, where: Mapping[str, str]) -> None:
        """Drop pods that are no longer nominated; assumed pods may still take their devices."""
        for uid in [uid for uid in self._avoided if uid not in where and not self._cluster.is_assumed(uid)]:
            del self._avoided[uid]

    def _left(self, avoided: _Avoided) -> set[Part]:
        """Return the parts that are not taken. Equal shares of a device count as taken only by the pod's own claims."""
        use, claims, pod = self._devices.use, self._devices.claims, avoided.pod.pod
        own = {claim.uid for key in claim_keys(pod) if (claim := claims.get(key)) is not None}
        own.update(claim.uid for claim in claims.all_made_for(pod))

        def is_taken(part: Part) -> bool:
            device, amounts, nth = part
            if amounts is None:
                return use.is_used(device)
            equal = (each for each in use.shares(device) if each.claim_uid in own)
            return use.is_exclusive(device) or sum(frozenset(each.consumed.items()) == amounts for each in equal) > nth

        return {part for part in avoided.parts if not is_taken(part)}

    def _freed(self, uids: Iterable[str], *, on: Iterable[str] = ()) -> Iterator[Hashable]:
        """Yield FREED if a device that was kept for one of these pods is still free, so that other pods may have it.

        `on`: also check all pods nominated to these nodes, because a device of one pod may be picked for another.
        No search runs, so a retried pod may fail again. The record is dropped, so this happens once per refusal.
        """
        there = set(on)
        candidates = {uid for uid, name in self._where().items() if name in there} | set(uids)
        freed = [uid for uid in candidates & self._avoided.keys() if self._left(self._avoided[uid])]
        for uid in freed:
            del self._avoided[uid]
        if freed:
            yield FREED

    def frees(self) -> Sequence[Frees]:
        """Return the events after which other pods may get devices that were kept."""
        return (
            (ClusterEvent(Resource.ASSIGNED_POD, Action.ADD | Action.DELETE), self._pod_changed),
            (ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD | UPDATE | Action.DELETE), self._claim_changed),
            (ClusterEvent(Resource.DEVICE_CLASS, Action.ADD | UPDATE | Action.DELETE), self._class_changed),
            (ClusterEvent(Resource.RESOURCE_SLICE, Action.ADD | UPDATE | Action.DELETE), self._slice_changed),
            (ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE | Action.DELETE), self._node_changed),
        )

    def _pod_changed(self, old: PodInfo | None, new: PodInfo | None) -> Iterator[Hashable]:
        """Handle a nominated pod that was bound or is no longer nominated."""
        pod = new if new is not None else old
        if pod is None or not self._avoided:
            return
        if pod.uid in self._avoided or pod.pod.spec.resource_claims or any(map(may_be_devices, pod.requests)):
            yield from self._freed([pod.uid], on=[pod.node_name or pod.pod.status.nominated_node_name])

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> Iterator[Hashable]:
        """Handle a change of a nominated pod's claim, or of a claim that takes or frees a kept device."""
        claim = new if new is not None else old
        if claim is None or not self._avoided:
            return
        if old is not None and old.is_allocated and (new is None or old.status.reserved_for == new.status.reserved_for):
            return
        where = self._where()
        self._forget_ended(where)
        allocation = claim.status.allocation
        taken = {result.id for result in allocation.devices.results} if allocation is not None else set()
        drawn_on = {pool for pool in _pools(taken) if self._has_counters(pool)}
        uids = {other.uid for _, other in self._preempting.nominated() if _uses(other, claim)}
        for uid, each in self._avoided.items():
            if _uses(each.pod, claim) or _meets(each.parts, taken, drawn_on):
                uids.add(uid)
        yield from self._freed(uids, on=[where[uid] for uid in uids if uid in where])

    def _has_counters(self, pool: PoolKey) -> bool:
        return any(each.spec.shared_counters for each in self._devices.on_nodes.published(pool))

    def _class_changed(self, old: DeviceClass | None, new: DeviceClass | None) -> Iterator[Hashable]:
        """Handle a changed class: nominated pods may select other devices."""
        if old is None or new is None or old.spec != new.spec:
            yield from self._freed(list(self._avoided))

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> Iterator[Hashable]:
        """Handle a changed slice: nominated pods may have to take other devices."""
        pools = {PoolKey(each.spec.driver, each.spec.pool.name) for each in (old, new) if each is not None}
        yield from self._freed([uid for uid, each in self._avoided.items() if _meets(each.parts, set(), pools)])

    def _node_changed(self, old: Node | None, new: Node | None) -> Iterator[Hashable]:
        """Handle a deleted node, or changed amounts of resources that devices can serve."""
        if old is None or not self._avoided:
            return
        if new is None or _served_amounts(old) != _served_amounts(new):
            yield from self._freed([], on=[old.metadata.name])


def _served_amounts(node: Node) -> dict[str, object]:
    """Return the node's own amounts of resources that device classes may serve."""
    return {name: amount for name, amount in node.status.allocatable.items() if may_be_devices(name)}


def _pools(devices: Iterable[DeviceId]) -> set[PoolKey]:
    return {PoolKey(device.driver, device.pool) for device in devices}


def _uses(pod: PodInfo, claim: ResourceClaim) -> bool:
    return claim.key in claim_keys(pod.pod) or is_made_for(claim, pod.pod) or claim.is_reserved_for(pod.uid)


def _meets(parts: set[Part], devices: set[DeviceId], pools: set[PoolKey]) -> bool:
    """Return whether any part is one of these devices, or in one of these pools."""
    own = {device for device, *_ in parts}
    return not devices.isdisjoint(own) or not pools.isdisjoint(_pools(own))
