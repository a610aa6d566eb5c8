"""Devices that nominated pods will have, and the claims that hold a node's devices (docs/spec/dra.md §10; switch devicePreemption).

Who has the devices of a node: claims, as they are written, and the pods that use these (docs/spec/dra.md §1).

What nominated pods will have of devices, and who waits because of that (docs/spec/dra.md §10; switch devicePreemption).

Nothing of it is held: a search picks it for them whenever somebody asks. What is remembered is what others were refused for,
so that they are tried again once it is for nobody: the nomination ended, or the pod got other devices or will get others.
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
from scheduler.plugins.dra.allocator import AllocationError
from scheduler.plugins.dra.claims import claim_keys
from scheduler.plugins.dra.error_nodes import TimedOut
from scheduler.plugins.dra.hints import FREED, Frees
from scheduler.plugins.dra.node_verdicts import LONGEST_HOLD_S, NodeVerdicts, SearchVerdict
from scheduler.plugins.dra.requests import ClaimsToAllocate
from scheduler.plugins.dra.state import STATE, DeviceState, Variant


@dataclass(slots=True, eq=False)
class HypotheticalNode:
    """One node in a trial."""

    slot: int
    claims: Sequence[ResourceClaim]
    """Those with devices that the node sees."""
    gone: set[str] = field(default_factory=set)
    """Uids of pods that have left it."""
    kept: tuple[AllocationResult, ...] = ()

    def clone(self) -> HypotheticalNode:
        """For a trial within."""
        return HypotheticalNode(self.slot, self.claims, set(self.gone), self.kept)

    @property
    def freed(self) -> frozenset[str]:
        """Claims of which nobody is left."""
        gone = self.gone
        return frozenset(
            claim.uid
            for claim in self.claims
            if (users := claim.status.reserved_for) and gone.issuperset([user.uid for user in users])
        )


class DeviceHolders:
    """Looks at the cache; keeps nothing."""

    def __init__(self, cluster: Cluster, preempting: Preempting) -> None:
        self._cluster = cluster
        self._devices = cluster.devices
        self._preempting = preempting

    def at(self, slot: int, known: dict[int, dict[str, ResourceClaim]]) -> tuple[ResourceClaim, ...]:
        """Those with devices that the node sees. `known` has those of pools that have been looked at."""
        found: dict[str, ResourceClaim] = {}
        for view in self._devices.on_nodes.pools(slot):
            if id(view) not in known:
                known[id(view)] = dict(self._claims_of(view))
            found |= known[id(view)]
        return tuple(found.values())

    def _claims_of(self, pool: PoolView) -> Iterator[tuple[str, ResourceClaim]]:
        """As they are written; what is still in flight is nobody's to be evicted."""
        use = self._devices.use
        for each in (*pool.devices, *pool.elsewhere):
            for uid in (*use.holders(each.id), *(share.claim_uid for share in use.shares(each.id))):
                claim = self._devices.claims.by_uid(uid)
                if claim is not None and claim.is_allocated:
                    yield uid, claim

    def leaving(self, as_if: HypotheticalNode) -> frozenset[str]:
        """Claims that are given back without anybody's doing: all their users go, or have gone."""
        return frozenset(
            claim.uid for claim in as_if.claims if all(self._goes(user) for user in claim.status.reserved_for)
        )

    def _goes(self, user: ConsumerReference) -> bool:
        if user.api_group or user.resource != "pods":
            return False
        if self._cluster.is_broken(user.uid):
            return False
        pod = self._cluster.get(user.uid)
        if pod is None and self._preempting.is_nominated(user.uid):
            return False  # on its way to its node, and the claim with it
        if pod is None or pod.pod.metadata.deletion_timestamp is not None:
            return True
        return self._preempting.is_doomed(user.uid) or self._preempting.preemptor_of(user.uid) is not None


_REMEMBERED: Final = 4096

Look: TypeAlias = Callable[[CycleState, PodInfo, NodeSet], object | None]
"""DynamicResources' PreFilter: what a pod asks nodes for is in the state, if it answers None."""
Kept: TypeAlias = tuple[AllocationResult, ...]
Part: TypeAlias = tuple[DeviceId, frozenset[tuple[str, int]] | None, int]
"""A device, or as much of it for the first, second … time."""


class _Nominated(NamedTuple):
    """A pod that asks the node it is nominated to for devices."""

    slot: int
    pod: PodInfo
    variant: Variant


class _Due(NamedTuple):
    """What a pod nominated to a node will have there, and what of that other nodes see as well."""

    kept: Kept
    shared: Kept


class _Dues(NamedTuple):
    """Of the pods nominated to a node, one after the other, as long as nothing of this is otherwise."""

    rests_on: tuple[object, ...]
    dues: tuple[_Due, ...]


class _Avoided(NamedTuple):
    """What others did not get because it was kept for this pod."""

    pod: PodInfo
    parts: set[Part]
    newest: Kept
    """All of it is among the parts."""


class NominatedDevices:
    """Of one profile. Changes nothing but its own memory."""

    def __init__(self, handle: Handle, boards: NodeVerdicts, look: Look, holders: DeviceHolders) -> None:
        self._cluster = handle.cluster
        self._nodes = handle.cluster.nodes
        self._devices = handle.cluster.devices
        self._boards = boards
        self._look = look
        self._preempting = handle.preempting
        self._holders = holders
        self._clock = handle.clock
        self._shares_count = CONSUMABLE in handle.feature_gates
        self._reached: WeakKeyDictionary[PoolVisibility, dict[ClaimsToAllocate, bool]] = WeakKeyDictionary()
        self._dues: BoundedCache[int, _Dues] = BoundedCache(_REMEMBERED)
        """By slot."""
        self._avoided: dict[str, _Avoided] = {}
        """By uid of the nominated pod."""
        self._limit = _REMEMBERED

    # -- what is for whom ----------------------------------------------------------------------------------------------

    def on(self, known: DeviceState, as_if: HypotheticalNode, other: PodInfo) -> Kept:
        """What the pod will have on the node that it is nominated to, besides what is kept there already."""
        kept = self._due(known, as_if, self._asked(other, as_if.slot))
        self._note(other, kept)
        return kept

    def elsewhere(self, known: DeviceState, pod: PodInfo, slot: int) -> Kept:
        """Devices that this node sees, too, and pods nominated to others will have."""
        if not self._devices.on_nodes.has_shared:
            return ()
        if known.kept_elsewhere is None:
            known.kept_elsewhere = self._of_shared(known, pod)
        return tuple(each for there, some in known.kept_elsewhere.items() if there != slot for each in some)

    def as_if(self, without: frozenset[str], kept: Sequence[AllocationResult]) -> HypotheticalState:
        """Devices in use as if these claims had given theirs back, and as if those kept were taken."""
        besides = AllocationState(shares_count=self._shares_count)
        for at, allocation in enumerate(kept):
            besides.hold(f"kept {at}", allocation)
        return HypotheticalState(self._devices.use, without, besides)

    def _asked(self, other: PodInfo, slot: int) -> Variant | None:
        """What a pod nominated to the node asks it for; None for nothing."""
        state = CycleState()
        if self._look(state, other, 1 << slot) is not None or self._devices.on_nodes.problem:
            return None
        variant = state.get(STATE).variant(slot)
        return variant if variant is not None and variant.demand is not None else None

    def _due(self, known: DeviceState, as_if: HypotheticalNode, variant: Variant | None) -> Kept:
        """What a pod nominated to the node will have: of free devices, if they suffice, else also of those of leaving pods.

        Nothing once the searches of this attempt, which block the event loop, have taken `LONGEST_HOLD_S` together.
        """
        if variant is None or variant.demand is None:
            return ()
        freed = as_if.freed
        for without in (freed, freed | self._holders.leaving(as_if)):
            began = self._clock.now()
            if known.blocked_s >= LONGEST_HOLD_S:
                return ()
            try:
                found = self._boards.allocate(
                    variant.demand,
                    as_if.slot,
                    node_name=self._nodes.name(as_if.slot),
                    names=variant.names,
                    chance=random.Random(0),  # for share ids that nobody sees
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
        """Costs a look at each pod that is nominated, and searches for those on nodes where one may get shared devices."""
        nominated = list(self._nominated(but=pod))
        reached = nodeset.of(each.slot for each in nominated if self._reaches_shared(each))
        found: dict[int, Kept] = {}
        for each, due in self._dues_of(known, nominated, reached):
            self._note(each.pod, due.kept)
            found[each.slot] = found.get(each.slot, ()) + due.shared
        return found

    def _nominated(self, *, but: PodInfo) -> Iterator[_Nominated]:
        """Pods that ask for devices and that this pod must yield to, in the order in which they were nominated."""
        for name, other in self._preempting.nominated():
            slot = self._nodes.present_slot(name)
            if slot is None or self._cluster.get(other.uid):
                continue
            if other.uid == but.uid or other.priority < but.priority:
                continue
            variant = self._asked(other, slot)
            if variant is not None:
                yield _Nominated(slot, other, variant)

    def _dues_of(
        self, known: DeviceState, nominated: Iterable[_Nominated], nodes: NodeSet
    ) -> Iterator[tuple[_Nominated, _Due]]:
        """What each will have, on these nodes."""
        claims: dict[int, dict[str, ResourceClaim]] = {}
        by_slot: dict[int, list[_Nominated]] = {}
        for each in nominated:
            if nodes >> each.slot & 1:
                by_slot.setdefault(each.slot, []).append(each)
        for slot, here in by_slot.items():
            yield from zip(here, self._dues_on(known, slot, [each.variant for each in here], claims))

    def _dues_on(
        self, known: DeviceState, slot: int, variants: Sequence[Variant], claims: dict[int, dict[str, ResourceClaim]]
    ) -> tuple[_Due, ...]:
        """What pods nominated to the node, one after the other, will have there.

        Remembered while the node sees the same devices in the same use, of the same claims, which as many pods leave.
        """
        as_if = HypotheticalNode(slot, self._holders.at(slot, claims))
        kind = self._devices.on_nodes.kind(slot)
        if kind is None:
            return (_Due((), ()),) * len(variants)
        asked = tuple((variant.demand, variant.names) for variant in variants)
        rests_on = (asked, kind, kind.visible_pools.stamp, self._holders.leaving(as_if), as_if.claims)
        last = self._dues.get(slot)
        if last is None or last.rests_on != rests_on:
            last = self._dues.put(slot, _Dues(rests_on, tuple(self._searched(known, as_if, variants))))
        return last.dues

    def _searched(self, known: DeviceState, as_if: HypotheticalNode, variants: Sequence[Variant]) -> Iterator[_Due]:
        is_shared = self._devices.on_nodes.is_shared
        for variant in variants:
            kept = self._due(known, as_if, variant)
            as_if.kept += kept
            yield _Due(kept, tuple(one for one in kept if any(is_shared(each.id) for each in one.devices.results)))

    def _reaches_shared(self, nominated: _Nominated) -> bool:
        """Whether any request may have a device of a shared pool that the node sees, free or not."""
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
            selectors = {ask.selectors for _, _, ask in demand.asks if ask.selectors is not None}
            kinds = {each.kind for view in views for each in view.devices}
            known = any(each.of(device) is not False for each in selectors for device in kinds)
            answers[demand] = known
        return known

    # -- who waits because of that -------------------------------------------------------------------------------------

    def _note(self, other: PodInfo, kept: Kept) -> None:
        """Somebody is about to be refused for this, perhaps."""
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
        """Uid → node, of all that are nominated."""
        return {other.uid: name for name, other in self._preempting.nominated()}

    def _forget_ended(self, where: Mapping[str, str]) -> None:
        """Pods that are nominated no more, if nobody waited when that ended; those on their way may still take it."""
        for uid in [uid for uid in self._avoided if uid not in where and not self._cluster.is_assumed(uid)]:
            del self._avoided[uid]

    def _left(self, avoided: _Avoided) -> set[Part]:
        """What nobody has; but as much of a device may be anybody's, so that has to be the pod's own."""
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
        """FREED if a device that was kept for one of these pods may be for other pods now: nothing has taken it.

        `on`: and for all pods that are nominated to these nodes, because a device of one may be picked for another. Nothing is
        searched for: a pod may be tried in vain. That ends what is remembered, so it happens once per refusal.
        """
        there = set(on)
        asked = {uid for uid, name in self._where().items() if name in there} | set(uids)
        freed = [uid for uid in asked & self._avoided.keys() if self._left(self._avoided[uid])]
        for uid in freed:
            del self._avoided[uid]
        if freed:
            yield FREED

    def frees(self) -> Sequence[Frees]:
        """Events after which what was kept for a pod may be had by others."""
        return (
            (ClusterEvent(Resource.ASSIGNED_POD, Action.ADD | Action.DELETE), self._pod_changed),
            (ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD | UPDATE | Action.DELETE), self._claim_changed),
            (ClusterEvent(Resource.DEVICE_CLASS, Action.ADD | UPDATE | Action.DELETE), self._class_changed),
            (ClusterEvent(Resource.RESOURCE_SLICE, Action.ADD | UPDATE | Action.DELETE), self._slice_changed),
            (ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE | Action.DELETE), self._node_changed),
        )

    def _pod_changed(self, old: PodInfo | None, new: PodInfo | None) -> Iterator[Hashable]:
        """One that was nominated is bound, or nominated no more."""
        pod = new if new is not None else old
        if pod is None or not self._avoided:
            return
        if pod.uid in self._avoided or pod.pod.spec.resource_claims or any(map(may_be_devices, pod.requests)):
            yield from self._freed([pod.uid], on=[pod.node_name or pod.pod.status.nominated_node_name])

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> Iterator[Hashable]:
        """A nominated pod's claim comes, goes or is allocated, or another one has something that was kept, or keeps it."""
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
        """Nominated pods may ask for other devices."""
        if old is None or new is None or old.spec != new.spec:
            yield from self._freed(list(self._avoided))

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> Iterator[Hashable]:
        """Nominated pods may have to take other devices."""
        pools = {PoolKey(each.spec.driver, each.spec.pool.name) for each in (old, new) if each is not None}
        yield from self._freed([uid for uid, each in self._avoided.items() if _meets(each.parts, set(), pools)])

    def _node_changed(self, old: Node | None, new: Node | None) -> Iterator[Hashable]:
        """The node goes, or has what devices were to stand in for."""
        if old is None or not self._avoided:
            return
        if new is None or _stood_in_for(old) != _stood_in_for(new):
            yield from self._freed([], on=[old.metadata.name])


def _stood_in_for(node: Node) -> dict[str, object]:
    """The node's own amounts of resources that devices may stand in for."""
    return {name: amount for name, amount in node.status.allocatable.items() if may_be_devices(name)}


def _pools(devices: Iterable[DeviceId]) -> set[PoolKey]:
    return {PoolKey(device.driver, device.pool) for device in devices}


def _uses(pod: PodInfo, claim: ResourceClaim) -> bool:
    return claim.key in claim_keys(pod.pod) or is_made_for(claim, pod.pod) or claim.is_reserved_for(pod.uid)


def _meets(parts: set[Part], devices: set[DeviceId], pools: set[PoolKey]) -> bool:
    """Whether anything of it is one of these devices, or in one of these pools."""
    own = {device for device, *_ in parts}
    return not devices.isdisjoint(own) or not pools.isdisjoint(_pools(own))
