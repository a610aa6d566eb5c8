"""Check the indexes of claims and volumes, the node groups, and the assumptions of bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from scheduler.api.storage_v1 import FILESYSTEM, PersistentVolume
from scheduler.audit.findings import BEHIND, Check, Comparison, Steps, in_parts
from scheduler.audit.nodes import NamedNodes, slots_of
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.node_groups import NodeGroup, NodeGroups, where_affinity
from scheduler.cache.storage.persistent_volumes import ClassVolumes, FittingVolumes, VolumeKind, is_free
from scheduler.cache.storage.volumes import CLAIM, VOLUME
from scheduler.core.nodeset import EMPTY, NodeSet

_MANY: Final = 50


class StorageChecks:
    """The checks of one cluster's claims and volumes.

    `is_binding` says of a uid whether a binding of this pod runs.
    """

    def __init__(self, cluster: Cluster, is_binding: Callable[[str], bool]) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._volumes = cluster.volumes
        self._is_binding = is_binding

    def checks(self) -> dict[str, Check]:
        """Return index → check. Node groups come first, because volumes and pools read them."""
        return {
            "node-groups": lambda: self.groups(self._volumes.groups),
            "claims": self._claims,
            "volumes": self._all_volumes,
            "free-volumes": self._fits,
            "assumed-volumes": self._assumptions,
        }

    # -- node groups -------------------------------------------------------------------------------------------------

    def groups(self, groups: NodeGroups) -> Steps:
        """Compare the nodes of each rule with the labels of the nodes."""
        if self._nodes.relabelled.position - groups._position > BEHIND:
            return
        for group in tuple(groups._groups.values()):
            groups.catch_up()
            if groups._groups.get(group.where) is group:
                yield self._group(groups, group)
            for some in in_parts(slots_of(group.nodes), _MANY):
                groups.catch_up()
                found = Comparison(f"node group {group.where}")
                if groups._groups.get(group.where) is group:
                    self._members(found, groups, group, some)
                yield found
        for some in in_parts(groups._members, _MANY):
            groups.catch_up()
            found = Comparison("node groups")
            for slot in some:
                known = {group for group in groups.of(slot) if group.nodes >> slot & 1}
                if found.differs(f"groups of node {self._nodes.name(slot)}", len(groups.of(slot)), len(known)):
                    groups._members[slot] = known
            yield found

    def _group(self, groups: NodeGroups, group: NodeGroup) -> Comparison:
        """Compare the nodes of one rule. The cost grows with the values of the rule."""
        found, nodes = Comparison(f"node group {group.where}"), _matching(self._cluster, group)
        wrong = group.nodes ^ nodes
        if found.differs("nodes", NamedNodes(self._nodes, group.nodes), NamedNodes(self._nodes, nodes)):
            group.nodes = nodes
        slot = group.slot
        groups._resize(group)
        found.differs("only node", slot, group.slot)
        self._members(found, groups, group, slots_of(wrong))
        for slot in slots_of(wrong):
            groups.note((group, slot))
        return found

    def _members(self, found: Comparison, groups: NodeGroups, group: NodeGroup, slots: Iterable[int]) -> None:
        """Compare the groups of these nodes with the nodes of the group."""
        for slot in slots:
            here, is_there = groups._members.get(slot, set()), bool(group.nodes >> slot & 1)
            if found.differs(f"member {self._nodes.name(slot)}", group in here, is_there):
                groups._members[slot] = here | {group} if is_there else here - {group}
                if not groups._members[slot]:
                    del groups._members[slot]

    # -- claims ------------------------------------------------------------------------------------------------------

    def _claims(self) -> Steps:
        claims = self._volumes.claims
        for some in in_parts(claims._store, _MANY):
            found = Comparison("")
            for key in some:
                self._claim(found, key)
            yield found
        for namespace, keys in tuple(claims.unselected.items()):
            for some in in_parts(keys, _MANY):
                found = Comparison("")
                for key in some:
                    found.about = f"claim {key}"
                    if claims.get(key) is None and found.differs("listed without a node", True, False):
                        _discard(claims.unselected, namespace, key)
                yield found

    def _claim(self, found: Comparison, key: str) -> None:
        claims = self._volumes.claims
        claim = claims.get(key)
        if claim is None:
            return
        found.about = f"claim {key}"
        namespace = claim.metadata.namespace
        waits = not claim.spec.volume_name and claim.selected_node is None
        if found.differs("listed without a node", key in claims.unselected.get(namespace, ()), waits):
            if waits:
                claims.unselected.setdefault(namespace, {})[key] = None
            else:
                _discard(claims.unselected, namespace, key)

    # -- volumes -----------------------------------------------------------------------------------------------------

    def _all_volumes(self) -> Steps:
        volumes = self._volumes.volumes
        for name in tuple(volumes._places):
            if volumes.get(name) is None and name in volumes._places:
                found = Comparison(f"volume {name}")
                found.differs("row", "present", "no such volume")
                self._retire(name)
                yield found
        for name in tuple(volumes._store):
            volume = volumes.get(name)
            if volume is not None:
                yield self._volume(volume)
        for key, names in tuple(volumes._meant_for.items()):
            found = Comparison(f"claim {key}")
            for name in tuple(names):
                volume = volumes.get(name)
                ref = volume.spec.claim_ref if volume is not None else None
                if found.differs(f"claimed by volume {name}", key, ref.key if ref is not None else ""):
                    _discard(volumes._meant_for, key, name)
            yield found
        for class_volumes in tuple(volumes._classes.values()):
            for row in range(len(class_volumes.rows)):
                yield self._row(class_volumes, row)

    def _volume(self, volume: PersistentVolume) -> Comparison:
        volumes, name = self._volumes.volumes, volume.key
        found, ref = Comparison(f"volume {name}"), volume.spec.claim_ref
        if ref is not None and found.differs("known by its claim", name in volumes._meant_for.get(ref.key, ()), True):
            volumes._meant_for.setdefault(ref.key, {})[name] = None
        self._where(found, volume)
        class_volumes, row = volumes._places.get(name) or (None, -1)
        free = is_free(volume)
        if class_volumes is None:
            if free:
                found.differs("row", "missing", "present")
                volumes._enter(volume)
            return found
        known = class_volumes.rows[row] if row < len(class_volumes.rows) else None
        spec = volume.spec
        kind = VolumeKind(
            spec.volume_mode or FILESYSTEM, spec.volume_attributes_class_name or "", frozenset(spec.access_modes)
        )
        if known is None:
            found.differs("row", "missing", "present")
        else:
            found.differs("class of its row", volumes._classes.get(volume.storage_class) is class_volumes, True)
            found.differs("name of its row", known.name, name)
            found.differs("size of its row", known.size, volume.capacity.nano)
            found.differs("labels of its row", known.labels, volume.metadata.labels)
            found.differs("kind of its row", class_volumes.kinds.contents[known.kind], kind)
            found.differs("nodes of its row", known.group is volumes._where[name], True)
            found.differs("free", bool(class_volumes.free[row]), free)
            entry = (known.size, known.name, row)
            of_group = class_volumes._sorted.get((known.group.number, known.kind), ())
            found.differs("sorted by size", entry in of_group, free)
        if found:
            self._retire(name)
            volumes._enter(volume)
            volumes._places[name][0].set_free(volumes._places[name][1], is_free=free)
        return found

    def _where(self, found: Comparison, volume: PersistentVolume) -> None:
        """Compare the nodes of the volume."""
        groups, where = self._volumes.groups, self._volumes.volumes._where
        group, rule = where.get(volume.key), where_affinity(volume.required_nodes)
        is_right = group is not None and group.where == rule and groups._groups.get(rule) is group
        if found.differs("nodes by its affinity", is_right, True):
            where[volume.key] = groups.acquire(rule)

    def _row(self, class_volumes: ClassVolumes, row: int) -> Comparison:
        """Compare the columns of a row with its volume."""
        known, found = class_volumes.rows[row], Comparison("row of a volume")
        if known is None:
            if found.differs("free", bool(class_volumes.free[row]), False):
                class_volumes.free[row] = False
                class_volumes.note(row)
            return found
        found.about = f"volume {known.name}"
        place = self._volumes.volumes._places.get(known.name)
        if found.differs("row", row, place[1] if place is not None and place[0] is class_volumes else None):
            _retire_row(class_volumes, row)
            return found
        for field, column, value in (
            ("rank of its size", class_volumes.rank, class_volumes.threshold(known.size)),
            ("number of its kind", class_volumes.kind, known.kind),
            ("number of its group", class_volumes.group, class_volumes.local_groups.of(known.group)),
        ):
            if found.differs(field, int(column[row]), value):
                column[row] = value
                class_volumes.note(row)
        return found

    def _retire(self, name: str) -> None:
        """Remove the row of a volume, whatever is wrong with it."""
        place = self._volumes.volumes._places.pop(name, None)
        if place is not None and place[1] < len(place[0].rows):
            _retire_row(*place)

    def _fits(self) -> Steps:
        """Compare the counts of fitting volumes per node with a recount, for each known shape of claim."""
        for storage_class, class_volumes in tuple(self._volumes.volumes._classes.items()):
            for key, known in tuple(class_volumes._fits._entries.items()):
                found = Comparison(f"claims of {storage_class} with {key[1]} nano-bytes")
                known.catch_up()
                fresh = FittingVolumes(class_volumes, *key)
                fresh.catch_up()
                found.differs(
                    "volumes by node are those of a recount", np.array_equal(known.counts, fresh.counts), True
                )
                found.differs("nodes", NamedNodes(self._nodes, known.nodes), NamedNodes(self._nodes, fresh.nodes))
                if found:
                    class_volumes._fits.pop(key)
                yield found

    # -- assumptions -------------------------------------------------------------------------------------------------

    def _assumptions(self) -> Steps:
        """Compare assumed objects with the newest ones, and the pods that rely on them with the pods that are binding."""
        for cache in (self._volumes.claims, self._volumes.volumes):
            for key in cache.assumed_keys():
                found = Comparison(f"{cache._plural} {key}")
                if found.differs("assumed on the newest version", cache.is_assumed(key), True):
                    cache._assumed.pop(key, None)
                yield found
        for version, uids in tuple(self._volumes.holders.items()):
            found = Comparison(f"{version[0]} {version[1]}")
            gone = [uid for uid in uids if not self._relies(uid)]
            if found.differs("pods that assume it and are gone", gone, []):
                self._end(version, gone)
            yield found
        for kind, by_claim in (("plan", self._volumes.under_way), ("binding", self._volumes.binding)):
            for key in tuple(by_claim):
                found = Comparison(f"claim {key}")
                gone = [uid for uid in by_claim.get(key, ()) if not self._relies(uid)]
                if found.differs(f"{kind} of pods that are gone", gone, []):
                    for uid in gone:
                        _discard(by_claim, key, uid)
                    self._volumes.notify(CLAIM, key)
                yield found

    def _relies(self, uid: str) -> bool:
        return self._is_binding(uid) or self._cluster.is_assumed(uid)

    def _end(self, version: tuple[str, str, str], gone: list[str]) -> None:
        """Remove pods from the pods that assume an object; with the last one, the assumption ends."""
        for uid in gone:
            _discard(self._volumes.holders, version, uid)
        if version in self._volumes.holders:
            return
        kind, key, resource_version = version
        cache: Any = self._volumes.volumes if kind == VOLUME else self._volumes.claims
        assumed = cache._assumed.get(key)
        if assumed is not None and assumed.metadata.resource_version == resource_version:
            cache.restore(assumed)
            self._volumes.given_back[kind, key] = None


def _matching(cluster: Cluster, group: NodeGroup) -> NodeSet:
    labels, present, nodes = cluster.nodes.labels, cluster.nodes.present, EMPTY
    for term in group.where:
        matching = present
        for requirement in term:
            matching &= labels.matching(requirement, present)
        nodes |= matching
    return nodes


def _retire_row(class_volumes: ClassVolumes, row: int) -> None:
    for key, volumes in tuple(class_volumes._sorted.items()):
        kept = [entry for entry in volumes if entry[2] != row]
        class_volumes._sorted[key] = kept
        if not kept:
            del class_volumes._sorted[key]
    class_volumes.free[row] = False
    class_volumes.rows[row] = None
    if row not in class_volumes._vacant:
        class_volumes._vacant.append(row)
    class_volumes.note(row)


def _discard(index: dict[Any, dict[str, None]], key: Any, item: str) -> None:
    here = index.get(key, {})
    here.pop(item, None)
    if not here:
        index.pop(key, None)
