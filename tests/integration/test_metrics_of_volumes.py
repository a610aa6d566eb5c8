"""Metrics of volumes: what each action on a daemon and its controllers changes."""

from __future__ import annotations

from typing import Any, Final

import pytest

from simulator.apiserver import ApiServer, Fault
from simulator.builders.core import pod
from tests.integration.metering import ANY, Outcome, Row, Steps, WorldStage, rises, shows, when
from tests.integration.skipping import SkippingClock
from tests.integration.volumesteps import CLAIMS, FAST, VOLUMES, selected
from tests.integration.volumeworld import BIND_TIMEOUT_S, VolumeWorld, Want
from tests.integration.world import ZONE, hosted
from tests.support.volumebuilders import a_claim, a_pv

GIB: Final = 2**30
_BYTES: Final = "kubestow_volume_bytes_in_flight"
_CONFLICTS: Final = "kubestow_volume_write_conflicts_total"
_EXPIRED: Final = "kubestow_volume_in_flight_expired_total"
_LONG: Final = "kubestow_volume_bind_long_waits_total"
_OLDEST: Final = "kubestow_volume_in_flight_oldest_seconds"
_STAGE: Final = "scheduler_volume_scheduling_stage_error_total"
_WAIT: Final = "kubestow_volume_bind_wait_seconds"


class _Stage(WorldStage[VolumeWorld]):
    def delete(self, name: str) -> None:
        """The pod and its claims."""
        self.world.delete(name, at_once=True)
        for each in self.world.server.list(CLAIMS):
            if each["metadata"]["name"].startswith(f"{name}-"):
                self.world.server.delete(CLAIMS, each["metadata"]["name"])


def _made(server: ApiServer, clock: Any) -> VolumeWorld:
    return VolumeWorld(server, clock, publishes_every_s=100_000)


async def scenario() -> Steps:
    """Run the steps on one node, n1, whose rack has capacity for 10 GiB."""
    async with hosted(_made, clock=SkippingClock, kubelets_grace_s=2) as world:
        stage = _Stage(world)
        world.add_node("n1", 4000, "a")
        await stage.until(lambda: len(stage.daemon().decisions.cluster.volumes.capacities) == 2, "nothing published")
        for part in (_static, _conflicts, _settling, _stranded, _waiting, _untranslated, _drift):
            await part(stage)
        return stage.steps


async def _static(stage: _Stage) -> None:
    world = stage.world
    for _ in range(4):
        world.add_volume("local", 1, "n1")
    with stage.steps("a pod gets a volume that is there"):
        world.add_pod_with("static", 100, (Want("local", 1),))
        await stage.bound("static")


async def _conflicts(stage: _Stage) -> None:
    world = stage.world
    with stage.steps("a volume is changed while it is written"):
        slow = world.server.faults.add(Fault(verb="patch", resource=VOLUMES, delay_s=5))
        world.add_pod_with("late", 100, (Want("local", 1),))
        await stage.until(lambda: slow.hits, "no write")
        for each in world.server.list(VOLUMES):
            world.server.patch(VOLUMES, each["metadata"]["name"], {"metadata": {"labels": {"example.com/n": "1"}}})
        await stage.bound("late")
    with stage.steps("the answer to the selection of a node is lost"):
        world.server.faults.add(Fault(verb="patch", resource=CLAIMS, reset="after"))
        world.add_pod_with("lost", 100, (FAST,))
        await stage.bound("lost")


async def _settling(stage: _Stage) -> None:
    """Capacity is not published again, so it never shows the volume of the last pod."""
    with stage.steps("a volume has been made for ten seconds and capacity does not show it"):
        await stage.seconds(10)
    with stage.steps("capacity does not show a volume for two minutes"):
        await stage.seconds(120)
    stage.delete("lost")
    await stage.seconds(10)


async def _waiting(stage: _Stage) -> None:
    world = stage.world
    with stage.steps("no volume is made for ten seconds"):
        world.kill_provisioner(in_a_call=False)
        world.add_pod_with("waits", 100, (FAST,))
        await stage.until(lambda: selected(world, "waits-0"), "no node was selected")
        await stage.seconds(10)
    with stage.steps("no volume is made until the binding times out"):
        await stage.until(lambda: any(name == "waits" for name, _ in world.refusals), "never refused")
    with stage.steps("no volume is made for ten minutes"):
        await stage.seconds(600)
    world.revive_provisioner()
    with stage.steps("the volume is made"):
        await stage.bound("waits")
    with stage.steps("a pod gets a volume that is there and one that is made"):
        world.add_pod_with("mixed", 100, (Want("local", 1), Want("plain", 1)))
        await stage.bound("mixed")


async def _stranded(stage: _Stage) -> None:
    world = stage.world
    with stage.steps("one of two claims loses its node, and the volume of the other cannot leave"):
        world.fail_provisioning(1, keeps_trying=False)
        world.add_pod_with("stranded", 100, (FAST, FAST))
        await stage.until(lambda: world.provisioner.failures, "did not fail")
        world.cordon_node(0, is_cordoned=True)
        await stage.seconds(10)
    world.cordon_node(0, is_cordoned=False)
    await stage.bound("stranded")
    stage.delete("stranded")
    await stage.seconds(150)


async def _untranslated(stage: _Stage) -> None:
    world = stage.world
    migrated = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"}
    world.server.patch("csinodes", "n1", {"metadata": {"annotations": migrated}})
    disk = a_pv("disk", "1Gi", "now").source(awsElasticBlockStore={"volumeID": "aws://z/bad"})
    world.server.create(VOLUMES, disk.where(ZONE, "a").obj())
    world.server.create(CLAIMS, a_claim("disk", "1Gi", "now").obj())
    await stage.until(lambda: world.server.get(CLAIMS, "disk")["status"].get("phase") == "Bound", "not bound")
    with stage.steps("a volume has a handle that its CSI driver does not have"):
        world.server.create("pods", pod("disk").cpu("100m").pvc("disk").obj())
        await stage.until(lambda: any(name == "disk" for name, _ in world.refusals), "not refused")


async def _drift(stage: _Stage) -> None:
    with stage.steps("a pool is charged more than is in flight"):
        next(iter(stage.daemon().decisions.cluster.volumes.capacities)).in_flight += 17


ROWS: Final = [
    *when(
        "a pod gets a volume that is there",
        rises(_WAIT, total=(0.1, 1), kind="static"),
        rises("scheduler_volume_binder_cache_requests_total", 0, operation=ANY),
    ),
    *when("a volume has a handle that its CSI driver does not have", rises(_STAGE, (1, 5), operation="predicate")),
    *when("a volume is changed while it is written", rises(_CONFLICTS, resource="PersistentVolume")),
    *when(
        "the answer to the selection of a node is lost",
        rises(_CONFLICTS, resource="PersistentVolumeClaim"),
        rises(_WAIT, total=(3, 6), kind="dynamic"),
    ),
    *when(
        "a volume has been made for ten seconds and capacity does not show it",
        shows(_OLDEST, (10, 13), state="settling"),
    ),
    *when(
        "capacity does not show a volume for two minutes",
        rises(_EXPIRED, state="settling"),
        shows(_OLDEST, 0, state="settling"),
        shows(_BYTES, 0, storage_class="fast"),
    ),
    *when(
        "one of two claims loses its node, and the volume of the other cannot leave",
        shows(_OLDEST, (8, 12), state="stranded"),
        rises(_STAGE, operation="bind"),
    ),
    *when(
        "no volume is made for ten seconds",
        shows(_OLDEST, (10, 11), state="flying"),
        shows(_BYTES, 2 * GIB, storage_class="fast"),
    ),
    *when(
        "no volume is made until the binding times out",
        rises(_LONG, after="30"),
        rises(_LONG, after="60"),
        rises(_STAGE, operation="bind"),
        rises(_WAIT, total=(BIND_TIMEOUT_S - 1, BIND_TIMEOUT_S + 1), kind="dynamic"),
    ),
    *when("no volume is made for ten minutes", rises(_EXPIRED, state="flying"), shows(_BYTES, 0, storage_class="fast")),
    *when("the volume is made", shows(_OLDEST, 0, state="flying")),
    *when("a pod gets a volume that is there and one that is made", rises(_WAIT, kind="mixed")),
    *when("a pool is charged more than is in flight", shows("kubestow_volume_ledger_drift_bytes", 17)),
]
OUTCOME: Final = Outcome(scenario)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_daemon_moves(row: Row) -> None:
    assert OUTCOME.problems(row) == []
