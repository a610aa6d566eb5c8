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
from scheduler.cache.assume_cache import NotKnown
from scheduler.cache.nodes.node_groups import matching_selector
from scheduler.config.args import DynamicResourcesArgs
from scheduler.core.cooperative import T, Work, finish, metered, started
from scheduler.core.errors import ApiError
from scheduler.core.feature_gates import (
    CONSUMABLE,
    FILTER_TIMEOUT,
    NEGATIVE_CONSUMPTION,
    SHORT_POST_FILTER,
)
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, DryRun, EventHint, PostFiltered, Scores
from scheduler.framework.status import SKIP, AttemptError, Code, Groups, Nominate, Rejection, Skip
from scheduler.plugins.dra.binding.binding_conditions import is_unavailable
from scheduler.plugins.dra.binding.claim_binder import DELETED, FREED, NOT_HELPED, ClaimBinder
from scheduler.plugins.dra.binding.claim_writer import ClaimError
from scheduler.plugins.dra.claims import NAMED_ANEW, Unresolved, claims_of
from scheduler.plugins.dra.explain import DeviceExplanations
from scheduler.plugins.dra.extended_resources import ExtendedResources, is_in_memory
from scheduler.plugins.dra.fragmentation import NodeFragmentation
from scheduler.plugins.dra.hints import DynamicResourcesHints
from scheduler.plugins.dra.preemption import WAITING, DevicePreemption
from scheduler.plugins.dra.scoring import AlternativesScore, has_alternatives
from scheduler.plugins.dra.state import PLUGIN, STATE, DeviceState, Variant, state_of
from scheduler.plugins.dra.structured.allocator import AllocationError
from scheduler.plugins.dra.structured.candidate_order import packing
from scheduler.plugins.dra.structured.error_nodes import ErrorNodes, TimedOut
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures
from scheduler.plugins.dra.structured.node_verdicts import (
    CANNOT_ALLOCATE,
    LONGEST_ATTEMPT_S,
    NodeVerdicts,
    SearchVerdict,
    limits_of,
    named,
)
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
    is_reversible: Final = True
    reads: Final = ("ResourceClaim", "ResourceSlice", "DeviceClass")

    def __init__(self, args: DynamicResourcesArgs | None, handle: Handle) -> None:
        args = args if args is not None else DynamicResourcesArgs()
        gates = handle.feature_gates
        self._says_less = SHORT_POST_FILTER in gates
        self._refuses_negative = gates >= {CONSUMABLE, NEGATIVE_CONSUMPTION}
        self._gates = gates
        self._cluster = handle.cluster
        self._nodes = handle.cluster.nodes
        self._devices = handle.cluster.devices
        self._rng = handle.rng
        self._binding_timeout_s = args.binding_timeout_s
        sets = SelectorSets(self._devices.holding, evaluated=handle.device_metrics.evaluated)
        self._parser = ClaimParser(self._devices.classes, sets, gates)
        ours = handle.ours
        self.is_brief = not ours.parity
        self._clock = handle.clock
        self._extended = ExtendedResources(self._nodes, self._devices, self._parser, gates=gates)
        self._binder = ClaimBinder(args, handle)
        self._packs = ours.device_scoring != "firstFit"
        self._limits_consumers = not ours.parity
        self._hints = DynamicResourcesHints(handle)
        rules = AllocatorFeatures.of(gates, merges_terms=not ours.parity)
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
        self._fragmentation: NodeFragmentation | None = None
        if ours.device_scoring == "leastFragmentation":
            self._fragmentation = NodeFragmentation(self._nodes, self._devices.on_nodes, self._devices.use, rules)
        self._preemption = DevicePreemption(handle, self._verdicts, self._pre_filter, self._timed)
        # The event loop schedules one pod at a time. An attempt that searches 5000 unlike nodes would otherwise block
        # all other pods for minutes.
        self._longest_s = 0.0 if ours.parity else LONGEST_ATTEMPT_S
        self._explanations = DeviceExplanations(handle, rules)

    # -- deciding ------------------------------------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None:
        """Reject the pod unless all its claims exist (§3.2)."""
        # A pod without its claims cannot be scheduled by anything that happens to nodes. Outside the queue it costs
        # nothing until the claim controller has created them.
        if not pod.pod.spec.resource_claims:
            return None
        try:
            claims_of(pod.pod, self._need)
        except Unresolved as error:
            return _unresolvable(str(error))
        return None

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Rejection | Skip | None:
        """Collect the pod's claims and what they request from each group of nodes (§3.3)."""
        answer = self._pre_filter(state, pod, nodes)
        # A pod without devices is scored as well: it can use up the CPUs that make the devices of its node usable.
        if self._fragmentation is not None and self._fragmentation.is_known:
            state.skip_score.discard(self.name)
        return answer

    def _pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Rejection | Skip | None:
        device_state = DeviceState()
        state.set(STATE, device_state)
        served = self._extended.served(pod)
        # Nearly all pods end here, so it comes before any work.
        if not pod.pod.spec.resource_claims and not served:
            state.skip_score.add(self.name)
            return SKIP
        try:
            claims = claims_of(pod.pod, self._need)
        except Unresolved as error:
            return _unresolvable(str(error))
        if not claims and not served:
            return SKIP
        if state.mode.shares:
            claims = self._as_planned(device_state, claims)
        rejection = self._check_claims(device_state, claims, pod)
        if rejection is not None:
            return rejection
        if served:
            self._extended.lay_out(device_state, pod, served, claims=claims, nodes=nodes)
        else:
            to_allocate = tuple(claim for claim in claims if not claim.is_allocated)
            demand = self._parser.of(to_allocate) if to_allocate else None
            device_state.variants = (Variant(nodes, to_allocate, demand),)
            device_state.claims = claims
        # A claim with a negative amount hides what other claims have of its devices.
        problem = self._devices.claims.negative.problem if self._refuses_negative else ""
        if problem and not all(claim.is_allocated for claim in device_state.claims):
            return _error(f"gather allocation state: {problem}")
        # Score has nothing to compare without prioritized lists. Skipping it saves the search of all nodes.
        if not has_alternatives(claims):
            state.skip_score.add(self.name)
        return None

    def _as_planned(self, device_state: DeviceState, claims: Sequence[ResourceClaim]) -> tuple[ResourceClaim, ...]:
        """Return the claims as if those had their devices that are in flight for pods of the same group.

        Upstream: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go PreFilter
        """
        planned = []
        for claim in claims:
            pending = self._devices.claims.pending(claim.uid) if not claim.is_allocated else None
            if pending is None:
                planned.append(claim)
                continue
            status = msgspec.structs.replace(claim.status, allocation=pending)
            planned.append(msgspec.structs.replace(claim, status=status))
            device_state.shared = (*device_state.shared, planned[-1])
        return tuple(planned)

    def _need(self, key: str) -> ResourceClaim:
        try:
            return self._devices.claims.need(key)
        except NotKnown as error:
            raise NotKnown(f"{error}{unreadable(self._devices, 'ResourceClaim', key)}") from error

    def _check_claims(
        self, device_state: DeviceState, claims: Sequence[ResourceClaim], pod: PodInfo
    ) -> Rejection | None:
        """Check each claim, and record where allocated devices can be used (§3.3 step 6)."""
        unavailable_claims = []
        for at, claim in enumerate(claims):
            # An allocated claim decides nothing any more: it only says where it can be used, and whether one more pod
            # may use it.
            if claim.status.allocation is not None:
                users = len(claim.status.reserved_for) + self._devices.claims.sharers(claim.uid)
                # The API server refuses the 257th user when the claim is written. kube-scheduler tries again and
                # again; here the pod waits until a user leaves.
                if self._limits_consumers and users >= RESERVED_FOR_MAX and not claim.is_reserved_for(pod.uid):
                    return _unresolvable(
                        f"resource claim {claim.key} has {RESERVED_FOR_MAX} users, the most it can have"
                    )
                # The devices did not become ready for the pod that had them before. No node is refused yet:
                # PostFilter frees them if no other node fits.
                if self._has_binding_conditions and is_unavailable(claim, self._clock.wall(), self._binding_timeout_s):
                    unavailable_claims.append(at)
                selector = claim.status.allocation.node_selector
                if selector is not None:
                    problem = selector_problem(selector)
                    if problem:
                        return _error(problem)
                    device_state.usable_on[at] = matching_selector(self._nodes, selector)
                if any(result.skip_node_operations for result in claim.status.allocation.devices.results):
                    able = self._nodes.features.having(_NODE_OPERATIONS)
                    device_state.usable_on[at] = device_state.usable_on.get(at, able) & able
                continue
            # Another pod that shares the claim is being bound. Its allocation may still fail, so nothing can be
            # derived from it; the end of the binding retries this pod.
            if self._devices.claims.pending(claim.uid) is not None:
                return _unresolvable(f"resource claim {claim.key} is in the process of being allocated")
            rejection = request_problem(claim, self._devices, self._gates)
            if rejection is not None:
                return Rejection(self.name, *rejection)
        device_state.unavailable_claims = tuple(unavailable_claims)
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups | Work[Groups]:
        """Reject nodes without free devices, and nodes where devices of allocated claims cannot be used (§3.4)."""
        device_state = state_of(state)
        if device_state is None:
            return {_NOT_FOUND: nodes}
        # After Reserve this is a second call, before the pod is bound. The kubelet goes by the names in the pod's
        # status, so a claim that was exchanged must not be bound.
        if device_state.node_name and self._binder.is_misled(device_state, pod):
            return {_unresolvable(NAMED_ANEW): nodes}
        return started(self._timed(device_state, self._filter(device_state, state, pod, nodes)), self._clock)

    def _filter(self, device_state: DeviceState, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Work[Groups]:
        groups: Groups = {}
        remaining = nodes
        for rejection, excluded in device_state.unfit.items():
            if excluded & nodes:
                groups[rejection] = excluded & nodes
                remaining &= ~excluded
        # Groups of nodes are disjoint, and nearly always there is one of them. Only extended resources make several.
        # After Reserve this pod holds the devices itself, and they are in use for every other question.
        variants = () if device_state.allocations else device_state.variants
        for variant in variants:
            candidates = remaining & variant.nodes
            if variant.demand is None or not candidates:
                continue
            exact = bool(device_state.usable_on or device_state.unavailable_claims)
            without = yield from self._without_devices(state, pod, variant, nodes=candidates, exact=exact)
            for rejection, excluded in without.items():
                groups[rejection] = groups.get(rejection, 0) | excluded
                remaining &= ~excluded
        # Upstream reports a claim's node selector after the devices: a node that has neither is one of those with too
        # few devices.
        useless = remaining if device_state.unavailable_claims else 0
        for usable in device_state.usable_on.values():
            useless |= remaining & ~usable
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
        # A dry run changes one node. The verdicts are about the real state, so this node is searched separately.
        tried = self._preemption.tried_on(state, nodes)
        risky = nodes & ~tried & (yield from self._error_nodes.of(demand))  # an error on one of them ends the attempt
        # kube-scheduler filters nodes in parallel, and any error among them ends the attempt. Most demands have no
        # risky node, and then this costs nothing.
        error = (yield from self._verdicts.first_error(demand, risky)) if risky else None
        if exact:
            verdicts = yield from self._verdicts.search_all(demand, nodes)
        else:
            verdicts = yield from self._verdicts.search_some(demand, nodes)
            yield
        # A node selector of a slice that cannot be parsed stops all pods with devices upstream, because GatherPools
        # fails for each node.
        problem = self._devices.on_nodes.shared.problem
        if problem:
            return {_error(f"gather pool information: {problem}"): nodes}
        groups: Groups = {}
        if tried:
            rejection = yield from self._judged(state, pod, variant, slot=tried.bit_length() - 1)
            groups, nodes = {rejection: tried} if rejection is not None else {}, nodes & ~tried
        if error is not None:
            slot, text = error
            self._explanations.warn(pod, variant, slot)
            return {_error(self._verdicts.text_on(slot, text, variant.names)): 1 << slot}
        for text, excluded in verdicts.refused.items():
            if excluded & nodes:
                groups[_too_few(named(text, variant.names))] = excluded & nodes
        return groups

    def _timed(self, device_state: DeviceState, work: Work[T]) -> Work[T]:
        """Run the work; raise AttemptError once this attempt has searched for too long."""

        def spend(seconds: float) -> None:
            device_state.searched_s += seconds
            if 0 < self._longest_s < device_state.searched_s:
                text = f'running "{PLUGIN}" filter plugin: timed out trying to allocate devices'
                raise AttemptError(text, plugin=PLUGIN)

        return metered(work, self._clock, spend)

    def filter_is_exact(self, state: CycleState, pod: PodInfo) -> bool:
        """Return whether no claim is to be allocated, so that a node needs no search."""
        device_state = state_of(state)
        return device_state is None or all(variant.demand is None for variant in device_state.variants)

    def verify(self, state: CycleState, pod: PodInfo, slot: int) -> Rejection | Work[Rejection | None] | None:
        """Search one node, for at most filterTimeout."""
        device_state = state_of(state)
        variant = device_state.variant(slot) if device_state is not None else None
        if device_state is None or variant is None or variant.demand is None or device_state.allocations:
            return None
        # Filter has searched this very kind, and nothing was applied to the cache since. Most attempts need no second
        # search.
        if self._is_settled(state, device_state, pod, variant.demand, slot=slot):
            return None
        return started(self._timed(device_state, self._verify(state, pod, variant, slot=slot)), self._clock)

    def _is_settled(
        self, state: CycleState, device_state: DeviceState, pod: PodInfo, demand: ClaimsToAllocate, *, slot: int
    ) -> bool:
        """Return whether Filter has found the devices that the pod would get on the node."""
        return self._verdicts.is_settled(demand, slot) and self._preemption.is_as_it_is(state, device_state, pod, slot)

    def _verify(self, state: CycleState, pod: PodInfo, variant: Variant, *, slot: int) -> Work[Rejection | None]:
        rejection = yield from self._judged(state, pod, variant, slot=slot)
        if rejection is not None and rejection.code is Code.ERROR:
            self._explanations.warn(pod, variant, slot)
        return rejection

    def _judged(self, state: CycleState, pod: PodInfo, variant: Variant, *, slot: int) -> Work[Rejection | None]:
        try:
            verdict = yield from self._preemption.verdict(state, pod, variant, slot=slot)
            return self._refusal(verdict, variant, slot)
        except TimedOut:
            return self._timed_out(slot)

    def prefer(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> NodeSet:
        """Return the nodes with the fewest free devices, so that later large requests fit on one node."""
        device_state = state_of(state)
        if not self._packs or device_state is None or self.filter_is_exact(state, pod):
            return nodes
        # Nodes of which nothing is known yet are left out, if some are known to fit: to verify them would cost a
        # search.
        fit = sum(self._verdicts.fit(v.demand) & v.nodes for v in device_state.variants if v.demand is not None)
        return self._verdicts.fullest(fit & nodes or nodes)

    def add_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, slot: int) -> None:
        """Record that `other` is on the node in this dry run."""
        self._preemption.add_pod(state, other, slot)

    def remove_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, slot: int) -> None:
        """Record that `other` has left the node in this dry run; claims without other users free their devices."""
        self._preemption.remove_pod(state, other, slot)

    def preemptible_nodes(self, state: CycleState, pod: PodInfo, rejection: Rejection, nodes: NodeSet) -> Work[NodeSet]:
        """Return nodes that have too few devices for the pod, and enough without pods of lower priority."""
        return self._preemption.preemptible_nodes(state, pod, rejection, nodes=nodes)

    # -- scoring -------------------------------------------------------------------------------------------------------

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores | Work[Scores]:
        """Score nodes by the alternatives that they would give: an earlier alternative scores higher (§3.6).

        Without alternatives, score by fragmentation if `deviceScoring` says so.
        """
        device_state = state_of(state) or DeviceState()
        if not has_alternatives(device_state.claims):
            if self._fragmentation is None:
                return np.zeros(self._nodes.capacity, dtype=np.int64)
            work = self._fragmentation.score(pod, _demand_of(device_state), nodes)
            return started(self._timed(device_state, work), self._clock)
        return started(self._timed(device_state, self._alternatives.score(device_state, nodes)), self._clock)

    def normalize_score(self, state: CycleState, pod: PodInfo, scores: Scores, slots: npt.NDArray[np.intp]) -> Scores:
        """Return the scores in percent of the best, or fragmentation from the largest growth to the smallest."""
        device_state = state_of(state)
        if self._fragmentation is not None and not (device_state and has_alternatives(device_state.claims)):
            chosen = scores[slots]
            lowest, highest = int(chosen.min()), int(chosen.max())
            return (scores - lowest) * 100 // (highest - lowest) if highest > lowest else np.zeros_like(scores)
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
        device_state = state_of(state)
        if device_state is None:
            return _NOT_FOUND
        if state.mode.is_tentative:
            return self._not_freed(NOT_HELPED)
        # Victims of an earlier attempt have left, and their claims still hold the devices until the claim controller
        # acts. More victims would not help.
        if (yield from self._preemption.waits(device_state, pod, refused, what_if)):
            return Nominate(what_if.nominated_to, rejection=WAITING)
        self._explanations.log(pod, device_state.variants)
        useless = _in_the_way(device_state, refused.get(_UNAVAILABLE, 0))
        return self._not_freed(self._binder.free(device_state, pod, useless))

    def _not_freed(self, text: str) -> Rejection:
        """Return PostFilter's answer; since 1.37 it has no reason unless a claim is freed."""
        reasons = () if self._says_less and text not in {FREED, DELETED} else (text,)
        return Rejection(self.name, Code.UNSCHEDULABLE, reasons)

    def waits_on(self, pod: PodInfo, slot: int) -> bool:
        """Return whether devices on this node, to which a pod of a group is nominated, are being freed."""
        return self._preemption.waits_on(pod, slot)

    def release_group(self, pods: Sequence[PodInfo]) -> None:
        """Deallocate what is allocated for pods of a refused group alone: allocated devices would choose their nodes."""
        self._binder.free_group(pods)

    def explain(self, pod: PodInfo) -> Mapping[str, Any] | None:
        """Count the devices that each request of the pod finds on all nodes now. Expensive: only for `/debug/pod`."""
        state = CycleState()
        rejection = self._pre_filter(state, pod, self._nodes.present)
        if isinstance(rejection, Rejection):
            return {"problem": rejection.message}
        return None if rejection is not None else self._explanations.of(state.get(STATE).variants)

    # -- acting --------------------------------------------------------------------------------------------------------

    def prepare_reserve(self, state: CycleState, pod: PodInfo, slot: int) -> Work[None]:
        """Search the devices that `reserve` takes, so that `reserve` does not block the event loop."""
        device_state = state_of(state)
        variant = device_state.variant(slot) if device_state is not None and not device_state.allocations else None
        if device_state is None or variant is None or variant.demand is None:
            return
        if not self._is_settled(state, device_state, pod, variant.demand, slot=slot):
            # `reserve` runs into the same limit and reports it. Here the time-out only means that nothing could be
            # prepared.
            with contextlib.suppress(TimedOut):
                yield from self._timed(device_state, self._picked(device_state, pod, variant.demand, slot))

    def _picked(self, device_state: DeviceState, pod: PodInfo, demand: ClaimsToAllocate, slot: int) -> Work[None]:
        use = yield from self._preemption.use_with_holds(device_state, pod, slot)
        yield from self._verdicts.picked(demand, slot, use)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        """Take the devices (§3.7)."""
        device_state = state_of(state)
        slot = self._nodes.present_slot(node_name)
        if device_state is None or not device_state.claims or slot is None:
            return None
        variant = device_state.variant(slot)
        device_state.node_name = node_name
        if device_state.shared and (rejection := self._share(device_state)) is not None:
            return rejection
        if variant is None or variant.demand is None:
            return None
        self._devices.on_nodes.catch_up()  # another pod may have taken devices since Filter
        try:
            use = finish(self._preemption.use_with_holds(device_state, pod, slot))
            found = self._verdicts.allocate(
                variant.demand, slot, node_name=node_name, names=variant.names, rng=self._rng, use=use
            )
        except TimedOut:
            return self._timed_out(slot)
        except AllocationError as error:
            return _error(self._verdicts.text_on(slot, str(error), variant.names))
        if isinstance(found, SearchVerdict):
            return self._refusal(found, variant, slot) or _unresolvable(CANNOT_ALLOCATE)
        device_state.special, device_state.mappings = variant.special, variant.mappings
        for claim, allocation in zip(variant.claims, found):
            status = msgspec.structs.replace(claim.status, allocation=allocation)
            metadata = claim.metadata
            # The finalizer must be on the claim before its allocation: without it the API server could delete a claim
            # whose devices are in use.
            if FINALIZER not in metadata.finalizers:
                metadata = msgspec.structs.replace(metadata, finalizers=(*metadata.finalizers, FINALIZER))
            if is_in_memory(claim):
                # An empty uid: the claim is in flight under a temporary uid until it is created.
                metadata = msgspec.structs.replace(metadata, uid="")
            # From here on the devices are in use, under the claim in flight. The write follows in PreBind, and the
            # watch shows it later; there is no gap.
            device_state.allocations[claim.uid] = allocation
            try:
                self._devices.claims.signal(claim.uid, msgspec.structs.replace(claim, metadata=metadata, status=status))
            except NotKnown:
                return _error(f"internal error, couldn't signal allocation for claim {claim.metadata.name}")
            if self._devices.claims.pending(claim.uid) is not None:
                device_state.signalled = (*device_state.signalled, claim.uid)
        return None

    def _share(self, device_state: DeviceState) -> Rejection | None:
        """Take part in the allocations that are in flight for other pods of the plan: each of them may write it."""
        for claim in device_state.shared:
            allocation = self._devices.claims.pending(claim.uid)
            if allocation is None:
                return _unresolvable(f"resource claim {claim.key} is in the process of being allocated")
            status = msgspec.structs.replace(claim.status, allocation=allocation)
            self._devices.claims.signal(claim.uid, msgspec.structs.replace(claim, status=status))
            device_state.allocations[claim.uid] = allocation
            device_state.signalled = (*device_state.signalled, claim.uid)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Release allocations in flight at once, and written reservations in the background (§3.8)."""
        device_state = state_of(state)
        if device_state is not None and self._cluster.is_planning:
            self._binder.land(device_state)  # this placement was only tried, so that nothing was written for it
        elif device_state is not None:
            self._binder.take_back(device_state, pod)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | Skip | None:
        """Return Skip for pods without claims (§3.9)."""
        device_state = state_of(state)
        if device_state is None:
            return _NOT_FOUND
        return None if device_state.claims else SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        """Write the allocations, check that no other claim had the devices first, and wait for them (§3.10, §3.11)."""
        try:
            await self._binder.bind(state.get(STATE), pod, node_name)
        except (ClaimError, ApiError) as error:
            return _error(str(error))
        demand = _demand_of(state_of(state))
        if self._fragmentation is not None and demand is not None:
            self._fragmentation.note(pod, demand)
        return None

    # -- waking --------------------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events that can help a rejected pod (§7)."""
        return self._hints.events()


def _demand_of(device_state: DeviceState | None) -> ClaimsToAllocate | None:
    """Return the claims to allocate: on the first group of nodes that needs any, where extended resources make several."""
    variants = device_state.variants if device_state is not None else ()
    return next((variant.demand for variant in variants if variant.demand is not None), None)


def _unresolvable(text: str) -> Rejection:
    return Rejection(PLUGIN, Code.UNRESOLVABLE, (text,))


def _error(text: str) -> Rejection:
    return Rejection(PLUGIN, Code.ERROR, (text,))


def _too_few(text: str) -> Rejection:
    """Return a rejection for missing devices, whatever its text. Pods that leave may free devices."""
    # Upstream's code is UnschedulableAndUnresolvable, so preemption does not look at these nodes. `is_shortage` opens
    # them for the preemption of devices.
    return Rejection(PLUGIN, Code.UNRESOLVABLE, (text,), is_shortage=True)


_UNAVAILABLE: Final = _unresolvable(NOT_AVAILABLE)
_NOT_FOUND: Final = _error("not found")


def _in_the_way(device_state: DeviceState, nodes: NodeSet) -> list[ResourceClaim]:
    """Return the claims that kept the pod off one of these nodes, where all other checks passed."""
    elsewhere = {at for at, usable in device_state.usable_on.items() if nodes & ~usable}
    return [device_state.claims[at] for at in sorted(elsewhere.union(device_state.unavailable_claims if nodes else ()))]
