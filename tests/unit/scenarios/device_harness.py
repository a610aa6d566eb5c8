"""A scheduler with nodes, devices, and pods that use or request them."""

from __future__ import annotations

from typing import Any

from scheduler.api.decode import Delta
from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.config.types import Configuration
from scheduler.framework.extender import Consultation
from scheduler.framework.interface import ALONE, AttemptMode
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows_limits import stored
from tests.unit.scenarios import seen
from tests.unit.scenarios.seen import OTHERS

SHORT = "0/1 nodes are available: 1 cannot allocate all claims."
WAITING = f"{SHORT} preemption: not eligible due to devices that are being given back on the nominated node."
UPSTREAM = (
    f"{SHORT} still not schedulable, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
)


class DeviceHarness(SchedulerHarness):
    """A scheduler with nodes that have the devices `d0`, `d1` …."""

    def __init__(
        self, devices: int = 1, *, nodes: tuple[str, ...] = ("n1",), config: Configuration | None = None
    ) -> None:
        super().__init__(config)
        self.version = 1
        self.writer.on_claim_written = self._written
        self.tried: list[str] = []
        """Pods in the order of their attempts."""
        self._attempt = self.parts.cycle.attempt
        self.parts.cycle.attempt = self._noted  # type: ignore[method-assign]
        self.show(a_device_class("gpu"))
        for name in nodes:
            self.node(name)
            self.show(a_slice(name, "drv", *(a_device(f"d{at}").attr("drv/at", at) for at in range(devices))))

    def show(self, *builders: Any) -> None:
        for thing in stored(*builders):
            thing(self)

    def _noted(
        self, pod: PodInfo, attempts: int, consultation: Consultation | None = None, *, mode: AttemptMode = ALONE
    ) -> Any:
        self.tried.append(pod.pod.metadata.name)
        return self._attempt(pod, attempts, consultation, mode=mode)

    def _written(self, _what: str, claim: ResourceClaim) -> None:
        """The watch shows each write."""
        self.version = max(self.version, int(claim.metadata.resource_version))
        before = self.cluster.devices.claims.get(claim.key)
        self.parts.inbox.put(lambda: self.parts.event_handlers.apply("ResourceClaim", [Delta(before, claim)]))

    def claim(self, name: str, *cel: str, count: int = 1) -> ClaimBuilder:
        """Return a claim for this many devices, in its newest version."""
        self.version += 1
        asked = a_claim(name).uid(name).request("r", "gpu", count=count, cel=cel)
        return asked.resource_version(str(self.version))

    def holds(self, name: str, *devices: str, on: str = "n1", users: tuple[str, ...] = ()) -> None:
        """Show a claim that is allocated these devices of a node and reserved for these pods."""
        claim = self.claim(name, count=len(devices)).allocated(
            *(a_result("r", f"drv/{on}/{d}") for d in devices), on=on
        )
        for user in users:
            claim = claim.reserved_for(user, f"uid-{user}")
        self.show(claim)

    def frees(self, *names: str) -> None:
        """Deallocate the claims, as the claim controller does."""
        for name in names:
            self.show(self.claim(name))

    def low(self, name: str, *devices: str, on: str = "n1", priority: int = 0, **more: Any) -> None:
        """Show a pod of another scheduler with these devices, by a claim of the pod's name."""
        self.holds(name, *devices, on=on, users=(name,))
        self.uses(name, name, on=on, priority=priority, **OTHERS, **more)

    def uses(self, pod: str, *claims: str, **more: Any) -> None:
        """Show a pod with these claims."""
        self.pod(pod, resourceClaims=[{"name": name, "resourceClaimName": name} for name in claims], **more)

    def comes(self, name: str = "p", *cel: str, count: int = 1, priority: int = 10, **more: Any) -> None:
        """Show a pod of ours that requests devices."""
        self.show(self.claim(f"c-{name}", *cel, count=count))
        self.uses(name, f"c-{name}", priority=priority, **more)

    def shows_nomination(self, name: str = "p", node: str = "n1", priority: int = 10) -> None:
        self.uses(name, f"c-{name}", priority=priority, nominated=node)

    def devices_of(self, name: str = "p") -> list[str]:
        """Return the devices allocated to the pod's claim."""
        claim: Any = self.writer.resource_claims[f"default/c-{name}"]
        return [each.device for each in claim.status.allocation.devices.results]

    async def tries_again(self) -> None:
        """Wake the pods that wait for devices, and let their back-off end."""
        self.version += 1
        self.node("n1", labels={"version": str(self.version)})
        await self.later(30)


def at_once(cluster: DeviceHarness) -> None:
    """Let the watch show at once that victims are gone."""
    cluster.writer.on_delete = seen.at_once(cluster)
