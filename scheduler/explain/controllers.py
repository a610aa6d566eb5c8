"""What controllers set again after a change: pods, and the labels and taints of nodes.

A pod of a DaemonSet and a static pod come back to their node. A pod of another controller is created again, and may take the
capacity that its deletion has freed. The kubelet and the cloud provider set some labels and taints of nodes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from scheduler.api.core_v1 import Pod, Taint
from scheduler.api.node_affinity import UNSCHEDULABLE_TAINT
from scheduler.cache.workloads import controller_of

CREATED_UID: Final = "kubestow-what-if-"
"""The uid of an object that exists only in an overlay begins so."""
_STAYING: Final = frozenset({"DaemonSet", "Node"})
OWNED_LABELS: Final = frozenset(
    {
        *(f"{prefix}kubernetes.io/{name}" for prefix in ("", "beta.") for name in ("arch", "os")),
        "kubernetes.io/hostname",
        *("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
        *(f"topology.kubernetes.io/{name}" for name in ("zone", "region")),
        *(f"failure-domain.beta.kubernetes.io/{name}" for name in ("zone", "region")),
    }
)
"""Labels of nodes that say what the node is. The kubelet and the cloud provider set them."""
_OF_NODES: Final = "node.kubernetes.io/"
_OF_PROVIDERS: Final = "node.cloudprovider.kubernetes.io/"
_CONDITIONS: Final = {
    f"{_OF_NODES}not-ready": "is not ready",
    f"{_OF_NODES}unreachable": "is unreachable",
    f"{_OF_NODES}memory-pressure": "has memory pressure",
    f"{_OF_NODES}disk-pressure": "has disk pressure",
    f"{_OF_NODES}pid-pressure": "has PID pressure",
    f"{_OF_NODES}network-unavailable": "has no network",
    f"{_OF_NODES}out-of-service": "is out of service",
    f"{_OF_PROVIDERS}uninitialized": "is not initialized by the cloud provider",
    f"{_OF_PROVIDERS}shutdown": "is shut down",
}


def stays(pod: Pod) -> bool:
    """Return whether the pod belongs to its node: a DaemonSet's pod, or a static one."""
    controller = controller_of(pod)
    return controller is not None and controller.kind in _STAYING


def comes_back(pod: Pod) -> bool:
    """Return whether a controller creates the pod again, on any node, once it is deleted."""
    is_leaving = pod.metadata.deletion_timestamp is not None  # its successor may exist already
    return controller_of(pod) is not None and not stays(pod) and not is_leaving


def are_siblings(one: Pod, other: Pod) -> bool:
    """Return whether both pods have the same controller."""
    controller = controller_of(one)
    return controller is not None and controller == controller_of(other)


def successor(pod: Pod, scheduler_name: str) -> Pod:
    """Return the pod that its controller creates after it has left its node."""
    metadata = msgspec.structs.replace(pod.metadata, uid=f"{CREATED_UID}{pod.metadata.uid}", deletion_timestamp=None)
    spec = msgspec.structs.replace(pod.spec, node_name="", scheduler_name=scheduler_name)
    status = msgspec.structs.replace(pod.status, nominated_node_name="")
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=status)


def node_copy_of(pod: Pod, node: str) -> Pod:
    """Return the pod that stands for a pod that stays, on a new node."""
    name, uid = f"{pod.metadata.name}-{node}", f"{CREATED_UID}{pod.metadata.uid}-{node}"
    metadata = msgspec.structs.replace(pod.metadata, name=name, uid=uid)
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=node))


def condition(taint: Taint) -> str:
    """Return what a taint says about its node, if the node or the cloud provider sets it; "" for other taints."""
    if not taint.key.startswith((_OF_NODES, _OF_PROVIDERS)) or taint.key == UNSCHEDULABLE_TAINT.key:
        return ""
    return _CONDITIONS.get(taint.key, "has a condition")
