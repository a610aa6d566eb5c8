"""The topology domains in which the pods of a group may be placed (docs/spec/groups.md §4).

A worked example, with the constraint `topology: [{key: rack}]`, 2 nodes in r1, 3 in r2, and one without the label:

    1. no pod has a node            r1 and r2, each tried alone; first the one that is fuller with the pods. The node without the
                                    label is in neither
    2. a pod is on a node of r2     r2 alone
    3. pods in r1 and in r2         an error: the constraint is violated already

A domain whose nodes together have less free than the smallest members need is not tried. So a label with one value per node costs
little, also if no node is large enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scheduler.api.core_v1 import Pod
from scheduler.api.pod_group import GroupKey
from scheduler.api.podinfo import CPU, MEMORY, PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.core.nodeset import NodeSet


class DomainError(Exception):
    """No domain can be chosen: pods have nodes from which none follows, or there are too many domains to try."""


@dataclass(frozen=True, slots=True)
class Domain:
    """The nodes with one value of the label. `is_hopeless`: they have less free than the group needs."""

    nodes: NodeSet
    is_hopeless: bool
    value: str


def domains(
    cluster: Cluster, group: GroupKey, members: Sequence[PodInfo], least: int, *, quoted: bool
) -> list[Domain] | None:
    """Return the domains that the group may use; None without a constraint. O(members + nodes).

    The hopeless ones are last, and before them those that cannot take all members. Otherwise the fullest are first, counted with
    the members: so a small domain is filled before a large one is begun. `quoted` selects how the error writes values. Raises DomainError.

    Upstream: pkg/scheduler/framework/plugins/topologyaware/topology_placement.go TopologyPlacement
    """
    wanted = cluster.pod_groups.get(group)
    if wanted is None or not wanted.topology_key:
        return None
    pinned = _pinned(cluster, group, wanted.topology_key, quoted=quoted)
    labelled = cluster.nodes.labels.values(wanted.topology_key)
    values = [value for value in labelled if value and pinned in (None, value)]
    if not values:
        return []
    sums = _Sums(cluster, wanted.topology_key, values)
    is_hopeless, is_small = sums.lack(members, least), sums.lack(members, len(members))
    used_share = sums.used_share(members)
    order = sorted(range(len(values)), key=lambda at: (is_hopeless[at], is_small[at], -used_share[at], values[at]))
    return [Domain(labelled[values[at]], bool(is_hopeless[at]), values[at]) for at in order]


def preferred(
    cluster: Cluster, group: GroupKey, members: Sequence[PodInfo], allowed: Sequence[Domain] | None
) -> list[list[Domain]]:
    """Return for each preferred key its domains within the allowed ones, in which all members should be.

    Domains with pods of the group come first, then those that can take all, then the fullest. O(keys × (members + nodes)).
    """
    wanted, levels = cluster.pod_groups.get(group), []
    for key in wanted.metadata.preferred_keys if wanted is not None else ():
        labelled = cluster.nodes.labels.values(key)
        values = [value for value in labelled if value]
        if not values:
            continue
        sums = _Sums(cluster, key, values)
        is_hopeless, used_share = sums.lack(members, len(members)), sums.used_share(members)
        taken = cluster.nodes.by_name(
            node for pod in cluster.pod_groups.members(group).values() if (node := _node(cluster, pod))
        )
        order = sorted(
            range(len(values)),
            key=lambda at: (not labelled[values[at]] & taken, is_hopeless[at], -used_share[at], values[at]),
        )
        levels.append(
            [
                Domain(nodes, bool(is_hopeless[at]), values[at])
                for at in order
                for within in (allowed if allowed is not None else (None,))
                if (nodes := labelled[values[at]] if within is None else labelled[values[at]] & within.nodes)
            ]
        )
    return [level for level in levels if level]


def _node(cluster: Cluster, pod: Pod) -> str:
    """Return the node that the pod has or is on its way to; "" without one."""
    held = cluster.get(pod.metadata.uid)
    return pod.spec.node_name or (held.node_name if held is not None else "")


class _Sums:
    """Sums over the nodes of each domain, as rows with one item per domain."""

    def __init__(self, cluster: Cluster, key: str, values: Sequence[str]) -> None:
        self._nodes, topology = cluster.nodes, cluster.nodes.topologies.of(key)
        self._slots = np.flatnonzero(topology.domain >= 0)
        self._places = topology.domain[self._slots]
        self._numbers = np.array([topology.numbers[value] for value in values], dtype=np.intp)
        self._count = len(topology.members)

    def lack(self, members: Sequence[PodInfo], least: int) -> npt.NDArray[np.bool_]:
        """Return whether the domain has less free cpu, memory or places than `least` pods need, each time the smallest ones.

        Other resources prove nothing: devices may stand in for them.
        """
        nodes, rows = self._nodes, self._nodes.resources()
        lacking = self._sum(nodes.allowed_pods[self._slots] - nodes.pod_count[self._slots]) < min(least, len(members))
        for name in (CPU, MEMORY):
            needed = sum(sorted(info.requests.get(name, 0) for info in members)[:least])
            free = nodes.allocatable[rows[name], self._slots] - nodes.requested[rows[name], self._slots]
            lacking |= self._sum(free) < needed
        return lacking

    def used_share(self, members: Sequence[PodInfo]) -> npt.NDArray[np.float64]:
        """Return how much of the cpu and memory would be requested with these members, as the sum of both shares.

        Upstream: pkg/scheduler/framework/plugins/noderesources/fit.go ScorePlacement
        """
        rows = self._nodes.resources()
        shares = np.zeros(len(self._numbers))
        for name in (CPU, MEMORY):
            there = self._sum(self._nodes.allocatable[rows[name], self._slots])
            used = self._sum(self._nodes.requested[rows[name], self._slots])
            shares += (used + sum(info.requests.get(name, 0) for info in members)) / np.maximum(there, 1)
        return shares

    def _sum(self, amounts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        weights = np.maximum(amounts, 0).astype(np.float64)
        sums = np.bincount(self._places, weights=weights, minlength=self._count)
        return sums.astype(np.float64)[self._numbers]


def _pinned(cluster: Cluster, group: GroupKey, key: str, *, quoted: bool) -> str | None:
    """Return the domain of the pods that have a node or are on their way to one; None if there are none."""
    head, pinned = "cannot determine domain for already scheduled pods: ", None
    for pod in cluster.pod_groups.members(group).values():
        node_name = _node(cluster, pod)
        if not node_name:
            continue
        slot = cluster.nodes.present_slot(node_name)
        node = cluster.nodes.node(slot) if slot is not None else None
        labels = node.metadata.labels if node is not None else {}
        if not (value := labels.get(key, "")):
            kind = "empty" if key in labels and quoted else "no"
            raise DomainError(f"{head}{kind} topology domain found for pod {pod.key}")
        if pinned not in (None, value):
            both = f'"{pinned}", "{value}"' if quoted else f"{pinned}, {value}"
            raise DomainError(f"{head}more than 1 domain found for pod group: {both}")
        pinned = value
    return pinned
