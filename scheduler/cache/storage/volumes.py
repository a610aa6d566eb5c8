"""All volume data for decisions: claims, volumes, classes, drivers, capacity, and subscriptions to their changes.

The data is changed by `scheduler.eventhandlers.storage` from the watches, and by VolumeBinding, which assumes what it
is about to write. Rules: docs/spec/volumes.md §1.

The texts for missing objects are those of upstream's listers: singular, and without namespace (docs/spec/volumes.md
§0.3). For an object that could not be decoded, the text has the error.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, NamedTuple

from scheduler.api.decode import Broken
from scheduler.api.storage_v1 import (
    NO_PROVISIONER,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from scheduler.cache.assume_cache import AssumeCache
from scheduler.cache.nodes.node_groups import NodeGroup, NodeGroups, where_topologies
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.attach_limits import AttachedVolumes
from scheduler.cache.storage.capacity import Capacities
from scheduler.cache.storage.capacity_pools import SharedPools
from scheduler.cache.storage.capacity_reservations import CapacityReservations
from scheduler.cache.storage.persistent_volumes import PersistentVolumes
from scheduler.core.changes import Watchers
from scheduler.core.clock import Clock
from scheduler.core.nodeset import EMPTY, NodeSet

CLAIM = "PersistentVolumeClaim"
VOLUME = "PersistentVolume"
CLASS = "StorageClass"


_NAMES_IN_TEXTS: Final = {
    CLAIM: "persistentvolumeclaim",
    VOLUME: "persistentvolume",
    CLASS: "storageclass.storage.k8s.io",
}


class KnownClass(NamedTuple):
    """A storage class and the nodes that its allowedTopologies allow."""

    obj: StorageClass
    allowed: NodeGroup

    @property
    def is_static(self) -> bool:
        """Whether no driver creates volumes of the class."""
        return self.obj.provisioner in {"", NO_PROVISIONER}


class AssumedClaims(AssumeCache[PersistentVolumeClaim]):
    """All claims, with our own selected nodes.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/assume_cache.go PVCAssumeCache
    """

    def __init__(self, changed: Callable[[PersistentVolumeClaim | None, PersistentVolumeClaim | None], None]) -> None:
        """Call `changed` at each change, with the claim before and after it."""
        super().__init__("persistentvolumeclaims")
        self._follow = changed
        self.unselected: dict[str, dict[str, None]] = {}
        """Namespace → keys of its claims without a volume and without a selected node."""

    def _changed(self, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim | None) -> None:
        # The controller that selects nodes for pods with a node looks for these claims only. An assumed node counts: the
        # claim leaves the index before its annotation is written.
        self._follow(before, now)
        if now is not None and not now.spec.volume_name and now.selected_node is None:
            self.unselected.setdefault(now.metadata.namespace, {})[now.key] = None
        elif before is not None and (keys := self.unselected.get(before.metadata.namespace)) is not None:
            keys.pop(before.key, None)
            if not keys:
                del self.unselected[before.metadata.namespace]


class Volumes:
    """The volume data of one cluster."""

    def __init__(self, nodes: Nodes, clock: Clock) -> None:
        self._nodes = nodes
        self.groups = NodeGroups(nodes)
        self.claims = AssumedClaims(self._claim_changed)
        self.volumes = PersistentVolumes(nodes, self.groups)
        self.capacities = Capacities(nodes, self.groups, SharedPools(self._provisioner_of))
        self.reservations = CapacityReservations(
            nodes, self.capacities, claims=self.claims, volumes=self.volumes, clock=clock
        )
        self.classes: dict[str, KnownClass] = {}
        self.csi_nodes: dict[str, CSINode] = {}
        self.drivers: dict[str, CSIDriver] = {}
        self.attachments: dict[str, VolumeAttachment] = {}
        self.broken: dict[tuple[str, str], Broken] = {}
        """Kind and key → objects that could not be decoded. They count as absent, but can be named."""
        self.holders: dict[tuple[str, str, str], dict[str, None]] = {}
        """Kind, key and version of an assumed object → the pods, of any profile, that rely on it."""
        self.under_way: dict[str, dict[str, None]] = {}
        """Claim → the pods whose plans use it, from Reserve on."""
        self.binding: dict[str, dict[str, None]] = {}
        """Claim → the pods that are executing their plans for it, in the order of their start. The first one writes."""
        self.given_back: dict[tuple[str, str], None] = {}
        """Kind and key of assumptions that were dropped, until the waiting pods are woken."""
        self.attached = AttachedVolumes(
            nodes,
            claims=self.claims,
            volumes=self.volumes,
            provisioner_of=self._provisioner_of,
            csi_nodes=self.csi_nodes,
            attachments=self.attachments,
        )
        self._migrated: dict[str, NodeSet] = {}
        self._migrated_seen: tuple[int, int] = (-1, -1)
        self._csi_generation = 0
        self._watchers = Watchers()
        self.on_news: Callable[[str, str], None] = lambda _kind, _key: None
        """Called at each change with kind and key, before the subscribers."""

    def absent(self, kind: str, key: str) -> str:
        """Return the text for an unknown claim, volume or class."""
        # An unreadable object is named with its error. The user of a pod that waits for it could not find that error
        # anywhere else.
        named = f'{_NAMES_IN_TEXTS[kind]} "{key.rpartition("/")[2]}"'
        broken = self.broken.get((kind, key))
        return f"{named} not found" if broken is None else f"{named} cannot be read: {broken.why}"

    def bytes_in_flight(self) -> dict[str, int]:
        """Return the bytes in flight by class, also for classes without any, for the gauge."""
        # A gauge that appears with its first value has no rate for it, so classes without volumes in flight are
        # listed with 0.
        made = (name for name, known_class in self.classes.items() if not known_class.is_static)
        return dict.fromkeys(made, 0) | self.reservations.bytes_in_flight()

    # -- changing ------------------------------------------------------------------------------------------------------

    def set_volume(self, volume: PersistentVolume) -> None:
        """Store a volume of the watch."""
        # `is_new` must be read before the volume is stored. Only a volume that was not seen before can begin to
        # settle after a restart.
        is_new = self.volumes.get_api(volume.key) is None
        self.volumes.set(volume)
        if volume.spec.claim_ref is not None:
            self.reservations.volume_came(volume, volume.spec.claim_ref, is_new=is_new)

    def set_claim(self, key: str, claim: PersistentVolumeClaim | None) -> None:
        """Add, update or remove a claim of the watch."""
        # The cache decides whether this is a change: the watch may repeat a claim, and an assumption may hide the
        # stored object.
        if claim is None:
            self.claims.remove(key)
        else:
            self.claims.set(claim)

    def set_class(self, name: str, storage_class: StorageClass | None) -> None:
        """Add, update or remove a class."""
        old = self.classes.get(name)
        # The new group is acquired before the old one is released. Equal topologies are one group, which would
        # otherwise be dropped and computed again.
        if storage_class is not None:
            group = self.groups.acquire(where_topologies(storage_class.allowed_topologies))
            self.classes[name] = KnownClass(storage_class, group)
        elif old is not None:
            del self.classes[name]
        if old is not None:
            self.groups.release(old.allowed)

    def set_capacity(self, key: str, capacity: CSIStorageCapacity | None) -> None:
        """Add, update or remove a capacity object."""
        # The reservations need both states: the fall of the capacity shows which volumes the new object includes.
        old = self.capacities.pool(key)
        new = self.capacities.put(capacity) if capacity is not None else None
        if new is None:
            self.capacities.remove(key)
        if old is not None or new is not None:
            self.reservations.pool_changed(old, new)

    def set_csi_node(self, name: str, csi_node: CSINode | None) -> None:
        """Add, update or remove a node's CSINode."""
        if csi_node is None:
            self.csi_nodes.pop(name, None)
        else:
            self.csi_nodes[name] = csi_node
        self._csi_generation += 1

    def migrated(self, plugin: str) -> NodeSet:
        """Return the nodes on which this in-tree plugin is migrated to CSI.

        O(nodes) after a change of nodes or CSINodes.
        """
        seen = (self._csi_generation, self._nodes.relabelled.position)
        # The answer changes with CSINodes and with nodes, whose slots may get other names. Every attempt with an in-
        # tree volume needs it, so it is kept until one of the two changes.
        if seen != self._migrated_seen:
            self._migrated, self._migrated_seen = {}, seen
            for name, csi_node in self.csi_nodes.items():
                slot = self._nodes.present_slot(name)
                for migrated in csi_node.migrated_plugins if slot is not None else ():
                    self._migrated[migrated] = self._migrated.get(migrated, EMPTY) | 1 << (slot or 0)
        return self._migrated.get(plugin, EMPTY)

    def _claim_changed(self, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim | None) -> None:
        self.reservations.claim_changed(before, now)

    def _provisioner_of(self, storage_class: str) -> str:
        known_class = self.classes.get(storage_class)
        return known_class.obj.provisioner if known_class is not None else ""

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[Hashable], callback: Callable[[], None]) -> Callable[[], None]:
        """Call back at each change of one of these `(kind, key)`; return the function that ends the subscription."""
        # A binding waits for its own claims, nodes and volumes only. With thousands of bindings, a call for each
        # change of any object would be too slow.
        return self._watchers.subscribe(topics, callback)

    def notify(self, kind: str, key: str) -> None:
        """Call the subscribers of an object. The caches are already up to date."""
        # Derived nominations only mark pods here. They must be marked before a subscriber can start an attempt.
        self.on_news(kind, key)
        self._watchers.notify((kind, key))
