"""Which nodes a pod's hard constraints refuse (docs/spec/core.md §5.8).

Everything is read from the counts as they are now, so inside a trial the pods that it adds and takes away count like all
others. Upstream counts those even if they are terminating, because there they are added to counts made before.

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
    """The sets behind Filter. Cost grows with constraints and the number of different counts, not with nodes."""

    def __init__(self, nodes: Nodes, eligibility: EligibleNodesCache) -> None:
        self._nodes = nodes
        self._eligibility = eligibility

    def refused(self, pod: PodInfo, constraints: Constraints, nodes: NodeSet) -> Groups:
        """The first constraint that refuses a node gives the reason."""
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
        """Nodes of domains that would hold too many more than the emptiest. One without eligible nodes is never full."""
        counts = domains.of(self._nodes.population.tally(constraint.counted), topology, eligible)
        levels = counts.levels()
        least = min(levels, default=0) if counts.existing >= constraint.min_domains else 0
        most = constraint.max_skew + least - constraint.counts_itself
        crowded = EMPTY
        for count, level in levels.items():
            if count > most:
                crowded |= level.nodes
        return crowded
