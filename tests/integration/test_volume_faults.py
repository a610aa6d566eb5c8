"""One kind of fault at a time for pods with volumes, and its exact result. Seconds are virtual."""

from __future__ import annotations

from typing import Final

import pytest

from scheduler.config.args import KubestowArgs
from simulator.apiserver import Fault
from tests.integration.daemon import until
from tests.integration.judging import Object
from tests.integration.volumejudging import is_bound
from tests.integration.volumesteps import (
    CLAIMS,
    FAST,
    THREE,
    VOLUMES,
    bound,
    claim,
    is_selected,
    node_of,
    published,
    refused,
    second_volume,
    selected,
    well,
    with_local_volumes,
)
from tests.integration.volumeworld import VolumeWorld, Want, with_volumes


async def labelled_under_way(world: VolumeWorld) -> str:
    """Label the second of three volumes while our write is on its way; return the chosen node."""
    slow = second_volume(world, delay_s=5)
    with_local_volumes(world)
    world.add_pod_with("p", 100, THREE)
    await until(lambda: any(each.hits for each in slow), lambda: "no write")
    name = next(each.name for each in slow if each.hits)
    world.server.patch(VOLUMES, name, {"metadata": {"labels": {"written": "meantime"}}})
    return "n1" if name == "v002" else "n2"


# -- writes that fail ---------------------------------------------------------------------------------------------------


async def test_a_label_in_between_as_kube_scheduler_takes_it() -> None:
    """`parity: true`: the attempt fails with the server's text, and the written volumes keep the pod on its node."""
    async with with_volumes(ours=KubestowArgs(parity=True)) as world:
        node_name = await labelled_under_way(world)
        await bound(world, "p")

        name = "v002" if node_name == "n1" else "v005"
        told = 'running PreBind plugin "VolumeBinding": Operation cannot be fulfilled on '
        (why,) = [why for _, why in world.refusals]
        assert why.startswith(f'{told}persistentvolumes "{name}"'), why
        assert node_of(world, "p") == node_name
        await well(world)


HARMS: Final[dict[str, Object]] = {
    "429 with Retry-After": {"status": 429, "retry_after_s": 2},
    "503": {"status": 503},
    "500": {"status": 500},
    "504, carried out or not": {"status": 504},
    "409 three times": {"status": 409, "times": 3},
    "the connection is cut before it was carried out": {"reset": "before"},
    "the connection is cut after it was carried out": {"reset": "after"},
    "an answer that is slow, and lost": {"reset": "after", "delay_s": 5},
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS.keys())
async def test_the_second_of_three_volumes_is_hard_to_write(harm: Object) -> None:
    async with with_volumes() as world:
        faults = second_volume(world, **harm)
        with_local_volumes(world)
        world.add_pod_with("p", 100, THREE)
        await bound(world, "p")

        assert (sum(each.hits for each in faults), world.refusals) == (harm.get("times", 1), [])
        await well(world)
        assert (
            len({v["spec"]["claimRef"]["name"] for v in world.server.objects(VOLUMES) if v["spec"].get("claimRef")})
            == 3
        )
        assert sum(bool(v["spec"].get("claimRef")) for v in world.server.objects(VOLUMES)) == 3


# -- controllers that fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_a_call", [pytest.param(False, id="between calls"), pytest.param(True, id="in a call")])
async def test_the_provisioner_dies(in_a_call: bool) -> None:
    async with with_volumes() as world:
        world.add_node("n1", 4000, "a")
        await published(world)
        world.kill_provisioner(in_a_call)
        world.add_pod_with("p", 100, (FAST,))
        await is_selected(world, "p-0")
        await until(lambda: world.provisioner.is_dead, lambda: "it lives")
        world.revive_provisioner()
        await bound(world, "p")

        assert world.refusals == []
        await well(world)


# -- capacity --------------------------------------------------------------------------------------------------------------


async def burst(world: VolumeWorld) -> None:
    """Create four pods with two volumes each, which fill both racks; all prefer `n1`. Capacity is not published again."""
    world.add_node("n1", 64_000, "a")
    world.add_node("n2", 400, "a")
    for n in range(12):
        world.raise_limit(n)
    await published(world)
    world.add_set("b", 4, (FAST, FAST))


async def test_a_burst_on_old_capacity_fails_nowhere() -> None:
    """B-1: capacity in flight is subtracted, so two pods go to each node."""
    async with with_volumes(publishes_every_s=100_000) as world:
        await burst(world)
        await bound(world, *(f"b{i}" for i in range(4)))

        assert (world.provisioner.provisioned, world.provisioner.failures) == (8, 0)
        assert sorted(node_of(world, f"b{i}") for i in range(4)) == ["n1", "n1", "n2", "n2"]


# -- several pods ------------------------------------------------------------------------------------------------


async def test_a_pod_that_waits_for_its_volume_gives_way() -> None:
    async with with_volumes() as world:
        world.add_node("n1", 1000, "a")
        await published(world)
        world.kill_provisioner(in_a_call=False)
        world.add_pod_with("low", 600, (FAST,))
        await is_selected(world, "low-0")
        world.add_pod("high", 600, class_name="high")
        await bound(world, "high")
        assert (node_of(world, "low"), selected(world, "low-0"), world.witness.preempted) == ("", "n1", {})
        world.revive_provisioner()
        world.delete("high", at_once=True)
        await bound(world, "low")
        await well(world)


async def test_the_node_is_taken_while_the_volume_is_made() -> None:
    async with with_volumes() as world:
        world.add_node("n1", 1000, "a")
        await published(world)
        world.kill_provisioner(in_a_call=False)
        world.add_pod_with("p", 600, (FAST,))
        await is_selected(world, "p-0")
        world.add_foreign_pod("f", 600)
        world.server.bind("f", "n1")
        await world.seconds(1)
        world.revive_provisioner()
        await refused(world, "p", "1 Insufficient cpu")
        assert is_bound(claim(world, "p-0"))
        assert node_of(world, "p") == ""
        world.delete("f", at_once=True)
        await bound(world, "p")
        await well(world)


async def test_a_volume_that_is_given_back_by_a_claim_that_is_gone() -> None:
    async with with_volumes() as world:
        refuses = world.server.faults.add(Fault(verb="patch", resource=VOLUMES, delay_s=8, status=403))
        world.add_node("n1", 4000, "a")
        world.add_volume("local", 1, "n1")
        world.add_pod_with("first", 100, (Want("local", 1),))
        await until(lambda: refuses.hits == 1, lambda: "no write")
        world.add_pod_with("second", 100, (Want("local", 1),))
        await refused(world, "second", "didn't find available persistent volumes to bind")
        world.server.delete(CLAIMS, "first-0")
        await bound(world, "second")
        await well(world)
