"""A queue with a clock that tests move, scripted plugins, and recorded metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler.api.core_v1 import Pod, PodSpec, PodStatus, SchedulingGate, Toleration
from scheduler.api.meta import PodMetadata
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.core.cluster_events import ClusterEvent
from scheduler.core.errors import UnforeseenErrors
from scheduler.framework.interface import EventHint, Hint
from scheduler.framework.nominator import Nominator
from scheduler.framework.status import Code, Rejection
from scheduler.metrics.metrics import Metrics
from scheduler.queue import QueuedPodInfo, QueueProfile, SchedulingQueue
from tests.unit.harness import StepClock

OURS = "kubestow"
OTHER = "kubestow-batch"


def pod(
    name: str,
    *,
    priority: int = 0,
    version: str = "1",
    labels: dict[str, str] | None = None,
    gates: tuple[str, ...] = (),
    tolerations: int = 0,
    nominated: str = "",
    node: str = "",
    scheduler: str = OURS,
) -> PodInfo:
    """A pod in namespace `default`; its uid is its name."""
    return pod_info(
        Pod(
            metadata=PodMetadata(
                name=name, namespace="default", uid=name, resource_version=version, labels=labels or {}
            ),
            spec=PodSpec(
                scheduler_name=scheduler,
                node_name=node,
                priority=priority,
                scheduling_gates=tuple(SchedulingGate(gate) for gate in gates),
                tolerations=tuple(Toleration(key=f"taint-{n}", operator="Exists") for n in range(tolerations)),
            ),
            status=PodStatus(nominated_node_name=nominated),
        )
    )


@dataclass
class Tally(Metrics):
    incomings: list[tuple[str, str]] = field(default_factory=list)
    entities: list[tuple[str, str]] = field(default_factory=list)
    rejected: Counter[tuple[str, str]] = field(default_factory=Counter)
    hints: list[tuple[str, str, str]] = field(default_factory=list)

    def incoming_entity(self, queue: str, event: str) -> None:
        self.entities.append((queue, event))

    def incoming(self, queue: str, event: str) -> None:
        self.incomings.append((queue, event))

    def unschedulable(self, plugin: str, profile: str, delta: int) -> None:
        self.rejected[plugin, profile] += delta
        assert self.rejected[plugin, profile] >= 0

    def hint(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        self.hints.append((plugin, event, hint))

    def point(self, point: str, status: str, profile: str, seconds: float) -> None:
        assert point == "PreEnqueue"


@dataclass
class Notes:
    """A log that records its events."""

    texts: list[str] = field(default_factory=list)

    def debug(self, event: str, **_: object) -> None:
        self.texts.append(event)

    exception = error = info = debug


@dataclass
class Gate:
    """PreEnqueue that gates the pods named in `held` and counts its calls."""

    name: str
    held: set[str] = field(default_factory=set)
    code: Code = Code.UNRESOLVABLE
    calls: int = 0

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None:
        self.calls += 1
        return Rejection(self.name, self.code, ("held",)) if pod.pod.metadata.name in self.held else None


class SchedulingGates:
    """The real plugin's rule: a pod with gates is gated."""

    name = "SchedulingGates"

    def __init__(self) -> None:
        self.calls = 0

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None:
        self.calls += 1
        waits = bool(pod.pod.spec.scheduling_gates)
        return Rejection(self.name, Code.UNRESOLVABLE, ("waiting for scheduling gates",)) if waits else None


def by_priority(pod: PodInfo, queued_at: float) -> tuple[float, ...]:
    """PrioritySort."""
    return (-pod.priority, queued_at)


def answer(hint: Hint) -> Callable[[PodInfo, Any, Any], Hint]:
    """Return a hint with a fixed result."""
    return lambda _pod, _old, _new: hint


def hint(
    event: ClusterEvent,
    said: Hint | Callable[[PodInfo, Any, Any], Hint] | None = None,
    shape: Callable[[PodInfo], Hashable] | None = None,
) -> EventHint:
    """A registration; without `said` it has no hint function."""
    return EventHint(event, answer(said) if isinstance(said, Hint) else said, shape)


class QueueHarness:
    """A queue with its clock, metrics, log and pods."""

    def __init__(
        self,
        hints: Mapping[str, tuple[EventHint, ...]] | None = None,
        *,
        gates: tuple[Any, ...] = (),
        other_hints: Mapping[str, tuple[EventHint, ...]] | None = None,
        **options: float,
    ) -> None:
        self.clock = StepClock()
        self.metrics = Tally()
        self.log = Notes()
        self.errors = UnforeseenErrors(self.clock)
        self.store: dict[str, PodInfo] = {}
        self.ready = 0
        self.queue = SchedulingQueue(
            {
                OURS: QueueProfile(gates, by_priority, hints or {}),
                OTHER: QueueProfile((), by_priority, other_hints or {}),
            },
            clock=self.clock,
            nominator=Nominator(self.store.get),
            metrics=self.metrics,
            on_ready=self._on_ready,
            log=self.log,
            errors=self.errors,
            **options,
        )

    def _on_ready(self) -> None:
        self.ready += 1

    def add(self, *pods: PodInfo) -> None:
        """The watch shows new pods."""
        for info in pods:
            self.store[info.key] = info
            self.queue.add(info)

    def update(self, new: PodInfo) -> None:
        """The watch shows a changed pod."""
        old = self.store[new.key]
        self.store[new.key] = new
        self.queue.update(old, new)

    def delete(self, info: PodInfo) -> None:
        """The watch shows that a pod is gone."""
        self.queue.delete(self.store.pop(info.key))

    def pop(self) -> QueuedPodInfo:
        queued = self.queue.pop()
        assert queued is not None
        return queued

    def fail(self, queued: QueuedPodInfo, *plugins: str, pending: tuple[str, ...] = ()) -> None:
        """The attempt fails: rejected by these plugins, or an error if there are none."""
        queued.unschedulable_plugins = set(plugins)
        queued.pending_plugins = set(pending)
        queued.info = self.store[queued.info.key]
        self.queue.requeue(queued)

    def rejected(self, info: PodInfo, *plugins: str, pending: tuple[str, ...] = ()) -> QueuedPodInfo:
        """Add the pod, try it, and have it rejected."""
        self.add(info)
        queued = self.pop()
        assert queued.info is info
        self.fail(queued, *plugins, pending=pending)
        return queued

    def advance(self, seconds: float) -> None:
        """Move the clock, with a tick at each whole second and one at the end."""
        end = self.clock.time + seconds
        while self.clock.time < end:
            self.clock.time = min(float(int(self.clock.time) + 1), end)
            self.queue.tick()

    def places(self) -> dict[str, str]:
        """Return the place of each pod by name. No pod may have two."""
        rows = list(self.queue.entries())
        out = {row.key.removeprefix("default/"): row.place for row in rows}
        assert len(out) == len(rows)
        return out

    def place(self, name: str) -> str | None:
        return self.places().get(name)

    def names_popped(self) -> list[str]:
        """Pop until nothing is ready; each attempt is done at once."""
        names = []
        while (queued := self.queue.pop()) is not None:
            names.append(queued.info.pod.metadata.name)
            self.queue.done(queued.uid)
        return names
