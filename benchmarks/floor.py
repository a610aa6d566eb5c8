"""The floor: a client that knows every answer beforehand and makes the same reads and writes as the scheduler.

It mirrors nodes and pods with the project's own reflectors, gives each pod of its name the next node in turn (of the
pod's zone, if it asks for one), binds through the project's own transport and limits, and posts the Scheduled event in
the background. No filter, no score, no cache, no queue: what a scheduler costs beyond this is the price of deciding.
It trusts the workload to fit anywhere, so it is no scheduler.
"""

import argparse
import asyncio
import gc
import random
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TypeVar

import uvloop

from scheduler.core.clock import Clock, SystemClock
from scheduler.core.decode import ObjectDecoder
from scheduler.core.deltas import Delta
from scheduler.core.node import Node
from scheduler.core.pod import Pod
from scheduler.kube.kinds import NODE, POD, KindSpec, discover
from scheduler.kube.recorder import EventRecorder
from scheduler.kube.reflector import Reflector
from scheduler.kube.store import Stored
from scheduler.kube.throttle import Throttle
from scheduler.kube.transport import HttpTransport, load_settings
from scheduler.kube.writes import ApiWriter

T = TypeVar("T", bound=Stored)
ZONE = "topology.kubernetes.io/zone"


class Answers:
    """The next node for a pod: round robin, over its zone's nodes if it names one."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        by_zone: dict[str, list[str]] = defaultdict(list)
        for node in nodes:
            by_zone[node.metadata.labels.get(ZONE, "")].append(node.metadata.name)
        self._by_zone = {zone: cycle(names) for zone, names in by_zone.items()}
        self._anywhere = cycle([node.metadata.name for node in nodes])

    def next(self, pod: Pod) -> str:
        zone = (pod.spec.node_selector or {}).get(ZONE)
        return next(self._anywhere if zone is None else self._by_zone[zone])


class Floor:
    """Binds what the watch shows, `in_flight` at a time."""

    def __init__(self, writer: ApiWriter, recorder: EventRecorder, scheduler_name: str) -> None:
        self._writer = writer
        self._recorder = recorder
        self._name = scheduler_name
        self._waiting: deque[Pod] = deque()
        self._news = asyncio.Semaphore(0)
        self.nodes: list[Node] = []

    def on_nodes(self, deltas: Sequence[Delta[Node]]) -> None:
        self.nodes += [delta.new for delta in deltas if isinstance(delta.new, Node) and delta.old is None]

    def on_pods(self, deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            pod = delta.new
            is_new = isinstance(pod, Pod) and delta.old is None and not pod.spec.node_name
            if isinstance(pod, Pod) and is_new and pod.spec.scheduler_name == self._name:
                self._waiting.append(pod)
                self._news.release()

    async def work(self, answers: Answers) -> None:
        """One of the bindings in flight, again and again."""
        while True:
            await self._news.acquire()
            pod = self._waiting.popleft()
            node_name = answers.next(pod)
            await self._writer.turn()
            await self._writer.bind(pod, node_name)
            self._recorder.event(
                pod,
                controller=self._name,
                type_="Normal",
                reason="Scheduled",
                action="Binding",
                note=f"Successfully assigned {pod.key} to {node_name}",
            )


async def run(arguments: argparse.Namespace) -> None:
    """Until killed."""
    clock: Clock = SystemClock()
    transport = HttpTransport(await load_settings(arguments.kubeconfig))
    writer = ApiWriter(transport, Throttle(clock, qps=arguments.qps, burst=arguments.burst), clock)
    recorder = EventRecorder(writer, clock, instance=socket.gethostname())
    floor = Floor(writer, recorder, arguments.scheduler_name)
    served = await discover(transport)

    def mirror(spec: KindSpec, typ: type[T], on_batch: Callable[[list[Delta[T]]], None]) -> Reflector[T]:
        place = served[spec.name]
        assert place is not None
        decoder = ObjectDecoder(spec.name, typ)
        return Reflector(
            spec, place, decoder=decoder, transport=transport, on_batch=on_batch, clock=clock, chance=random.Random()
        )

    nodes, pods = mirror(NODE, Node, floor.on_nodes), mirror(POD, Pod, floor.on_pods)
    async with asyncio.TaskGroup() as group:
        group.create_task(nodes.run())
        group.create_task(pods.run())
        group.create_task(recorder.run())
        await nodes.synced.wait()
        await pods.synced.wait()
        gc.collect()
        gc.freeze()
        answers = Answers(floor.nodes)
        for _ in range(arguments.in_flight):
            group.create_task(floor.work(answers))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor", description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--scheduler-name", default="floor")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--qps", type=float, default=5000)
    parser.add_argument("--burst", type=int, default=5000)
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
