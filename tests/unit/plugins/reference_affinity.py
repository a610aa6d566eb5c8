"""InterPodAffinity by looking at every pod on every node: what the plugin's sets and columns must agree with.

Written from docs/spec/core.md §5.9, as slow and as plain as can be.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from scheduler.api.core_v1 import Node, Pod, PodAffinityTerm
from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


class Reference:
    """One pod that comes, one cluster as it is."""

    def __init__(self, seen: Cluster, pod: PodInfo) -> None:
        self.seen, self.pod = seen, pod.pod
        nodes = seen.nodes
        self.nodes: dict[str, Node] = {}
        self.there: list[tuple[Node, Pod]] = []
        for name in nodes.known_names():
            slot = nodes.present_slot(name)
            found = nodes.node(slot) if slot is not None else None
            if slot is not None and found is not None:
                self.nodes[name] = found
                self.there += [(found, info.pod) for info in nodes.pods(slot).values()]

    def matches(self, term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
        if term.label_selector is None or not term.label_selector.matches(other.metadata.labels):
            return False
        names = term.namespaces
        if not names and term.namespace_selector is None:
            names = (owner.metadata.namespace,)
        if other.metadata.namespace in names:
            return True
        wanted = term.namespace_selector
        if wanted is None:
            return False
        known = other.metadata.namespace in self.seen.namespaces.by_name
        is_incoming_owner = owner is self.pod
        if is_incoming_owner and wanted.matches({}):  # v1.36.3 matches once more, against no labels
            return True
        if is_incoming_owner and not known:  # resolved to the names of namespaces that exist
            return False
        return wanted.matches(self.seen.namespaces.labels(other.metadata.namespace))

    def filter(self) -> dict[str, str]:
        required = _terms(self.pod, "pod_affinity", "required")
        anti = _terms(self.pod, "pod_anti_affinity", "required")
        near: Counter[tuple[str, str]] = Counter()
        hated: Counter[tuple[str, str]] = Counter()
        hating: Counter[tuple[str, str]] = Counter()
        for node, other in self.there:
            labels = node.metadata.labels
            if required and all(self.matches(t, self.pod, other) for t in required):
                near.update((t.topology_key, labels[t.topology_key]) for t in required if t.topology_key in labels)
            for term in anti:
                if self.matches(term, self.pod, other) and term.topology_key in labels:
                    hated[term.topology_key, labels[term.topology_key]] += 1
            for term in _terms(other, "pod_anti_affinity", "required"):
                if self.matches(term, other, self.pod) and term.topology_key in labels:
                    hating[term.topology_key, labels[term.topology_key]] += 1
        out = {}
        for name, node in self.nodes.items():
            pairs = set(node.metadata.labels.items())
            if not self._is_near(required, node, near):
                out[name] = AFFINITY
            elif any((t.topology_key, node.metadata.labels.get(t.topology_key)) in hated for t in anti):
                out[name] = ANTI
            elif pairs & set(hating):
                out[name] = EXISTING
        return out

    def _is_near(self, required: tuple[Any, ...], node: Node, near: Counter[tuple[str, str]]) -> bool:
        labels = node.metadata.labels
        if any(t.topology_key not in labels for t in required):
            return False
        if all(near[t.topology_key, labels[t.topology_key]] for t in required):
            return True
        return not +near and all(self.matches(t, self.pod, self.pod) for t in required)

    def scores(self) -> dict[str, int] | None:
        """Normalised over all nodes; None: skipped."""
        mine = [
            *((w.weight, w.pod_affinity_term) for w in _terms(self.pod, "pod_affinity", "preferred")),
            *((-w.weight, w.pod_affinity_term) for w in _terms(self.pod, "pod_anti_affinity", "preferred")),
        ]
        sums: dict[tuple[str, str], int] = {}
        for node, other in self.there:
            pulls = [(weight, term) for weight, term in mine if self.matches(term, self.pod, other)]
            theirs = [
                *((w.weight, w.pod_affinity_term) for w in _terms(other, "pod_affinity", "preferred")),
                *((-w.weight, w.pod_affinity_term) for w in _terms(other, "pod_anti_affinity", "preferred")),
                *((1, t) for t in _terms(other, "pod_affinity", "required")),
            ]
            pulls += [(weight, term) for weight, term in theirs if self.matches(term, other, self.pod)]
            for weight, term in pulls:
                if term.topology_key in node.metadata.labels:
                    pair = (term.topology_key, node.metadata.labels[term.topology_key])
                    sums[pair] = sums.get(pair, 0) + weight
        if not sums:
            return None
        raw = {name: sum(sums.get(p, 0) for p in n.metadata.labels.items()) for name, n in self.nodes.items()}
        low, high = min(raw.values()), max(raw.values())
        return {name: int(100 * ((s - low) / (high - low))) if high > low else 0 for name, s in raw.items()}


def _terms(pod: Pod, side: str, strength: str) -> tuple[Any, ...]:
    rules = getattr(pod.spec.affinity, side) if pod.spec.affinity is not None else None
    return getattr(rules, strength) if rules is not None else ()
