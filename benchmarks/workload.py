"""The objects of a run: nodes, and pods in a given number of shapes, as bodies ready to be posted.

Deterministic: the same arguments give the same objects. Knows no server and no scheduler.
"""

from dataclasses import dataclass

import msgspec

NAMESPACE = "bench"
ZONES = 10
_MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Workload:
    """How much of what. Nodes grow beyond the default of 4 CPU and 32 GiB when the pods would not fit otherwise."""

    name: str
    nodes: int
    pods: int
    shapes: int = 1

    def node_body(self, index: int) -> bytes:
        """A ready node, one of ten zones."""
        scale = self._scale()
        room = {"cpu": f"{4 * scale}", "memory": f"{32 * scale}Gi", "pods": f"{110 * scale}"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": node_name(index),
                "labels": {
                    "kubernetes.io/hostname": node_name(index),
                    "topology.kubernetes.io/zone": zone_of_node(index),
                },
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
        spec: dict[str, object] = {
            "schedulerName": scheduler_name,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.k8s.io/pause:3.10",
                    "resources": {"requests": self._requests(shape)},
                }
            ],
        }
        if self.zone_of_shape(shape) is not None:
            spec["nodeSelector"] = {"topology.kubernetes.io/zone": self.zone_of_shape(shape)}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": f"shape-{shape}"}},
            "spec": spec,
        }
        return msgspec.json.encode(pod)

    def zone_of_shape(self, shape: int) -> str | None:
        """The zone a shape insists on: every fourth one does, beside others of its kind."""
        return f"zone-{shape % ZONES}" if self.shapes > 1 and shape % 4 == 0 else None

    def _requests(self, shape: int) -> dict[str, str]:
        if self.shapes == 1:
            return {"cpu": "100m", "memory": "500Mi"}
        return {"cpu": f"{50 + shape % 100}m", "memory": f"{(300 + 2 * (shape % 200)) * _MIB}"}

    def _scale(self) -> int:
        # 40 pods of 100m fill 4 CPU; a quarter stays free so that packing never decides.
        return -(-self.pods // (self.nodes * 30))


def node_name(index: int) -> str:
    return f"node-{index:05d}"


def zone_of_node(index: int) -> str:
    return f"zone-{index % ZONES}"
