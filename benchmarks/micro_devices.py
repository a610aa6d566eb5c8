"""In-process figures of placing pods with devices, without sockets: `python -m benchmarks.micro_devices`.

Decisions, from PreFilter to the assumption, in clusters of 500 and of 5000 nodes. They have the devices of the workloads in
`devices`: eight devices a node, of which one or two are requested. The columns: microseconds of one decision and their
ratio, best of three passes, and decisions a second. Placed pods stay, and so do the devices that they were given, as in a burst.

Also where no node can serve the pod: a node has eight devices of which one is taken, and eight are requested; and five
of one NUMA node are requested, which has four. With `--hard` pods whose devices take long to find (`hard_devices`).
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog

from benchmarks.deviceobjects import Devices, only_on
from benchmarks.devices import (
    CONSUMABLE,
    DRIVER,
    ONE,
    PARTITIONABLE,
    REQUEST,
    TEMPLATE,
    TWO,
    claim_name,
    pod_claims,
)
from benchmarks.in_process import SHAPES, Figure, InProcess, compare, microseconds
from benchmarks.micro import show
from benchmarks.workload import NAMESPACE, Workload, node_name
from scheduler.api.core_v1 import Pod
from scheduler.api.decode import ObjectDecoder
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.resource_v1 import FINALIZER
from scheduler.core.cooperative import finish
from scheduler.cycle import Scheduled, Unschedulable

SMALL_NODES, LARGE_NODES = 500, 5000
PODS, HOPELESS_PODS = 300, 40
_WARM_UP = 10
_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class Setting:
    """A cluster whose pods, with this number of shapes of claims, are of one of the workloads with devices."""

    workload: str
    nodes: int
    shapes: int
    count: int = 0
    """Devices of each claim in place of the workload's."""

    @property
    def devices(self) -> Devices:
        return Devices(Workload(self.workload, self.nodes, PODS, self.shapes))

    def decider(self) -> InProcess:
        """With classes and slices, without claims."""
        decider = InProcess(self.nodes, self.shapes)
        decider.show("DeviceClass", self.devices.classes())
        decider.show("ResourceSlice", self.devices.slices())
        return decider

    def pods(self, decider: InProcess, prefix: str, count: int) -> list[PodInfo]:
        """The decider gets their claims."""
        pods = []
        for index in range(count):
            name = f"{prefix}-{index}"
            body = msgspec.json.decode(decider.raw_pod(prefix, index))
            body["spec"] |= pod_claims(self.workload, name, index % self.shapes)
            if self.devices.kind.is_template:
                body["status"]["resourceClaimStatuses"] = [{"name": REQUEST, "resourceClaimName": claim_name(name)}]
            pod = ObjectDecoder("Pod", Pod).decode(msgspec.json.encode(body))
            assert isinstance(pod, Pod)
            pods.append(pod_info(pod))
            decider.show("ResourceClaim", [self._claim(pod, index)])
        return pods

    def _claim(self, pod: Pod, index: int) -> bytes:
        body = msgspec.json.decode(self.devices.claim(pod.metadata.name, index))
        if self.count:
            body["spec"]["devices"]["requests"][0]["exactly"]["count"] = self.count
        if self.devices.kind.is_template:
            owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
            body["metadata"]["ownerReferences"] = [owner | {"controller": True}]
        return msgspec.json.encode(body)


def _taken(node: str, device: str) -> bytes:
    """Another claim that has this device."""
    result = {"request": REQUEST, "driver": DRIVER, "pool": node, "device": device}
    allocation = {"devices": {"results": [result]}, "nodeSelector": only_on(node)}
    user = {"resource": "pods", "name": f"of-{node}", "uid": f"of-{node}"}
    metadata = {"name": f"of-{node}", "namespace": NAMESPACE, "finalizers": [FINALIZER]}
    return msgspec.json.encode({"metadata": metadata, "status": {"allocation": allocation, "reservedFor": [user]}})


def _decisions(decider: InProcess, setting: Setting, count: int, *, fits: bool = True) -> float:
    """Microseconds of one attempt."""
    cycle = decider.cycle()
    warm_up = setting.pods(decider, "warm", max(min(_WARM_UP, count), setting.shapes))  # every shape has been seen once
    pods = setting.pods(decider, "p", count)
    for info in warm_up:
        finish(cycle.attempt(info, 1))

    def work() -> int:
        for info in pods:
            outcome = finish(cycle.attempt(info, 1))
            assert isinstance(outcome, Scheduled) if fits else _is_refused(outcome), outcome
        return len(pods)

    return microseconds(work)


def _is_refused(outcome: object) -> bool:
    """For want of devices, and not for an error."""
    return isinstance(outcome, Unschedulable) and "DynamicResources" in outcome.diagnosis.unschedulable_plugins


def placed(nodes: int, *, workload: str, shapes: int) -> float:
    """Pods of a workload, as many as are sure of their devices."""
    setting = Setting(workload, nodes, shapes)
    return _decisions(setting.decider(), setting, PODS)


def never_enough(nodes: int, *, shapes: int) -> float:
    """All devices of a node are requested, and one of each node is taken."""
    setting = Setting(ONE, nodes, shapes, count=_PER_NODE)
    decider = setting.decider()
    decider.show("ResourceClaim", (_taken(node_name(index), f"gpu-{index % _PER_NODE}") for index in range(nodes)))
    return _decisions(decider, setting, HOPELESS_PODS, fits=False)


def never_of_one_numa_node(nodes: int, *, shapes: int) -> float:
    """One device more than a NUMA node has."""
    setting = Setting(TWO, nodes, shapes, count=_PER_NODE // 2 + 1)
    return _decisions(setting.decider(), setting, HOPELESS_PODS, fits=False)


def figures() -> Iterator[Figure]:
    workloads = {
        "one device": ONE,
        "two devices of one NUMA node": TWO,
        "one device, claim from a template": TEMPLATE,
        "a share of a device": CONSUMABLE,
        "a part of a device": PARTITIONABLE,
    }
    measures = {name: partial(placed, workload=workload) for name, workload in workloads.items()}
    hopeless = {"never enough": never_enough, "never of one NUMA node": never_of_one_numa_node}
    for shapes, words in ((1, "equal claims"), (SHAPES, f"{SHAPES} shapes")):
        for name, measure in (measures | hopeless).items():
            yield compare(f"{name}, {words}", partial(measure, shapes=shapes), SMALL_NODES, LARGE_NODES)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro_devices", description=__doc__)
    parser.add_argument("--hard", action="store_true", help="pods whose devices take long to find, and nothing else")
    args = parser.parse_args(argv)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    if args.hard:
        from benchmarks import hard_devices  # builds on this module

        for line in hard_devices.lines():
            print(line, flush=True)
        return 0
    measured = list(figures())
    show("decisions, devices", (f"{SMALL_NODES} nodes", f"{LARGE_NODES} nodes"), measured)
    for figure in measured:
        print(f"{figure.name}: {1e6 / figure.small_us:.0f} and {1e6 / figure.large_us:.0f} decisions a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
