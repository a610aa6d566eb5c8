"""InterPodAffinity: nodes near to matching pods, or away from them (docs/spec/core.md §5.9).

Filter and Score read the current counts, which include dry runs. PreFilter does not skip, except with parity: a pod
with anti-affinity against this one may come in a dry run, or before the check ahead of Bind. The check costs nothing
while no such pod exists.

Namespace selectors of the pod to schedule are resolved to names, as in upstream; `AffinityRulesCache.selects_all` finds
those for all namespaces. Terms of pods on nodes are cached per namespace and labels.

More events than upstream retry a pod; upstream leaves it waiting for the flush (§10.2). Any of several
anti-affinity terms may match a leaving pod, and pods on nodes have anti-affinity terms, too, that may match the
pod. A group may lose its last pod, a deleted node may remove the pod that blocked a domain, and a namespace may
begin to be selected.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.api.core_v1 import Namespace, Node
from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import LabelSelector
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes import topology as domains
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.nodes.topology import SlotCounts
from scheduler.cache.pods import FEW_SELECTIONS, PodTerm, Selection, Term, TermGroup, TermKind, pod_terms, selection
from scheduler.cache.workloads import Namespaces
from scheduler.config.args import InterPodAffinityArgs
from scheduler.core.caching import BoundedCache
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.core.cooperative import Work
from scheduler.core.feature_gates import NAMESPACES_BY_LABELS
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import (
    MAX_NODE_SCORE,
    NODE_CAME,
    CycleState,
    EventHint,
    Hint,
    Scores,
    StateKey,
    Topics,
    by_node_labels,
    by_pod_labels,
    label,
)
from scheduler.framework.memo import queue_itself
from scheduler.framework.status import SKIP, Code, Groups, Rejection, Skip

_KEPT_MAX: Final = 4096


class AffinityRule(msgspec.Struct, frozen=True, eq=False):
    """The pods to be near to, or away from, and the topology key."""

    topology_key: str
    pods: Selection


class AffinityRules(msgspec.Struct, frozen=True, eq=False):
    """The pod's terms, resolved."""

    required: Selection | None
    """Pods that match *all* required affinity terms; None if there is no such term."""
    required_keys: tuple[str, ...]
    required_anti: tuple[AffinityRule, ...]
    preferred: tuple[tuple[int, AffinityRule], ...]
    """With weights, which are negative for anti-affinity."""

    def matches_itself(self, pod: PodInfo) -> bool:
        """Return whether the pod matches its own required affinity terms."""
        metadata = pod.pod.metadata
        return self.required is not None and self.required.finds(metadata.namespace, metadata.labels)


NO_RULES: Final = AffinityRules(None, (), (), ())
_Shape: TypeAlias = tuple[str, bytes]


class AffinityRulesCache:
    """Rules by shape, computed once while no namespace changes."""

    def __init__(self, namespaces: Namespaces, *, by_labels_only: bool = False) -> None:
        """Create the cache. `by_labels_only`: only the empty namespaceSelector selects all namespaces (`selects_all`)."""
        self._namespaces = namespaces
        self._by_labels_only = by_labels_only
        self._seen = -1
        self._kept: BoundedCache[_Shape, AffinityRules] = BoundedCache(_KEPT_MAX)

    def of(self, pod: PodInfo) -> AffinityRules:
        """Return the pod's rules: a look-up for the second pod of a shape."""
        terms = pod_terms(pod)
        if not terms:
            return NO_RULES
        if self._namespaces.generation != self._seen:
            self._kept.clear()
            self._seen = self._namespaces.generation
        shape = (pod.pod.metadata.namespace, pod.placement_shape)
        return self._kept.get_or_make(shape, lambda: self._resolve_all(terms))

    def _resolve_all(self, terms: tuple[PodTerm, ...]) -> AffinityRules:
        required = [term for term in terms if term.kind is TermKind.REQUIRED]
        signs = {TermKind.PREFERRED: 1, TermKind.PREFERRED_ANTI: -1}
        return AffinityRules(
            required=selection(map(self._resolved, required), counts_terminating=True) if required else None,
            required_keys=tuple(dict.fromkeys(term.topology_key for term in required)),
            required_anti=tuple(self._near(term) for term in terms if term.kind is TermKind.REQUIRED_ANTI),
            preferred=tuple((signs[term.kind] * term.weight, self._near(term)) for term in terms if term.kind in signs),
        )

    def selects_all(self, selector: LabelSelector) -> bool:
        """Return whether a namespaceSelector of the pod to schedule selects every namespace.

        The empty selector does. In v1.36.3 so does a selector that matches an object without labels (`NotIn`,
        `DoesNotExist`), because it is also matched against no labels, whatever labels the namespace has.
        """
        if self._by_labels_only:
            return not selector.match_labels and not selector.match_expressions
        return selector.matches({})

    def _near(self, term: PodTerm) -> AffinityRule:
        return AffinityRule(term.topology_key, selection((self._resolved(term),), counts_terminating=True))

    def _resolved(self, term: PodTerm) -> Term:
        wanted = term.namespace_selector
        if wanted is None:
            return term.namespaces, term.selector
        if self.selects_all(wanted):
            return None, term.selector
        return term.namespaces | self._namespaces.matching(wanted), term.selector


MatchingKey: TypeAlias = tuple[str, frozenset[tuple[str, str]]]
"""Namespace and labels: everything that other pods' terms read."""


def matching_key(pod: PodInfo) -> MatchingKey:
    """Return a value that is equal for pods that all terms treat the same."""
    metadata = pod.pod.metadata
    return metadata.namespace, frozenset(metadata.labels.items())


class MatchingTerms:
    """Groups of terms by kind, cached until a term is added or removed, or a namespace changes."""

    def __init__(self, cluster: Cluster) -> None:
        self._terms = cluster.nodes.pod_terms
        self.namespaces = cluster.namespaces
        self._seen = (-1, -1)
        self._kept: BoundedCache[tuple[TermKind, MatchingKey], list[TermGroup]] = BoundedCache(_KEPT_MAX)

    def groups(self, kind: TermKind, pod: PodInfo) -> list[TermGroup]:
        if not self._terms.any(kind):
            return []
        now = (self._terms.generation, self.namespaces.generation)
        if now != self._seen:
            self._kept.clear()
            self._seen = now
        return self._kept.get_or_make((kind, matching_key(pod)), lambda: self._concerning(kind, pod))

    def _concerning(self, kind: TermKind, pod: PodInfo) -> list[TermGroup]:
        namespace, labels = _namespace_and_labels(pod)
        return self._terms.concerning(kind, namespace, labels, self.namespaces.labels(namespace))


class _Keys(NamedTuple):
    """The topology keys by which a change of a node can help a pod."""

    near: frozenset[str]
    """The keys of its affinity."""
    apart: frozenset[str]
    """The keys of its anti-affinity, and of pods with anti-affinity against it."""
    is_first: bool
    """The pod may be the first of a group, so it does not need matching pods."""
    goes_bare: bool
    """A node without any of the keys may fit."""


class InterPodAffinityHints:
    """The events that one profile's InterPodAffinity registers.

    Upstream: pkg/scheduler/framework/plugins/interpodaffinity/plugin.go EventsToRegister
    """

    def __init__(self, nodes: Nodes, rules: AffinityRulesCache, concerning: MatchingTerms) -> None:
        self._nodes = nodes
        self._rules = rules
        self._concerning = concerning

    def registered(self) -> Sequence[EventHint]:
        """Return one registration per kind of event."""
        itself = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
        pods = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE)
        nodes = ClusterEvent(Resource.NODE, Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL)
        namespaces = ClusterEvent(Resource.NAMESPACE, Action.ADD | Action.UPDATE_OTHER)
        return (
            EventHint(itself, queue_itself),
            EventHint(pods, self._after_pod, _by_rules, Topics(_pods_topics, _by_pods)),
            EventHint(nodes, self._after_node, self._keys, Topics(self._nodes_topics, by_node_labels)),
            EventHint(namespaces, self._after_namespace, _by_rules, Topics(self._namespace_topics, _by_namespace)),
        )

    # -- pods on nodes -----------------------------------------------------------------------------------------------

    def _after_pod(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
        rules = self._rules.of(pod)
        if rules.required is not None:
            was = old is not None and rules.required.finds(*_namespace_and_labels(old))
            is_ = new is not None and rules.required.finds(*_namespace_and_labels(new))
            # A pod that leaves the group may have been its last: then the waiting pod may be the first.
            if is_ != was and (is_ or rules.matches_itself(pod)):
                return Hint.QUEUE
        if old is None:
            return Hint.SKIP
        for near in rules.required_anti:
            if near.pods.finds(*_namespace_and_labels(old)) and (
                new is None or not near.pods.finds(*_namespace_and_labels(new))
            ):
                return Hint.QUEUE
        return Hint.QUEUE if new is None and self._kept_away(pod, old) else Hint.SKIP

    def _kept_away(self, pod: PodInfo, other: PodInfo) -> bool:
        namespace, labels = _namespace_and_labels(pod)
        of_namespace = self._concerning.namespaces.labels(namespace)
        return any(
            term.kind is TermKind.REQUIRED_ANTI and term.matches(namespace, labels, of_namespace)
            for term in pod_terms(other)
        )

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _keys(self, pod: PodInfo) -> _Keys:
        rules = self._rules.of(pod)
        near = frozenset(rules.required_keys)
        anti = frozenset(apart.topology_key for apart in rules.required_anti)
        groups = self._concerning.groups(TermKind.REQUIRED_ANTI, pod)
        away = frozenset(group.term.topology_key for group in groups)
        return _Keys(near, anti | away, rules.matches_itself(pod), goes_bare=bool(anti) or not near)

    def _nodes_topics(self, pod: PodInfo) -> Iterator[Hashable]:
        keys = self._keys(pod)
        yield from map(label, keys.near | keys.apart)
        if keys.goes_bare:
            yield NODE_CAME

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        keys = self._keys(pod)
        before = old.metadata.labels if old is not None else {}
        after = new.metadata.labels if new is not None else {}
        if old is None:
            # A node without the key fits any pod with anti-affinity. The attempt checks whether its domain is free.
            helps = keys.goes_bare or any(key in after for key in keys.near)
        elif new is None:
            helps = any(self._has_more_nodes(old, key) for key in keys.apart)
        else:
            # A node that leaves a domain may also remove the pod that blocked the domain.
            helps = any(key in after and before.get(key) != after[key] for key in keys.near)
            helps = helps or any(key in before and after.get(key) != before[key] for key in keys.apart)
        if keys.is_first and not helps:
            # It may also remove the last pod of a group from every domain.
            helps = any(key in before and after.get(key) != before[key] for key in keys.near)
        return Hint.QUEUE if helps else Hint.SKIP

    def _has_more_nodes(self, gone: Node, key: str) -> bool:
        """Return whether the domain that this node leaves has more nodes."""
        value = gone.metadata.labels.get(key)
        slot = self._nodes.present_slot(gone.metadata.name)
        itself = 0 if slot is None else 1 << slot
        return value is not None and bool(self._nodes.labels.equal(key, value) & ~itself)

    # -- namespaces --------------------------------------------------------------------------------------------------

    def _after_namespace(self, pod: PodInfo, old: Namespace | None, new: Namespace | None) -> Hint:
        if new is None:
            return Hint.SKIP
        before: Mapping[str, str] = old.metadata.labels if old is not None else {}
        after = new.metadata.labels
        for wanted in self._selecting(pod):
            # Also a namespace that is no longer selected: anti-affinity then looks at fewer pods.
            if (old is not None and wanted.matches(before)) != wanted.matches(after):
                return Hint.QUEUE
        # The pod's own namespace: anti-affinity terms of pods on nodes may select by its labels.
        return Hint.QUEUE if new.metadata.name == pod.pod.metadata.namespace else Hint.SKIP

    def _selecting(self, pod: PodInfo) -> Iterator[LabelSelector]:
        """Return the namespaceSelectors that select some namespaces, but not all."""
        selectors = (term.namespace_selector for term in _required(pod))
        return (wanted for wanted in selectors if wanted is not None and not self._rules.selects_all(wanted))

    def _namespace_topics(self, pod: PodInfo) -> Iterator[Hashable]:
        """Yield the pod's own namespace, and one label that each selector demands; without one it selects all."""
        yield pod.pod.metadata.namespace
        for wanted in self._selecting(pod):
            yield from _demanded(wanted)


def _namespace_and_labels(pod: PodInfo) -> tuple[str, Mapping[str, str]]:
    return pod.pod.metadata.namespace, pod.pod.metadata.labels


def _by_rules(pod: PodInfo) -> Hashable:
    return matching_key(pod), pod.placement_shape


def _required(pod: PodInfo) -> Iterator[PodTerm]:
    return (term for term in pod_terms(pod) if term.kind in {TermKind.REQUIRED, TermKind.REQUIRED_ANTI})


def _demanded(selector: LabelSelector) -> tuple[Hashable, ...]:
    for pair in selector.match_labels.items():
        return (label(*pair),)
    for requirement in sorted(selector.match_expressions, key=lambda r: r.operator != "In"):
        if requirement.operator in {"In", "Exists"}:
            return tuple(label(requirement.key, value) for value in requirement.values or (None,))
    return ()


def _by_namespace(old: Namespace | None, new: Namespace | None) -> Iterator[Hashable]:
    for namespace in (old, new):
        if namespace is not None:
            yield namespace.metadata.name
            for pair in namespace.metadata.labels.items():
                yield label(*pair)
                yield label(pair[0])


def _pods_topics(pod: PodInfo) -> Iterator[Hashable]:
    for term in _required(pod):
        yield from term.anchors
    for probe in by_pod_labels(None, pod):
        yield "kept away", probe


def _by_pods(old: PodInfo | None, new: PodInfo | None) -> tuple[Hashable, ...]:
    """Return topics of terms that may select the pod; for a deleted pod also of pods its anti-affinity rejected."""
    kept_away = tuple(
        ("kept away", anchor)
        for term in (pod_terms(old) if old is not None and new is None else ())
        if term.kind is TermKind.REQUIRED_ANTI
        for anchor in term.anchors
    )
    return by_pod_labels(old, new) + kept_away


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
    _too_near: Final = Rejection(
        name,
        Code.UNSCHEDULABLE,
        ("node(s) didn't match pod anti-affinity rules",),
        cause="PodAntiAffinityViolated",
    )
    _kept_away: Final = Rejection(
        name,
        Code.UNSCHEDULABLE,
        ("node(s) didn't satisfy existing pods anti-affinity rules",),
        cause="KeptAwayByAntiAffinity",
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

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups | Work[Groups]:
        """Reject nodes by the pod's affinity, then by its anti-affinity, then by the anti-affinity of pods on nodes.

        The pods of many terms are counted first, with pauses; also those of preferred terms, which PreScore uses.
        """
        rules = self._rules.of(pod)
        if len(rules.required_anti) + len(rules.preferred) <= FEW_SELECTIONS:
            return self._refused(pod, rules, nodes)
        return self._counted_first(pod, rules, nodes)

    def _counted_first(self, pod: PodInfo, rules: AffinityRules, nodes: NodeSet) -> Work[Groups]:
        rated = (near for _, near in rules.preferred)
        yield from self._nodes.population.counting(near.pods for near in (*rules.required_anti, *rated))
        return self._refused(pod, rules, nodes)

    def _refused(self, pod: PodInfo, rules: AffinityRules, nodes: NodeSet) -> Groups:
        groups: Groups = {}
        if rules.required is not None:
            refused = nodes & ~self._near_enough(pod, rules)
            if refused:
                groups[self._not_near] = refused
                nodes &= ~refused
        if rules.required_anti:
            refused = nodes & self._occupied(
                (near.topology_key, self._nodes.population.tally(near.pods)) for near in rules.required_anti
            )
            if refused:
                groups[self._too_near] = refused
                nodes &= ~refused
        if self._nodes.pod_terms.any(TermKind.REQUIRED_ANTI):
            against = self._concerning.groups(TermKind.REQUIRED_ANTI, pod)
            refused = nodes & self._occupied((group.term.topology_key, group) for group in against)
            if refused:
                groups[self._kept_away] = refused
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
        found: list[_Attraction] = [
            (weight, near.topology_key, self._nodes.population.tally(near.pods)) for weight, near in rules.preferred
        ]
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

    def _occupied(self, counts: Iterable[tuple[str, SlotCounts]]) -> NodeSet:
        """Return the nodes in domains with any counted pod, given topology keys and counts."""
        occupied = EMPTY
        for key, each in counts:
            occupied |= self._domains(each, key).occupied
        return occupied

    def _domains(self, counts: SlotCounts, key: str) -> domains.DomainCounts:
        return domains.of(counts, self._nodes.topologies.of(key))
