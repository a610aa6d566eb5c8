"""The devices of the nodes of a history, their drivers, and what the claims of its pods ask of them.

Each node has GPUs, devices that become ready late, one that is partitioned by counters and one that is shared. Two more are
in the network: any node can use them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final, TypeVar

from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer, Refused
from simulator.builders.claims import ClaimBuilder, ClaimTemplateBuilder, a_claim, a_claim_template
from simulator.builders.core import PodBuilder
from simulator.builders.devices import a_device, a_device_class, a_slice
from simulator.controllers.dra_driver import DRADriver, Preparation
from tests.integration.devicejudging import Bookings
from tests.integration.judging import Object
from tests.support.deviceinvariants import (
    capacity_overdrawn,
    counters_overdrawn,
    devices_taken_twice,
    out_of_reach,
    reserved_unallocated,
)

GPU, SLOW, PART, MEMORY, NET = (f"{name}.example" for name in ("gpu", "slow", "part", "memory", "net"))
DRIVERS: Final = (GPU, SLOW, PART, MEMORY, NET)
CLASSES: Final = tuple(driver.removesuffix(".example") for driver in DRIVERS)
GPUS: Final = 3
SIZES: Final = (4, 2, 2, 1, 1, 1)
"""Of the parts that a device of four can be cut into: any of them, as long as four suffice."""
ROOM: Final = 8
"""What a shared device has to share."""
B = TypeVar("B", ClaimBuilder, ClaimTemplateBuilder)


class NodeDevices:
    """The part of a world that has to do with devices and drivers."""

    server: ApiServer
    drivers: dict[str, DRADriver]
    _answers: list[str | None]

    def install_drivers(self, server: ApiServer, clock: Clock) -> None:
        """Make the device classes and the drivers. The drivers act only once they are among the world's actors."""
        self.server = server
        self._answers = []
        for name in CLASSES:
            self.add_class(name)
        self.drivers = {
            name: DRADriver(server, name, clock=clock, delay_s=1.5, slice_delay_s=0.4, fault=self._answer)
            for name in DRIVERS
        }

    def publish(self, name: str, gpus: int, generation: int = 0) -> None:
        """All pools of a node, and the network's, with so many GPUs."""
        on = [a_slice(name, GPU, *(a_device(f"g{at}") for at in range(first, gpus, 2))) for first in range(2)]
        self.drivers[GPU].publish(*on, generation=generation)
        slow = (a_device(f"s{at}").binding("ready").binding_failure("failed") for at in range(2))
        self.drivers[SLOW].publish(a_slice(name, SLOW, *slow), generation=generation)
        parts = (
            a_device(f"p{at}").attr("size", size).consumes("whole", {"units": str(size)})
            for at, size in enumerate(SIZES)
        )
        whole = a_slice(name, PART).counters("whole", {"units": "4"})
        self.drivers[PART].publish(whole, a_slice(name, PART, *parts), generation=generation)
        shared = a_device("m").shared().cap("room", str(ROOM))
        self.drivers[MEMORY].publish(a_slice(name, MEMORY, shared), generation=generation)
        links = (a_device(f"l{at}") for at in range(2))
        self.drivers[NET].publish(
            a_slice("net", NET, *links).everywhere(), generation=generation if name == "n1" else 0
        )

    def republish(self, node_name: str, gpus: int) -> None:
        """In a new generation, slice by slice: in between the pool is not complete."""
        newest = max((o["spec"]["pool"]["generation"] for o in self.server.objects("resourceslices")), default=0)
        self.publish(node_name, gpus, newest + 1)

    def withdraw(self, driver: str, node_name: str) -> None:
        self.drivers[driver].withdraw("net" if driver == NET else node_name)

    def stall(self, driver: str, slice_count: int) -> None:
        """It publishes so many slices more, until all is well again."""
        self.drivers[driver].stall_after(slice_count)

    def kill_driver(self, driver: str) -> None:
        self.drivers[driver].die()

    def revive_drivers(self) -> None:
        """They say something to whom they said nothing, too."""
        self._answers.clear()
        for driver in self.drivers.values():
            driver.go_on()
            driver.revive()

    def answer(self, words: str | None, times: int) -> None:
        """The next devices that a pod waits for fail, or (None) never become ready."""
        self._answers += [words] * times

    def add_class(self, name: str) -> None:
        """Nothing if it is there."""
        with contextlib.suppress(Refused):
            self.server.create("deviceclasses", a_device_class(name, f"device.driver == '{name}.example'").obj())

    def delete_class(self, name: str) -> None:
        with contextlib.suppress(Refused):
            self.server.delete("deviceclasses", name)

    def with_devices(self, built: PodBuilder, wants: Sequence[str]) -> PodBuilder:
        """The pod with a claim for each want (`a_want`). All pods share the claim of a want that ends with `+`."""
        for at, want in enumerate(dict.fromkeys(wants)):
            if want.endswith("+"):
                self.add_device_claim(want)
                built = built.claim(f"e{at}", claim_name(want))
            else:
                with contextlib.suppress(Refused):
                    self.server.create("resourceclaimtemplates", a_want(a_claim_template(want), want).obj())
                built = built.claim(f"e{at}", template=want)
        return built

    def add_device_claim(self, want: str) -> None:
        """Nothing if there is one."""
        with contextlib.suppress(Refused):
            made = a_want(a_claim(claim_name(want)), want.removesuffix("+"))
            self.server.create("resourceclaims", made.obj())

    def _answer(self, _: Preparation) -> str | None:
        return self._answers.pop(0) if self._answers else ""

    def broken_by_claim(self, claim: Object, bookings: Bookings) -> list[str]:
        """The laws that a claim which came or changed has broken."""
        broken = [*capacity_overdrawn(self.server), *reserved_unallocated(self.server), *out_of_reach(self.server)]
        bookings.written(claim)
        parts = self.drivers[PART]
        if not parts.is_publishing and not parts.is_dead:  # an incomplete pool does not show all its counters
            broken += counters_overdrawn(self.server)
        broken += bookings.taken_twice(devices_taken_twice(self.server))
        users = [user["uid"] for user in (claim.get("status") or {}).get("reservedFor") or ()]
        if len(set(users)) < len(users):
            broken.append(f"claim {claim['metadata']['name']} is reserved twice for one pod: {users}")
        return broken


def claim_name(want: str) -> str:
    """Return the name of the claim that all pods with this want share."""
    return f"shared-{want.removesuffix('+')}"


def a_want(made: B, want: str) -> B:
    """`gpu-2`: two of them; `part-2`: a part of this size; `memory-3`: so much of a shared one."""
    name, _, amount = want.partition("-")
    if name == "part":
        return made.request("r", name, cel=f"device.attributes['{PART}'].size == {amount}")
    if name == "memory":
        return made.request("r", name, capacity={"room": amount})
    return made.request("r", name, count=int(amount))
