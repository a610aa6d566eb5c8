"""Events that can help a pod that hard constraints rejected (docs/spec/core.md §5.8, Events).

Upstream registers all pod events at once. Here events of other pods and of the waiting pod itself are separate, because
the former are decided once for all pods of a shape.

In four more cases a pod is retried that waits for the flush in upstream (§10.2): a counted pod begins to terminate; a
node begins or ceases to be eligible by a label that the pod's own selector or affinity reads; the waiting pod's own
labels change what its constraints count, by matchLabelKeys or by the Services that select it; and such a Service,
or the pod's owner, changes while default constraints are hard.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final, TypeAlias

from scheduler.api.apps_and_policy import Service
from scheduler.api.core_v1 import Node
from scheduler.api.node_affinity import required_affinity_matches, required_node_affinity
from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import Anchor, LabelSelector, anchors, probes
from scheduler.cache.workloads import Controller, selecting_owner
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.framework.interface import EventHint, Hint, Topics, by_node_labels, by_pod_labels, label
from scheduler.plugins.podtopologyspread.constraints import Constraint, Constraints, SpreadRulesCache

_NEIGHBOUR: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE)
_ITSELF: Final = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION)
_NODE: Final = ClusterEvent(
    Resource.NODE, Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
)
_CHANGED: Final = Action.ADD | Action.DELETE | Action.UPDATE_OTHER
_SELECTING: Final = (ClusterEvent(Resource.SERVICE, _CHANGED), ClusterEvent(Resource.CONTROLLER, _CHANGED))

Selecting: TypeAlias = Service | Controller


class PodTopologySpreadHints:
    """The hints of one profile.

    Upstream: pkg/scheduler/framework/plugins/podtopologyspread/plugin.go EventsToRegister
    """

    def __init__(self, rules: SpreadRulesCache) -> None:
        self._rules = rules

    def events(self) -> Sequence[EventHint]:
        """Return the events of counted pods, of nodes with all keys, and of the pod itself.

        With hard default constraints also the events of Services and owners.
        """
        shape = self._rules.shape
        events = (
            EventHint(_NEIGHBOUR, self._after_neighbour, shape, Topics(self._selecting, by_pod_labels)),
            EventHint(_ITSELF, self._after_itself),
            EventHint(_NODE, self._after_node, self._by_keys, Topics(self._keyed, by_keys_and_taints)),
        )
        if not self._rules.has_hard_defaults:
            return events
        selecting = Topics(_selecting_objects, _by_selecting)
        return (*events, *(EventHint(event, _after_selecting, shape, selecting) for event in _SELECTING))

    def _after_neighbour(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
        namespace = pod.pod.metadata.namespace
        if not all(_has_node(other, namespace) for other in (old, new) if other is not None):
            return Hint.SKIP
        hard = self._rules.of(pod).hard.each
        if old is not None and new is not None:
            return Hint.QUEUE if _counted(hard, old) != _counted(hard, new) else Hint.SKIP
        was, will = _matching(hard, old), _matching(hard, new)
        return Hint.QUEUE if any(was) or any(will) else Hint.SKIP

    def _after_itself(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
        if old is None or new is None or new.uid != pod.uid:
            return Hint.SKIP
        hard = self._rules.of(pod).hard
        if hard.honors_taints and old.pod.spec.tolerations != new.pod.spec.tolerations:
            return Hint.QUEUE
        before = self._rules.of(old).hard
        if [constraint.selector for constraint in before.each] != [constraint.selector for constraint in hard.each]:
            return Hint.QUEUE
        return Hint.QUEUE if _matching(hard.each, old) != _matching(hard.each, new) else Hint.SKIP

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        hard = self._rules.of(pod).hard
        keys = _keys(hard)
        was_in, is_in = _has_all(old, keys), _has_all(new, keys)
        if old is None or new is None or was_in != is_in:
            return Hint.QUEUE if was_in or is_in else Hint.SKIP
        before, after = old.metadata.labels, new.metadata.labels
        differs = any(before.get(key) != after.get(key) for key in keys) or old.spec.taints != new.spec.taints
        if not differs and hard.honors_affinity and pod.placement_shape:
            name = new.metadata.name
            differs = required_affinity_matches(pod.pod, name, before) != required_affinity_matches(
                pod.pod, name, after
            )
        return Hint.QUEUE if is_in and differs else Hint.SKIP

    def _by_keys(self, pod: PodInfo) -> Hashable:
        hard = self._rules.of(pod).hard
        return frozenset(_keys(hard)), pod.placement_shape if hard.honors_affinity else b""

    def _selecting(self, pod: PodInfo) -> Iterator[Anchor]:
        """Return the index keys of the selectors. A change of default constraints is an event itself."""
        namespaces = frozenset({pod.pod.metadata.namespace})
        hard = self._rules.of(pod).hard.each
        return (anchor for constraint in hard for anchor in anchors(namespaces, constraint.selector))

    def _keyed(self, pod: PodInfo) -> Iterator[Hashable] | None:
        hard = self._rules.of(pod).hard
        if not hard.each:
            return None
        return map(label, (*_keys(hard), *(_placement_keys(pod) if hard.honors_affinity else ())))


def by_keys_and_taints(old: Node | None, new: Node | None) -> Iterator[Hashable]:
    """Yield the labels that differ, or every label of the node if its taints differ."""
    yield from by_node_labels(old, new)
    if old is not None and new is not None and old.spec.taints != new.spec.taints:
        yield from map(label, new.metadata.labels)


def _keys(hard: Constraints) -> list[str]:
    return [constraint.topology_key for constraint in hard.each]


def _placement_keys(pod: PodInfo) -> Iterator[str]:
    """Yield the node labels that nodeSelector and required node affinity read."""
    spec = pod.pod.spec
    yield from spec.node_selector
    required = required_node_affinity(spec.affinity)
    for term in required.node_selector_terms if required is not None else ():
        for requirement in term.match_expressions:
            yield requirement.key


def _has_node(other: PodInfo, namespace: str) -> bool:
    pod = other.pod
    return pod.metadata.namespace == namespace and bool(pod.spec.node_name or pod.status.nominated_node_name)


def _matching(constraints: tuple[Constraint, ...], other: PodInfo | None) -> list[bool]:
    """Return per constraint whether the selector matches. An empty one matches all pods here, as in upstream."""
    if other is None:
        return []
    labels = other.pod.metadata.labels
    return [c.selector is not None and c.selector.matches(labels) for c in constraints]


def _counted(constraints: tuple[Constraint, ...], other: PodInfo) -> list[bool]:
    """Return per constraint whether the pod counts; a terminating pod does not."""
    if other.pod.metadata.deletion_timestamp is not None:
        return [False] * len(constraints)
    return _matching(constraints, other)


def _has_all(node: Node | None, keys: list[str]) -> bool:
    return node is not None and all(key in node.metadata.labels for key in keys)


# -- Services and owners of default constraints --------------------------------------------------------------------------


def _after_selecting(pod: PodInfo, old: Selecting | None, new: Selecting | None) -> Hint:
    if pod.spread_shape:
        return Hint.SKIP
    return Hint.QUEUE if any(_counts(seen, pod) for seen in (old, new) if seen is not None) else Hint.SKIP


def _counts(seen: Selecting, pod: PodInfo) -> bool:
    """Return whether the pod's default constraints use the selector of this Service or owner."""
    if not isinstance(seen, Service):
        return selecting_owner(pod.pod) == (type(seen), seen.key)
    metadata, selector = pod.pod.metadata, seen.spec.selector
    if not selector or seen.metadata.namespace != metadata.namespace:
        return False
    return all(metadata.labels.get(name) == value for name, value in selector.items())


def _selecting_objects(pod: PodInfo) -> Iterator[Hashable]:
    """Yield topics of the Services that may select the pod, and of its owner."""
    if not pod.spread_shape:
        metadata = pod.pod.metadata
        yield from probes(metadata.namespace, metadata.labels)
        yield selecting_owner(pod.pod)


def _by_selecting(old: Selecting | None, new: Selecting | None) -> Iterator[Hashable]:
    for seen in (old, new):
        if isinstance(seen, Service):
            yield from anchors(frozenset({seen.metadata.namespace}), LabelSelector(seen.spec.selector or {}))
        elif seen is not None:
            yield type(seen), seen.key
