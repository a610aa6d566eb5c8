"""Apply deltas of namespaces, Services, owners of pods and disruption budgets to the cache.

An object that could not be read is logged once and counts as absent. A budget that could not be read protects all pods of
its namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from scheduler.api.apps_and_policy import PodDisruptionBudget, ReplicaSet, ReplicationController, StatefulSet
from scheduler.api.core_v1 import Namespace
from scheduler.api.decode import Broken, Delta
from scheduler.cache.cluster import Cluster
from scheduler.cache.disruptions import Disruptions
from scheduler.cache.workloads import Namespaces, Workloads
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.eventhandlers.deltas import Move, action_of, seen


def workload_handlers(cluster: Cluster, move: Move) -> Mapping[str, Callable[[Delta[Any]], None]]:
    """Return the handler of one delta for each kind. `move` wakes the pods that an event can help."""
    workloads = cluster.workloads
    selecting = partial(_selecting, workloads, move)
    controllers = {
        kind.__name__: partial(selecting, Resource.CONTROLLER, partial(workloads.set_controller, kind))
        for kind in (ReplicationController, ReplicaSet, StatefulSet)
    }
    return {
        "Namespace": partial(_namespace, cluster.namespaces, move),
        "Service": partial(selecting, Resource.SERVICE, workloads.set_service),
        **controllers,
        "PodDisruptionBudget": partial(_budget, cluster.disruptions),
    }


def _namespace(namespaces: Namespaces, move: Move, delta: Delta[Namespace]) -> None:
    key, old, new = seen(delta, {})
    if new is None:
        namespaces.remove(key)
        return
    before = namespaces.generation
    namespaces.set(new)
    if namespaces.generation != before:
        action = Action.ADD if old is None else Action.UPDATE_OTHER
        move(ClusterEvent(Resource.NAMESPACE, action), old, new)


def _selecting(
    workloads: Workloads, move: Move, resource: Resource, update: Callable[[str, Any], None], delta: Delta[Any]
) -> None:
    """Wake pods if the Service or controller selects other pods now."""
    key, old, new = seen(delta, {})
    before, action = workloads.generation, action_of(old, new)
    update(key, new)
    if workloads.generation != before and action is not None:
        move(ClusterEvent(resource, action), old, new)


def _budget(disruptions: Disruptions, delta: Delta[PodDisruptionBudget]) -> None:
    key, _, new = seen(delta, {})
    if new is not None:
        disruptions.put(new)
    elif isinstance(delta.new, Broken):
        disruptions.put_unreadable(key, delta.new.metadata.namespace)
    else:
        disruptions.remove(key)
