"""One kind of trouble at a time for pods with volumes, and exactly what it leads to. Seconds are the world's, a hundred and more to one of ours."""

from __future__ import annotations

from typing import Final

import pytest

from scheduler.config.args import KubestowArgs
from scheduler.plugins.volumebinding import slowness
from scheduler.testing.apiserver import Fault
from tests.integration.daemon import until
from tests.integration.judging import Object
from tests.integration.mortal import HASTE
from tests.integration.volumejudging import is_bound
from tests.integration.volumesteps import (
    CLAIMS,
    FAST,
    THREE,
    VOLUMES,
    answers,
    bound,
    claim,
    is_selected,
    node_of,
    published,
    refused,
    second_volume,
    selected,
    waiting_for_its_volume,
    well,
    with_local_volumes,
)
from tests.integration.volumeworld import TRACKED, VolumeWorld, Want, with_volumes


async def labelled_under_way(world: VolumeWorld) -> str:
    """The second of three volumes is written by somebody else while our write is on its way. The node that was chosen."""
    slow = second_volume(world, delay_s=5)
    with_local_volumes(world)
    world.add_pod_with("p", 100, THREE)
    await until(lambda: any(each.hits for each in slow), lambda: "no write")
    name = next(each.name for each in slow if each.hits)
    world.server.patch(VOLUMES, name, {"metadata": {"labels": {"somebody": "else"}}})
    return "n1" if name == "v002" else "n2"


# -- writes that fail ---------------------------------------------------------------------------------------------------


async def test_a_label_in_between_costs_nothing() -> None:
    """B-2: the volume is looked at again and written after all; the pod is bound on the same node in its first attempt."""
    async with with_volumes() as world:
        node_name = await labelled_under_way(world)
        await bound(world, "p")

        assert (node_of(world, "p"), world.refusals) == (node_name, [])
        assert answers(world, "patch persistentvolumes") == {"200": 3, "409": 1}
        await well(world)


async def test_a_label_in_between_as_kube_scheduler_takes_it() -> None:
    """`parity: true`: the attempt fails with the server's words and is backed off; what is written nails the pod there."""
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
    """The pod is bound where the first is written, in its first attempt: nobody is told of anything."""
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


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS.keys())
async def test_the_selected_node_is_hard_to_write(harm: Object) -> None:
    """The same for a claim."""
    async with with_volumes() as world:
        fault = world.server.faults.add(Fault(verb="patch", resource=CLAIMS, **harm))
        world.add_node("n1", 4000, "a")
        world.add_pod_with("p", 100, (FAST,))
        await bound(world, "p")

        assert (fault.hits, world.refusals) == (harm.get("times", 1), [])
        await well(world)
        assert (world.provisioner.provisioned, world.provisioner.failures) == (1, 0)


async def test_a_write_that_may_not_be_made() -> None:
    """403: the attempt fails and says so, its volumes are free again, and it follows by itself once it is allowed."""
    async with with_volumes() as world:
        world.forbid([("patch", VOLUMES)])
        with_local_volumes(world)
        world.add_pod_with("p", 100, THREE)
        await refused(world, "p", 'persistentvolumes "v00')
        assert not any(v["spec"].get("claimRef") for v in world.server.objects(VOLUMES))
        world.allow_all()
        await bound(world, "p")
        await well(world)


async def test_others_take_the_volume_first() -> None:
    """Nothing is forced: the attempt fails, and the pod gets another volume."""
    async with with_volumes() as world:
        slow = world.server.faults.add(Fault(verb="patch", resource=VOLUMES, delay_s=5))
        world.add_node("n1", 4000, "a")
        for _ in range(2):
            world.add_volume("local", 1, "n1")
        world.add_claim("theirs", "local", 1)
        world.add_pod_with("p", 100, (Want("local", 1),))
        await until(lambda: slow.hits == 1, lambda: "no write")
        (taken,) = assumed(world)
        reference = {"namespace": "default", "name": "theirs", "uid": claim(world, "theirs")["metadata"]["uid"]}
        world.server.patch(VOLUMES, taken, {"spec": {"claimRef": reference}})
        await bound(world, "p")

        assert claim(world, "p-0")["spec"]["volumeName"] == {"v001": "v002", "v002": "v001"}[taken]
        assert [who for who, _ in world.refusals] == ["p"]
        await well(world)
        assert claim(world, "theirs")["spec"]["volumeName"] == taken


def assumed(world: VolumeWorld) -> tuple[str, ...]:
    """Volumes that a plan holds."""
    assert world.daemon is not None
    return world.daemon.decisions.cluster.volumes.volumes.assumed_keys()


# -- nodes, claims and volumes that come and go during the wait ---------------------------------------------------------


async def test_the_selected_node_goes_for_good() -> None:
    """B-6b: the wait ends at once, the selected node is taken back although the provisioner is away, another one is chosen."""
    async with with_volumes() as world:
        chosen = await waiting_for_its_volume(world, "n2")
        world.server.delete("nodes", chosen)
        await refused(world, "p", f'failed to get node "{chosen}": node "{chosen}" not found')
        await is_selected(world, "p-0", {"n1": "n2", "n2": "n1"}[chosen])
        world.revive_provisioner()
        await bound(world, "p")
        await well(world)


async def test_the_selected_node_comes_back() -> None:
    """A node that is replaced under its own name keeps the claim: the pod goes there in the end."""
    async with with_volumes() as world:
        chosen = await waiting_for_its_volume(world)
        world.server.delete("nodes", chosen)
        await refused(world, "p", "failed to get node")
        world.add_node(chosen, 4000, "a")
        world.revive_provisioner()
        await bound(world, "p")

        assert node_of(world, "p") == chosen
        await well(world)


async def test_the_claim_goes_during_the_wait() -> None:
    """The wait ends at once and says why; a claim of the same name is a new one, and the pod gets it."""
    async with with_volumes() as world:
        await waiting_for_its_volume(world)
        world.delete_claim(0)
        await refused(world, "p", 'persistentvolumeclaims "default/p-0" not found')
        world.revive_provisioner()
        world.add_claim("p-0", "fast", 2)
        await bound(world, "p")
        await well(world)


async def test_the_pod_goes_during_the_wait() -> None:
    """Nothing of it stays behind; the claim may get its volume all the same, for whoever comes next."""
    async with with_volumes() as world:
        await waiting_for_its_volume(world)
        world.delete("p", at_once=True)
        await world.seconds(2)
        world.add_pod_with("p", 100, (FAST,))
        await well(world)

        assert node_of(world, "p") == "n1"
        assert (world.provisioner.provisioned, world.provisioner.failures) == (1, 0)


async def test_a_volume_that_is_not_for_the_claim_any_more() -> None:
    """Somebody parts them before the PV controller has seen it: the attempt fails, the next one matches afresh."""
    async with with_volumes() as world:
        world.controller.loses = 1
        world.add_node("n1", 4000, "a")
        world.add_volume("local", 1, "n1")
        world.add_pod_with("p", 100, (Want("local", 1),))
        await until(lambda: world.controller.lost == 1, lambda: "nothing was lost")
        world.unbind(0)
        await refused(world, "p", 'ClaimRef got reset for pv "v001"')
        await bound(world, "p")
        await well(world)


# -- controllers that fail ----------------------------------------------------------------------------------------------


async def test_the_pv_controller_loses_a_binding() -> None:
    """The pod waits until it looks again, and is told of nothing."""
    async with with_volumes() as world:
        world.controller.loses = 1
        world.add_node("n1", 4000, "a")
        world.add_volume("local", 1, "n1")
        world.add_pod_with("p", 100, (Want("local", 1),))
        await until(lambda: world.controller.lost == 1, lambda: "nothing was lost")
        assert node_of(world, "p") == ""
        world.resync()
        await bound(world, "p")

        assert world.refusals == []
        await well(world)


@pytest.mark.parametrize("in_a_call", [pytest.param(False, id="between calls"), pytest.param(True, id="in a call")])
async def test_the_provisioner_dies(in_a_call: bool) -> None:
    """The pod waits until it is back, and is told of nothing."""
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


async def test_provisioning_fails_once_and_gives_the_claim_back() -> None:
    """The attempt fails with the reason, a node is chosen anew, and the pod is bound."""
    async with with_volumes() as world:
        world.fail_provisioning(1, keeps_trying=False)
        world.add_node("n1", 4000, "a")
        world.add_pod_with("p", 100, (FAST,))
        await refused(world, "p", 'provisioning failed for PVC "p-0"')
        await bound(world, "p")

        assert (world.provisioner.failures, world.provisioner.rescheduled, world.provisioner.provisioned) == (1, 1, 1)
        await well(world)


async def test_provisioning_fails_twice_and_keeps_the_claim() -> None:
    """The pod waits for the third try, and is told of nothing."""
    async with with_volumes() as world:
        world.fail_provisioning(2, keeps_trying=True)
        world.add_node("n1", 4000, "a")
        world.add_pod_with("p", 100, (FAST,))
        await bound(world, "p")

        assert (world.provisioner.failures, world.provisioner.rescheduled, world.refusals) == (2, 0, [])
        await well(world)


@pytest.mark.parametrize("may_read", [pytest.param(True, id="quoted"), pytest.param(False, id="forbidden")])
async def test_what_the_provisioner_said_is_told_with_a_long_wait(
    may_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-21 With its words where they may be read, without them where not; and the pod is bound as ever."""
    monkeypatch.setattr(slowness, "ASKING_S", 60.0 * HASTE)  # a minute of ours: this is no test of the time-out
    async with with_volumes() as world:
        if not may_read:
            world.server.forbidden.add(("list", "events"))
        world.fail_provisioning(5, keeps_trying=True)
        world.add_node("n1", 4000, "a")
        world.add_pod_with("p", 100, (FAST,))
        await until(lambda: "WaitForVolumeBinding" in told(world, "p"), lambda: "never told")

        note = told(world, "p")["WaitForVolumeBinding"]
        waits = f'volumes are not bound after 30 s: claim "p-0" waits for {TRACKED} to provision it for node "n1"'
        said = 'failed to provision volume with StorageClass "fast": rpc error: code = ResourceExhausted desc = told to'
        assert note.startswith(f"{waits} (last event: ProvisioningFailed at " if may_read else waits)
        assert note.endswith(f"Z: {said})" if may_read else waits)
        world.server.forbidden.clear()
        await bound(world, "p")
        await well(world)


def told(world: VolumeWorld, name: str) -> dict[str, str]:
    """What the pod was told first for each reason."""
    events = [each for each in world.server.list("events") if each["regarding"]["name"] == name]
    return {each["reason"]: each["note"] for each in reversed(events)}


async def test_a_wait_that_takes_too_long() -> None:
    """The attempt ends with upstream's words; the claim stays selected, so that the pod goes there in the end."""
    async with with_volumes() as world:
        chosen = await waiting_for_its_volume(world, "n2")
        await refused(world, "p", 'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded')
        assert selected(world, "p-0") == chosen
        world.revive_provisioner()
        await bound(world, "p")

        assert node_of(world, "p") == chosen
        await well(world)


# -- room ---------------------------------------------------------------------------------------------------------------


async def burst(world: VolumeWorld) -> None:
    """Four pods of two volumes, which fill both racks to the last; all of them like `n1` better. Nothing is published meanwhile."""
    world.add_node("n1", 64_000, "a")
    world.add_node("n2", 400, "a")
    for n in range(12):
        world.raise_limit(n)
    await published(world)
    world.add_set("b", 4, (FAST, FAST))


async def test_a_burst_on_old_capacity_fails_nowhere() -> None:
    """B-1: what is in flight is taken off, so that two pods go to each node."""
    async with with_volumes(publishes_every_s=100_000) as world:
        await burst(world)
        await bound(world, *(f"b{i}" for i in range(4)))

        assert (world.provisioner.provisioned, world.provisioner.failures) == (8, 0)
        assert sorted(node_of(world, f"b{i}") for i in range(4)) == ["n1", "n1", "n2", "n2"]


async def test_a_burst_on_old_capacity_as_kube_scheduler_takes_it() -> None:
    """`parity: true`: capacity is believed, all of them go to one node, and three volumes of eight cannot be made there."""
    async with with_volumes(publishes_every_s=100_000, ours=KubestowArgs(parity=True)) as world:
        await burst(world)
        await until(lambda: world.provisioner.failures >= 3, lambda: "nothing failed")

        assert {selected(world, name) for name in ("b0-0", "b1-0", "b2-0", "b3-0")} <= {"n1", ""}


async def test_the_room_of_a_half_provisioned_pod_is_kept() -> None:
    """B-1: its second claim lost the node where the first is; whoever comes then does not take that room away."""
    async with with_volumes() as world:
        world.add_node("n2", 4000, "a")
        world.provisioner.fault = lambda call: "told to" if call.number == 2 else ""
        world.add_pod_with("first", 100, (Want("fast", 4), Want("fast", 4)))
        await until(lambda: world.provisioner.failures == 1, lambda: "nothing failed")
        world.add_pod_with("second", 100, (Want("fast", 3),))
        await bound(world, "first")
        await refused(world, "second", "1 node(s) did not have enough free storage")

        assert world.provisioner.failures == 1
        await well(world)


async def test_capacity_that_is_published_anew_wakes_who_waits() -> None:
    """Its object was deleted: nobody knows of any room, so nobody is placed until there is one again."""
    async with with_volumes() as world:
        world.add_node("n1", 4000, "a")
        await published(world)
        world.provisioner.die()
        for _ in range(2):
            world.drop_capacity(0)
        world.add_pod_with("p", 100, (FAST,))
        await refused(world, "p", "1 node(s) did not have enough free storage")
        world.revive_provisioner()
        await bound(world, "p")
        await well(world)


# -- pods beside each other -------------------------------------------------------------------------------------------------


async def test_pods_that_share_a_claim() -> None:
    """B-15: one of them writes, whoever meets its write waits for the same volume; all are bound there in their first attempt."""
    async with with_volumes() as world:
        for name in ("n1", "n2"):
            world.add_node(name, 4000, "a")
        world.add_set("s", 5, (Want("fast", 2, "shared"),))
        await bound(world, *(f"s{i}" for i in range(5)))

        assert (answers(world, "patch persistentvolumeclaims"), world.refusals) == ({"200": 1}, [])
        assert len({node_of(world, f"s{i}") for i in range(5)}) == 1
        await well(world)


async def test_a_pod_that_waits_for_its_volume_gives_way() -> None:
    """Preempted before it is bound: it is not deleted, keeps its claim, and comes back when there is room again."""
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
    """The second look before Bind refuses: nothing is over-committed, and the pod follows once there is room."""
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
    """A pod fails to write it, and its claim was deleted meanwhile: whoever waited for the volume is woken and gets it."""
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
