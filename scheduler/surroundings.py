"""Deltas of what surrounds pods and nodes → cache: namespaces, Services, and the controllers that own pods.

Called through `intake`. An object that could not be read is logged once and counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import structlog

from scheduler.cache.cluster import Cluster
from scheduler.cache.workloads import Controller
from scheduler.core.decode import Broken
from scheduler.core.deltas import Delta
from scheduler.core.disruption import PodDisruptionBudget
from scheduler.core.events import Action, ClusterEvent, Resource
from scheduler.core.namespace import Namespace
from scheduler.core.workloads import ReplicaSet, ReplicationController, Service, StatefulSet

_log = structlog.get_logger(__name__)

_NAMESPACE_ADD: Final = ClusterEvent(Resource.NAMESPACE, Action.ADD)
_NAMESPACE_UPDATE: Final = ClusterEvent(Resource.NAMESPACE, Action.UPDATE_OTHER)


def surroundings(
    cluster: Cluster, move: Callable[[ClusterEvent, object, object], None]
) -> Mapping[str, Callable[[Delta[Any]], None]]:
    """Kind → what to do with one change of it. `move` wakes the pods that an event can help."""
    return {
        "Namespace": partial(_namespace, cluster, move),
        "Service": partial(_service, cluster),
        "ReplicationController": partial(_controller, cluster, ReplicationController),
        "ReplicaSet": partial(_controller, cluster, ReplicaSet),
        "StatefulSet": partial(_controller, cluster, StatefulSet),
        "PodDisruptionBudget": partial(_budget, cluster),
    }


def _namespace(cluster: Cluster, move: Callable[[ClusterEvent, object, object], None], delta: Delta[Namespace]) -> None:
    new = _readable(delta)
    if not isinstance(new, Namespace):
        if delta.old is not None:
            cluster.namespaces.remove(delta.old.key)
        return
    before = cluster.namespaces.generation
    cluster.namespaces.set(new)
    if cluster.namespaces.generation != before:
        old = delta.old if isinstance(delta.old, Namespace) else None
        move(_NAMESPACE_ADD if old is None else _NAMESPACE_UPDATE, old, new)


def _service(cluster: Cluster, delta: Delta[Service]) -> None:
    new = _readable(delta)
    if isinstance(new, Service):
        cluster.workloads.set_service(new)
    elif delta.old is not None:
        cluster.workloads.remove_service(delta.old.key)


def _budget(cluster: Cluster, delta: Delta[PodDisruptionBudget]) -> None:
    new = _readable(delta)
    if isinstance(new, PodDisruptionBudget):
        cluster.disruptions.put(new)
    elif delta.old is not None:
        cluster.disruptions.remove(delta.old.key)


def _controller(cluster: Cluster, kind: type[Controller], delta: Delta[Any]) -> None:
    new = _readable(delta)
    if isinstance(new, kind):
        cluster.workloads.set_controller(new)
    elif delta.old is not None:
        cluster.workloads.remove_controller(kind, delta.old.key)


def _readable(delta: Delta[Any]) -> object:
    """The new object; None if there is none to use, which is logged when that is news."""
    new = delta.new
    if isinstance(new, Broken):
        if not (isinstance(delta.old, Broken) and delta.old.why == new.why):
            _log.error("object could not be read and is left out", kind=new.kind, object=new.key, error=new.why)
        return None
    return new
