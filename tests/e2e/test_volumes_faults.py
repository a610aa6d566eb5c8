"""Volumes behind a proxy that breaks what can break: others write in between, answers are lost, permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest

from simulator.apiserver import Fault
from simulator.apiserver.faults import Request
from tests.e2e.cluster import Json
from tests.e2e.stage import ALL, VOLUMES, Stage
from tests.e2e.staged import running, staged
from tests.e2e.storage import DRIVER, World, selected_node
from tests.support.volumebuilders import a_claim, a_class, a_pv

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

PROVISIONED: Final = a_class("d", DRIVER)
WAITING: Final = a_class("w")
PATCH_VOLUME: Final[Json] = {"verb": "patch", "resource": "persistentvolumes"}
PATCH_CLAIM: Final[Json] = {"verb": "patch", "resource": "persistentvolumeclaims"}


@pytest.fixture
async def stage(world: World) -> AsyncIterator[Stage]:
    async with staged(world) as made:
        yield made


async def one_of_each(world: World) -> None:
    """A pod on n1 with a claim that finds a volume and one that is provisioned."""
    await world.make(WAITING, PROVISIONED, a_pv("a", "1Gi", "w").on("n1"))
    await world.make(a_claim("static", "1Gi", "w"), a_claim("dynamic", "1Gi", "d"))
    await world.make(world.pod("p", "static", "dynamic"))


async def is_not_told_of_failures(world: World, *pods: str) -> None:
    for name in pods:
        reasons = {event["reason"] for event in await world.cluster.events(name)}
        assert "FailedScheduling" not in reasons


async def test_e18_somebody_labels_what_is_about_to_be_written(world: World, stage: Stage) -> None:
    """B-2: the server refuses the first write of volume and claim, and nobody sees anything of it."""
    stage.proxy.add(Fault(**PATCH_VOLUME), Fault(**PATCH_CLAIM))

    async def label(request: Request) -> None:
        kind = "PersistentVolume" if request.resource == "persistentvolumes" else "PersistentVolumeClaim"
        name = request.name.removesuffix(f"-{world.name}")
        await world.merge(kind, name, {"metadata": {"labels": {"written": "meanwhile"}}})

    stage.proxy.meanwhile = label
    async with running(world, stage), world.provisioner():
        await world.make(world.node("n1"))
        await one_of_each(world)

        assert await world.bound("p") == ["n1"]
    assert [rule.hits for rule in stage.proxy.faults.rules] == [1, 1]
    for resource in ("persistentvolumes", "persistentvolumeclaims"):
        assert stage.proxy.seen[f"patch {resource} 409"] == 1
        assert stage.proxy.seen[f"patch {resource} 200"] == 1
    assert (await world.volume("a"))["metadata"]["labels"] == {"written": "meanwhile"}
    await is_not_told_of_failures(world, "p")


async def test_somebody_takes_the_volume_that_is_about_to_be_written(world: World, stage: Stage) -> None:
    """Nothing is forced: it is theirs, and the pod gets another one."""
    stage.proxy.add(Fault(**PATCH_VOLUME))

    async def take(request: Request) -> None:
        reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": world.name, "name": "theirs"}
        name = request.name.removesuffix(f"-{world.name}")
        await world.merge("PersistentVolume", name, {"spec": {"claimRef": reference}})

    stage.proxy.meanwhile = take
    volumes = [a_pv(name, "1Gi", "w").on("n1") for name in "ab"]
    async with running(world, stage):
        await world.make(world.node("n1"), WAITING, *volumes, a_claim("c", "1Gi", "w"))
        await world.make(world.pod("p", "c"))

        assert await world.bound("p") == ["n1"]
    references = [volume["spec"]["claimRef"]["name"] for volume in await world.all("PersistentVolume")]
    assert sorted(references) == ["c", "theirs"]


LOST: Final[dict[str, list[Fault]]] = {
    "the answers are lost": [Fault(**PATCH_VOLUME, reset="after"), Fault(**PATCH_CLAIM, reset="after")],
    "the server fails, 500": [Fault(**PATCH_VOLUME, status=500), Fault(**PATCH_CLAIM, status=500)],
}


@pytest.mark.parametrize("faults", LOST.values(), ids=LOST.keys())
async def test_writes_that_fail_for_a_moment(world: World, stage: Stage, faults: list[Fault]) -> None:
    """Bound in the first attempt all the same."""
    for fault in faults:
        fault.hits = 0
    stage.proxy.add(*faults)
    async with running(world, stage), world.provisioner():
        await world.make(world.node("n1"))
        await one_of_each(world)

        assert await world.bound("p") == ["n1"]
    assert [fault.hits for fault in faults] == [1, 1]
    await is_not_told_of_failures(world, "p")


async def test_the_permissions_that_volumes_need_are_enough(world: World, stage: Stage) -> None:
    """Without them pods with bound claims are bound, and the others say what is missing until it is given."""
    token = await stage.account()
    await stage.permit(ALL - VOLUMES | {rule for rule in VOLUMES if rule.verb == "get"})
    await world.make(world.node("n1"), a_class("i").immediate(), a_pv("ready", "1Gi", "i").on("n1"))
    await world.make(a_claim("ready", "1Gi", "i"))
    await world.phase("PersistentVolumeClaim", "ready", "Bound")
    async with running(world, stage, token=token), world.provisioner():
        await world.make(world.pod("q", "ready"))
        await one_of_each(world)
        assert await world.bound("q") == ["n1"]
        words = 'cannot patch resource "persistentvolumes"'
        await world.refused("p", words, reason="SchedulerError")
        assert selected_node(await world.claim("dynamic")) == ""
        await stage.permit(ALL)

        assert await world.bound("p") == ["n1"]
