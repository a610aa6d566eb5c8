"""Metrics of volumes: what each action on a daemon and its controllers changes."""

from __future__ import annotations

from typing import Final

from simulator.apiserver import Fault
from simulator.builders.core import pod
from tests.integration.clocks import SkippingClock
from tests.integration.harness import BIND_TIMEOUT_S, running_cluster
from tests.integration.metering import ANY, ClusterStage, Steps, rises, shows, when
from tests.integration.pod_steps import ZONE
from tests.integration.test_volumes import FAST, selected
from tests.integration.volume_steps import CLAIMS, VOLUMES, Want
from tests.support.volumebuilders import a_claim, a_pv

GIB: Final = 2**30
_BYTES: Final = "kubestow_volume_bytes_in_flight"
_CONFLICTS: Final = "kubestow_volume_write_conflicts_total"
_EXPIRED: Final = "kubestow_volume_in_flight_expired_total"
_LONG: Final = "kubestow_volume_bind_long_waits_total"
_OLDEST: Final = "kubestow_volume_in_flight_oldest_seconds"
_STAGE: Final = "scheduler_volume_scheduling_stage_error_total"
_WAIT: Final = "kubestow_volume_bind_wait_seconds"


class _Stage(ClusterStage):
    def delete(self, name: str) -> None:
        """The pod and its claims."""
        self.cluster.delete(name, at_once=True)
        for each in self.cluster.server.list(CLAIMS):
            if each["metadata"]["name"].startswith(f"{name}-"):
                self.cluster.server.delete(CLAIMS, each["metadata"]["name"])


async def scenario() -> Steps:
    """Run the steps on one node, n1, whose rack has capacity for 10 GiB."""
    async with running_cluster(volumes=True, publishes_every_s=100_000, clock=SkippingClock) as cluster:
        stage = _Stage(cluster)
        cluster.add_node("n1", 4000, "a")
        await stage.until(
            lambda: len(stage.cluster.running().scheduler.cluster.volumes.capacities) == 2, "nothing published"
        )
        for part in (_static, _conflicts, _settling, _stranded, _waiting, _untranslated, _drift):
            await part(stage)
        return stage.steps


async def _static(stage: _Stage) -> None:
    cluster = stage.cluster
    for _ in range(4):
        cluster.add_volume("local", 1, "n1")
    with stage.steps("a pod gets a volume that is there"):
        cluster.add_pod_with("static", 100, (Want("local", 1),))
        await stage.bound("static")


async def _conflicts(stage: _Stage) -> None:
    cluster = stage.cluster
    with stage.steps("a volume is changed while it is written"):
        slow = cluster.server.faults.add(Fault(verb="patch", resource=VOLUMES, delay_s=5))
        cluster.add_pod_with("late", 100, (Want("local", 1),))
        await stage.until(lambda: slow.hits, "no write")
        for each in cluster.server.list(VOLUMES):
            cluster.server.patch(VOLUMES, each["metadata"]["name"], {"metadata": {"labels": {"example.com/n": "1"}}})
        await stage.bound("late")
    with stage.steps("the answer to the selection of a node is lost"):
        cluster.server.faults.add(Fault(verb="patch", resource=CLAIMS, reset="after"))
        cluster.add_pod_with("lost", 100, (FAST,))
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
    cluster = stage.cluster
    with stage.steps("no volume is made for ten seconds"):
        cluster.kill_provisioner(in_a_call=False)
        cluster.add_pod_with("waits", 100, (FAST,))
        await stage.until(lambda: selected(cluster, "waits-0"), "no node was selected")
        await stage.seconds(10)
    with stage.steps("no volume is made until the binding times out"):
        await stage.until(lambda: any(name == "waits" for name, _ in cluster.refusals), "never refused")
    with stage.steps("no volume is made for ten minutes"):
        await stage.seconds(600)
    cluster.revive_provisioner()
    with stage.steps("the volume is made"):
        await stage.bound("waits")
    with stage.steps("a pod gets a volume that is there and one that is made"):
        cluster.add_pod_with("mixed", 100, (Want("local", 1), Want("plain", 1)))
        await stage.bound("mixed")


async def _stranded(stage: _Stage) -> None:
    cluster = stage.cluster
    with stage.steps("one of two claims loses its node, and the volume of the other cannot leave"):
        cluster.fail_provisioning(1, keeps_trying=False)
        cluster.add_pod_with("stranded", 100, (FAST, FAST))
        await stage.until(lambda: cluster.provisioner.failures, "did not fail")
        cluster.cordon_node(0, is_cordoned=True)
        await stage.seconds(10)
    cluster.cordon_node(0, is_cordoned=False)
    await stage.bound("stranded")
    stage.delete("stranded")
    await stage.seconds(150)


async def _untranslated(stage: _Stage) -> None:
    cluster = stage.cluster
    migrated = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"}
    cluster.server.patch("csinodes", "n1", {"metadata": {"annotations": migrated}})
    disk = a_pv("disk", "1Gi", "now").source(awsElasticBlockStore={"volumeID": "aws://z/bad"})
    cluster.server.create(VOLUMES, disk.where(ZONE, "a").obj())
    cluster.server.create(CLAIMS, a_claim("disk", "1Gi", "now").obj())
    await stage.until(lambda: cluster.server.get(CLAIMS, "disk")["status"].get("phase") == "Bound", "not bound")
    with stage.steps("a volume has a handle that its CSI driver does not have"):
        cluster.server.create("pods", pod("disk").cpu("100m").pvc("disk").obj())
        await stage.until(lambda: any(name == "disk" for name, _ in cluster.refusals), "not refused")


async def _drift(stage: _Stage) -> None:
    with stage.steps("a pool is charged more than is in flight"):
        next(iter(stage.cluster.running().scheduler.cluster.volumes.capacities)).in_flight += 17


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
STORIES: Final = ((scenario, ROWS),)
