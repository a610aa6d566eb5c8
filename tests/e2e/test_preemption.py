"""Preemption on a real control plane, together with kube-scheduler."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from scheduler.framework.preemption_state import LOST_BEFORE_BRAKE
from tests.e2e.cluster import EVENTS, NODES, PODS, Cluster, History, Json, ensure, node, pod, until
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane, daemon, scheduler_config
from tests.e2e.controlplane.process import ServerProcess
from tests.e2e.sandbox import THEIRS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
PRIORITIES: Final = {"preemption-low": 0, "preemption-mid": 500, "preemption-high": 1000}
LOW, MID, HIGH = PRIORITIES
ROUNDS: Final = LOST_BEFORE_BRAKE + 1
FOR_EVER_S: Final = 3600
"""A grace that no test outlives."""


@dataclass
class Preemption:
    """A plane with a real kube-scheduler, and a watch on the pods."""

    plane: ControlPlane
    cluster: Cluster
    history: History = field(default_factory=History)

    async def nominated(self, name: str, server: ServerProcess) -> str:
        """Wait for the nominated node of the pod."""

        async def read() -> str:
            return str((await self.cluster.get(f"{PODS}/{name}"))["status"].get("nominatedNodeName", ""))

        return await until(read, f"a nomination of {name}", server=server)

    async def bound(self, name: str, server: ServerProcess) -> str:
        return await until(lambda: self.cluster.node_of(name), f"a node for {name}", server=server)

    async def says(self, name: str, words: str, server: ServerProcess) -> Json:
        """The pod's condition, once it contains these words."""

        async def read() -> Json | None:
            condition = await self.cluster.condition(name)
            return condition if condition and words in condition.get("message", "") else None

        return await until(read, f"{words!r} in the condition of {name}", server=server)

    async def tried_until(self, name: str, words: str, node_name: str, server: ServerProcess) -> Json:
        """The same for a pod that is tried repeatedly, because the node grows and shrinks."""

        async def read() -> Json | None:
            allocatable = (await self.cluster.get(f"{NODES}/{node_name}"))["status"]["allocatable"]
            cpu = allocatable["cpu"]
            milli_cpu = int(cpu.removesuffix("m")) if cpu.endswith("m") else 1000 * int(cpu)
            room = {"cpu": f"{milli_cpu + (-1 if milli_cpu % 2 else 1)}m"}
            await self.cluster.merge(f"{NODES}/{node_name}/status", {"status": {"allocatable": room, "capacity": room}})
            condition = await self.cluster.condition(name)
            return condition if condition and words in condition["message"] else None

        return await until(read, f"{words!r} in the condition of {name}", server=server)


def placed(name: str, node_name: str, *, grace_s: int = 0) -> Json:
    """A bound pod of kube-scheduler with low priority."""
    spec = {"priorityClassName": LOW, "nodeName": node_name, "terminationGracePeriodSeconds": grace_s}
    return pod(name, THEIRS, spec, cpu="1")


def important(name: str, scheduler: str = SCHEDULER_NAME, *, class_name: str = HIGH, cpu: str = "1") -> Json:
    return pod(name, scheduler, {"priorityClassName": class_name, "terminationGracePeriodSeconds": 0}, cpu=cpu)


@pytest.fixture
async def shared(control_plane_binaries: Path) -> AsyncIterator[Preemption]:
    async with ControlPlane() as plane, plane.client() as http:
        stage = Preemption(plane, Cluster(http))
        for name, value in PRIORITIES.items():
            await ensure(http, CLASSES, {"metadata": {"name": name}, "value": value})
        version = (await stage.cluster.get(PODS))["metadata"]["resourceVersion"]
        watching = asyncio.create_task(stage.history.follow(http, version))
        await plane.start_scheduler(scheduler_config(THEIRS))
        yield stage
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def test_a_node_that_kube_scheduler_freed_is_left_to_its_pod(shared: Preemption) -> None:
    await shared.cluster.create(node("n", cpu="1"), placed("victim", "n", grace_s=FOR_EVER_S))
    with daemon(shared.plane) as server:
        await shared.cluster.create(important("theirs", THEIRS))
        assert await shared.nominated("theirs", server) == "n"

        async def leaving() -> bool:
            return "deletionTimestamp" in (await shared.cluster.get(f"{PODS}/victim"))["metadata"]

        await until(leaving, "a victim of kube-scheduler on its way out", server=server)
        await shared.plane.stop_server("kube-scheduler")
        await shared.cluster.create(important("waits"))
        await shared.says("waits", "1 Insufficient cpu", server)
        await shared.cluster.delete(f"{PODS}/victim")
        # What comes now is judged after the deletion was seen: one watch has both.
        await shared.cluster.create(important("equal"), important("lower", class_name=MID), important("tiny", cpu="1m"))
        for name in ("equal", "lower", "tiny"):
            await shared.says(name, "1 Insufficient cpu", server)
        assert await shared.cluster.node_of("waits") == ""
        await shared.plane.start_scheduler(scheduler_config(THEIRS))
        assert await shared.bound("theirs", server) == "n"
    nominations = [
        obj["status"].get("nominatedNodeName", "")
        for obj in shared.history.versions["theirs"]
        if not obj["spec"].get("nodeName")
    ]
    assert nominations == sorted(nominations), "a nomination that was there has been taken away"
    managers = {
        field["manager"]: field
        for obj in shared.history.versions["theirs"]
        for field in obj["metadata"]["managedFields"]
    }
    assert "kubestow" not in managers
    assert {obj["metadata"]["name"] for obj in shared.history.deleted} == {"victim"}


async def test_198_victims_that_come_back_under_kube_scheduler_are_not_evicted_endlessly(shared: Preemption) -> None:
    """Kubestow is slow, so that kube-scheduler is first each time; after a few rounds the node is left alone."""
    await shared.cluster.create(node("n", cpu="1"), placed("worker-0", "n"))
    controller = asyncio.create_task(replacing(shared))
    slow = scheduler_config(SCHEDULER_NAME, qps=2, burst=1)
    with daemon(shared.plane, config=slow) as server:
        await shared.cluster.create(important("preemptor"))

        async def over() -> str:
            if await shared.cluster.node_of("preemptor"):
                return "bound"
            listed = await shared.cluster.get(EVENTS, fieldSelector="reason=PreemptionLost")
            return "braked" if listed["items"] else ""

        end = await until(over, "a winner, or a brake", server=server, within_s=120)
        if end == "braked":
            await shared.tried_until("preemptor", "1 No preemption victims found for incoming pod.", "n", server)
        evicted = len(shared.history.deleted)
        print(f"{end} after {evicted} evictions")  # noqa: T201 (either may win the races)
        assert 1 <= evicted <= ROUNDS + 1  # that the other one wins each time is likely, and all that this is about
    controller.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await controller


async def replacing(stage: Preemption) -> None:
    """A controller: for each deleted pod it makes another one at once, until cancelled."""
    replaced = 0
    while True:
        while len(stage.history.deleted) > replaced:
            replaced += 1
            await stage.cluster.create(important(f"worker-{replaced}", THEIRS, class_name=LOW))
        await asyncio.sleep(0.005)
