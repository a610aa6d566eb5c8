"""The floor: a client that knows every answer in advance and makes the same reads and writes as the scheduler.

It mirrors nodes, pods, volumes, slices and claims with the project's own reflectors. Each pod gets the next node of those
that its app takes in turn, among those with the volumes and devices that it needs. The client writes its claims and waits
for them, binds through the project's own transport and limits, and posts the Scheduled event in the background. No filter, no score, no cache, no queue: what a scheduler costs beyond this is the price of deciding.
It knows the workloads of this package and trusts them to fit, so it is no scheduler.
"""

import argparse
import asyncio
import gc
import random
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import TypeVar

import uvloop

from benchmarks.between_pods import ANCHOR, HOSTNAME, ZONE
from benchmarks.floordevices import FloorDevices, Taken, has_claims
from benchmarks.floorvolumes import FloorVolumes, Plan
from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import Delta, ObjectDecoder
from scheduler.api.resource_v1 import ResourceClaim, ResourceSlice
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim
from scheduler.core.clock import Clock, SystemClock
from scheduler.kube.client_config import load_settings
from scheduler.kube.events import EventRecorder
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.reflector import Reflector
from scheduler.kube.resources import KINDS, KindSpec, discover
from scheduler.kube.store import Stored
from scheduler.kube.transport import HttpTransport
from scheduler.kube.writes.api_writer import ApiWriter

T = TypeVar("T", bound=Stored)
_MIRRORED = ("Node", "PersistentVolume", "PersistentVolumeClaim", "ResourceSlice", "ResourceClaim", "Pod")
_GOLDEN = 0.618  # starting points of any number of apps, well apart


class Answers:
    """The next node for a pod: each app has its nodes in turn, in the order of their zones.

    So the pods of an app are spread over zones, and no two are on a node, for as long as it has nodes left.
    """

    def __init__(self, nodes: Sequence[Node], anchors: Mapping[str, Sequence[str]]) -> None:
        self._everywhere = [node.metadata.name for node in nodes]
        self._by_zone: dict[str, list[str]] = defaultdict(list)
        for node in nodes:
            self._by_zone[node.metadata.labels.get(ZONE, "")].append(node.metadata.name)
        self._zones = cycle(sorted(self._by_zone))
        self._anchors = anchors
        self._turns: dict[str, Iterator[str]] = {}

    def next(self, pod: Pod) -> str:
        app = pod.metadata.labels.get("app", "")
        turn = self._turns.get(app)
        if turn is None:
            names = self._nodes_of(pod)
            start = int(len(names) * (_GOLDEN * len(self._turns) % 1))
            turn = self._turns[app] = cycle(names[start:] + names[:start])
        return next(turn)

    def _nodes_of(self, pod: Pod) -> list[str]:
        zone = pod.spec.node_selector.get(ZONE)
        rules = pod.spec.affinity.pod_affinity if pod.spec.affinity else None
        term = rules.required[0] if rules else None
        if term is not None and term.topology_key == HOSTNAME:
            selector = term.label_selector
            return list(self._anchors[selector.match_labels[ANCHOR]] if selector else ())
        if term is not None:
            zone = zone or next(self._zones)
        return self._everywhere if zone is None else self._by_zone[zone]


class Floor:
    """Binds what the watch shows, `in_flight` at a time."""

    def __init__(
        self,
        writer: ApiWriter,
        recorder: EventRecorder,
        *,
        volumes: FloorVolumes,
        devices: FloorDevices,
        scheduler_name: str,
    ) -> None:
        self._writer = writer
        self._volumes = volumes
        self._devices = devices
        self._recorder = recorder
        self._name = scheduler_name
        self._waiting: deque[Pod] = deque()
        self._news = asyncio.Semaphore(0)
        self.nodes: list[Node] = []
        self.anchors: dict[str, list[str]] = defaultdict(list)
        """By the value of their label, the nodes of pods that were bound from the start."""

    def on_nodes(self, deltas: Sequence[Delta[Node]]) -> None:
        self.nodes += [delta.new for delta in deltas if isinstance(delta.new, Node) and delta.old is None]

    def on_pods(self, deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            pod = delta.new
            if (
                not isinstance(pod, Pod)
                or not has_claims(pod)
                or (isinstance(delta.old, Pod) and has_claims(delta.old))
            ):
                continue
            if pod.spec.node_name:
                if anchor := pod.metadata.labels.get(ANCHOR):
                    self.anchors[anchor].append(pod.spec.node_name)
            elif pod.spec.scheduler_name == self._name:
                self._waiting.append(pod)
                self._news.release()

    async def work(self, answers: Answers) -> None:
        """One of the bindings in flight, again and again."""
        while True:
            await self._news.acquire()
            pod = self._waiting.popleft()
            await self._devices.known(pod)
            plan, devices = self._planned(pod, answers)
            node_name = plan.node_name
            await self._volumes.carry_out(pod, plan)
            await self._devices.carry_out(pod, devices, node_name)
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

    def _planned(self, pod: Pod, answers: Answers) -> tuple[Plan, Sequence[Taken]]:
        """No pod of this package has both volumes and devices."""
        for _ in self.nodes:
            node_name = answers.next(pod)
            devices = self._devices.plan(pod, node_name)
            plan = self._volumes.plan(pod, node_name)
            if devices is not None and plan is not None:
                return plan, devices
        raise RuntimeError(f"no node has volumes or devices for {pod.key}")


async def run(arguments: argparse.Namespace) -> None:
    """Until killed."""
    clock: Clock = SystemClock()
    transport = HttpTransport(await load_settings(arguments.kubeconfig))
    writer = ApiWriter(transport, Throttle(clock, qps=arguments.qps, burst=arguments.burst), clock)
    recorder = EventRecorder(writer, clock, instance=socket.gethostname())
    volumes, devices = FloorVolumes(writer), FloorDevices(writer)
    floor = Floor(writer, recorder, volumes=volumes, devices=devices, scheduler_name=arguments.scheduler_name)
    kinds = [KINDS[name] for name in _MIRRORED]
    served = await discover(transport, kinds)

    def mirror(spec: KindSpec, typ: type[T], on_batch: Callable[[list[Delta[T]]], None]) -> Reflector[T]:
        place = served[spec.name]
        assert place is not None
        decoder = ObjectDecoder(spec.name, typ)

        async def locate() -> None:
            """Return None: the kind has only one place."""

        return Reflector(
            spec,
            place,
            decoder=decoder,
            transport=transport,
            on_batch=on_batch,
            clock=clock,
            rng=random.Random(),
            locate=locate,
        )

    informers = (
        mirror(kinds[0], Node, floor.on_nodes),
        mirror(kinds[1], PersistentVolume, volumes.on_volumes),
        mirror(kinds[2], PersistentVolumeClaim, volumes.on_claims),
        mirror(kinds[3], ResourceSlice, devices.on_slices),
        mirror(kinds[4], ResourceClaim, devices.on_claims),
        mirror(kinds[5], Pod, floor.on_pods),
    )
    async with asyncio.TaskGroup() as group:
        for each in informers:
            group.create_task(each.run())
        group.create_task(recorder.run())
        for each in informers:
            await each.synced.wait()
        gc.collect()
        gc.freeze()
        answers = Answers(floor.nodes, floor.anchors)
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
