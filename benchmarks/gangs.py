"""Groups of pods that start together or not at all: their sizes, names, objects and rules. Knows no server and no scheduler.

gangs3            three plain pods.
gangs1000         a thousand plain pods.
racks             four plain pods, all on nodes of one rack; there are 50 racks.
gangs-dra         sixteen pods, each with two devices of one NUMA node.
gangs-claim       fifty pods with one claim, for one device.
gangs-preemption  a hundred pods, for each of which ten pods have to leave.

The objects are PodGroups of scheduling.k8s.io, which Kubernetes has since 1.37 behind the gates.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from benchmarks.devices import GANGS_WITH_DEVICES, GANGS_WITH_ONE_CLAIM
from benchmarks.preempting import GANGS_THAT_PREEMPT, HIGH_CLASS, PREEMPTIONS

GANGS_OF_THREE, GANGS_OF_THOUSAND, RACKS = "gangs3", "gangs1000", "racks"
SIZES: Mapping[str, int] = {
    GANGS_OF_THREE: 3,
    GANGS_OF_THOUSAND: 1000,
    RACKS: 4,
    GANGS_WITH_DEVICES: 16,
    GANGS_WITH_ONE_CLAIM: 50,
    GANGS_THAT_PREEMPT: 100,
}
"""Pods of a group, by workload."""
RELEASES = ("1.37", "1.38")
GATES = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
"""Of the API server and of kube-scheduler."""
SERVER_FLAGS = (GATES, "--runtime-config=scheduling.k8s.io/v1beta1=true")
RACK = "rack"
_RACK_COUNT = 50


def group_name(pod_name: str, index: int, size: int) -> str:
    """Of the group of pod `index`. The names of all pods of a run begin alike."""
    return f"{pod_name.rpartition('-')[0]}-group-{index // size:06d}"


def pod_group(workload: str, pod_name: str, index: int) -> dict[str, object]:
    """The part of a pod's spec; none for workloads without groups."""
    if workload not in SIZES:
        return {}
    return {"schedulingGroup": {"podGroupName": group_name(pod_name, index, SIZES[workload])}}


def owner_of_claim(workload: str, pod_name: str, index: int) -> str:
    """Return the pod or the group that the pod's claim is named after."""
    return group_name(pod_name, index, SIZES[workload]) if workload == GANGS_WITH_ONE_CLAIM else pod_name


def group_bodies(workload: str, pod_names: Sequence[str]) -> Iterator[bytes]:
    """The objects of all groups of these pods."""
    size = SIZES[workload]
    for index in range(0, len(pod_names), size):
        name, topology_key = group_name(pod_names[index], index, size), RACK if workload == RACKS else ""
        yield group_body(name, size, topology_key, HIGH_CLASS if workload in PREEMPTIONS else "")


def group_body(name: str, least: int, topology_key: str = "", priority_class: str = "") -> bytes:
    """A group with this minimum; all of it on nodes with one value of the label, if one is given."""
    spec: dict[str, object] = {"schedulingPolicy": {"gang": {"minCount": least}}}
    if priority_class:
        spec["priorityClassName"] = priority_class
    if topology_key:
        spec["schedulingConstraints"] = {"topology": [{"key": topology_key}]}
    return msgspec.json.encode(
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def node_labels(workload: str, node: int) -> dict[str, str]:
    """The rack of a node; none for workloads without racks."""
    return {RACK: rack_of_node(node)} if workload == RACKS else {}


def rack_of_node(node: int) -> str:
    return f"rack-{node % _RACK_COUNT:02d}"


def broken_rules(workload: str, node_of: Mapping[int, int]) -> int:
    """Groups of which a part is bound, and groups in two racks. `node_of`: the node's number by the pod's."""
    if workload not in SIZES:
        return 0
    bound = Counter(pod // SIZES[workload] for pod in node_of)
    racks: dict[int, set[str]] = defaultdict(set)
    for pod, node in node_of.items():
        racks[pod // SIZES[workload]].add(rack_of_node(node))
    is_spread = {group for group, values in racks.items() if workload == RACKS and len(values) > 1}
    return len(is_spread | {group for group, count in bound.items() if count < SIZES[workload]})


def problem(workload: str, pods: int) -> str:
    """Why these pods are no groups; empty if they are."""
    size = SIZES.get(workload, 1)
    return f"{pods} pods are not a multiple of {size}, the size of a group" if pods % size else ""
