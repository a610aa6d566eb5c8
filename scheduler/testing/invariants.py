"""Laws that hold whatever happens. Each function returns the broken ones as sentences; none is a good answer.

`Witness` listens from the start and knows what the present no longer tells: who was bound where, who was there at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler.core.decode import from_manifest
from scheduler.core.node import Node
from scheduler.core.pod import Pod
from scheduler.core.podinfo import Requests, allocatable, host_ports, requests_of
from scheduler.testing.apiserver import ApiServer

Object = dict[str, Any]


class Witness:
    """Remembers every pod of a server by uid. Start it before the first pod."""

    def __init__(self, server: ApiServer) -> None:
        self.broken: list[str] = []
        self.bindings = 0
        """How many pods have got a node so far."""
        self._nodes: dict[str, str] = {}
        self._alive: dict[str, str] = {}
        self._gone: set[str] = set()
        self._server = server
        self.close = server.subscribe(self._on_write)

    def bound_twice(self) -> list[str]:
        """No pod ever changes or loses its node."""
        return list(self.broken)

    def lost(self) -> list[str]:
        """Every pod that was created is there, unless it was deleted."""
        present = {pod["metadata"]["uid"] for pod in self._server.objects("pods")}
        return [f"pod {key} ({uid}) vanished" for uid, key in self._alive.items() if uid not in present]

    def _on_write(self, type_: str, resource: str, obj: Object) -> None:
        if resource != "pods":
            return
        uid, key = obj["metadata"]["uid"], _key(obj)
        if uid in self._gone:
            self.broken.append(f"pod {key} ({uid}) was written after its deletion")
        if type_ == "DELETED":
            self._alive.pop(uid, None)
            self._gone.add(uid)
            return
        self._alive[uid] = key
        node, before = obj["spec"].get("nodeName", ""), self._nodes.get(uid, "")
        if before and node != before:
            self.broken.append(f"pod {key} was bound to {before} and then to {node or 'nothing'}")
        if node and not before:
            self._nodes[uid] = node
            self.bindings += 1


def overcommitted(server: ApiServer) -> list[str]:
    """Nothing promised twice: on every node, what unfinished pods request fits, and so do their number and host ports.

    A node that is gone promises nothing.
    """
    nodes = {node["metadata"]["name"]: from_manifest(Node, node) for node in server.objects("nodes")}
    by_node: dict[str, list[Pod]] = {name: [] for name in nodes}
    for obj in server.objects("pods"):
        name = obj["spec"].get("nodeName", "")
        if name in by_node and obj["status"].get("phase") not in {"Succeeded", "Failed"}:
            by_node[name].append(from_manifest(Pod, obj))
    return [law for name, pods in by_node.items() for law in _on_node(nodes[name], pods)]


def _on_node(node: Node, pods: list[Pod]) -> list[str]:
    room = allocatable(node.status.allocatable)
    total: Requests = {"pods": len(pods)}
    for pod in pods:
        for name, amount in requests_of(pod).items():
            total[name] = total.get(name, 0) + amount
    broken = [
        f"node {node.key}: {name} requested {amount}, allocatable {room.get(name, 0)}"
        for name, amount in total.items()
        if amount > room.get(name, 0)
    ]
    ports = [(port, pod.key) for pod in pods for port in host_ports(pod)]
    for i, (port, key) in enumerate(ports):
        for other, other_key in ports[:i]:
            same = (port.protocol, port.port) == (other.protocol, other.port)
            if same and (port.ip == other.ip or "0.0.0.0" in {port.ip, other.ip}):  # noqa: S104 (compared, not bound)
                broken.append(f"node {node.key}: port {port.port}/{port.protocol} held by {other_key} and {key}")
    return broken


def unbound(server: ApiServer, is_schedulable: Callable[[Object], bool] = lambda _: True) -> list[str]:
    """Every schedulable pod is bound in the end: call it when nothing moves any more."""
    return [
        f"pod {_key(pod)} is still without a node"
        for pod in server.objects("pods")
        if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp") and is_schedulable(pod)
    ]


def on_missing_nodes(server: ApiServer) -> list[str]:
    """No unfinished pod is bound to a node that does not exist."""
    names = {node["metadata"]["name"] for node in server.objects("nodes")}
    return [
        f"pod {_key(pod)} is bound to {pod['spec']['nodeName']}, which does not exist"
        for pod in server.objects("pods")
        if pod["spec"].get("nodeName", "") not in {"", *names}
    ]


def _key(obj: Object) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
