"""What controllers set again after a change: pods, and the labels and taints of nodes.

A pod of a DaemonSet and a static pod come back to their node. A pod of another controller is created again, and may take the
capacity that its deletion has freed. A label or taint of a node whose key has a domain belongs to a component, such as the
kubelet, the cloud provider, an autoscaler or a network plugin. It sets the label or taint again, or it removes the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from scheduler.api.core_v1 import Node, Pod, Taint, controller_of
from scheduler.api.node_affinity import HARD_EFFECTS, UNSCHEDULABLE_TAINT, tolerated

CREATED_UID: Final = "kubestow-what-if-"
"""The uid of an object that exists only in an overlay begins so."""
_STAYING: Final = frozenset({"DaemonSet", "Node"})
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
"""Taint key → what it says about the node. The kubelet, the node lifecycle controller or the cloud provider sets it."""
_COMPONENTS: Final = {
    "ToBeDeletedByClusterAutoscaler": "Cluster Autoscaler is removing node {}",
    "startup-taint.cluster-autoscaler.kubernetes.io/": "node {} is starting",
    "ignore-taint.cluster-autoscaler.kubernetes.io/": "node {} is starting",
    "karpenter.sh/unregistered": "Karpenter has not registered node {} yet",
    "karpenter.sh/": "Karpenter is removing node {}",
    "node.cluster.x-k8s.io/uninitialized": "Cluster API has not initialized node {} yet",
    "node.cilium.io/": "Cilium is not ready on node {}",
    "ebs.csi.aws.com/agent-not-ready": "the EBS CSI driver is not ready on node {}",
    "efs.csi.aws.com/agent-not-ready": "the EFS CSI driver is not ready on node {}",
    "aws-node-termination-handler/": "AWS Node Termination Handler is draining node {}",
    "cloud.google.com/impending-node-termination": "Google Cloud is terminating node {}",
}
"""Taint key, or the start of keys up to the slash → what the component does that sets the taint."""
_PURPOSES: Final = frozenset(
    {
        "cloud.google.com/gke-spot",
        "kubernetes.azure.com/scalesetpriority",
        "kubernetes.io/arch",
        "virtual-kubelet.io/provider",
    }
)
"""Taints that say what a node is for. The cloud provider sets them, and its users tolerate them."""
_OF_ADMINISTRATORS: Final = ("node-role.kubernetes.io/", "node-restriction.kubernetes.io/")
"""Domains of labels and taints that administrators set by hand."""
_CORDONS: Final[Mapping[str, tuple[str, str]]] = {
    "aws-node-termination-handler/action": ("", "AWS Node Termination Handler has cordoned node {}"),
    "weave.works/kured-reboot-in-progress": ("", "Kured is rebooting node {}"),
    "machineconfiguration.openshift.io/state": ("Working", "the Machine Config Operator is updating node {}"),
}
"""Label or annotation of a cordoned node → its value ("" for any), and what the component does that cordoned it."""


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


def is_owned(key: str) -> bool:
    """Return whether a component sets a label or taint again after a change: a key with a domain, except administrators'."""
    return "/" in key and not key.startswith(_OF_ADMINISTRATORS)


def obstacle(taint: Taint, node: Node) -> str:
    """Return why the taint can be neither tolerated nor removed, as a sentence; "" if the pod may tolerate it.

    A component that taints a node says that the node starts, leaves or is broken. Exceptions are taints that say what the node is
    for: the known ones, and those whose key is an extended resource of the node, as the admission plugin
    ExtendedResourceToleration assumes.
    """
    key, name = taint.key, node.metadata.name
    if key == UNSCHEDULABLE_TAINT.key:
        return ""
    if key.startswith((_OF_NODES, _OF_PROVIDERS)):
        return f"node {name} {_CONDITIONS.get(key, 'has a condition')} (taint {key}): repair it"
    for start, text in _COMPONENTS.items():
        if key == start or (start.endswith("/") and key.startswith(start)):
            return f"{text.format(name)} (taint {key})"
    if not is_owned(key) or key in _PURPOSES or key in node.status.allocatable:
        return ""
    domain = key.partition("/")[0]
    return f"node {name} has the taint {taint.text}: only the owner of {domain} knows whether the pod may tolerate it"


def untolerated(pod: Pod, node: Node) -> list[tuple[int, Taint]]:
    """Return the taints of the node that keep the pod away, with their indexes."""
    hard = ((at, taint) for at, taint in enumerate(node.spec.taints) if taint.effect in HARD_EFFECTS)
    return [(at, taint) for at, taint in hard if not tolerated(pod.spec.tolerations, taint)]


def obstacles(pod: Pod, node: Node) -> list[str]:
    """Return why changes of this node do not help the pod: its departure, and taints that stay and are not tolerated."""
    found = [departure(node), *(obstacle(taint, node) for _, taint in untolerated(pod, node))]
    return list(dict.fromkeys(filter(None, found)))


def departure(node: Node) -> str:
    """Return why a node is not made schedulable again, as a sentence: it is being deleted, or a component cordoned it; else ""."""
    name, metadata = node.metadata.name, node.metadata
    if metadata.deletion_timestamp is not None:
        return f"node {name} is being deleted"
    if not node.spec.unschedulable:
        return ""
    for key, (value, text) in _CORDONS.items():
        found = metadata.labels.get(key, metadata.annotations.get(key))
        if found is not None and value in {"", found}:
            return f"{text.format(name)} ({key})"
    return next((found for taint in node.spec.taints if (found := obstacle(taint, node))), "")
