"""Volumes behind a proxy that makes faults: concurrent writes, lost answers, missing permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest

from simulator.apiserver import Fault
from simulator.apiserver.faults import Request
from tests.e2e.cluster import Json
from tests.e2e.stage import ALL, VOLUMES, Stage, has_no_failure_event, running, staged
from tests.e2e.storage import DRIVER, StorageSandbox, selected_node
from tests.support.volumebuilders import a_claim, a_class, a_pv

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

PROVISIONED: Final = a_class("d", DRIVER)
WAITING: Final = a_class("w")
PATCH_VOLUME: Final[Json] = {"verb": "patch", "resource": "persistentvolumes"}
PATCH_CLAIM: Final[Json] = {"verb": "patch", "resource": "persistentvolumeclaims"}


@pytest.fixture
async def stage(sandbox: StorageSandbox) -> AsyncIterator[Stage]:
    async with staged(sandbox) as made:
        yield made


async def one_of_each(sandbox: StorageSandbox) -> None:
    """A pod on n1 with a claim that finds a volume and one that is provisioned."""
    await sandbox.make(WAITING, PROVISIONED, a_pv("a", "1Gi", "w").on("n1"))
    await sandbox.make(a_claim("static", "1Gi", "w"), a_claim("dynamic", "1Gi", "d"))
    await sandbox.make(sandbox.pod("p", "static", "dynamic"))


async def test_e18_an_object_gets_a_label_before_it_is_written(sandbox: StorageSandbox, stage: Stage) -> None:
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


async def test_a_volume_is_claimed_by_another_before_it_is_written(sandbox: StorageSandbox, stage: Stage) -> None:
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


async def test_the_permissions_that_volumes_need_are_enough(sandbox: StorageSandbox, stage: Stage) -> None:
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
