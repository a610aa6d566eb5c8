"""Ways in which kube-scheduler allocates one device to two claims, one at a time: here it is allocated once. Seconds are virtual."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from scheduler.api.resource_v1 import FINALIZER
from scheduler.api.storage_v1 import NO_PROVISIONER
from simulator.apiserver import Fault
from simulator.builders.claims import a_claim, a_result
from simulator.builders.core import pod
from simulator.builders.devices import on_node
from tests.integration.daemon import until
from tests.integration.devicejudging import results_of
from tests.integration.deviceworld import DeviceWorld, with_devices
from tests.integration.judging import Object
from tests.integration.nodedevices import GPU, MEMORY, PART
from tests.support.deviceinvariants import capacity_overdrawn, counters_overdrawn
from tests.support.volumebuilders import HOSTNAME, a_claim as a_volume_claim, a_class, a_pv

CLAIMS: Final = "resourceclaims"
ALLOCATE: Final[dict[str, Any]] = {"verb": "patch", "resource": CLAIMS, "subresource": "status"}
_GATE: Final = "example.com/wait"
_THE_GPU: Final = a_result("r", f"{GPU}/n1/g0")
_SHARE: Final = "0b5c1c9e-6d0a-4c5e-9f0e-3a4b5c6d7e8f"
_SOMEBODY: Final = {"apiGroup": "example.com", "resource": "things", "name": "t", "uid": "t"}


@contextlib.asynccontextmanager
async def stage() -> AsyncIterator[DeviceWorld]:
    """Yield one node with one GPU, and a gated pod `q` of high priority with a claim for it."""
    async with with_devices() as made:
        made.add_node("n1", 4000, "a")
        made.publish("n1", 1)
        made.add_pod_with("earlier", 100, ("gpu-1",))  # for the template
        made.delete("earlier", at_once=True)
        entry = {"name": "e0", "resourceClaimTemplateName": "gpu-1"}
        gated = pod("q").cpu("100m").priority_class("meek").gate(_GATE).set({"spec": {"resourceClaims": [entry]}})
        made.server.create("pods", gated.obj())
        await made.settle()
        yield made


def node_of(world: DeviceWorld, name: str) -> str:
    return str(world.server.get("pods", name)["spec"].get("nodeName", ""))


def holders(world: DeviceWorld) -> list[str]:
    """Return the pods whose claims have the GPU; a claim without an owner by its own name."""
    claims = (obj["metadata"] for obj in world.server.objects(CLAIMS) if results_of(obj))
    return sorted(each.get("ownerReferences", (each,))[0]["name"] for each in claims)


async def let_q_try(world: DeviceWorld) -> None:
    """Remove the gate of `q` while the daemon receives no events about claims."""
    world.server.patch("pods", "q", {"spec": {"schedulingGates": None}})
    await until(lambda: _is_refused(world, "q"), lambda: "q was never tried")


def _is_refused(world: DeviceWorld, name: str) -> bool:
    conditions = world.server.get("pods", name)["status"].get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each.get("reason") in {None, "Unschedulable"} for each in conditions)


async def ends_well(world: DeviceWorld) -> None:
    """Check that `p` alone has the GPU, and that `q` gets it after `p` is deleted."""
    await world.seconds(10)
    assert (holders(world), node_of(world, "q")) == (["p"], "")
    world.release_watches()
    await until(lambda: node_of(world, "p") == "n1", lambda: "p was never bound")
    await world.settle()
    assert (holders(world), node_of(world, "q"), world.broken_laws()) == (["p"], "", [])
    world.delete("p", at_once=True)
    await until(lambda: node_of(world, "q") == "n1", lambda: "q was never bound")
    await world.settle()
    assert (holders(world), world.broken_laws()) == (["q"], [])


async def test_the_write_is_committed_and_its_answer_is_lost() -> None:
    """kube-scheduler counts the device as free until its watch shows the claim. Here it is in use until the claim was read."""
    async with stage() as world:
        lost = world.server.faults.add(Fault(**ALLOCATE, delay_s=3, reset="after"))
        world.server.faults.add(Fault(verb="get", resource=CLAIMS, status=500, times=4))
        world.add_pod_with("p", 100, ("gpu-1",))
        await until(lambda: lost.hits > 0, lambda: "no write")
        world.hold_watches(CLAIMS)
        await until(lambda: holders(world) == ["p"], lambda: "not committed")

        await let_q_try(world)

        await ends_well(world)


async def test_the_pod_fails_at_its_volumes_while_the_write_is_on_its_way() -> None:
    """kube-scheduler cancels the write and allocates the device again, though the server commits it."""
    async with stage() as world:
        world.server.create("storageclasses", a_class("local", NO_PROVISIONER).obj())
        world.server.create("persistentvolumes", a_pv("v", "1Gi", "local").where(HOSTNAME, "n1").obj())
        world.server.create("persistentvolumeclaims", a_volume_claim("data", "1Gi", "local").obj())
        refused = world.server.faults.add(Fault(verb="patch", resource="persistentvolumes", status=403))
        slow = world.server.faults.add(Fault(**ALLOCATE, delay_s=100))
        entry = {"name": "e0", "resourceClaimTemplateName": "gpu-1"}
        with_both = pod("p").cpu("100m").pvc("data").set({"spec": {"resourceClaims": [entry]}})
        world.server.create("pods", with_both.obj())
        await until(lambda: refused.hits > 0 and slow.hits > 0, lambda: "not both under way")
        world.hold_watches(CLAIMS)

        await let_q_try(world)
        await until(lambda: holders(world) == ["p"], lambda: "not committed")

        await ends_well(world)


def allocate_as_another(world: DeviceWorld, claim: str, user: Object, result: Object = _THE_GPU) -> None:
    """Allocate a result to this claim as another client, even if the device is in use."""
    stored = world.server.get(CLAIMS, claim)
    world.others.allocated.add(stored["metadata"]["uid"])
    if FINALIZER not in stored["metadata"].get("finalizers", ()):
        world.server.patch(CLAIMS, claim, {"metadata": {"finalizers": [FINALIZER]}})
    given = {"devices": {"results": [result]}, "nodeSelector": on_node("n1")}
    status = {"allocation": given, "reservedFor": [user]}
    world.server.patch(CLAIMS, claim, {"status": status}, subresource="status")


async def test_the_daemon_dies_before_it_sees_that_another_claim_was_first() -> None:
    async with stage() as world:
        slow = world.server.faults.add(Fault(**ALLOCATE, delay_s=100))
        world.server.create(CLAIMS, a_claim("theirs").request("r", "gpu").obj())
        world.add_pod_with("p", 100, ("gpu-1",))
        await until(lambda: slow.hits > 0, lambda: "no write")
        world.hold_watches(CLAIMS)
        allocate_as_another(world, "theirs", _SOMEBODY)
        await until(lambda: holders(world) == ["p", "theirs"], lambda: "not committed")
        await world.kill_daemon()
        world.release_watches()
        await world.start_daemon()

        await until(lambda: holders(world) == ["theirs"], lambda: f"{holders(world)}, p is on {node_of(world, 'p')}")
        await world.settle()

        assert (node_of(world, "p"), world.broken_laws()) == ("", [])


async def test_the_last_write_of_a_daemon_comes_when_the_next_one_has_given_the_device_away() -> None:
    async with stage() as world:
        slow = world.server.faults.add(Fault(**ALLOCATE, reset="before", times=None))
        world.add_pod_with("p", 100, ("gpu-1",))
        await until(lambda: slow.hits > 0, lambda: "no write")
        await world.kill_daemon()
        world.server.faults.rules.remove(slow)
        pod_uid = world.server.get("pods", "p")["metadata"]["uid"]
        (claim,) = (o for o in world.server.list(CLAIMS) if o["metadata"]["ownerReferences"][0]["uid"] == pod_uid)
        refused = Fault(**ALLOCATE, name=claim["metadata"]["name"], status=403, times=None)
        world.server.faults.add(refused)  # whichever of the two is tried first
        world.server.patch("pods", "q", {"spec": {"schedulingGates": None}})
        await world.start_daemon()
        await until(lambda: node_of(world, "q") == "n1", lambda: "q was never bound")
        world.server.faults.rules.remove(refused)

        allocate_as_another(world, claim["metadata"]["name"], {"resource": "pods", "name": "p", "uid": pod_uid})

        await until(lambda: holders(world) == ["q"], lambda: f"{holders(world)}, p is on {node_of(world, 'p')}")
        await world.settle()
        assert (node_of(world, "p"), world.broken_laws()) == ("", [])


@pytest.mark.parametrize(
    ("want", "taken"),
    [
        pytest.param("memory-5", a_result("r", f"{MEMORY}/n1/m", share=_SHARE, consumed={"share": "4"}), id="a share"),
        pytest.param("part-4", a_result("r", f"{PART}/n1/p1"), id="a partition"),
    ],
)
async def test_another_client_overcommits_a_shared_device_while_the_write_is_on_its_way(
    want: str, taken: Object
) -> None:
    """kube-scheduler overcommits the device and runs the pod. Here the later claim is deallocated."""
    async with stage() as world:
        slow = world.server.faults.add(Fault(**ALLOCATE, delay_s=100))
        world.server.create(CLAIMS, a_claim("theirs").request("r", want.partition("-")[0]).obj())
        world.add_pod_with("p", 100, (want,))
        await until(lambda: slow.hits > 0, lambda: "no write")
        world.hold_watches(CLAIMS)
        allocate_as_another(world, "theirs", _SOMEBODY, taken)
        await until(lambda: holders(world) == ["p", "theirs"], lambda: "not committed")
        assert len(overdrawn(world)) == 1
        world.release_watches()

        await until(lambda: holders(world) == ["theirs"], lambda: f"{holders(world)}, p is on {node_of(world, 'p')}")
        await world.settle()

        assert (overdrawn(world), node_of(world, "p")) == ([], "")
        world.server.patch(
            CLAIMS, "theirs", {"status": {"allocation": None, "reservedFor": None}}, subresource="status"
        )
        await until(lambda: node_of(world, "p") == "n1", lambda: "p was never bound")
        await world.settle()
        assert (holders(world), overdrawn(world)) == (["p"], [])


def overdrawn(world: DeviceWorld) -> list[str]:
    return capacity_overdrawn(world.server) + counters_overdrawn(world.server)
