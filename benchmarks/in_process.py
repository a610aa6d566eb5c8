"""The deciding half of the daemon without sockets, to be measured piece by piece, and how a piece is measured."""

import gc
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.workload import Workload
from scheduler.api.core_v1 import Node, Pod, PodCondition
from scheduler.api.decode import Broken, Delta, ObjectDecoder
from scheduler.api.podinfo import PodInfo, placed, pod_info
from scheduler.config.types import Configuration, RunOptions
from scheduler.core.clock import Clock, SystemClock
from scheduler.cycle import Cycle
from scheduler.framework.handle import Unplugged
from scheduler.framework.runtime import FrameworkRunner
from scheduler.kube.resources import KINDS
from scheduler.metrics.metrics import Metrics
from scheduler.scheduler import Scheduler

SHAPES = 200
PODS = 2000
PASSES = 3


@dataclass(frozen=True, slots=True)
class Figure:
    """Microseconds of one operation at the small and at the large size."""

    name: str
    small_us: float
    large_us: float


class Silent:
    """A recorder and a metrics-free end of the line: events cost a recorder what they cost, not a decision."""

    def event(self, about: object, **told: object) -> None:
        """As the `Recorder` port."""


class Echo(Unplugged):
    """A writer that succeeds, and remembers what a watch would show next."""

    def __init__(self) -> None:
        self.seen: list[Delta[Pod]] = []

    async def turn(self) -> None:
        """As the `Writer` port: at once."""

    async def bind(self, pod: Pod, node_name: str) -> None:
        """As the `Writer` port."""
        metadata = msgspec.structs.replace(pod.metadata, resource_version=f"{pod.metadata.resource_version}1")
        spec = msgspec.structs.replace(pod.spec, node_name=node_name)
        self.seen.append(Delta(pod, msgspec.structs.replace(pod, metadata=metadata, spec=spec)))

    async def patch_pod_status(
        self, pod: Pod, *, condition: PodCondition | None, nominated_node_name: str | None
    ) -> None:
        """As the `Writer` port."""

    async def delete_pod(self, pod: Pod) -> None:
        """As the `Writer` port."""
        raise AssertionError(f"nothing is preempted here, but {pod.key} was deleted")

    async def read_pod(self, namespace: str, name: str) -> Pod | Broken | None:
        """As the `Writer` port."""
        raise AssertionError(f"nothing is ambiguous here, but {namespace}/{name} was read")


class InProcess:
    """The deciding half of the daemon with nodes, and two pods on each."""

    def __init__(
        self, nodes: int, shapes: int, config: Configuration | None = None, *, clock: Clock | None = None
    ) -> None:
        self.workload = Workload("micro", nodes, PODS, shapes)
        self.writer, self.metrics, self.clock = Echo(), Metrics(process=False), clock or SystemClock()
        options = RunOptions(config=config or Configuration())
        self.name = options.config.profiles[0].scheduler_name
        self.scheduler = Scheduler(
            options, writer=self.writer, recorder=Silent(), clock=self.clock, metrics=self.metrics
        )
        decode = ObjectDecoder("Node", Node).decode
        deltas = [Delta(None, decode(self.workload.node_body(index))) for index in range(nodes)]
        self.scheduler.event_handlers.apply("Node", deltas)
        for index in range(2 * nodes):
            info = pod_info(self.pod("load", index))
            self.scheduler.cluster.add_pod(placed(info, f"node-{index % nodes:05d}"))

    def pod(self, prefix: str, index: int) -> Pod:
        raw = self.raw_pod(prefix, index)
        pod = ObjectDecoder("Pod", Pod).decode(raw)
        assert isinstance(pod, Pod)
        return pod

    def raw_pod(self, prefix: str, index: int, **more: object) -> bytes:
        """As a server would send it: with a uid, a version and unused managed fields."""
        body = msgspec.json.decode(self.workload.pod_body(f"{prefix}-{index}", index, self.name))
        body["metadata"] |= {
            "uid": f"{prefix}-{index}",
            "resourceVersion": f"{index + 1}",
            "managedFields": [{"manager": "kubectl", "fieldsV1": {f"f:field-{i}": {"f:sub": {}} for i in range(60)}}],
        } | more
        body["status"] = {"phase": "Pending", "qosClass": "Burstable"}
        return msgspec.json.encode(body)

    def pods(self, prefix: str, count: int) -> list[PodInfo]:
        return [pod_info(self.pod(prefix, index)) for index in range(count)]

    def show(self, kind: str, bodies: Iterable[bytes]) -> None:
        """As its watch would, with what a server adds."""
        decoder = KINDS[kind].decoder()
        deltas = []
        for body in bodies:
            stored = msgspec.json.decode(body)
            metadata = stored["metadata"]
            stored["metadata"] = {"uid": metadata["name"], "resourceVersion": "1"} | metadata
            new = decoder.decode(msgspec.json.encode(stored))
            assert not isinstance(new, Broken), new
            deltas.append(Delta(None, new))
        self.scheduler.event_handlers.apply(kind, deltas)

    def cycle(self) -> Cycle:
        scheduler = self.scheduler
        runners = {
            name: FrameworkRunner(
                profile, scheduler.cluster, scheduler.queue.nominator, clock=self.clock, metrics=self.metrics
            )
            for name, profile in scheduler.profiles.items()
        }
        return Cycle(runners, scheduler.cluster, clock=self.clock, rng=scheduler.rng, metrics=self.metrics)


def resident_mib() -> float:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def microseconds(work: Callable[[], int]) -> float:
    """Of one of the operations whose number `work` answers."""
    gc.collect()
    gc.freeze()
    began = time.perf_counter()
    count = work()
    took = time.perf_counter() - began
    gc.unfreeze()
    return 1e6 * took / count


def compare(name: str, measure: Callable[[int], float], small: int, large: int) -> Figure:
    """Best of some passes at each size, taken in turn."""
    pairs = [(measure(small), measure(large)) for _ in range(PASSES)]
    return Figure(name, min(pair[0] for pair in pairs), min(pair[1] for pair in pairs))
