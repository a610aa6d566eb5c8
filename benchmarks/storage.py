"""The storage objects of a run as bodies ready to be posted: classes, drivers, capacities, volumes and claims.

Deterministic, as `workload`. Knows no server; `storageload` posts them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from benchmarks.volumes import CLASS, DRIVER, KINDS, Kind, claim_mib, claim_names, free_mib, local_mib
from benchmarks.workload import NAMESPACE, Workload, node_name
from scheduler.api.storage_v1 import BIND_COMPLETED, BOUND_BY_CONTROLLER, NO_PROVISIONER

HOSTNAME = "kubernetes.io/hostname"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Storage:
    """Of one workload that has claims."""

    workload: Workload

    @property
    def kind(self) -> Kind:
        return KINDS[self.workload.name]

    # -- what stays for all runs -------------------------------------------------------------------------------------

    def storage_class(self) -> bytes:
        return _encode(
            {
                "metadata": {"name": CLASS},
                "provisioner": NO_PROVISIONER if self.kind.local_per_node else DRIVER,
                "volumeBindingMode": "WaitForFirstConsumer",
                "reclaimPolicy": "Delete",
            }
        )

    def drivers(self) -> list[bytes]:
        """CSIDrivers."""
        if self.kind.local_per_node:
            return []
        spec = {"storageCapacity": self.kind.is_provisioned, "attachRequired": not self.kind.is_provisioned}
        return [_encode({"metadata": {"name": DRIVER}, "spec": spec})]

    def csi_nodes(self) -> Iterator[bytes]:
        """One per node, as kubelets write them."""
        for index in range(0 if self.kind.local_per_node else self.workload.nodes):
            driver: dict[str, object] = {"name": DRIVER, "nodeID": node_name(index), "topologyKeys": [HOSTNAME]}
            if self.kind.attach_limit is not None:
                driver["allocatable"] = {"count": self.kind.attach_limit}
            yield _encode({"metadata": {"name": node_name(index)}, "spec": {"drivers": [driver]}})

    # -- what is new in each run --------------------------------------------------------------------------------------

    def capacities(self) -> Iterator[bytes]:
        """One CSIStorageCapacity per node, as a provisioner on each would write them."""
        for index in range(self.workload.nodes if self.kind.is_provisioned else 0):
            yield _encode(
                {
                    "metadata": {"name": node_name(index)},
                    "storageClassName": CLASS,
                    "nodeTopology": {"matchLabels": {HOSTNAME: node_name(index)}},
                    "capacity": f"{self.free_mib(index)}Mi",
                }
            )

    def free_mib(self, node: int) -> int:
        """What can be provisioned on a node, before anything is."""
        return free_mib(self.workload.name, node, nodes=self.workload.nodes, pods=self.workload.all_pods)

    def local_volumes(self) -> Iterator[tuple[str, bytes]]:
        """Name and body of every static volume."""
        for node in range(self.workload.nodes):
            for number in range(self.kind.local_per_node):
                name = f"local-{node:05d}-{number:02d}"
                spec = {
                    "local": {"path": f"/mnt/disks/{name}"},
                    "nodeAffinity": on_node(node_name(node)),
                }
                yield name, volume_body(name, f"{local_mib(self.workload.name, node, number)}Mi", spec)

    def claims(self, pod_name: str, index: int) -> Iterator[tuple[str, bytes]]:
        """Name and body of every claim of a pod."""
        for number, name in enumerate(claim_names(self.workload.name, pod_name)):
            metadata: dict[str, object] = {"name": name, "namespace": NAMESPACE}
            spec: dict[str, object] = {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": CLASS,
                "resources": {"requests": {"storage": self.claimed(index, number)}},
            }
            if self.has_bound_claims:
                metadata["annotations"] = {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}
                spec["volumeName"] = f"pv-{name}"
            yield name, _encode({"metadata": metadata, "spec": spec})

    def claimed(self, index: int, number: int) -> str:
        """The request of a claim, as a quantity."""
        return f"{claim_mib(self.workload.name, index, self.workload.shapes, number)}Mi"

    @property
    def has_bound_claims(self) -> bool:
        """Whether claims and volumes come bound."""
        return not self.kind.local_per_node and not self.kind.is_provisioned


def volume_body(name: str, size: str, spec: dict[str, Any]) -> bytes:
    """A PersistentVolume of the class."""
    common = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": CLASS,
        "persistentVolumeReclaimPolicy": "Delete",
    }
    provisioned = {"annotations": {PROVISIONED_BY: DRIVER}} if "csi" in spec else {}
    return _encode({"metadata": {"name": name} | provisioned, "spec": common | spec})


def csi_volume_body(name: str, size: str, *, claim_name: str, claim_uid: str, node: str = "") -> bytes:
    """A CSI volume for one claim, on one node or on any."""
    spec: dict[str, Any] = {
        "csi": {"driver": DRIVER, "volumeHandle": name},
        "claimRef": {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "namespace": NAMESPACE,
            "name": claim_name,
            "uid": claim_uid,
        },
    }
    return volume_body(name, size, spec | ({"nodeAffinity": on_node(node)} if node else {}))


def on_node(name: str) -> dict[str, object]:
    """A volume's affinity to one node."""
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [name]}]}
    return {"required": {"nodeSelectorTerms": [term]}}
