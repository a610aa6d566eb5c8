"""Devices under one kind of fault at a time. Seconds are virtual.

First the ways in which kube-scheduler itself allocates one device to two claims: here it is allocated once. Those with another
client are tests of the second check (tests/unit/plugins/dra/test_shared_beside.py)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import pytest

from scheduler.api.storage_v1 import NO_PROVISIONER
from simulator.apiserver import Fault
from simulator.builders.claims import a_claim
from simulator.builders.core import pod
from tests.integration.daemon import until
from tests.integration.daemon_laws import Object
from tests.integration.device_laws import results_of
from tests.integration.device_steps import DEVICE_CLAIMS as CLAIMS, SLOW
from tests.integration.harness import Harness, running_cluster
from tests.support.volumebuilders import HOSTNAME, a_claim as a_volume_claim, a_class, a_pv

ALLOCATE: Final[dict[str, Any]] = {"resource": CLAIMS, "subresource": "status"}
_GATE: Final = "example.com/wait"


@contextlib.asynccontextmanager
async def stage() -> AsyncIterator[Harness]:
    """Yield one node with one GPU, and a gated pod `q` of high priority with a claim for it."""
    async with running_cluster(devices=True) as made:
        made.add_node("n1", 4000, "a")
        made.publish("n1", 1)
        made.add_pod_with("earlier", 100, devices=("gpu-1",))  # for the template
        made.delete("earlier", at_once=True)
        entry = {"name": "e0", "resourceClaimTemplateName": "gpu-1"}
        gated = pod("q").cpu("100m").priority_class("meek").gate(_GATE).set({"spec": {"resourceClaims": [entry]}})
        made.server.create("pods", gated.obj())
        await made.settle()
        yield made


def holders(cluster: Harness) -> list[str]:
    claims = (obj["metadata"] for obj in cluster.server.objects(CLAIMS) if results_of(obj))
    return sorted(each.get("ownerReferences", (each,))[0]["name"] for each in claims)


async def let_q_try(cluster: Harness) -> None:
    """Remove the gate of `q` while the daemon receives no events about claims."""
    cluster.server.patch("pods", "q", {"spec": {"schedulingGates": None}})
    await until(lambda: _is_refused(cluster, "q"), lambda: "q was never tried")


def _is_refused(cluster: Harness, name: str) -> bool:
    conditions = cluster.server.get("pods", name)["status"].get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each.get("reason") in {None, "Unschedulable"} for each in conditions)


async def ends_well(cluster: Harness) -> None:
    """Check that `p` alone has the GPU, and that `q` gets it after `p` is deleted."""
    await cluster.seconds(10)
    assert (holders(cluster), cluster.node_of("q")) == (["p"], "")
    cluster.release_watches()
    await until(lambda: cluster.node_of("p") == "n1", lambda: "p was never bound")
    await cluster.settle()
    assert (holders(cluster), cluster.node_of("q"), cluster.broken_laws()) == (["p"], "", [])
    cluster.delete("p", at_once=True)
    await until(lambda: cluster.node_of("q") == "n1", lambda: "q was never bound")
    await cluster.settle()
    assert (holders(cluster), cluster.broken_laws()) == (["q"], [])


async def test_the_write_is_committed_and_its_answer_is_lost() -> None:
    """kube-scheduler counts the device as free until its watch shows the claim. Here it is in use until the claim was read."""
    async with stage() as cluster:
        lost = cluster.server.faults.add(Fault(**ALLOCATE, delay_s=3, reset="after"))
        cluster.server.faults.add(Fault(verb="get", resource=CLAIMS, status=500, times=4))
        cluster.add_pod_with("p", 100, devices=("gpu-1",))
        await until(lambda: lost.hits > 0, lambda: "no write")
        cluster.hold_watches(CLAIMS)
        await until(lambda: holders(cluster) == ["p"], lambda: "not committed")

        await let_q_try(cluster)

        await ends_well(cluster)


async def test_the_pod_fails_at_its_volumes_while_the_write_is_on_its_way() -> None:
    """kube-scheduler cancels the write and allocates the device again, though the server commits it."""
    async with stage() as cluster:
        cluster.server.create("storageclasses", a_class("local", NO_PROVISIONER).obj())
        cluster.server.create("persistentvolumes", a_pv("v", "1Gi", "local").where(HOSTNAME, "n1").obj())
        cluster.server.create("persistentvolumeclaims", a_volume_claim("data", "1Gi", "local").obj())
        refused = cluster.server.faults.add(Fault(verb="patch", resource="persistentvolumes", status=403))
        slow = cluster.server.faults.add(Fault(**ALLOCATE, delay_s=100))
        entry = {"name": "e0", "resourceClaimTemplateName": "gpu-1"}
        with_both = pod("p").cpu("100m").pvc("data").set({"spec": {"resourceClaims": [entry]}})
        cluster.server.create("pods", with_both.obj())
        await until(lambda: refused.hits > 0 and slow.hits > 0, lambda: "not both under way")
        cluster.hold_watches(CLAIMS)

        await let_q_try(cluster)
        await until(lambda: holders(cluster) == ["p"], lambda: "not committed")

        await ends_well(cluster)


# -- a daemon dies while pods that share a claim wait for its devices: its reservations do not block these pods --------------


SHARED_CLAIM = "shared-slow-1"


def shared_claim(cluster: Harness) -> Object:
    return cluster.server.get(CLAIMS, SHARED_CLAIM)


def users(cluster: Harness) -> list[str]:
    return sorted(user["name"] for user in (shared_claim(cluster).get("status") or {}).get("reservedFor") or ())


def nodes_of(cluster: Harness, names: Sequence[str]) -> list[str]:
    return [cluster.node_of(name) for name in names]


def has_failed(cluster: Harness) -> bool:
    devices = (shared_claim(cluster).get("status") or {}).get("devices") or ()
    return any(each["type"] == "failed" for device in devices for each in device.get("conditions") or ())


async def waiting(cluster: Harness, names: Sequence[str], *, milli_cpu: int = 100) -> None:
    """Reserve the claim for these pods while its device is not ready. The last pod requests `milli_cpu`."""
    cluster.drivers[SLOW].die()
    for name in names:
        cluster.add_pod_with(name, milli_cpu if name == names[-1] else 100, devices=("slow-1+",))
    await until(lambda: users(cluster) == sorted(names), lambda: f"reserved for {users(cluster)}")


async def broken_without_a_daemon(cluster: Harness) -> None:
    """Let the device fail while no daemon runs, and start one."""
    cluster.answer("it is broken", 1)
    cluster.drivers[SLOW].revive()
    await until(lambda: has_failed(cluster), lambda: f"no word: {shared_claim(cluster)}")
    await cluster.start_daemon()


@pytest.mark.parametrize("names", [("p",), ("p", "q"), ("p", "q", "r")], ids=lambda names: f"{len(names)} pods")
async def test_the_device_fails_while_no_daemon_runs(names: Sequence[str]) -> None:
    async with running_cluster(devices=True) as cluster:
        cluster.add_node("n1", 4000, "a")
        await waiting(cluster, names)
        await cluster.kill_daemon()
        await broken_without_a_daemon(cluster)

        await until(lambda: all(nodes_of(cluster, names)), lambda: f"{names} are on {nodes_of(cluster, names)}")

        await cluster.settle()
        assert (users(cluster), cluster.broken_laws()) == (sorted(names), [])


async def test_the_node_of_the_device_is_gone_when_the_next_daemon_comes() -> None:
    async with running_cluster(devices=True) as cluster:
        cluster.add_node("n1", 4000, "a")
        await waiting(cluster, ("p", "q"))
        await cluster.kill_daemon()
        cluster.add_node("n2", 4000, "a")
        cluster.server.delete("nodes", "n1")
        cluster.drivers[SLOW].revive()
        await cluster.start_daemon()

        await until(lambda: nodes_of(cluster, ("p", "q")) == ["n2", "n2"], lambda: f"{nodes_of(cluster, ('p', 'q'))}")

        await cluster.settle()
        assert (users(cluster), len(results_of(shared_claim(cluster))), cluster.broken_laws()) == (["p", "q"], 1, [])


async def test_one_of_them_cannot_run_for_another_reason() -> None:
    async with running_cluster(devices=True) as cluster:
        cluster.add_node("n1", 4000, "a")
        await waiting(cluster, ("p", "q"), milli_cpu=2000)
        await cluster.kill_daemon()
        cluster.server.patch("nodes", "n1", {"status": {"allocatable": {"cpu": "1000m"}}}, subresource="status")
        await broken_without_a_daemon(cluster)

        await until(lambda: bool(nodes_of(cluster, ("p",))[0]), lambda: f"{users(cluster)}")

        await cluster.settle()
        assert (users(cluster), nodes_of(cluster, ("q",)), cluster.broken_laws()) == (["p"], [""], [])


async def test_a_daemon_that_stops_leaves_nothing_reserved() -> None:
    async with running_cluster(devices=True) as cluster:
        cluster.add_node("n1", 4000, "a")
        await waiting(cluster, ("p",))
        slow = cluster.server.faults.add(Fault(resource=CLAIMS, delay_s=1.0, times=None))
        await cluster.stop_daemon()

        assert slow.hits
        assert users(cluster) == []


# -- the claim controller, whose cache lags, names a second claim for a pod, while the first gets its devices -----------------


def name_another(cluster: Harness, pod_name: str, class_name: str) -> None:
    """Create a claim and then name it in the pod's status, as the controller does."""
    uid = cluster.server.get("pods", pod_name)["metadata"]["uid"]
    cluster.server.create(CLAIMS, a_claim("second").owned_by(pod_name, uid).request("r", class_name).obj())
    status = {"status": {"resourceClaimStatuses": [{"name": "e0", "resourceClaimName": "second"}]}}
    cluster.server.patch("pods", pod_name, status, subresource="status")


def users_of_each(cluster: Harness) -> dict[str, list[str]]:
    return {
        obj["metadata"]["name"]: [user["name"] for user in obj["status"].get("reservedFor") or ()]
        for obj in cluster.server.objects(CLAIMS)
        if results_of(obj)
    }


async def runs_with_the_second(cluster: Harness) -> None:
    await until(lambda: bool(cluster.node_of("p")), lambda: f"{users_of_each(cluster)}")
    assert users_of_each(cluster).get("second") == ["p"]
    await cluster.settle()
    assert (users_of_each(cluster), cluster.broken_laws()) == ({"second": ["p"]}, [])


@pytest.mark.parametrize("gpus", [1, 2])
async def test_it_is_named_while_the_first_is_allocated(gpus: int) -> None:
    async with running_cluster(devices=True) as cluster:
        cluster.add_node("n1", 4000, "a")
        cluster.publish("n1", gpus)
        slow = cluster.server.faults.add(Fault(**ALLOCATE, delay_s=30))
        cluster.add_pod_with("p", 100, devices=("gpu-1",))
        await until(lambda: slow.hits > 0, lambda: "not under way")
        name_another(cluster, "p", "gpu")

        await runs_with_the_second(cluster)


async def test_it_is_named_while_the_devices_of_the_first_get_ready() -> None:
    async with running_cluster(devices=True) as cluster:
        cluster.add_node("n1", 4000, "a")
        cluster.drivers[SLOW].die()
        cluster.add_pod_with("p", 100, devices=("slow-1",))
        await until(lambda: ["p"] in users_of_each(cluster).values(), lambda: f"{users_of_each(cluster)}")
        await cluster.seconds(3)
        name_another(cluster, "p", "slow")
        cluster.drivers[SLOW].revive()

        await runs_with_the_second(cluster)


async def test_the_daemon_does_not_hear_of_it_in_time() -> None:
    async with running_cluster(devices=True) as cluster:
        cluster.add_node("n1", 4000, "a")
        cluster.add_pod_with("p", 100, devices=("gpu-1",))
        await until(lambda: bool(cluster.node_of("p")), lambda: f"{users_of_each(cluster)}")
        name_another(cluster, "p", "gpu")
        await cluster.settle()

        assert [["p"]] == list(users_of_each(cluster).values())
