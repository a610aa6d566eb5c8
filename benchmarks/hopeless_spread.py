"""What replicas of high priority cost that fit nowhere under a hard spread constraint: `benchmarks.hopeless --spread`.

In one process, without a server. Each node has a pod that no pod may evict and 20 that any replica may; a replica would
fit without those, if its constraint did not want the next one in a zone whose only node is too small: each node has to
be tried without its victims to know that. Some pod ends and another begins ten times a second, so that the replicas are tried again and again. The
rate is that of pods of low priority that fit, all there at once, from then until the last one is bound, for each second
of CPU: the loop is never idle in that time, and other work on the machine does not count.
"""

import asyncio
import gc
import itertools
import logging
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import msgspec
import structlog

from benchmarks.in_process import Echo, Silent
from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import Delta, ObjectDecoder
from scheduler.config.args import KubestowArgs
from scheduler.config.types import Configuration, RunOptions
from scheduler.core.clock import SystemClock
from scheduler.metrics.metrics import Metrics
from scheduler.scheduler import Scheduler

LOW_PER_NODE = 20
ZONES = 3
CHURN_S = 0.1
HIGH, LOW = 1000, 0
WANTED = 0.8
_LIMIT_S = 300.0
_versions = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Scene:
    """How much of what."""

    nodes: int = 2000
    pods: int = 20_000
    replicas: int = 50


@dataclass(frozen=True, slots=True)
class Rate:
    """Of the pods that fit, and how often replicas were tried in that time."""

    pods_per_s: float
    attempts: int


class _World:
    """A cluster that answers every Binding at once."""

    def __init__(self, scene: Scene, *, fair_share: Literal["on", "none"]) -> None:
        config = Configuration()
        own = config.profiles[0]
        args = {**own.args, "Kubestow": KubestowArgs(preemption_fair_share=fair_share)}
        options = RunOptions(config=replace(config, profiles=(replace(own, args=args),)))
        self.writer, self.scene = Echo(), scene
        self.scheduler = Scheduler(
            options, writer=self.writer, recorder=Silent(), clock=SystemClock(), metrics=Metrics(process=False)
        )
        self._decode = ObjectDecoder("Pod", Pod).decode
        self._low: dict[str, Pod] = {}
        node = ObjectDecoder("Node", Node).decode
        event_handlers = self.scheduler.event_handlers
        event_handlers.apply("Node", [Delta(None, node(_node(index))) for index in range(scene.nodes)])
        event_handlers.apply("Node", [Delta(None, node(_node(scene.nodes, zone=ZONES, cpu="100m")))])
        for zone in range(ZONES):
            standing = self.pod(f"hopeless-{zone}", 0, HIGH + 1, nodeName=f"node-{zone}", schedulerName="other")
            event_handlers.apply("Pod", [Delta(None, standing)])
        for index in range(scene.nodes):
            on = f"node-{index}"
            event_handlers.apply(
                "Pod", [Delta(None, self.pod(f"guard-{index}", 100, HIGH + 1, nodeName=on, schedulerName="other"))]
            )
            for number in range(LOW_PER_NODE):
                name = f"low-{index}-{number}"
                self._low[name] = self.pod(name, 450, LOW, nodeName=on, schedulerName="other")
                event_handlers.apply("Pod", [Delta(None, self._low[name])])

    def pod(self, name: str, milli_cpu: int, priority: int, **spec: Any) -> Pod:
        """As its watch would show it."""
        containers = [{"name": "main", "resources": {"requests": {"cpu": f"{milli_cpu}m"}}}]
        version = next(_versions)
        metadata = {"name": name, "namespace": "bench", "uid": f"{name}-{version}", "resourceVersion": f"{version}"}
        labels = {"app": name.partition("-")[0]}
        body = {"metadata": {**metadata, "labels": labels}, "spec": {"containers": containers, "priority": priority}}
        body["spec"] |= {"schedulerName": "kubestow", **spec}  # type: ignore[operator]
        pod = self._decode(msgspec.json.encode(body))
        assert isinstance(pod, Pod)
        return pod

    def show(self, deltas: list[Delta[Pod]]) -> None:
        """As a watch would."""
        self.scheduler.inbox.put(partial(self.scheduler.event_handlers.apply, "Pod", deltas))

    def replica(self, index: int) -> Pod:
        """It wants all that evictions could free, and its like spread over the zones."""
        rule = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        rule |= {"labelSelector": {"matchLabels": {"app": "hopeless"}}}
        return self.pod(f"hopeless-more-{index}", 9_800, HIGH, topologySpreadConstraints=[rule])

    async def churn(self) -> None:
        """Some pod ends somewhere, and another takes its place."""
        for index in itertools.count():
            await asyncio.sleep(CHURN_S)
            name = f"low-{index % self.scene.nodes}-{index // self.scene.nodes % LOW_PER_NODE}"
            old = self._low[name]
            new = self.pod(name, 450, LOW, nodeName=old.spec.node_name, schedulerName="other")
            self._low[name] = new
            self.show([Delta(old, None), Delta(None, new)])

    async def bound(self, pods: int) -> None:
        """Return when this number is bound; the watch shows each."""
        count, began = 0, time.monotonic()
        while count < pods and time.monotonic() - began < _LIMIT_S:
            await asyncio.sleep(0.001)
            seen, self.writer.seen = self.writer.seen, []
            count += len(seen)
            if seen:
                self.show(seen)
        if count < pods:
            raise TimeoutError(f"{count} of {pods} pods were bound in {_LIMIT_S:g} s")


async def measure(scene: Scene, *, fair_share: Literal["on", "none"] = "on") -> Rate:
    """Build it, let every replica fail once, then offer the pods that fit."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    world = _World(scene, fair_share=fair_share)
    attempts = 0
    cycle = world.scheduler.cycle
    attempt = cycle.attempt

    def counted(pod: Any, number: int) -> Any:
        nonlocal attempts
        attempts += pod.pod.metadata.name.startswith("hopeless")
        return attempt(pod, number)

    cycle.attempt = counted  # type: ignore[method-assign,assignment]
    gc.collect()
    gc.freeze()
    loop = asyncio.ensure_future(world.scheduler.loop.run())
    churn = asyncio.ensure_future(world.churn())
    world.show([Delta(None, world.replica(index)) for index in range(scene.replicas)])
    while attempts < scene.replicas:
        await asyncio.sleep(0.1)
    await asyncio.sleep(2)
    attempts = 0
    fitting = [Delta(None, world.pod(f"fits-{index}", 10, LOW)) for index in range(scene.pods)]
    world.show(fitting)
    began = time.process_time()
    await world.bound(scene.pods)
    rate = Rate(scene.pods / (time.process_time() - began), attempts)
    churn.cancel()
    world.scheduler.loop.stop()
    await loop
    gc.unfreeze()
    return rate


def compare(scene: Scene, rounds: int, *, fair_share: Literal["on", "none"]) -> float:
    """Print each round, without and with the replicas; answers with the median ratio."""
    ratios = []
    for number in range(rounds):
        alone = asyncio.run(measure(replace(scene, replicas=0), fair_share=fair_share))
        with_replicas = asyncio.run(measure(scene, fair_share=fair_share))
        ratios.append(with_replicas.pods_per_s / alone.pods_per_s)
        print(
            f"round {number}: {alone.pods_per_s:.0f} pods/s alone, {with_replicas.pods_per_s:.0f} with {scene.replicas} "
            f"replicas that fit nowhere ({with_replicas.attempts} attempts of theirs): {ratios[-1]:.2f}",
            flush=True,
        )
    return sorted(ratios)[len(ratios) // 2]


def _node(index: int, *, zone: int | None = None, cpu: str = "10") -> bytes:
    room = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    zone = index % ZONES if zone is None else zone
    metadata = {"name": f"node-{index}", "labels": {"zone": f"zone-{zone}"}}
    return msgspec.json.encode({"metadata": metadata, "status": {"allocatable": room, "capacity": room}})
