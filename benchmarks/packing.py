"""How much of a cluster's GPUs is allocated, and how fragmented the rest is: `python -m benchmarks.packing --trace DIR`.

The method of FGD (benchmarks/openb.py): the cluster is empty; tasks arrive one after the other until they have requested
130 % of the GPUs; a task that does not fit is dropped; none ends. Each GPU is a device that claims share, with a capacity
of 1000 `milli`. A task requests `milli` of one device, or 1000 of each of several. The whole scheduler runs in this
process, from the queue to the written claim, without sockets. `--kube` runs kube-scheduler on a real control plane instead.

Results are JSON lines: per policy and seed the allocated share and the fragmentation, in per cent of all GPUs, after each
per cent that arrived. `python -m tools.pictures` draws those in docs/results.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import structlog
from aiohttp import ClientSession
from rich.console import Console
from rich.table import Table

from benchmarks import load
from benchmarks.openb import MILLI, Fragmentation, Machine, Task, Trace, generated, read
from benchmarks.workload import NAMESPACE
from scheduler.api.decode import Broken, Delta
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.config.load import parse
from scheduler.kube.resources import KINDS
from tests.e2e.controlplane.build import MINOR, RELEASES
from tests.e2e.controlplane.harness import ControlPlane, scheduler_config
from tests.unit.harness import SchedulerHarness

DRIVER: Final = "gpu.example.com"
CLASS: Final = "gpu"
CAPACITY: Final = "milli"
_GROUP: Final = "/apis/resource.k8s.io/v1"
_CLAIMS: Final = f"{_GROUP}/namespaces/{NAMESPACE}/resourceclaims"
_SHOWN: Final = (90, 95, 100, 110, 130)
"""Per cent of the GPUs that arrived, for the table."""
_POLL_S: Final = 0.004
_PATIENCE_S: Final = 60.0

_MOST_ALLOCATED: Final = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
_FIRST: Final = {
    "score": {"disabled": [{"name": "DynamicResources"}], "enabled": [{"name": "DynamicResources", "weight": 100}]}
}


def _ours(scoring: str) -> dict[str, Any]:
    return {"name": "Kubestow", "args": {"deviceScoring": scoring}}


POLICIES: Final[Mapping[str, dict[str, Any]]] = {
    "random": {"plugins": {"score": {"disabled": [{"name": "*"}]}}, "pluginConfig": [_ours("firstFit")]},
    "firstFit": {"pluginConfig": [_ours("firstFit")]},
    "pack": {"pluginConfig": [_ours("pack")]},
    "pack, MostAllocated": {"pluginConfig": [_ours("pack"), _MOST_ALLOCATED]},
    "leastFragmentation": {"pluginConfig": [_ours("leastFragmentation")]},
    "leastFragmentation first": {"plugins": _FIRST, "pluginConfig": [_ours("leastFragmentation")]},
}
"""Policy → the profile. `random` takes any node that fits; in `… first` the other scores only break ties."""
KUBE_POLICIES: Final[Mapping[str, dict[str, Any]]] = {
    "kube-scheduler": {},
    "kube-scheduler, MostAllocated": {"pluginConfig": [_MOST_ALLOCATED]},
}


# -- objects -----------------------------------------------------------------------------------------------------------


def _node(index: int, machine: Machine) -> dict[str, Any]:
    amounts = {"cpu": f"{machine.milli_cpu}m", "memory": f"{machine.memory_mib}Mi", "pods": "1000"}
    return {"metadata": {"name": _name(index)}, "status": {"allocatable": amounts, "capacity": amounts}}


def _name(index: int) -> str:
    return f"node-{index:04d}"


def _class() -> dict[str, Any]:
    return {
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    }


def _slice(index: int, machine: Machine) -> dict[str, Any]:
    device = {
        "attributes": {"model": {"string": machine.model}},
        "capacity": {CAPACITY: {"value": str(MILLI)}},
        "allowMultipleAllocations": True,
    }
    pool = {"name": _name(index), "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}", **device} for number in range(machine.gpus)]
    spec = {"driver": DRIVER, "nodeName": _name(index), "pool": pool, "devices": devices}
    return {"metadata": {"name": _name(index)}, "spec": spec}


def _claim(name: str, task: Task) -> dict[str, Any]:
    exactly: dict[str, Any] = {
        "deviceClassName": CLASS,
        "count": task.gpus,
        "allocationMode": "ExactCount",
        "capacity": {"requests": {CAPACITY: str(task.gpu_milli)}},
    }
    if task.models:
        models = ", ".join(f'"{model}"' for model in task.models)
        exactly["selectors"] = [{"cel": {"expression": f'device.attributes["{DRIVER}"].model in [{models}]'}}]
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"metadata": metadata, "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}}


def _pod(name: str, task: Task, scheduler: str) -> dict[str, Any]:
    requests = {"cpu": f"{task.milli_cpu}m", "memory": f"{task.memory_mib}Mi"}
    container: dict[str, Any] = {"name": "c", "image": "i", "resources": {"requests": requests}}
    spec: dict[str, Any] = {"schedulerName": scheduler, "containers": [container]}
    if task.gpus:
        container["resources"]["claims"] = [{"name": "gpus"}]
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimName": name}]
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


# -- where the scheduler runs ------------------------------------------------------------------------------------------


class Cluster(Protocol):
    """A cluster with a scheduler."""

    async def place(self, name: str, task: Task) -> tuple[str, Sequence[int]] | None:
        """Create the pod; return its node and the numbers of its devices, or None if it fits nowhere and is gone again."""


class InProcess:
    """Kubestow without sockets. The clock stands still, so that no time limit makes a difference."""

    def __init__(self, trace: Trace, profile: Mapping[str, Any]) -> None:
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "kubestow", **profile}],
        }
        self._scheduler = SchedulerHarness(parse(msgspec.json.encode(document).decode(), source="packing"))
        self._scheduler.writer.on_claim_written = self._written
        self._show("DeviceClass", _class())
        for index, machine in enumerate(trace.machines):
            self._show("Node", _node(index, machine))
            self._show("ResourceSlice", _slice(index, machine))

    def _show(self, kind: str, body: dict[str, Any], old: Any = None) -> Any:
        body["metadata"] |= {"uid": body["metadata"]["name"], "resourceVersion": "1"}
        new = KINDS[kind].decoder().decode(msgspec.json.encode(body))
        assert not isinstance(new, Broken), new
        self._scheduler.parts.event_handlers.apply(kind, [Delta(old, new)])
        return new

    def _written(self, _what: str, claim: ResourceClaim) -> None:
        """The watch shows each write."""
        parts, before = self._scheduler.parts, self._scheduler.cluster.devices.claims.get(claim.key)
        parts.inbox.put(lambda: parts.event_handlers.apply("ResourceClaim", [Delta(before, claim)]))

    async def place(self, name: str, task: Task) -> tuple[str, Sequence[int]] | None:
        """As the protocol says."""
        scheduler, writer = self._scheduler, self._scheduler.writer
        claim = self._show("ResourceClaim", _claim(name, task)) if task.gpus else None
        pod = self._show("Pod", _pod(name, task, "kubestow"))
        await scheduler.settle()
        apply = scheduler.parts.event_handlers.apply
        if not writer.binds or writer.binds[-1][0] != pod.key:
            apply("Pod", [Delta(pod, None)])
            if claim is not None:
                apply("ResourceClaim", [Delta(claim, None)])
            await scheduler.settle()
            return None
        node_name = writer.binds[-1][1]
        bound = _pod(name, task, "kubestow")
        bound["spec"]["nodeName"] = node_name
        self._show("Pod", bound, pod)
        if claim is None:
            return node_name, ()
        written = writer.resource_claims[claim.key]
        assert not isinstance(written, Broken)
        assert written.status.allocation is not None
        return node_name, [_number(each.device) for each in written.status.allocation.devices.results]


def _number(device: str) -> int:
    return int(device.removeprefix("gpu-"))


class ApiServer:
    """A real control plane with kube-scheduler."""

    def __init__(self, http: ClientSession) -> None:
        self._http = http

    @classmethod
    @asynccontextmanager
    async def running(cls, trace: Trace, profile: Mapping[str, Any]) -> AsyncIterator["ApiServer"]:
        """Start the control plane, create nodes and slices, and start kube-scheduler with its default gates."""
        async with ControlPlane(high_load=True) as plane, plane.client() as http:
            await load.post(http, "/api/v1/namespaces", msgspec.json.encode({"metadata": {"name": NAMESPACE}}))
            await load.post(http, f"{_GROUP}/deviceclasses", msgspec.json.encode(_class()))
            for index, machine in enumerate(trace.machines):
                await load.post(http, "/api/v1/nodes", msgspec.json.encode(_node(index, machine)))
                await load.post(http, f"{_GROUP}/resourceslices", msgspec.json.encode(_slice(index, machine)))
            client = {"qps": 5000, "burst": 5000}
            profiles = [{"schedulerName": "kube", **profile}]
            await plane.start_scheduler(scheduler_config() | {"clientConnection": client, "profiles": profiles})
            yield cls(http)

    async def place(self, name: str, task: Task) -> tuple[str, Sequence[int]] | None:
        """As the protocol says."""
        http, pod_path, claim_path = self._http, f"{load.PODS}/{name}", f"{_CLAIMS}/{name}"
        if task.gpus:
            await load.post(http, _CLAIMS, msgspec.json.encode(_claim(name, task)))
        await load.post(http, load.PODS, msgspec.json.encode(_pod(name, task, "kube")))
        pod = await self._decided(pod_path)
        node_name = pod["spec"].get("nodeName")
        if node_name is None:
            async with http.delete(pod_path, params={"gracePeriodSeconds": "0"}) as answer:
                await answer.read()
            if task.gpus:
                await load.remove(http, claim_path)
            return None
        if not task.gpus:
            return node_name, ()
        results = (await self._get(claim_path))["status"]["allocation"]["devices"]["results"]
        return node_name, [_number(each["device"]) for each in results]

    async def _get(self, path: str) -> dict[str, Any]:
        async with self._http.get(path) as answer:
            answer.raise_for_status()
            found: dict[str, Any] = msgspec.json.decode(await answer.read())
            return found

    async def _decided(self, path: str) -> dict[str, Any]:
        """Return the pod once it has a node, or the condition that it fits nowhere."""
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            pod = await self._get(path)
            conditions = pod["status"].get("conditions") or ()
            if pod["spec"].get("nodeName") or any(each.get("reason") == "Unschedulable" for each in conditions):
                return pod
            await asyncio.sleep(_POLL_S)
        raise RuntimeError(f"{path} was not decided within {_PATIENCE_S:.0f} s")


# -- a run -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Curve:
    """Per cent of all GPUs; index *i* is the state when *i* per cent had arrived."""

    policy: str
    source: str
    seed: int
    allocated: list[float] = field(default_factory=list)
    fragmented: list[float] = field(default_factory=list)
    tasks: int = 0
    dropped: int = 0
    dropped_large: int = 0
    """Those of them that requested more than one GPU."""
    dropped_without_gpus: int = 0
    cpu_s: float = 0.0
    """Of this process; that of etcd, API server and kube-scheduler is not in it."""


async def measure(cluster: Cluster, policy: str, trace: Trace, seed: int) -> Curve:
    """Let the tasks arrive one after the other, and count what is allocated by the written claims."""
    curve = Curve(policy, trace.source, seed)
    fragmentation, capacity = Fragmentation(trace), trace.capacity_milli
    indexes = {_name(index): index for index in range(len(trace.machines))}
    cpu = [machine.milli_cpu for machine in trace.machines]
    free = [np.full(machine.gpus, MILLI) for machine in trace.machines]
    arrived = allocated = 0
    began = time.process_time()
    for number, task in enumerate(trace.arrivals(seed)):
        while len(curve.allocated) * capacity <= 100 * arrived:
            curve.allocated.append(round(100 * allocated / capacity, 3))
            curve.fragmented.append(round(100 * fragmentation.total_milli / capacity, 3))
        arrived += task.total_milli
        curve.tasks += 1
        placed = await cluster.place(f"p-{number}", task)
        if placed is None:
            curve.dropped += 1
            curve.dropped_large += task.gpus > 1
            curve.dropped_without_gpus += not task.gpus
            continue
        index, devices = indexes[placed[0]], list(placed[1])
        cpu[index] -= task.milli_cpu
        free[index][devices] -= task.gpu_milli
        assert len(set(devices)) == task.gpus, placed
        assert cpu[index] >= 0, placed
        assert free[index].min(initial=0) >= 0, placed
        allocated += task.total_milli
        fragmentation.update(index, cpu[index], free[index])
    curve.allocated.append(round(100 * allocated / capacity, 3))
    curve.fragmented.append(round(100 * fragmentation.total_milli / capacity, 3))
    curve.cpu_s = round(time.process_time() - began, 1)
    return curve


async def _run(policy: str, trace: Trace, seed: int) -> Curve:
    if policy in KUBE_POLICIES:
        async with ApiServer.running(trace, KUBE_POLICIES[policy]) as cluster:
            return await measure(cluster, policy, trace, seed)
    return await measure(InProcess(trace, POLICIES[policy]), policy, trace, seed)


def show(curves: Sequence[Curve]) -> None:
    """Print the means over the seeds."""
    table = Table(title="per cent of all GPUs, allocated / fragmented, mean over the seeds")
    for column in (
        "policy",
        "seeds",
        *(f"{at} % arrived" for at in _SHOWN),
        "range at the end",
        "dropped",
        "large",
        "no GPU",
        "CPU s",
    ):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for policy in dict.fromkeys(curve.policy for curve in curves):
        some = [curve for curve in curves if curve.policy == policy]
        cells = [
            f"{mean(each.allocated[at] for each in some):.2f} / {mean(each.fragmented[at] for each in some):.2f}"
            for at in _SHOWN
        ]
        last = [each.allocated[-1] for each in some]
        counts = (
            f"{mean(each):.0f}"
            for each in zip(*((c.dropped, c.dropped_large, c.dropped_without_gpus, c.cpu_s) for c in some))
        )
        table.add_row(policy, str(len(some)), *cells, f"{min(last):.2f}-{max(last):.2f}", *counts)
    Console(width=180).print(table)


def main(argv: Sequence[str] | None = None) -> int:
    """Run all policies with all seeds, and append each result as soon as it is there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packing", description=__doc__)
    parser.add_argument("--trace", type=Path, help="folder with the CSV files; else tasks are generated")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", help="comma-free name of one policy; may be repeated", action="append")
    parser.add_argument("--kube", action="store_true", help=f"measure kube-scheduler {RELEASES[MINOR]} instead")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/packing.jsonl"))
    arguments = parser.parse_args(argv)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    trace = read(arguments.trace) if arguments.trace else generated()
    policies = arguments.only or list(KUBE_POLICIES if arguments.kube else POLICIES)
    arguments.out.parent.mkdir(exist_ok=True)
    curves = []
    for seed in range(arguments.seeds):
        for policy in policies:
            curve = asyncio.run(_run(policy, trace, seed))
            curves.append(curve)
            with arguments.out.open("a", encoding="utf-8") as out:
                out.write(msgspec.json.encode(curve).decode() + "\n")
            line = f"{policy}, seed {seed}: {curve.allocated[-1]:.2f} % allocated, {curve.dropped} of {curve.tasks} dropped"
            print(f"{line}, {curve.cpu_s:.0f} s of CPU", file=sys.stderr, flush=True)
    show(curves)
    return 0


if __name__ == "__main__":
    sys.exit(main())
