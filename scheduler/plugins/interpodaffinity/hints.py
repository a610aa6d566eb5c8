"""Which events can help a pod that InterPodAffinity rejected (docs/spec/core.md §5.9).

Wider than upstream where upstream leaves a pod waiting for the flush (§10.2): any of several anti-affinity terms may be
the one that a leaving pod satisfied, pods already there keep others away with terms of their own, and namespaces may
begin to be selected.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

from scheduler.cache.podterms import TermKind, pod_terms
from scheduler.core.events import Action, ClusterEvent, Resource
from scheduler.core.namespace import Namespace
from scheduler.core.node import Node
from scheduler.core.podinfo import PodInfo
from scheduler.framework.hints import EventHint, Hint, Topics
from scheduler.framework.shapes import queue_itself
from scheduler.framework.topics import NODE_CAME, by_node_labels, by_pod_labels, label
from scheduler.plugins.interpodaffinity.concerning import Concerning, who
from scheduler.plugins.interpodaffinity.rules import RuleBook, selects_all

_ITSELF: Final = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL)
_PODS: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE)
_NODES: Final = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
_NAMESPACES: Final = ClusterEvent(Resource.NAMESPACE, Action.ADD | Action.UPDATE_OTHER)


class Hints:
    """What a profile's InterPodAffinity registers."""

    def __init__(self, rules: RuleBook, concerning: Concerning) -> None:
        self._rules = rules
        self._concerning = concerning

    def registered(self) -> Sequence[EventHint]:
        """One registration per kind of event."""
        return (
            EventHint(_ITSELF, queue_itself),
            EventHint(_PODS, self._after_pod, _by_rules, Topics(_pods_topics, _by_pods)),
            EventHint(_NODES, self._after_node, self._keys, Topics(self._nodes_topics, by_node_labels)),
            EventHint(_NAMESPACES, self._after_namespace, _by_rules),
        )

    # -- pods on nodes -----------------------------------------------------------------------------------------------

    def _after_pod(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
        rules = self._rules.of(pod)
        if new is not None and rules.required is not None:
            starts = old is None or not rules.required.finds(*_whom(old))
            if starts and rules.required.finds(*_whom(new)):
                return Hint.QUEUE
        if old is None:
            return Hint.SKIP
        for near in rules.required_anti:
            if near.pods.finds(*_whom(old)) and (new is None or not near.pods.finds(*_whom(new))):
                return Hint.QUEUE
        return Hint.QUEUE if new is None and self._kept_away(pod, old) else Hint.SKIP

    def _kept_away(self, pod: PodInfo, other: PodInfo) -> bool:
        namespace, labels = _whom(pod)
        of_namespace = self._concerning.namespace_labels(namespace)
        return any(
            term.kind is TermKind.REQUIRED_ANTI and term.matches(namespace, labels, of_namespace)
            for term in pod_terms(other)
        )

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _keys(self, pod: PodInfo) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        """Topology keys of its affinity, of its anti-affinity, and of those who keep it away: all a node can change."""
        rules = self._rules.of(pod)
        groups = self._concerning.groups(TermKind.REQUIRED_ANTI, pod)
        return (
            frozenset(rules.required_keys),
            frozenset(near.topology_key for near in rules.required_anti),
            frozenset(group.term.topology_key for group in groups),
        )

    def _nodes_topics(self, pod: PodInfo) -> Iterator[Hashable]:
        affinity, anti, away = self._keys(pod)
        yield from map(label, affinity | anti | away)
        if anti or not affinity:
            yield NODE_CAME

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        if new is None:
            return Hint.SKIP
        affinity, anti, away = self._keys(pod)
        after = new.metadata.labels
        if old is None:
            # One without the key takes any pod with anti-affinity; whether its domain is free is for the attempt to say.
            return Hint.QUEUE if anti or not affinity or any(key in after for key in affinity) else Hint.SKIP
        before = old.metadata.labels
        if any(key in after and before.get(key) != after[key] for key in affinity):
            return Hint.QUEUE
        # A node that leaves a domain may also take with it the pod that closed it to the others.
        left = any(key in before and after.get(key) != before[key] for key in anti | away)
        return Hint.QUEUE if left else Hint.SKIP

    # -- namespaces --------------------------------------------------------------------------------------------------

    def _after_namespace(self, pod: PodInfo, old: Namespace | None, new: Namespace | None) -> Hint:
        if new is None:
            return Hint.SKIP
        before: Mapping[str, str] = old.metadata.labels if old is not None else {}
        after = new.metadata.labels
        for term in pod_terms(pod):
            wanted = term.namespace_selector
            if wanted is None or selects_all(wanted):
                continue
            # Also a namespace that is no longer selected: anti-affinity then looks at fewer pods.
            if old is None or wanted.matches(before) != wanted.matches(after):
                return Hint.QUEUE
        concerned = new.metadata.name == pod.pod.metadata.namespace and self._concerning.selects_namespaces()
        return Hint.QUEUE if concerned else Hint.SKIP


def _whom(pod: PodInfo) -> tuple[str, Mapping[str, str]]:
    return pod.pod.metadata.namespace, pod.pod.metadata.labels


def _by_rules(pod: PodInfo) -> Hashable:
    return who(pod), pod.placement_shape


def _pods_topics(pod: PodInfo) -> Iterator[Hashable]:
    for term in pod_terms(pod):
        if term.kind in {TermKind.REQUIRED, TermKind.REQUIRED_ANTI}:
            yield from term.anchors
    for probe in by_pod_labels(None, pod):
        yield "kept away", probe


def _by_pods(old: PodInfo | None, new: PodInfo | None) -> Iterator[Hashable]:
    """Who may select the pod, and of one that leaves, whom it may have kept away."""
    yield from by_pod_labels(old, new)
    for term in pod_terms(old) if old is not None and new is None else ():
        if term.kind is TermKind.REQUIRED_ANTI:
            for anchor in term.anchors:
                yield "kept away", anchor
