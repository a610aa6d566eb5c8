"""A burst of pods with volumes and devices, and a daemon that is killed again and again while it binds them.

Each app has one pod per node, by anti-affinity. Each pod has a volume that a provisioner makes on the selected node and a
local volume made in advance; the pods of some apps have a device as well. All node choices are written before the Binding,
so a kill leaves pods that only one node can take.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final

from scheduler.api.storage_v1 import NO_PROVISIONER
from scheduler.config.args import KubestowArgs
from simulator.builders.claims import a_claim as a_device_claim
from simulator.builders.core import Builder, node, pod
from simulator.builders.devices import a_device, a_device_class, a_slice
from simulator.controllers import PersistentVolumeController
from tests.actors.provisioner import FaultyProvisioner
from tests.integration.daemon_laws import Object
from tests.integration.harness import Harness, running_cluster
from tests.support.volumebuilders import HOSTNAME, a_claim, a_class, a_csi_driver, a_csi_node, a_pv

APPS: Final = 7
REPLICAS: Final = 24
PODS: Final = APPS * REPLICAS
NODES: Final = 30
APPS_WITH_DEVICES: Final = 3
DEVICES_PER_NODE: Final = 4
KILLS: Final = 20
WRITES_BETWEEN_KILLS: Final = (5, 90)
"""A daemon is killed after this many writes of claims, volumes and pods, at least and at most; earlier if no writes come."""
QUIET_S: Final = 60.0
"""Virtual seconds without a write after which no more writes are expected."""
PATIENCE_S: Final = 300.0
"""Virtual seconds after the last kill within which all pods are bound."""
MADE: Final = "made.example"
_GPU: Final = "gpu.example"
_COUNTED: Final = {"pods", "persistentvolumeclaims", "persistentvolumes", "resourceclaims"}


class RestartBurst:
    """The pods and the kills. The seed determines the pods' order and the moments of the kills."""

    def __init__(self, cluster: Harness, seed: int) -> None:
        self.cluster = cluster
        self._rng = random.Random(seed)
        self._writes = 0
        self._changed = asyncio.Event()
        cluster.server.subscribe(self._on_write)

    async def run(self) -> None:
        """Create all pods, in one wave or several, and kill the daemon in between."""
        listed = replicas(self._rng)
        waves = self._rng.choice((1, 4, KILLS))
        for kill in range(KILLS):
            for app, replica in listed[kill * PODS // waves : (kill + 1) * PODS // waves]:
                create(self.cluster, with_claims(app, replica))
            await self._writes_more(self._rng.randint(*WRITES_BETWEEN_KILLS))
            await self.cluster.crash_daemon()

    async def unbound(self) -> list[str]:
        """Wait until all pods are bound; return those that are not after `PATIENCE_S`, with their messages."""
        end = self.cluster.clock.now() + PATIENCE_S
        while (left := self._unbound()) and self.cluster.clock.now() < end:
            await self.cluster.clock.sleep(1)
        return left

    def _unbound(self) -> list[str]:
        messages = dict(self.cluster.refusals)
        waiting = (o["metadata"]["name"] for o in self.cluster.server.objects("pods") if not o["spec"].get("nodeName"))
        return [f"{name}: {messages.get(name, '')}" for name in waiting]

    def broken_laws(self) -> list[str]:
        pods = self.cluster.server.objects("pods")
        where = [(o["metadata"]["labels"]["app"], o["spec"].get("nodeName")) for o in pods]
        together = {f"two pods of {app} on {name}" for app, name in where if name and where.count((app, name)) > 1}
        return [*self.cluster.broken_laws(), *sorted(together)]

    async def _writes_more(self, count: int) -> None:
        """Wait for this many writes, or until there have been none for `QUIET_S` seconds."""
        until = self._writes + count
        is_quiet = False
        while self._writes < until and not is_quiet:
            self._changed.clear()
            written = asyncio.ensure_future(self._changed.wait())
            slept = asyncio.ensure_future(self.cluster.clock.sleep(QUIET_S))
            await asyncio.wait((written, slept), return_when=asyncio.FIRST_COMPLETED)
            is_quiet = not written.done()
            for each in (written, slept):
                each.cancel()
            await asyncio.gather(written, slept, return_exceptions=True)

    def _on_write(self, type_: str, resource: str, obj: Object) -> None:
        if resource in _COUNTED and type_ == "MODIFIED":
            self._writes += 1
            self._changed.set()


def create(cluster: Harness, built: Iterable[Builder[Any]]) -> None:
    for each in built:
        manifest = each.obj()
        cluster.server.create(manifest["kind"], manifest)


def classes() -> Iterator[Builder[Any]]:
    yield a_csi_driver(MADE)
    yield a_class("local", NO_PROVISIONER)
    yield a_class("made", MADE)
    yield a_device_class("gpu", f"device.driver == '{_GPU}'")


def nodes() -> Iterator[Builder[Any]]:
    for at in range(NODES):
        name = f"n{at:02}"
        yield node(name).cpu("8")
        yield a_csi_node(name).driver(MADE, topology_keys=(HOSTNAME,))
        yield a_slice(name, _GPU, *(a_device(f"g{each}") for each in range(DEVICES_PER_NODE)))
        yield from (a_pv(f"{name}-v{each}", "1Gi", "local").on(name) for each in range(APPS))


def replicas(rng: random.Random) -> list[tuple[int, int]]:
    """Return app and replica of each pod, in random order."""
    listed = [(app, replica) for app in range(APPS) for replica in range(REPLICAS)]
    rng.shuffle(listed)
    return listed


def with_claims(app: int, replica: int) -> Iterator[Builder[Any]]:
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


@contextlib.asynccontextmanager
async def restarting(seed: int, *, ours: KubestowArgs | None = None) -> AsyncIterator[RestartBurst]:
    async with running_cluster(seed=seed, ours=ours) as cluster:
        create(cluster, (*classes(), *nodes()))
        server, clock = cluster.server, cluster.clock
        async with (
            PersistentVolumeController(server, clock=clock, delay_s=0.3),
            FaultyProvisioner(server, MADE, clock=clock, delay_s=1),
        ):
            yield RestartBurst(cluster, seed)
