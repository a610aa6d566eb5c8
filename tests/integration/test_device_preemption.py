"""Pods evicted for their devices, by the real daemon over real sockets: with claims from a template, as most are."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from scheduler.config.args import KubestowArgs, default_args
from scheduler.config.types import Profile
from scheduler.testing.actors.claimcontroller import ResourceClaimController
from scheduler.testing.apiserver import ApiServer
from scheduler.testing.devicebuilders import a_device, a_device_class, a_slice
from scheduler.testing.deviceclaimbuilders import a_claim_template
from scheduler.testing.kubelet import Kubelet
from tests.integration.daemon import Rig, rig_on
from tests.support.invariants import Witness

AT = "device.attributes['drv'].at == {}"


@contextlib.asynccontextmanager
async def stage(*, devices: int, **more: Any) -> AsyncIterator[tuple[Rig, Witness]]:
    """One node; kubelets and the claim controller act by themselves, the latter late."""
    server = ApiServer()
    server.create("priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
    server.apply(a_device_class("gpu", "device.driver == 'drv'").obj())
    server.apply(a_slice("n1", "drv", *(a_device(f"d{at}").attr("drv/at", at) for at in range(devices))).obj())
    server.apply(a_claim_template("any").request("r", "gpu").obj())
    server.apply(a_claim_template("first").request("r", "gpu", cel=AT.format(0)).obj())
    controller = ResourceClaimController(server, releases_after_s=0.2)
    async with server, controller, Kubelet(server), rig_on(server, **more) as world:
        witness = Witness(server)
        world.node("n1")
        yield world, witness
        witness.close()


def wants(world: Rig, name: str, template: str = "any", **more: Any) -> None:
    world.pod(name, resourceClaims=[{"name": "e", "resourceClaimTemplateName": template}], **more)


def devices_of(world: Rig, pod: str) -> list[str]:
    """Those of the pod's claim."""
    uid = world.server.get("pods", pod)["metadata"]["uid"]
    return [
        each["device"]
        for claim in world.server.list("resourceclaims")
        if any(owner["uid"] == uid for owner in claim["metadata"]["ownerReferences"])
        for each in claim["status"]["allocation"]["devices"]["results"]
    ]


def victims(witness: Witness) -> list[str]:
    return sorted(key.partition("/")[2] for key in witness.preempted.values())


async def test_one_dies_for_the_device_that_is_wanted() -> None:
    """Its claim is given back and gone, and the device comes to whom it was made free for, not to whoever waits beside."""
    async with stage(devices=2) as (world, witness):
        wants(world, "v", "first")
        await world.bound("v")
        wants(world, "w")
        await world.bound("w")
        wants(world, "q")
        await world.until(lambda: bool(world.condition("q")), "not tried")

        wants(world, "p", "first", priorityClassName="high")
        await world.bound("p")

        assert (victims(witness), devices_of(world, "p")) == (["v"], ["d0"])
        assert world.pods() == {"p": "n1", "w": "n1", "q": ""}
        await world.until(world.daemon.decisions.is_idle, "still at it")
        assert world.server.requests()["delete pods 200"] == 1


@pytest.mark.parametrize("switch", [{"device_preemption": "none"}, {"parity": True}], ids=["none", "parity"])
async def test_switched_off(switch: dict[str, Any]) -> None:
    """As upstream: the more important pod waits."""
    profile = Profile("kubestow", args={**default_args(), KubestowArgs.plugin: KubestowArgs(**switch)})
    async with stage(devices=1, profiles=(profile,)) as (world, witness):
        wants(world, "v")
        await world.bound("v")
        wants(world, "p", priorityClassName="high")
        await world.until(lambda: bool(world.condition("p")), "not tried")
        await world.until(world.daemon.decisions.is_idle, "still at it")

        assert (victims(witness), world.pods()) == ([], {"p": "", "v": "n1"})
        assert world.condition("p")["message"] == (
            "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        )
