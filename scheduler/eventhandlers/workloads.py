"""Apply deltas of namespaces, Services, owners of pods and disruption budgets to the cache.

`pods_and_nodes` calls the handlers. An object that could not be read is logged once and counts as absent. A budget that could
not be read protects all pods of its namespace. `seen` and `action_of` serve the handlers of storage and devices as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import structlog

from scheduler.api.apps_and_policy import PodDisruptionBudget, ReplicaSet, ReplicationController, Service, StatefulSet
from scheduler.api.core_v1 import Namespace
from scheduler.api.decode import Broken, Delta
from scheduler.cache.cluster import Cluster
from scheduler.cache.workloads import Controller
from scheduler.core.cluster_events import Action, ClusterEvent, Resource

_log = structlog.get_logger(__name__)

_NAMESPACE_ADD: Final = ClusterEvent(Resource.NAMESPACE, Action.ADD)
_NAMESPACE_UPDATE: Final = ClusterEvent(Resource.NAMESPACE, Action.UPDATE_OTHER)


Move: TypeAlias = Callable[[ClusterEvent, object, object], None]


def workload_handlers(cluster: Cluster, move: Move) -> Mapping[str, Callable[[Delta[Any]], None]]:
    """Return the handler of one delta for each kind. `move` wakes the pods that an event can help."""
    return {
        "Namespace": partial(_namespace, cluster, move),
        "Service": partial(_service, cluster, move),
        "ReplicationController": partial(_controller, cluster, move, ReplicationController),
        "ReplicaSet": partial(_controller, cluster, move, ReplicaSet),
        "StatefulSet": partial(_controller, cluster, move, StatefulSet),
        "PodDisruptionBudget": partial(_budget, cluster),
    }


def _namespace(cluster: Cluster, move: Move, delta: Delta[Namespace]) -> None:
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


def _service(cluster: Cluster, move: Move, delta: Delta[Service]) -> None:
    new, before = _readable(delta), cluster.workloads.generation
    if isinstance(new, Service):
        cluster.workloads.set_service(new)
    elif delta.old is not None:
        cluster.workloads.remove_service(delta.old.key)
    if cluster.workloads.generation != before:
        _wake_for_selection(move, Resource.SERVICE, delta.old, new)


def _budget(cluster: Cluster, delta: Delta[PodDisruptionBudget]) -> None:
    new = _readable(delta)
    if isinstance(new, PodDisruptionBudget):
        cluster.disruptions.put(new)
    elif isinstance(delta.new, Broken):
        cluster.disruptions.put_unreadable(delta.new.key, delta.new.metadata.namespace)
    elif delta.old is not None:
        cluster.disruptions.remove(delta.old.key)


def _controller(cluster: Cluster, move: Move, kind: type[Controller], delta: Delta[Any]) -> None:
    new, before = _readable(delta), cluster.workloads.generation
    if isinstance(new, kind):
        cluster.workloads.set_controller(new)
    elif delta.old is not None:
        cluster.workloads.remove_controller(kind, delta.old.key)
    if cluster.workloads.generation != before:
        _wake_for_selection(move, Resource.CONTROLLER, delta.old, new)


def _wake_for_selection(move: Move, resource: Resource, old: object, new: object) -> None:
    """Wake pods, because the object selects other pods now. An object that could not be read counts as absent."""
    known = None if isinstance(old, Broken) else old
    action = action_of(known, new)
    assert action is not None
    move(ClusterEvent(resource, action), known, new)


def _readable(delta: Delta[Any]) -> object:
    """Return the new object, or None if there is none or it could not be read."""
    new = delta.new
    if isinstance(new, Broken):
        _log_unreadable(delta.old, new)
        return None
    return new


def is_new_error(old: object, new: Broken) -> bool:
    """Return False if the object was unreadable for the same reason before."""
    return not (isinstance(old, Broken) and old.why == new.why)


def _log_unreadable(old: object, new: Broken) -> None:
    if is_new_error(old, new):
        _log.error("object could not be read and is left out", kind=new.kind, object=new.key, error=new.why)


class ObjectChange(NamedTuple):
    """One change. `old` and `new` are None where there is no object, or none that can be read."""

    key: str
    old: Any
    new: Any


def action_of(old: object, new: object) -> Action | None:
    """Return the action, with unreadable objects as None; None if there was no object before or after."""
    if old is None:
        return None if new is None else Action.ADD
    return Action.DELETE if new is None else Action.UPDATE_OTHER


def seen(delta: Delta[Any], broken: dict[tuple[str, str], Broken]) -> ObjectChange:
    """Return the change with unreadable sides as None; update `broken`, which is by kind and key."""
    shown = delta.new if delta.new is not None else delta.old
    assert shown is not None
    for side in (delta.old, delta.new):
        if isinstance(side, Broken):
            broken.pop((side.kind, side.key), None)
    if isinstance(delta.new, Broken):
        broken[delta.new.kind, delta.new.key] = delta.new
        _log_unreadable(delta.old, delta.new)
    old, new = (None if isinstance(side, Broken) else side for side in (delta.old, delta.new))
    return ObjectChange(shown.key, old, new)
