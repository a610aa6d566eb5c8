"""A cluster of any size in the cache of a scheduler, without sockets: nodes, bound pods, volumes with their claims, devices."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from benchmarks.in_process import Echo, Silent
from scheduler.api.decode import Delta
from scheduler.api.selectors import LabelSelector
from scheduler.cache.nodes import topology
from scheduler.cache.pods import selection
from scheduler.config.types import Configuration, RunOptions
from scheduler.core.clock import SystemClock
from scheduler.core.feature_gates import DEVICE_GATES_ON
from scheduler.kube.resources import KINDS
from scheduler.kube.store import Store
from scheduler.metrics.metrics import Metrics
from scheduler.scheduler import Scheduler

Manifest = dict[str, Any]
_HARD = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Size:
    """How much of what. A node has ten pods by default, of which one has a volume, and four devices, of which one is allocated."""

    nodes: int
    pods_per_node: int = 10
    volumes_per_node: int = 1
    devices_per_node: int = 4


class FullCluster:
    """A scheduler with a full cache, and the stores of its informers.

    One pod in ten has an allocated device, one in five an anti-affinity term. Some selections of pods are counted by zone, as for
    spread constraints.
    """

    def __init__(self, size: Size) -> None:
        self.size = size
        self.stores: dict[str, Store[Any]] = {}
        self.cpu_s: dict[str, float] = {}
        """By kind, the processor time of its intake, decoding included."""
        self._versions = 0
        gates = Configuration().feature_gates | DEVICE_GATES_ON
        self.scheduler = Scheduler(
            RunOptions(config=Configuration(feature_gates=gates)),
            writer=Echo(),
            recorder=Silent(),
            clock=SystemClock(),
            metrics=Metrics(process=False),
            stores=lambda: self.stores,
        )
        for kind, manifests in (
            ("Node", nodes(size)),
            ("ResourceSlice", slices(size)),
            ("PersistentVolume", volumes(size)),
            ("PersistentVolumeClaim", claims(size)),
            ("ResourceClaim", device_claims(size)),
            ("Pod", pods(size)),
        ):
            self.cpu_s[kind] = self.show(kind, manifests)
        self._count()

    def show(self, kind: str, manifests: Iterator[Manifest]) -> float:
        """Let a watch show the objects, one by one, and return the processor time in seconds."""
        decode, store = KINDS[kind].decoder().decode, self.stores.setdefault(kind, Store())
        cpu_s = 0.0
        for manifest in manifests:
            self._versions += 1
            manifest["metadata"] |= {
                "uid": f"{kind}-{manifest['metadata']['name']}",
                "resourceVersion": str(self._versions),
            }
            raw = msgspec.Raw(msgspec.json.encode(manifest))
            began = time.process_time()
            deltas: list[Delta[Any]] = []
            store.set(decode(raw), deltas)
            self.scheduler.event_handlers.apply(kind, deltas)
            cpu_s += time.process_time() - began
        return cpu_s

    def _count(self) -> None:
        """Read counts as decisions do, so that they are maintained."""
        cache = self.scheduler.cluster
        for at in range(20):
            terms = [(frozenset({"default"}), LabelSelector({"app": f"app-{at}"}))]
            counts = cache.nodes.population.tally(selection(terms, counts_terminating=False))
            for key in ("zone", "kubernetes.io/hostname"):
                topology.of(counts, cache.nodes.topologies.of(key)).column()
        cache.volumes.attached.catch_up()
        cache.devices.on_nodes.catch_up()


def nodes(size: Size) -> Iterator[Manifest]:
    """Yield nodes in ten zones with twenty images each."""
    for at in range(size.nodes):
        images = [{"names": [f"registry/image-{(at + n) % 200}:1"], "sizeBytes": 10**8} for n in range(20)]
        labels = {"zone": f"zone-{at % 10}", "kubernetes.io/hostname": f"node-{at}", "pool": f"pool-{at % 7}"}
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}
        yield {
            "metadata": {"name": f"node-{at}", "labels": labels},
            "status": {"allocatable": amounts, "images": images},
        }


def slices(size: Size) -> Iterator[Manifest]:
    """Yield one slice per node."""
    for at in range(size.nodes):
        pool = {"name": f"node-{at}", "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"gpu-{n}", "attributes": {"model": {"string": "a"}}} for n in range(size.devices_per_node)]
        spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": f"node-{at}", "devices": devices}
        yield {"metadata": {"name": f"slice-{at}"}, "spec": spec}


def volumes(size: Size) -> Iterator[Manifest]:
    """Yield volumes that are bound to the claims."""
    for at in range(size.nodes * size.volumes_per_node):
        ref = {"namespace": "default", "name": f"data-{at}", "uid": f"PersistentVolumeClaim-data-{at}"}
        csi = {"driver": "csi.example.com", "volumeHandle": f"handle-{at}"}
        spec = {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": ref, "csi": csi}
        yield {"metadata": {"name": f"volume-{at}"}, "spec": spec, "status": {"phase": "Bound"}}


def claims(size: Size) -> Iterator[Manifest]:
    """Yield the claims of the volumes."""
    for at in range(size.nodes * size.volumes_per_node):
        annotations = {"pv.kubernetes.io/bind-completed": "yes"}
        metadata = {"name": f"data-{at}", "namespace": "default", "annotations": annotations}
        yield {"metadata": metadata, "spec": {"volumeName": f"volume-{at}", "accessModes": ["ReadWriteOnce"]}}


def device_claims(size: Size) -> Iterator[Manifest]:
    """Yield one allocated claim per node."""
    for at in range(size.nodes):
        result = {"request": "r", "driver": "gpu.example.com", "pool": f"node-{at}", "device": "gpu-0"}
        metadata = {"name": f"gpu-{at}", "namespace": "default"}
        yield {"metadata": metadata, "spec": {}, "status": {"allocation": {"devices": {"results": [result]}}}}


def pods(size: Size) -> Iterator[Manifest]:
    """Yield bound pods of 500 apps; the first ones have the volumes, one each."""
    for at in range(size.nodes * size.pods_per_node):
        app = {"app": f"app-{at % 500}"}
        container = {"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
        spec: Manifest = {
            "nodeName": f"node-{at % size.nodes}",
            "schedulerName": "default-scheduler",
            "containers": [container],
        }
        if at < size.nodes * size.volumes_per_node:
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{at}"}}]
        if at % 5 == 0:
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": app}}
            spec["affinity"] = {"podAntiAffinity": {_HARD: [term]}}
        yield {"metadata": {"name": f"pod-{at}", "namespace": "default", "labels": app}, "spec": spec}
