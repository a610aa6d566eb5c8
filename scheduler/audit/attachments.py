"""Check the volumes that are attached to each node, and the limits of drivers."""

from __future__ import annotations

from collections import Counter
from typing import Final

from scheduler.api.storage_v1 import CSINode, CSISource
from scheduler.audit.findings import BEHIND, Check, Comparison, Steps, in_parts
from scheduler.cache.nodes.indexes import NodeMultiset
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.nodes.volume_users import disks_of
from scheduler.cache.storage.attach_limits import NO_LIMIT, _index
from scheduler.cache.storage.volumes import Volumes

_MANY: Final = 50


class AttachmentChecks:
    """The checks of one cluster's attached volumes."""

    def __init__(self, nodes: Nodes, volumes: Volumes) -> None:
        self._nodes = nodes
        self._volumes = volumes
        self._attached = volumes.attached

    def checks(self) -> dict[str, Check]:
        """Return index → check. Names and uses come before the counts that follow from them."""
        return {
            "volume-attachments": self._attachments,
            "attached-volumes": self._at_nodes,
            "attach-limits": self._limits,
        }

    def _is_behind(self) -> bool:
        nodes, known = self._nodes, self._attached._positions
        now = nodes.relabelled.position, nodes.claim_users.position, nodes.disk_users.position
        return any(position - processed > BEHIND for position, processed in zip(now, known))

    # -- VolumeAttachment objects ------------------------------------------------------------------------------------

    def _attachments(self) -> Steps:
        attached = self._attached
        if self._is_behind():
            return
        for known in (attached._watched_attachments, attached._attachments, attached._counted):
            for some in in_parts(known, _MANY):
                attached.catch_up()
                found = Comparison("")
                for key in some:
                    self._attachment(found, key)
                yield found

    def _attachment(self, found: Comparison, key: str) -> None:
        attached = self._attached
        found.about = f"VolumeAttachment {key}"
        obj = attached._watched_attachments.get(key)
        stored = (obj.spec.node_name, obj.spec.source.persistent_volume_name or "") if obj is not None else None
        is_indexed = stored is None or (
            (not stored[0] or key in attached._attachments_of_node.get(stored[0], ()))
            and (not stored[1] or key in attached._attachments_of_volume.get(stored[1], ()))
        )
        if found.differs("node and volume", attached._attachments.get(key), stored):
            attached._attachments.pop(key, None)
            if stored is not None:
                attached._attachments[key] = stored
        if found.differs("indexed by node and volume", is_indexed, True) and stored is not None:
            _index(attached._attachments_of_node, stored[0], key)
            _index(attached._attachments_of_volume, stored[1], key)
        place = attached._place_of(key)
        if found.differs("counted at", attached._counted.get(key), place):
            attached._counted.pop(key, None)
            if place is not None:
                attached._counted[key] = place

    # -- volumes by node ---------------------------------------------------------------------------------------------

    def _at_nodes(self) -> Steps:
        """Compare uses of claims, counts by pods and by attachments, and used volumes per driver, node by node."""
        attached = self._attached
        if self._is_behind():
            return
        for slot in range(self._nodes.capacity):
            attached.catch_up()
            yield self._at(slot)
        for keys in in_parts(attached._uses):
            attached.catch_up()
            found = Comparison("")
            for key in keys:
                self._use(found, key)
            yield found
        yield self._disks()
        for counts in (attached._by_pods, attached._by_attachments):
            for name in tuple(counts):
                for some in in_parts(counts.slots(name)):
                    attached.catch_up()
                    found = Comparison("")
                    for slot in some:
                        stored = (self._by_pods if counts is attached._by_pods else self._by_attachments)(slot)
                        self._count(found, counts, slot, name, stored.get(name, 0))
                    yield found

    def _at(self, slot: int) -> Comparison:
        attached, found = self._attached, Comparison(f"node {self._nodes.name(slot)}")
        self._uses(found, slot)
        by_pods, by_attachments = self._by_pods(slot), self._by_attachments(slot)
        for counts, stored in ((attached._by_pods, by_pods), (attached._by_attachments, by_attachments)):
            for name, count in stored.items():
                self._count(found, counts, slot, name, count)
        used = Counter(name.driver for name in {*by_pods, *by_attachments})
        for driver in {*used, *attached._drivers}:
            if found.differs(f"volumes of driver {driver}", attached.used(driver, slot), used[driver]):
                attached._driver(driver).used[slot] = used[driver]
                self._nodes.touch(slot)
                attached._forget_idle(driver)
        return found

    def _uses(self, found: Comparison, slot: int) -> None:
        """Compare which claims count on the node, and the names of their volumes."""
        attached, users = self._attached, self._nodes.claim_users
        for key in users.at(slot):
            claim, use = self._volumes.claims.get_api(key), attached._uses.get(key)
            is_used = claim is not None and users.rightful(slot, claim) > 0
            if found.differs(f"claim {key} counts", use is not None and slot in use.slots, is_used):
                attached._update_use(slot, key)
                use = attached._uses.get(key)
            if use is not None and claim is not None:
                stored = attached.name_of(claim)
                if found.differs(f"volume of claim {key}", use.named, stored):
                    attached._unindex_use(key, use)
                    use.named, use.volume = stored, claim.spec.volume_name
                    attached._index_use(key, use)

    def _use(self, found: Comparison, key: str) -> None:
        """Compare the nodes where a claim counts with the pods that use it."""
        attached, use = self._attached, self._attached._uses.get(key)
        if use is None:
            return
        found.about = f"claim {key}"
        gone = sorted(slot for slot in use.slots if key not in self._nodes.claim_users.at(slot))
        if found.differs("nodes where it counts without a pod", [self._nodes.name(slot) for slot in gone], []):
            use.slots.difference_update(gone)
            if not use.slots:
                attached._unindex_use(key, use)
                del attached._uses[key]

    def _disks(self) -> Comparison:
        """Compare the inline volumes that count with those of the pods. O(inline volumes)."""
        found, attached, stored = Comparison("inline volumes"), self._attached, self._nodes.disk_users.everywhere()
        if found.differs("node slots and volumes", attached._disks, stored):
            attached._disks = stored
        return found

    def _by_pods(self, slot: int) -> Counter[CSISource]:
        attached, users = self._attached, self._nodes.claim_users
        counts: Counter[CSISource] = Counter()
        for key in users.at(slot):
            claim = self._volumes.claims.get_api(key)
            if claim is not None and users.rightful(slot, claim) > 0:
                name = attached.name_of(claim).name
                if name is not None:
                    counts[name] += 1
        counts.update({disk for info in self._nodes.pods(slot).values() if info.disks for disk in disks_of(info)})
        return counts

    def _by_attachments(self, slot: int) -> Counter[CSISource]:
        attached, name = self._attached, self._nodes.name(slot)
        places = (attached._place_of(key) for key in attached._attachments_of_node.get(name, ())) if name else ()
        return Counter(place[1] for place in places if place is not None and place[0] == slot)

    def _count(
        self, found: Comparison, counts: NodeMultiset[CSISource], slot: int, name: CSISource, count: int
    ) -> None:
        if not found.differs(f"users of volume {name.volume_handle}", counts.count(slot, name), count):
            return
        slots = counts._slots.setdefault(name, {})
        slots[slot] = count
        if not count:
            del slots[slot]
        if not slots:
            del counts._slots[name]
        counts._sets.pop(name, None)
        self._nodes.touch(slot)

    # -- limits ------------------------------------------------------------------------------------------------------

    def _limits(self) -> Steps:
        """Compare the limits and the installed drivers of each node with its CSINode."""
        attached = self._attached
        if self._is_behind():
            return
        for slot in range(self._nodes.capacity):
            attached.catch_up()
            name = self._nodes.name(slot) if self._nodes.present >> slot & 1 else ""
            csi_node = self._volumes.csi_nodes.get(name) if name else None
            found = Comparison(f"node {name}")
            found.differs("CSINode is the newest", attached._csi_nodes.get(slot) is csi_node, True)
            found.differs("has a CSINode", bool(attached.with_csi_node >> slot & 1), csi_node is not None)
            for driver in {*attached._drivers, *(csi_node.limits if csi_node is not None else ())}:
                known = attached._drivers.get(driver)
                limit = known.limits.item(slot) if known is not None else NO_LIMIT
                found.differs(f"limit of {driver}", limit, _limit(csi_node, driver))
                found.differs(
                    f"{driver} is installed",
                    known is not None and bool(known.installed >> slot & 1),
                    csi_node is not None and any(each.name == driver for each in csi_node.spec.drivers),
                )
            if found:
                self._reset(slot, csi_node)
            yield found

    def _reset(self, slot: int, csi_node: CSINode | None) -> None:
        attached = self._attached
        for known in attached._drivers.values():
            known.limits[slot] = NO_LIMIT
            known.installed &= ~(1 << slot)
        attached._csi_nodes.pop(slot, None)
        attached._update_csi_node(slot, csi_node)
        attached._changed_slots.discard(slot)
        self._nodes.touch(slot)


def _limit(csi_node: CSINode | None, driver: str) -> int:
    return csi_node.limits.get(driver, NO_LIMIT) if csi_node is not None else NO_LIMIT
