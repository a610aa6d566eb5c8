"""What a pass of the self-audit costs: `python -m benchmarks.self_audit`.

A cluster in ten zones, with ten pods, twenty images and four devices per node. One pod in ten has a claim with its volume, one
in ten an allocated device, one in five an anti-affinity term. Some selections of pods are counted by zone, as for spread
constraints. The table has, by index: milliseconds of the check, its steps, and its longest step. The last line has the sum, and the
time of a pass with 1 % of a core. Times are of the processor.
"""

import argparse
import gc
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.in_process import Echo, Silent
from scheduler.api.decode import Delta
from scheduler.api.selectors import LabelSelector
from scheduler.audit.self_audit import SHARE
from scheduler.cache.nodes import topology
from scheduler.cache.pods import selection
from scheduler.config.types import Configuration, RunOptions
from scheduler.core.clock import SystemClock
from scheduler.core.feature_gates import DEVICE_GATES_ON
from scheduler.daemon.app import GC_THRESHOLD
from scheduler.kube.resources import KINDS
from scheduler.kube.store import Store
from scheduler.metrics.metrics import Metrics
from scheduler.scheduler import Scheduler

Manifest = dict[str, Any]
PODS_PER_NODE = 10
_HARD = "requiredDuringSchedulingIgnoredDuringExecution"


class Filled:
    """A scheduler with a full cache, and the stores of its informers."""

    def __init__(self, nodes: int) -> None:
        self.stores: dict[str, Store[Any]] = {}
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
            ("Node", _nodes(nodes)),
            ("ResourceSlice", _slices(nodes)),
            ("PersistentVolume", _volumes(nodes)),
            ("PersistentVolumeClaim", _claims(nodes)),
            ("ResourceClaim", _device_claims(nodes)),
            ("Pod", _pods(nodes)),
        ):
            self._show(kind, manifests)
        self._count()

    def _show(self, kind: str, manifests: Iterator[Manifest]) -> None:
        decode, store = KINDS[kind].decoder().decode, self.stores.setdefault(kind, Store())
        for at, manifest in enumerate(manifests, start=1):
            manifest["metadata"] |= {"uid": f"{kind}-{manifest['metadata']['name']}", "resourceVersion": str(at)}
            deltas: list[Delta[Any]] = []
            store.set(decode(msgspec.Raw(msgspec.json.encode(manifest))), deltas)
            self.scheduler.event_handlers.apply(kind, deltas)

    def _count(self) -> None:
        """Read counts as decisions do, so that they are maintained."""
        nodes = self.scheduler.cluster.nodes
        for at in range(20):
            terms = [(frozenset({"default"}), LabelSelector({"app": f"app-{at}"}))]
            counts = nodes.population.tally(selection(terms, counts_terminating=False))
            for key in ("zone", "kubernetes.io/hostname"):
                topology.of(counts, nodes.topologies.of(key)).column()
        self.scheduler.cluster.volumes.attached.catch_up()
        self.scheduler.cluster.devices.on_nodes.catch_up()


def _nodes(count: int) -> Iterator[Manifest]:
    for at in range(count):
        images = [{"names": [f"registry/image-{(at + n) % 200}:1"], "sizeBytes": 10**8} for n in range(20)]
        labels = {"zone": f"zone-{at % 10}", "kubernetes.io/hostname": f"node-{at}", "pool": f"pool-{at % 7}"}
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}
        yield {
            "metadata": {"name": f"node-{at}", "labels": labels},
            "status": {"allocatable": amounts, "images": images},
        }


def _slices(count: int) -> Iterator[Manifest]:
    for at in range(count):
        pool = {"name": f"node-{at}", "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"gpu-{n}", "attributes": {"model": {"string": "a"}}} for n in range(4)]
        spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": f"node-{at}", "devices": devices}
        yield {"metadata": {"name": f"slice-{at}"}, "spec": spec}


def _volumes(count: int) -> Iterator[Manifest]:
    for at in range(count):
        ref = {"namespace": "default", "name": f"data-{at}", "uid": f"PersistentVolumeClaim-data-{at}"}
        csi = {"driver": "csi.example.com", "volumeHandle": f"handle-{at}"}
        spec = {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": ref, "csi": csi}
        yield {"metadata": {"name": f"volume-{at}"}, "spec": spec, "status": {"phase": "Bound"}}


def _claims(count: int) -> Iterator[Manifest]:
    for at in range(count):
        metadata = {"name": f"data-{at}", "namespace": "default"}
        yield {"metadata": metadata, "spec": {"volumeName": f"volume-{at}", "accessModes": ["ReadWriteOnce"]}}


def _device_claims(count: int) -> Iterator[Manifest]:
    for at in range(count):
        result = {"request": "r", "driver": "gpu.example.com", "pool": f"node-{at}", "device": "gpu-0"}
        metadata = {"name": f"gpu-{at}", "namespace": "default"}
        yield {"metadata": metadata, "spec": {}, "status": {"allocation": {"devices": {"results": [result]}}}}


def _pods(nodes: int) -> Iterator[Manifest]:
    for at in range(nodes * PODS_PER_NODE):
        app = {"app": f"app-{at % 500}"}
        container = {"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
        spec: Manifest = {
            "nodeName": f"node-{at % nodes}",
            "schedulerName": "default-scheduler",
            "containers": [container],
        }
        if at < nodes:
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{at}"}}]
        if at % 5 == 0:
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": app}}
            spec["affinity"] = {"podAntiAffinity": {_HARD: [term]}}
        yield {"metadata": {"name": f"pod-{at}", "namespace": "default", "labels": app}, "spec": spec}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    gc.set_threshold(*GC_THRESHOLD)
    filled = Filled(options.nodes)
    gc.collect()
    gc.freeze()
    table = Table("index", "ms", "steps", "longest step, ms", "differences")
    total_s = 0.0
    for index, check in filled.scheduler.audit.checks.items():
        steps, longest_s, differences = 0, 0.0, 0
        began = last = time.thread_time()
        for found in check():
            now = time.thread_time()
            longest_s, last = max(longest_s, now - last), now
            steps, differences = steps + 1, differences + len(found)
        took_s = time.thread_time() - began
        total_s += took_s
        table.add_row(index, f"{1e3 * took_s:.0f}", str(steps), f"{1e3 * longest_s:.2f}", str(differences))
    pods = options.nodes * PODS_PER_NODE
    table.caption = (
        f"{options.nodes} nodes, {pods} pods: {total_s:.1f} s, a pass takes {total_s / SHARE / 60:.0f} minutes"
    )
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
