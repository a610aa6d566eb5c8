"""In-process figures of placing pods with claims, without sockets: `python -m benchmarks.micro_volumes local`.

Microseconds of one decision, from PreFilter to the assumption, at two sizes of the cluster, and their ratio; best of
three passes. Placed pods stay, and so do their volumes and capacity, as in a burst.

local      500 nodes with 1000 local volumes, and ten times as much. Also where no volume is left, and where every node has
           a volume for each claim of a pod, but none can serve all three together.
capacity   as many CSIStorageCapacity objects as nodes.
scores     some of `local` and `capacity` with StorageCapacityScoring, which is on by default since Kubernetes 1.37.
bound      1000 and 100 000 claims that are bound to CSI volumes, on 1000 nodes
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import structlog

from benchmarks.in_process import SHAPES, Figure, InProcess, compare, microseconds
from benchmarks.micro import show
from benchmarks.storage import Storage, csi_volume_body, on_node, volume_body
from benchmarks.volumes import (
    CLASS,
    CSI,
    DYNAMIC,
    LOCAL,
    LOCAL_THREE,
    STEPS_MIB,
    claim_mib,
    claim_names,
    local_mib,
    pod_volumes,
)
from benchmarks.workload import NAMESPACE, ZONES, Workload, node_name
from scheduler.api.core_v1 import Pod
from scheduler.api.decode import ObjectDecoder
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.storage_v1 import BIND_COMPLETED
from scheduler.config.load import default
from scheduler.core.cooperative import finish
from scheduler.core.feature_gates import DEFAULT_VERSION, defaults
from scheduler.cycle import Scheduled

SMALL_NODES, LARGE_NODES = 500, 5000
SMALL_CLAIMS, LARGE_CLAIMS, NODES_OF_CLAIMS = 1000, 100_000, 1000
ONE_CLAIM_PODS, THREE_CLAIM_PODS, HOPELESS_PODS = 300, 120, 40
TANGLED_PODS = 2
"""Where each node has to be tried."""
_WARM_UP = 10


@dataclass(frozen=True, slots=True)
class Setting:
    """A cluster whose pods, with this number of shapes of claims, are of one of the workloads with storage."""

    workload: str
    nodes: int
    shapes: int
    labels: tuple[str, ...] = ()
    """That the claims of a pod, in turn, want their volumes to have."""
    version: str = DEFAULT_VERSION
    """The version of Kubernetes whose feature gates are on."""

    def decider(self) -> InProcess:
        """With class, driver and CSINodes, without volumes and claims."""
        config = default(feature_gates=defaults(self.version))
        decider = InProcess(self.nodes, self.shapes, config)
        storage = Storage(Workload(self.workload, self.nodes, ONE_CLAIM_PODS))
        decider.show("StorageClass", [storage.storage_class()])
        decider.show("CSIDriver", storage.drivers())
        decider.show("CSINode", storage.csi_nodes())
        decider.show("CSIStorageCapacity", storage.capacities())
        return decider

    def pods(self, decider: InProcess, prefix: str, count: int) -> list[PodInfo]:
        """The decider gets their claims, unless it has them already."""
        pods = []
        for index in range(count):
            name = f"{prefix}-{index}"
            body = msgspec.json.decode(decider.raw_pod(prefix, index))
            body["spec"] |= pod_volumes(self.workload, name)
            pod = ObjectDecoder("Pod", Pod).decode(msgspec.json.encode(body))
            assert isinstance(pod, Pod)
            pods.append(pod_info(pod))
            if self.workload != CSI:
                decider.show("PersistentVolumeClaim", self._claims(name, index % self.shapes))
        return pods

    def _claims(self, pod_name: str, shape: int) -> Iterator[bytes]:
        for number, name in enumerate(claim_names(self.workload, pod_name)):
            label = self.labels[number] if self.labels else ""
            yield _claim(name, f"{claim_mib(self.workload, shape, self.shapes, number)}Mi", label)


def _claim(name: str, size: str, label: str = "") -> bytes:
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS}
    spec["resources"] = {"requests": {"storage": size}}
    if label:
        spec["selector"] = {"matchLabels": {label: "yes"}}
    metadata = {"name": name, "namespace": NAMESPACE}
    return msgspec.json.encode({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})


def _local(node: int, number: int, mib: int, labels: Sequence[str] = ()) -> bytes:
    body = msgspec.json.decode(
        volume_body(f"local-{node}-{number}", f"{mib}Mi", {"nodeAffinity": on_node(node_name(node))})
    )
    body["metadata"]["labels"] = dict.fromkeys(labels, "yes")
    return msgspec.json.encode(body | {"status": {"phase": "Available"}})


def _taken(volume: bytes) -> bytes:
    """Bound to another claim."""
    body = msgspec.json.decode(volume)
    name = f"of-{body['metadata']['name']}"
    body["spec"]["claimRef"] = {"namespace": NAMESPACE, "name": name, "uid": name}
    return msgspec.json.encode(body | {"status": {"phase": "Bound"}})


def _decisions(decider: InProcess, setting: Setting, count: int, *, fits: bool = True) -> float:
    """Microseconds of one attempt."""
    cycle = decider.cycle()
    warm_up, pods = setting.pods(decider, "warm", min(_WARM_UP, count)), setting.pods(decider, "p", count)
    for info in warm_up:
        finish(cycle.attempt(info, 1))

    def work() -> int:
        for info in pods:
            outcome = finish(cycle.attempt(info, 1))
            assert isinstance(outcome, Scheduled) == fits, outcome
        return len(pods)

    return microseconds(work)


# -- local volumes -----------------------------------------------------------------------------------------------------


def one_claim(nodes: int, *, shapes: int, is_taken: bool = False, version: str = DEFAULT_VERSION) -> float:
    """Two volumes on each node, of all sizes together."""
    setting = Setting(LOCAL, nodes, shapes, version=version)
    decider = setting.decider()
    sizes = ((node, number, local_mib(LOCAL, node, node + 2 * number)) for node in range(nodes) for number in range(2))
    volumes = (_local(*size) for size in sizes)
    decider.show("PersistentVolume", map(_taken, volumes) if is_taken else volumes)
    return _decisions(decider, setting, HOPELESS_PODS if is_taken else ONE_CLAIM_PODS, fits=not is_taken)


def three_claims(nodes: int, *, shapes: int, version: str = DEFAULT_VERSION) -> float:
    """As many volumes as with one claim, ten on each of a fifth of the nodes, in all zones."""
    setting = Setting(LOCAL_THREE, nodes, shapes, version=version)
    decider = setting.decider()
    with_volumes = (node for node in range(nodes) if node // ZONES % 5 == 0)
    volumes = (
        _local(node, number, local_mib(LOCAL_THREE, node, number)) for node in with_volumes for number in range(10)
    )
    decider.show("PersistentVolume", volumes)
    return _decisions(decider, setting, THREE_CLAIM_PODS)


def never_by_size(nodes: int, *, shapes: int) -> float:
    """Three volumes on each node, of which one is large enough: for any claim, but for one only."""
    setting = Setting(LOCAL_THREE, nodes, shapes)
    sizes = (STEPS_MIB[0] // 5, STEPS_MIB[0] // 5, 2 * STEPS_MIB[-1])
    return _never(setting, [(size, ()) for size in sizes], HOPELESS_PODS)


def never_by_label(nodes: int, *, shapes: int) -> float:
    """Three volumes on each node, all large enough; two claims want labels that one and the same volume has."""
    setting = Setting(LOCAL_THREE, nodes, shapes, labels=("a", "b", "c"))
    return _never(setting, [(2 * STEPS_MIB[-1], labels) for labels in (("a", "b"), ("c",), ("c",))], TANGLED_PODS)


def _never(setting: Setting, volumes: Sequence[tuple[int, Sequence[str]]], pods: int) -> float:
    decider = setting.decider()
    bodies = (
        _local(node, number, mib, labels)
        for node in range(setting.nodes)
        for number, (mib, labels) in enumerate(volumes)
    )
    decider.show("PersistentVolume", bodies)
    return _decisions(decider, setting, pods, fits=False)


def local_figures() -> Iterator[Figure]:
    measures: dict[str, Callable[..., float]] = {
        "one claim": one_claim,
        "three claims": three_claims,
        "all volumes taken": partial(one_claim, is_taken=True),
        "never all three, by size": never_by_size,
        "never all three, by label": never_by_label,
    }
    for shapes, words in ((1, "equal claims"), (SHAPES, f"{SHAPES} shapes")):
        for name, measure in measures.items():
            yield compare(f"{name}, {words}", partial(measure, shapes=shapes), SMALL_NODES, LARGE_NODES)


# -- capacity, and bound claims --------------------------------------------------------------------------------------------


def provisioned(nodes: int, *, shapes: int, version: str = DEFAULT_VERSION) -> float:
    """One capacity object per node."""
    setting = Setting(DYNAMIC, nodes, shapes, version=version)
    return _decisions(setting.decider(), setting, ONE_CLAIM_PODS)


def capacity_figures() -> Iterator[Figure]:
    for shapes, words in ((1, "equal claims"), (SHAPES, f"{SHAPES} shapes")):
        yield compare(f"one claim, {words}", partial(provisioned, shapes=shapes), SMALL_NODES, LARGE_NODES)


def scores_figures() -> Iterator[Figure]:
    measures = {"one local claim": one_claim, "three local claims": three_claims, "one provisioned claim": provisioned}
    for shapes, words in ((1, "equal claims"), (SHAPES, f"{SHAPES} shapes")):
        for name, measure in measures.items():
            scored = partial(measure, shapes=shapes, version="1.37")
            yield compare(f"{name}, {words}", scored, SMALL_NODES, LARGE_NODES)


def bound(claims: int, *, shapes: int) -> float:
    """Claims and volumes of which the pods use some; nodes can attach 39."""
    setting = Setting(CSI, NODES_OF_CLAIMS, shapes)
    decider = setting.decider()
    used = [f"{prefix}-{i}-0" for prefix, count in (("warm", _WARM_UP), ("p", ONE_CLAIM_PODS)) for i in range(count)]
    names = used + [f"other-{index}" for index in range(claims - len(used))]
    decider.show("PersistentVolume", (_bound_volume(name) for name in names))
    decider.show("PersistentVolumeClaim", (_bound_claim(name) for name in names))
    return _decisions(decider, setting, ONE_CLAIM_PODS)


def _bound_volume(claim: str) -> bytes:
    body = msgspec.json.decode(csi_volume_body(f"pv-{claim}", "1Gi", claim_name=claim, claim_uid=claim))
    return msgspec.json.encode(body | {"status": {"phase": "Bound"}})


def _bound_claim(name: str) -> bytes:
    body = msgspec.json.decode(_claim(name, "1Gi"))
    body["metadata"]["annotations"] = {BIND_COMPLETED: "yes"}
    body["spec"]["volumeName"] = f"pv-{name}"
    return msgspec.json.encode(body | {"status": {"phase": "Bound"}})


def bound_figures() -> Iterator[Figure]:
    for shapes, words in ((1, "equal pods"), (SHAPES, f"{SHAPES} shapes")):
        yield compare(f"one claim, {words}", partial(bound, shapes=shapes), SMALL_CLAIMS, LARGE_CLAIMS)


PARTS = {
    "local": (local_figures, SMALL_NODES, LARGE_NODES, "nodes"),
    "capacity": (capacity_figures, SMALL_NODES, LARGE_NODES, "objects"),
    "scores": (scores_figures, SMALL_NODES, LARGE_NODES, "nodes"),
    "bound": (bound_figures, SMALL_CLAIMS, LARGE_CLAIMS, "claims"),
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro_volumes", description=__doc__)
    parser.add_argument("part", choices=list(PARTS))
    part = parser.parse_args(argv).part
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    figures, small, large, what = PARTS[part]
    show(f"decisions, {part}", (f"{small} {what}", f"{large} {what}"), list(figures()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
