"""A scheduler with one full node and a preemptor, and a writer on which each write can be held or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from scheduler.api.apps_and_policy import DISRUPTION_TARGET
from scheduler.api.core_v1 import Pod, PodCondition
from scheduler.api.decode import Delta
from scheduler.config.types import Configuration
from scheduler.core.errors import ApiError
from tests.unit.harness import SchedulerHarness, manifest, read_pod


class Wire:
    """Replaces the scheduler's status patches and deletions.

    Writes are named `nominate p n1`, `clear q`, `say p`, `mark v0` (its condition) and `delete v0`. `sent` has them
    in the order of requests, `landed` in the order in which the server carries them out. With `shows` the watch shows
    each deletion at once.
    """

    def __init__(self, sched: SchedulerHarness, *, shows: bool = False) -> None:
        self.sched = sched
        self.shows = shows
        self.sent: list[str] = []
        self.landed: list[str] = []
        self.conditions: dict[str, PodCondition] = {}
        """The conditions of victims."""
        self.holds: dict[str, asyncio.Event] = {}
        self.refuses: dict[str, list[ApiError]] = {}
        """Errors of writes that are not carried out."""
        self.loses: dict[str, list[ApiError]] = {}
        """Errors of writes that are carried out."""
        self.on_landed: Callable[[str], None] | None = None
        self.on_the_wire = self.most_on_the_wire = 0
        sched.writer.patch_pod_status = self._patch  # type: ignore[method-assign]
        sched.writer.delete_pod = self._delete  # type: ignore[method-assign]

    def hold(self, *writes: str) -> None:
        """Hold these writes until `answer`."""
        for write in writes:
            self.holds[write] = asyncio.Event()

    def answer(self, *writes: str) -> None:
        for write in writes:
            self.holds.pop(write).set()

    def victims(self) -> list[str]:
        """Return the pods whose deletion was carried out, in order."""
        return [write.partition(" ")[2] for write in self.landed if write.startswith("delete")]

    async def _patch(self, pod: Pod, *, condition: PodCondition | None, nominated_node_name: str | None) -> None:
        name = pod.metadata.name
        if condition is not None and condition.type == DISRUPTION_TARGET:
            await self._write(f"mark {name}")
            self.conditions[name] = condition
        elif nominated_node_name:
            await self._write(f"nominate {name} {nominated_node_name}")
        else:
            await self._write(f"say {name}" if nominated_node_name is None else f"clear {name}")

    async def _delete(self, pod: Pod) -> None:
        await self._write(f"delete {pod.metadata.name}")

    async def _write(self, what: str) -> None:
        self.sent.append(what)
        self.on_the_wire += 1
        self.most_on_the_wire = max(self.most_on_the_wire, self.on_the_wire)
        try:
            if (hold := self.holds.get(what)) is not None:
                await hold.wait()
            if self.refuses.get(what):
                raise self.refuses[what].pop(0)
        finally:
            self.on_the_wire -= 1
        self.landed.append(what)
        if self.shows and what.startswith("delete"):
            show(self.sched, what.partition(" ")[2], deleting=True)
        if self.on_landed is not None:
            self.on_landed(what)
        if self.loses.get(what):
            raise self.loses[what].pop(0)


def show(sched: SchedulerHarness, name: str, *, deleting: bool = False, conditions: Any = (), uid: str = "") -> None:
    """Show a changed victim."""
    raw = manifest(name, **VICTIM, deleting=deleting, uid=uid or f"uid-{name}")
    raw["status"]["conditions"] = list(conditions)
    new = read_pod(raw)
    sched.parts.event_handlers.apply("Pod", [Delta(sched.seen.get(name), new)])
    sched.seen[name] = new


def show_refused(sched: SchedulerHarness, *, nominated: str) -> None:
    """Show the preemptor with the condition of its first attempt."""
    raw = manifest("p", cpu="1", priority=100, nominated=nominated)
    message = (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on node n1, "
        "preempting 1 victims."
    )
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    raw["status"]["conditions"] = [condition]
    new = read_pod(raw)
    sched.parts.event_handlers.apply("Pod", [Delta(sched.seen.get("p"), new)])
    sched.seen["p"] = new


VICTIM: dict[str, Any] = {"cpu": "1", "on": "n1", "scheduler": "theirs"}


def arena(victims: int = 2, config: Configuration | None = None, **preemptor: Any) -> tuple[SchedulerHarness, Wire]:
    """Return a scheduler where v0, v1 … of equal priority fill n1, and p needs the whole node. No pod has been tried."""
    sched = SchedulerHarness(config)
    wire = Wire(sched)
    sched.node("n1", cpu=str(victims))
    for i in range(victims):
        sched.pod(f"v{i}", **VICTIM)
    sched.pod("p", **{"cpu": str(victims), "priority": 100, **preemptor})
    return sched, wire


def leaves(sched: SchedulerHarness, name: str) -> None:
    """Show that the victim is terminating."""
    show(sched, name, deleting=True)


def goes(sched: SchedulerHarness, name: str) -> None:
    """Show that the victim is gone."""
    sched.gone(name)


async def rest(sched: SchedulerHarness) -> None:
    """Run until no task moves."""
    for _ in range(5):
        await sched.settle()
        await sched.turns()
    await sched.settle()


def events(sched: SchedulerHarness, reason: str) -> list[tuple[str, str]]:
    """Return the pod and the note of each event."""
    return [(event.pod.partition("/")[2], event.note) for event in sched.recorder.events if event.reason == reason]


def metric(sched: SchedulerHarness, name: str) -> float:
    """Return a sample by its full name with labels, or 0."""
    for line in sched.parts.shared.metrics.render().decode().splitlines():
        if line.startswith(name + " "):
            return float(line.rpartition(" ")[2])
    return 0.0


def ended(sched: SchedulerHarness) -> tuple[float, float]:
    """Return the numbers of successful and failed preemptions."""
    name = 'scheduler_preemption_goroutines_execution_total{{result="{}"}}'
    return metric(sched, name.format("success")), metric(sched, name.format("error"))


def holds_back(sched: SchedulerHarness, uid: str = "uid-p") -> bool:
    """Return whether PreEnqueue gates the pod."""
    return sched.parts.evictions._preempting.holds_back(uid, sched.cluster)


def is_clean(sched: SchedulerHarness) -> bool:
    """Return whether no preemption is under way, and no state of any is left."""
    evictions = sched.parts.evictions
    return evictions.snapshot() == set() and len(evictions) == 0
