"""The contents of a cluster's columns and indexes by name, and collections that should be empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any, TypeVar

from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.indexes import NodeMultiset
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.nodes.topology import DomainCounts, SlotCounts
from scheduler.core import nodeset
from scheduler.core.nodeset import NodeSet

T = TypeVar("T", bound=Hashable)


def picture(seen: Cluster) -> dict[str, Any]:
    """Return the contents; they are equal for clusters with equal nodes and pods, whatever their history."""
    nodes = seen.nodes
    return {
        "nodes": {name: _columns(nodes, name) for name in nodes.known_names()},
        "free": sorted(nodes._free) == [slot for slot in range(nodes.capacity) if not nodes.name(slot)],
        "elsewhere": _is_empty_elsewhere(nodes),
        "present": _named(nodes, nodes.present),
        "unschedulable": _named(nodes, nodes.unschedulable),
        "taints": {taints: _named(nodes, slots) for taints, slots in nodes.taints.items()},
        "labels": {
            (key, value): _named(nodes, slots)
            for key, values in nodes.labels._values.items()
            for value, slots in values.items()
        },
        "ports": _held(nodes, nodes.ports.held),
        "ports of any ip": _held(nodes, nodes.ports.of_any_ip),
        "disks": _held(nodes, nodes.disk_conflicts),
        "population": {key: _counts(nodes, pods.counts) for key, pods in nodes.population.classes.items()},
        "namespaces": {name: len(pods) for name, pods in nodes.population._by_namespace.items()},
        "terms": {key: _counts(nodes, group.counts) for key, group in nodes.pod_terms.groups.items()},
        "filed terms": {
            (kind, anchor): {group.term.key for group in groups}
            for kind, filed in nodes.pod_terms.indexes.items()
            for anchor, groups in filed.items()
        },
        "priorities": _held(nodes, nodes.priorities),
        "pods": {pod.uid: pod.node_name for pod in seen.pods()},
    }


def check_sums(seen: Cluster) -> None:
    """Check that the maintained counts equal a recount of the pods on all nodes."""
    nodes = seen.nodes
    there = [
        (slot, pod)
        for name in nodes.known_names()
        if (slot := nodes.slot(name)) is not None
        for pod in nodes.pods(slot).values()
    ]
    for tally in nodes.population.tallies.values():
        wanted = tally.selection
        found = Counter(
            slot
            for slot, pod in there
            if (wanted.counts_terminating or pod.pod.metadata.deletion_timestamp is None)
            and wanted.finds(pod.pod.metadata.namespace, pod.pod.metadata.labels)
        )
        assert tally.counts == found
        _check_domains(tally)
    for group in nodes.pod_terms.groups.values():
        _check_domains(group)


def _check_domains(counts: SlotCounts) -> None:
    for sums in counts.domains.values():
        sums.refresh()
        recounted = DomainCounts(counts, sums.topology, sums.eligible)
        assert (sums.per_domain, sums.occupied, sums.existing) == (
            recounted.per_domain,
            recounted.occupied,
            recounted.existing,
        )
        assert {n: (level.nodes, level.domains) for n, level in sums.levels().items()} == {
            n: (level.nodes, level.domains) for n, level in recounted.levels().items()
        }


def named(nodes: Nodes, slot: int) -> set[str]:
    """Resources that nodes offer, or pods on this one name."""
    return {*nodes.resources(), *(resource for pod in nodes.pods(slot).values() for resource in pod.requests)}


def _columns(nodes: Nodes, name: str) -> dict[str, Any]:
    slot = nodes.slot(name)
    assert slot is not None
    view = nodes.view(slot)
    return {
        "object": nodes.node(slot),
        "pods": {uid: id(pod) for uid, pod in nodes.pods(slot).items()},
        "requested": {resource: held for resource in named(nodes, slot) if (held := view.requested(resource))},
        "allocatable": {resource: held for resource in nodes.resources() if (held := view.allocatable(resource))},
        "non-zero": nodes.non_zero[:, slot].tolist(),
        "places": (view.pod_count, view.allowed_pods),
    }


def _is_empty_elsewhere(nodes: Nodes) -> bool:
    free = nodes._free
    columns = (nodes.allocatable, nodes.requested, nodes.non_zero)
    return not (
        any(column[:, free].any() for column in columns)
        or nodes.pod_count[free].any()
        or nodes.allowed_pods[free].any()
        or any(nodes.pods(slot) for slot in free)
    )


def _named(nodes: Nodes, slots: NodeSet) -> set[str]:
    return {nodes.name(slot) for slot in nodeset.each(slots)}


def _held(nodes: Nodes, held: NodeMultiset[T]) -> dict[T, dict[str, int]]:
    counts = held.snapshot()
    assert all(held.nodes(thing) == nodeset.of(slots) for thing, slots in counts.items())
    return {thing: _counts(nodes, slots) for thing, slots in counts.items()}


def _counts(nodes: Nodes, counts: dict[int, int]) -> dict[str, int]:
    return {nodes.name(slot): count for slot, count in counts.items()}


def leftovers(owner: object, *, spared: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the attributes that are non-empty dicts, sets, lists of keys or multisets, except the spared ones."""
    slots = [name for kind in type(owner).__mro__ for name in getattr(kind, "__slots__", ())]
    names = {*getattr(owner, "__dict__", ()), *slots} - spared
    found = {name: getattr(owner, name) for name in names if hasattr(owner, name)}
    return {name: value for name, value in found.items() if isinstance(value, (dict, set, NodeMultiset)) and len(value)}
