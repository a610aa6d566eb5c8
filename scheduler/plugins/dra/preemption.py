"""Preemption for devices, and devices for nominated pods (docs/spec/dra.md §10, switch devicePreemption).

Upstream never frees devices in a dry run, and does not remember for which pod the victims leave.
Here a claim frees its devices in a dry run when all its users have left, and the devices of a nominated pod are held:
free ones, or those that are being freed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import msgspec

from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import AllocationResult, ResourceClaim, claim_keys
from scheduler.cache.devices.allocation_state import AllocationState, DeviceUse, HypotheticalState
from scheduler.cache.devices.device_holds import DeviceHold
from scheduler.cache.devices.manager import SharedDRAManager
from scheduler.core import nodeset
from scheduler.core.caching import BoundedCache
from scheduler.core.cooperative import Work
from scheduler.core.feature_gates import CONSUMABLE
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, DryRun, StateKey
from scheduler.framework.status import AttemptError, Code, Groups, Rejection
from scheduler.plugins.dra.state import PLUGIN, STATE, DeviceState, Variant, state_of
from scheduler.plugins.dra.structured.allocator import AllocationError
from scheduler.plugins.dra.structured.error_nodes import TimedOut
from scheduler.plugins.dra.structured.node_verdicts import NO_DEVICES, NodeVerdicts, SearchVerdict

WAITING: Final = Rejection(
    PLUGIN,
    Code.UNRESOLVABLE,
    ("preemption: not eligible due to devices that are being given back on the nominated node.",),
)
GIVE_UP_S: Final = 60.0
"""Longest time for which claims may keep their devices after their last user has gone."""
_REMEMBERED: Final = 4096
_NOTHING: Final[frozenset[str]] = frozenset()
TimeLimit: TypeAlias = Callable[[DeviceState, Work[bool]], Work[bool]]
"""Runs the work; raises AttemptError when the attempt has searched for too long."""
PreFilter: TypeAlias = Callable[[CycleState, PodInfo, NodeSet], object | None]
"""DynamicResources' PreFilter: if it returns None, the state has what the pod requests."""
Held: TypeAlias = tuple[AllocationResult, ...]


@dataclass(slots=True, eq=False)
class HypotheticalNode:
    """One node in a dry run."""

    slot: int
    claims: Sequence[ResourceClaim]
    """Claims with devices that the node sees."""
    removed_pods: set[str] = field(default_factory=set)
    """Uids of pods that have left the node."""

    def clone(self) -> HypotheticalNode:
        """Copy the node for a nested dry run."""
        return HypotheticalNode(self.slot, self.claims, set(self.removed_pods))

    @property
    def freed(self) -> frozenset[str]:
        """Claims whose users have all left."""
        removed_pods = self.removed_pods
        return frozenset(
            claim.uid
            for claim in self.claims
            if (users := claim.status.reserved_for) and removed_pods.issuperset([user.uid for user in users])
        )


def claims_at(devices: SharedDRAManager, slot: int, cache: dict[int, dict[str, ResourceClaim]]) -> list[ResourceClaim]:
    """Return the written claims with devices that the node sees. `cache` has the claims per pool.

    An allocation in flight cannot be preempted.
    """
    found: dict[str, ResourceClaim] = {}
    for view in devices.on_nodes.pools(slot):
        if id(view) not in cache:
            claims = cache[id(view)] = {}
            # Devices that only other nodes see count as well: their claims may use up counters that this node needs.
            for each in (*view.devices, *view.elsewhere):
                for uid in devices.use.users(each.id):
                    claim = devices.claims.by_uid(uid)
                    # The allocation of a claim in flight may still fail, and its pod is not a victim that could be
                    # evicted.
                    if claim is not None and claim.is_allocated:
                        claims[uid] = claim
        found |= cache[id(view)]
    return list(found.values())


class NominatedDevices:
    """The devices of nominated pods, for one profile. Changes only the holds."""

    def __init__(self, handle: Handle, verdicts: NodeVerdicts, pre_filter: PreFilter) -> None:
        self._nodes = handle.cluster.nodes
        self._devices = handle.cluster.devices
        self._holds = handle.cluster.devices.device_holds
        self._verdicts = verdicts
        self._pre_filter = pre_filter
        self._preempting = handle.preempting
        self._frees = partial(handle.preempting.frees, handle.cluster)
        self._shares_count = CONSUMABLE in handle.feature_gates

    def of(self, device_state: DeviceState, pod: PodInfo, slot: int, freed: frozenset[str] = _NOTHING) -> Work[Held]:
        """Return the devices that the node sees and that nominated pods with precedence will have.

        In a dry run, `freed` are the claims that victims have left: a nominated pod without a hold comes first.
        """
        on_nodes, nominated = self._devices.on_nodes, self.nominated_before(device_state, pod)
        if not nominated:
            return ()
        # Without shared pools a nominated pod takes devices of its node only, so the other nominations do not
        # matter here.
        for other_slot in nominated if len(on_nodes.shared) else nominated.keys() & {slot}:
            if other_slot not in device_state.held:
                device_state.held[other_slot] = held = yield from self._on(other_slot, nominated[other_slot])
                device_state.held_shared[other_slot] = _visible(held, on_nodes.is_shared)
        held = device_state.held.get(slot, ())
        for other_slot, shared in device_state.held_shared.items():
            held += shared if other_slot != slot else ()
        # The victims' devices are free only in this dry run. A nominated pod that waits for them has no hold on them
        # yet, but it would take them first.
        for other in nominated.get(slot, ()) if freed else ():
            if self._holds.get(other.uid) is None and (hold := (yield from self._search(other, slot, freed))):
                held += tuple(hold.allocations)
        return held

    def nominated_before(self, device_state: DeviceState, pod: PodInfo) -> dict[int, list[PodInfo]]:
        """Return slot → the nominated pods with precedence over the pod."""
        if device_state.nominated is None:
            # Once per attempt: a nomination ends without any event when its pod is bound or deleted.
            self._holds.end_stale(self._preempting.nominated, self._frees)
            device_state.nominated = self._with_precedence(pod)
        return device_state.nominated

    def as_if(self, without: frozenset[str], held: Iterable[AllocationResult]) -> HypotheticalState:
        """Return the device use as if these claims had freed their devices and the kept devices were taken."""
        held_devices = AllocationState(shares_count=self._shares_count)
        for at, allocation in enumerate(held):
            held_devices.hold(f"kept {at}", allocation)
        return HypotheticalState(self._devices.use, without, held_devices)

    def _with_precedence(self, pod: PodInfo) -> dict[int, list[PodInfo]]:
        """Return slot → the nominated pods of equal or higher priority, in order of priority and nomination."""
        found: dict[int, list[PodInfo]] = {}
        # Pods of lower priority have no claim on devices that this pod needs. Equal priority counts, as in kube-
        # scheduler's filter with nominated pods.
        others = ((name, other) for name, other in self._preempting.nominated() if other.priority >= pod.priority)
        for name, other in sorted(others, key=lambda each: -each[1].priority):
            other_slot = self._nodes.present_slot(name)
            if other_slot is not None and other.uid != pod.uid:
                found.setdefault(other_slot, []).append(other)
        return found

    def _on(self, slot: int, nominated: Sequence[PodInfo]) -> Work[Held]:
        held: Held = ()
        for other in nominated:
            hold = self._holds.get(other.uid)
            if hold is None and (hold := (yield from self._search(other, slot))) is not None:
                self._holds.put(hold)
            held += tuple(hold.allocations) if hold is not None else ()
        return held

    def _search(self, other: PodInfo, slot: int, freed: frozenset[str] = _NOTHING) -> Work[DeviceHold | None]:
        """Search devices for a nominated pod: free ones if they suffice, else also those of claims that become free."""
        self._devices.on_nodes.catch_up()
        variant = self._variant_of(other, slot)
        if variant is None or variant.demand is None:
            return None
        is_shared = self._devices.on_nodes.is_shared
        held: Held = ()
        for each in self._holds:
            if each.pod.uid != other.uid and each.pod.priority >= other.priority:
                held += tuple(each.allocations) if each.slot == slot else _visible(each.allocations, is_shared)
        # Two tries: with free devices alone, and with those of claims that are about to be deallocated. The first
        # keeps the hold valid even if the deallocation fails.
        leaving = frozenset(claim.uid for claim in claims_at(self._devices, slot, {}) if self._frees(claim))
        for released in dict.fromkeys((freed, freed | leaving)):
            use = self.as_if(released, held)
            try:
                yield from self._verdicts.picked(variant.demand, slot, use, limit_s=self._verdicts.limits.holding_s)
                found = self._verdicts.allocate(
                    variant.demand,
                    slot,
                    node_name=self._nodes.name(slot),
                    names=variant.names,
                    rng=random.Random(0),  # for share ids that are never written
                    use=use,
                )
            except (TimedOut, AllocationError):
                return None
            if not isinstance(found, SearchVerdict):
                claims = tuple(map(_allocated, variant.claims, found))
                return DeviceHold(other, slot, claims, claim_keys(other.pod), released)
        return None

    def _variant_of(self, other: PodInfo, slot: int) -> Variant | None:
        """Return what the nominated pod requests on its node; None if it requests no devices, or is not ready."""
        state = CycleState()
        if self._pre_filter(state, other, 1 << slot) is not None or self._devices.on_nodes.shared.problem:
            return None
        return state.get(STATE).variant(slot)


def _allocated(claim: ResourceClaim, allocation: AllocationResult) -> ResourceClaim:
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, allocation=allocation))


def _visible(allocations: Iterable[AllocationResult], is_shared: Callable[..., bool]) -> Held:
    """Return the allocations with devices that other nodes see too."""
    return tuple(each for each in allocations if any(is_shared(result.id) for result in each.devices.results))


class _Wait(NamedTuple):
    """Claims without users that still have devices, and since when."""

    claims: frozenset[str]
    since: float


_AS_IF: Final[StateKey[HypotheticalNode]] = StateKey(f"{PLUGIN}/AsIf")


class DevicePreemption:
    """Device preemption of one profile. Changes only the state of attempts, and nothing if the switch is off."""

    def __init__(self, handle: Handle, verdicts: NodeVerdicts, pre_filter: PreFilter, timed: TimeLimit) -> None:
        self._is_on = handle.ours.device_preemption == "on"
        self._cluster = handle.cluster
        self._nodes = handle.cluster.nodes
        self._devices = handle.cluster.devices
        self._verdicts = verdicts
        self._timed = timed
        self._frees = partial(handle.preempting.frees, handle.cluster)
        self._nominated_devices = NominatedDevices(handle, verdicts, pre_filter)
        self._clock = handle.clock
        self._waits = handle.kept("DynamicResources.waits", partial(BoundedCache[str, _Wait], _REMEMBERED))
        """By uid of the preemptor."""

    # -- dry runs ------------------------------------------------------------------------------------------------------

    def remove_pod(self, state: CycleState, other: PodInfo, slot: int) -> None:
        """Record that the pod has left the node."""
        as_if = self._as_if(state, slot)
        if as_if is not None:
            as_if.removed_pods.add(other.uid)

    def add_pod(self, state: CycleState, other: PodInfo, slot: int) -> None:
        """Record that the pod is back on the node. The devices of a pod that is nominated to it are held."""
        as_if = self._as_if(state, slot)
        if as_if is not None:
            as_if.removed_pods.discard(other.uid)

    def tried_on(self, state: CycleState, nodes: NodeSet) -> NodeSet:
        """Return the node of this dry run, if it is one of the nodes."""
        return nodes & 1 << state.get(_AS_IF).slot if state.has(_AS_IF) else EMPTY

    def verdict(self, state: CycleState, pod: PodInfo, variant: Variant, *, slot: int) -> Work[SearchVerdict]:
        """Return the exact verdict for one node, in this dry run if it is one. Raises TimedOut.

        An error is ignored if the search meets it only because devices are kept for nominated pods or freed by
        victims: upstream does neither and would not meet it.
        """
        assert variant.demand is not None
        # The pod is refused if it fits only with the devices that nominated pods will have. Otherwise two preemptors
        # would evict for one device.
        use = yield from self.use(state, pod, slot)
        if use is not None:
            # An error that appears only in the hypothetical state is not upstream's. The real state decides then.
            verdict = yield from self._verdicts.picked(variant.demand, slot, use)
            if not verdict.failed:
                return verdict
        as_it_is = yield from self._verdicts.verdict(variant.demand, slot)
        return as_it_is if use is None or as_it_is.failed else NO_DEVICES

    def is_as_it_is(self, state: CycleState, device_state: DeviceState, pod: PodInfo, slot: int) -> bool:
        """Return whether the current device use counts for the pod: no dry run, and no nominated pod with precedence."""
        if self.tried_on(state, 1 << slot):
            return False
        return not self._is_on or not self._nominated_devices.nominated_before(device_state, pod)

    def use(self, state: CycleState, pod: PodInfo, slot: int) -> Work[DeviceUse | None]:
        """Return the device use on the node for this pod, in this dry run if it is one; None for the current use."""
        device_state, freed = state.get(STATE), _NOTHING
        if self.tried_on(state, 1 << slot):
            freed = state.get(_AS_IF).freed - {claim.uid for claim in device_state.claims}
        return (yield from self.use_with_holds(device_state, pod, slot, freed))

    def use_with_holds(
        self, device_state: DeviceState, pod: PodInfo, slot: int, freed: frozenset[str] = _NOTHING
    ) -> Work[DeviceUse | None]:
        """Return the device use on the node with the devices of nominated pods taken; None for the current use.

        `freed` are claims that have freed their devices in a dry run.
        """
        has_none = not self._is_on or (device_state.nominated is not None and not device_state.nominated)
        held = () if has_none else (yield from self._nominated_devices.of(device_state, pod, slot, freed))
        return self._nominated_devices.as_if(freed, held) if freed or held else None

    def _as_if(self, state: CycleState, slot: int) -> HypotheticalNode | None:
        """Return the node of the dry run; None if the pod needs no devices there, or has them."""
        device_state = state_of(state) if self._is_on else None
        variant = device_state.variant(slot) if device_state is not None and not device_state.allocations else None
        if variant is None or variant.demand is None:
            return None
        # A dry run visits nodes one after the other; the state of the last one is of no use for the next.
        if not state.has(_AS_IF) or state.get(_AS_IF).slot != slot:
            self._devices.on_nodes.catch_up()
            state.set(_AS_IF, HypotheticalNode(slot, claims_at(self._devices, slot, {})))
        return state.get(_AS_IF)

    # -- nodes where preemption helps ----------------------------------------------------------------------------------

    def preemptible_nodes(
        self, state: CycleState, pod: PodInfo, rejection: Rejection, *, nodes: NodeSet
    ) -> Work[NodeSet]:
        """Return the nodes that have too few devices, and enough once pods of lower priority have gone.

        A node whose search takes too long, or begins after the time limit, does not count.
        """
        if not self._is_on or not rejection.is_shortage or pod.pod.spec.preemption_policy == "Never":
            return EMPTY
        device_state = state.get(STATE)
        self._devices.on_nodes.catch_up()
        claims: dict[int, dict[str, ResourceClaim]] = {}
        helped = EMPTY
        # Upstream never frees devices in a dry run, so it evicts nothing for them. Here a node helps if the devices
        # suffice without all pods of lower priority; the ordinary dry run then picks the fewest victims.
        for slot in nodeset.each(nodes & self._nodes.priorities.below(pod.priority)):
            lower_priority = {other.uid for other in self._nodes.pods(slot).values() if other.priority < pod.priority}
            as_if = HypotheticalNode(slot, claims_at(self._devices, slot, claims), lower_priority)
            freed = as_if.freed - {claim.uid for claim in device_state.claims}
            if freed and (yield from self._suffices(device_state, pod, slot, freed)):
                helped |= 1 << slot
            yield
        return helped

    def _suffices(self, device_state: DeviceState, pod: PodInfo, slot: int, freed: frozenset[str]) -> Work[bool]:
        try:
            return (yield from self._timed(device_state, self._fits(device_state, pod, slot, freed)))
        except (AttemptError, TimedOut):
            return False

    def _fits(self, device_state: DeviceState, pod: PodInfo, slot: int, freed: frozenset[str]) -> Work[bool]:
        """Return whether the node has the devices once these claims have freed theirs. Raises TimedOut."""
        variant = device_state.variant(slot)
        use = yield from self.use_with_holds(device_state, pod, slot, freed)
        if variant is None or variant.demand is None or use is None:
            return False
        return not (yield from self._verdicts.picked(variant.demand, slot, use)).refusal

    # -- waiting for freed devices -------------------------------------------------------------------------------------

    def waits(self, device_state: DeviceState, pod: PodInfo, refused: Groups, what_if: DryRun) -> Work[bool]:
        """Return whether devices on the pod's nominated node are being freed, so that it needs no more victims."""
        # The nominated node is short of devices, and nothing else. Other rejections are for the other plugins.
        short = [nodes for rejection, nodes in refused.items() if rejection.plugin == PLUGIN and rejection.is_shortage]
        nominated = what_if.nominated_to if self._is_on and short else ""
        slot = self._nodes.present_slot(nominated) if nominated else None
        if slot is None or not any(nodes >> slot & 1 for nodes in short):
            return False
        claims = {claim.uid: claim for claim in claims_at(self._devices, slot, {})}
        leaving = frozenset(uid for uid, claim in claims.items() if self._frees(claim))
        leaving -= {claim.uid for claim in device_state.claims}
        if not leaving or not (yield from self._suffices(device_state, pod, slot, leaving)):
            return False
        return self._is_in_time(pod, [claims[uid] for uid in leaving])

    def waits_on(self, pod: PodInfo, slot: int) -> bool:
        """Return whether devices on this node, to which a pod of a group is nominated, are being freed."""
        if not self._is_on or not pod.pod.spec.resource_claims:
            return False
        self._devices.on_nodes.catch_up()  # it is called before any attempt
        leaving = [claim for claim in claims_at(self._devices, slot, {}) if self._frees(claim)]
        return bool(leaving) and self._is_in_time(pod, leaving)

    def _is_in_time(self, pod: PodInfo, leaving: Sequence[ResourceClaim]) -> bool:
        """Return whether the pod may still wait for these claims to be deallocated."""
        users = (user.uid for claim in leaving for user in claim.status.reserved_for)
        # A victim is still terminating. Its grace period has no fixed end, so the clock starts when the last user has
        # gone.
        if any(self._cluster.get(uid) is not None for uid in users):
            self._waits.pop(pod.uid)
            return True
        uids = frozenset(claim.uid for claim in leaving)
        now, waited = self._clock.now(), self._waits.get(pod.uid)
        since = waited.since if waited is not None and uids <= waited.claims else now
        self._waits.put(pod.uid, _Wait(uids, since))
        return now - since < GIVE_UP_S
