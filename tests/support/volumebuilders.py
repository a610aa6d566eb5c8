"""Manifests of volumes, claims, classes and drivers in one line: `a_pv("a", "5Gi", "local").on("n1").obj()`.

Immutable like those of `builders`. Everything is as small as decoding and an API server allow: one access mode
(ReadWriteOnce), 1Gi, no class. Names of objects, sizes and classes come in this order; a call adds each further field."""

from __future__ import annotations

from typing import Final, Self

from scheduler.api.storage_v1 import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    CLASS_ANNOTATION,
    MIGRATED_PLUGINS,
    NO_PROVISIONER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from simulator.builders.core import Builder, Manifest

HOSTNAME: Final = "kubernetes.io/hostname"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_TERMS: Final = "spec.nodeAffinity.required.nodeSelectorTerms"
_ONCE: Final = ["ReadWriteOnce"]
_SOURCES: Final = (
    *("awsElasticBlockStore", "azureDisk", "azureFile", "cinder", "csi", "gcePersistentDisk", "hostPath"),
    *("iscsi", "local", "nfs", "portworxVolume", "rbd", "vsphereVolume"),
)


class PersistentVolumeBuilder(Builder[PersistentVolume]):
    """Available, on every node, at a path of the host."""

    def on(self, *node_names: str) -> Self:
        """One more term: only this hostname."""
        return self.where(HOSTNAME, *node_names)

    def where(self, key: str, *values: str) -> Self:
        """One more term: only nodes with one of these values. Terms are alternatives."""
        return self.term((key, "In", *values))

    def term(self, *expressions: tuple[str, ...]) -> Self:
        """One more term of the node affinity; expressions are (key, operator, values…)."""
        return self._append(_TERMS, {"matchExpressions": [_expression(*each) for each in expressions]})

    def modes(self, *access_modes: str) -> Self:
        return self.set({"spec": {"accessModes": list(access_modes)}})

    def volume_mode(self, mode: str | None) -> Self:
        """None: not set."""
        return self.set({"spec": {"volumeMode": mode}})

    def attributes_class(self, name: str) -> Self:
        return self.set({"spec": {"volumeAttributesClassName": name}})

    def legacy_class(self, name: str) -> Self:
        """The annotation that beats `spec.storageClassName`."""
        return self.annotation(CLASS_ANNOTATION, name)

    def claimed_by(self, claim: str, ns: str = "default", *, uid: str = "", by_controller: bool = False) -> Self:
        """Meant for this claim; without a uid as a user writes it."""
        reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": ns, "name": claim}
        with_reference = self.set({"spec": {"claimRef": reference | ({"uid": uid} if uid else {})}})
        return with_reference.annotation(BOUND_BY_CONTROLLER, "yes") if by_controller else with_reference

    def phase(self, phase: str) -> Self:
        """An API server takes it only through the status."""
        return self.set({"status": {"phase": phase}})

    def reclaim(self, policy: str) -> Self:
        return self.set({"spec": {"persistentVolumeReclaimPolicy": policy}})

    def deleting(self) -> Self:
        """For typed objects that are on no server."""
        return self.set(_DELETING)

    def csi(self, driver: str, handle: str = "") -> Self:
        """From this driver; the handle is the volume's name unless given."""
        return self.source(csi={"driver": driver, "volumeHandle": handle or self._manifest["metadata"]["name"]})

    def source(self, **source: Manifest) -> Self:
        """Any other source, as in a manifest: `.source(nfs={"server": "s", "path": "/"})`."""
        none: dict[str, Manifest | None] = dict.fromkeys(_SOURCES)
        return self.set({"spec": none | source})


class ClaimBuilder(Builder[PersistentVolumeClaim]):
    def modes(self, *access_modes: str) -> Self:
        return self.set({"spec": {"accessModes": list(access_modes)}})

    def request(self, amount: str | None) -> Self:
        """Another size, or None for none (a server refuses that)."""
        return self.set({"spec": {"resources": {"requests": {"storage": amount}}}})

    def volume_mode(self, mode: str | None) -> Self:
        """None: not set."""
        return self.set({"spec": {"volumeMode": mode}})

    def attributes_class(self, name: str) -> Self:
        return self.set({"spec": {"volumeAttributesClassName": name}})

    def legacy_class(self, name: str) -> Self:
        return self.annotation(CLASS_ANNOTATION, name)

    def matching(self, labels: dict[str, str]) -> Self:
        return self.set({"spec": {"selector": {"matchLabels": labels}}})

    def matching_expression(self, key: str, operator: str, *values: str) -> Self:
        return self._append("spec.selector.matchExpressions", _expression(key, operator, *values))

    def selected(self, node_name: str) -> Self:
        return self.annotation(SELECTED_NODE, node_name)

    def wants(self, volume_name: str) -> Self:
        """`spec.volumeName`, as a user writes it: not bound yet."""
        return self.set({"spec": {"volumeName": volume_name}})

    def bound_to(self, volume_name: str) -> Self:
        """Fully bound, as the PV controller leaves it."""
        return self.wants(volume_name).annotation(BIND_COMPLETED, "yes").phase("Bound")

    def phase(self, phase: str) -> Self:
        return self.set({"status": {"phase": phase}})

    def deleting(self) -> Self:
        return self.set(_DELETING)

    def owned_by(self, pod: str, uid: str, *, controller: bool = True) -> Self:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": controller}
        return self._append("metadata.ownerReferences", owner)


class StorageClassBuilder(Builder[StorageClass]):
    """Waits for the first consumer; volumes are not provisioned."""

    def immediate(self) -> Self:
        return self.binding_mode("Immediate")

    def binding_mode(self, mode: str | None) -> Self:
        """None: not set, and a server fills it in."""
        return self.set({"volumeBindingMode": mode})

    def allowed(self, key: str, *values: str) -> Self:
        """One more term of `allowedTopologies`: terms are alternatives."""
        return self._append("allowedTopologies", {"matchLabelExpressions": [{"key": key, "values": list(values)}]})

    def default(self) -> Self:
        """For claims that name no class."""
        return self.annotation(DEFAULT_CLASS, "true")

    def reclaim(self, policy: str) -> Self:
        return self.set({"reclaimPolicy": policy})


class CSINodeBuilder(Builder[CSINode]):
    def driver(self, name: str, count: int | None = None, *, topology_keys: tuple[str, ...] = ()) -> Self:
        """One more driver; without a count it attaches any number."""
        added: Manifest = {"name": name, "nodeID": self._manifest["metadata"]["name"]}
        if topology_keys:
            added["topologyKeys"] = list(topology_keys)
        if count is not None:
            added["allocatable"] = {"count": count}
        return self._append("spec.drivers", added)

    def migrated(self, *plugins: str) -> Self:
        """In-tree plugins that CSI drivers replace."""
        return self.annotation(MIGRATED_PLUGINS, ",".join(plugins))


class CSIDriverBuilder(Builder[CSIDriver]):
    def tracks_capacity(self, does: bool = True) -> Self:
        return self.set({"spec": {"storageCapacity": does}})

    def must_be_registered(self) -> Self:
        """`spec.preventPodSchedulingIfMissing`: nodes without the driver take no pods that need it."""
        return self.set({"spec": {"preventPodSchedulingIfMissing": True}})


class CapacityBuilder(Builder[CSIStorageCapacity]):
    """For no node by default."""

    def everywhere(self) -> Self:
        """For all nodes: an empty selector."""
        return self.set({"nodeTopology": {}})

    def where(self, key: str, value: str) -> Self:
        """For nodes with this label."""
        return self.set({"nodeTopology": {"matchLabels": {key: value}}})

    def maximum(self, amount: str) -> Self:
        """`maximumVolumeSize`: the largest volume, whatever the capacity."""
        return self.set({"maximumVolumeSize": amount})


def a_pv(name: str, capacity: str = "1Gi", storage_class: str = "") -> PersistentVolumeBuilder:
    spec: Manifest = {
        "capacity": {"storage": capacity},
        "accessModes": _ONCE,
        "volumeMode": "Filesystem",
        "storageClassName": storage_class,
        "hostPath": {"path": f"/volumes/{name}"},
    }
    manifest = _manifest("v1", "PersistentVolume", {"name": name})
    return PersistentVolumeBuilder(manifest | {"spec": spec, "status": {"phase": "Available"}}, PersistentVolume)


def a_claim(name: str, request: str = "1Gi", storage_class: str | None = "", *, ns: str = "default") -> ClaimBuilder:
    """A claim that waits; a class of None is left to the cluster's default."""
    named = {} if storage_class is None else {"storageClassName": storage_class}
    spec = {"accessModes": _ONCE, "resources": {"requests": {"storage": request}}, "volumeMode": "Filesystem"} | named
    manifest = _manifest("v1", "PersistentVolumeClaim", {"name": name, "namespace": ns})
    return ClaimBuilder(manifest | {"spec": spec, "status": {"phase": "Pending"}}, PersistentVolumeClaim)


def a_class(name: str, provisioner: str = NO_PROVISIONER) -> StorageClassBuilder:
    """A class whose claims wait for their pod."""
    manifest = _manifest("storage.k8s.io/v1", "StorageClass", {"name": name})
    rest = {"provisioner": provisioner, "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER}
    return StorageClassBuilder(manifest | rest, StorageClass)


def a_csi_node(node_name: str) -> CSINodeBuilder:
    manifest = _manifest("storage.k8s.io/v1", "CSINode", {"name": node_name})
    return CSINodeBuilder(manifest | {"spec": {"drivers": []}}, CSINode)


def a_csi_driver(name: str) -> CSIDriverBuilder:
    return CSIDriverBuilder(_manifest("storage.k8s.io/v1", "CSIDriver", {"name": name}) | {"spec": {}}, CSIDriver)


def a_capacity(name: str, storage_class: str, capacity: str | None = None, *, ns: str = "default") -> CapacityBuilder:
    """The capacity of a class on the nodes of `where` or `everywhere`."""
    manifest = _manifest("storage.k8s.io/v1", "CSIStorageCapacity", {"name": name, "namespace": ns})
    told = {} if capacity is None else {"capacity": capacity}
    return CapacityBuilder(manifest | {"storageClassName": storage_class} | told, CSIStorageCapacity)


def an_attachment(volume_name: str, node_name: str, driver: str) -> Builder[VolumeAttachment]:
    manifest = _manifest("storage.k8s.io/v1", "VolumeAttachment", {"name": f"{volume_name}-{node_name}"})
    spec = {"attacher": driver, "nodeName": node_name, "source": {"persistentVolumeName": volume_name}}
    return Builder(manifest | {"spec": spec, "status": {"attached": True}}, VolumeAttachment)


_DELETING: Final = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}}


def _manifest(api_version: str, kind: str, metadata: Manifest) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _expression(key: str, operator: str, *values: str) -> Manifest:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
