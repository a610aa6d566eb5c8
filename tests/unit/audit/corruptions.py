"""Planted corruptions, by index: each makes one value of the cache differ from the stored objects.

The id of a corruption is a sentence. The first word of a row is the index whose check must find it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from scheduler.api.pod_group import POD_GROUP, GroupKey
from scheduler.api.resource_v1 import DeviceId
from scheduler.cache.devices.pools import PoolKey
from scheduler.cache.nodes.images import ImageState
from scheduler.cache.pod_groups import PodGroups
from scheduler.cache.pods import TermKind
from tests.unit.audit.planted import (
    CAP,
    D2,
    Corruption,
    _flying,
    _foreign_assumption,
    _ghost_slice,
    _gone_record,
    _group,
    _heap_entry,
    _heap_order,
    _held_assumption,
    _keep,
    _kind_elsewhere,
    _lose,
    _lost_record,
    _no_topics,
    _only,
    _pool,
    _pop,
    _record,
    _rejected,
    _rows,
    _second_object,
    _set,
    _settled,
    _stale_assumption,
    _strange_pod,
    _strange_row,
    _sums,
    _tally,
    _two_places,
    _view,
    _where_b,
    _wrong_kind,
    devices,
    nodes,
    queue,
    volumes,
)
from tests.unit.audit.world import AuditWorld

TEAM: Final = GroupKey(POD_GROUP, "default/team")


def groups(here: AuditWorld) -> PodGroups:
    return here.cluster.pod_groups


def _join(here: AuditWorld, group: GroupKey, key: str) -> None:
    late = here.parts.shared.pending.get("default/late")
    assert late is not None
    groups(here).by_group.setdefault(group, {})[key] = late.pod


def _rows_of_stored_objects() -> Iterator[Corruption]:
    for kind, key in (
        ("Node", "n3"),
        ("PersistentVolumeClaim", "default/data"),
        ("PersistentVolume", "pv-data"),
        ("StorageClass", "fast"),
        ("CSINode", "n1"),
        ("CSIDriver", "csi.example.com"),
        ("VolumeAttachment", "va"),
        ("CSIStorageCapacity", CAP),
        ("ResourceClaim", "default/held"),
        ("ResourceSlice", "s-n1"),
        ("DeviceClass", "gpu"),
        ("DeviceTaintRule", "rule"),
        ("Namespace", "default"),
        ("Service", "default/web"),
        ("ReplicaSet", "default/web"),
        ("PodDisruptionBudget", "default/web"),
        ("PodGroup", "default/team"),
    ):
        yield Corruption("stored-objects", f"the cache has a {kind} that the informer lacks", _keep(kind, key))
    forgotten: tuple[tuple[str, str, Callable[[AuditWorld], object]], ...] = (
        ("Node", "n2", lambda here: here.cluster.remove_node("n2")),
        ("PersistentVolumeClaim", "default/idle", lambda here: volumes(here).set_claim("default/idle", None)),
        ("PersistentVolume", "pv-free", lambda here: volumes(here).volumes.remove("pv-free")),
        ("StorageClass", "fast", lambda here: volumes(here).set_class("fast", None)),
        ("CSINode", "n1", lambda here: volumes(here).set_csi_node("n1", None)),
        ("CSIDriver", "csi.example.com", lambda here: volumes(here).drivers.clear()),
        ("VolumeAttachment", "va", lambda here: volumes(here).attachments.clear()),
        ("CSIStorageCapacity", CAP, lambda here: volumes(here).set_capacity(CAP, None)),
        ("ResourceClaim", "default/held", lambda here: devices(here).claims.remove("default/held")),
        ("ResourceSlice", "s-n1", lambda here: devices(here).remove_slice("s-n1")),
        ("DeviceClass", "gpu", lambda here: devices(here).classes.put("gpu", None)),
        ("DeviceTaintRule", "rule", lambda here: devices(here).rules.put("rule", None)),
        ("Namespace", "default", lambda here: here.cluster.namespaces.remove("default")),
        ("Service", "default/web", lambda here: here.cluster.workloads.set_service("default/web", None)),
        ("ReplicaSet", "default/web", lambda here: here.cluster.workloads.controllers.clear()),
        ("PodDisruptionBudget", "default/web", lambda here: here.cluster.disruptions.remove("default/web")),
        ("PodGroup", "default/team", lambda here: here.cluster.pod_groups.remove(TEAM)),
    )
    for kind, key, forget in forgotten:
        yield Corruption("stored-objects", f"the cache lacks a {kind} that the informer has", _lose(kind, key, forget))


CORRUPTIONS: Final = [
    *_rows_of_stored_objects(),
    Corruption("stored-pods", "the cache lacks a bound pod", lambda here: here.cluster.remove_pod("uid-web-1")),
    Corruption("stored-pods", "the cache has a bound pod that is gone", _keep("Pod", "default/web-1")),
    Corruption("stored-pods", "an unbound pod that is gone waits", _keep("Pod", "default/late")),
    Corruption("stored-pods", "an unbound pod is unknown", lambda here: here.parts.shared.pending.pop("default/late")),
    Corruption("pods-of-groups", "a group lacks a pod", _pop(lambda h: groups(h).by_group[TEAM], "default/team-2")),
    Corruption("pods-of-groups", "a group has a pod that is gone", lambda h: _join(h, TEAM, "default/x")),
    Corruption(
        "pods-of-groups",
        "a pod is in a group that it does not name",
        lambda h: _join(h, TEAM._replace(key="default/other"), "default/late"),
    ),
    Corruption("pods-of-groups", "a running pod counts as waiting", lambda h: groups(h).running.clear()),
    Corruption(
        "pods-of-groups",
        "a waiting pod counts as running",
        _set(lambda h: groups(h).running[TEAM], "default/team-2", None),
    ),
    Corruption(
        "claims-of-unbound-pods",
        "a claim lacks a pod that uses it",
        lambda h: volumes(h).reservations.users.by_claim.clear(),
    ),
    Corruption(
        "claims-of-unbound-pods",
        "a claim has a user that is gone",
        lambda h: volumes(h).reservations.users.add("default/gone", ["default/data"]),
    ),
    # -- nodes
    Corruption("node-columns", "a node's allocatable cpu is wrong", _set(lambda h: nodes(h).allocatable, (0, 0), 1)),
    Corruption("node-columns", "a free slot has allocatable memory", _set(lambda h: nodes(h).allocatable, (1, 9), 1)),
    Corruption("node-columns", "a node allows one pod too many", _set(lambda h: nodes(h).allowed_pods, 1, 111)),
    Corruption("node-columns", "a node is not present", lambda h: setattr(nodes(h), "present", 0b110)),
    Corruption(
        "node-columns", "a schedulable node counts as cordoned", lambda h: setattr(nodes(h), "unschedulable", 5)
    ),
    Corruption(
        "node-columns", "a free slot counts as cordoned", lambda h: setattr(nodes(h), "unschedulable", 4 | 1 << 9)
    ),
    Corruption("node-columns", "the slot of a node is that of another", _set(lambda h: nodes(h)._slots, "n1", 2)),
    Corruption("node-columns", "a resource counts one node too many", _set(lambda h: nodes(h).rows.offers, "cpu", 4)),
    Corruption("node-labels", "a node lacks its zone", _set(lambda h: nodes(h).labels._values["zone"], "b", 0b100)),
    Corruption(
        "node-labels", "a node has the zone of another", _set(lambda h: nodes(h).labels._values["zone"], "a", 3)
    ),
    Corruption(
        "node-labels", "a label is on a free slot", _set(lambda h: nodes(h).labels._values["zone"], "c", 1 << 9)
    ),
    Corruption(
        "node-labels", "a node with a zone counts as one without", _set(lambda h: nodes(h).labels._having, "zone", 3)
    ),
    Corruption(
        "node-labels", "a free slot counts as one with a zone", _set(lambda h: nodes(h).labels._having, "zone", 15)
    ),
    Corruption(
        "node-features", "a node lacks a feature", _set(lambda h: nodes(h).features._values["feature-a"], "", 6)
    ),
    Corruption("node-taints", "a tainted node counts as untainted", lambda h: nodes(h).taints.clear()),
    Corruption(
        "node-taints",
        "an untainted node has taints",
        lambda h: nodes(h).taints.update(dict.fromkeys(nodes(h).taints, 5)),
    ),
    Corruption(
        "images", "a node lacks an image", _set(lambda h: nodes(h).images.states, "img", ImageState(1000, (0, 1)))
    ),
    Corruption(
        "images",
        "an image is on a node too many",
        _set(lambda h: nodes(h).images.states, "img-1", ImageState(1000, (0, 1))),
    ),
    Corruption("images", "an image is on no node", _set(lambda h: nodes(h).images.states, "old", ImageState(1, (1,)))),
    Corruption(
        "images", "an image has the wrong size", _set(lambda h: nodes(h).images.states, "img-1", ImageState(1, (0,)))
    ),
    Corruption("images", "the images of a node are those of no heartbeat", _pop(lambda h: nodes(h).images.on, 1)),
    Corruption("topologies", "a node is in another zone", _set(lambda h: nodes(h).topologies.of("zone").domain, 0, 1)),
    Corruption(
        "topologies", "a zone has a node too many", lambda h: nodes(h).topologies.of("zone").members.__setitem__(0, 3)
    ),
    Corruption("topologies", "a free slot is in a zone", _set(lambda h: nodes(h).topologies.of("zone").domain, 9, 1)),
    Corruption("topologies", "a zone without nodes exists", lambda h: nodes(h).topologies.of("zone")._number_for("c")),
    # -- pods
    Corruption("pods-by-node", "a node lacks one of its pods", _pop(lambda h: nodes(h)._pods[1], "uid-web-2")),
    Corruption("pods-by-node", "a node has a pod that is gone", _strange_pod),
    Corruption("pods-by-node", "a node has an old object of a pod", _second_object),
    Corruption("pods-by-node", "an assumed pod is unknown", lambda h: h.cluster._assumed.add("uid-gone")),
    Corruption(
        "pods-by-node", "a bound pod waits for its confirmation", lambda h: h.cluster._answered.update({"uid-x": 1.0})
    ),
    Corruption("requests", "a node's requested cpu is 1 too high", _set(lambda h: nodes(h).requested, (0, 0), 2001)),
    Corruption("requests", "a node's requested cpu is 0", _set(lambda h: nodes(h).requested, (0, 0), 0)),
    Corruption("requests", "a free slot has requests", _set(lambda h: nodes(h).requested, (1, 9), 5)),
    Corruption("requests", "a node's requests for scores are wrong", _set(lambda h: nodes(h).non_zero, (0, 0), 1)),
    Corruption("requests", "a node counts one pod too many", _set(lambda h: nodes(h).pod_count, 0, 3)),
    Corruption("requests", "a request without an offer is lost", lambda h: nodes(h).rows.without_row.clear()),
    Corruption("requests", "a request without an offer has no pod", _strange_row),
    Corruption("host-ports", "a held port is free", lambda h: nodes(h).ports.held.remove(0, ("TCP", 80, "0.0.0.0"))),
    Corruption("host-ports", "a free port is held", lambda h: nodes(h).ports.held.add(1, ("TCP", 80, "0.0.0.0"))),
    Corruption("host-ports-of-any-ip", "a port is held twice", lambda h: nodes(h).ports.of_any_ip.add(0, ("TCP", 80))),
    Corruption("priorities", "a priority counts one pod too many", lambda h: nodes(h).priorities.add(0, 5)),
    Corruption("priorities", "a priority counts one pod too few", lambda h: nodes(h).priorities.remove(0, 5)),
    Corruption(
        "priorities", "the cached nodes of a priority are wrong", _set(lambda h: nodes(h).priorities._sets, 0, 8)
    ),
    Corruption(
        "disks",
        "a node has a volume that no pod has",
        lambda h: nodes(h).disk_users.users.add(1, next(iter(nodes(h).disk_users.users))),
    ),
    Corruption("disk-conflicts", "a disk in use is free", lambda h: nodes(h).disk_conflicts._slots.clear()),
    Corruption("claim-users", "a claim is used twice", lambda h: nodes(h).claim_users.users.add(0, "default/data")),
    Corruption("claim-users", "a used claim is unused", lambda h: nodes(h).claim_users.users.remove(0, "default/data")),
    Corruption("claims-by-node", "an ephemeral volume has no pod", lambda h: nodes(h).claim_users.ephemeral.clear()),
    Corruption(
        "claims-by-node",
        "an ephemeral volume is on another node",
        _set(lambda h: nodes(h).claim_users.ephemeral, (1, "default/x"), {"uid-x"}),
    ),
    Corruption(
        "spread-counts",
        "one pod too many has these labels",
        lambda h: _set(lambda _: next(iter(nodes(h).population.classes.values())).counts, 0, 2)(h),
    ),
    Corruption("spread-counts", "no pod has these labels", lambda h: nodes(h).population.classes.clear()),
    Corruption("spread-selections", "a selection counts one pod too many", _set(lambda h: _tally(h).counts, 0, 7)),
    Corruption(
        "spread-selections",
        "a selection lacks the pods that it finds",
        lambda h: _only(_tally(h).classes).tallies.clear(),
    ),
    Corruption("spread-selections", "a selection is not indexed", lambda h: nodes(h).population._index.clear()),
    Corruption("spread-selections", "a namespace has no pods", lambda h: nodes(h).population._by_namespace.clear()),
    Corruption("affinity-terms", "a term counts one pod too many", _set(lambda h: _group(h).counts, 0, 2)),
    Corruption("affinity-terms", "a term is on a node without pods", _set(lambda h: _group(h).counts, 2, 1)),
    Corruption("affinity-terms", "a term of a pod is unknown", lambda h: nodes(h).pod_terms.groups.clear()),
    Corruption(
        "affinity-index", "a term is not indexed", lambda h: nodes(h).pod_terms.indexes[TermKind.REQUIRED_ANTI].clear()
    ),
    Corruption(
        "affinity-index",
        "a term is indexed under the wrong label",
        lambda h: nodes(h).pod_terms.indexes[TermKind.PREFERRED].add(_group(h), [(None, None)]),
    ),
    Corruption("domain-sums", "a zone has one pod too many", _set(lambda h: _sums(h).per_domain, 0, 9)),
    Corruption("domain-sums", "an occupied zone counts as empty", lambda h: setattr(_sums(h), "occupied", 0)),
    Corruption("domain-sums", "there is one zone too many", lambda h: setattr(_sums(h), "existing", 9)),
    Corruption("domain-sums", "the column of a sum is wrong", _set(lambda h: _sums(h)._column, 0, 9)),
    Corruption("domain-sums", "the zones by number of pods are wrong", lambda h: _sums(h)._levels.clear()),
    # -- volumes
    Corruption("node-groups", "a group has a node too many", lambda h: setattr(_where_b(h), "nodes", 7)),
    Corruption("node-groups", "a group counts as one of a single node", lambda h: setattr(_where_b(h), "slot", 1)),
    Corruption(
        "node-groups", "a node is no member of its group", lambda h: volumes(h).groups._members[1].discard(_where_b(h))
    ),
    Corruption(
        "node-groups", "a node is a member of another group", lambda h: volumes(h).groups._members[0].add(_where_b(h))
    ),
    Corruption("claims", "a claim without a node is not listed", lambda h: volumes(h).claims.unselected.clear()),
    Corruption(
        "claims",
        "a claim with a node is listed",
        _set(lambda h: volumes(h).claims.unselected["default"], "default/flying", None),
    ),
    Corruption(
        "claims",
        "a claim that is gone is listed",
        _set(lambda h: volumes(h).claims.unselected["default"], "default/gone", None),
    ),
    Corruption("volumes", "a claim lacks its volume", lambda h: volumes(h).volumes.by_claim.clear()),
    Corruption(
        "volumes",
        "a claim has the volume of another",
        _set(lambda h: volumes(h).volumes.by_claim, "default/idle", {"pv-data": None}),
    ),
    Corruption(
        "volumes",
        "a volume has the nodes of another",
        lambda h: _set(lambda _: volumes(h).volumes._where, "pv-free", volumes(h).volumes._where["pv-data"])(h),
    ),
    Corruption("volumes", "a free volume counts as taken", _set(lambda h: _rows(h).free, 0, False)),
    Corruption("volumes", "a free volume has no row", _pop(lambda h: volumes(h).volumes._places, "pv-free")),
    Corruption("volumes", "a free volume is not sorted by size", lambda h: _rows(h)._sorted.clear()),
    Corruption(
        "volumes",
        "a volume has the wrong size",
        lambda h: _rows(h).rows.__setitem__(0, _rows(h).rows[0]._replace(size=1)),
    ),
    Corruption("volumes", "the size of a volume has the wrong rank", _set(lambda h: _rows(h).rank, 0, 5)),
    Corruption("volumes", "a volume has the number of another group", _set(lambda h: _rows(h).group, 0, 5)),
    Corruption("volumes", "a volume has the wrong size for scores", _set(lambda h: _rows(h).size_bytes, 0, 5)),
    Corruption(
        "volumes",
        "a volume that is gone has a row",
        lambda h: volumes(h).volumes._places.update({"gone": volumes(h).volumes._places["pv-free"]}),
    ),
    Corruption(
        "free-volumes",
        "a node has one free volume too many",
        lambda h: _set(lambda _: _only(_rows(h)._fits._entries.values()).counts, 0, 1)(h),
    ),
    Corruption(
        "free-volumes",
        "no node has a free volume",
        lambda h: setattr(_only(_rows(h)._fits._entries.values()), "nodes", 0),
    ),
    Corruption(
        "free-volumes",
        "the smallest volume of a node has the wrong size",
        lambda h: _set(lambda _: _only(_rows(h)._fits._entries.values())._smallest_bytes, 0, 1)(h),
    ),
    Corruption("assumed-volumes", "an assumption is on an old version", _stale_assumption),
    Corruption("assumed-volumes", "a pod that is gone relies on a volume", _foreign_assumption),
    Corruption("assumed-volumes", "an assumption outlives its pod", _held_assumption),
    Corruption(
        "assumed-volumes",
        "a plan outlives its pod",
        _set(lambda h: volumes(h).under_way, "default/idle", {"uid-gone": None}),
    ),
    Corruption(
        "assumed-volumes",
        "a binding of a claim outlives its pod",
        _set(lambda h: volumes(h).binding, "default/idle", {"uid-gone": None}),
    ),
    # -- capacity
    Corruption(
        "reservations",
        "a claim in flight has no reservation",
        _pop(lambda h: volumes(h).reservations.entries, "uid-flying"),
    ),
    Corruption("reservations", "a reservation has the wrong size", lambda h: setattr(_flying(h), "size", 7)),
    Corruption("reservations", "a reservation is on another node", lambda h: setattr(_flying(h), "node_name", "n2")),
    Corruption("reservations", "a claim in flight counts as provisioned", _settled),
    Corruption(
        "reservations",
        "a claim that waits has a reservation",
        lambda h: volumes(h).reservations.entries.update({"uid-gone": _flying(h)}),
    ),
    Corruption(
        "reservations", "a reservation is not indexed by class", lambda h: volumes(h).reservations.by_class.clear()
    ),
    Corruption("reservations-by-pool", "a pool lacks a reservation", lambda h: volumes(h).reservations.by_pool.clear()),
    Corruption(
        "reservations-by-pool",
        "a pool has a reservation too many",
        lambda h: volumes(h).reservations.by_pool[CAP].update({"uid-gone": _flying(h)}),
    ),
    Corruption(
        "reservations-by-pool",
        "a claim awaits a pool without a reason",
        lambda h: volumes(h).reservations.waiting.update({CAP: {"uid-flying": _flying(h)}}),
    ),
    Corruption(
        "claims-together",
        "two claims of a pod are separate",
        lambda h: volumes(h).reservations.together.by_keys.clear(),
    ),
    Corruption(
        "claims-together",
        "two claims of a pod are not indexed",
        lambda h: volumes(h).reservations.together.by_claim.clear(),
    ),
    Corruption(
        "claims-together",
        "two claims are used together by no pod",
        lambda h: volumes(h).reservations.together.add(["default/data", "default/idle"]),
    ),
    Corruption("capacity-pools", "a pool has too many bytes in flight", lambda h: setattr(_pool(h), "booked", 9)),
    Corruption(
        "capacity-pools", "the ledger drifts", lambda h: volumes(h).capacities.of("fast").set_in_flight(_pool(h), 0)
    ),
    Corruption("capacity-pools", "a class lacks a pool", _pop(lambda h: volumes(h).capacities.of("fast").pools, CAP)),
    Corruption("capacity-pools", "the nodes of a pool lack it", lambda h: volumes(h).capacities.segments.clear()),
    Corruption(
        "capacity-columns",
        "a node has too much capacity",
        _set(lambda h: volumes(h).capacities.of("fast").spare, 0, 10**12),
    ),
    Corruption(
        "capacity-columns",
        "a node without a pool takes volumes",
        _set(lambda h: volumes(h).capacities.of("fast").limit, 1, 1),
    ),
    Corruption(
        "capacity-columns",
        "a node publishes too much capacity",
        _set(lambda h: volumes(h).capacities.of("fast").published, 0, 10**12),
    ),
    Corruption("capacity-columns", "a node lacks its pool", lambda h: volumes(h).capacities.of("fast")._at.clear()),
    Corruption(
        "capacity-columns",
        "a node counts as one with several pools",
        lambda h: setattr(volumes(h).capacities.of("fast"), "crowded", 2),
    ),
    Corruption("volume-attachments", "an attachment does not count", lambda h: volumes(h).attached._counted.clear()),
    Corruption("volume-attachments", "an attachment is unknown", lambda h: volumes(h).attached._attachments.clear()),
    Corruption(
        "volume-attachments",
        "an attachment is not indexed by its node",
        lambda h: volumes(h).attached._attachments_of_node.clear(),
    ),
    Corruption(
        "attached-volumes",
        "a node has one volume too many",
        _set(lambda h: volumes(h).attached._drivers["csi.example.com"].used, 0, 2),
    ),
    Corruption(
        "attached-volumes",
        "a volume is used by one claim too many",
        lambda h: volumes(h).attached.by_pods.add(0, next(iter(volumes(h).attached.by_pods))),
    ),
    Corruption(
        "attached-volumes",
        "a volume is on a node without pods",
        lambda h: volumes(h).attached.by_pods.add(2, next(iter(volumes(h).attached.by_pods))),
    ),
    Corruption(
        "attached-volumes", "an attachment is forgotten", lambda h: volumes(h).attached.by_attachments._slots.clear()
    ),
    Corruption(
        "attached-volumes",
        "a used claim does not count",
        lambda h: volumes(h).attached.claims_in_use["default/data"].slots.clear(),
    ),
    Corruption(
        "attached-volumes",
        "a claim counts where no pod uses it",
        lambda h: volumes(h).attached.claims_in_use["default/data"].slots.add(2),
    ),
    Corruption("attached-volumes", "an inline volume does not count", lambda h: volumes(h).attached.disks.clear()),
    Corruption(
        "attach-limits",
        "a node takes one volume too many",
        _set(lambda h: volumes(h).attached._drivers["csi.example.com"].limits, 0, 6),
    ),
    Corruption(
        "attach-limits",
        "a node without a CSINode has a driver",
        lambda h: setattr(volumes(h).attached._drivers["csi.example.com"], "installed", 3),
    ),
    Corruption("attach-limits", "a node lacks its CSINode", lambda h: setattr(volumes(h).attached, "with_csi_node", 0)),
    # -- devices
    Corruption("device-claims", "a claim is not known by its uid", lambda h: devices(h).claims.keys_by_uid.clear()),
    Corruption(
        "device-claims",
        "a uid of no claim is known",
        _set(lambda h: devices(h).claims.keys_by_uid, "uid-gone", "default/held"),
    ),
    Corruption(
        "device-claims",
        "a pod lacks the claim for its extended resources",
        lambda h: devices(h).claims.keys_by_pod.clear(),
    ),
    Corruption(
        "device-claims",
        "a pod has a claim for extended resources too many",
        _set(lambda h: devices(h).claims.keys_by_pod, "uid-web-2", {"default/held": None}),
    ),
    Corruption(
        "device-allocations", "an allocated claim has no devices", lambda h: devices(h).use.hold("uid-held", None)
    ),
    Corruption(
        "device-allocations",
        "a claim that is gone has devices",
        lambda h: devices(h).use.hold("uid-gone", devices(h).use.held("uid-held")),
    ),
    Corruption("devices-in-use", "an allocated device is free", lambda h: devices(h).use._holders.clear()),
    Corruption(
        "devices-in-use",
        "a free device is allocated",
        _set(lambda h: devices(h).use._holders, DeviceId("drv", "n1", "d1"), {"uid-held"}),
    ),
    Corruption("devices-in-use", "a shared device is free", _pop(lambda h: devices(h).use._shares, D2)),
    Corruption(
        "devices-in-use", "a shared device has too much left", _set(lambda h: devices(h).use._consumed, D2, {"mem": 1})
    ),
    Corruption("device-classes", "an extended resource has no class", lambda h: devices(h).classes.by_resource.clear()),
    Corruption(
        "device-slices",
        "a slice lacks the taint of a rule",
        lambda h: devices(h)._effective.update({"s-n1": devices(h).published["s-n1"]}),
    ),
    Corruption("device-slices", "a slice that is gone is in effect", _ghost_slice),
    Corruption("device-pools", "a slice is in no pool", _pop(lambda h: devices(h).on_nodes._pool_of, "s-n1")),
    Corruption(
        "device-pools",
        "a pool lacks a slice",
        lambda h: devices(h).on_nodes.pools_by_key[PoolKey("drv", "net")].slices.clear(),
    ),
    Corruption(
        "device-pools",
        "a pool has another home",
        lambda h: setattr(devices(h).on_nodes.pools_by_key[PoolKey("drv", "n1")], "home", "n2"),
    ),
    Corruption("device-pools", "a node lacks its device pool", lambda h: devices(h).on_nodes._local.clear()),
    Corruption("device-pools", "a view of a pool has no devices", _view),
    Corruption(
        "device-node-groups",
        "a shared pool has a node too many",
        lambda h: setattr(_only(devices(h).on_nodes.shared.groups._groups.values()), "nodes", 7),
    ),
    Corruption(
        "shared-device-pools", "a node does not see a shared pool", _pop(lambda h: devices(h).on_nodes.shared._at, 1)
    ),
    Corruption(
        "shared-device-pools",
        "slices for all nodes lack a node",
        lambda h: setattr(devices(h).on_nodes.shared._everywhere, "nodes", 3),
    ),
    Corruption(
        "shared-device-pools",
        "one node too many sees the same slices",
        lambda h: setattr(devices(h).on_nodes.shared.of(0), "count", 5),
    ),
    Corruption("device-kinds-of-nodes", "a node has the kind of another", _wrong_kind),
    Corruption("device-kinds-of-nodes", "a kind has the node of another", _kind_elsewhere),
    Corruption(
        "device-kinds-of-nodes",
        "a node without a kind counts as placed",
        lambda h: setattr(devices(h).on_nodes, "placed", 15),
    ),
    Corruption(
        "device-kinds-of-nodes",
        "a node has one free device too many",
        lambda h: setattr(devices(h).on_nodes.kind(0), "free", 3),
    ),
    # -- workloads
    Corruption("services", "a Service is not indexed", lambda h: h.cluster.workloads.index.clear()),
    Corruption(
        "services",
        "a Service that is gone is indexed",
        lambda h: h.cluster.workloads.index.add("default/gone", [("default", None)]),
    ),
    Corruption("budgets", "a budget is not indexed", lambda h: h.cluster.disruptions.index.clear()),
    # -- queue
    Corruption("queue", "a waiting pod is in no place", _lost_record),
    Corruption("queue", "a pod that is gone is in the queue", _gone_record),
    Corruption("queue", "a pod is in flight and waits", _two_places),
    Corruption("queue-order", "a ready pod has no entry in its heap", _heap_entry),
    Corruption("queue-order", "the heap is in the wrong order", _heap_order),
    Corruption(
        "queue-order", "the gauge of ready pods is 1 too high", lambda h: setattr(queue(h).places._active, "live", 1)
    ),
    Corruption(
        "queue-order",
        "the gauge of pods that back off is 1 too low",
        lambda h: setattr(queue(h).places.backoff._rejected, "live", -1),
    ),
    Corruption(
        "unschedulable-pods", "a waiting pod is not in the pool", _pop(lambda h: queue(h)._pool._index_of, "uid-late")
    ),
    Corruption(
        "unschedulable-pods",
        "a gated pod is indexed as rejected",
        lambda h: queue(h)._pool._index_of.update({"uid-gated": queue(h)._pool._rejected}),
    ),
    Corruption(
        "unschedulable-pods",
        "the pool has an old record of a pod",
        _set(lambda h: queue(h)._pool._rejected.pods, "uid-late", None),
    ),
    Corruption(
        "queueing-hints",
        "a pod is not in the group of its shape",
        lambda h: next(iter(next(iter(_rejected(h)._shape_indexes.values())).groups.values())).pop("uid-late"),
    ),
    Corruption("queueing-hints", "a group of pods has no topics", _no_topics),
    Corruption(
        "queueing-hints",
        "a plugin that refused a pod is unknown",
        lambda h: queue(h)._pool._rejected._entries["uid-late"].pop(),
    ),
    Corruption(
        "queueing-hints",
        "a plugin has refused a pod that is gone",
        lambda h: _rejected(h).pods.update({"uid-gone": _record(h, "late")}),
    ),
    Corruption(
        "nominations", "a nominated pod is unknown on its node", lambda h: queue(h).nominator._by_node["n2"].clear()
    ),
    Corruption("nominations", "a nomination has no node", _pop(lambda h: queue(h).nominator._node_of, "uid-nominated")),
    Corruption("nominations", "a derived nomination is unknown", lambda h: queue(h).nominator._derived.add("uid-gone")),
]


def rows() -> list[Any]:
    """Return one parameter per corruption."""
    return [pytest.param(each.of, each.harm, id=each.sentence) for each in CORRUPTIONS]
