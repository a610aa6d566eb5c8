"""Searches the devices that are held for nominated pods (docs/adr/0010; switch devicePreemption)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import msgspec

from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import AllocationResult, ResourceClaim
from scheduler.cache.devices.allocation_state import AllocationState, HypotheticalState
from scheduler.cache.devices.device_holds import DeviceHold
from scheduler.cache.devices.manager import SharedDRAManager
from scheduler.core.cooperative import Work
from scheduler.core.feature_gates import CONSUMABLE
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState
from scheduler.plugins.dra.claims import claim_keys
from scheduler.plugins.dra.state import STATE, DeviceState, Variant
from scheduler.plugins.dra.structured.allocator import AllocationError
from scheduler.plugins.dra.structured.error_nodes import TimedOut
from scheduler.plugins.dra.structured.node_verdicts import NodeVerdicts, SearchVerdict

Look: TypeAlias = Callable[[CycleState, PodInfo, NodeSet], object | None]
"""DynamicResources' PreFilter: if it returns None, the state has what the pod requests."""
Kept: TypeAlias = tuple[AllocationResult, ...]
_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(slots=True, eq=False)
class HypotheticalNode:
    """One node in a dry run."""

    slot: int
    claims: Sequence[ResourceClaim]
    """Claims with devices that the node sees."""
    gone: set[str] = field(default_factory=set)
    """Uids of pods that have left the node."""

    def clone(self) -> HypotheticalNode:
        """Copy the node for a nested dry run."""
        return HypotheticalNode(self.slot, self.claims, set(self.gone))

    @property
    def freed(self) -> frozenset[str]:
        """Claims whose users have all left."""
        gone = self.gone
        return frozenset(
            claim.uid
            for claim in self.claims
            if (users := claim.status.reserved_for) and gone.issuperset([user.uid for user in users])
        )


def claims_at(devices: SharedDRAManager, slot: int, known: dict[int, dict[str, ResourceClaim]]) -> list[ResourceClaim]:
    """Return the written claims with devices that the node sees. `known` caches the claims per pool.

    An allocation in flight cannot be preempted.
    """
    found: dict[str, ResourceClaim] = {}
    for view in devices.on_nodes.pools(slot):
        if id(view) not in known:
            here = known[id(view)] = {}
            for each in (*view.devices, *view.elsewhere):
                for uid in devices.use.users(each.id):
                    claim = devices.claims.by_uid(uid)
                    if claim is not None and claim.is_allocated:
                        here[uid] = claim
        found |= known[id(view)]
    return list(found.values())


class NominatedDevices:
    """The devices of nominated pods, for one profile. Changes only the holds."""

    def __init__(self, handle: Handle, verdicts: NodeVerdicts, look: Look) -> None:
        self._nodes = handle.cluster.nodes
        self._devices = handle.cluster.devices
        self._holds = handle.cluster.devices.device_holds
        self._verdicts = verdicts
        self._look = look
        self._preempting = handle.preempting
        self._frees = partial(handle.preempting.frees, handle.cluster)
        self._shares_count = CONSUMABLE in handle.feature_gates

    def of(self, known: DeviceState, pod: PodInfo, slot: int, freed: frozenset[str] = _NOTHING) -> Work[Kept]:
        """Return the devices that the node sees and that nominated pods with precedence will have.

        In a dry run, `freed` are the claims that victims have left: a nominated pod without a hold comes first.
        """
        on_nodes = self._devices.on_nodes
        if known.nominated is None:
            self._holds.end_stale(self._preempting.nominated, self._frees)
            known.nominated = self._with_precedence(pod)
        if not known.nominated:
            return ()
        for there in known.nominated if on_nodes.has_shared else known.nominated.keys() & {slot}:
            if there not in known.kept:
                known.kept[there] = kept = yield from self._on(there, known.nominated[there])
                known.kept_shared[there] = _visible(kept, on_nodes.is_shared)
        kept = known.kept.get(slot, ())
        for there, shared in known.kept_shared.items():
            kept += shared if there != slot else ()
        for other in known.nominated.get(slot, ()) if freed else ():
            if self._holds.get(other.uid) is None and (hold := (yield from self._search(other, slot, freed))):
                kept += tuple(hold.allocations)
        return kept

    def as_if(self, without: frozenset[str], kept: Iterable[AllocationResult]) -> HypotheticalState:
        """Return the device use as if these claims had freed their devices and the kept devices were taken."""
        besides = AllocationState(shares_count=self._shares_count)
        for at, allocation in enumerate(kept):
            besides.hold(f"kept {at}", allocation)
        return HypotheticalState(self._devices.use, without, besides)

    def _with_precedence(self, pod: PodInfo) -> dict[int, list[PodInfo]]:
        """Return slot → the nominated pods of equal or higher priority, in order of priority and nomination."""
        found: dict[int, list[PodInfo]] = {}
        others = ((name, other) for name, other in self._preempting.nominated() if other.priority >= pod.priority)
        for name, other in sorted(others, key=lambda each: -each[1].priority):
            there = self._nodes.present_slot(name)
            if there is not None and other.uid != pod.uid:
                found.setdefault(there, []).append(other)
        return found

    def _on(self, slot: int, nominated: Sequence[PodInfo]) -> Work[Kept]:
        kept: Kept = ()
        for other in nominated:
            hold = self._holds.get(other.uid)
            if hold is None and (hold := (yield from self._search(other, slot))) is not None:
                self._holds.put(hold)
            kept += tuple(hold.allocations) if hold is not None else ()
        return kept

    def _search(self, other: PodInfo, slot: int, freed: frozenset[str] = _NOTHING) -> Work[DeviceHold | None]:
        """Search devices for a nominated pod: free ones if they suffice, else also those of claims that become free."""
        self._devices.on_nodes.catch_up()
        variant = self._variant_of(other, slot)
        if variant is None or variant.demand is None:
            return None
        is_shared = self._devices.on_nodes.is_shared
        kept: Kept = ()
        for each in self._holds:
            if each.pod.uid != other.uid and each.pod.priority >= other.priority:
                kept += tuple(each.allocations) if each.slot == slot else _visible(each.allocations, is_shared)
        leaving = frozenset(claim.uid for claim in claims_at(self._devices, slot, {}) if self._frees(claim))
        for released in dict.fromkeys((freed, freed | leaving)):
            use = self.as_if(released, kept)
            try:
                yield from self._verdicts.picked(variant.demand, slot, use, limit_s=self._verdicts.limits.holding_s)
                found = self._verdicts.allocate(
                    variant.demand,
                    slot,
                    node_name=self._nodes.name(slot),
                    names=variant.names,
                    chance=random.Random(0),  # for share ids that are never written
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
        if self._look(state, other, 1 << slot) is not None or self._devices.on_nodes.problem:
            return None
        return state.get(STATE).variant(slot)


def _allocated(claim: ResourceClaim, allocation: AllocationResult) -> ResourceClaim:
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, allocation=allocation))


def _visible(allocations: Iterable[AllocationResult], is_shared: Callable[..., bool]) -> Kept:
    """Return the allocations with devices that other nodes see too."""
    return tuple(each for each in allocations if any(is_shared(result.id) for result in each.devices.results))
