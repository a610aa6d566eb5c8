"""The objects of a run: nodes, and pods in a given number of shapes, as bodies ready to be posted.

Deterministic: the same arguments give the same objects. Knows no server and no scheduler.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from benchmarks.between_pods import (
    ANCHOR,
    ANTI_AFFINITY,
    ZONE,
    PlacedPod,
    anchor_of_shape,
    broken_rules,
    constraints,
)
from benchmarks.devices import (
    GANGS_WITH_ONE_CLAIM,
    KINDS as DEVICE_KINDS,
    TEMPLATE,
    pod_claims,
    problem as devices_problem,
)
from benchmarks.gangs import (
    SIZES,
    broken_rules as broken_groups,
    node_labels,
    owner_of_claim,
    pod_group,
    problem as groups_problem,
)
from benchmarks.preempting import HIGH_CLASS, PREEMPTIONS, broken_rules as doubled_nodes, low_spec, requests
from benchmarks.volumes import BURST, KINDS, pod_volumes, problem as storage_problem

NAMESPACE = "bench"
ZONES = 10
WARM_UP = 50
"""The pods before those that count, unless the workload has claims and another number."""
_MIB = 1024**2
_PODS_PER_ANCHOR = 10


@dataclass(frozen=True, slots=True)
class Workload:
    """How much of what. Nodes grow beyond the default of 4 CPU and 32 GiB when the pods would not fit otherwise."""

    name: str
    nodes: int
    pods: int
    shapes: int = 1

    @property
    def warm_up(self) -> int:
        """Pods that come before those that count; none where pods come in groups."""
        if self.name in SIZES:
            return 0
        kind = KINDS.get(self.name) or DEVICE_KINDS.get(self.name)
        return WARM_UP if kind is None else kind.warm_up

    @property
    def all_pods(self) -> int:
        """With the warm-up."""
        return self.pods + self.warm_up

    @property
    def node_milli_cpu(self) -> int:
        """Of every node."""
        return 4000 * self._scale()

    def node_body(self, index: int) -> bytes:
        """A ready node, one of ten zones."""
        scale = self._scale()
        room = {"cpu": f"{4 * scale}", "memory": f"{32 * scale}Gi", "pods": f"{110 * scale}"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": node_name(index),
                "labels": {"kubernetes.io/hostname": node_name(index), ZONE: zone_of_node(index)}
                | node_labels(self.name, index),
            },
            "status": {
                "allocatable": room,
                "capacity": room,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }
        return msgspec.json.encode(node)

    def pod_body(self, name: str, index: int, scheduler_name: str) -> bytes:
        """Pod number `index`; its shape is the remainder by the number of shapes."""
        shape = index % self.shapes
        app = self._app(index)
        spec: dict[str, object] = {
            "schedulerName": scheduler_name,
            "containers": [_container(self._requests(shape))],
        }
        spec |= constraints(self.name, app, anchor_of_shape(self.name, shape))
        spec |= pod_volumes(self.name, name) | pod_claims(self.name, owner_of_claim(self.name, name, index), shape)
        spec |= pod_group(self.name, name, index)
        if self.zone_of_shape(shape) is not None:
            spec["nodeSelector"] = {ZONE: self.zone_of_shape(shape)}
        if self.name in PREEMPTIONS:
            spec |= {"priorityClassName": HIGH_CLASS}
        return msgspec.json.encode(_pod(name, {"app": app}, spec))

    def anchor_bodies(self, prefix: str) -> list[bytes]:
        """Pods that are bound from the start: victims of a preemption, or one for ten pods that insist to be next to it."""
        if self.name in PREEMPTIONS:
            return [
                msgspec.json.encode(
                    _pod(
                        f"{prefix}low-{index:06d}",
                        {"app": "low"},
                        low_spec(self.name, node_name(index % self.nodes), _container({})),
                    )
                )
                for index in range(self.nodes * PREEMPTIONS[self.name].low_per_node)
            ]
        return [
            msgspec.json.encode(
                _pod(
                    f"{prefix}anchor-{number:06d}",
                    {ANCHOR: anchor},
                    {"nodeName": node, "containers": [_container({})]},
                )
            )
            for number, (anchor, node) in enumerate(self._anchors())
        ]

    def broken_rules(self, node_of: Mapping[int, str]) -> int:
        """Apps whose pods, by number, went where their rules or their selector forbid it."""
        if self.name in PREEMPTIONS:
            return doubled_nodes(node_of.values())
        anchors: dict[str, set[str]] = defaultdict(set)
        for anchor, node in self._anchors():
            anchors[anchor].add(node)
        pods = (
            PlacedPod(
                app=self._app(index),
                node=node,
                zone=zone_of_node(node_index(node)),
                wanted_zone=self.zone_of_shape(index % self.shapes),
                anchor=anchor_of_shape(self.name, index % self.shapes),
            )
            for index, node in node_of.items()
        )
        of_groups = broken_groups(self.name, {index: node_index(node) for index, node in node_of.items()})
        return broken_rules(self.name, pods, min(ZONES, self.nodes), anchors) + of_groups

    def zone_of_shape(self, shape: int) -> str | None:
        """The zone a shape insists on: every fourth one does, in addition to its other rules."""
        if self.name == ANTI_AFFINITY:
            return None  # an app may be as large as the cluster, and then a zone is too small for it
        if self.name in {BURST, TEMPLATE}:
            return None  # capacity is short already
        return f"zone-{shape % ZONES}" if self.shapes > 1 and shape % 4 == 0 else None

    def problem(self) -> str:
        """Why not every pod can be placed; empty if it can."""
        if problem := groups_problem(self.name, self.pods):
            return problem
        if self.name in PREEMPTIONS:
            return "" if self.all_pods <= self.nodes else "each pod needs a separate node: more nodes"
        largest_app = max(WARM_UP, -(-self.pods // self.shapes))
        if self.name == ANTI_AFFINITY and largest_app > self.nodes:
            return f"{largest_app} pods of one app need as many nodes: more nodes, or more shapes"
        of_claims = devices_problem if self.name in DEVICE_KINDS else storage_problem
        return of_claims(self.name, nodes=self.nodes, pods=self.all_pods)

    def _anchors(self) -> list[tuple[str, str]]:
        wanted = [anchor for shape in range(self.shapes) if (anchor := anchor_of_shape(self.name, shape))]
        of_each = -(-(self.pods + WARM_UP) // (self.shapes * _PODS_PER_ANCHOR))
        return [(anchor, node_name(number % self.nodes)) for number, anchor in enumerate(sorted(wanted * of_each))]

    def _app(self, index: int) -> str:
        if self.name == ANTI_AFFINITY and index < WARM_UP:
            return "warm-up"  # else a full set of pods would find its nodes taken
        return f"shape-{index % self.shapes}"

    def _requests(self, shape: int) -> dict[str, str]:
        if self.name in PREEMPTIONS:
            return requests(self.name)
        if self.name == GANGS_WITH_ONE_CLAIM:
            return {"cpu": "50m", "memory": "100Mi"}  # all pods of a group go to the node of the device
        if self.shapes == 1:
            return {"cpu": "100m", "memory": "500Mi"}
        return {"cpu": f"{50 + shape % 100}m", "memory": f"{(300 + 2 * (shape % 200)) * _MIB}"}

    def _scale(self) -> int:
        # 40 pods of 100m fill 4 CPU; a quarter stays free so that packing never decides. Affinity may gather all pods
        # in one zone.
        if self.name in PREEMPTIONS:
            return 1
        nodes = max(1, self.nodes // ZONES) if self.name == "affinity" else self.nodes
        return -(-self.pods // (nodes * 30))


def _pod(name: str, labels: dict[str, str], spec: dict[str, object]) -> dict[str, object]:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(requests: dict[str, str]) -> dict[str, object]:
    return {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}


def node_name(index: int) -> str:
    return f"node-{index:05d}"


def node_index(name: str) -> int:
    """The other way round."""
    return int(name.rpartition("-")[2])


def zone_of_node(index: int) -> str:
    return f"zone-{index % ZONES}"
