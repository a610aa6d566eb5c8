"""Metrics of devices: what each action on a daemon and its drivers changes."""

from __future__ import annotations

from typing import Final

from scheduler.api.resource_v1 import FINALIZER
from scheduler.config.types import OUR_NAME
from simulator.apiserver import Fault
from simulator.builders.claims import a_claim, a_result
from simulator.builders.core import pod
from simulator.builders.devices import a_device_class, on_node
from tests.integration.clocks import SkippingClock
from tests.integration.daemon_laws import Object
from tests.integration.device_steps import DEVICE_CLAIMS as CLAIMS, SLOW
from tests.integration.harness import BINDING_TIMEOUT_S, running_cluster
from tests.integration.metering import Amount, ClusterStage, MetricRow, Steps, rises, shows, when
from tests.integration.test_device_faults import ALLOCATE

_ALLOCATIONS: Final = "scheduler_dra_bindingconditions_allocations_total"
_COLLISIONS: Final = "kubestow_device_collisions_total"
_CONFLICTS: Final = "kubestow_claim_write_conflicts_total"
_CREATES: Final = "scheduler_resourceclaim_creates_total"
_CREATES_1_37: Final = "dynamic_resource_allocation_resourceclaim_creates_total"
_EVALUATIONS: Final = "kubestow_device_cel_evaluations_total"
_IN_USE: Final = "kubestow_devices_in_use"
_WAITS: Final = "scheduler_dra_bindingconditions_wait_duration_seconds"
_EXTENDED: Final = "example.com/gpu"


class _Stage(ClusterStage):
    async def refused(self, name: str) -> None:
        def is_refused() -> bool:
            conditions = self.cluster.server.get("pods", name)["status"].get("conditions", [])
            return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)

        await self.until(is_refused, f"{name} was never refused")

    async def delete(self, *names: str) -> None:
        """Pods, and what was allocated for them."""
        for name in names:
            self.cluster.delete(name, at_once=True)
        await self.seconds(10)


async def scenario() -> Steps:
    """Run the steps on one node, n1, with the devices of `Harness.publish`."""
    async with running_cluster(devices=True, clock=SkippingClock) as cluster:
        stage = _Stage(cluster)
        cluster.add_node("n1", 4000, "a")
        await stage.seconds(10)
        for part in (_allocations, _conditions, _conflicts, _collisions, _extended):
            await part(stage)
        return stage.steps


async def _allocations(stage: _Stage) -> None:
    cluster = stage.cluster
    with stage.steps("a pod gets a device"):
        cluster.add_pod_with("first", 100, devices=("gpu-1",))
        await stage.bound("first")
    with stage.steps("a pod gets a share of a device"):
        cluster.add_pod_with("shares", 100, devices=("memory-3",))
        await stage.bound("shares")
    with stage.steps("both pods end"):
        await stage.delete("first", "shares")
    with stage.steps("two claims have the selector of their class in common"):
        cluster.add_pod_with("part-1", 100, devices=("part-1",))
        cluster.add_pod_with("part-2", 100, devices=("part-2",))
        await stage.bound("part-1")
        await stage.bound("part-2")


async def _conditions(stage: _Stage) -> None:
    cluster = stage.cluster
    with stage.steps("a device becomes ready"):
        cluster.add_pod_with("ready", 100, devices=("slow-1",))
        await stage.bound("ready")
    with stage.steps("a device fails"):
        cluster.answer("broken", 1)
        cluster.add_pod_with("fails", 100, devices=("slow-1",))
        await stage.refused("fails")
    await stage.bound("fails")
    await stage.delete("ready", "fails")
    with stage.steps("a device never becomes ready"):
        cluster.answer(None, 1)
        cluster.add_pod_with("late", 100, devices=("slow-1",))
        await stage.refused("late")
    await stage.delete("late")


async def _conflicts(stage: _Stage) -> None:
    cluster = stage.cluster
    with stage.steps("a claim is written by another client first"):
        cluster.server.faults.add(Fault(**ALLOCATE, status=409))
        cluster.add_pod_with("conflict", 100, devices=("gpu-1",))
        await stage.bound("conflict")
    with stage.steps("the answer to an allocation is lost"):
        cluster.server.faults.add(Fault(**ALLOCATE, reset="after"))
        cluster.add_pod_with("lost", 100, devices=("gpu-1",))
        await stage.bound("lost")
    await stage.delete("conflict", "lost")


async def _collisions(stage: _Stage) -> None:
    cluster = stage.cluster
    cluster.republish("n1", 1)
    await stage.seconds(10)
    with stage.steps("another scheduler gives the device away while the allocation is on its way"):
        await _given_away(stage, "theirs", "p", Fault(**ALLOCATE, delay_s=5))
    with stage.steps("another scheduler gives the device away before the allocation is tried again"):
        await _given_away(stage, "theirs-too", "q", Fault(**ALLOCATE, delay_s=5, status=409))


async def _given_away(stage: _Stage, claim: str, name: str, fault: Fault) -> None:
    """Allocate the only GPU to a claim of another scheduler while our write suffers from the fault."""
    cluster = stage.cluster
    cluster.server.create(CLAIMS, a_claim(claim).request("r", "gpu").obj())
    slow = cluster.server.faults.add(fault)
    cluster.add_pod_with(name, 100, devices=("gpu-1",))
    await stage.until(lambda: slow.hits, "no write")
    cluster.server.patch(CLAIMS, claim, {"metadata": {"finalizers": [FINALIZER]}})
    given = {"devices": {"results": [a_result("r", "gpu.example/n1/g0")]}, "nodeSelector": on_node("n1")}
    user = {"apiGroup": "example.com", "resource": "things", "name": "t", "uid": "t"}
    status: Object = {"allocation": given, "reservedFor": [user]}
    cluster.server.patch(CLAIMS, claim, {"status": status}, subresource="status")
    await stage.refused(name)
    await stage.seconds(1)
    status = {"allocation": None, "reservedFor": None}
    cluster.server.patch(CLAIMS, claim, {"status": status}, subresource="status")
    await stage.delete(name)


async def _extended(stage: _Stage) -> None:
    cluster = stage.cluster
    name = a_device_class("extended", "device.driver == 'gpu.example'").extended_resource(_EXTENDED)
    cluster.server.create("deviceclasses", name.obj())
    await stage.seconds(1)
    with stage.steps("the claim for an extended resource may not be created"):
        cluster.server.forbidden.add(("create", CLAIMS))
        cluster.server.create("pods", pod("extended").cpu("100m").extended(_EXTENDED, "1").obj())
        await stage.refused("extended")
    cluster.server.forbidden.clear()
    with stage.steps("the claim for an extended resource is created"):
        await stage.bound("extended")


def waited(status: str, seconds: Amount) -> list[MetricRow]:
    return [
        rises(_ALLOCATIONS, profile=OUR_NAME, driver=SLOW, status=status),
        rises(_WAITS, total=seconds, profile=OUR_NAME, driver=SLOW, status=status),
    ]


ROWS: Final = [
    *when(
        "a pod gets a device",
        rises("kubestow_device_search_steps", total=(1, 5)),
        rises(_EVALUATIONS, (1, 20), known="false"),
        shows("kubestow_device_cel_compiled_bytes", (1000, 100_000)),
        shows(_IN_USE, 1, kind="whole"),
    ),
    *when("a pod gets a share of a device", shows(_IN_USE, 1, kind="shared")),
    *when("both pods end", shows(_IN_USE, 0, kind="whole"), shows(_IN_USE, 0, kind="shared")),
    *when("two claims have the selector of their class in common", rises(_EVALUATIONS, (1, 40), known="true")),
    *when("a device becomes ready", *waited("success", (1.4, 3))),
    *when("a device fails", *waited("failure", (1.4, 3))),
    *when("a device never becomes ready", *waited("timeout", (BINDING_TIMEOUT_S - 1, BINDING_TIMEOUT_S + 1))),
    *when("a claim is written by another client first", rises(_CONFLICTS)),
    *when("the answer to an allocation is lost", rises(_CONFLICTS)),
    *when("another scheduler gives the device away while the allocation is on its way", rises(_COLLISIONS)),
    *when("another scheduler gives the device away before the allocation is tried again", rises(_COLLISIONS)),
    *when(
        "the claim for an extended resource may not be created",
        rises(_CREATES, status="failure"),
        rises(_CREATES_1_37, status="failure", admin_access="false", owner_api_group="", owner_api_kind="Pod"),
    ),
    *when(
        "the claim for an extended resource is created",
        rises(_CREATES, status="success"),
        rises(_CREATES_1_37, status="success", admin_access="false", owner_api_group="", owner_api_kind="Pod"),
    ),
]
STORIES: Final = ((scenario, ROWS),)
