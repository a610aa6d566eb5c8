"""Namespaces, Services, owners of pods and disruption budgets: deltas to the cache.

Deltas of what surrounds pods and nodes → cache: namespaces, Services, the controllers that own pods, budgets.

Called through `intake`. An object that could not be read is logged once and counts as absent; of a budget that would cost
pods their protection, so it counts for its whole namespace.

What one change of one object shows: an object that cannot be read is logged once, counts as absent, and can be named.

For the kinds that decisions are made by; told on by `storage` and `devices`.
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


def surroundings(cluster: Cluster, move: Move) -> Mapping[str, Callable[[Delta[Any]], None]]:
    """Kind → what to do with one change of it. `move` wakes the pods that an event can help."""
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
        _selects_otherwise(move, Resource.SERVICE, delta.old, new)


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
        _selects_otherwise(move, Resource.CONTROLLER, delta.old, new)


def _selects_otherwise(move: Move, resource: Resource, old: object, new: object) -> None:
    """Other pods belong together now. An object that could not be read counts as absent."""
    known = None if isinstance(old, Broken) else old
    action = Action.UPDATE_OTHER
    if known is None or new is None:
        action = Action.ADD if known is None else Action.DELETE
    move(ClusterEvent(resource, action), known, new)


def _readable(delta: Delta[Any]) -> object:
    """The new object; None if there is none to use, which is logged when that is news."""
    new = delta.new
    if isinstance(new, Broken):
        if not (isinstance(delta.old, Broken) and delta.old.why == new.why):
            _log.error("object could not be read and is left out", kind=new.kind, object=new.key, error=new.why)
        return None
    return new


class ObjectChange(NamedTuple):
    """`old` and `new` are None where there is no object, or none that can be read."""

    key: str
    old: Any
    new: Any


def action_of(old: object, new: object) -> Action | None:
    """What happened, to those who know of nothing that cannot be read; None if nothing did."""
    if old is None:
        return None if new is None else Action.ADD
    return Action.DELETE if new is None else Action.UPDATE_OTHER


def seen(delta: Delta[Any], broken: dict[tuple[str, str], Broken]) -> ObjectChange:
    """Keeps `broken`, by kind and key, up to date."""
    shown = delta.new if delta.new is not None else delta.old
    assert shown is not None
    for side in (delta.old, delta.new):
        if isinstance(side, Broken):
            broken.pop((side.kind, side.key), None)
    if isinstance(delta.new, Broken):
        broken[delta.new.kind, delta.new.key] = delta.new
        if not (isinstance(delta.old, Broken) and delta.old.why == delta.new.why):
            _log.error(
                "object could not be read and is left out",
                kind=delta.new.kind,
                object=delta.new.key,
                error=delta.new.why,
            )
    old, new = (None if isinstance(side, Broken) else side for side in (delta.old, delta.new))
    return ObjectChange(shown.key, old, new)
