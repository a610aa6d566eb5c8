"""Rules between one pod and one node that need nothing else: tolerations and node affinity.

Sources: docs/spec/core.md §A.6 (tolerations), §5.4 (node affinity).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from scheduler.core.labels import requirement_matches
from scheduler.core.node import Node, Taint
from scheduler.core.pod import Affinity, NodeSelector, NodeSelectorTerm, Pod, Toleration

HARD_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
UNSCHEDULABLE_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """§A.6. The alpha operators Lt and Gt never match."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and bool(toleration.key) and toleration.value == taint.value


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether any toleration accepts the taint."""
    return any(tolerates(t, taint) for t in tolerations)


def untolerated(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> Taint | None:
    """The first NoSchedule or NoExecute taint that is not tolerated."""
    for taint in taints:
        if taint.effect in HARD_EFFECTS and not tolerated(tolerations, taint):
            return taint
    return None


def term_matches(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """All expressions hold; an empty term matches nothing; the only field is `metadata.name`."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": name}
    return all(requirement_matches(r.key, r.operator, r.values, labels) for r in term.match_expressions) and all(
        r.operator in {"In", "NotIn"}
        and len(r.values) == 1
        and requirement_matches(r.key, r.operator, r.values, fields)
        for r in term.match_fields
    )


def selector_matches(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> bool:
    """Any term holds; no terms match nothing."""
    return any(term_matches(term, name, labels) for term in selector.node_selector_terms)


def required_affinity_matches(pod: Pod, name: str, labels: Mapping[str, str]) -> bool:
    """NodeSelector and required node affinity together."""
    if any(labels.get(k) != v for k, v in pod.spec.node_selector.items()):
        return False
    required = required_node_affinity(pod.spec.affinity)
    return required is None or selector_matches(required, name, labels)


def required_node_affinity(affinity: Affinity | None) -> NodeSelector | None:
    """The hard part of node affinity, None when there is none."""
    return affinity.node_affinity.required if affinity and affinity.node_affinity else None


def node_admits(pod: Pod, node: Node) -> bool:
    """Affinity, taints and cordon of one node at once, without counting anything."""
    return (
        required_affinity_matches(pod, node.metadata.name, node.metadata.labels)
        and untolerated(pod.spec.tolerations, node.spec.taints) is None
        and (not node.spec.unschedulable or tolerated(pod.spec.tolerations, UNSCHEDULABLE_TAINT))
    )
