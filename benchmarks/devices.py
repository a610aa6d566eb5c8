"""The devices that the pods of a workload request, and how many there are: names, numbers and selectors.

The workloads:

dra            one of the four with enough memory of eight devices of a node, by a selector on attributes and capacity.
dra2           two of them, of one NUMA node.
models         one device, where half of the nodes have devices of another model.
models2        two of one NUMA node, the same.
template       one of ten, by a claim that is made from a template for each pod. With ten pods a node all are taken.
consumable     a part of the memory of one of two shared devices.
partitionable  a whole, a half or a quarter of one of four: seven devices for each, which take from its counters.
gangs-dra      as dra2, and the pods are in groups (`gangs`).
gangs-claim    one device, by a claim that all pods of a group share.

Other selectors are true for every device of the model. Each shape has different constants, so that it must be evaluated
separately. Amounts and parts also differ among the pods of one shape.
"""

from collections.abc import Mapping
from dataclasses import dataclass

ONE, TWO, ONE_OF_MODELS, TWO_OF_MODELS = "dra", "dra2", "models", "models2"
TEMPLATE, CONSUMABLE, PARTITIONABLE = "template", "consumable", "partitionable"
GANGS_WITH_DEVICES, GANGS_WITH_ONE_CLAIM = "gangs-dra", "gangs-claim"
CLASS = "bench"
DRIVER = "bench.dra.example.com"
NUMA = f"{DRIVER}/numa"
"""The attribute that the two devices of a claim have in common."""
REQUEST = "device"
"""Name of the one request of each claim, and of the pod's entry for it."""
MODEL, OTHER_MODEL, VERSION = "A100", "H100", "1.2.3"
_NODES_OF_A_MODEL = 10
"""Neighbours, one of each zone."""
SHARED_MIB = 8 * 1024
SHARE_STEP_MIB = 64
"""Shares of a device are rounded up to a multiple."""
PART_MIB = 40 * 1024
PROFILES = {"whole": 1, "half": 2, "quarter": 4}
"""Class and attribute of the parts of a device: this number makes the whole."""
_PROFILE_OF_STEP = ("quarter", "half", "quarter", "whole")
_FIRST_SHARE_MIB = 1024
_LARGEST_SHARE_MIB = 2048
_FILLED_AT_MOST = 0.6  # a quarter of the pods insists on a zone, and the rest may have been there first


@dataclass(frozen=True, slots=True)
class Kind:
    """What a workload's devices are like."""

    per_node: int
    pods_per_node: int
    """This number has devices on a node in any case, whatever they request."""
    count: int = 1
    """Devices of a claim."""
    is_template: bool = False
    least_mib: int = 512
    """The least memory of a selector; each shape requires a little more."""
    has_models: bool = False
    """Half of the nodes have devices that no selector is true for."""
    warm_up: int = 0
    """None: claims are written before a pod is bound, and a scheduler may have decided on many before that. So all of them
    count, from the moment that it could begin."""
    limit_s: float = 120.0


KINDS: Mapping[str, Kind] = {
    ONE: Kind(8, pods_per_node=4, least_mib=2049),
    TWO: Kind(8, pods_per_node=4, count=2),
    ONE_OF_MODELS: Kind(8, pods_per_node=8, has_models=True),
    TWO_OF_MODELS: Kind(8, pods_per_node=4, count=2, has_models=True),
    TEMPLATE: Kind(10, pods_per_node=10, is_template=True),
    CONSUMABLE: Kind(2, pods_per_node=2 * (SHARED_MIB // _LARGEST_SHARE_MIB)),
    PARTITIONABLE: Kind(4, pods_per_node=4),
    GANGS_WITH_DEVICES: Kind(8, pods_per_node=4, count=2),
    GANGS_WITH_ONE_CLAIM: Kind(8, pods_per_node=50),
}


def claim_name(pod_name: str) -> str:
    """Of the claim of a pod, where it is not made from a template."""
    return f"{pod_name}-{REQUEST}"


def template_name(shape: int) -> str:
    return f"shape-{shape}"


def pod_claims(workload: str, pod_name: str, shape: int) -> dict[str, object]:
    """The part of a pod's spec; none for workloads without devices."""
    kind = KINDS.get(workload)
    if kind is None:
        return {}
    if kind.is_template:
        source = {"resourceClaimTemplateName": template_name(shape)}
    else:
        source = {"resourceClaimName": claim_name(pod_name)}
    return {"resourceClaims": [{"name": REQUEST} | source]}


def model_of_node(workload: str, index: int) -> str:
    """What the devices of node `index` are."""
    return OTHER_MODEL if KINDS[workload].has_models and index // _NODES_OF_A_MODEL % 2 else MODEL


def selector(shape: int, least_mib: int) -> str:
    """A CEL expression over both attributes and the capacity."""
    attributes, capacity = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'
    return (
        f'{attributes}.model == "{MODEL}" && {attributes}.driverVersion.compareTo(semver("1.0.{shape}")) >= 0'
        f' && {capacity}.memory.compareTo(quantity("{least_mib + shape}Mi")) >= 0'
    )


def class_of(workload: str, index: int, shapes: int) -> str:
    """The DeviceClass of pod `index`."""
    if workload != PARTITIONABLE:
        return CLASS
    return _PROFILE_OF_STEP[(index % shapes + index // shapes) % len(_PROFILE_OF_STEP)]


def share_mib(index: int, shapes: int) -> int:
    """The memory of a shared device that pod `index` requests; it differs between shapes."""
    shape, step = index % shapes, index % shapes + index // shapes
    return _FIRST_SHARE_MIB + 256 * (step % 4) + shape % 200


def consumed_mib(asked_mib: int) -> int:
    """What it is given."""
    return -(-asked_mib // SHARE_STEP_MIB) * SHARE_STEP_MIB


def problem(workload: str, *, nodes: int, pods: int) -> str:
    """Why devices may not be enough for this number of pods; empty if they are."""
    kind = KINDS.get(workload)
    if kind is None:
        return ""
    room = sum(model_of_node(workload, index) == MODEL for index in range(nodes)) * kind.pods_per_node
    most = room if kind.is_template else int(_FILLED_AT_MOST * room)
    return f"the devices of {nodes} nodes are enough for {most} pods, not for {pods}: more nodes" if pods > most else ""
