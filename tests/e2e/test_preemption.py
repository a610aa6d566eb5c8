"""Preemption on a real control plane: conditions and events of victims and preemptors, alone and with kube-scheduler."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest

from scheduler.framework.preemption_state import LOST_BEFORE_BRAKE
from tests.e2e.cluster import EVENTS, NODES, PODS, Json, node, pod, until
from tests.e2e.controlplane.build import MINOR
from tests.e2e.controlplane.harness import ControlPlane, scheduler_config
from tests.e2e.controlplane.process import Server
from tests.e2e.daemon import SCHEDULER_NAME
from tests.e2e.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

THEIRS: Final = "default-scheduler"
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PRIORITIES: Final = {"preemption-low": 0, "preemption-mid": 500, "preemption-high": 1000}
LOW, MID, HIGH = PRIORITIES
NOTHING_FREED: Final = "no new claims to deallocate, " if MINOR == "1.36" else ""
"""What DynamicResources adds for a pod without claims."""
ROUNDS: Final = LOST_BEFORE_BRAKE + 1
FOR_EVER_S: Final = 3600
"""A grace that no test outlives."""


class Preemption(Stage):
    """Pods of several priorities."""

    async def prepare(self) -> None:
        for name, value in PRIORITIES.items():
            await self.put(CLASSES, {"metadata": {"name": name}, "value": value})

    async def clean(self) -> None:
        await super().clean()
        for budget in (await self.cluster.get(BUDGETS))["items"]:
            await self.cluster.delete(f"{BUDGETS}/{budget['metadata']['name']}")

    async def protect(self, team: str, allowed: int) -> None:
        """A budget for pods of this team, with the status of its controller."""
        selector = {"matchLabels": {"team": team}}
        await self.put(BUDGETS, {"metadata": {"name": team}, "spec": {"minAvailable": 1, "selector": selector}})
        await self.cluster.merge(f"{BUDGETS}/{team}/status", {"status": {"disruptionsAllowed": allowed}})

    async def nominated(self, name: str, server: Server) -> str:
        """Wait for the nominated node of the pod."""

        async def read() -> str:
            return str((await self.cluster.get(f"{PODS}/{name}"))["status"].get("nominatedNodeName", ""))

        return await until(read, f"a nomination of {name}", server=server)

    async def bound(self, name: str, server: Server) -> str:
        return await until(lambda: self.cluster.node_of(name), f"a node for {name}", server=server)

    async def says(self, name: str, words: str, server: Server) -> Json:
        """The pod's condition, once it contains these words."""

        async def read() -> Json | None:
            condition = await self.cluster.condition(name)
            return condition if condition and words in condition.get("message", "") else None

        return await until(read, f"{words!r} in the condition of {name}", server=server)

    async def tried_until(self, name: str, words: str, node_name: str, server: Server) -> Json:
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

    async def gone(self, *names: str, server: Server) -> None:
        """Wait for their deletion in the watch."""

        async def read() -> bool:
            return set(names) <= set(self.gone_from())

        await until(read, f"the end of {names}", server=server)

    def gone_from(self) -> dict[str, str]:
        """Pods that were deleted → the nodes they were on."""
        return {obj["metadata"]["name"]: obj["spec"].get("nodeName", "") for obj in self.history.deleted}


def placed(name: str, node_name: str, *, cpu: str = "1", grace_s: int = 0, **more: object) -> Json:
    """A bound pod of low priority, by default of kube-scheduler."""
    scheduler = str(more.pop("schedulerName", THEIRS))
    labels = more.pop("labels", {})
    spec = {"priorityClassName": LOW, "nodeName": node_name, "terminationGracePeriodSeconds": grace_s, **more}
    built = pod(name, scheduler, spec, cpu=cpu)
    built["metadata"]["labels"] = labels
    return built


def important(name: str, scheduler: str = SCHEDULER_NAME, *, class_name: str = HIGH, cpu: str = "1") -> Json:
    return pod(name, scheduler, {"priorityClassName": class_name, "terminationGracePeriodSeconds": 0}, cpu=cpu)


@pytest.fixture
async def stage(control_plane: ControlPlane) -> AsyncIterator[Preemption]:
    async with Preemption.opened(control_plane) as stage:
        yield stage


@pytest.fixture
async def shared(control_plane_binaries: Path) -> AsyncIterator[Preemption]:
    """With a real kube-scheduler on the same nodes, so on a separate plane."""
    async with ControlPlane() as plane, Preemption.opened(plane) as stage:
        await plane.start_scheduler(scheduler_config(THEIRS))
        yield stage


def condition_of(obj: Json, type_: str) -> Json | None:
    return next((c for c in obj["status"].get("conditions") or [] if c["type"] == type_), None)


async def test_180_a_victim_is_evicted_and_the_preemptor_is_bound(stage: Preemption) -> None:
    """Nomination, condition, deletion and binding are in this order; an event names both pods."""
    await stage.cluster.create(node("n", cpu="1"), placed("victim", "n"))
    with stage.daemon() as server:
        await stage.cluster.create(important("preemptor"))
        assert await stage.bound("preemptor", server) == "n"
        await stage.gone("victim", server=server)

        async def event() -> Json | None:
            listed = await stage.cluster.get(EVENTS, fieldSelector="regarding.name=victim,reason=Preempted")
            return next((e for e in listed["items"] or [] if e["regarding"]["uid"] == victim["uid"]), None)

        last = stage.history.versions["victim"][-1]
        victim = last["metadata"]
        written = await until(event, "an event on the victim", server=server)
    preemptor = stage.history.versions["preemptor"][0]["metadata"]
    condition = condition_of(last, "DisruptionTarget")
    assert condition is not None
    assert {key: condition[key] for key in ("status", "reason", "message")} == {
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "kubestow: preempting to accommodate a higher priority pod",
    }
    assert {key: written[key] for key in ("type", "action", "note", "reportingController")} == {
        "type": "Normal",
        "action": "Preempting",
        "note": f"Preempted by pod {preemptor['uid']} on node n",
        "reportingController": "kubestow",
    }
    expected = {"kind": "Pod", "namespace": "default", "name": "preemptor", "uid": preemptor["uid"]}
    assert expected.items() <= written["related"].items()
    in_order = [
        first(stage, "preemptor", lambda obj: obj["status"].get("nominatedNodeName") == "n"),
        first(stage, "victim", lambda obj: condition_of(obj, "DisruptionTarget") is not None),
        first(stage, "victim", lambda obj: "deletionTimestamp" in obj["metadata"]),
        first(stage, "preemptor", lambda obj: bool(obj["spec"].get("nodeName"))),
    ]
    assert in_order == sorted(set(in_order))


def first(stage: Preemption, name: str, holds: Callable[[Json], bool]) -> int:
    """The resourceVersion of the first version of the pod for which this holds."""
    return next(int(obj["metadata"]["resourceVersion"]) for obj in stage.history.versions[name] if holds(obj))


async def test_188_a_victim_that_takes_its_time_is_waited_for(stage: Preemption) -> None:
    await stage.cluster.create(
        node("n", cpu="2100m"), placed("slow", "n", grace_s=FOR_EVER_S), placed("other", "n", priorityClassName=MID)
    )
    with stage.daemon() as server:
        await stage.cluster.create(important("preemptor"))
        assert await stage.nominated("preemptor", server) == "n"

        async def leaving() -> bool:
            return "deletionTimestamp" in (await stage.cluster.get(f"{PODS}/slow"))["metadata"]

        await until(leaving, "a victim on its way out", server=server)
        condition = await stage.tried_until("preemptor", "terminating pod", "n", server)
        assert condition["message"] == (
            f"0/1 nodes are available: 1 Insufficient cpu. {NOTHING_FREED}"
            "preemption: not eligible due to a terminating pod on the nominated node."
        )
        assert await stage.nominated("preemptor", server) == "n"
        await stage.cluster.delete(f"{PODS}/slow")
        assert await stage.bound("preemptor", server) == "n"
    assert stage.gone_from() == {"slow": "n"}


@pytest.mark.parametrize("spared", ["red", "blue"])
async def test_184_a_disruption_budget_decides_the_node(stage: Preemption, spared: str) -> None:
    for team in ("red", "blue"):
        await stage.protect(team, 0 if team == spared else 1)
        await stage.cluster.create(node(team, cpu="1"), placed(f"of-{team}", team, labels={"team": team}))
    with stage.daemon() as server:
        await stage.cluster.create(important("preemptor"))
        bound = await stage.bound("preemptor", server)
    assert bound != spared
    assert stage.gone_from() == {f"of-{bound}": bound}


# -- with kube-scheduler ------------------------------------------------------------------------------------------------------


async def test_a_node_that_kube_scheduler_freed_is_left_to_its_pod(shared: Preemption) -> None:
    await shared.cluster.create(node("n", cpu="1"), placed("victim", "n", grace_s=FOR_EVER_S))
    with shared.daemon() as server:
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
    with shared.daemon(config=slow) as server:
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
