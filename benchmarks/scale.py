"""How memory, start, events and decisions grow with the cluster, in process.

    python -m benchmarks.scale [--nodes 20000] [--against 5000]

A node has 15 bound pods, ten volumes with their claims, and five devices: 20,000 nodes have 300,000 pods, 200,000 volumes and claims and
100,000 devices. Each size has a process, which first fills its cache as the watches of a start would, then applies events, then
decides. Times are of the processor. The last column is the ratio; nodes are its base.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.full_cluster import FullCluster, Manifest, Size, device_claims, nodes, pods, slices, volumes
from benchmarks.in_process import resident_mib
from scheduler.api.core_v1 import Pod
from scheduler.api.decode import ObjectDecoder
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.config.types import OUR_NAME
from scheduler.core.cooperative import finish
from scheduler.cycle import Scheduled
from scheduler.daemon.app import GC_THRESHOLD

EVENTS = 2000
DECISIONS = 300
_WARM_UP = 20


def _changed(manifests: Iterator[Manifest], change: Callable[[Manifest], None]) -> Iterator[Manifest]:
    for manifest in islice(manifests, EVENTS):
        change(manifest)
        yield manifest


def _heartbeat(manifest: Manifest) -> None:
    manifest["status"]["conditions"] = [{"type": "Ready", "status": "True"}]


def _label(manifest: Manifest) -> None:
    manifest["metadata"].setdefault("labels", {})["changed"] = "yes"


def _new_generation(manifest: Manifest) -> None:
    manifest["spec"]["pool"]["generation"] = 2


def _pending(name: str, **spec: object) -> PodInfo:
    container = {"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
    pod = ObjectDecoder("Pod", Pod).decode(
        json.dumps(
            {
                "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
                "spec": {"schedulerName": OUR_NAME, "containers": [container], **spec},
                "status": {"phase": "Pending"},
            }
        ).encode()
    )
    assert isinstance(pod, Pod), pod
    return pod_info(pod)


def _plain(_: FullCluster) -> list[PodInfo]:
    return [_pending(f"plain-{at}") for at in range(DECISIONS + _WARM_UP)]


def _with_volume(_: FullCluster) -> list[PodInfo]:
    """Each has a bound volume, which other pods use too."""
    return [
        _pending(f"volume-{at}", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": f"data-{at}"}}])
        for at in range(DECISIONS + _WARM_UP)
    ]


def _with_device(cluster: FullCluster) -> list[PodInfo]:
    """Each has a claim of one device by a CEL selector."""
    selector = {"cel": {"expression": 'device.driver == "gpu.example.com"'}}
    cluster.show("DeviceClass", iter([{"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}]))
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    names = [f"wanted-{at}" for at in range(DECISIONS + _WARM_UP)]
    claims = (
        {"metadata": {"name": each, "namespace": "default"}, "spec": {"devices": {"requests": [request]}}}
        for each in names
    )
    cluster.show("ResourceClaim", claims)
    return [_pending(f"device-{each}", resourceClaims=[{"name": "r", "resourceClaimName": each}]) for each in names]


def _decision_us(cluster: FullCluster, pending: list[PodInfo]) -> float:
    cycle = cluster.scheduler.cycle
    for info in pending[:_WARM_UP]:
        finish(cycle.attempt(info, 1))
    began = time.process_time()
    for info in pending[_WARM_UP:]:
        outcome = finish(cycle.attempt(info, 1))
        assert isinstance(outcome, Scheduled), outcome
    return (time.process_time() - began) / DECISIONS * 1e6


def measure(size: Size) -> dict[str, float]:
    """Return the figures of one size. Call it in a process that has done nothing else."""
    before_mib = resident_mib()
    cluster = FullCluster(size)
    gc.collect()
    gc.freeze()
    found = {"resident memory, MiB": resident_mib(), "of it for the cluster, MiB": resident_mib() - before_mib}
    found["start: intake of all objects, s"] = sum(cluster.cpu_s.values())
    for name, kind, manifests in (
        ("a node's heartbeat", "Node", _changed(nodes(size), _heartbeat)),
        ("a bound pod changes", "Pod", _changed(pods(size), _label)),
        ("a volume changes", "PersistentVolume", _changed(volumes(size), _label)),
        ("a device claim changes", "ResourceClaim", _changed(device_claims(size), _label)),
        ("a slice is published again", "ResourceSlice", _changed(slices(size), _new_generation)),
    ):
        found[f"event: {name}, µs"] = cluster.show(kind, manifests) / min(EVENTS, size.nodes) * 1e6
    for name, pending in (("plain", _plain), ("with a volume", _with_volume), ("with a device", _with_device)):
        found[f"decision: a pod {name}, µs"] = _decision_us(cluster, pending(cluster))
    return found


def main() -> int:
    """Measure both sizes, each in a process of this module, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--against", type=int, default=5000)
    parser.add_argument("--one", action="store_true", help="measure --nodes alone, in this process, and print JSON")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    gc.set_threshold(*GC_THRESHOLD)
    if options.one:
        print(json.dumps(measure(Size(options.nodes, pods_per_node=15, volumes_per_node=10, devices_per_node=5))))
        return 0
    small, large = (_in_a_process(count) for count in (options.against, options.nodes))
    table = Table("", f"{options.against} nodes", f"{options.nodes} nodes", "ratio")
    for name, value in small.items():
        table.add_row(name, f"{value:,.1f}", f"{large[name]:,.1f}", f"{large[name] / value:.2f}")
    table.caption = f"{options.nodes / options.against:.0f} times as many nodes, pods, volumes and devices"
    Console().print(table)
    return 0


def _in_a_process(node_count: int) -> Mapping[str, float]:
    command = [sys.executable, "-m", "benchmarks.scale", "--one", "--nodes", str(node_count)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())
