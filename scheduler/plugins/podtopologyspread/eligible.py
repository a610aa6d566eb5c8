"""On which nodes the pods of a constraint count: topology keys and inclusion policies (docs/spec/core.md §5.8).

Only the pod's own nodeSelector and node affinity are asked, not what a profile adds; and a cordon is no taint here, though
the taint that the node controller puts beside it is one.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.cache.nodes import Nodes
from scheduler.cache.selecting import matching_labels, matching_selector
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.placement import required_node_affinity, untolerated
from scheduler.core.pod import Toleration
from scheduler.core.podinfo import PodInfo
from scheduler.framework.memo import ByObjects
from scheduler.plugins.podtopologyspread.constraints import Constraint, Constraints


@dataclass(frozen=True, slots=True)
class Eligible:
    """Where the pods of one constraint count."""

    nodes: NodeSet | None
    """None: every node that has the key, which is what a count over domains takes for granted."""
    keyless: NodeSet
    """Nodes without the key whose pods count for the value "", if some node really has that value."""


class Eligibility:
    """Constraints of a pod → where each of them counts. Kept while no node object changes."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._known: ByObjects[tuple[Eligible, ...]] = ByObjects(nodes)

    def of(self, pod: PodInfo, constraints: Constraints) -> tuple[Eligible, ...]:
        """One for each constraint, in order."""
        affinity = pod.placement_shape if constraints.honors_affinity else b""
        tolerations = pod.pod.spec.tolerations if constraints.honors_taints else ()
        return self._known.get((constraints, affinity, tolerations), lambda: self._made(pod, constraints))

    def _made(self, pod: PodInfo, constraints: Constraints) -> tuple[Eligible, ...]:
        nodes = self._nodes
        everywhere = nodes.present
        if constraints.requires_all:
            for constraint in constraints.each:
                everywhere &= nodes.labels.having(constraint.topology_key)
        admitting = self._admitting(pod) if constraints.honors_affinity else everywhere
        tolerable = self._tolerable(pod.pod.spec.tolerations) if constraints.honors_taints else everywhere
        made = []
        for constraint in constraints.each:
            included = everywhere
            if constraint.honors_affinity:
                included &= admitting
            if constraint.honors_taints:
                included &= tolerable
            made.append(self._eligible(constraint, included))
        return tuple(made)

    def _eligible(self, constraint: Constraint, included: NodeSet) -> Eligible:
        labels, key = self._nodes.labels, constraint.topology_key
        having = labels.having(key)
        counting = included & having
        keyless = included & ~having if labels.equal(key, "") else EMPTY
        return Eligible(None if counting == having else counting, keyless)

    def _admitting(self, pod: PodInfo) -> NodeSet:
        spec = pod.pod.spec
        out = matching_labels(self._nodes, spec.node_selector)
        required = required_node_affinity(spec.affinity)
        return out if required is None else out & matching_selector(self._nodes, required)

    def _tolerable(self, tolerations: tuple[Toleration, ...]) -> NodeSet:
        out = self._nodes.present
        for taints, nodes in self._nodes.taints.items():
            if untolerated(tolerations, taints) is not None:
                out &= ~nodes
        return out
