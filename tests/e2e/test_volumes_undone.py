"""Volumes that are late or fail: decisions that are undone (docs/spec/volumes.md §6.5, E14–E17), and faults (E18)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import pytest

from scheduler.api.storage_v1 import SELECTED_NODE
from simulator.apiserver import Fault
from simulator.apiserver.faults import Request
from tests.e2e.cluster import Json
from tests.e2e.faultproxy import ALL, VOLUMES, ProxyStage, has_no_failure_event, running, staged
from tests.e2e.provisioner import Call
from tests.e2e.sandbox import together
from tests.e2e.storage import DRIVER, GI, NO_SPACE, NODE_CONFLICT, StorageSandbox, selected_node
from tests.support.volumebuilders import a_claim, a_class, a_csi_driver, a_pv

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

PROVISIONED: Final = a_class("d", DRIVER)
TRACKED: Final = a_csi_driver(DRIVER).tracks_capacity()


async def test_e14_a_provisioner_whose_capacity_is_wrong(sandbox: StorageSandbox) -> None:
    await sandbox.make(sandbox.node("n1"), sandbox.node("n2"), PROVISIONED, TRACKED, a_claim("c", "5Gi", "d"))
    async with sandbox.provisioner(capacities={"n1": 6 * GI, "n2": 0}, publishes_every_s=0) as provisioner:
        assert provisioner.space is not None
        provisioner.space.size_bytes |= {sandbox.own("n1"): 0, sandbox.own("n2"): 6 * GI}
        await sandbox.make(sandbox.pod("p", "c"))
        await sandbox.event_note("Pod", "p", "FailedScheduling", "binding volumes: ")
        await provisioner.publish()

        assert await sandbox.bound("p") == ["n2"]
    assert {call.node for call in provisioner.taken_back} == {sandbox.own("n1")}
    assert provisioner.space.overdrawn() == []


async def test_e15_the_second_of_two_claims_fails(sandbox: StorageSandbox) -> None:
    """The first has its volume on n1, so the capacity for the second is reserved there until it is made."""
    await sandbox.make(sandbox.node("n1"), sandbox.node("n2"), PROVISIONED, TRACKED)
    await sandbox.make(*(a_claim(name, "3Gi", "d") for name in ("first", "second", "other")))
    is_repaired = asyncio.Event()

    def refuses(call: Call) -> bool:
        return call.claim == "second" and not is_repaired.is_set()

    async with sandbox.provisioner(capacities={"n1": 6 * GI}, publishes_every_s=0, refuses=refuses) as provisioner:
        await sandbox.make(sandbox.pod("p", "first", "second"))
        await sandbox.phase("PersistentVolumeClaim", "first", "Bound")

        async def given_back() -> bool:
            return bool(provisioner.taken_back)

        await sandbox.until(given_back, "a claim that was given back")
        await sandbox.make(sandbox.pod("q", "other"))
        await sandbox.refused("q", NO_SPACE)
        is_repaired.set()
        assert await sandbox.bound("p") == ["n1"]
        await sandbox.refused("q", NO_SPACE)
        assert {call.claim for call in provisioner.calls} == {"first", "second"}


async def test_a_pod_whose_volumes_are_on_different_nodes_learns_which(sandbox: StorageSandbox) -> None:
    """B-6: no node can have both, so the pod and its claims get an event at once."""
    static = a_class("i").immediate()
    volumes = [a_pv("a", "1Gi", "i").on("n1").claimed_by("c"), a_pv("b", "1Gi", "i").on("n2").claimed_by("e")]
    await sandbox.make(
        sandbox.node("n1"), sandbox.node("n2"), static, *volumes, *(a_claim(n, "1Gi", "i") for n in "ce")
    )
    for claim in "ce":
        await sandbox.phase("PersistentVolumeClaim", claim, "Bound")
    await sandbox.make(sandbox.pod("p", "c", "e"))

    await sandbox.refused("p", NODE_CONFLICT)
    words = [f'claim "c" on {sandbox.own("n1")}', f'claim "e" on {sandbox.own("n2")}']
    await sandbox.event_note("Pod", "p", "VolumesTieToNodes", *words)
    for claim in "ce":
        await sandbox.event_note("PersistentVolumeClaim", claim, "VolumesTieToNodes", *words)


async def test_e16_the_node_goes_before_the_volume_is_made(sandbox: StorageSandbox) -> None:
    """The wait ends at once. After a moment our selection is removed, and another node is chosen (B-6b)."""
    await sandbox.make(sandbox.node("n1"), PROVISIONED, a_claim("c", "1Gi", "d"))
    await sandbox.make(sandbox.pod("p", "c"))
    await sandbox.selected("c", "n1")
    await sandbox.make(sandbox.node("n2"))
    await sandbox.delete("Node", "n1")

    await sandbox.event_note("Pod", "p", "FailedScheduling", f'failed to get node "{sandbox.own("n1")}"')
    await sandbox.selected("c", "n2")
    await sandbox.event_note("PersistentVolumeClaim", "c", "SelectedNodeCleared", sandbox.own("n1"))
    async with sandbox.provisioner():
        assert await sandbox.bound("p") == ["n2"]


async def test_e17_the_pod_goes_while_it_waits(sandbox: StorageSandbox) -> None:
    """B-5: a pod of the same name takes its place and the claim without a wait."""
    await sandbox.make(sandbox.node("n1"), PROVISIONED, a_claim("c", "1Gi", "d"))
    await sandbox.make(sandbox.pod("p", "c"))
    await sandbox.selected("c", "n1")
    await sandbox.delete("Pod", "p")
    await sandbox.make(sandbox.pod("p", "c"))
    async with sandbox.provisioner() as provisioner:
        assert await sandbox.bound("p") == ["n1"]
    assert len(provisioner.calls) == 1


@dataclass(frozen=True)
class End:
    """How a wait ends for pod p on node n1: the change that is made once c, which is static, is bound and e is to be made."""

    says: str
    """The binding failure, in the words of both schedulers; `{}` stands for the sandbox's name."""
    delete: tuple[str, str] | None = None
    patch: tuple[str, str, Json] | None = None
    unprotect: bool = False
    """Delete it although it is in use."""


ENDS: Final[dict[str, End]] = {
    "the selection is taken back": End(
        'provisioning failed for PVC "e"',
        patch=("PersistentVolumeClaim", "e", {"metadata": {"annotations": {SELECTED_NODE: None}}}),
    ),
    "no annotation is left": End(
        'selectedNode annotation reset for PVC "e"',
        patch=("PersistentVolumeClaim", "e", {"metadata": {"annotations": None}}),
    ),
    "the node goes": End('failed to get node "n1-{}": node "n1-{}" not found', delete=("Node", "n1")),
    "the node loses the label that the volume requires": End(
        'pv "a-{}" node affinity doesn\'t match node "n1-{}": no matching NodeSelectorTerms',
        patch=("Node", "n1", {"metadata": {"labels": {"rack": "r2"}}}),
    ),
    "the claim that is to be provisioned goes": End(
        'failed to check provisioning pvc: persistentvolumeclaims "{}/e" not found',
        delete=("PersistentVolumeClaim", "e"),
    ),
    "the claim that has its volume goes": End(
        'failed to check binding: persistentvolumeclaims "{}/c" not found', delete=("PersistentVolumeClaim", "c")
    ),
    "the volume goes": End(
        'failed to check binding: persistentvolumes "a-{}" not found', delete=("PersistentVolume", "a"), unprotect=True
    ),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
async def test_how_a_wait_ends(sandbox: StorageSandbox, theirs: StorageSandbox, end: End) -> None:
    async def scenario(sandbox: StorageSandbox) -> None:
        volume = a_pv("a", "1Gi", "w").where("rack", "r1")
        await sandbox.make(sandbox.node("n1", labels={"rack": "r1"}), PROVISIONED, a_class("w"), volume)
        await sandbox.make(a_claim("c", "1Gi", "w"), a_claim("e", "1Gi", "d"), sandbox.pod("p", "c", "e"))
        await sandbox.phase("PersistentVolumeClaim", "c", "Bound")
        await sandbox.handed_over("e", "n1")
        if end.patch is not None:
            kind, name, patch = end.patch
            await sandbox.merge(kind, name, patch)
        if end.delete is not None:
            await sandbox.delete(*end.delete)
        if end.delete is not None and end.unprotect:
            await sandbox.merge(*end.delete, {"metadata": {"finalizers": None}})
        told = 'running PreBind plugin "VolumeBinding": binding volumes: ' + end.says.replace("{}", sandbox.name)
        assert await sandbox.event_note("Pod", "p", "FailedScheduling", told) == told

    await together(scenario, sandbox, theirs)


# -- behind a proxy that makes faults: concurrent writes, lost answers, missing permissions ----------------------------


WAITING: Final = a_class("w")
PATCH_VOLUME: Final[Json] = {"verb": "patch", "resource": "persistentvolumes"}
PATCH_CLAIM: Final[Json] = {"verb": "patch", "resource": "persistentvolumeclaims"}


@pytest.fixture
async def stage(sandbox: StorageSandbox) -> AsyncIterator[ProxyStage]:
    async with staged(sandbox) as made:
        yield made


async def one_of_each(sandbox: StorageSandbox) -> None:
    """A pod on n1 with a claim that finds a volume and one that is provisioned."""
    await sandbox.make(WAITING, PROVISIONED, a_pv("a", "1Gi", "w").on("n1"))
    await sandbox.make(a_claim("static", "1Gi", "w"), a_claim("dynamic", "1Gi", "d"))
    await sandbox.make(sandbox.pod("p", "static", "dynamic"))


async def test_e18_an_object_gets_a_label_before_it_is_written(sandbox: StorageSandbox, stage: ProxyStage) -> None:
    stage.proxy.add(Fault(**PATCH_VOLUME), Fault(**PATCH_CLAIM))

    async def label(request: Request) -> None:
        kind = "PersistentVolume" if request.resource == "persistentvolumes" else "PersistentVolumeClaim"
        name = request.name.removesuffix(f"-{sandbox.name}")
        await sandbox.merge(kind, name, {"metadata": {"labels": {"written": "first"}}})

    stage.proxy.meanwhile = label
    async with running(sandbox, stage), sandbox.provisioner():
        await sandbox.make(sandbox.node("n1"))
        await one_of_each(sandbox)

        assert await sandbox.bound("p") == ["n1"]
    assert [rule.hits for rule in stage.proxy.faults.rules] == [1, 1]
    for resource in ("persistentvolumes", "persistentvolumeclaims"):
        assert stage.proxy.seen[f"patch {resource} 409"] == 1
        assert stage.proxy.seen[f"patch {resource} 200"] == 1
    assert (await sandbox.volume("a"))["metadata"]["labels"] == {"written": "first"}
    await has_no_failure_event(sandbox, "p")


async def test_a_volume_is_claimed_by_another_before_it_is_written(sandbox: StorageSandbox, stage: ProxyStage) -> None:
    stage.proxy.add(Fault(**PATCH_VOLUME))

    async def take(request: Request) -> None:
        reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": sandbox.name, "name": "theirs"}
        name = request.name.removesuffix(f"-{sandbox.name}")
        await sandbox.merge("PersistentVolume", name, {"spec": {"claimRef": reference}})

    stage.proxy.meanwhile = take
    volumes = [a_pv(name, "1Gi", "w").on("n1") for name in "ab"]
    async with running(sandbox, stage):
        await sandbox.make(sandbox.node("n1"), WAITING, *volumes, a_claim("c", "1Gi", "w"))
        await sandbox.make(sandbox.pod("p", "c"))

        assert await sandbox.bound("p") == ["n1"]
    references = [volume["spec"]["claimRef"]["name"] for volume in await sandbox.all("PersistentVolume")]
    assert sorted(references) == ["c", "theirs"]


async def test_the_permissions_that_volumes_need_are_enough(sandbox: StorageSandbox, stage: ProxyStage) -> None:
    token = await stage.account()
    await stage.permit(ALL - VOLUMES | {rule for rule in VOLUMES if rule.verb == "get"})
    await sandbox.make(sandbox.node("n1"), a_class("i").immediate(), a_pv("ready", "1Gi", "i").on("n1"))
    await sandbox.make(a_claim("ready", "1Gi", "i"))
    await sandbox.phase("PersistentVolumeClaim", "ready", "Bound")
    async with running(sandbox, stage, token=token), sandbox.provisioner():
        await sandbox.make(sandbox.pod("q", "ready"))
        await one_of_each(sandbox)
        assert await sandbox.bound("q") == ["n1"]
        words = 'cannot patch resource "persistentvolumes"'
        await sandbox.refused("p", words, reason="SchedulerError")
        assert selected_node(await sandbox.claim("dynamic")) == ""
        await stage.permit(ALL)

        assert await sandbox.bound("p") == ["n1"]
