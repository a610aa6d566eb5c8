"""Events that can help a pod that VolumeBinding rejected, by what its claims wait for (docs/spec/volumes.md §7.1).

Upstream retries pods for every volume, class, CSINode and capacity object. Here an event concerns only pods whose
claims depend on the object.
Further events retry pods that wait for a driver to stop tracking capacity (B-10), for reserved capacity, and for a
volume that another pod has released.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final

from scheduler.api.csi_translation import kind_of
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from scheduler.cache.storage.persistent_volumes import is_free
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.framework.handle import Handle
from scheduler.framework.interface import EventHint, Topics
from scheduler.framework.memo import on_common_topic

_IN_TREE: Final = "volumes of in-tree plugins"


class VolumeBindingHints:
    """Topics of waiting pods and of events; a hint compares them.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/volume_binding.go EventsToRegister
    """

    def __init__(self, handle: Handle) -> None:
        self._volumes = handle.cluster.volumes

    def events(self) -> Sequence[EventHint]:
        changed = Action.ADD | UPDATE
        return (
            self._registered(Resource.STORAGE_CLASS, changed, _class_changed),
            self._registered(Resource.PERSISTENT_VOLUME_CLAIM, changed, _claim_changed),
            self._registered(Resource.PERSISTENT_VOLUME, changed | Action.DELETE, _volume_changed),
            EventHint(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)),
            self._registered(Resource.CSI_NODE, changed, _csi_node_changed),
            self._registered(Resource.CSI_DRIVER, UPDATE | Action.DELETE, _driver_changed),
            self._registered(Resource.CSI_STORAGE_CAPACITY, changed, _capacity_changed),
            self._registered(Resource.ASSIGNED_POD, Action.DELETE, self._pod_gone),
        )

    def _registered(
        self, resource: Resource, action: Action, of_event: Callable[[Any, Any], Iterator[Hashable]]
    ) -> EventHint:
        return on_common_topic(ClusterEvent(resource, action), _shape, Topics(self._topics, of_event))

    def _topics(self, pod: PodInfo) -> Iterator[Hashable]:
        for use in pod.claims:
            yield "claim", use.key
            claim = self._volumes.claims.get_api(use.key)
            if claim is not None:
                yield from self._of_claim(claim)
        for volume in pod.pod.spec.volumes:
            if volume.csi is not None:
                yield "driver", volume.csi.driver

    def _of_claim(self, claim: PersistentVolumeClaim) -> Iterator[Hashable]:
        name = claim.spec.volume_name
        if name:
            yield "volume", name
            volume = self._volumes.volumes.get_api(name)
            if volume is None or kind_of(volume.spec) is not None:
                yield _IN_TREE
        storage_class = claim.storage_class
        yield "class", storage_class
        if not claim.is_fully_bound:
            yield "capacity", storage_class
            stored_class = self._volumes.classes.get(storage_class)
            if stored_class is not None:
                yield "driver", stored_class.obj.provisioner

    def _pod_gone(self, old: PodInfo | None, _new: PodInfo | None) -> Iterator[Hashable]:
        """Yield the topics of a deleted pod's claims: it may release volumes and capacity."""
        for use in old.claims if old is not None else ():
            yield "claim", use.key
            claim = self._volumes.claims.get_api(use.key)
            if claim is not None and not claim.is_fully_bound:
                yield "class", claim.storage_class
                yield "capacity", claim.storage_class


def _shape(pod: PodInfo) -> Hashable:
    return pod.claims, tuple(volume.csi.driver for volume in pod.pod.spec.volumes if volume.csi is not None)


def _claim_changed(old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> Iterator[Hashable]:
    claim = new or old
    if claim is not None:
        yield "claim", claim.key


def _volume_changed(old: PersistentVolume | None, new: PersistentVolume | None) -> Iterator[Hashable]:
    """Yield the topics of a volume, and of the claims it was or is pre-bound to, which may now have other volumes."""
    for volume in (old, new):
        if volume is not None and volume.spec.claim_ref is not None:
            yield "claim", volume.spec.claim_ref.key
    if new is not None:
        yield "volume", new.key
        if is_free(new):
            yield "class", new.storage_class


def _class_changed(old: StorageClass | None, new: StorageClass | None) -> Iterator[Hashable]:
    """Yield the class if its topologies changed; no other field that matters can change."""
    if new is not None and (old is None or old.allowed_topologies != new.allowed_topologies):
        yield "class", new.key


def _csi_node_changed(old: CSINode | None, new: CSINode | None) -> Iterator[Hashable]:
    if new is not None and (old is None or old.migrated_plugins != new.migrated_plugins):
        yield _IN_TREE


def _driver_changed(old: CSIDriver | None, new: CSIDriver | None) -> Iterator[Hashable]:
    if old is not None and old.tracks_capacity and (new is None or not new.tracks_capacity):
        yield "driver", old.key


def _capacity_changed(old: CSIStorageCapacity | None, new: CSIStorageCapacity | str | None) -> Iterator[Hashable]:
    """Yield the class of a capacity object; a bare class name means that reserved capacity was released."""
    if isinstance(new, str):
        yield "capacity", new
    elif new is not None and (old is None or _offers_more(old, new)):
        yield "capacity", new.storage_class_name


def _offers_more(old: CSIStorageCapacity, new: CSIStorageCapacity) -> bool:
    """Return whether larger or more volumes fit. An object with only a maximum size has no limit in total."""
    is_endless = new.limit is not None and old.capacity is not None and new.capacity is None
    return is_endless or _is_more(old.limit, new.limit) or _is_more(old.capacity, new.capacity)


def _is_more(old: Any, new: Any) -> bool:
    return new is not None and (old is None or new.nano > old.nano)
