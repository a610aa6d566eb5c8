"""Nodes with devices, pods that have them, and pods of ours that want them."""

from __future__ import annotations

from typing import Any

from scheduler.api.decode import Delta
from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.config.types import Configuration
from scheduler.framework.extender import Consultation
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows_limits import stored
from tests.unit.scenarios import evicting
from tests.unit.scenarios.evicting import OTHERS

SHORT = "0/1 nodes are available: 1 cannot allocate all claims."
WAITING = f"{SHORT} preemption: not eligible due to devices that are being given back on the nominated node."
UPSTREAM = (
    f"{SHORT} still not schedulable, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
)


class Yard(SchedulerHarness):
    """Nodes with devices `d0`, `d1` …, and pods that have them."""

    def __init__(
        self, devices: int = 1, *, nodes: tuple[str, ...] = ("n1",), config: Configuration | None = None
    ) -> None:
        super().__init__(config)
        self.version = 1
        self.writer.on_claim_written = self._written
        self.tried: list[str] = []
        """Pods in the order in which they were tried."""
        self._attempt = self.parts.loop._cycle.attempt
        self.parts.loop._cycle.attempt = self._noted  # type: ignore[method-assign]
        self.show(a_device_class("gpu"))
        for name in nodes:
            self.node(name)
            self.show(a_slice(name, "drv", *(a_device(f"d{at}").attr("drv/at", at) for at in range(devices))))

    def show(self, *builders: Any) -> None:
        for thing in stored(*builders):
            thing(self)

    def _noted(self, pod: PodInfo, attempts: int, consultation: Consultation | None = None) -> Any:
        self.tried.append(pod.pod.metadata.name)
        return self._attempt(pod, attempts, consultation)

    def _written(self, _what: str, claim: ResourceClaim) -> None:
        """The watch shows what we write."""
        self.version = max(self.version, int(claim.metadata.resource_version))
        before = self.cluster.devices.claims.get(claim.key)
        self.parts.inbox.put(lambda: self.parts.intake.apply("ResourceClaim", [Delta(before, claim)]))

    def claim(self, name: str, *cel: str, count: int = 1) -> ClaimBuilder:
        """One for this many devices, in its newest version."""
        self.version += 1
        asked = a_claim(name).uid(name).request("r", "gpu", count=count, cel=cel)
        return asked.resource_version(str(self.version))

    def holds(self, name: str, *devices: str, on: str = "n1", users: tuple[str, ...] = ()) -> None:
        """The claim has these devices of a node, and these pods use it."""
        claim = self.claim(name, count=len(devices)).allocated(
            *(a_result("r", f"drv/{on}/{d}") for d in devices), on=on
        )
        for user in users:
            claim = claim.reserved_for(user, f"uid-{user}")
        self.show(claim)

    def frees(self, *names: str) -> None:
        """The claim controller has seen that nobody uses them any more."""
        for name in names:
            self.show(self.claim(name))

    def low(self, name: str, *devices: str, on: str = "n1", priority: int = 0, **more: Any) -> None:
        """A pod of another scheduler with these devices, by a claim of its own name."""
        self.holds(name, *devices, on=on, users=(name,))
        self.uses(name, name, on=on, priority=priority, **OTHERS, **more)

    def uses(self, pod: str, *claims: str, **more: Any) -> None:
        """A pod with these claims."""
        self.pod(pod, resourceClaims=[{"name": name, "resourceClaimName": name} for name in claims], **more)

    def comes(self, name: str = "p", *cel: str, count: int = 1, priority: int = 10, **more: Any) -> None:
        """A pod of ours wants devices."""
        self.show(self.claim(f"c-{name}", *cel, count=count))
        self.uses(name, f"c-{name}", priority=priority, **more)

    def shows_nomination(self, name: str = "p", node: str = "n1", priority: int = 10) -> None:
        """What was written about the pod comes back by the watch."""
        self.uses(name, f"c-{name}", priority=priority, nominated=node)

    def devices_of(self, name: str = "p") -> list[str]:
        """What has been written into the pod's claim."""
        claim: Any = self.writer.resource_claims[f"default/c-{name}"]
        return [each.device for each in claim.status.allocation.devices.results]

    async def tries_again(self) -> None:
        """Something happens that wakes the pods which wait for devices, and their back-off ends."""
        self.version += 1
        self.node("n1", labels={"version": str(self.version)})
        await self.later(30)


def at_once(yard: Yard) -> None:
    """Victims stop in no time, and the watch says so."""
    yard.writer.on_delete = evicting.at_once(yard)
