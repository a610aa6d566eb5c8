"""A cluster in which everything happens that is measured: plain pods, pods with volumes and devices, pods that fit on no node,
and pods that are preempted. On the in-process API server, with the real daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from unittest import mock

from scheduler import cycle
from scheduler.config.types import LeaderElection
from simulator.apiserver import ApiServer
from simulator.builders.claims import a_claim_template
from simulator.builders.core import Builder, PodBuilder, node, pod
from simulator.builders.devices import a_device, a_device_class, a_slice
from simulator.controllers import (
    DRADriver,
    EphemeralVolumeController,
    PersistentVolumeController,
    ResourceClaimController,
)
from simulator.controllers.kubelet import Kubelet
from tests.actors.provisioner import FaultyProvisioner
from tests.integration.daemon import Rig, rig_on
from tests.support.volumebuilders import a_claim, a_class, a_csi_driver, a_csi_node, a_pv

RACK = "example.com/rack"
CSI = "csi.example.com"
DRA = "dra.example.com"
_SMALL = "small"
"""A node that one pod fills."""
_GIB = 2**30


class Monitored:
    """Each `round` lets everything happen once more."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._rounds = 0

    @property
    def port(self) -> int:
        """The port of its metrics over plain HTTP."""
        return self.rig.daemon.port

    async def round(self) -> None:
        """Wait until all that fit are bound, and the rest have a condition."""
        self._rounds += 1
        end = f"-{self._rounds}"
        plain = [pod(f"plain-{i}{end}").cpu("10m") for i in range(3)]
        self._create(a_pv(f"local{end}", storage_class="local").on("n2"), a_claim(f"local{end}", storage_class="local"))
        volumes = [pod(f"fast{end}").ephemeral("v", "1Gi", "fast"), pod(f"local{end}").pvc(f"local{end}")]
        devices = [
            pod(f"device{end}").claim("gpu", template="gpu"),
            pod(f"extended{end}").extended("example.com/gpu", "1"),
        ]
        hopeless = [pod(f"large{end}").cpu("1k"), pod(f"many{end}").claim("gpus", template="many")]
        await self._bound(*plain, *volumes, *devices, hopeless=hopeless)
        await self._preempted(end)

    async def _preempted(self, end: str) -> None:
        """Fill the small node, and preempt its pods."""
        await self._bound(pod(f"low{end}").cpu("3").node_selector(size=_SMALL))
        await self._bound(pod(f"high{end}").cpu("3").node_selector(size=_SMALL).priority_class("high"))
        self.rig.server.delete("pods", f"high{end}")
        await self.rig.until(lambda: f"high{end}" not in self.rig.pods(), "not deleted")

    async def _bound(self, *pods: PodBuilder, hopeless: list[PodBuilder] | None = None) -> None:
        lost = hopeless or []
        for each in [*pods, *lost]:
            self._create(each.scheduler("kubestow"))
        await self.rig.bound(*(_name(each) for each in pods))
        await self.rig.until(lambda: all(self.rig.condition(_name(each)) for each in lost), "pods without a condition")

    def _create(self, *objects: Builder[Any]) -> None:
        for each in objects:
            self.rig.server.apply(each.obj())


def _name(each: PodBuilder) -> str:
    return str(each.obj()["metadata"]["name"])


def _cluster(server: ApiServer, more: Iterable[Builder[Any]]) -> None:
    server.create("priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
    objects: list[Builder[Any]] = [
        *more,
        *(node(f"n{i}").cpu("16").label(RACK, f"r{i}") for i in range(3)),
        node("small").cpu("4").label("size", _SMALL),
        a_csi_driver(CSI).tracks_capacity(),
        *(a_csi_node(f"n{i}").driver(CSI, 30, topology_keys=(RACK,)) for i in range(3)),
        a_class("fast", CSI),
        a_class("local"),
        a_device_class("gpu", f"device.driver == '{DRA}'").extended_resource("example.com/gpu"),
        a_slice("n1", DRA, *(a_device(f"d{i}").binding("Ready").binding_failure("Failed") for i in range(30))),
        a_claim_template("gpu").request("r", "gpu"),
        a_claim_template("many").request("r", "gpu", count=31),
    ]
    for each in objects:
        server.apply(each.obj())


@asynccontextmanager
async def monitored(objects: Iterable[Builder[Any]] = ()) -> AsyncIterator[Monitored]:
    """With these additional objects."""
    server = ApiServer()
    _cluster(server, objects)
    async with AsyncExitStack() as running:
        # Else one attempt in ten is timed by plugin: whether one was would depend on chance.
        running.enter_context(mock.patch.object(cycle, "SAMPLED", 1.0))
        await running.enter_async_context(server)
        for actor in (
            EphemeralVolumeController(server),
            PersistentVolumeController(server),
            FaultyProvisioner(
                server,
                CSI,
                delay_s=0.1,
                segment_key=RACK,
                space={f"r{i}": 100 * _GIB for i in range(3)},
                publishes_every_s=0,
            ),
            ResourceClaimController(server),
            DRADriver(server, DRA, delay_s=0.1),
            Kubelet(server),
        ):
            await running.enter_async_context(actor)
        rig = await running.enter_async_context(rig_on(server, leader_election=LeaderElection(leader_elect=True)))
        await rig.until(lambda: rig.daemon.idle() and rig.daemon.metrics.sources.may_write is not None, "never led")
        yield Monitored(rig)
