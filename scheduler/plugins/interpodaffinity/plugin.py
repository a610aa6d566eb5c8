"""InterPodAffinity at its extension points. Filter and Score read the current counts, which include dry runs.

PreFilter does not skip, except with parity: a pod with anti-affinity against this one may come in a dry run, or
before the check ahead of Bind. The check costs nothing while no such pod exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.api.podinfo import PodInfo
from scheduler.cache.nodes import topology as domains
from scheduler.cache.nodes.topology import SlotCounts
from scheduler.cache.pods.affinity_terms import TermKind, pod_terms
from scheduler.config.args import InterPodAffinityArgs
from scheduler.core.feature_gates import NAMESPACES_BY_LABELS
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import MAX_NODE_SCORE, CycleState, EventHint, Scores, StateKey
from scheduler.framework.status import SKIP, Code, Groups, Rejection, Skip
from scheduler.plugins.interpodaffinity.hints import InterPodAffinityHints
from scheduler.plugins.interpodaffinity.rules import AffinityRule, AffinityRules, AffinityRulesCache, MatchingTerms

_Attraction = tuple[int, str, SlotCounts]
"""The weight per counted pod, the topology key, and the counts."""

_ATTRACTIONS: Final[StateKey[list[_Attraction]]] = StateKey("InterPodAffinity score")


class InterPodAffinity:
    """PreFilter, Filter, PreScore, Score.

    Upstream: pkg/scheduler/framework/plugins/interpodaffinity/plugin.go InterPodAffinity
    """

    name: Final = "InterPodAffinity"
    reads: Final = ("Namespace",)
    _not_near: Final = Rejection(name, Code.UNRESOLVABLE, ("node(s) didn't match pod affinity rules",))
    _too_near: Final = Rejection(name, Code.UNSCHEDULABLE, ("node(s) didn't match pod anti-affinity rules",))
    _kept_away: Final = Rejection(
        name, Code.UNSCHEDULABLE, ("node(s) didn't satisfy existing pods anti-affinity rules",)
    )

    def __init__(self, args: InterPodAffinityArgs | None, handle: Handle) -> None:
        args = args or InterPodAffinityArgs()
        self._nodes = handle.cluster.nodes
        self._rules = AffinityRulesCache(
            handle.cluster.namespaces, by_labels_only=NAMESPACES_BY_LABELS in handle.feature_gates
        )
        self._concerning = MatchingTerms(handle.cluster)
        self._hard_weight = args.hard_pod_affinity_weight
        self._ignores_preferred_terms = args.ignore_preferred_terms_of_existing_pods
        self._parity = handle.ours.parity

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Compute the pod's rules, once per shape.

        Upstream skips pods that no term concerns, whatever pods are nominated.
        """
        rules = self._rules.of(pod)
        if not self._parity or rules.required is not None or rules.required_anti:
            return None
        against = self._concerning.groups(TermKind.REQUIRED_ANTI, pod)
        return None if any(self._domains(group, group.term.topology_key).per_domain for group in against) else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Reject nodes by the pod's affinity, then by its anti-affinity, then by the anti-affinity of pods on nodes."""
        groups: Groups = {}
        rules = self._rules.of(pod)
        if rules.required is not None:
            out = nodes & ~self._near_enough(pod, rules)
            if out:
                groups[self._not_near] = out
                nodes &= ~out
        if rules.required_anti:
            out = nodes & self._near_avoided_pods(rules)
            if out:
                groups[self._too_near] = out
                nodes &= ~out
        if self._nodes.pod_terms.any(TermKind.REQUIRED_ANTI):
            out = nodes & self._near_avoiding_pods(pod)
            if out:
                groups[self._kept_away] = out
        return groups

    def reads_node_pods(self, state: CycleState, pod: PodInfo, others: Iterable[PodInfo]) -> bool:
        """Return whether the pod has required terms, or any pod, the given ones included, has one against it."""
        rules = self._rules.of(pod)
        if rules.required is not None or rules.required_anti or self._concerning.groups(TermKind.REQUIRED_ANTI, pod):
            return True
        return any(term.kind is TermKind.REQUIRED_ANTI for other in others for term in pod_terms(other))

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Collect the preferred terms of the pod, and those of other pods that match it; skip if there are none."""
        rules = self._rules.of(pod)
        if self._ignores_preferred_terms and not rules.preferred:
            return SKIP
        found: list[_Attraction] = [(weight, near.topology_key, self._tally(near)) for weight, near in rules.preferred]
        for kind, sign in ((TermKind.REQUIRED, 0), (TermKind.PREFERRED, 1), (TermKind.PREFERRED_ANTI, -1)):
            weight = 0 if sign else self._hard_weight
            if weight or sign:
                groups = self._concerning.groups(kind, pod)
                found += [(weight or sign * group.term.weight, group.term.topology_key, group) for group in groups]
        attractions = [one for one in found if self._domains(one[2], one[1]).per_domain]
        if not attractions:
            return SKIP
        state.set(_ATTRACTIONS, attractions)
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores:
        """Return the sum of weight x pods in the node's domain; anti-affinity is negative."""
        total: Scores = np.zeros(self._nodes.capacity, dtype=np.int64)
        for weight, key, counts in state.get(_ATTRACTIONS):
            total += weight * self._domains(counts, key).column()
        return total

    def normalize_score(self, state: CycleState, pod: PodInfo, scores: Scores, slots: npt.NDArray[np.intp]) -> Scores:
        """Scale the candidates' scores to 0..100; all are 0 if they are equal."""
        among = scores[slots]
        low, high = int(among.min()), int(among.max())
        if high == low:
            return np.zeros_like(scores)
        # Upstream's order of operations in floating point: it decides how results are truncated.
        return (MAX_NODE_SCORE * ((scores - low) / (high - low))).astype(np.int64)

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events of pods, nodes and namespaces that can help a rejected pod."""
        return InterPodAffinityHints(self._nodes, self._rules, self._concerning).registered()

    def _near_enough(self, pod: PodInfo, rules: AffinityRules) -> NodeSet:
        """Return nodes whose domains have a pod for each required term; for a group's first pod nodes with the keys."""
        assert rules.required is not None
        counts = self._nodes.population.tally(rules.required)
        admitted = having = self._nodes.present
        is_first = True
        for key in rules.required_keys:
            near = self._domains(counts, key)
            having &= near.topology.having
            admitted &= near.occupied
            is_first &= not near.per_domain
        return having if is_first and rules.matches_itself(pod) else admitted

    def _near_avoided_pods(self, rules: AffinityRules) -> NodeSet:
        out = EMPTY
        for near in rules.required_anti:
            out |= self._domains(self._tally(near), near.topology_key).occupied
        return out

    def _near_avoiding_pods(self, pod: PodInfo) -> NodeSet:
        out = EMPTY
        for group in self._concerning.groups(TermKind.REQUIRED_ANTI, pod):
            out |= self._domains(group, group.term.topology_key).occupied
        return out

    def _tally(self, near: AffinityRule) -> SlotCounts:
        return self._nodes.population.tally(near.pods)

    def _domains(self, counts: SlotCounts, key: str) -> domains.DomainCounts:
        return domains.of(counts, self._nodes.topologies.of(key))
