"""Apply deltas of claims, volumes, classes, drivers and capacity to the cache, then notify subscribers, then wake pods.

The caches show a change before any subscriber is notified (docs/spec/volumes.md §1.2, §7).
An object that could not be read is logged once and counts as absent; messages of plugins can name it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from scheduler.api.decode import Delta
from scheduler.cache.cluster import Cluster
from scheduler.cache.storage.volumes import CLAIM, VOLUME
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.eventhandlers.deltas import Move, ObjectChange, action_of, seen

CAPACITY_FREED: Final = ClusterEvent(Resource.CSI_STORAGE_CAPACITY, Action.UPDATE_OTHER, "StorageCapacityFreed")
"""Our own event: reserved capacity of a class was released; `new` is the name of the class."""
VOLUME_GIVEN_BACK: Final = ClusterEvent(Resource.PERSISTENT_VOLUME, Action.UPDATE_OTHER, "VolumeGivenBack")
CLAIM_GIVEN_BACK: Final = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE_OTHER, "ClaimGivenBack")
"""Our own events: an assumed change will never be written. The pod that assumed it may have left before."""


class StorageHandlers:
    """Handle the kinds that volume decisions read. `move` wakes the pods that an event can help."""

    def __init__(self, cluster: Cluster, move: Move) -> None:
        self._volumes = cluster.volumes
        self._move = move

    def handlers(self) -> Mapping[str, Callable[[Delta[Any]], None]]:
        volumes = self._volumes
        updates: dict[str, tuple[Resource, Callable[[str, Any], None]]] = {
            CLAIM: (Resource.PERSISTENT_VOLUME_CLAIM, volumes.set_claim),
            "StorageClass": (Resource.STORAGE_CLASS, volumes.set_class),
            "CSINode": (Resource.CSI_NODE, volumes.set_csi_node),
            "CSIDriver": (Resource.CSI_DRIVER, partial(_put, volumes.drivers)),
            "CSIStorageCapacity": (Resource.CSI_STORAGE_CAPACITY, volumes.set_capacity),
            "VolumeAttachment": (Resource.VOLUME_ATTACHMENT, partial(_put, volumes.attachments)),
        }
        handlers = {kind: partial(self._changed, kind, *each) for kind, each in updates.items()}
        return {**handlers, VOLUME: self._volume}

    def tick(self) -> None:
        """Drop old reservations, once per turn of the loop, and wake the pods that wait for what was released."""
        given_back, self._volumes.given_back = self._volumes.given_back, {}
        for kind, key in given_back:
            self._publish_given_back(kind, key)
        reservations = self._volumes.reservations
        reservations.catch_up()
        while reservations.freed:
            self._move(CAPACITY_FREED, None, reservations.freed.pop())

    def capacity_served(self, is_served: bool) -> None:
        """Set whether the API server serves capacity objects; without them no pod waits for capacity (volumes.md §8 D5)."""
        self._volumes.capacities.is_served = is_served
        if not is_served:
            for storage_class in self._volumes.classes:
                self._move(CAPACITY_FREED, None, storage_class)

    def _changed(self, kind: str, resource: Resource, update: Callable[[str, Any], None], delta: Delta[Any]) -> None:
        change = seen(delta, self._volumes.broken)
        update(change.key, change.new)
        self._publish(resource, kind, change)

    def _volume(self, delta: Delta[Any]) -> None:
        key, _, new = change = seen(delta, self._volumes.broken)
        if new is None:
            self._volumes.volumes.remove(key)
        else:
            self._volumes.set_volume(new)
        refs = (volume.spec.claim_ref for volume in (change.old, new) if volume is not None)
        for claim_key in dict.fromkeys(ref.key for ref in refs if ref is not None):
            # The claim may tie a pod to the volume's nodes, and a binding may have seen the claim bound before this volume.
            self._volumes.notify(CLAIM, claim_key)
        self._publish(Resource.PERSISTENT_VOLUME, VOLUME, change)

    def _publish_given_back(self, kind: str, key: str) -> None:
        is_volume = kind == VOLUME
        now = self._volumes.volumes.get_api(key) if is_volume else self._volumes.claims.get_api(key)
        if now is not None:
            self._move(VOLUME_GIVEN_BACK if is_volume else CLAIM_GIVEN_BACK, now, now)

    def _publish(self, resource: Resource, kind: str, change: ObjectChange) -> None:
        """Notify subscribers, then wake pods, because a pod that is woken may need what a binding has written."""
        action = action_of(change.old, change.new)
        if action is None:
            return
        self._volumes.attached.changed(kind, change.key)
        self._volumes.notify(kind, change.key)
        self._move(ClusterEvent(resource, action), change.old, change.new)


def _put(objects: dict[str, Any], key: str, new: Any) -> None:
    if new is None:
        objects.pop(key, None)
    else:
        objects[key] = new
