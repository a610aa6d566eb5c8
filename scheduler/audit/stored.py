"""Check the objects of the cache against the stores of the informers.

The stores have the objects as the watches showed them. A missing, outdated or superfluous object of the cache is corrected
through the event handlers, as if the watch showed the change now. So waiting pods are woken as after any change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from scheduler.api.apps_and_policy import ReplicaSet, ReplicationController, StatefulSet
from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken, Delta
from scheduler.api.meta import Metadata
from scheduler.api.pod_group import KINDS, GroupKey
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.api.selectors import LabelSelector
from scheduler.api.storage_v1 import claim_uses
from scheduler.audit.findings import Check, Comparison, Difference, Steps, grouped, in_parts
from scheduler.cache.cluster import Cluster
from scheduler.cache.pod_groups import joined
from scheduler.context import Shared, UnboundPods
from scheduler.eventhandlers.event_handlers import EventHandlers

_MANY: Final = 50


class ObjectStore(Protocol):
    """The store of one informer: the objects as the watch showed them."""

    def __iter__(self) -> Iterator[Any]: ...
    def get(self, key: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Kind:
    """How the cache holds the objects of one kind. `view` is the part of an object that the cache keeps."""

    get: Callable[[str], Any]
    keys: Callable[[], Iterable[str]]
    view: Callable[[Any], Any] = lambda obj: obj


class StoredObjectChecks:
    """The checks of the cached objects of one scheduler. `stores` returns the synced stores by kind."""

    def __init__(
        self, shared: Shared, event_handlers: EventHandlers, stores: Callable[[], Mapping[str, ObjectStore]]
    ) -> None:
        self._cluster: Cluster = shared.cluster
        self._pending: UnboundPods = shared.pending
        self._queue = shared.queue
        self._event_handlers = event_handlers
        self._stores = stores
        self._kinds = _kinds(shared.cluster)

    def checks(self) -> dict[str, Check]:
        return {
            "stored-objects": self._objects,
            "stored-pods": self._pods,
            "claims-of-unbound-pods": self._claims_of_unbound_pods,
            "pods-of-groups": self._pods_of_groups,
        }

    # -- all kinds but pods ------------------------------------------------------------------------------------------

    def _objects(self) -> Steps:
        for kind, held in self._kinds.items():
            if kind not in self._stores():
                continue
            for some in in_parts(self._stores()[kind], _MANY):
                yield self._objects_of(kind, [obj.key for obj in some])
            for keys in in_parts(held.keys(), _MANY):
                yield self._objects_of(kind, keys)

    def _objects_of(self, kind: str, keys: Iterable[str]) -> Comparison:
        found, store = Comparison(""), self._stores().get(kind)
        for key in keys if store is not None else ():
            self._object(found, kind, key, store)
        return found

    def _object(self, found: Comparison, kind: str, key: str, store: Any) -> None:
        held, stored = self._kinds[kind], store.get(key)
        if (kind, key) in self._event_handlers.missed:
            return
        cached, expected = held.get(key), None
        if stored is not None and not isinstance(stored, Broken):
            expected = held.view(stored)
        if cached is expected or cached == expected or self._is_newer(cached, stored):
            return
        found.append(Difference(f"{kind} {key}", "object", cached, expected))
        self._event_handlers.apply(kind, [Delta(cached if hasattr(cached, "metadata") else _gone(kind, key), stored)])

    def _is_newer(self, cached: object, stored: object) -> bool:
        """Return whether a claim's own write is newer than the watch, which the claim tracker then ignores."""
        if not isinstance(stored, ResourceClaim):
            return False
        latest = self._cluster.devices.claims.get(stored.key)
        return latest is not None and latest.uid == stored.uid and latest.version > stored.version

    # -- pods --------------------------------------------------------------------------------------------------------

    def _pods(self) -> Steps:
        if "Pod" not in self._stores():
            return
        for some in in_parts(self._stores()["Pod"], _MANY):
            found = Comparison("")
            for obj in some:
                newest = self._stores()["Pod"].get(obj.key)
                if newest is not None:
                    self._pod(found, newest)
            yield found
        for infos_by_place in (tuple(self._cluster.pods()), self._pending):
            for infos in in_parts(infos_by_place, _MANY):
                found = Comparison("")
                for info in infos:
                    self._compare_cached(found, info.uid, info.key)
                yield found

    def _pod(self, found: Comparison, stored: Any) -> None:
        """Compare a stored pod with the cache of bound pods, or with the unbound pods of this scheduler."""
        if not isinstance(stored, Pod) or stored.is_terminal or ("Pod", stored.key) in self._event_handlers.missed:
            return
        if stored.spec.node_name:
            info = self._cluster.get(stored.metadata.uid)
        elif self._queue.owns(stored):
            info = self._pending.get(stored.key)
        else:
            return
        if info is None or info.pod is not stored:
            cached = info.pod if info is not None else None
            found.append(Difference(f"pod {stored.key}", "object", cached, stored))
            self._event_handlers.apply("Pod", [Delta(cached, stored)])

    def _compare_cached(self, found: Comparison, uid: str, key: str) -> None:
        """Compare a pod of the cache with the store."""
        info, waiting = self._cluster.get(uid), self._pending.get(key)
        stored, found.about = self._stores()["Pod"].get(key), f"pod {key}"
        if ("Pod", key) in self._event_handlers.missed:
            return
        is_there = isinstance(stored, Pod) and stored.metadata.uid == uid and not stored.is_terminal
        is_bound = is_there and bool(stored.spec.node_name)
        if (
            info is not None
            and not self._cluster.is_assumed(uid)
            and found.differs("bound", info.node_name, info.node_name if is_bound else "")
        ):
            self._event_handlers.apply("Pod", [Delta(info.pod, None)])
        if waiting is None or waiting.uid != uid:
            return
        if found.differs("waits for a node", True, is_there and not is_bound):
            self._event_handlers.apply("Pod", [Delta(waiting.pod, None)])

    def _claims_of_unbound_pods(self) -> Steps:
        """Compare the pods without a node that use each claim, of all schedulers, with the store."""
        store = self._stores().get("Pod")
        if store is None:
            return
        reservations = self._cluster.volumes.reservations

        def healed(pod_key: str) -> None:
            for key in self._uses(pod_key):
                reservations.claim_used(key)

        pods, users = (
            [obj.key for obj in store if isinstance(obj, Pod) and not obj.spec.node_name],
            reservations.users.by_claim,
        )
        yield from grouped("pod", pods, self._uses, users, healed=healed)

    def _pods_of_groups(self) -> Steps:
        """Compare the pods of each group, and those of them that have a node, with the store."""
        if (store := self._stores().get("Pod")) is None:
            return
        groups = self._cluster.pod_groups
        pods = [obj.key for obj in store if isinstance(obj, Pod) and joined(obj) is not None]
        yield from grouped("pod", pods, self._group, groups.by_group, value=self._stored_pod)
        yield from grouped("pod", pods, lambda key: self._group(key, runs=True), groups.running)

    def _stored_pod(self, key: str) -> Any:
        return self._stores()["Pod"].get(key)

    def _group(self, pod_key: str, *, runs: bool = False) -> Collection[GroupKey]:
        """Return the group of a stored pod, if it counts there."""
        pod = self._stores()["Pod"].get(pod_key)
        if not isinstance(pod, Pod) or ("Pod", pod_key) in self._event_handlers.missed:
            return ()
        group = joined(pod)
        counts = bool(pod.spec.node_name) or (not runs and self._queue.owns(pod))
        return (group,) if group is not None and counts else ()

    def _uses(self, pod_key: str) -> set[str]:
        """Return the claims of a stored pod without a node."""
        pod = self._stores()["Pod"].get(pod_key)
        if not isinstance(pod, Pod) or pod.is_terminal or pod.spec.node_name or not pod.spec.volumes:
            return set()
        return {use.key for use in claim_uses(pod)} if ("Pod", pod_key) not in self._event_handlers.missed else set()


def _kinds(cluster: Cluster) -> dict[str, _Kind]:
    nodes, volumes, devices = cluster.nodes, cluster.volumes, cluster.devices
    workloads, disruptions, namespaces = cluster.workloads, cluster.disruptions, cluster.namespaces
    capacities, device_claims = volumes.capacities, devices.claims

    def node(key: str) -> Any:
        slot = nodes.slot(key)
        return nodes.node(slot) if slot is not None else None

    def controllers(kind: Any) -> _Kind:
        return _Kind(
            lambda key: (workloads.controllers[kind, key],) if (kind, key) in workloads.controllers else None,
            lambda: [key for each, key in workloads.controllers if each is kind],
            _selector,
        )

    def groups(kind: str) -> _Kind:
        objects = cluster.pod_groups.objects
        return _Kind(
            lambda key: objects.get(GroupKey(kind, key)), lambda: [group.key for group in objects if group.kind == kind]
        )

    kinds = {
        "Node": _Kind(node, nodes.known_names),
        "PersistentVolumeClaim": _Kind(volumes.claims.get_api, volumes.claims.keys),
        "PersistentVolume": _Kind(volumes.volumes.get_api, volumes.volumes.keys),
        "StorageClass": _Kind(
            lambda key: volumes.classes[key].obj if key in volumes.classes else None, lambda: volumes.classes
        ),
        "CSINode": _Kind(volumes.csi_nodes.get, volumes.csi_nodes.keys),
        "CSIDriver": _Kind(volumes.drivers.get, volumes.drivers.keys),
        "VolumeAttachment": _Kind(volumes.attachments.get, volumes.attachments.keys),
        "CSIStorageCapacity": _Kind(
            lambda key: pool.obj if (pool := capacities.pool(key)) is not None else None, lambda: capacities.objects
        ),
        "ResourceClaim": _Kind(device_claims.get_api, device_claims.watched.keys),
        "ResourceSlice": _Kind(devices.published.get, devices.published.keys),
        "DeviceClass": _Kind(devices.classes.get, devices.classes.by_name.keys),
        "Namespace": _Kind(namespaces.by_name.get, namespaces.by_name.keys, lambda obj: obj.metadata.labels),
        "Service": _Kind(workloads.services.get, workloads.services.keys, lambda service: service.spec.selector),
        **{kind: groups(kind) for kind in KINDS},
        "PodDisruptionBudget": _Kind(
            lambda key: _protecting(disruptions.budgets.get(key)), disruptions.budgets.keys, _protecting
        ),
        **{kind.__name__: controllers(kind) for kind in (ReplicationController, ReplicaSet, StatefulSet)},
    }
    if devices.applies_rules:
        kinds["DeviceTaintRule"] = _Kind(devices.rules.rules.get, devices.rules.rules.keys)
    return kinds


def _selector(controller: Any) -> Any:
    """Return the selector in a tuple, because it may be None."""
    selector = controller.spec.selector
    return (LabelSelector(selector) if isinstance(selector, dict) else selector,)


def _protecting(budget: Any) -> Any:
    """Return spec and status of a budget, which are compared when it changes; None if it protects no pods."""
    if budget is None or budget.spec.selector is None:
        return None
    return budget.spec, budget.status


def _gone(kind: str, key: str) -> Broken:
    """Return an object of this name, for a change that begins with an object of which only a part is known."""
    namespace, _, name = key.rpartition("/")
    return Broken(kind, Metadata(name=name, namespace=namespace), "it is gone")
