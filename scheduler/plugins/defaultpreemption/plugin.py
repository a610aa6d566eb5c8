"""DefaultPreemption at its extension points (docs/spec/core.md §3.10).

Upstream: pkg/scheduler/framework/preemption/preemption.go Evaluator, Preempt
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from typing import Final

import numpy as np

from scheduler.api.apps_and_policy import is_leaving_for_a_preemptor
from scheduler.api.podinfo import PodInfo
from scheduler.config.args import DefaultPreemptionArgs
from scheduler.core import nodeset
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.core.cooperative import TURN_S
from scheduler.core.feature_gates import PREEMPTOR_TEXT
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.extender import Consultation, Victims, consultation_of
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, DryRun, EventHint, Hint, PostFiltered, Topics
from scheduler.framework.status import Code, Diagnosis, Groups, Nominate, Rejection
from scheduler.plugins.defaultpreemption.dry_run import (
    NO_VICTIMS,
    PLUGIN,
    Candidate,
    Cost,
    Evaluator,
    VictimRule,
    by_importance,
    cost,
)

_POD_GONE: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
_NOT_HELPFUL: Final = Rejection(PLUGIN, Code.UNRESOLVABLE, ("Preemption is not helpful for scheduling",))
_NEVER: Final = "not eligible due to preemptionPolicy=Never."
_TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
_WAITING: Final = Rejection(PLUGIN, Code.UNRESOLVABLE, ("waiting for the preemption for this pod to be finished",))


class DefaultPreemption:
    """PreEnqueue, PostFilter. Chooses a node and its victims; the evictions run in the background.

    Upstream: pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go DefaultPreemption, PostFilter
    """

    name: Final = PLUGIN
    reads: Final = frozenset({"PodDisruptionBudget"})

    def __init__(self, args: DefaultPreemptionArgs | None, handle: Handle) -> None:
        self._args = args if args is not None else DefaultPreemptionArgs()
        self._cluster = handle.cluster
        self._nodes = handle.cluster.nodes
        self._preempting = handle.preempting
        self._clock = handle.clock
        self._chance = handle.chance
        ours = handle.ours
        self._parity = ours.parity
        self._names_node = PREEMPTOR_TEXT in handle.feature_gates
        self._rule = VictimRule(
            handle.scheduler_names,
            spares_others=ours.victims == "own" and not ours.parity,
            prefers_own=ours.victims == "ownFirst" and not ours.parity,
        )
        self._dry_run = Evaluator(handle.cluster, self._rule)

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None:
        """Reject the pod while its own victims are being evicted."""
        return _WAITING if self._preempting.holds_back(pod.uid, self._cluster) else None

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the event of a deleted victim: PreEnqueue runs again, and other plugins' hints decide the rest."""
        return (EventHint(_POD_GONE, _never, _uid, Topics(_itself, self._concerned)),)

    def post_filter(
        self, state: CycleState, pod: PodInfo, refused: Groups, what_if: DryRun
    ) -> Generator[None, None, PostFiltered]:
        """Return the cheapest victims whose eviction makes the pod fit, from enough of the possible nodes."""
        consultation = consultation_of(state)
        if consultation is None or not consultation.proposed:
            self._preempting.attempted()
        nominated = what_if.nominated_to
        why = self._ineligible(pod, refused, nominated)
        if why:
            return Rejection(PLUGIN, Code.UNSCHEDULABLE, (f"preemption: {why}",))
        if consultation is not None and consultation.proposed:
            return self._accepted(pod, consultation, nominated)
        potential = EMPTY
        for no, nodes in refused.items():
            if no.code is Code.UNSCHEDULABLE:
                potential |= nodes
        found, groups = yield from self._candidates(pod, potential, what_if)
        if found:
            if consultation is not None and consultation.supports_preemption:
                self._propose(found, consultation)
            return self._chosen(found, nominated, groups)
        errors = sorted({no.message for no in groups if no.code is Code.ERROR})
        if errors:
            text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
            return Rejection(PLUGIN, Code.ERROR, (f"preemption: {text}",))
        if not_helpful := self._nodes.present & ~potential:
            groups[_NOT_HELPFUL] = not_helpful
        text = f"preemption: {Diagnosis(len(self._nodes), groups).message()}"
        return Nominate("", rejection=Rejection(PLUGIN, Code.UNSCHEDULABLE, (text,)), tried=groups)

    def _concerned(self, old: PodInfo | None, _new: PodInfo | None) -> tuple[Hashable, ...]:
        """Return the preemptor of a deleted pod."""
        uid = self._preempting.preemptor_of(old.uid) if old is not None else None
        return () if uid is None else (uid,)

    # -- eligibility -----------------------------------------------------------------------------------------------------

    def _ineligible(self, pod: PodInfo, refused: Groups, nominated: str) -> str:
        """Return why the pod may not preempt; "" if it may (step 1)."""
        if pod.pod.spec.preemption_policy == "Never":
            return _NEVER
        slot = self._nodes.present_slot(nominated) if nominated else None
        if slot is None:
            return ""
        if any(no.code is Code.UNRESOLVABLE and nodes >> slot & 1 for no, nodes in refused.items()):
            return ""
        for other in self._nodes.pods(slot).values():
            is_leaving = is_leaving_for_a_preemptor(other.pod) or self._preempting.is_doomed(other.uid)
            if is_leaving and self._rule.allows(other, pod):
                return _TERMINATING
        return ""

    # -- candidates ------------------------------------------------------------------------------------------------------

    def _candidates(
        self, pod: PodInfo, potential: NodeSet, what_if: DryRun
    ) -> Generator[None, None, tuple[list[Candidate], Groups]]:
        """Return enough nodes where preemption helps, or why none does (step 2)."""
        found: list[Candidate] = []
        groups: Groups = {}
        left_out = self._left_out(pod, potential)
        possible = potential & self._nodes.priorities.below(pod.priority) & ~left_out
        if potential & ~possible:
            groups[NO_VICTIMS] = potential & ~possible
        what_if.about(possible)
        known = self._dry_run.of(what_if, pod)
        wanted = self._enough(potential.bit_count())
        has_harmless = False
        turn = self._clock.now()
        for slot in self._in_turn(possible):
            answer = yield from self._dry_run.on(what_if, pod, slot, known)
            if isinstance(answer, Candidate):
                found.append(answer)
                has_harmless = has_harmless or not answer.violations
                if has_harmless and len(found) >= wanted:
                    break
            else:
                groups[answer] = groups.get(answer, EMPTY) | 1 << slot
            if self._clock.now() - turn > TURN_S:
                yield
                turn = self._clock.now()
        return found, groups

    def _left_out(self, pod: PodInfo, potential: NodeSet) -> NodeSet:
        """Return nodes where pods were evicted for this pod too often without success (§10.1)."""
        if self._parity:
            return EMPTY
        names = self._preempting.left_out(pod.uid, self._clock.now())
        slots = (self._nodes.present_slot(name) for name in names)
        return nodeset.of(slot for slot in slots if slot is not None) & potential

    def _enough(self, nodes: int) -> int:
        args = self._args
        return min(max(nodes * args.min_candidate_nodes_percentage // 100, args.min_candidate_nodes_absolute), nodes)

    def _in_turn(self, nodes: NodeSet) -> list[int]:
        """Return all nodes, starting at a random one."""
        slots = nodeset.slots(nodes, self._nodes.capacity)
        if not len(slots):
            return []
        order: list[int] = np.roll(slots, -int(self._chance.random() * len(slots))).tolist()
        return order

    # -- the choice ------------------------------------------------------------------------------------------------------

    def _chosen(self, found: list[Candidate], nominated: str, groups: Groups) -> Nominate:
        """Return the best candidate (step 4); of equal ones the node where pods were already evicted for this pod."""
        nominated_slot = None if self._parity or not nominated else self._nodes.present_slot(nominated)

        def price(candidate: Candidate) -> Cost:
            if nominated_slot is None:
                return candidate.cost
            return (*candidate.cost[:_NOMINATED_AT], candidate.slot != nominated_slot, *candidate.cost[_NOMINATED_AT:])

        best = min(found, key=price)
        name = self._nodes.name(best.slot)
        pods = self._nodes.pods(best.slot)
        victims = tuple(pods[uid] for uid in best.victims)
        message = f"preemption: found a potential placement for pod on node {name}, preempting {len(victims)} victims"
        if not self._names_node:
            message = "" if self._parity else f"{message}."
        return Nominate(name, message, victims, tried=groups)

    # -- extenders -------------------------------------------------------------------------------------------------------

    def _propose(self, found: list[Candidate], consultation: Consultation) -> None:
        """Send the candidates to the extenders (step 3). Raises Unanswered."""
        proposed, pods = {}, {}
        for candidate in found:
            name = self._nodes.name(candidate.slot)
            pods[name] = on_node = dict(self._nodes.pods(candidate.slot))
            proposed[name] = Victims(tuple(on_node[uid] for uid in candidate.victims), candidate.violations)
        consultation.propose(proposed, pods)

    def _accepted(self, pod: PodInfo, consultation: Consultation, nominated: str) -> PostFiltered:
        """Return the cheapest of the candidates that the extenders accept, as far as their victims are still there."""
        if consultation.preemption_error:
            return Rejection(PLUGIN, Code.ERROR, (f"preemption: {consultation.preemption_error}",))
        found = []
        for name, accepted in consultation.victims.items():
            slot = self._nodes.present_slot(name)
            if slot is None:
                continue
            on_node = self._nodes.pods(slot)
            victims = by_importance((on_node[each.uid] for each in accepted.pods if each.uid in on_node), self._rule)
            wrong = next((each for each in victims if not self._rule.allows(each, pod)), None)
            if wrong is not None:
                text = f"an extender claims to preempt pod {wrong.key} on node {name}, which this pod may not preempt"
                return Rejection(PLUGIN, Code.ERROR, (f"preemption: {text}",))
            if victims:
                price = cost(victims, accepted.violations, self._rule)
                found.append(Candidate(slot, tuple(each.uid for each in victims), accepted.violations, price))
        if not found:
            return Rejection(PLUGIN, Code.UNSCHEDULABLE, ("preemption: no candidate node for preemption",))
        return self._chosen(found, nominated, {})


_NOMINATED_AT: Final = 3
"""After the priority of the most important victim, before the sum of all: some evictions may be done already."""


def _uid(pod: PodInfo) -> Hashable:
    return pod.uid


def _itself(pod: PodInfo) -> tuple[Hashable, ...]:
    return (pod.uid,)


def _never(_pod: PodInfo, _old: PodInfo | None, _new: PodInfo | None) -> Hint:
    return Hint.SKIP
