"""The claim controller, whose cache lags, creates a second claim for a pod and names it, while the first gets its devices."""

from __future__ import annotations

from typing import Any, Final

import pytest

from simulator.apiserver import Fault
from simulator.builders.claims import a_claim
from tests.integration.daemon import until
from tests.integration.device_laws import results_of
from tests.integration.device_steps import SLOW
from tests.integration.harness import Harness, running_cluster

CLAIMS: Final = "resourceclaims"
ALLOCATE: Final[dict[str, Any]] = {"verb": "patch", "resource": CLAIMS, "subresource": "status"}


def name_another(cluster: Harness, pod: str, class_name: str) -> None:
    """Create a claim and then name it in the pod's status, as the controller does."""
    uid = cluster.server.get("pods", pod)["metadata"]["uid"]
    cluster.server.create(CLAIMS, a_claim("second").owned_by(pod, uid).request("r", class_name).obj())
    status = {"status": {"resourceClaimStatuses": [{"name": "e0", "resourceClaimName": "second"}]}}
    cluster.server.patch("pods", pod, status, subresource="status")


def users(cluster: Harness) -> dict[str, list[str]]:
    return {
        obj["metadata"]["name"]: [user["name"] for user in obj["status"].get("reservedFor") or ()]
        for obj in cluster.server.objects(CLAIMS)
        if results_of(obj)
    }


async def runs_with_the_second(cluster: Harness) -> None:
    await until(lambda: bool(cluster.server.get("pods", "p")["spec"].get("nodeName")), lambda: f"{users(cluster)}")
    assert users(cluster).get("second") == ["p"]
    await cluster.settle()
    assert (users(cluster), cluster.broken_laws()) == ({"second": ["p"]}, [])


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
        await until(lambda: ["p"] in users(cluster).values(), lambda: f"{users(cluster)}")
        await cluster.seconds(3)
        name_another(cluster, "p", "slow")
        cluster.drivers[SLOW].revive()

        await runs_with_the_second(cluster)


async def test_the_daemon_does_not_hear_of_it_in_time() -> None:
    async with running_cluster(devices=True) as cluster:
        cluster.add_node("n1", 4000, "a")
        cluster.add_pod_with("p", 100, devices=("gpu-1",))
        await until(lambda: bool(cluster.server.get("pods", "p")["spec"].get("nodeName")), lambda: f"{users(cluster)}")
        name_another(cluster, "p", "gpu")
        await cluster.settle()

        assert [["p"]] == list(users(cluster).values())
