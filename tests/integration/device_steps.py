"""Steps of histories that change devices, claims for devices, and drivers.

Each node has GPUs, devices that become ready late, one device that is partitioned by counters and one that is shared. Two more are network
devices: any node can use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer
from simulator.builders.claims import ClaimBuilder, ClaimTemplateBuilder, a_claim, a_claim_template
from simulator.builders.core import PodBuilder
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.actors.dra_driver import Preparation, PublishingDriver
from tests.actors.mortal import MortalClaimController
from tests.integration.daemon_laws import Object
from tests.integration.device_laws import Bookings, entries_of
from tests.integration.other_allocator import OtherAllocator
from tests.integration.pod_steps import NODES, THEIRS
from tests.integration.volume_steps import VolumeSteps
from tests.support.deviceinvariants import (
    capacity_overdrawn,
    counters_overdrawn,
    devices_taken_twice,
    out_of_reach,
    reserved_unallocated,
)

GPU, SLOW, PART, MEMORY, NET = (f"{name}.example" for name in ("gpu", "slow", "part", "memory", "net"))
DRIVERS: Final = (GPU, SLOW, PART, MEMORY, NET)
DEVICE_CLASSES: Final = tuple(driver.removesuffix(".example") for driver in DRIVERS)
DEVICE_CLAIMS: Final = "resourceclaims"
GPUS: Final = 3
_SIZES: Final = (4, 2, 2, 1, 1, 1)
"""Parts of a partitionable device of four units: any of them can be allocated together, as long as four units suffice."""
_SHARED_UNITS: Final = 8
"""The capacity of a shared device."""
B = TypeVar("B", ClaimBuilder, ClaimTemplateBuilder)


class DeviceSteps(VolumeSteps):
    """Devices, claims for devices, and drivers. A want is `<class>-<amount>`: see `a_want`."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self._answers: list[str | None] = []
        self.bookings = Bookings(server, frozenset())

    def install_devices(self, clock: Clock) -> None:
        """Create classes and slices, and the controllers, which act once they are entered."""
        server = self.server
        for name in DEVICE_CLASSES:
            self.add_class(name)
        self.drivers = {
            name: PublishingDriver(server, name, clock=clock, delay_s=1.5, slice_delay_s=0.4, fault=self._answer)
            for name in DRIVERS
        }
        self.claim_controller = MortalClaimController(server, clock=clock, delay_s=0.3, releases_after_s=0.5)
        self.other_allocator = OtherAllocator(
            server, clock=clock, scheduler_name=THEIRS, drivers={"gpu": GPU, "net": NET}, writes_after_s=1.5
        )
        self.bookings = Bookings(server, self.other_allocator.allocated)
        self.actors += [self.claim_controller, *self.drivers.values(), self.other_allocator]
        for name in NODES:
            self.publish(name, GPUS)

    # -- drivers ---------------------------------------------------------------------------------------------------------

    def publish(self, name: str, gpus: int, generation: int = 0) -> None:
        """Publish all pools of a node, and the network's, with this many GPUs."""
        on = [a_slice(name, GPU, *(a_device(f"g{at}") for at in range(first, gpus, 2))) for first in range(2)]
        self.drivers[GPU].publish(*on, generation=generation)
        slow = (a_device(f"s{at}").binding("ready").binding_failure("failed") for at in range(2))
        self.drivers[SLOW].publish(a_slice(name, SLOW, *slow), generation=generation)
        parts = (
            a_device(f"p{at}").attr("size", size).consumes("whole", {"units": str(size)})
            for at, size in enumerate(_SIZES)
        )
        whole = a_slice(name, PART).counters("whole", {"units": "4"})
        self.drivers[PART].publish(whole, a_slice(name, PART, *parts), generation=generation)
        shared = a_device("m").shared().cap("share", str(_SHARED_UNITS))
        self.drivers[MEMORY].publish(a_slice(name, MEMORY, shared), generation=generation)
        links = a_slice("net", NET, *(a_device(f"l{at}") for at in range(2))).everywhere()
        self.drivers[NET].publish(links, generation=generation if name == "n1" else 0)

    def republish(self, node_name: str, gpus: int) -> None:
        """Publish a new generation slice by slice: in between the pool is not complete."""
        newest = max((o["spec"]["pool"]["generation"] for o in self.server.objects("resourceslices")), default=0)
        self.publish(node_name, gpus, newest + 1)

    def withdraw(self, driver: str, node_name: str) -> None:
        self.drivers[driver].withdraw("net" if driver == NET else node_name)

    def stall(self, driver: str, slice_count: int) -> None:
        """Let it publish this many slices more, until drivers are revived."""
        self.drivers[driver].stall_after(slice_count)

    def kill_driver(self, driver: str) -> None:
        self.drivers[driver].die()

    def revive_drivers(self) -> None:
        """Let all drivers work without faults; devices without an answer get one."""
        self._answers.clear()
        for driver in self.drivers.values():
            driver.go_on()
            driver.revive()

    def answer(self, words: str | None, times: int) -> None:
        """Let the next devices that a pod waits for fail, or (None) never become ready."""
        self._answers += [words] * times

    def _answer(self, _: Preparation) -> str | None:
        return self._answers.pop(0) if self._answers else ""

    def add_class(self, name: str) -> None:
        self._create("deviceclasses", a_device_class(name, f"device.driver == '{name}.example'"))

    def delete_class(self, name: str) -> None:
        if any(obj["metadata"]["name"] == name for obj in self.server.objects("deviceclasses")):
            self.server.delete("deviceclasses", name)

    def repair_devices(self) -> None:
        """Let drivers and the claim controller work without faults, and restore the classes."""
        for name in DEVICE_CLASSES:
            self.add_class(name)
        self.revive_drivers()
        self.claim_controller.loses = 0
        self.claim_controller.look_again()

    # -- claims ----------------------------------------------------------------------------------------------------------

    def with_devices(self, built: PodBuilder, wants: Sequence[str]) -> PodBuilder:
        """Return the pod with a claim for each want. All pods share the claim of a want that ends with `+`."""
        for at, want in enumerate(dict.fromkeys(wants)):
            if want.endswith("+"):
                self.add_device_claim(want)
                built = built.claim(f"e{at}", _shared_name(want))
            else:
                self._create("resourceclaimtemplates", a_want(a_claim_template(want), want))
                built = built.claim(f"e{at}", template=want)
        return built

    def add_device_claim(self, want: str) -> None:
        self._create(DEVICE_CLAIMS, a_want(a_claim(_shared_name(want)), want.removesuffix("+")))

    def add_missing_device_claims(self) -> None:
        """Create the shared claims that waiting pods name and that do not exist."""
        for waiting in self._waiting():
            for name in entries_of(waiting):
                if name.startswith("shared-"):
                    self.add_device_claim(f"{name.removeprefix('shared-')}+")

    def delete_device_claim(self, n: int) -> None:
        """Delete a claim, which stays while a pod has reserved it."""
        for name in self._picked(DEVICE_CLAIMS, n):
            users = (obj for obj in self.server.objects("pods") if name in entries_of(obj))
            self._robbed.update(obj["metadata"]["uid"] for obj in users)
            self.server.delete(DEVICE_CLAIMS, name)

    def label_device_claims(self, value: str) -> None:
        for claim in self.server.list(DEVICE_CLAIMS):
            patch = {"metadata": {"labels": {"example.com/n": value}}}
            self.server.patch(DEVICE_CLAIMS, claim["metadata"]["name"], patch)

    def lose_names(self, times: int) -> None:
        """Let the claim controller stop this often before it writes the names of a pod's claims to its status."""
        self.claim_controller.loses = times

    # -- laws ------------------------------------------------------------------------------------------------------------

    def _broken_by_claim(self, claim: Object) -> list[str]:
        """Return the laws that a claim which was created or changed has broken."""
        broken = [*capacity_overdrawn(self.server), *reserved_unallocated(self.server), *out_of_reach(self.server)]
        self.bookings.written(claim)
        parts = self.drivers[PART]
        if not parts.is_publishing and not parts.is_dead:  # an incomplete pool does not show all its counters
            broken += counters_overdrawn(self.server)
        broken += self.bookings.taken_twice(devices_taken_twice(self.server))
        users = [user["uid"] for user in (claim.get("status") or {}).get("reservedFor") or ()]
        if len(set(users)) < len(users):
            broken.append(f"claim {claim['metadata']['name']} is reserved twice for one pod: {users}")
        return broken


def _shared_name(want: str) -> str:
    return f"shared-{want.removesuffix('+')}"


def a_want(made: B, want: str) -> B:
    """Add a request: `gpu-2` is two devices, `part-2` a part of this size, `memory-3` this share of a device."""
    name, _, amount = want.partition("-")
    if name == "part":
        return made.request("r", name, cel=f"device.attributes['{PART}'].size == {amount}")
    if name == "memory":
        return made.request("r", name, capacity={"share": amount})
    return made.request("r", name, count=int(amount))
