"""The nodes that a pod's hard constraints reject (docs/spec/core.md §5.8).

Filter reads the current counts, so pods that a dry run adds or removes count like all other pods. Upstream counts
added pods even if they are terminating, because it adds them to counts made before.

Upstream: pkg/scheduler/framework/plugins/podtopologyspread/filtering.go Filter
"""

from __future__ import annotations

from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.cache.nodes import topology as domains
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.nodes.topology import Topology
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.status import Code, Groups, Rejection
from scheduler.plugins.podtopologyspread.constraints import Constraint, Constraints, EligibleNodesCache

PLUGIN: Final = "PodTopologySpread"
_NO: Final = "node(s) didn't match pod topology spread constraints"
SKEWED: Final = Rejection(PLUGIN, Code.UNSCHEDULABLE, (_NO,))
KEYLESS: Final = Rejection(PLUGIN, Code.UNRESOLVABLE, (f"{_NO} (missing required label)",))


class HardConstraints:
    """Computes the sets for Filter. The cost grows with constraints and different counts, not with nodes."""

    def __init__(self, nodes: Nodes, eligibility: EligibleNodesCache) -> None:
        self._nodes = nodes
        self._eligibility = eligibility

    def refused(self, pod: PodInfo, constraints: Constraints, nodes: NodeSet) -> Groups:
        """Return the rejected nodes; the first constraint that rejects a node gives the reason."""
        groups: Groups = {}
        for constraint, eligible in zip(constraints.each, self._eligibility.of(pod, constraints)):
            if not nodes:
                break
            topology = self._nodes.topologies.of(constraint.topology_key)
            crowded = self._crowded(constraint, topology, eligible.nodes)
            for no, out in ((KEYLESS, nodes & ~topology.having), (SKEWED, nodes & crowded)):
                if out:
                    groups[no] = groups.get(no, EMPTY) | out
                    nodes &= ~out
        return groups

    def _crowded(self, constraint: Constraint, topology: Topology, eligible: NodeSet | None) -> NodeSet:
        """Return the nodes of domains that would exceed the smallest count by more than the skew.

        A domain without eligible nodes is never full.
        """
        counts = domains.of(self._nodes.population.tally(constraint.counted), topology, eligible)
        levels = counts.levels()
        least = min(levels, default=0) if counts.existing >= constraint.min_domains else 0
        most = constraint.max_skew + least - constraint.counts_itself
        crowded = EMPTY
        for count, level in levels.items():
            if count > most:
                crowded |= level.nodes
        return crowded
