"""The storage that the pods of a workload request, and how much of it there is: names, numbers and sizes.

localpv    one claim a pod; four local volumes of different sizes on each node, bound when the pod is placed
localpv1   the same with volumes of one size: whichever is free will do
localpv3   three claims a pod, two of them close in size; twelve local volumes on each node
dynamic    one claim a pod, provisioned where the pod is placed; each node publishes its capacity, always enough
csi        one claim a pod, bound before; each node can attach 39 volumes
burst      two claims a pod, provisioned as in `dynamic`, but capacity is short: a tenth more than is requested, on nodes
           that differ in it and publish what is left a minute late. Any node that can hold a part of a pod can hold all:
           all pods request the same total, and nodes have multiples of that.
"""

from collections.abc import Mapping
from dataclasses import dataclass

LOCAL, LOCAL_EQUAL, LOCAL_THREE, DYNAMIC, CSI, BURST = "localpv", "localpv1", "localpv3", "dynamic", "csi", "burst"
CLASS = "bench"
DRIVER = "bench.csi.example.com"
ATTACH_LIMIT = 39
STEPS_MIB = (5 * 1024, 10 * 1024, 20 * 1024, 50 * 1024)
"""Volumes of local disks are a little larger than one of these, claims one or two GiB smaller."""
BURST_POD_MIB = 12 * 1024
_BURST_FIRST_MIB = (6 * 1024, 4 * 1024, 2 * 1024)
_BURST_SLACK = 1.1
_ROOM_MIB = 1024 * 1024
_FILLED_AT_MOST = 0.6  # of the local volumes: small claims may take large ones, and no claim may be left without


@dataclass(frozen=True, slots=True)
class Kind:
    """What a workload's storage is like."""

    claims_per_pod: int
    local_per_node: int = 0
    is_provisioned: bool = False
    attach_limit: int | None = None
    warm_up: int = 0
    """None where pods wait for a controller before they are bound. A scheduler that lets many wait at once would have
    done most of its work before the first one is bound. So all of them count, from the moment that it could begin."""
    limit_s: float = 120.0


KINDS: Mapping[str, Kind] = {
    LOCAL: Kind(1, local_per_node=len(STEPS_MIB)),
    LOCAL_EQUAL: Kind(1, local_per_node=len(STEPS_MIB)),
    LOCAL_THREE: Kind(3, local_per_node=3 * len(STEPS_MIB)),
    DYNAMIC: Kind(1, is_provisioned=True),
    CSI: Kind(1, attach_limit=ATTACH_LIMIT, warm_up=50),
    BURST: Kind(2, is_provisioned=True, limit_s=300.0),
}


def claim_names(workload: str, pod_name: str) -> list[str]:
    """In the order of the pod's volumes."""
    kind = KINDS.get(workload)
    return [f"{pod_name}-{number}" for number in range(kind.claims_per_pod)] if kind else []


def pod_volumes(workload: str, pod_name: str) -> dict[str, object]:
    """The part of a pod's spec; none for workloads without claims."""
    names = claim_names(workload, pod_name)
    volumes = [{"name": f"data-{i}", "persistentVolumeClaim": {"claimName": name}} for i, name in enumerate(names)]
    return {"volumes": volumes} if volumes else {}


def claim_mib(workload: str, index: int, shapes: int, number: int) -> int:
    """Size of claim `number` of pod `index`; it differs between shapes."""
    shape, step = index % shapes, index % shapes + index // shapes
    if workload in {LOCAL, LOCAL_THREE}:
        # The first two of three want volumes of one size, the last one of another.
        return STEPS_MIB[(step + 2 * (number // 2)) % len(STEPS_MIB)] - 1024 - 16 * (shape % 50) - 4 * number
    if workload == LOCAL_EQUAL:
        return STEPS_MIB[0] - 16 * (shape % 50)
    if workload == BURST:
        first = _BURST_FIRST_MIB[step % len(_BURST_FIRST_MIB)]
        return first if number == 0 else BURST_POD_MIB - first
    return 1024 + 16 * shape


def local_mib(workload: str, node: int, number: int) -> int:
    """Size of local volume `number` of a node; but for `localpv1` hardly any two in the cluster are equal."""
    if workload == LOCAL_EQUAL:
        return STEPS_MIB[0]
    return STEPS_MIB[number % len(STEPS_MIB)] + (37 * node + 11 * number) % 101


def free_mib(workload: str, node: int, *, nodes: int, pods: int) -> int:
    """What can be provisioned on a node."""
    if workload != BURST:
        return _ROOM_MIB
    mean = -(-round(_BURST_SLACK * pods) // nodes)
    return (mean + (node % 3 - 1) * (mean // 2)) * BURST_POD_MIB


def problem(workload: str, *, nodes: int, pods: int) -> str:
    """Why storage may not be enough for this number of pods, the warm-up included; empty if it is."""
    kind = KINDS.get(workload)
    if kind is None:
        return ""
    claims = pods * kind.claims_per_pod
    if kind.local_per_node and claims > _FILLED_AT_MOST * nodes * kind.local_per_node:
        return f"{claims} claims are too many for {nodes * kind.local_per_node} local volumes: more nodes"
    if kind.attach_limit is not None and claims > nodes * kind.attach_limit:
        return f"{nodes} nodes cannot attach {claims} volumes: more nodes"
    if workload == BURST:
        room = sum(free_mib(workload, node, nodes=nodes, pods=pods) for node in range(nodes))
        if nodes < 3 or room < pods * BURST_POD_MIB:
            return "the capacity of so few nodes cannot be divided: three nodes or a multiple"
    return ""
