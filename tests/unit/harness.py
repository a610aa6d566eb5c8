"""The scheduler without the API client: scripted ports, and a clock that only a test moves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import Any

import msgspec

from scheduler.api.core_v1 import Node, Pod, PodCondition
from scheduler.api.decode import Broken, Delta, ObjectDecoder, from_manifest
from scheduler.api.pod_group import (
    COSCHEDULING_POD_GROUP,
    POD_GROUP,
    VOLCANO_POD_GROUP,
    CoschedulingPodGroup,
    PodGroup,
    VolcanoPodGroup,
)
from scheduler.binding_state import PodWatch
from scheduler.cache.cluster import Cluster
from scheduler.config.types import Configuration, RunOptions
from scheduler.core.errors import ApiError
from scheduler.framework.extender import Extender
from scheduler.metrics.metrics import Metrics
from scheduler.scheduler import Scheduler
from tests.support.ports import ListRecorder, ScriptedWriter

POST_FILTER = " no new claims to deallocate, preemption: "
"""The beginning of the default plugins' PostFilter text, which follows the text of Filter."""

POD_GROUP_TYPES: dict[str, type[Any]] = {
    POD_GROUP: PodGroup,
    COSCHEDULING_POD_GROUP: CoschedulingPodGroup,
    VOLCANO_POD_GROUP: VolcanoPodGroup,
}

_versions = itertools.count(1)


class StepClock:
    """A clock that stands still; `sleep` ends once `move` has passed its deadline."""

    def __init__(self) -> None:
        self.time = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return 1.7e9 + self.time

    async def sleep(self, delay_s: float) -> None:
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.time + delay_s, wake))
        await wake

    def move(self, seconds: float) -> None:
        self.time += seconds
        for due, wake in self._sleepers:
            if due <= self.time and not wake.done():
                wake.set_result(None)


class WireWriter(ScriptedWriter):
    """A writer whose patches and deletions can be held like its bindings; `wire` lists the writes that landed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_hold: asyncio.Event | None = None
        """If set, a patch waits for it before it lands."""
        self.patch_errors: list[ApiError | None] = []
        """The next patches fail with these instead of landing; None lets one land."""
        self.delete_hold: asyncio.Event | None = None
        """If set, a deletion lands and waits for it before it answers."""
        self.wire: list[str] = []
        self.turns = 0
        self.patching = self.most_patching = 0
        """The number of patches under way, now and at most."""

    async def turn(self) -> None:
        self.turns += 1
        await super().turn()

    async def bind(self, pod: Pod, node_name: str) -> None:
        await super().bind(pod, node_name)
        self.wire.append(f"bind {pod.metadata.name}")

    async def patch_pod_status(
        self, pod: Pod, *, condition: PodCondition | None, nominated_node_name: str | None
    ) -> None:
        self.patching += 1
        self.most_patching = max(self.most_patching, self.patching)
        try:
            if self.patch_hold is not None:
                await self.patch_hold.wait()
            if self.patch_errors and (error := self.patch_errors.pop(0)) is not None:
                raise error
        finally:
            self.patching -= 1
        await super().patch_pod_status(pod, condition=condition, nominated_node_name=nominated_node_name)
        self.wire.append(f"patch {pod.metadata.name}")

    async def delete_pod(self, pod: Pod) -> None:
        await super().delete_pod(pod)
        self.wire.append(f"delete {pod.metadata.name}")
        if self.delete_hold is not None:
            await self.delete_hold.wait()


class SchedulerHarness:
    """`node` and `pod` add what a watch would deliver; `settle` runs the scheduler until nothing is left to do."""

    def __init__(
        self,
        config: Configuration | None = None,
        *,
        pod_watch: PodWatch | None = None,
        extenders: Iterable[Extender] = (),
        clock: StepClock | None = None,
    ) -> None:
        self.clock = clock or StepClock()
        self.writer = WireWriter()
        self.recorder = ListRecorder()
        options = RunOptions(config=config or Configuration())
        self.parts = Scheduler(
            options,
            writer=self.writer,
            recorder=self.recorder,
            clock=self.clock,
            metrics=Metrics(process=False),
            pod_watch=pod_watch,
            extenders=extenders,
        )
        self.seen: dict[str, Pod | Broken] = {}
        self.nodes: dict[str, Node | Broken] = {}
        self.groups: dict[tuple[str, str], Any] = {}
        self.calls: list[str] = []
        """The calls of the fake plugins."""

    @property
    def cluster(self) -> Cluster:
        return self.parts.cluster

    def plug(self, **points: tuple[Any, ...]) -> None:
        """Replace the profile's plugins at these points (`reserve=(...)`). No event is registered for them."""
        profile = self.parts.profiles["kubestow"]
        for point, plugins in points.items():
            for plugin in plugins:
                plugin.harness = self
            object.__setattr__(profile, point, plugins)

    # -- watch events --------------------------------------------------------------------------------------------------

    def node(self, name: str, **more: Any) -> None:
        """Add or change a node: cpu, memory, pods, extended resources, labels, annotations, taints, unschedulable, deleting."""
        amounts = {amount: more[amount] for amount in more if amount in {"cpu", "memory", "pods"} or "/" in amount}
        metadata = {"name": name, "labels": more.get("labels", {}), "annotations": more.get("annotations", {})}
        if more.get("deleting"):
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        manifest = {
            "metadata": metadata,
            "spec": {"taints": more.get("taints", []), "unschedulable": more.get("unschedulable", False)},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", **amounts}},
        }
        new = read_node(manifest)
        self.parts.event_handlers.apply("Node", [Delta(self.nodes.get(name), new)])
        self.nodes[name] = new

    def node_gone(self, name: str) -> None:
        self.parts.event_handlers.apply("Node", [Delta(self.nodes.pop(name), None)])

    def pod(self, name: str, **spec: Any) -> Pod | Broken:
        """Add or change a pod; `manifest` below names what `spec` may hold."""
        new = read_pod(manifest(name, **spec))
        self.parts.event_handlers.apply("Pod", [Delta(self.seen.get(name), new)])
        self.seen[name] = new
        return new

    def gone(self, name: str) -> None:
        self.parts.event_handlers.apply("Pod", [Delta(self.seen.pop(name), None)])

    def served(self, kind: str = POD_GROUP, *, is_served: bool = True) -> None:
        """The server has this kind of groups from now on."""
        self.parts.event_handlers.pod_groups.served(kind, is_served)

    def group(
        self, name: str, least: int | None, kind: str = POD_GROUP, *, status: dict[str, Any] | None = None, **spec: Any
    ) -> None:
        """Add or change a group; without `least` its policy is `basic`."""
        if kind == POD_GROUP:
            policy = {"basic": {}} if least is None else {"gang": {"minCount": least}}
            spec = {"schedulingPolicy": policy, **spec}
        else:
            spec = {"minMember": least, **spec}
        namespace = spec.pop("namespace", "default")
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{kind}-{name}" if namespace == "default" else f"uid-{kind}-{namespace}-{name}",
            "resourceVersion": str(next(_versions)),
            "annotations": spec.pop("annotations", {}),
        }
        new = ObjectDecoder(kind, POD_GROUP_TYPES[kind]).decode(
            msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status or {}})
        )
        shown = name if namespace == "default" else f"{namespace}/{name}"
        self.parts.event_handlers.apply(kind, [Delta(self.groups.get((kind, shown)), new)])
        self.groups[kind, shown] = new

    def group_gone(self, name: str, kind: str = POD_GROUP) -> None:
        self.parts.event_handlers.apply(kind, [Delta(self.groups.pop((kind, name)), None)])

    # -- work ----------------------------------------------------------------------------------------------------------

    async def settle(self, steps: int = 200) -> None:
        """Run steps until one has nothing to do and no task moves; fail after this number."""
        for _ in range(steps):
            worked = await self.parts.loop.step()
            for _ in range(30):
                await asyncio.sleep(0)
            if not worked and not len(self.parts.inbox):
                return
        raise AssertionError("the scheduler does not come to rest")

    async def turns(self) -> None:
        """Let tasks run as far as they can, without the scheduling loop."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def later(self, seconds: float) -> None:
        """Move the clock, then settle."""
        self.clock.move(seconds)
        await self.settle()

    def places(self) -> dict[str, str]:
        return {entry.key.partition("/")[2]: entry.place for entry in self.parts.queue.entries()}

    def is_free(self) -> bool:
        """Return whether no pod is assumed and no attempt or binding is under way."""
        in_flight = self.parts.queue.in_flight_events().get("PodPopped", 0)
        return (self.cluster.sizes()["assumed_pods"], in_flight, len(self.parts.binder)) == (0, 0, 0)

    def message(self, name: str) -> str:
        """Return the last condition written for the pod."""
        return [c.message for key, c in self.writer.conditions if key == f"default/{name}"][-1]

    def refusal(self, name: str) -> str:
        """Return `message` without the text of PostFilter."""
        return self.message(name).partition(POST_FILTER)[0]


def with_pods(
    pods: str = "p", *, nodes: str = "n1", pod_watch: PodWatch | None = None, **points: tuple[Any, ...]
) -> SchedulerHarness:
    """Return a scheduler with these nodes, pods and plugins (`plug`). No pod has been tried yet."""
    sched = SchedulerHarness(pod_watch=pod_watch)
    sched.plug(**points)
    for name in nodes.split():
        sched.node(name)
    for name in pods.split():
        sched.pod(name)
    return sched


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    """Return a pod: cpu, on (nodeName), labels, annotations, scheduler, phase, deleting, nominated, started, conditions, uid, version, gates, raw spec."""
    requests = {"cpu": spec.pop("cpu")} if "cpu" in spec else {}
    metadata = {
        "name": name,
        "namespace": spec.pop("namespace", "default"),
        "uid": spec.pop("uid", f"uid-{name}"),
        "resourceVersion": spec.pop("version", str(next(_versions))),
        "labels": spec.pop("labels", {}),
        "annotations": spec.pop("annotations", {}),
    }
    if spec.pop("deleting", False):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {
        "phase": spec.pop("phase", "Pending"),
        "nominatedNodeName": spec.pop("nominated", ""),
        "startTime": spec.pop("started", None),
        "conditions": list(spec.pop("conditions", ())),
    }
    body = {
        "schedulerName": spec.pop("scheduler", "kubestow"),
        "nodeName": spec.pop("on", ""),
        "schedulingGates": [{"name": gate} for gate in spec.pop("gates", ())],
        "containers": [{"name": "c", "resources": {"requests": requests}}],
        **spec,
    }
    return {"metadata": metadata, "spec": body, "status": status}


def read_pod(raw: dict[str, Any]) -> Pod | Broken:
    return ObjectDecoder("Pod", Pod).decode(msgspec.json.encode(raw))


def read_node(raw: dict[str, Any]) -> Node | Broken:
    return ObjectDecoder("Node", Node).decode(msgspec.json.encode(raw))


def typed(raw: dict[str, Any]) -> Pod:
    return from_manifest(Pod, raw)
