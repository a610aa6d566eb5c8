"""Apply deltas of namespaces, Services, owners of pods and disruption budgets to the cache.

`pods_and_nodes` calls the handlers. An object that could not be read is logged once and counts as absent. A budget that could
not be read protects all pods of its namespace. `seen` and `action_of` serve the handlers of storage and devices as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import structlog

from scheduler.api.apps_and_policy import PodDisruptionBudget, ReplicaSet, ReplicationController, StatefulSet
from scheduler.api.core_v1 import Namespace
from scheduler.api.decode import Broken, Delta
from scheduler.cache.cluster import Cluster
from scheduler.cache.disruptions import Disruptions
from scheduler.cache.workloads import Namespaces, Workloads
from scheduler.core.cluster_events import Action, ClusterEvent, Resource

_log = structlog.get_logger(__name__)

Move: TypeAlias = Callable[[ClusterEvent, object, object], None]


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


def is_new_error(old: object, new: Broken) -> bool:
    """Return False if the object was unreadable for the same reason before."""
    return not (isinstance(old, Broken) and old.why == new.why)


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
        if is_new_error(delta.old, delta.new):
            unread = delta.new
            _log.error(
                "object could not be read and is left out", kind=unread.kind, object=unread.key, error=unread.why
            )
    old, new = (None if isinstance(side, Broken) else side for side in (delta.old, delta.new))
    return ObjectChange(shown.key, old, new)
