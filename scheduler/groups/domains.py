"""The topology domains in which the pods of a group may be placed (docs/spec/groups.md §4).

A worked example, with the constraint `topology: [{key: rack}]`, 2 nodes in r1, 3 in r2, and one without the label:

    1. no pod has a node            r1 and r2, each tried alone; the fuller one first. The node without the label is in neither
    2. a pod is on a node of r2     r2 alone
    3. pods in r1 and in r2         an error: the constraint is violated already
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.api.pod_group import GroupKey
from scheduler.api.podinfo import CPU, MEMORY
from scheduler.cache.cluster import Cluster
from scheduler.core import nodeset
from scheduler.core.nodeset import NodeSet


class DomainError(Exception):
    """Pods of the group have nodes from which no domain follows."""


@dataclass(frozen=True, slots=True)
class Domain:
    """The nodes with one value of the label."""

    value: str
    nodes: NodeSet


def domains(cluster: Cluster, group: GroupKey, *, quoted: bool) -> list[Domain] | None:
    """Return the domains that the group may use, the fullest first; None without a constraint. O(members + nodes).

    `quoted` selects how the error writes values. Raises DomainError.

    Upstream: pkg/scheduler/framework/plugins/topologyaware/topology_placement.go TopologyPlacement
    """
    wanted = cluster.pod_groups.get(group)
    if wanted is None or not wanted.topology_key:
        return None
    pinned = _pinned(cluster, group, wanted.topology_key, quoted=quoted)
    values = cluster.nodes.labels.values(wanted.topology_key)
    found = [Domain(value, nodes) for value, nodes in values.items() if value and pinned in (None, value)]
    return sorted(found, key=lambda domain: (-_used_share(cluster, domain.nodes), domain.value))


def _pinned(cluster: Cluster, group: GroupKey, key: str, *, quoted: bool) -> str | None:
    """Return the domain of the pods that have a node or are on their way to one; None if there are none."""
    head, pinned = "cannot determine domain for already scheduled pods: ", None
    for pod in cluster.pod_groups.members(group).values():
        held = cluster.get(pod.metadata.uid)
        node_name = pod.spec.node_name or (held.node_name if held is not None else "")
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


def _used_share(cluster: Cluster, nodes: NodeSet) -> float:
    """Return how much of the cpu and memory of the nodes is requested, as the sum of both shares."""
    columns, rows = cluster.nodes, cluster.nodes.resources()
    slots = nodeset.slots(nodes, columns.capacity)
    return sum(
        float(columns.requested[rows[name], slots].sum())
        / max(1.0, float(columns.allocatable[rows[name], slots].sum()))
        for name in (CPU, MEMORY)
    )
