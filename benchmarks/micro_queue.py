"""What the queue costs: pods that come and go, and events that concern some or none of the waiting pods.

Run by `benchmarks.micro`; sizes are numbers of waiting pods. Most have one of two hundred shapes.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from benchmarks.in_process import SHAPES, Figure, InProcess, compare, microseconds
from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import Broken, Delta, ObjectDecoder, from_manifest
from scheduler.api.podinfo import PodInfo, placed, pod_info
from scheduler.core.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    Action,
    ClusterEvent,
    Resource,
)

FIT = "NodeResourcesFit"
SMALL_QUEUE = 1000
LARGE_QUEUE = 20_000
EVENTS = 2000
RELABELLED = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)


class Waiting:
    """A queue with that many pods, all rejected once by the same plugins; `spec` adds to the spec of each."""

    def __init__(
        self, count: int, *rejecters: str, spec: Callable[[int], Mapping[str, Any]] = lambda _index: {}
    ) -> None:
        self.decider = InProcess(10, SHAPES)
        self.queue = self.decider.scheduler.queue
        self.rejecters = rejecters or (FIT,)
        self.pods = [self._pod(index, spec(index)) for index in range(count)]

    def _pod(self, index: int, spec: Mapping[str, Any]) -> PodInfo:
        body = msgspec.json.decode(self.decider.raw_pod("p", index))
        body["spec"] |= spec
        return pod_info(from_manifest(Pod, body))

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
            queued.unschedulable_plugins = set(self.rejecters)
            self.queue.requeue(queued)
            refused += 1
        return refused

    def node(self, cpu: str = "4", **labels: str) -> Node:
        return from_manifest(Node, msgspec.json.decode(self.node_body(cpu, **labels)))

    def node_body(self, cpu: str = "4", **labels: str) -> bytes:
        body = msgspec.json.decode(self.decider.workload.node_body(9))
        body["status"]["allocatable"]["cpu"] = cpu
        body["metadata"]["labels"] |= labels
        return msgspec.json.encode(body)

    def events(self, event: ClusterEvent, old: object, new: object, *, count: int = EVENTS) -> float:
        """Of one of many equal events after which all still wait."""
        self.add()
        self.refuse()
        before = self.queue.counts()

        def work() -> int:
            for _ in range(count):
                self.queue.move_all(event, old, new)
            return count

        took_us = microseconds(work)
        assert before == self.queue.counts()
        return took_us


def choosy(index: int) -> Mapping[str, Any]:
    """Waits for a node of its team that has a disk, too."""
    return {"nodeSelector": {"team": f"team-{index % SHAPES}", "disk": "ssd"}}


def unique(index: int) -> Mapping[str, Any]:
    """Like no other pod, to several plugins."""
    return {
        "nodeSelector": {"kubernetes.io/hostname": f"host-{index}"},
        "containers": [{"name": "c", "resources": {"requests": {"cpu": f"{index + 1}m"}}}],
    }


def sociable(index: int) -> Mapping[str, Any]:
    """Waits for pods of one app, and must be spread among those of another."""
    near, far = ({"matchLabels": {"app": f"{word}-{index % SHAPES}"}} for word in ("near", "far"))
    term = {"topologyKey": "zone", "labelSelector": near}
    spread = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": far}
    return {
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        "topologySpreadConstraints": [spread],
    }


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


def refusing_unlike(count: int) -> float:
    """No two pods have a shape in common, to either plugin."""
    waiting = Waiting(count, FIT, "NodeAffinity", spec=unique)
    waiting.add()
    return microseconds(waiting.refuse)


def useless_events(count: int) -> float:
    """A node that is too small for every waiting pod."""
    waiting = Waiting(count)
    return waiting.events(NODE_ADD, None, waiting.node("10m"), count=50)


def unregistered(count: int) -> float:
    """No waiting pod was rejected by a plugin that registered the event."""
    waiting = Waiting(count)
    return waiting.events(RELABELLED, waiting.node(), waiting.node(rack="r1"))


def relabelling(count: int, **labels: str) -> float:
    """A node gets labels; the pods need different ones."""
    waiting = Waiting(count, "NodeAffinity", spec=choosy)
    return waiting.events(RELABELLED, waiting.node(), waiting.node(**labels))


def relabelled(count: int) -> float:
    """The same from the node's JSON to cache and queue."""
    waiting = Waiting(count, "NodeAffinity", spec=choosy)
    waiting.add()
    waiting.refuse()
    decode, event_handlers = ObjectDecoder("Node", Node).decode, waiting.decider.scheduler.event_handlers
    raws = [waiting.node_body(rack=f"r{index}") for index in range(EVENTS)]

    def work() -> int:
        old: Node | Broken = waiting.node()
        for raw in raws:
            new = decode(raw)
            event_handlers.apply("Node", [Delta(old, new)])
            old = new
        return EVENTS

    return microseconds(work)


def arriving(count: int) -> float:
    """A pod that no selector matches appears on a node."""
    waiting = Waiting(count, "InterPodAffinity", "PodTopologySpread", spec=sociable)
    return waiting.events(ASSIGNED_POD_ADD, None, placed(waiting.decider.pods("came", 1)[0], "node-00000"))


def waking(count: int) -> float:
    """A pod is deleted; the time is per pod that is woken."""
    waiting = Waiting(count)
    waiting.add()
    waiting.refuse()
    gone = placed(waiting.decider.pods("gone", 1)[0], "node-00000")

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
        ("pop and requeue, no two alike", refusing_unlike),
        ("event that helps no pod", useless_events),
        ("event of no rejecting plugin", unregistered),
        ("label that no pod waits for", partial(relabelling, rack="r1")),
        ("the same, from the node's JSON", relabelled),
        ("label that one shape waits for", partial(relabelling, team="team-7")),
        ("pod that no pod waits for", arriving),
        ("event that helps all, per pod", waking),
    ):
        yield compare(name, measure, SMALL_QUEUE, LARGE_QUEUE)
