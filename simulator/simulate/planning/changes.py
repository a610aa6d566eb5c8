"""Change the input of a simulation as an operator would change the cluster: add, cordon and drain nodes, scale workloads.

Nodes are copied as what-if copies them. A copy also gets the CSIStorageCapacity objects that belong to the node alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scheduler.api.core_v1 import Node, Pod, controller_of
from scheduler.api.resource_v1 import ResourceSlice
from scheduler.core.terminal import counted
from scheduler.explain.changes import copy_edits, copy_name
from scheduler.explain.controllers import stays
from scheduler.explain.edits import complete, plain
from simulator.simulate.input.complete import completed_node, is_leaving
from simulator.simulate.input.manifests import Found, InputError, Manifest, cleaned, decoded
from simulator.workloads.specs import MOST_PODS

SCALED: Final[Mapping[str, str]] = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "StatefulSet": "replicas",
    "Job": "parallelism",
}
"""Kinds that can be scaled, and the field of `spec` that says how many pods they have."""
_EXTENDED_RESOURCE: Final = "resource.kubernetes.io/extended-resource-claim"


@dataclass(frozen=True, slots=True)
class Scale:
    """A workload and its new number of pods. Without `namespace` the name must be unique in the input."""

    kind: str
    namespace: str
    name: str
    count: int

    @classmethod
    def of(cls, workload: str, count: int) -> Scale:
        """Return the new size of `KIND/NAME` or `KIND/NAMESPACE/NAME`. Raises ValueError for another text or kind."""
        kind, *names = workload.split("/")
        if kind not in SCALED or len(names) not in {1, 2} or not all(names) or count < 0:
            expected = f"KIND/NAME or KIND/NAMESPACE/NAME with at least 0 pods, and a kind of {', '.join(SCALED)}"
            raise ValueError(f"scale: {workload!r} with {count} pods: expected {expected}")
        return cls(kind, names[0] if len(names) == 2 else "", names[-1], count)


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of the cluster, in force before the first pod is placed."""

    add_nodes_like: Mapping[str, int] = field(default_factory=dict)
    drain: tuple[str, ...] = ()
    cordon: tuple[str, ...] = ()
    scale: tuple[Scale, ...] = ()

    @classmethod
    def of(
        cls,
        add_nodes_like: Iterable[tuple[str, int]],
        drain: Iterable[str],
        cordon: Iterable[str],
        scale: Iterable[tuple[str, str, str, int]],
    ) -> Changes:
        """Return the changes of a command line. Nodes that are added twice add up."""
        like: Counter[str] = Counter()
        for node, count in add_nodes_like:
            like[node] += count
        return cls(dict(like), tuple(drain), tuple(cordon), tuple(Scale(*each) for each in scale))

    @property
    def texts(self) -> list[str]:
        """Return one phrase for each change."""
        return [
            *(f"add {counted(count, 'node')} like {name}" for name, count in self.add_nodes_like.items()),
            *(f"drain {name}" for name in dict.fromkeys(self.drain)),
            *(f"cordon {name}" for name in dict.fromkeys(self.cordon)),
            *(f"scale {each.kind} {each.name} to {each.count}" for each in self.scale),
        ]

    def with_nodes(self, like: str, count: int) -> Changes:
        """Return these changes and `count` further nodes like this one."""
        more = self.add_nodes_like.get(like, 0) + count
        return replace(self, add_nodes_like={**self.add_nodes_like, like: more}) if more else self


@dataclass(frozen=True, slots=True)
class ChangedInput:
    """The changed objects."""

    objects: list[Found]
    abandoned: Mapping[str, str]
    """Pods of drained nodes that are gone, by namespace/name, and why."""


def changed(objects: Sequence[Found], changes: Changes) -> ChangedInput:
    """Apply the changes. Added nodes are as their model was before the other changes. Raises InputError.

    Cost: one pass over the objects for each node that is named, and for each workload.
    """
    added = [
        copy
        for name, count in changes.add_nodes_like.items()
        for copy in _copies(objects, node_named(objects, name, "--add-node-like"), count)
    ]
    found = [*objects, *added]
    existing = {(each.kind, each.namespace, each.name) for each in objects}
    for each in added:
        if (each.kind, each.namespace, each.name) in existing:
            raise InputError(f"--add-node-like: the input has {each.kind} {each.name}, the name of a copy, already")
    for flag, names in (("--cordon", changes.cordon), ("--drain", changes.drain)):
        for name in dict.fromkeys(names):
            node = node_named(found, name, flag)
            spec = (node.value.get("spec") or {}) | {"unschedulable": True}
            found = [replace(each, value=each.value | {"spec": spec}) if each is node else each for each in found]
    for scale in changes.scale:
        workload = _workload(found, scale)
        if scale.count > MOST_PODS:
            text = f"--scale {scale.kind}/{scale.name}={scale.count}"
            raise InputError(f"{text}: is more than the {MOST_PODS} pods that can be simulated")
        spec = (workload.value.get("spec") or {}) | {SCALED[scale.kind]: scale.count}
        found = [replace(each, value=each.value | {"spec": spec}) if each is workload else each for each in found]
    return _drained(found, frozenset(changes.drain)) if changes.drain else ChangedInput(found, {})


def node_named(objects: Sequence[Found], name: str, flag: str) -> Found:
    """Return the node. Raises InputError, which names the flag."""
    for each in objects:
        if each.kind == "Node" and each.name == name:
            return each
    raise InputError(f"{flag}: the input has no node {name}")


def _workload(objects: Sequence[Found], scale: Scale) -> Found:
    found = [
        each
        for each in objects
        if (each.kind, each.name) == (scale.kind, scale.name) and scale.namespace in {"", each.namespace}
    ]
    named = f"{scale.namespace}/{scale.name}" if scale.namespace else scale.name
    if not found:
        raise InputError(f"--scale: the input has no {scale.kind} {named}")
    if len(found) > 1:
        places = ", ".join(each.namespace for each in found)
        hint = f"--scale {scale.kind}/{found[0].namespace}/{scale.name}={scale.count}"
        raise InputError(f"--scale: {scale.kind} {named} is in several namespaces ({places}); name one: {hint}")
    return found[0]


# -- copies of nodes -----------------------------------------------------------------------------------------------------


def _copies(objects: Sequence[Found], model: Found, count: int) -> Iterator[Found]:
    """Yield copies of the node with their CSINode, devices and storage, and the pods that no DaemonSet creates for them."""
    name = model.name
    node = decoded(model, Node, completed_node(model).value)
    csi_nodes = [each.value for each in objects if (each.kind, each.name) == ("CSINode", name)]
    slices = [each for each in objects if _node_of_slice(each) == name]
    for each in slices:
        decoded(each, ResourceSlice, each.value)
    capacities = [each for each in objects if each.kind == "CSIStorageCapacity" and _own_labels(each, node)]
    daemon_sets = {(each.namespace, each.name) for each in objects if each.kind == "DaemonSet"}
    pods = [each for each in objects if _node_of(each) == name and _is_copied(each, daemon_sets)]
    for number in range(1, count + 1):
        copy = copy_name(name, number)
        where = f"copy {copy} of node {name}"
        for edit in copy_edits(
            plain(node), csi_nodes[0] if csi_nodes else None, (each.value for each in slices), number
        ):
            made = cleaned(complete(edit).manifest, where)
            yield Found(made.value, made.where)
        for each in capacities:
            topology = each.value["nodeTopology"]
            labels = topology["matchLabels"] | dict.fromkeys(_own_labels(each, node), copy)
            own = {"nodeTopology": topology | {"matchLabels": labels}}
            yield Found(_renamed(each, f"{each.name}-{copy}") | own, where)
        for each in pods:
            value = _renamed(each, f"{each.name}-{copy}")
            spec = each.value["spec"] | {"nodeName": copy}
            yield Found({key: part for key, part in value.items() if key != "status"} | {"spec": spec}, where)


def _renamed(found: Found, name: str) -> Manifest:
    return found.value | {"metadata": found.value["metadata"] | {"name": name}}


def _node_of_slice(found: Found) -> str:
    return str((found.value.get("spec") or {}).get("nodeName", "")) if found.kind == "ResourceSlice" else ""


def _own_labels(capacity: Found, node: Node) -> list[str]:
    """Return the labels by which the capacity belongs to this node alone: those with the node's name as their value."""
    topology = capacity.value.get("nodeTopology")
    labels: Any = topology.get("matchLabels") if isinstance(topology, dict) else None
    name, own = node.metadata.name, node.metadata.labels
    return [key for key, value in (labels or {}).items() if value == name == own.get(key)]


def _is_copied(found: Found, daemon_sets: set[tuple[str, str]]) -> bool:
    pod = decoded(found, Pod, found.value)
    owner = controller_of(pod)
    return stays(pod) and owner is not None and (found.namespace, owner.name) not in daemon_sets


def _node_of(found: Found) -> str:
    """Return the node of a pod that runs; "" for other objects."""
    is_running = found.kind == "Pod" and not is_leaving(found)
    return str((found.value.get("spec") or {}).get("nodeName", "")) if is_running else ""


# -- drained nodes -------------------------------------------------------------------------------------------------------


def _drained(objects: Sequence[Found], nodes: frozenset[str]) -> ChangedInput:
    """Let the pods of these nodes wait for another node, with their claims of devices and without ephemeral volumes.

    A pod keeps its name and its uid, so that its controller counts it as before.
    """
    abandoned: dict[str, str] = {}
    leaving: dict[tuple[str, str], Pod] = {}
    for each in objects:
        if _node_of(each) in nodes and not stays(pod := decoded(each, Pod, each.value)):
            leaving[each.namespace, each.name] = pod
            if controller_of(pod) is None:
                abandoned[pod.key] = f"it leaves node {pod.spec.node_name}, and no controller creates it again"
    ephemeral = {
        (namespace, f"{name}-{volume.name}")
        for (namespace, name), pod in leaving.items()
        for volume in pod.spec.volumes
        if volume.ephemeral is not None
    }
    kept = []
    for each in objects:
        key = (each.namespace, each.name)
        if each.kind == "Pod" and key in leaving:
            if leaving[key].key not in abandoned:
                kept.append(replace(each, value=_waiting(each.value)))
        elif each.kind == "ResourceClaim":
            kept += _released(each, leaving)
        elif not (each.kind == "PersistentVolumeClaim" and key in ephemeral) and _claim_of(each) not in ephemeral:
            kept.append(each)
    return ChangedInput(kept, abandoned)


def _waiting(pod: Manifest) -> Manifest:
    """Return the pod without its node. Of its status only the names of its claims stay."""
    spec = {key: part for key, part in pod["spec"].items() if key != "nodeName"}
    claims = (pod.get("status") or {}).get("resourceClaimStatuses")
    return pod | {"spec": spec, "status": {"resourceClaimStatuses": claims} if claims else {}}


def _released(claim: Found, leaving: Mapping[tuple[str, str], Pod]) -> list[Found]:
    """Return the claim without its users that leave, and deallocated if no user stays. One that the scheduler made goes."""
    status = claim.value.get("status") or {}
    users = status.get("reservedFor") or []
    staying = [
        each for each in users if each.get("resource") != "pods" or (claim.namespace, each.get("name")) not in leaving
    ]
    if len(staying) == len(users):
        return [claim]
    if staying:
        return [replace(claim, value=claim.value | {"status": status | {"reservedFor": staying}})]
    if (claim.value["metadata"].get("annotations") or {}).get(_EXTENDED_RESOURCE) == "true":
        return []
    return [replace(claim, value={key: part for key, part in claim.value.items() if key != "status"})]


def _claim_of(volume: Found) -> tuple[str, str] | None:
    """Return namespace and name of the claim to which a volume is bound."""
    if volume.kind != "PersistentVolume":
        return None
    reference = (volume.value.get("spec") or {}).get("claimRef") or {}
    return str(reference.get("namespace", "")), str(reference.get("name", ""))
