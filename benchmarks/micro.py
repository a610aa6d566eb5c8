"""In-process figures without sockets: a decision, a watch event, the queue; each at two sizes, with their ratio.

    python -m benchmarks.micro cycle --nodes 5000

Microseconds of the best of three passes on this machine; what counts is the ratio of the sizes, which tells how cost
grows with the cluster. The parts are the daemon's own, put together by `scheduler.decisions`, with the default profile.
"""

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.workload import Workload
from scheduler.config.types import Configuration
from scheduler.core.clock import SystemClock
from scheduler.core.decode import Broken, ObjectDecoder
from scheduler.core.deltas import Delta
from scheduler.core.events import ASSIGNED_POD_DELETE, NODE_ADD
from scheduler.core.node import Node
from scheduler.core.pod import Pod, PodCondition
from scheduler.core.podinfo import PodInfo, placed, pod_info
from scheduler.cycle import Cycle, Placed, run
from scheduler.decisions import Decisions
from scheduler.framework.runner import Runner
from scheduler.obs.metrics import Metrics
from scheduler.options import RunOptions

SMALL_NODES = 1000
SHAPES = 200
PODS = 2000
PASSES = 3
FIT = "NodeResourcesFit"


@dataclass(frozen=True, slots=True)
class Figure:
    """Microseconds of one operation at the small and at the large size."""

    name: str
    small_us: float
    large_us: float


class Silent:
    """A recorder and a metrics-free end of the line: events cost a recorder what they cost, not a decision."""

    def event(self, pod: Pod, **told: object) -> None:
        """As the `Recorder` port."""


class Echo:
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

    async def read_pod(self, namespace: str, name: str) -> Pod | Broken | None:
        """As the `Writer` port."""
        raise AssertionError(f"nothing is ambiguous here, but {namespace}/{name} was read")


class House:
    """The deciding half of the daemon with nodes, and two pods on each."""

    def __init__(self, nodes: int, shapes: int) -> None:
        self.workload = Workload("micro", nodes, PODS, shapes)
        self.writer, self.metrics, self.clock = Echo(), Metrics(process=False), SystemClock()
        options = RunOptions(config=Configuration())
        self.name = options.config.profiles[0].scheduler_name
        self.decisions = Decisions(
            options, writer=self.writer, recorder=Silent(), clock=self.clock, metrics=self.metrics
        )
        decode = ObjectDecoder("Node", Node).decode
        deltas = [Delta(None, decode(self.workload.node_body(index))) for index in range(nodes)]
        self.decisions.intake.nodes(deltas)
        for index in range(2 * nodes):
            info = pod_info(self.pod("load", index))
            self.decisions.cluster.add_pod(placed(info, f"node-{index % nodes:05d}"))

    def pod(self, prefix: str, index: int) -> Pod:
        raw = self.raw_pod(prefix, index)
        pod = ObjectDecoder("Pod", Pod).decode(raw)
        assert isinstance(pod, Pod)
        return pod

    def raw_pod(self, prefix: str, index: int, **more: object) -> bytes:
        """As a server would send it: with a uid, a version and the managed fields that nobody reads."""
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

    def cycle(self) -> Cycle:
        decisions = self.decisions
        runners = {
            name: Runner(profile, decisions.cluster, decisions.queue.nominator, clock=self.clock, metrics=self.metrics)
            for name, profile in decisions.profiles.items()
        }
        return Cycle(runners, decisions.cluster, clock=self.clock, chance=decisions.chance, metrics=self.metrics)


def microseconds(work: Callable[[], int]) -> float:
    """Of one of the operations whose number `work` answers."""
    gc.collect()
    gc.freeze()
    began = time.perf_counter()
    count = work()
    took = time.perf_counter() - began
    gc.unfreeze()
    return 1e6 * took / count


# -- cycle -------------------------------------------------------------------------------------------------------------


def decision(nodes: int, *, shapes: int) -> float:
    """One attempt of a plain pod, from PreFilter to the assumption; placed pods stay, as in a burst."""
    house = House(nodes, shapes)
    cycle, pods = house.cycle(), house.pods("p", PODS)
    for info in house.pods("warm", 50):
        run(cycle.attempt(info, 1))

    def work() -> int:
        for info in pods:
            outcome = run(cycle.attempt(info, 1))
            assert isinstance(outcome, Placed), outcome
        return len(pods)

    return microseconds(work)


def whole_pod(nodes: int, *, shapes: int) -> float:
    """Watch delta, queue, decision, binding by a writer that succeeds at once, and the watch delta that confirms it."""
    house = House(nodes, shapes)
    decisions, writer = house.decisions, house.writer
    new = [Delta(None, house.pod("p", index)) for index in range(PODS)]

    async def drive() -> None:
        decisions.inbox.put(partial(decisions.intake.pods, new))
        confirmed = 0
        while confirmed < PODS:
            await decisions.loop.step()
            await asyncio.sleep(0)
            if writer.seen:
                seen, writer.seen = writer.seen, []
                confirmed += len(seen)
                decisions.inbox.put(partial(decisions.intake.pods, seen))
        decisions.inbox.apply()

    def work() -> int:
        asyncio.run(drive())
        assert not decisions.cluster.sizes()["assumed_pods"]
        return PODS

    return microseconds(work)


def cycle_figures(nodes: int) -> Iterator[Figure]:
    yield compare("decision, equal pods", partial(decision, shapes=1), SMALL_NODES, nodes)
    yield compare(f"decision, {SHAPES} shapes", partial(decision, shapes=SHAPES), SMALL_NODES, nodes)
    yield compare("whole pod, equal pods", partial(whole_pod, shapes=1), SMALL_NODES, nodes)
    yield compare(f"whole pod, {SHAPES} shapes", partial(whole_pod, shapes=SHAPES), SMALL_NODES, nodes)


# -- intake ------------------------------------------------------------------------------------------------------------


def pod_events(nodes: int, *, bound: bool) -> float:
    """A new pod of ours (or a bound one that changes): from its JSON to cache and queue."""
    house = House(nodes, SHAPES)
    decode, intake = ObjectDecoder("Pod", Pod).decode, house.decisions.intake
    before: list[Pod | None] = [None] * PODS
    if bound:
        before = [house.pod("load", index) for index in range(PODS)]
        before = [placed(pod_info(pod), f"node-{i % nodes:05d}").pod for i, pod in enumerate(before) if pod]
    raws = [house.raw_pod("load" if bound else "p", index, resourceVersion="changed") for index in range(PODS)]
    if bound:
        raws = [_on_node(raw, f"node-{index % nodes:05d}") for index, raw in enumerate(raws)]

    def work() -> int:
        for old, raw in zip(before, raws):
            intake.pods([Delta(old, decode(raw))])
        return PODS

    return microseconds(work)


def _on_node(raw: bytes, name: str) -> bytes:
    body = msgspec.json.decode(raw)
    body["spec"]["nodeName"] = name
    return msgspec.json.encode(body)


def heartbeats(nodes: int) -> float:
    """A node that changes nothing that matters: from its JSON to the cache."""
    house = House(nodes, SHAPES)
    decode, intake = ObjectDecoder("Node", Node).decode, house.decisions.intake
    raws = [house.workload.node_body(index) for index in range(nodes)]
    before = [decode(raw) for raw in raws]

    def work() -> int:
        for old, raw in zip(before, raws):
            intake.nodes([Delta(old, decode(raw))])
        return nodes

    return microseconds(work)


def intake_figures(nodes: int) -> Iterator[Figure]:
    yield compare("a new pod of ours", partial(pod_events, bound=False), SMALL_NODES, nodes)
    yield compare("a bound pod changes", partial(pod_events, bound=True), SMALL_NODES, nodes)
    yield compare("a node's heartbeat", heartbeats, SMALL_NODES, nodes)


# -- queue -------------------------------------------------------------------------------------------------------------

SMALL_QUEUE = 1000
LARGE_QUEUE = 20_000


class Waiting:
    """A queue with that many pods, all rejected by NodeResourcesFit once."""

    def __init__(self, count: int) -> None:
        self.house = House(10, SHAPES)
        self.queue = self.house.decisions.queue
        self.pods = self.house.pods("p", count)

    def add(self) -> int:
        for info in self.pods:
            self.queue.add(info)
        return len(self.pods)

    def pop(self, limit: int) -> int:
        popped = 0
        while popped < limit and (queued := self.queue.pop()) is not None:
            self.queue.done(queued.uid)
            popped += 1
        return popped

    def refuse(self) -> int:
        refused = 0
        while (queued := self.queue.pop()) is not None:
            queued.unschedulable_plugins = {FIT}
            self.queue.requeue(queued)
            refused += 1
        return refused

    def node(self, cpu: str) -> Node:
        body = msgspec.json.decode(self.house.workload.node_body(99_999))
        body["status"]["allocatable"]["cpu"] = cpu
        node = ObjectDecoder("Node", Node).decode(msgspec.json.encode(body))
        assert isinstance(node, Node)
        return node


def adding(count: int) -> float:
    return microseconds(Waiting(count).add)


def popping(count: int) -> float:
    waiting = Waiting(count)
    waiting.add()
    return microseconds(lambda: waiting.pop(count))


def refusing(count: int) -> float:
    waiting = Waiting(count)
    waiting.add()
    return microseconds(waiting.refuse)


def useless_events(count: int) -> float:
    """A node that is too small for every waiting pod."""
    waiting = Waiting(count)
    waiting.add()
    waiting.refuse()
    node = waiting.node("10m")

    def work() -> int:
        for _ in range(50):
            waiting.queue.move_all(NODE_ADD, None, node)
        return 50

    return microseconds(work)


def waking(count: int) -> float:
    """A pod goes: everybody it may help is woken, told per pod."""
    waiting = Waiting(count)
    waiting.add()
    waiting.refuse()
    gone = placed(waiting.house.pods("gone", 1)[0], "node-00000")

    def work() -> int:
        before = waiting.queue.counts()["unschedulable"]
        waiting.queue.move_all(ASSIGNED_POD_DELETE, gone, None)
        assert waiting.queue.counts()["unschedulable"] == 0
        return before

    return microseconds(work)


def queue_figures(_nodes: int) -> Iterator[Figure]:
    for name, measure in (
        ("add", adding),
        ("pop and done", popping),
        ("pop and requeue", refusing),
        ("event that helps nobody", useless_events),
        ("event that helps all, per pod", waking),
    ):
        yield compare(name, measure, SMALL_QUEUE, LARGE_QUEUE)


# -- all ---------------------------------------------------------------------------------------------------------------


def compare(name: str, measure: Callable[[int], float], small: int, large: int) -> Figure:
    """Best of some passes at each size, taken in turn."""
    pairs = [(measure(small), measure(large)) for _ in range(PASSES)]
    return Figure(name, min(pair[0] for pair in pairs), min(pair[1] for pair in pairs))


def show(title: str, sizes: tuple[str, str], figures: Sequence[Figure]) -> None:
    table = Table(title=title)
    for column in ("operation", f"µs at {sizes[0]}", f"µs at {sizes[1]}", "ratio"):
        table.add_column(column, justify="left" if column == "operation" else "right")
    for figure in figures:
        cells = f"{figure.small_us:.1f}", f"{figure.large_us:.1f}", f"{figure.large_us / figure.small_us:.2f}"
        table.add_row(figure.name, *cells)
    console = Console()
    console.width = max(console.width, 100)  # into a file: no narrower than the table
    console.print(table)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro", description=__doc__)
    parser.add_argument("part", choices=["cycle", "intake", "queue"])
    parser.add_argument("--nodes", type=int, default=5000)
    arguments = parser.parse_args(argv)
    structlog.configure(
        processors=[structlog.dev.ConsoleRenderer()], wrapper_class=structlog.make_filtering_bound_logger(40)
    )
    parts = {"cycle": cycle_figures, "intake": intake_figures, "queue": queue_figures}
    sizes = (f"{SMALL_NODES} nodes", f"{arguments.nodes} nodes")
    if arguments.part == "queue":
        sizes = (f"{SMALL_QUEUE} waiting pods", f"{LARGE_QUEUE} waiting pods")
    show(arguments.part, sizes, list(parts[arguments.part](arguments.nodes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
