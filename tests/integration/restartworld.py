"""A burst of pods with volumes and devices, and a daemon that is killed again and again while it binds them.

Each app has one pod per node, by anti-affinity. Each pod has a volume that a provisioner makes on the selected node and a
local volume made in advance; the pods of some apps have a device as well. All node choices are written before the Binding,
so a kill leaves pods that only one node can take.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from scheduler.api.storage_v1 import NO_PROVISIONER
from scheduler.config.args import KubestowArgs
from scheduler.config.types import OUR_NAME, Configuration, KubeSchedulerProfile, LeaderElection
from simulator.apiserver import ApiServer
from simulator.builders.claims import a_claim as a_device_claim
from simulator.builders.core import Builder, node, pod
from simulator.builders.devices import a_device, a_device_class, a_slice
from simulator.controllers import Actor, ExternalProvisioner, PersistentVolumeController
from tests.integration.judging import Object
from tests.integration.mortal import HastyClock, Mortal, remembered
from tests.support.invariants import Witness, claimed_twice
from tests.support.volumebuilders import HOSTNAME, a_claim, a_class, a_csi_driver, a_csi_node, a_pv

APPS: Final = 7
REPLICAS: Final = 24
PODS: Final = APPS * REPLICAS
NODES: Final = 30
APPS_WITH_DEVICES: Final = 3
DEVICES_PER_NODE: Final = 4
KILLS: Final = 20
WRITES_BETWEEN_KILLS: Final = (5, 90)
"""A daemon is killed after so many writes of claims, volumes and pods, at least and at most; fewer if there are no more."""
QUIET_S: Final = 60.0
"""Virtual seconds without a write after which there is nothing more to write."""
PATIENCE_S: Final = 300.0
"""Virtual seconds after the last kill within which all pods are bound."""
MADE: Final = "made.example"
_GPU: Final = "gpu.example"
_COUNTED: Final = {"pods", "persistentvolumeclaims", "persistentvolumes", "resourceclaims"}


class RestartWorld:
    """One server, its controllers, and a daemon that can be killed. The seed determines the pods' order and the kills."""

    def __init__(self, server: ApiServer, clock: HastyClock, seed: int, ours: KubestowArgs) -> None:
        self.server = server
        self.clock = clock
        self.witness = Witness(server)
        elected = LeaderElection(leader_elect=False)
        profile = KubeSchedulerProfile(OUR_NAME, args={KubestowArgs.plugin: ours})
        self.mortal = Mortal(clock, lambda *_: None, Configuration(profiles=(profile,), leader_election=elected))
        self.actors: list[Actor] = [
            PersistentVolumeController(server, clock=clock, delay_s=0.3),
            ExternalProvisioner(server, MADE, clock=clock, delay_s=1),
        ]
        self._chance = random.Random(seed)
        self._writes = 0
        self._changed = asyncio.Event()
        self._create(*classes(), *nodes())
        server.subscribe(self._on_write)

    # -- what there is ---------------------------------------------------------------------------------------------------

    def add_pod(self, app: int, replica: int) -> None:
        """With its claims."""
        self._create(*with_claims(app, replica))

    def _create(self, *things: Builder[Any]) -> None:
        for thing in things:
            manifest = thing.obj()
            self.server.create(manifest["kind"], manifest)

    # -- what happens ----------------------------------------------------------------------------------------------------

    async def burst(self) -> None:
        """All pods, in one wave or several, and the kills."""
        listed = replicas(self._chance)
        waves = self._chance.choice((1, 4, KILLS))
        for kill in range(KILLS):
            for app, replica in listed[kill * PODS // waves : (kill + 1) * PODS // waves]:
                self.add_pod(app, replica)
            await self._writes_more(self._chance.randint(*WRITES_BETWEEN_KILLS))
            await self.mortal.kill()
            await self.mortal.start(self.server.url)

    async def write_deadline(self) -> list[str]:
        """Wait until all pods are bound. The pods that are not after `PATIENCE_S`."""
        end = self.clock.now() + PATIENCE_S
        while (left := self.unbound()) and self.clock.now() < end:
            await self.clock.sleep(1)
        self.mortal.check()
        return left

    def unbound(self) -> list[str]:
        """Each with what it was told last."""
        return [
            f"{obj['metadata']['name']}: {_told(obj)}"
            for obj in self.server.objects("pods")
            if not obj["spec"].get("nodeName")
        ]

    def broken_laws(self) -> list[str]:
        """What must never have happened."""
        where = [(o["metadata"]["labels"]["app"], o["spec"].get("nodeName")) for o in self.server.objects("pods")]
        together = sorted(
            {f"two pods of {app} on {name}" for app, name in where if name and where.count((app, name)) > 1}
        )
        return [*self.mortal.deaths, *self.witness.bound_twice(), *claimed_twice(self.server), *together]

    async def _writes_more(self, count: int) -> None:
        """Wait for so many writes, or until there have been none for `QUIET_S` seconds."""
        until = self._writes + count
        is_quiet = False
        while self._writes < until and not is_quiet:
            self._changed.clear()
            written = asyncio.ensure_future(self._changed.wait())
            slept = asyncio.ensure_future(self.clock.sleep(QUIET_S))
            await asyncio.wait((written, slept), return_when=asyncio.FIRST_COMPLETED)
            is_quiet = not written.done()
            for each in (written, slept):
                each.cancel()
            await asyncio.gather(written, slept, return_exceptions=True)

    def _on_write(self, type_: str, resource: str, obj: Object) -> None:
        if resource in _COUNTED and type_ == "MODIFIED":
            self._writes += 1
            self._changed.set()


def classes() -> Iterator[Builder[Any]]:
    """Storage that is made in advance and on demand, and devices."""
    yield a_csi_driver(MADE)
    yield a_class("local", NO_PROVISIONER)
    yield a_class("made", MADE)
    yield a_device_class("gpu", f"device.driver == '{_GPU}'")


def nodes() -> Iterator[Builder[Any]]:
    """Each with its devices and local volumes."""
    for at in range(NODES):
        name = f"n{at:02}"
        yield node(name).cpu("8")
        yield a_csi_node(name).driver(MADE, topology_keys=(HOSTNAME,))
        yield a_slice(name, _GPU, *(a_device(f"g{each}") for each in range(DEVICES_PER_NODE)))
        yield from (a_pv(f"{name}-v{each}", "1Gi", "local").on(name) for each in range(APPS))


def replicas(chance: random.Random) -> list[tuple[int, int]]:
    """App and replica of each pod, in any order."""
    listed = [(app, replica) for app in range(APPS) for replica in range(REPLICAS)]
    chance.shuffle(listed)
    return listed


def with_claims(app: int, replica: int) -> Iterator[Builder[Any]]:
    """The claims of a pod, and the pod, of whose app there may be one on each node."""
    name = f"a{app}-{replica:02}"
    yield from (a_claim(f"{name}-{volume}", "1Gi", volume) for volume in ("made", "local"))
    term = {"labelSelector": {"matchLabels": {"app": f"a{app}"}}, "topologyKey": HOSTNAME}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    built = pod(name).cpu("100m").pvc(f"{name}-made").pvc(f"{name}-local")
    built = built.label("app", f"a{app}").affinity({"podAntiAffinity": rule})
    if app < APPS_WITH_DEVICES:
        yield a_device_claim(f"{name}-gpu").request("gpu", "gpu")
        built = built.claim("gpu", f"{name}-gpu")
    yield built


def _told(obj: Object) -> str:
    conditions = obj["status"].get("conditions", [])
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")


@contextlib.asynccontextmanager
async def restarting(seed: int, *, ours: KubestowArgs | None = None) -> AsyncIterator[RestartWorld]:
    """The nodes, the controllers and a daemon, in a loop of its own."""
    asyncio.get_running_loop().set_task_factory(remembered)
    clock = HastyClock()
    async with ApiServer(clock=clock, rng=random.Random(seed), bookmark_interval_s=5) as server:
        world = RestartWorld(server, clock, seed, ours or KubestowArgs())
        async with contextlib.AsyncExitStack() as stack:
            for actor in world.actors:
                await stack.enter_async_context(actor)
            await world.mortal.start(server.url)
            stack.push_async_callback(world.mortal.stop)
            yield world
