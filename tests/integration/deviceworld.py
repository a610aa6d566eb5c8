"""A cluster in trouble whose pods have devices: the world of `world`, a claim controller, drivers, and another scheduler.

Each of the three nodes has GPUs, devices that take their time, one that is cut into parts and one that is shared; two more
are in the network, for whoever comes first. Everything is done by name or by count, as in `World`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Final

from scheduler.config.args import DynamicResourcesArgs
from scheduler.config.types import OUR_NAME, Configuration, KubeSchedulerProfile, LeaderElection
from simulator.apiserver import ApiServer, Refused
from simulator.builders.core import node, pod
from simulator.controllers import PersistentVolumeController
from simulator.controllers.resource_claim import ResourceClaimController
from tests.integration.devicejudging import Bookings, device_differences, device_leftovers, has_place
from tests.integration.judging import OURS, Object, leftovers, nominations
from tests.integration.mortal import HastyClock, Mortal
from tests.integration.nodedevices import CLASSES, GPU, GPUS, NET, NodeDevices
from tests.integration.otherallocator import OtherAllocator
from tests.integration.placementjudging import cache_differences
from tests.integration.world import SHARED, THEIRS, ZONE, World, hosted
from tests.support.deviceinvariants import claims_of_pods, reserved_for_the_gone
from tests.support.invariants import stranded, unbound

NODES: Final = ("n1", "n2", SHARED)
BINDING_TIMEOUT_S: Final = 60
_CLAIMS: Final = "resourceclaims"


class DeviceWorld(NodeDevices, World):
    """As `World`, with claims, devices, and who acts on them. A want is `<class>-<amount>`: see `a_want`."""

    def __init__(self, server: ApiServer, clock: HastyClock) -> None:
        super().__init__(server, clock)
        args = {DynamicResourcesArgs.plugin: DynamicResourcesArgs(binding_timeout_s=BINDING_TIMEOUT_S)}
        profile = KubeSchedulerProfile(OUR_NAME, args=args)
        elected = LeaderElection(leader_elect=False)
        self._mortal = Mortal(clock, self._on_plan, Configuration(profiles=(profile,), leader_election=elected))
        self.install_drivers(server, clock)
        self.controller = ResourceClaimController(server, clock=clock, delay_s=0.3, releases_after_s=0.5)
        self.others = OtherAllocator(
            server, clock=clock, scheduler_name=THEIRS, drivers={"gpu": GPU, "net": NET}, writes_after_s=1.5
        )
        self.bookings = Bookings(server, self.others.allocated)
        self.actors += [
            self.controller,
            *self.drivers.values(),
            self.others,
            PersistentVolumeController(server, clock=clock, delay_s=0.3),
        ]
        for name in NODES:
            self.publish(name, GPUS)
        server.subscribe(self._on_device_write)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def add_node(self, name: str, milli_cpu: int, zone: str) -> None:
        """Its devices are published, be it there or not."""
        with contextlib.suppress(Refused):
            size = self._sized(name, milli_cpu)
            self.server.create("nodes", node(name).cpu(f"{size}m").pods(30).label(ZONE, zone).obj())

    # -- pods and claims -----------------------------------------------------------------------------------------------

    def add_pod_with(self, name: str, milli_cpu: int, wants: Sequence[str]) -> None:
        """Nothing if there is a pod of that name."""
        with contextlib.suppress(Refused):
            self.server.create("pods", self.with_devices(pod(name).cpu(f"{milli_cpu}m"), wants).obj())

    # -- the end -------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """As ever; and drivers, classes and the controller are well again."""
        for name in CLASSES:
            self.add_class(name)
        self.revive_drivers()
        self.controller.loses = 0
        self.controller.look_again()
        await super().settle()

    def unsettled(self) -> list[str]:
        """What must become true of a quiet world and is not yet."""
        assert self.daemon is not None
        self._mortal.check()
        assert self._mortal.deaths == []
        blind = {o["metadata"]["name"] for o in self.server.objects("pods") if self._is_others(o)}
        busy = [  # a pod that was bound to a claim which is on its way out is tried for ever
            f"{actor.component} will look at {key}"
            for actor in self.actors
            for key in actor._when
            if key[0] != "pods" or key[2] not in blind
        ]
        idle = [*busy, *(left for left in leftovers(self.server, self.daemon) if not left.startswith("counts: "))]
        return idle or [
            *unbound(self.server, lambda o: o["spec"]["schedulerName"] == OURS and has_place(self.server, o)),
            *stranded(self.server),
            *reserved_for_the_gone(self.server),
            *nominations(self.server, self.daemon),
            *cache_differences(self.server, self.daemon.decisions.cluster),
            *self._trying(self.daemon),
            *device_differences(self.server, self.daemon),
            *device_leftovers(self.daemon),
        ]

    def broken_laws(self) -> list[str]:
        """What must never have happened. While the daemon still runs, after `settle`."""
        return [*super().broken_laws(), *self.bookings.broken, *self._of_ours(claims_of_pods(self.server))]

    def _on_device_write(self, type_: str, resource: str, obj: Object) -> None:
        if resource == _CLAIMS and type_ != "DELETED":
            self.broken += self.broken_by_claim(obj, self.bookings)
        elif resource == "pods" and type_ == "MODIFIED" and obj["spec"].get("nodeName") and not self._is_others(obj):
            self.bookings.placed(obj)


@contextlib.asynccontextmanager
async def with_devices() -> AsyncIterator[DeviceWorld]:
    """An empty world with a daemon, kubelets, the claim controller and drivers."""
    async with hosted(DeviceWorld, kubelets_grace_s=2) as world:
        yield world
