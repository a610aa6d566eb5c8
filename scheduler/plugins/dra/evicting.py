"""Devices of pods that may be evicted, and devices kept for whom they were evicted (docs/spec/dra.md §10; switch devicePreemption).

Upstream never frees devices in a dry run, and forgets while victims leave whom their devices are for. Here a claim gives its
devices back when all its users have left, all in one trial; and a pod that is nominated to a node has there what a search
picks for it, of what is free and of what is being given back. Nothing of this is written down or held: it follows from
nominations, as the room for pods does, and so it ends with them and survives a restart.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from scheduler.cache.deviceasif import UseAsIf
from scheduler.cache.devicesights import Sight
from scheduler.cache.deviceuse import DeviceUse, Use
from scheduler.cache.extendedresources import ServedResources
from scheduler.core import nodeset
from scheduler.core.devicegates import CONSUMABLE
from scheduler.core.events import ASSIGNED_POD_DELETE, NODE_DELETE, UPDATE, Action, ClusterEvent, Resource
from scheduler.core.node import Node
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.podinfo import PodInfo
from scheduler.core.resourceclaims import AllocationResult, ResourceClaim
from scheduler.core.turns import Work
from scheduler.core.verdicts import AttemptError, Code, Groups, Rejection
from scheduler.framework.hints import EventHint, Hint, Topics
from scheduler.framework.ports import Handle
from scheduler.framework.state import CycleState, StateKey
from scheduler.framework.whatif import WhatIf
from scheduler.plugins.dra.board import Boards
from scheduler.plugins.dra.claims import claim_keys
from scheduler.plugins.dra.demand import Demand
from scheduler.plugins.dra.holders import AsIf, Holders
from scheduler.plugins.dra.search import AllocationError
from scheduler.plugins.dra.searches import CANNOT_ALLOCATE, TimedOut, Verdict
from scheduler.plugins.dra.state import PLUGIN, STATE, DeviceState, Variant

WAITING: Final = Rejection(
    PLUGIN,
    Code.UNRESOLVABLE,
    ("preemption: not eligible due to devices that are being given back on the nominated node.",),
)
GIVE_UP_S: Final = 60.0
"""So long may claims keep their devices after the last of their users has gone."""
_REMEMBERED: Final = 4096
_NOTHING: Final[frozenset[str]] = frozenset()
_KEPT: Final = "what is kept for nominated pods"

Look: TypeAlias = Callable[[CycleState, PodInfo, NodeSet], object | None]
"""DynamicResources' PreFilter: what a pod asks nodes for is in the state, if it answers None."""
Timed: TypeAlias = Callable[[DeviceState, Work[None]], Work[None]]
"""The same work; raises AttemptError when it has taken too long, with all that the attempt has done before."""


class _Wait(NamedTuple):
    """For claims that nobody is left of, since this moment."""

    claims: frozenset[str]
    since: float


class _Due(NamedTuple):
    """What pods nominated to a node will have of shared pools, as long as nothing of this is otherwise."""

    rests_on: tuple[object, ...]
    kept: tuple[AllocationResult, ...]


_AS_IF: Final[StateKey[AsIf]] = StateKey(f"{PLUGIN}/AsIf")


class Evicting:
    """Of one profile. Changes nothing but the state of attempts; where it is switched off, not even that."""

    def __init__(self, handle: Handle, boards: Boards, look: Look) -> None:
        self._is_on = handle.ours.device_preemption == "on"
        self._cluster = handle.cluster
        self._nodes = handle.cluster.nodes
        self._devices = handle.cluster.devices
        self._boards = boards
        self._look = look
        self._preempting = handle.preempting
        self._holders = Holders(handle.cluster, handle.preempting)
        self._clock = handle.clock
        self._served = ServedResources(handle.cluster.devices.classes, handle.feature_gates)
        self._shares_count = CONSUMABLE in handle.feature_gates
        self._waits = handle.kept("DynamicResources.waits", dict[str, _Wait])
        """By uid of the preemptor."""
        self._reached: WeakKeyDictionary[Sight, dict[Demand, bool]] = WeakKeyDictionary()
        self._dues: dict[int, _Due] = {}
        """By slot."""

    # -- trials --------------------------------------------------------------------------------------------------------

    def left(self, state: CycleState, other: PodInfo, slot: int) -> None:
        """The pod has left the node."""
        as_if = self._as_if(state, slot)
        if as_if is not None:
            as_if.gone.add(other.uid)

    def came(self, state: CycleState, other: PodInfo, slot: int) -> None:
        """It came back; or it is nominated to the node, and takes what is for it."""
        as_if = self._as_if(state, slot)
        if as_if is None:
            return
        if other.node_name:
            as_if.gone.discard(other.uid)
            return
        as_if.kept += self._due(as_if, self._asked(other, slot))
        if as_if.kept and not as_if.gone:
            state.get(STATE).kept[slot] = as_if.kept

    def tried_on(self, state: CycleState, nodes: NodeSet) -> NodeSet:
        """That of the nodes which this trial is about."""
        return nodes & 1 << state.get(_AS_IF).slot if state.has(_AS_IF) else EMPTY

    def verdict(self, state: CycleState, pod: PodInfo, variant: Variant, *, slot: int) -> Verdict:
        """The exact answer for one node, in this trial if it is one. Raises TimedOut."""
        assert variant.demand is not None
        use = self.use(state, pod, slot)
        if use is not None:
            return self._boards.verdict_if(variant.demand, slot, use)
        return self._boards.verdict(variant.demand, slot)

    def use(self, state: CycleState, pod: PodInfo, slot: int) -> Use | None:
        """What is in use there for this pod, in this trial if it is one; None if it is as it is."""
        known, freed = state.get(STATE), _NOTHING
        kept = self._kept_elsewhere(known, pod, slot)
        if self.tried_on(state, 1 << slot):
            as_if = state.get(_AS_IF)
            freed, kept = as_if.freed - {claim.uid for claim in known.claims}, kept + as_if.kept
        return self._if(freed, kept) if freed or kept else None

    def besides_kept(self, known: DeviceState, pod: PodInfo, slot: int) -> Use | None:
        """What is in use there for a pod that yields to those nominated; None if it is as it is."""
        kept = known.kept.get(slot, ()) + self._kept_elsewhere(known, pod, slot)
        return self._if(_NOTHING, kept) if kept else None

    def _as_if(self, state: CycleState, slot: int) -> AsIf | None:
        """None where devices are none of the trial's matter: the pod needs none there, or has them."""
        known = state.get(STATE) if self._is_on and state.has(STATE) else None
        variant = known.variant(slot) if known is not None and not known.allocations else None
        if variant is None or variant.demand is None:
            return None
        if not state.has(_AS_IF) or state.get(_AS_IF).slot != slot:
            self._devices.on_nodes.catch_up()
            state.set(_AS_IF, AsIf(slot, self._holders.at(slot, {})))
        return state.get(_AS_IF)

    def _if(self, without: frozenset[str], kept: Sequence[AllocationResult]) -> UseAsIf:
        besides = DeviceUse(shares_count=self._shares_count)
        for at, allocation in enumerate(kept):
            besides.hold(f"kept {at}", allocation)
        return UseAsIf(self._devices.use, without, besides)

    # -- what is for whom ----------------------------------------------------------------------------------------------

    def _asked(self, other: PodInfo, slot: int) -> Variant | None:
        """What a pod nominated to the node asks it for; None for nothing."""
        state = CycleState()
        if self._look(state, other, 1 << slot) is not None or self._devices.on_nodes.problem:
            return None
        variant = state.get(STATE).variant(slot)
        return variant if variant is not None and variant.demand is not None else None

    def _due(self, as_if: AsIf, variant: Variant | None) -> tuple[AllocationResult, ...]:
        """What a pod nominated to the node will have: of free devices, if they suffice, else also of those of leaving pods."""
        if variant is None or variant.demand is None:
            return ()
        freed = as_if.freed
        for without in (freed, freed | self._holders.leaving(as_if)):
            try:
                found = self._boards.allocate(
                    variant.demand,
                    as_if.slot,
                    node_name=self._nodes.name(as_if.slot),
                    names=variant.names,
                    chance=random.Random(0),  # for share ids that nobody sees
                    use=self._if(without, as_if.kept),
                )
            except (TimedOut, AllocationError):
                return ()
            if not isinstance(found, Verdict):
                return found
        return ()

    def _kept_elsewhere(self, known: DeviceState, pod: PodInfo, slot: int) -> tuple[AllocationResult, ...]:
        """Devices that this node sees, too, and pods nominated to others will have."""
        if not self._is_on or not self._devices.on_nodes.has_shared:
            return ()
        if known.kept_elsewhere is None:
            known.kept_elsewhere = self._kept_of_shared(pod)
        return tuple(each for there, some in known.kept_elsewhere.items() if there != slot for each in some)

    def _kept_of_shared(self, pod: PodInfo) -> dict[int, tuple[AllocationResult, ...]]:
        """Costs a look at each pod that is nominated, and searches for those on nodes where one may get shared devices."""
        nodes: dict[int, list[Variant]] = {}
        reached = EMPTY
        for name, other in self._preempting.nominated():
            slot = self._nodes.present_slot(name)
            if slot is None or other.uid == pod.uid or other.priority < pod.priority or self._cluster.get(other.uid):
                continue
            variant = self._asked(other, slot)
            if variant is None or variant.demand is None:
                continue
            nodes.setdefault(slot, []).append(variant)
            if self._reaches_shared(variant.demand, slot):
                reached |= 1 << slot
        claims: dict[int, dict[str, ResourceClaim]] = {}
        return {slot: self._shared_due(slot, nodes[slot], claims) for slot in nodeset.each(reached)}

    def _shared_due(
        self, slot: int, variants: Sequence[Variant], claims: dict[int, dict[str, ResourceClaim]]
    ) -> tuple[AllocationResult, ...]:
        """What pods nominated to the node, one after the other, will have of which other nodes see something.

        Remembered while the node sees the same devices in the same use, of the same claims, which as many pods leave.
        """
        as_if = AsIf(slot, self._holders.at(slot, claims))
        kind = self._devices.on_nodes.kind(slot)
        assert kind is not None
        asked = tuple((variant.demand, variant.names) for variant in variants)
        rests_on = (asked, kind, kind.sight.stamp, self._holders.leaving(as_if), as_if.claims)
        known = self._dues.get(slot)
        if known is None or known.rests_on != rests_on:
            if len(self._dues) >= _REMEMBERED:
                self._dues.clear()
            known = self._dues[slot] = _Due(rests_on, self._searched_due(as_if, variants))
        return known.kept

    def _searched_due(self, as_if: AsIf, variants: Sequence[Variant]) -> tuple[AllocationResult, ...]:
        for variant in variants:
            as_if.kept += self._due(as_if, variant)
        is_shared = self._devices.on_nodes.is_shared
        return tuple(each for each in as_if.kept if any(is_shared(result.id) for result in each.devices.results))

    def _reaches_shared(self, demand: Demand, slot: int) -> bool:
        """Whether any request may have a device of a shared pool that the node sees, free or not."""
        kind = self._devices.on_nodes.kind(slot)
        views = kind.sight.views if kind is not None else ()
        if kind is None or not views:
            return False
        answers = self._reached.setdefault(kind.sight, {})
        known = answers.get(demand)
        if known is None:
            if len(answers) >= _REMEMBERED:
                answers.clear()
            selectors = {ask.selectors for _, _, ask in demand.asks if ask.selectors is not None}
            kinds = {each.kind for view in views for each in view.devices}
            known = any(each.of(device) is not False for each in selectors for device in kinds)
            answers[demand] = known
        return known

    # -- would an eviction help ----------------------------------------------------------------------------------------

    def relents(self, state: CycleState, pod: PodInfo, no: Rejection, *, nodes: NodeSet, timed: Timed) -> Work[NodeSet]:
        """Those of the nodes, refused for want of devices, where these suffice once less important pods have gone.

        `timed` counts what it takes. Of what takes too long, or comes after that, nothing is hoped.
        """
        if not self._is_on or no.message != CANNOT_ALLOCATE or pod.pod.spec.preemption_policy == "Never":
            return EMPTY
        known = state.get(STATE)
        self._devices.on_nodes.catch_up()
        claims: dict[int, dict[str, ResourceClaim]] = {}
        helped = EMPTY
        for slot in nodeset.each(nodes & self._nodes.priorities.below(pod.priority)):
            lesser = {other.uid for other in self._nodes.pods(slot).values() if other.priority < pod.priority}
            kept = known.kept.get(slot, ()) + self._kept_elsewhere(known, pod, slot)
            if (yield from self._suffices(known, AsIf(slot, self._holders.at(slot, claims), lesser, kept), timed)):
                helped |= 1 << slot
            yield
        return helped

    def _suffices(self, known: DeviceState, as_if: AsIf, timed: Timed) -> Work[bool]:
        variant = known.variant(as_if.slot)
        freed = as_if.freed - {claim.uid for claim in known.claims}
        if variant is None or variant.demand is None or not freed:
            return False
        use = self._if(freed, as_if.kept)
        work = self._boards.settling_allocation(variant.demand, as_if.slot, use)
        if work is not None:
            try:
                yield from timed(known, work)
            except AttemptError:
                return False
        return self._fits(variant, as_if.slot, use)

    def _fits(self, variant: Variant, slot: int, use: Use) -> bool:
        assert variant.demand is not None
        try:
            return not self._boards.verdict_if(variant.demand, slot, use).refusal
        except TimedOut:
            return False

    # -- waiting for what was made free ----------------------------------------------------------------------------------

    def waits(self, known: DeviceState, pod: PodInfo, refused: Groups, what_if: WhatIf) -> bool:
        """Whether the devices that the pod was nominated for are on their way: nobody else has to die for it."""
        short = _short(refused) if self._is_on else EMPTY
        nominated = what_if.nominated_to if short else ""
        slot = self._nodes.present_slot(nominated) if nominated else None
        variant = known.variant(slot) if slot is not None and short >> slot & 1 else None
        if slot is None or variant is None or variant.demand is None:
            return False
        as_if = AsIf(slot, self._holders.at(slot, {}))
        leaving = self._holders.leaving(as_if) - {claim.uid for claim in known.claims}
        if not leaving or not self._fits(variant, slot, self._if(leaving, known.kept.get(slot, ()))):
            return False
        users = (user.uid for claim in as_if.claims if claim.uid in leaving for user in claim.status.reserved_for)
        if any(self._cluster.get(uid) is not None for uid in users):
            self._waits.pop(pod.uid, None)
            return True
        return self._waited_s(pod.uid, leaving) < GIVE_UP_S

    def _waited_s(self, uid: str, claims: frozenset[str]) -> float:
        now = self._clock.now()
        before = self._waits.pop(uid, None)
        if len(self._waits) >= _REMEMBERED:
            del self._waits[next(iter(self._waits))]
        since = before.since if before is not None and claims <= before.claims else now
        self._waits[uid] = _Wait(claims, since)
        return now - since

    # -- waking --------------------------------------------------------------------------------------------------------

    def events(self) -> Sequence[EventHint]:
        """What was kept for a pod can be had: its nomination ended, or came to nothing."""
        if not self._is_on:
            return ()
        claims = ClusterEvent(Resource.RESOURCE_CLAIM, UPDATE | Action.DELETE)
        return (
            EventHint(ASSIGNED_POD_DELETE, self._after_nomination, _anybody),
            EventHint(NODE_DELETE, self._after_node, _anybody),
            EventHint(claims, self._after_claim, _anybody, Topics(_kept, self._in_vain)),
        )

    def _after_nomination(self, _pod: PodInfo, old: PodInfo | None, _new: PodInfo | None) -> Hint:
        """Whoever ran has claims reserved for it, and their end is what tells, unless it went elsewhere than was thought."""
        if old is None:
            return Hint.SKIP
        claims = [self._devices.claims.get(key) for key in claim_keys(old.pod)]
        if self._served.among(old.requests):
            claims.append(self._devices.claims.made_for(old.pod))
        if claims and self._cluster.get(old.uid) is not None:
            return Hint.QUEUE
        has_run = all(claim is not None and claim.is_reserved_for(old.uid) for claim in claims)
        return Hint.SKIP if has_run else Hint.QUEUE

    def _after_node(self, _pod: PodInfo, old: Node | None, _new: Node | None) -> Hint:
        """What was kept of shared pools for pods nominated there is for nobody now."""
        there = old.metadata.name if old is not None else ""
        return Hint.QUEUE if any(name == there for name, _ in self._preempting.nominated()) else Hint.SKIP

    def _after_claim(self, _pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim | None) -> Hint:
        """A nominated pod will not get devices for its claim: that goes, or has what was decided on for others."""
        return Hint.QUEUE if self._in_vain(old, new) else Hint.SKIP

    def _in_vain(self, old: ResourceClaim | None, new: ResourceClaim | None) -> tuple[Hashable, ...]:
        if old is None or old.is_allocated:
            return ()
        for _, other in self._preempting.nominated():
            if old.key in claim_keys(other.pod) and (new is None or not new.is_reserved_for(other.uid)):
                return (_KEPT,)
        return ()


def _short(refused: Groups) -> NodeSet:
    """Nodes on which devices are too few."""
    out = EMPTY
    for no, nodes in refused.items():
        if no.plugin == PLUGIN and no.message == CANNOT_ALLOCATE:
            out |= nodes
    return out


def _anybody(_pod: PodInfo) -> None:
    """The waiting pod does not matter."""


def _kept(_pod: PodInfo) -> tuple[Hashable]:
    """All wait for the same."""
    return (_KEPT,)
