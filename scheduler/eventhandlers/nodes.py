"""Apply deltas of nodes to the cache, and wake the pods that a changed property can help (docs/spec/core.md §4.2)."""

from __future__ import annotations

from scheduler.api.core_v1 import Node
from scheduler.api.decode import Delta
from scheduler.cache.cluster import Cluster
from scheduler.core.cluster_events import NODE_ADD, NODE_DELETE, Action, ClusterEvent, Resource
from scheduler.eventhandlers.deltas import Move, seen


def apply_node(cluster: Cluster, move: Move, delta: Delta[Node]) -> None:
    """Apply one change.

    A node that cannot be read counts as absent, so that it gets no pods. Pods that are on it stay.
    Upstream: pkg/scheduler/eventhandlers.go addNodeToCache, updateNodeInCache, deleteNodeFromCache
    """
    name, old, new = seen(delta, cluster.volumes.broken)
    if new is not None:
        cluster.set_node(new)
        cluster.volumes.notify("Node", name)
        for event in (NODE_ADD,) if old is None else node_changes(old, new):
            move(event, old, new)
    elif old is not None:
        move(NODE_DELETE, old, None)
        cluster.remove_node(name)
        cluster.volumes.notify("Node", name)


def node_changes(old: Node, new: Node) -> list[ClusterEvent]:
    """Return one event per changed property; a heartbeat changes none (§4.2).

    Upstream: pkg/scheduler/framework/events.go NodeSchedulingPropertiesChange
    """
    actions = []
    if old.spec.taints != new.spec.taints or (old.spec.unschedulable and not new.spec.unschedulable):
        actions.append(Action.UPDATE_NODE_TAINT)
    if old.status.allocatable != new.status.allocatable:
        actions.append(Action.UPDATE_NODE_ALLOCATABLE)
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_NODE_LABEL)
    if old.status.conditions != new.status.conditions:
        actions.append(Action.UPDATE_NODE_CONDITION)
    if old.metadata.annotations != new.metadata.annotations:
        actions.append(Action.UPDATE_NODE_ANNOTATION)
    if old.status.declared_features != new.status.declared_features:
        actions.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return [ClusterEvent(Resource.NODE, action) for action in actions]
