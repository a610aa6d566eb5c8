"""What can help a pod that hard constraints refused (docs/spec/core.md §5.8, Events).

Upstream registers all pod events at once; here those about other pods are apart from those about the waiting pod itself,
because the former are one question for all pods of a shape. Wider than upstream in two cases that end in the flush there
(§10.2): a node begins or ceases to be one whose pods count, by a label that the pod's own selector or affinity reads; and
the waiting pod has other values of matchLabelKeys.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from scheduler.core.anchors import Anchor, anchors
from scheduler.core.events import Action, ClusterEvent, Resource
from scheduler.core.node import Node
from scheduler.core.placement import required_affinity_matches, required_node_affinity
from scheduler.core.podinfo import PodInfo
from scheduler.framework.hints import EventHint, Hint, Topics
from scheduler.framework.topics import by_node_labels, by_pod_labels, label
from scheduler.plugins.podtopologyspread.constraints import Constraint, Rulebook

_NEIGHBOUR: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE)
_ITSELF: Final = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION)
_NODE: Final = ClusterEvent(
    Resource.NODE, Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
)


class Hints:
    """The hints of one profile."""

    def __init__(self, rulebook: Rulebook) -> None:
        self._rulebook = rulebook

    def events(self) -> Sequence[EventHint]:
        """A pod that counts came, went or changed; so did a node with all keys; or the pod itself changed."""
        return (
            EventHint(_NEIGHBOUR, self._after_neighbour, self._rulebook.shape, Topics(self._selecting, by_pod_labels)),
            EventHint(_ITSELF, self._after_itself),
            EventHint(_NODE, self._after_node, self._by_keys, Topics(self._keyed, by_keys_and_taints)),
        )

    def _after_neighbour(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
        namespace = pod.pod.metadata.namespace
        if not all(_holds_a_place(other, namespace) for other in (old, new) if other is not None):
            return Hint.SKIP
        hard = self._rulebook.of(pod).hard.each
        was, will = _matching(hard, old), _matching(hard, new)
        if old is not None and new is not None:
            return Hint.QUEUE if was != will else Hint.SKIP
        return Hint.QUEUE if any(was) or any(will) else Hint.SKIP

    def _after_itself(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
        if old is None or new is None or new.uid != pod.uid:
            return Hint.SKIP
        hard = self._rulebook.of(pod).hard
        if hard.honors_taints and old.pod.spec.tolerations != new.pod.spec.tolerations:
            return Hint.QUEUE
        if new.spread_shape and self._rulebook.shape(old) != self._rulebook.shape(new):
            return Hint.QUEUE
        return Hint.QUEUE if _matching(hard.each, old) != _matching(hard.each, new) else Hint.SKIP

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        hard = self._rulebook.of(pod).hard
        keys = [constraint.topology_key for constraint in hard.each]
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
        """Of its own constraints only the keys matter; whether there are default ones depends on more."""
        if not pod.spread_shape:
            return self._rulebook.shape(pod)
        return _own_keys(pod), pod.placement_shape if _honors_affinity(pod) else b""

    def _selecting(self, pod: PodInfo) -> Iterator[Anchor] | None:
        """Where the selectors are filed; default ones may be others tomorrow."""
        if not pod.spread_shape:
            return None
        namespaces = frozenset({pod.pod.metadata.namespace})
        hard = self._rulebook.of(pod).hard.each
        return (anchor for constraint in hard for anchor in anchors(namespaces, constraint.selector))

    def _keyed(self, pod: PodInfo) -> Iterator[Hashable] | None:
        keys = _own_keys(pod)
        if not keys:
            return None
        return map(label, (*keys, *_placement_keys(pod)) if _honors_affinity(pod) else keys)


def by_keys_and_taints(old: Node | None, new: Node | None) -> Iterator[Hashable]:
    """Labels that differ; if taints do, every label that the node has."""
    yield from by_node_labels(old, new)
    if old is not None and new is not None and old.spec.taints != new.spec.taints:
        yield from map(label, new.metadata.labels)


def _own_keys(pod: PodInfo) -> tuple[str, ...]:
    constraints = pod.pod.spec.topology_spread_constraints
    return tuple(sorted({c.topology_key for c in constraints if c.when_unsatisfiable == "DoNotSchedule"}))


def _honors_affinity(pod: PodInfo) -> bool:
    constraints = pod.pod.spec.topology_spread_constraints
    hard = (c for c in constraints if c.when_unsatisfiable == "DoNotSchedule")
    return any(c.node_affinity_policy != "Ignore" for c in hard)


def _placement_keys(pod: PodInfo) -> Iterator[str]:
    """Labels of nodes that nodeSelector and required node affinity read."""
    spec = pod.pod.spec
    yield from spec.node_selector
    required = required_node_affinity(spec.affinity)
    for term in required.node_selector_terms if required is not None else ():
        for requirement in term.match_expressions:
            yield requirement.key


def _holds_a_place(other: PodInfo, namespace: str) -> bool:
    pod = other.pod
    return pod.metadata.namespace == namespace and bool(pod.spec.node_name or pod.status.nominated_node_name)


def _matching(constraints: tuple[Constraint, ...], other: PodInfo | None) -> list[bool]:
    """By constraint. An empty selector, which counts nobody, matches everybody here, as upstream's does."""
    if other is None:
        return []
    labels = other.pod.metadata.labels
    return [c.selector is not None and c.selector.matches(labels) for c in constraints]


def _has_all(node: Node | None, keys: list[str]) -> bool:
    return node is not None and all(key in node.metadata.labels for key in keys)
