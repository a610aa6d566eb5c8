"""Write a recording of a lifelike day: services, batch jobs, hourly jobs, and training with devices, on three pools.

    python -m benchmarks.day FILE [--nodes 1000] [--pods 100000] [--hours 24] [--seed 1]

A tenth of the nodes have eight devices each. A twentieth of the pods are services that run when the recording begins.
Of the rest, batch jobs follow the hours of the day, a tenth of them come at full hours, and each twenty-fifth pod
uses devices. The recorded scheduler takes any of thirty random nodes, so that a replay has something to improve.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import random
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from simulator.replay.recording import RecordingWriter

Object = dict[str, Any]
SCHEDULER: Final = "kubestow"
_STARTED_S: Final = 1_780_272_000.0
_DRIVER: Final = "gpu.example.com"
_DEVICES: Final = 8
_TRIES: Final = 30
_ZONES: Final = 3
_SERVICES: Final = 0.05
_TRAINING: Final = 0.04
_HOURLY: Final = 0.1
_GIB: Final = 2**30
_POOLS: Final = (("general", 0.7, 32, 128), ("memory", 0.2, 32, 256), ("gpu", 0.1, 64, 512))
"""Name, share of the nodes, cores and GiB."""


@dataclass(slots=True)
class _Node:
    name: str
    pool: str
    cores: float
    gib: float
    devices: list[str]


@dataclass(slots=True)
class _Pod:
    uid: str
    at_s: float
    run_s: float
    pool: str
    cores: float
    gib: float
    devices: int
    obj: Object
    node: _Node | None = None
    used: list[str] = field(default_factory=list)


class Day:
    """The nodes and pods of a day. Deterministic for a seed."""

    def __init__(self, nodes: int, pods: int, hours: float, seed: int) -> None:
        self.rng = random.Random(seed)
        self.duration_s = hours * 3600
        self.nodes = [self._node(index, nodes) for index in range(nodes)]
        by_pool: dict[str, list[_Node]] = {}
        for node in self.nodes:
            by_pool.setdefault(node.pool, []).append(node)
        self.by_pool = by_pool | {"": self.nodes}
        self.pods = sorted((self._pod(index, pods) for index in range(pods)), key=lambda pod: pod.at_s)
        self._waiting: dict[str, deque[_Pod]] = {pool: deque() for pool in self.by_pool}

    def write(self, file: str) -> None:
        """Write the recording."""
        self.writer = RecordingWriter(file, started_s=_STARTED_S, server="v1.37.2")
        self._first_state()
        arrivals, ends = deque(self.pods), list[tuple[float, str, _Pod]]()
        self._ends = ends
        while arrivals and arrivals[0].at_s == 0:
            self._arrive(arrivals.popleft(), 0.0)
        self.writer.event(0.0, "SYNCED")
        while arrivals or ends:
            if ends and (not arrivals or ends[0][0] <= arrivals[0].at_s):
                at_s, _, pod = heapq.heappop(ends)
                if at_s > self.duration_s:
                    break
                self._end(pod, at_s)
            else:
                pod = arrivals.popleft()
                self._arrive(pod, pod.at_s)
        self.writer.close()

    # -- what there is -------------------------------------------------------------------------------------------------

    def _node(self, index: int, nodes: int) -> _Node:
        at = (index * 7919 % nodes + 0.5) / nodes
        ends = itertools.accumulate(share for _, share, *_ in _POOLS)
        pool, _, cores, gib = next(each for each, end in zip(_POOLS, ends) if at < end + 1e-9)
        devices = [f"gpu-{number}" for number in range(_DEVICES)] if pool == "gpu" else []
        return _Node(f"node-{index:04d}", pool, float(cores), float(gib), devices)

    def _pod(self, index: int, pods: int) -> _Pod:
        rng, kind = self.rng, index / pods
        pool, devices, owner = "", 0, ("Job", f"batch-{index // 20}")
        if kind < _SERVICES:
            cores, run_s, at_s = rng.choice((0.5, 1, 1, 2)), math.inf, 0.0
            owner = "ReplicaSet", f"service-{index // 25}"
        elif kind < _SERVICES + _TRAINING:
            devices = rng.choice((1, 1, 1, 2, 4, 8))
            cores, run_s, at_s, pool = 6.0 * devices, rng.lognormvariate(7.9, 0.9), self._time(), "gpu"
            owner = "Job", f"training-{index}"
        else:
            cores, run_s, at_s = rng.choice((1, 1, 2, 2, 4, 8)), rng.lognormvariate(7.4, 1.0), self._time()
            pool = "memory" if rng.random() < 0.2 else ""
            if rng.random() < _HOURLY:
                at_s = at_s // 3600 * 3600 + rng.uniform(0, 20)
        gib = cores * rng.choice((2, 4, 4, 6)) * (1.4 if pool == "memory" else 1.0)
        name = f"{owner[1]}-{index}"
        return _Pod(name, at_s, run_s, pool, cores, gib, devices, _pod_object(name, owner, pool, cores, gib, devices))

    def _time(self) -> float:
        """Return a time of the day: three times as many pods in the afternoon as at night."""
        while True:
            at_s = self.rng.uniform(1, self.duration_s * 0.97)
            if self.rng.random() < 0.6 - 0.4 * math.cos(2 * math.pi * (at_s / 86_400 - 0.1)):
                return round(at_s, 3)

    # -- what happens --------------------------------------------------------------------------------------------------

    def _first_state(self) -> None:
        put = self.writer.event
        put(0.0, "ADDED", _object("v1", "Namespace", "default"))
        put(0.0, "ADDED", _object("resource.k8s.io/v1", "DeviceClass", _DRIVER) | {
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{_DRIVER}"'}}]}
        })  # fmt: skip
        for index, node in enumerate(self.nodes):
            labels = {
                "kubernetes.io/hostname": node.name,
                "topology.kubernetes.io/zone": f"zone-{index % _ZONES}",
                "pool": node.pool,
            }
            amounts = {"cpu": f"{node.cores:.0f}", "memory": f"{node.gib:.0f}Gi", "pods": "110"}
            ready = [{"type": "Ready", "status": "True"}]
            obj = _object("v1", "Node", node.name, labels=labels)
            put(0.0, "ADDED", obj | {"spec": {}, "status": {"allocatable": amounts, "conditions": ready}})
            if node.devices:
                pool = {"name": node.name, "generation": 1, "resourceSliceCount": 1}
                devices = [{"name": name} for name in node.devices]
                spec = {"driver": _DRIVER, "pool": pool, "nodeName": node.name, "devices": devices}
                put(0.0, "ADDED", _object("resource.k8s.io/v1", "ResourceSlice", f"{node.name}-gpu") | {"spec": spec})

    def _arrive(self, pod: _Pod, at_s: float) -> None:
        claim = _claim_of(pod)
        bound = self._found(pod)
        if pod.run_s == math.inf and bound is not None:  # a service that runs when the recording begins
            self.writer.event(at_s, "ADDED", self._bound(pod, bound))
            return
        self.writer.event(at_s, "ADDED", pod.obj)
        if claim is not None:
            self.writer.event(at_s, "ADDED", claim)
        if bound is None:
            self._waiting[pod.pool].append(pod)
        else:
            self._start(pod, bound, at_s)

    def _found(self, pod: _Pod) -> _Node | None:
        """Return a random node with enough of everything; nodes of special pools are for pods that name the pool."""
        for node in self.rng.choices(self.by_pool[pod.pool], k=_TRIES):
            fits = node.cores >= pod.cores and node.gib >= pod.gib and len(node.devices) >= pod.devices
            if fits and (pod.pool or node.pool == "general"):
                return node
        return None

    def _start(self, pod: _Pod, node: _Node, at_s: float) -> None:
        self.writer.event(at_s, "MODIFIED", self._bound(pod, node))
        if (claim := _claim_of(pod)) is not None:
            results = [
                {"request": "gpu", "driver": _DRIVER, "pool": node.name, "device": device} for device in pod.used
            ]
            user = {"resource": "pods", "name": pod.uid, "uid": pod.uid}
            status = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}
            self.writer.event(at_s, "MODIFIED", claim | {"status": status})
        heapq.heappush(self._ends, (round(at_s + pod.run_s, 3), pod.uid, pod))

    def _bound(self, pod: _Pod, node: _Node) -> Object:
        node.cores, node.gib, pod.node = node.cores - pod.cores, node.gib - pod.gib, node
        pod.used, node.devices = node.devices[: pod.devices], node.devices[pod.devices :]
        return pod.obj | {
            "spec": pod.obj["spec"] | {"nodeName": node.name},
            "status": pod.obj["status"] | {"phase": "Running"},
        }

    def _end(self, pod: _Pod, at_s: float) -> None:
        node = pod.node
        assert node is not None
        node.cores, node.gib, node.devices = node.cores + pod.cores, node.gib + pod.gib, node.devices + pod.used
        self.writer.event(at_s, "DELETED", _reference(pod.obj))
        if (claim := _claim_of(pod)) is not None:
            self.writer.event(at_s, "DELETED", _reference(claim))
        for pool in ("", pod.pool, node.pool):
            queue = self._waiting[pool]
            while queue and (found := self._found(queue[0])) is not None:
                self._start(queue.popleft(), found, at_s)


def _object(api_version: str, kind: str, name: str, *, namespace: str = "", labels: Object | None = None) -> Object:
    metadata: Object = {"name": name, "uid": name if kind == "Pod" else f"{kind}-{name}"}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata | ({"labels": labels} if labels else {})}


def _reference(obj: Object) -> Object:
    return _object(obj["apiVersion"], obj["kind"], obj["metadata"]["name"], namespace="default")


def _pod_object(  # noqa: PLR0917 (a row of the day)
    name: str, owner: tuple[str, str], pool: str, cores: float, gib: float, devices: int
) -> Object:
    kind, owner_name = owner
    obj = _object("v1", "Pod", name, namespace="default", labels={"app": owner_name})
    version = "apps/v1" if kind == "ReplicaSet" else "batch/v1"
    reference = {"apiVersion": version, "kind": kind, "name": owner_name, "uid": owner_name, "controller": True}
    obj["metadata"]["ownerReferences"] = [reference]
    requests = {"cpu": f"{cores * 1000:.0f}m", "memory": f"{gib * 1024:.0f}Mi"}
    spec: Object = {
        "schedulerName": SCHEDULER,
        "priority": 1000 if kind == "ReplicaSet" else 0,
        "containers": [{"name": "main", "image": "registry.example.com/app:1", "resources": {"requests": requests}}],
    }
    if pool:
        spec["nodeSelector"] = {"pool": pool}
    else:
        terms = [{"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["gpu", "memory"]}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    status: Object = {"phase": "Pending"}
    if devices:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": f"gpu-{devices}"}]
        spec["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        status["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
    return obj | {"spec": spec, "status": status}


def _claim_of(pod: _Pod) -> Object | None:
    """Return the claim that the controller made for the pod from its template; None without devices."""
    if not pod.devices:
        return None
    obj = _object("resource.k8s.io/v1", "ResourceClaim", f"{pod.uid}-gpu", namespace="default")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.uid, "uid": pod.uid, "controller": True}
    obj["metadata"] |= {
        "ownerReferences": [owner],
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
    }
    exactly = {"deviceClassName": _DRIVER, "allocationMode": "ExactCount", "count": pod.devices}
    return obj | {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    Path(options.file).unlink(missing_ok=True)
    Day(options.nodes, options.pods, options.hours, options.seed).write(options.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
