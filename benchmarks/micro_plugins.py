"""Microseconds per plugin and pod, over all nodes at once: `python -m benchmarks.micro_plugins [--nodes N ...]`.

Each round calls every plugin for a plain pod as the cycle does, then puts the pod on one of its best nodes, so that
columns move under the memos. Rounds: pods of one shape, and of two hundred; each shape has a Service, so that the built-in
spread constraints rank nodes. `--hard-spread` gives pods explicit constraints: even over zones, nearly so over nodes.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from scheduler.api.apps_and_policy import Service
from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import PodInfo, placed, pod_info
from scheduler.cache.cluster import Cluster
from scheduler.core import nodeset
from scheduler.core.clock import SystemClock
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.handle import Handle, Unplugged
from scheduler.framework.interface import CycleState
from scheduler.plugins import BUILT_IN

_ORDER = (
    "UnsupportedFeatures",
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "NodeDeclaredFeatures",
)
_IMAGES = [
    {"names": [f"registry.example/app-{at}@sha256:{at:064}", f"registry.example/app-{at}:v1"], "sizeBytes": at * 2**20}
    for at in range(400)
]
_HOST, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def node(at: int) -> Node:
    """32 cores, 256 GiB; 50 of 400 images; each tenth is tainted, each hundredth cordoned."""
    taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}] if at % 10 == 0 else []
    room = {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    return from_manifest(
        Node,
        {
            "metadata": {
                "name": f"node-{at:05}",
                "labels": {_HOST: f"node-{at:05}", _ZONE: f"z{at % 3}"},
            },
            "spec": {"taints": taints, "unschedulable": at % 100 == 1},
            "status": {"allocatable": room, "images": random.Random(at).sample(_IMAGES, 50)},
        },
    )


def pod(at: int, shape: int, *, hard_spread: bool = False) -> PodInfo:
    """A plain pod: one container, tolerations as admission adds them, a label that its Service selects."""
    tolerations = [
        {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute"}
        for why in ("not-ready", "unreachable")
    ]
    requests = {"cpu": f"{100 + shape}m", "memory": f"{200 + shape}Mi"}
    container = {"name": "c", "image": f"registry.example/app-{shape}:v1", "resources": {"requests": requests}}
    manifest = {
        "metadata": {
            "name": f"pod-{at}",
            "namespace": "default",
            "uid": f"uid-{at}",
            "labels": {"app": f"app-{shape}"},
        },
        "spec": {
            "containers": [container],
            "tolerations": tolerations,
            "topologySpreadConstraints": [_evenly(_ZONE, 1, shape), _evenly(_HOST, 9, shape)] if hard_spread else [],
        },
    }
    return pod_info(from_manifest(Pod, manifest))


def _evenly(key: str, skew: int, shape: int) -> dict[str, Any]:
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {"app": f"app-{shape}"}},
    }


def service(shape: int) -> Service:
    """Selects the pods of one shape."""
    metadata = {"name": f"service-{shape}", "namespace": "default"}
    return from_manifest(Service, {"metadata": metadata, "spec": {"selector": {"app": f"app-{shape}"}}})


class Rounds:
    """All plugins on one cluster; adds up the time of each."""

    def __init__(self, node_count: int) -> None:
        self.cluster = Cluster()
        for at in range(node_count):
            self.cluster.set_node(node(at))
        handle = Handle(self.cluster, Unplugged(), Unplugged(), SystemClock(), "kubestow")
        self.plugins: list[Any] = [BUILT_IN[name](None, handle) for name in _ORDER]
        self.spent: dict[str, list[float]] = {}
        """By plugin and half, one entry per pod."""
        self._now: dict[str, float] = {}
        self.rng = random.Random(1)

    def timed(self, label: str, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        answer = call()
        self._now[label] = self._now.get(label, 0.0) + time.perf_counter() - began
        return answer

    def place(self, info: PodInfo) -> None:
        """One pod through PreFilter, Filter, PreScore, Score and NormalizeScore; then it is assumed."""
        state = CycleState()
        nodes = self.cluster.nodes
        left = nodes.present
        for plugin in self.plugins:
            left = self._filtered(plugin, state, info, left)
        slots = nodeset.slots(left, nodes.capacity)
        total = np.zeros(nodes.capacity, dtype=np.int64)
        for plugin in self.plugins:
            total = total + self._scored(plugin, state, info, left)
        for label, spent_s in self._now.items():
            self.spent.setdefault(label, []).append(spent_s)
        self._now.clear()
        best = slots[total[slots] == total[slots].max()]
        self.cluster.assume(placed(info, nodes.name(int(self.rng.choice(best)))))

    def _filtered(self, plugin: Any, state: CycleState, info: PodInfo, nodes: NodeSet) -> NodeSet:
        label = f"{plugin.name} filter"
        if hasattr(plugin, "pre_filter") and self.timed(label, lambda: plugin.pre_filter(state, info, nodes)):
            return nodes
        if not hasattr(plugin, "filter"):
            return nodes
        out = EMPTY
        for refused in self.timed(label, lambda: plugin.filter(state, info, nodes)).values():
            out |= refused
        return nodes & ~out

    def _scored(self, plugin: Any, state: CycleState, info: PodInfo, nodes: NodeSet) -> Any:
        label = f"{plugin.name} score"
        if not hasattr(plugin, "score"):
            return 0
        if hasattr(plugin, "pre_score") and self.timed(label, lambda: plugin.pre_score(state, info, nodes)):
            return 0
        column = self.timed(label, lambda: plugin.score(state, info, nodes))
        if hasattr(plugin, "normalize_score"):
            slots = nodeset.slots(nodes, self.cluster.nodes.capacity)
            column = self.timed(label, lambda: plugin.normalize_score(state, info, column, slots))
        return column


def measure(node_count: int, shapes: int, pods: int, *, hard_spread: bool) -> None:
    """Prints a table: µs per pod by plugin and half, and their sum."""
    rounds = Rounds(node_count)
    for at in range(shapes):
        selecting = service(at)
        rounds.cluster.workloads.set_service(selecting.key, selecting)
    for at in range(shapes):
        rounds.place(pod(at, at, hard_spread=hard_spread))
    rounds.spent.clear()
    for at in range(pods):
        rounds.place(pod(shapes + at, at % shapes, hard_spread=hard_spread))
    print(f"\n{node_count} nodes, {shapes} shape(s), {pods} pods: µs per pod (medians)")
    together = 0.0
    for label, seconds in rounds.spent.items():
        together += statistics.median(seconds)
        print(f"  {label:42} {statistics.median(seconds) * 1e6:8.1f}")
    print(f"  {'together':42} {together * 1e6:8.1f}")


def main() -> None:
    """Reads the arguments and measures each size with one shape and with two hundred."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--shapes", type=int, nargs="+", default=[1, 200])
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--hard-spread", action="store_true")
    args = parser.parse_args()
    for node_count in args.nodes:
        for shapes in args.shapes:
            measure(node_count, shapes, args.pods, hard_spread=args.hard_spread)


if __name__ == "__main__":
    main()
