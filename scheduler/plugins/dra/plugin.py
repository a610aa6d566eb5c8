"""DynamicResources at its extension points (docs/spec/dra.md §3)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.api.node_affinity import selector_problem
from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import FINALIZER, RESERVED_FOR_MAX, ResourceClaim
from scheduler.cache.nodes.node_groups import matching_selector
from scheduler.cache.storage.assume_cache import NotKnown
from scheduler.config.args import DynamicResourcesArgs
from scheduler.core.cooperative import T, Work, finish, metered, started
from scheduler.core.errors import ApiError
from scheduler.core.feature_gates import (
    DYNAMIC_RESOURCE_ALLOCATION as ENABLED,
    FILTER_TIMEOUT,
    SHORT_POST_FILTER,
)
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, DryRun, EventHint, PostFiltered, Scores
from scheduler.framework.status import SKIP, AttemptError, Code, Groups, Nominate, Rejection, Skip
from scheduler.plugins.dra.binding.binding_conditions import is_worn_out
from scheduler.plugins.dra.binding.claim_binder import DELETED, FREED, ClaimBinder
from scheduler.plugins.dra.binding.claim_writer import ClaimError
from scheduler.plugins.dra.claims import NAMED_ANEW, Unresolved, claims_of
from scheduler.plugins.dra.explain import DeviceExplanations
from scheduler.plugins.dra.extended_resources import ExtendedResources, is_in_memory
from scheduler.plugins.dra.hints import DynamicResourcesHints
from scheduler.plugins.dra.preemption import WAITING, DevicePreemption
from scheduler.plugins.dra.scoring import AlternativesScore, has_alternatives
from scheduler.plugins.dra.state import PLUGIN, STATE, DeviceState, Variant, state_of
from scheduler.plugins.dra.structured.allocator import AllocationError
from scheduler.plugins.dra.structured.candidate_order import packing
from scheduler.plugins.dra.structured.error_nodes import ErrorNodes, TimedOut
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures
from scheduler.plugins.dra.structured.node_searches import CANNOT_ALLOCATE, LONGEST_ATTEMPT_S, SearchVerdict, limits_of
from scheduler.plugins.dra.structured.node_verdicts import NodeVerdicts
from scheduler.plugins.dra.structured.requests import (
    ClaimParser,
    ClaimsToAllocate,
    SelectorSets,
    request_problem,
    unreadable,
)

NOT_AVAILABLE: Final = "resourceclaim not available on the node"
_NODE_OPERATIONS: Final = "DRAOptionalNodeOperations"
"""The feature of nodes that can use devices whose operations their kubelet must skip.

Upstream reads it with the gate off, too: another scheduler may have allocated the claim.
"""


class DynamicResources:
    """PreEnqueue, PreFilter, Filter, Verify, PostFilter, Reserve, PreBind.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go DynamicResources
    """

    name: Final = PLUGIN
    depends_on_pods: Final = False
    pre_bind_parallel: Final = True
    reads: Final = ("ResourceClaim", "ResourceSlice", "DeviceClass")

    def __init__(self, args: DynamicResourcesArgs | None, handle: Handle) -> None:
        args = args if args is not None else DynamicResourcesArgs()
        gates = handle.feature_gates
        self._is_on = ENABLED in gates
        self._says_less = SHORT_POST_FILTER in gates
        self._gates = gates
        self._nodes = handle.cluster.nodes
        self._devices = handle.cluster.devices
        self._chance = handle.chance
        self._binding_timeout_s = args.binding_timeout_s
        sets = SelectorSets(self._devices.holding, evaluated=handle.device_metrics.evaluated)
        self._parser = ClaimParser(self._devices.classes, sets, gates)
        ours = handle.ours
        self.is_brief = not ours.parity
        self._clock = handle.clock
        self._extended = ExtendedResources(self._nodes, self._devices, self._parser, gates=gates)
        self._binder = ClaimBinder(args, handle)
        self._packs = ours.device_scoring == "pack"
        self._limits_consumers = not ours.parity
        self._hints = DynamicResourcesHints(handle)
        rules = AllocatorFeatures.of(gates, old_shares=not ours.parity, merges_terms=not ours.parity)
        self._has_binding_conditions = rules.binding
        self._verdicts = NodeVerdicts(
            self._devices.on_nodes,
            self._devices.use,
            handle.clock,
            rules,
            limits=limits_of(args.filter_timeout_s if FILTER_TIMEOUT in gates else 0.0, parity=ours.parity),
            orders=packing if self._packs else None,
            searched=handle.device_metrics.searched,
        )
        self._error_nodes = ErrorNodes(self._devices.on_nodes, rules)
        self._alternatives = AlternativesScore(self._nodes, self._devices.on_nodes, self._verdicts)
        self._preemption = DevicePreemption(handle, self._verdicts, self.pre_filter, self._timed)
        self._longest_s = 0.0 if ours.parity else LONGEST_ATTEMPT_S
        self._explanations = DeviceExplanations(handle, rules)

    # -- deciding ------------------------------------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None:
        """Reject the pod unless all its claims exist (§3.2)."""
        if not self._is_on or not pod.pod.spec.resource_claims:
            return None
        try:
            claims_of(pod.pod, self._need)
        except Unresolved as error:
            return _unresolvable(str(error))
        return None

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Rejection | Skip | None:
        """Collect the pod's claims and what they request from each group of nodes (§3.3)."""
        if not self._is_on:
            return SKIP
        known = DeviceState()
        state.set(STATE, known)
        served = self._extended.served(pod)
        if not pod.pod.spec.resource_claims and not served:
            state.skip_score.add(self.name)
            return SKIP
        try:
            claims = claims_of(pod.pod, self._need)
        except Unresolved as error:
            return _unresolvable(str(error))
        if not claims and not served:
            return SKIP
        no = self._look_at(known, claims, pod)
        if no is not None:
            return no
        if served:
            self._extended.lay_out(known, pod, served, claims=claims, nodes=nodes)
        else:
            to_allocate = tuple(claim for claim in claims if not claim.is_allocated)
            demand = self._parser.of(to_allocate) if to_allocate else None
            known.variants = (Variant(nodes, to_allocate, demand),)
            known.claims = claims
        if not has_alternatives(claims):
            state.skip_score.add(self.name)
        return None

    def _need(self, key: str) -> ResourceClaim:
        try:
            return self._devices.claims.need(key)
        except NotKnown as error:
            raise NotKnown(f"{error}{unreadable(self._devices, 'ResourceClaim', key)}") from error

    def _look_at(self, known: DeviceState, claims: Sequence[ResourceClaim], pod: PodInfo) -> Rejection | None:
        """Check each claim, and record where allocated devices can be used (§3.3 step 6)."""
        worn_out = []
        for at, claim in enumerate(claims):
            if claim.status.allocation is not None:
                users = claim.status.reserved_for
                if self._limits_consumers and len(users) >= RESERVED_FOR_MAX and not claim.is_reserved_for(pod.uid):
                    return _unresolvable(
                        f"resource claim {claim.key} has {RESERVED_FOR_MAX} users, the most it can have"
                    )
                if self._has_binding_conditions and is_worn_out(claim, self._clock.wall(), self._binding_timeout_s):
                    worn_out.append(at)
                selector = claim.status.allocation.node_selector
                if selector is not None:
                    problem = selector_problem(selector)
                    if problem:
                        return _error(problem)
                    known.usable_on[at] = matching_selector(self._nodes, selector)
                if any(result.skip_node_operations for result in claim.status.allocation.devices.results):
                    able = self._nodes.features.having(_NODE_OPERATIONS)
                    known.usable_on[at] = known.usable_on.get(at, able) & able
                continue
            if self._devices.claims.pending(claim.uid) is not None:
                return _unresolvable(f"resource claim {claim.key} is in the process of being allocated")
            no = request_problem(claim, self._devices, self._gates)
            if no is not None:
                return Rejection(self.name, *no)
        known.worn_out = tuple(worn_out)
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups | Work[Groups]:
        """Reject nodes without free devices, and nodes where devices of allocated claims cannot be used (§3.4)."""
        if not self._is_on:
            return {}
        known = state_of(state)
        if known is None:
            return {_NOT_FOUND: nodes}
        if known.node_name and self._binder.is_misled(known, pod):
            return {_unresolvable(NAMED_ANEW): nodes}
        return started(self._timed(known, self._filter(known, state, pod, nodes)), self._clock)

    def _filter(self, known: DeviceState, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Work[Groups]:
        groups: Groups = {}
        left = nodes
        for no, out in known.unfit.items():
            if out & nodes:
                groups[no] = out & nodes
                left &= ~out
        for variant in () if known.allocations else known.variants:  # after Reserve this pod holds the devices itself
            here = left & variant.nodes
            if variant.demand is None or not here:
                continue
            exact = bool(known.usable_on or known.worn_out)
            without = yield from self._without_devices(state, pod, variant, nodes=here, exact=exact)
            for no, out in without.items():
                groups[no] = groups.get(no, 0) | out
                left &= ~out
        useless = left if known.worn_out else 0
        for usable in known.usable_on.values():
            useless |= left & ~usable
        if useless:
            groups[_UNAVAILABLE] = groups.get(_UNAVAILABLE, 0) | useless
        return groups

    def _without_devices(
        self, state: CycleState, pod: PodInfo, variant: Variant, *, nodes: NodeSet, exact: bool
    ) -> Work[Groups]:
        """Return the nodes without devices for the claims to allocate.

        `exact`: search every kind of nodes now, so that a node without devices is not taken for one that only an
        allocated claim excludes.
        """
        demand = variant.demand
        assert demand is not None
        tried = self._preemption.tried_on(state, nodes)
        risky = nodes & ~tried & (yield from self._error_nodes.of(demand))  # an error on one of them ends the attempt
        error = (yield from self._verdicts.first_error(demand, risky)) if risky else None
        if exact:
            verdicts = yield from self._verdicts.look_at_all(demand, nodes)
        else:
            verdicts = yield from self._verdicts.look(demand, nodes)
            yield
        problem = self._devices.on_nodes.shared.problem
        if problem:
            return {_error(f"gather pool information: {problem}"): nodes}
        groups: Groups = {}
        if tried:
            no = yield from self._judged(state, pod, variant, slot=tried.bit_length() - 1)
            groups, nodes = {no: tried} if no is not None else {}, nodes & ~tried
        if error is not None:
            slot, text = error
            self._explanations.warn(pod, variant, slot)
            return {_error(self._verdicts.text_on(slot, text, variant.names)): 1 << slot}
        for text, out in verdicts.refused.items():
            if out & nodes:
                groups[_too_few(text)] = out & nodes
        return groups

    def _timed(self, known: DeviceState, work: Work[T]) -> Work[T]:
        """Run the work; raise AttemptError once this attempt has searched for too long."""

        def spend(seconds: float) -> None:
            known.searched_s += seconds
            if 0 < self._longest_s < known.searched_s:
                text = f'running "{PLUGIN}" filter plugin: timed out trying to allocate devices'
                raise AttemptError(text, plugin=PLUGIN)

        return metered(work, self._clock, spend)

    def filter_is_exact(self, state: CycleState, pod: PodInfo) -> bool:
        """Return whether no claim is to be allocated, so that a node needs no search."""
        known = state_of(state)
        return known is None or all(variant.demand is None for variant in known.variants)

    def verify(self, state: CycleState, pod: PodInfo, slot: int) -> Rejection | Work[Rejection | None] | None:
        """Search one node, for at most filterTimeout."""
        known = state_of(state)
        variant = known.variant(slot) if known is not None else None
        if known is None or variant is None or variant.demand is None or known.allocations:
            return None
        if self._is_settled(state, known, pod, variant.demand, slot=slot):
            return None
        return started(self._timed(known, self._verify(state, pod, variant, slot=slot)), self._clock)

    def _is_settled(
        self, state: CycleState, known: DeviceState, pod: PodInfo, demand: ClaimsToAllocate, *, slot: int
    ) -> bool:
        """Return whether Filter has found the devices that the pod would get on the node."""
        return self._verdicts.is_settled(demand, slot) and self._preemption.is_as_it_is(state, known, pod, slot)

    def _verify(self, state: CycleState, pod: PodInfo, variant: Variant, *, slot: int) -> Work[Rejection | None]:
        no = yield from self._judged(state, pod, variant, slot=slot)
        if no is not None and no.code is Code.ERROR:
            self._explanations.warn(pod, variant, slot)
        return no

    def _judged(self, state: CycleState, pod: PodInfo, variant: Variant, *, slot: int) -> Work[Rejection | None]:
        try:
            verdict = yield from self._preemption.verdict(state, pod, variant, slot=slot)
            return self._refusal(verdict, variant, slot)
        except TimedOut:
            return self._timed_out(slot)

    def prefer(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> NodeSet:
        """Return the nodes with the fewest free devices, so that later large requests fit on one node."""
        known = state_of(state)
        if not self._packs or known is None or self.filter_is_exact(state, pod):
            return nodes
        fit = sum(self._verdicts.fit(v.demand) & v.nodes for v in known.variants if v.demand is not None)
        return self._verdicts.fullest(fit & nodes or nodes)

    def add_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, slot: int) -> None:
        """Record that `other` is on the node in this dry run."""
        self._preemption.came(state, other, slot)

    def remove_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, slot: int) -> None:
        """Record that `other` has left the node in this dry run; claims without other users free their devices."""
        self._preemption.left(state, other, slot)

    def preemptible_nodes(self, state: CycleState, pod: PodInfo, no: Rejection, nodes: NodeSet) -> Work[NodeSet]:
        """Return nodes that have too few devices for the pod, and enough without pods of lower priority."""
        return self._preemption.preemptible_nodes(state, pod, no, nodes=nodes)

    # -- scoring -------------------------------------------------------------------------------------------------------

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores | Work[Scores]:
        """Score nodes by the alternatives that they would give: an earlier alternative scores higher (§3.6)."""
        known = state_of(state) or DeviceState()
        if not has_alternatives(known.claims):
            return np.zeros(self._nodes.capacity, dtype=np.int64)
        return started(self._timed(known, self._alternatives.score(known, nodes)), self._clock)

    def normalize_score(self, state: CycleState, pod: PodInfo, scores: Scores, slots: npt.NDArray[np.intp]) -> Scores:
        """Return the scores in percent of the best."""
        best = int(scores[slots].max(initial=0))
        return scores * 100 // best if best > 0 else scores

    def _refusal(self, verdict: SearchVerdict, variant: Variant, slot: int) -> Rejection | None:
        if not verdict.refusal:
            return None
        text = self._verdicts.text_on(slot, verdict.refusal, variant.names)
        return _error(text) if verdict.failed else _too_few(text)

    def _timed_out(self, slot: int) -> Rejection:
        return _error(f"node {self._nodes.name(slot)}: timed out trying to allocate devices")

    def post_filter(self, state: CycleState, pod: PodInfo, refused: Groups, what_if: DryRun) -> Work[PostFiltered]:
        """Free devices of claims that keep the pod from running on any node (§3.5)."""
        if not self._is_on:
            return self._not_freed("plugin disabled")
        known = state_of(state)
        if known is None:
            return _NOT_FOUND
        if (yield from self._preemption.waits(known, pod, refused, what_if)):
            return Nominate(what_if.nominated_to, rejection=WAITING)
        self._explanations.log(pod, known.variants)
        useless = _in_the_way(known, refused.get(_UNAVAILABLE, 0))
        return self._not_freed(self._binder.free(known, pod, useless))

    def _not_freed(self, text: str) -> Rejection:
        """Return PostFilter's answer; since 1.37 it has no reason unless a claim is freed."""
        reasons = () if self._says_less and text not in {FREED, DELETED} else (text,)
        return Rejection(self.name, Code.UNSCHEDULABLE, reasons)

    def explain(self, pod: PodInfo) -> Mapping[str, Any] | None:
        """Count the devices that each request of the pod finds on all nodes now. Expensive: only for `/debug/pod`."""
        state = CycleState()
        no = self.pre_filter(state, pod, self._nodes.present)
        if isinstance(no, Rejection):
            return {"problem": no.message}
        return None if no is not None else self._explanations.of(state.get(STATE).variants)

    # -- acting --------------------------------------------------------------------------------------------------------

    def prepare_reserve(self, state: CycleState, pod: PodInfo, slot: int) -> Work[None]:
        """Search the devices that `reserve` takes, so that `reserve` does not block the event loop."""
        known = state_of(state)
        variant = known.variant(slot) if known is not None and not known.allocations else None
        if known is None or variant is None or variant.demand is None:
            return
        if not self._is_settled(state, known, pod, variant.demand, slot=slot):
            with contextlib.suppress(TimedOut):
                yield from self._timed(known, self._picked(known, pod, variant.demand, slot))

    def _picked(self, known: DeviceState, pod: PodInfo, demand: ClaimsToAllocate, slot: int) -> Work[None]:
        use = yield from self._preemption.besides_kept(known, pod, slot)
        yield from self._verdicts.picked(demand, slot, use)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        """Take the devices (§3.7)."""
        known = state_of(state)
        slot = self._nodes.present_slot(node_name)
        if known is None or not known.claims or slot is None:
            return None
        variant = known.variant(slot)
        known.node_name = node_name
        if variant is None or variant.demand is None:
            return None
        self._devices.on_nodes.catch_up()  # another pod may have taken devices since Filter
        try:
            use = finish(self._preemption.besides_kept(known, pod, slot))
            found = self._verdicts.allocate(
                variant.demand, slot, node_name=node_name, names=variant.names, chance=self._chance, use=use
            )
        except TimedOut:
            return self._timed_out(slot)
        except AllocationError as error:
            return _error(self._verdicts.text_on(slot, str(error), variant.names))
        if isinstance(found, SearchVerdict):
            return self._refusal(found, variant, slot) or _unresolvable(CANNOT_ALLOCATE)
        known.special, known.mappings = variant.special, variant.mappings
        for claim, allocation in zip(variant.claims, found):
            status = msgspec.structs.replace(claim.status, allocation=allocation)
            metadata = claim.metadata
            if FINALIZER not in metadata.finalizers:
                metadata = msgspec.structs.replace(metadata, finalizers=(*metadata.finalizers, FINALIZER))
            if is_in_memory(claim):
                # An empty uid: the claim is in flight under a temporary uid until it is created.
                metadata = msgspec.structs.replace(metadata, uid="")
            known.allocations[claim.uid] = allocation
            try:
                self._devices.claims.signal(claim.uid, msgspec.structs.replace(claim, metadata=metadata, status=status))
            except NotKnown:
                return _error(f"internal error, couldn't signal allocation for claim {claim.metadata.name}")
            if self._devices.claims.pending(claim.uid) is not None:
                known.signalled = (*known.signalled, claim.uid)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Release allocations in flight at once, and written reservations in the background (§3.8)."""
        known = state_of(state)
        if known is not None:
            self._binder.take_back(known, pod)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | Skip | None:
        """Return Skip for pods without claims (§3.9)."""
        if not self._is_on:
            return SKIP
        known = state_of(state)
        if known is None:
            return _NOT_FOUND
        return None if known.claims else SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        """Write the allocations, check that no other claim had the devices first, and wait for them (§3.10, §3.11)."""
        try:
            await self._binder.bind(state.get(STATE), pod, node_name)
        except (ClaimError, ApiError) as error:
            return _error(str(error))
        return None

    # -- waking --------------------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events that can help a rejected pod (§7)."""
        return self._hints.events()


def _unresolvable(text: str) -> Rejection:
    return Rejection(PLUGIN, Code.UNRESOLVABLE, (text,))


def _error(text: str) -> Rejection:
    return Rejection(PLUGIN, Code.ERROR, (text,))


def _too_few(text: str) -> Rejection:
    """Return a rejection for missing devices, whatever its text. Pods that leave may free devices."""
    return Rejection(PLUGIN, Code.UNRESOLVABLE, (text,), is_shortage=True)


_UNAVAILABLE: Final = _unresolvable(NOT_AVAILABLE)
_NOT_FOUND: Final = _error("not found")


def _in_the_way(known: DeviceState, nodes: NodeSet) -> list[ResourceClaim]:
    """Return the claims that kept the pod off one of these nodes, where all other checks passed."""
    elsewhere = {at for at, usable in known.usable_on.items() if nodes & ~usable}
    return [known.claims[at] for at in sorted(elsewhere.union(known.worn_out if nodes else ()))]
