"""The volumes that are attached to each node, and the limits of each driver (docs/spec/volumes.md §9.1).

A volume is attached to a node if a pod on it uses the volume, or a VolumeAttachment says so. It counts once per node,
for any number of users. Attach limits identify a volume by its driver and handle. Changes of pods come from the logs
of `Nodes`, trials included; changes of all other objects come from `scheduler.eventhandlers.storage`. The cost of
reading is proportional to the changes, not to the claims and volumes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler.api.csi_translation import (
    MIGRATABLE,
    TRANSLATABLE,
    TranslationError,
    driver_of,
    kind_of,
    translate_volume,
)
from scheduler.api.storage_v1 import CSINode, CSISource, PersistentVolume, PersistentVolumeClaim, VolumeAttachment
from scheduler.cache.assume_cache import AssumeCache
from scheduler.cache.nodes.indexes import NodeMultiset
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet


class NamedVolume(NamedTuple):
    """A volume for attach limits. `name` is None for a volume that is not counted. Equal names are one volume."""

    name: CSISource | None
    is_in_tree: bool = False
    """Whether it is an in-tree volume. It is counted only on nodes with a CSINode; there is no limit elsewhere."""
    storage_class: str = ""
    """The class that determined the name because there is no volume; "" with a volume."""


_NOT_COUNTED: Final = NamedVolume(None)


def _by_volume(volume: PersistentVolume) -> NamedVolume:
    csi, is_in_tree = volume.spec.csi, False
    if csi is None:
        kind = kind_of(volume.spec)
        if kind is None or kind.plugin not in MIGRATABLE:
            return _NOT_COUNTED
        try:
            csi, is_in_tree = translate_volume(volume).spec.csi, True
        except TranslationError:
            return _NOT_COUNTED
    return NamedVolume(csi, is_in_tree) if csi is not None and csi.driver and csi.volume_handle else _NOT_COUNTED


NO_LIMIT: Final = 2**62

Column = npt.NDArray[np.int64]


class _Driver:
    """The columns of one driver. `used` also counts volumes where there is no limit."""

    def __init__(self, capacity: int) -> None:
        self.used: Column = np.zeros(capacity, dtype=np.int64)
        self.limits: Column = np.full(capacity, NO_LIMIT, dtype=np.int64)
        self.installed: NodeSet = EMPTY

    @property
    def is_idle(self) -> bool:
        """Whether the driver is on no node and no volume is attached."""
        return not self.installed and not self.used.any()

    def grow(self, capacity: int) -> None:
        more = capacity - len(self.used)
        self.used = np.concatenate((self.used, np.zeros(more, dtype=np.int64)))
        self.limits = np.concatenate((self.limits, np.full(more, NO_LIMIT, dtype=np.int64)))


@dataclass(slots=True, eq=False)
class _Use:
    """A claim that pods on some nodes use, and its name."""

    named: NamedVolume
    volume: str
    slots: set[int] = field(default_factory=set)


class AttachedVolumes:
    """The attached volumes of one cluster. Call `catch_up` before reading.

    The mappings are live views of the watched objects.

    Upstream: pkg/scheduler/framework/plugins/nodevolumelimits/csi.go getVolumeLimits, getNodeVolumeAttachmentInfo
    """

    def __init__(
        self,
        nodes: Nodes,
        *,
        claims: AssumeCache[PersistentVolumeClaim],
        volumes: AssumeCache[PersistentVolume],
        provisioner_of: Callable[[str], str],
        csi_nodes: Mapping[str, CSINode],
        attachments: Mapping[str, VolumeAttachment],
    ) -> None:
        """Get the provisioner of a storage class from `provisioner_of`, "" for an unknown class."""
        self._nodes = nodes
        self._claims = claims
        self._volumes = volumes
        self._watched_csi_nodes = csi_nodes
        self._watched_attachments = attachments
        self._provisioner_of = provisioner_of
        self._prefix = secrets.token_hex(16)
        """A claim without a volume gets a name that is used nowhere else."""
        self._capacity = nodes.capacity
        self._drivers: dict[str, _Driver] = {}
        self.by_pods: NodeMultiset[CSISource] = NodeMultiset()
        """Volume → the nodes with pods that use it, and by how many claims and inline volumes."""
        self.by_attachments: NodeMultiset[CSISource] = NodeMultiset()
        """Volume → the nodes to which a VolumeAttachment attaches it."""
        self._changed_slots: set[int] = set()
        """Slots that changed since the readers were notified."""
        self.version = 0
        """A number that grows with every reported change, also without an effect on a node."""
        self.with_csi_node: NodeSet = EMPTY
        self.claims_in_use: dict[str, _Use] = {}
        self._uses_of_volume: dict[str, set[str]] = {}
        self._uses_of_class: dict[str, set[str]] = {}
        self.disks: set[tuple[int, CSISource]] = set()
        self._csi_nodes: dict[int, CSINode] = {}
        self._attachments: dict[str, tuple[str, str]] = {}
        """Attachment → the names of its node and its volume."""
        self._attachments_of_volume: dict[str, set[str]] = {}
        self._attachments_of_node: dict[str, set[str]] = {}
        self._counted: dict[str, tuple[int, CSISource]] = {}
        """Attachment → the slot and the volume for which it counts. Attachments that do not count are left out."""
        self._shown: dict[int, str] = {}
        self._positions = self._now()

    # -- reading -------------------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Process the nodes and pods that changed. The cost is a few comparisons if there are none."""
        # Three logs may have news: nodes, claims in use, and inline disks. Three comparisons decide whether there is
        # anything to do, because this runs before each attempt.
        nodes, now = self._nodes, self._now()
        if now == self._positions and nodes.capacity == self._capacity:
            return
        relabelled, claims, disks = self._positions
        # The positions are stored before the updates. An update reads the current state and not the log entry, so
        # nothing is lost if it is called for a change that came later.
        self._positions = now
        self._fit()
        slots = nodes.relabelled.changed_since(relabelled)
        for slot in set(slots) if slots is not None else range(nodes.capacity):
            self._update_node(slot)
        uses = nodes.claim_users.changed_since(claims)
        for slot, key in set(uses) if uses is not None else self._all_uses():
            self._update_use(slot, key)
        changed = nodes.disk_users.changed_since(disks)
        for slot, disk in set(changed) if changed is not None else self.disks | nodes.disk_users.everywhere():
            self._update_disk(slot, disk)
        self._changed_slots.clear()  # the changes of nodes and pods are already recorded

    def name_in_use(self, claim_key: str) -> CSISource | None:
        """Return the name of a claim's volume, cached if a pod on a node uses it; None if it is not counted."""
        use = self.claims_in_use.get(claim_key)
        if use is not None:
            return use.named.name
        claim = self._claims.get_api(claim_key)
        return None if claim is None else self.name_of(claim).name

    def name_of(self, claim: PersistentVolumeClaim) -> NamedVolume:
        """Return the claim's name by its volume, or by its class if there is no volume."""
        wanted = claim.spec.volume_name
        volume = self._volumes.get_api(wanted) if wanted else None
        if volume is not None:
            return _by_volume(volume)
        # The claim has no volume yet, and its driver will make one. Until then it counts under an invented name. The
        # prefix is random, or a user could choose a volume handle that collides with it.
        wanted = claim.storage_class
        provisioner = self._provisioner_of(wanted) if wanted else ""
        is_in_tree = provisioner in TRANSLATABLE
        driver = driver_of(provisioner) if is_in_tree else provisioner
        if not driver or (is_in_tree and provisioner not in MIGRATABLE):
            return NamedVolume(None, storage_class=wanted)
        return NamedVolume(CSISource(driver, f"{self._prefix}-{claim.key}"), is_in_tree, wanted)

    def over(self, driver: str, more: int) -> NodeSet:
        """Return the nodes that cannot take that number of additional volumes of this driver."""
        columns = self._drivers.get(driver)
        return EMPTY if columns is None else nodeset.from_mask(columns.used + more > columns.limits)

    def installed(self, driver: str) -> NodeSet:
        """Return the nodes that have the driver registered."""
        columns = self._drivers.get(driver)
        return EMPTY if columns is None else columns.installed

    def free(self, driver: str, slot: int) -> int | None:
        """Return how many more volumes fit on a node, below 0 if there are too many; None without a limit."""
        columns = self._drivers.get(driver)
        if columns is None or (limit := columns.limits.item(slot)) == NO_LIMIT:
            return None
        return limit - columns.used.item(slot)

    def used(self, driver: str, slot: int) -> int:
        """Return the number of volumes that are attached to a node."""
        columns = self._drivers.get(driver)
        return 0 if columns is None else columns.used.item(slot)

    def drivers(self) -> tuple[str, ...]:
        """Return the drivers that are on a node or have an attached volume."""
        return tuple(self._drivers)

    def columns(self, driver: str) -> tuple[Column, Column]:
        """Return the volumes of a known driver that are attached to each node, and the limits (NO_LIMIT: none)."""
        columns = self._drivers.get(driver) or _Driver(self._capacity)
        return columns.used, columns.limits

    # -- the self-audit ------------------------------------------------------------------------------------------------

    @property
    def behind(self) -> int:
        """The number of changes of nodes or pods that `catch_up` must process."""
        return max(now - position for now, position in zip(self._now(), self._positions))

    def rebuild(self) -> None:
        """Compute everything again, whatever is wrong."""
        for index in (self.claims_in_use, self._uses_of_volume, self._uses_of_class, self._csi_nodes, self._drivers):
            index.clear()
        for counted in (self._attachments, self._attachments_of_volume, self._attachments_of_node, self._counted):
            counted.clear()
        self.by_pods.clear()
        self.by_attachments.clear()
        self.disks, self.with_csi_node = set(), EMPTY
        for key in self._watched_attachments:
            self._attachment_changed(key)
        # No log reaches back to these positions, so that `catch_up` counts all nodes, claims and disks again.
        self._positions = (-1, -1, -1)
        self.version += 1
        self.catch_up()
        # Memos of NodeVolumeLimits follow the log of nodes. Without these marks they keep verdicts of wrong counts.
        for slot in range(self._nodes.capacity):
            self._nodes.touch(slot)

    def attachments(self) -> dict[str, None]:
        """Return the keys of all VolumeAttachments of which anything is known."""
        # An index that lost its object is the fault that this comparison looks for, so the keys of all three count.
        return dict.fromkeys((*self._watched_attachments, *self._attachments, *self._counted))

    def attachment(self, key: str) -> dict[str, object]:
        """Return what is known of a VolumeAttachment, for comparisons."""
        node, volume = names = self._attachments.get(key, ("", ""))
        # An attachment without a volume is not indexed by volume, and that is right.
        is_indexed = key in self._attachments_of_node.get(node, ()) or not node
        is_indexed &= key in self._attachments_of_volume.get(volume, ()) or not volume
        return {"node and volume": names, "indexed": is_indexed, "counted at": self._counted.get(key)}

    def attachment_now(self, key: str) -> dict[str, object]:
        """Return `attachment` as it follows from the object."""
        attachment = self._watched_attachments.get(key)
        names = (
            (attachment.spec.node_name, attachment.spec.source.persistent_volume_name or "")
            if attachment is not None
            else ("", "")
        )
        return {"node and volume": names, "indexed": True, "counted at": self._place_of(key)}

    def attachments_at(self, slot: int) -> list[CSISource]:
        """Return the volumes of the VolumeAttachments that count for a node."""
        # The places are computed and not read: this is the other side of the comparison with `by_attachments`.
        places = (self._place_of(key) for key in self._attachments_of_node.get(self._nodes.name(slot), ()))
        return [place[1] for place in places if place is not None and place[0] == slot]

    def use(self, key: str) -> dict[str, object]:
        """Return the nodes where a claim counts, and its name, for comparisons."""
        use = self.claims_in_use.get(key)
        return {"nodes": sorted(use.slots), "volume": use.named} if use is not None else {}

    def limits(self, slot: int) -> dict[str, object]:
        """Return the limits and the installed drivers of a node, for comparisons."""
        drivers = self._drivers.items()
        limits = {f"limit of {name}": driver.limits.item(slot) for name, driver in drivers}
        installed = {f"{name} is installed": True for name, driver in drivers if driver.installed >> slot & 1}
        fields = {"CSINode": self._csi_nodes.get(slot), "has a CSINode": bool(self.with_csi_node >> slot & 1)}
        return fields | installed | {field: limit for field, limit in limits.items() if limit != NO_LIMIT}

    # -- changing: called after the caches are updated -----------------------------------------------------------------

    def changed(self, kind: str, key: str) -> None:
        """Process an object of this kind and name that was added, changed or removed. Other kinds are ignored."""
        self.catch_up()  # else a node that comes and goes unread would keep what was counted for it in between
        self.version += 1
        # Each kind can change what a name means or where it counts. The functions below update exactly the uses that
        # refer to the object, found by the indexes.
        match kind:
            case "PersistentVolumeClaim":
                self._claim_changed(key)
            case "PersistentVolume":
                self._volume_changed(key)
            case "StorageClass":
                for claim_key in tuple(self._uses_of_class.get(key, ())):
                    self._rename(claim_key)
            case "CSINode":
                slot = self._nodes.present_slot(key)
                if slot is not None:
                    self._update_csi_node(slot, self._watched_csi_nodes.get(key))
            case "VolumeAttachment":
                self._attachment_changed(key)
        # Verdicts of attach limits are cached per node by other modules. Touching the node invalidates them, although
        # neither the node nor its pods changed.
        for slot in self._changed_slots:
            self._nodes.touch(slot)
        self._changed_slots.clear()

    def _claim_changed(self, key: str) -> None:
        # The owner of the claim decides whether ephemeral users count, and its volume decides the name. So both may
        # change with the claim: uses first, because a new use takes the new name at once.
        use = self.claims_in_use.get(key)
        for slot in {*self._nodes.claim_users.users.slots(key), *(use.slots if use is not None else ())}:
            self._update_use(slot, key)
        self._rename(key)

    def _volume_changed(self, name: str) -> None:
        for claim_key in tuple(self._uses_of_volume.get(name, ())):
            self._rename(claim_key)
        for attachment in self._attachments_of_volume.get(name, ()):
            self._recount(attachment)

    def _attachment_changed(self, key: str) -> None:
        before = self._attachments.pop(key, None)
        if before is not None:
            _unindex(self._attachments_of_node, before[0], key)
            _unindex(self._attachments_of_volume, before[1], key)
        attachment = self._watched_attachments.get(key)
        if attachment is not None:
            spec = attachment.spec
            node, volume = self._attachments[key] = spec.node_name, spec.source.persistent_volume_name or ""
            _index(self._attachments_of_node, node, key)
            _index(self._attachments_of_volume, volume, key)
        self._recount(key)

    # -- pods on nodes -------------------------------------------------------------------------------------------------

    def _update_use(self, slot: int, key: str) -> None:
        """Update whether pods on the node use the claim and are allowed to."""
        claim = self._claims.get_api(key)
        use = self.claims_in_use.get(key)
        if claim is not None and self._nodes.claim_users.rightful(slot, claim) > 0:
            if use is None:
                use = self.claims_in_use[key] = _Use(self.name_of(claim), claim.spec.volume_name)
                self._index_use(key, use)
            if slot not in use.slots:
                use.slots.add(slot)
                self._count(use.named.name, slot, 1, self.by_pods)
        elif use is not None and slot in use.slots:
            use.slots.discard(slot)
            self._count(use.named.name, slot, -1, self.by_pods)
            if not use.slots:
                self._unindex_use(key, use)
                del self.claims_in_use[key]

    def _update_disk(self, slot: int, disk: CSISource) -> None:
        is_used = self._nodes.disk_users.users.count(slot, disk) > 0
        if is_used != ((slot, disk) in self.disks):
            self.disks ^= {(slot, disk)}
            self._count(disk, slot, 1 if is_used else -1, self.by_pods)

    def _all_uses(self) -> set[tuple[int, str]]:
        """Return all current and all earlier uses."""
        uses = {(slot, key) for key, use in self.claims_in_use.items() for slot in use.slots}
        return uses | self._nodes.claim_users.everywhere()

    def _rename(self, key: str) -> None:
        """Compute the name of a claim in use again, because its volume may have changed."""
        use, claim = self.claims_in_use.get(key), self._claims.get_api(key)
        if use is None or claim is None:
            return
        # A claim that is bound changes its name from the invented one to that of its volume. The count moves, and
        # does not change, unless a pod uses the same volume by another claim.
        before = use.named.name
        self._unindex_use(key, use)
        use.named, use.volume = self.name_of(claim), claim.spec.volume_name
        self._index_use(key, use)
        if use.named.name != before:
            for slot in use.slots:
                self._count(before, slot, -1, self.by_pods)
                self._count(use.named.name, slot, 1, self.by_pods)

    def _index_use(self, key: str, use: _Use) -> None:
        _index(self._uses_of_volume, use.volume, key)
        _index(self._uses_of_class, use.named.storage_class, key)

    def _unindex_use(self, key: str, use: _Use) -> None:
        _unindex(self._uses_of_volume, use.volume, key)
        _unindex(self._uses_of_class, use.named.storage_class, key)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _update_node(self, slot: int) -> None:
        """Update limits and attachments of a node that was added to this slot, removed from it, or changed."""
        # A slot is reused after its node is gone, so the attachments of the old and the new name are counted again.
        before = self._shown.pop(slot, "")
        name = self._nodes.name(slot) if self._nodes.present >> slot & 1 else ""
        if name:
            self._shown[slot] = name
        self._update_csi_node(slot, self._watched_csi_nodes.get(name) if name else None)
        for node_name in {before, name} - {""}:
            for key in self._attachments_of_node.get(node_name, ()):
                self._recount(key)

    def _update_csi_node(self, slot: int, csi_node: CSINode | None) -> None:
        bit = 1 << slot
        # The old object is undone completely and the new one applied. Computing the difference would have to treat
        # drivers that come, go, and change their limit separately.
        before = self._csi_nodes.pop(slot, None)
        for driver in before.spec.drivers if before is not None else ():
            columns = self._driver(driver.name)
            columns.limits[slot] = NO_LIMIT
            columns.installed &= ~bit
        self.with_csi_node &= ~bit
        if csi_node is not None:
            self._csi_nodes[slot] = csi_node
            self.with_csi_node |= bit
            for driver in csi_node.spec.drivers:
                self._driver(driver.name).installed |= bit
            for name, count in csi_node.limits.items():
                self._driver(name).limits[slot] = count
        for name in {driver.name for driver in before.spec.drivers} if before is not None else ():
            self._forget_idle(name)
        self._changed_slots.add(slot)

    def _recount(self, key: str) -> None:
        """Count an attachment again after a change of it, its volume or its node."""
        before, now = self._counted.get(key), self._place_of(key)
        if now == before:
            return
        if before is not None:
            del self._counted[key]
            self._count(before[1], before[0], -1, self.by_attachments)
        if now is not None:
            self._counted[key] = now
            self._count(now[1], now[0], 1, self.by_attachments)

    def _place_of(self, key: str) -> tuple[int, CSISource] | None:
        attachment = self._watched_attachments.get(key)
        if attachment is None or not attachment.spec.attacher:
            return None
        slot = self._nodes.present_slot(attachment.spec.node_name)
        name = attachment.spec.source.persistent_volume_name
        volume = self._volumes.get_api(name) if name is not None else None
        # An attachment may precede its volume in the watch, and is then counted when the volume comes. Inline specs
        # name no volume and do not count, as upstream.
        if slot is None or volume is None or volume.spec.csi is None:
            return None
        return slot, CSISource(attachment.spec.attacher, volume.spec.csi.volume_handle)

    # -- counts ----------------------------------------------------------------------------------------------------------

    def _count(self, name: CSISource | None, slot: int, by: int, counts: NodeMultiset[CSISource]) -> None:
        """Count one use more (1) or less (-1): by pods or by attachments. A volume with both is attached once."""
        if name is None:
            return
        # A volume is attached once to a node, however many pods and attachments say so. `used` changes only when the
        # first reason comes or the last one goes.
        differs = counts.add(slot, name) if by > 0 else counts.remove(slot, name)
        others = self.by_attachments if counts is self.by_pods else self.by_pods
        if differs and not others.count(slot, name):
            self._driver(name.driver).used[slot] += by
            if by < 0:
                self._forget_idle(name.driver)
        self._changed_slots.add(slot)

    def _driver(self, name: str) -> _Driver:
        columns = self._drivers.get(name)
        if columns is None:
            columns = self._drivers[name] = _Driver(self._capacity)
        return columns

    def _forget_idle(self, name: str) -> None:
        # Users choose the names of drivers in their claims, and could fill the memory with drivers that do not exist.
        if self._drivers[name].is_idle:
            del self._drivers[name]

    def _now(self) -> tuple[int, int, int]:
        nodes = self._nodes
        return nodes.relabelled.position, nodes.claim_users.position, nodes.disk_users.position

    def _fit(self) -> None:
        if self._nodes.capacity != self._capacity:
            self._capacity = self._nodes.capacity
            for columns in self._drivers.values():
                columns.grow(self._capacity)


def _index(index: dict[str, set[str]], key: str, value: str) -> None:
    if key:
        index.setdefault(key, set()).add(value)


def _unindex(index: dict[str, set[str]], key: str, value: str) -> None:
    if key:
        values = index[key]
        values.discard(value)
        if not values:
            del index[key]
