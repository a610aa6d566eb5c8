"""DefaultPreemption: pods of lower priority are evicted for a pod that fits no node (docs/spec/core.md §3.10).

The dry run finds the pods that must leave each node, and the cost of a node. Results are cached until the node
changes: pods of one shape try the same nodes repeatedly, and only changed nodes are evaluated again. A cached result
depends on the node alone. Where a filter reads other nodes (spread, pod affinity), only rejections by earlier filters
are cached: if they reject the node without all its victims, later filters are not called.

Upstream: pkg/scheduler/framework/preemption/preemption.go Evaluator, Preempt
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from scheduler.api.apps_and_policy import is_leaving_for_a_preemptor, started_at
from scheduler.api.pod_group import PodGroup
from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.config.args import DefaultPreemptionArgs
from scheduler.core import nodeset
from scheduler.core.caching import BoundedCache
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.core.cooperative import TURN_S, Work
from scheduler.core.feature_gates import EMPTY_BUDGETS, NO_VICTIMS_NEEDED, PREEMPTOR_TEXT, TIES_BY_UID
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.extender import Consultation, Victims, consultation_of
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, DryRun, EventHint, Hint, NodeSimulation, PostFiltered, Topics
from scheduler.framework.status import AttemptError, Code, Diagnosis, Groups, Nominate, Rejection

PLUGIN: Final = "DefaultPreemption"
NO_VICTIMS: Final = Rejection(PLUGIN, Code.UNRESOLVABLE, ("No preemption victims found for incoming pod",))
_ABOVE_ALL_NEGATIVE: Final = 2**31
"""Added to every priority, so that many pods of the lowest priority cost more than few."""

Cost: TypeAlias = tuple[float, ...]
"""Smaller is better. Compared item by item, which equals upstream's sequence of minima."""


@dataclass(frozen=True, slots=True)
class VictimRule:
    """The pods that may be victims (docs/spec/core.md §2.6): all as in upstream, only our own, or our own first.

    It also has what differs between versions of kube-scheduler (docs/spec/changes-1.38.md §1).
    """

    own: frozenset[str] = frozenset()
    """The schedulerNames of this scheduler."""
    spares_others: bool = False
    prefers_own: bool = False
    budgets_by_selector: bool = True
    """Budgets protect the pods that they select, also by an empty selector, and also pods without labels."""
    ties_by_uid: bool = False
    """Of pods of equal priority and start the one with the lower UID is more important."""
    may_be_none: bool = False
    """A node where no pod has to leave is a candidate without victims; otherwise it is an error."""

    def allows(self, victim: PodInfo, preemptor: PodInfo) -> bool:
        """Return whether the pod may be a victim: it has lower priority, and the rule permits it."""
        if victim.priority >= preemptor.priority:
            return False
        return not self.spares_others or self.is_own(victim)

    def is_own(self, pod: PodInfo) -> bool:
        """Return whether the pod names a profile of this scheduler."""
        return pod.pod.spec.scheduler_name in self.own


def victim_rule(handle: Handle) -> VictimRule:
    ours, gates = handle.ours, handle.feature_gates
    return VictimRule(
        handle.scheduler_names,
        spares_others=ours.victims == "own" and not ours.parity,
        prefers_own=ours.victims == "ownFirst" and not ours.parity,
        budgets_by_selector=EMPTY_BUDGETS in gates,
        ties_by_uid=TIES_BY_UID in gates,
        may_be_none=NO_VICTIMS_NEEDED in gates,
    )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node where preemption helps. `victims` are uids, the most important first.

    Without victims the pod fits already, because the filters contradict each other, or an extender refuses the node.
    """

    slot: int
    victims: tuple[str, ...]
    violations: int
    """The number of victims that a disruption budget protects."""
    cost: Cost


def importance(pod: PodInfo) -> tuple[float, ...]:
    """Return a key that sorts the most important pod first: higher priority, then earlier start."""
    return (-pod.priority, started_at(pod.pod.status.start_time))


def by_importance(pods: Iterable[PodInfo], rule: VictimRule) -> list[PodInfo]:
    """Sort the most important first; if the rule prefers our own victims, pods of other schedulers come before ours.

    The UID breaks ties, as in upstream from 1.38 on. Before, upstream leaves them open, and the name breaks them here.
    """

    def last(pod: PodInfo) -> str:
        return pod.uid if rule.ties_by_uid else pod.key

    if not rule.prefers_own:
        return sorted(pods, key=lambda pod: (*importance(pod), last(pod)))
    return sorted(pods, key=lambda pod: (rule.is_own(pod), *importance(pod), last(pod)))


def cost(victims: list[PodInfo], violations: int, rule: VictimRule) -> Cost:
    """Return the cost of evicting these victims, at least one."""
    highest = max(victim.priority for victim in victims)
    total = sum(victim.priority + _ABOVE_ALL_NEGATIVE for victim in victims)
    earliest = min(started_at(victim.pod.status.start_time) for victim in victims if victim.priority == highest)
    others = sum(not rule.is_own(victim) for victim in victims) if rule.prefers_own else 0
    return (others, violations, highest, total, len(victims), -earliest)


_SHAPES: Final = 64

Answer: TypeAlias = Candidate | Rejection


class _Kept(NamedTuple):
    seen: tuple[int, int, int]
    """The states of the node, of the budgets and of the node's nominations."""
    answer: Answer


class Evaluator:
    """Evaluates nodes one by one. Changes nothing.

    Upstream: pkg/scheduler/framework/preemption/preemption.go DryRunPreemption
    """

    def __init__(self, cluster: Cluster, rule: VictimRule) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._rule = rule
        self._kept: BoundedCache[Hashable, dict[int, _Kept]] = BoundedCache(_SHAPES)
        self._objects = -1

    def of(self, what_if: DryRun, pod: PodInfo) -> dict[int, _Kept] | None:
        """Return the cache for pods of this shape, to be passed to `on`; None if nothing can be cached."""
        if not what_if.is_counted and not what_if.shape:
            return None
        if self._objects != self._nodes.object_generation:  # some filters count by labels
            self._objects = self._nodes.object_generation
            self._kept.clear()
        return self._kept.get_or_make((pod.priority, what_if.is_counted, what_if.shape), dict)

    def on(self, what_if: DryRun, pod: PodInfo, slot: int, kept_answers: dict[int, _Kept] | None) -> Work[Answer]:
        """Return the victims on this node, or why preemption does not help. O(pods on the node)."""
        if kept_answers is None or not what_if.alike >> slot & 1 or what_if.hopeless(slot):
            return (yield from self._run(what_if, pod, slot))
        now = (self._nodes.stamps[slot], self._cluster.disruptions.generation, what_if.version(slot))
        kept = kept_answers.get(slot)
        if kept is None or kept.seen != now:
            rejection = None if what_if.is_counted else self._rejection_without_victims(what_if, pod, slot)
            answer = rejection if rejection is not None else (yield from self._run(what_if, pod, slot))
            if rejection is None and not what_if.is_counted:
                return answer
            kept = kept_answers[slot] = _Kept(now, answer)
        return kept.answer

    def _rejection_without_victims(self, what_if: DryRun, pod: PodInfo, slot: int) -> Rejection | None:
        """Return why no eviction on this node helps, by the filters that read only the node itself."""
        potential = [other for other in self._nodes.pods(slot).values() if self._rule.allows(other, pod)]
        if not potential:
            return NO_VICTIMS
        try:
            simulation = what_if.leading(slot)
            if simulation is None:
                return None
            for other in potential:
                simulation.remove(other)
            return simulation.verdict()
        except AttemptError:  # the full run raises it again, as this node's error
            return None

    def _run(self, what_if: DryRun, pod: PodInfo, slot: int) -> Work[Answer]:
        potential = [other for other in self._nodes.pods(slot).values() if self._rule.allows(other, pod)]
        if not potential:
            return NO_VICTIMS
        potential = by_importance(potential, self._rule)
        violating = yield from self._cluster.disruptions.violating(
            potential, by_selector_alone=self._rule.budgets_by_selector
        )
        in_turn = sorted(potential, key=lambda other: other.uid not in violating) if violating else potential
        try:
            with what_if.on(slot) as simulation:
                evicted = yield from _evicted(simulation, in_turn)
        except AttemptError as error:  # raised by a plugin that simulates pods: it concerns only this node
            return Rejection(PLUGIN, Code.ERROR, (error.message,))
        if isinstance(evicted, Rejection):
            return evicted
        if not evicted:
            if self._rule.may_be_none:
                return Candidate(slot, (), 0, ())
            name = self._nodes.name(slot)
            return Rejection(PLUGIN, Code.ERROR, (f'expected at least one victim pod on node "{name}"',))
        if violating:
            evicted = by_importance(evicted, self._rule)
        violations = sum(other.uid in violating for other in evicted)
        return Candidate(slot, tuple(other.uid for other in evicted), violations, cost(evicted, violations, self._rule))


def _evicted(simulation: NodeSimulation, potential: list[PodInfo]) -> Work[list[PodInfo] | Rejection]:
    """Remove all pods, and add each again if the preemptor still fits; return the victims, or a rejection.

    Upstream: pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go SelectVictimsOnNode
    """
    for other in potential:
        simulation.remove(other)
    rejection = simulation.verdict() if (judging := simulation.judging()) is None else (yield from judging)
    if rejection is not None:
        return rejection
    evicted = []
    for other in potential:
        simulation.add(other)
        rejection = simulation.verdict() if (judging := simulation.judging()) is None else (yield from judging)
        if rejection is not None:
            simulation.remove(other)
            evicted.append(other)
    return evicted


_NOT_HELPFUL: Final = Rejection(PLUGIN, Code.UNRESOLVABLE, ("Preemption is not helpful for scheduling",))
_WAITING: Final = Rejection(PLUGIN, Code.UNRESOLVABLE, ("waiting for the preemption for this pod to be finished",))
_GROUP_WAITING: Final = Rejection(
    PLUGIN, Code.UNRESOLVABLE, ("waiting for the preemption for this pod group to be finished",)
)


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
        self._rng = handle.rng
        ours = handle.ours
        self._parity = ours.parity
        self._names_node = PREEMPTOR_TEXT in handle.feature_gates
        self._rule = victim_rule(handle)
        self._dry_run = Evaluator(handle.cluster, self._rule)

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None:
        """Reject the pod while its own victims, or those of its group, are being evicted."""
        if self._preempting.holds_back(pod.uid, self._cluster):
            return _WAITING
        group = self._cluster.pod_groups.of(pod.pod)
        is_held = group is not None and self._preempting.holds_back_group(group, self._cluster)
        return _GROUP_WAITING if is_held else None

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the event of a deleted victim: PreEnqueue runs again, and other plugins' hints decide the rest."""
        gone = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
        victim = Topics(lambda pod: (pod.uid,), self._concerned)
        return (EventHint(gone, lambda *_: Hint.SKIP, lambda pod: pod.uid, victim),)

    def post_filter(
        self, state: CycleState, pod: PodInfo, refused: Groups, what_if: DryRun
    ) -> Generator[None, None, PostFiltered]:
        """Return the cheapest victims whose eviction makes the pod fit, from enough of the possible nodes."""
        consultation = consultation_of(state)
        if not state.mode.is_tentative and (consultation is None or not consultation.proposed):
            self._preempting.attempted()
        nominated = what_if.nominated_to
        why = self._ineligible(pod, refused, nominated)
        if why:
            return Rejection(PLUGIN, Code.UNSCHEDULABLE, (f"preemption: {why}",))
        if consultation is not None and consultation.proposed:
            return self._accepted(pod, consultation, nominated)
        potential = EMPTY
        for rejection, nodes in refused.items():
            if rejection.code is Code.UNSCHEDULABLE:
                potential |= nodes
        asks_extenders = consultation is not None and consultation.supports_preemption
        found, groups = yield from self._candidates(pod, potential, what_if, may_be_none=asks_extenders)
        if found:
            if consultation is not None and asks_extenders:
                self._propose(found, consultation)
            return self._chosen(found, nominated, groups)
        errors = sorted({rejection.message for rejection in groups if rejection.code is Code.ERROR})
        if errors:
            text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
            return Rejection(PLUGIN, Code.ERROR, (f"preemption: {text}",))
        if not_helpful := self._nodes.present & ~potential:
            groups[_NOT_HELPFUL] = not_helpful
        text = f"preemption: {Diagnosis(len(self._nodes), groups).message()}"
        return Nominate("", rejection=Rejection(PLUGIN, Code.UNSCHEDULABLE, (text,)), tried=groups)

    def may_evict(self, victim: PodInfo, preemptor: PodInfo) -> bool:
        return self._rule.allows(victim, preemptor)

    def in_turn_to_stay(self, victims: Iterable[PodInfo]) -> Work[Sequence[PodInfo]]:
        """Return the victims in the order in which they may stay if possible: those that budgets protect, then by importance."""
        in_turn = by_importance(victims, self._rule)
        violating = yield from self._cluster.disruptions.violating(
            in_turn, by_selector_alone=self._rule.budgets_by_selector
        )
        return sorted(in_turn, key=lambda pod: pod.uid not in violating)

    def _concerned(self, old: PodInfo | None, _new: PodInfo | None) -> tuple[Hashable, ...]:
        """Return the preemptor of a deleted pod."""
        uid = self._preempting.preemptor_of(old.uid) if old is not None else None
        return () if uid is None else (uid,)

    # -- eligibility -----------------------------------------------------------------------------------------------------

    def _ineligible(self, pod: PodInfo, refused: Groups, nominated: str) -> str:
        """Return why the pod may not preempt; "" if it may (step 1)."""
        if pod.pod.spec.preemption_policy == "Never":
            return "not eligible due to preemptionPolicy=Never."
        slot = self._nodes.present_slot(nominated) if nominated else None
        if slot is None:
            return ""
        if any(rejection.code is Code.UNRESOLVABLE and nodes >> slot & 1 for rejection, nodes in refused.items()):
            return ""
        for other in self._nodes.pods(slot).values():
            is_leaving = is_leaving_for_a_preemptor(other.pod) or self._preempting.is_doomed(other.uid)
            if is_leaving and self._rule.allows(other, pod):
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    # -- candidates ------------------------------------------------------------------------------------------------------

    def _candidates(
        self, pod: PodInfo, potential: NodeSet, what_if: DryRun, *, may_be_none: bool
    ) -> Generator[None, None, tuple[list[Candidate], Groups]]:
        """Return enough nodes where preemption helps, or why none does (step 2).

        `may_be_none`: also nodes without victims, because extenders may add victims.
        """
        found: list[Candidate] = []
        groups: Groups = {}
        left_out = self._left_out(pod, potential)
        possible = potential & self._nodes.priorities.below(pod.priority) & ~left_out
        if potential & ~possible:
            groups[NO_VICTIMS] = potential & ~possible
        what_if.about(possible)
        kept_answers = self._dry_run.of(what_if, pod)
        wanted = self._enough(potential.bit_count())
        has_harmless = False
        turn = self._clock.now()
        for slot in self._in_turn(possible):
            answer = yield from self._dry_run.on(what_if, pod, slot, kept_answers)
            if isinstance(answer, Candidate) and not answer.victims and not may_be_none:
                answer = NO_VICTIMS
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
        order: list[int] = np.roll(slots, -int(self._rng.random() * len(slots))).tolist()
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
        units = (self.unit_of(pods[uid]) for uid in best.victims)
        victims = tuple({pod.uid: pod for unit in units for pod in unit}.values())
        message = f"preemption: found a potential placement for pod on node {name}, preempting {len(victims)} victims"
        if not self._names_node:
            message = "" if self._parity else f"{message}."
        return Nominate(name, message, victims, tried=groups)

    def unit_of(self, victim: PodInfo) -> Sequence[PodInfo]:
        """Return the pods that leave together with this one, which is the first: of a group that is disrupted as a whole."""
        groups = self._cluster.pod_groups
        group = groups.of(victim.pod) if groups.objects else None
        wanted = groups.get(group) if group is not None else None
        if group is None or not isinstance(wanted, PodGroup) or not wanted.is_disrupted_whole:
            return (victim,)
        mates = (self._cluster.get(mate.metadata.uid) for mate in groups.members(group).values())
        return (victim, *(mate for mate in mates if mate is not None and mate.uid != victim.uid))

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
