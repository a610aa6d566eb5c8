"""Events that can help a pod that InterPodAffinity rejected (docs/spec/core.md §5.9).

More events than upstream retry a pod; upstream leaves it waiting for the flush (§10.2). Any of several
anti-affinity terms may match a leaving pod, and pods on nodes have anti-affinity terms, too, that may match the
pod. A group may lose its last pod, a deleted node may remove the pod that blocked a domain, and a namespace may
begin to be selected.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from scheduler.api.core_v1 import Namespace, Node
from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import LabelSelector
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.pods.affinity_terms import PodTerm, TermKind, pod_terms
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.framework.interface import NODE_CAME, EventHint, Hint, Topics, by_node_labels, by_pod_labels, label
from scheduler.framework.memo import queue_itself
from scheduler.plugins.interpodaffinity.rules import AffinityRulesCache, MatchingTerms, matching_key

_ITSELF: Final = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
_PODS: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE)
_NODES: Final = ClusterEvent(Resource.NODE, Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL)
_NAMESPACES: Final = ClusterEvent(Resource.NAMESPACE, Action.ADD | Action.UPDATE_OTHER)


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
        return (
            EventHint(_ITSELF, queue_itself),
            EventHint(_PODS, self._after_pod, _by_rules, Topics(_pods_topics, _by_pods)),
            EventHint(_NODES, self._after_node, self._keys, Topics(self._nodes_topics, by_node_labels)),
            EventHint(_NAMESPACES, self._after_namespace, _by_rules, Topics(self._namespace_topics, _by_namespace)),
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
        of_namespace = self._concerning.namespace_labels(namespace)
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
