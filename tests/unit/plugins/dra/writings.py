"""Build a pod with reserved devices, and the writes of other clients, for the tests of written claims."""

from __future__ import annotations

from typing import Any

from scheduler.api.resource_v1 import FINALIZER, AllocationResult, ConsumerReference
from scheduler.config.args import KubestowArgs
from scheduler.core.errors import Conflict, TooManyRequests
from simulator.builders.claims import a_claim
from simulator.builders.core import Builder
from tests.unit.plugins.dra.served import ASKING, HELD, Served, Under, using
from tests.unit.plugins.dra.world import FIRST_FIT

CHANGED = Conflict("the object has been modified")
BUSY = TooManyRequests("busy", retry_after_s=3.0)
PROTECTED = ASKING.finalizer(FINALIZER)
OTHER = a_claim("o").request("r", "A")
DONE = ["protect c", "allocate c"]
BLIND = KubestowArgs(device_scoring="firstFit", device_double_check="none")


def begun(*things: Builder[Any], ours: KubestowArgs = FIRST_FIT) -> tuple[Served, Under]:
    """Return a world and a pod with claim c, whose devices are reserved on n1."""
    world = Served(*(things or (ASKING,)), ours=ours)
    return world, world.reserved(using("c"))


def taken_by_other(world: Served) -> None:
    """Allocate d0 of n1 to claim o, as another scheduler does."""
    world.rewrite("o", allocation=_d0(), reserved_for=(ConsumerReference("", "pods", "x", "x"),))


def _d0() -> AllocationResult:
    allocation = HELD.typed().status.allocation
    assert allocation is not None
    return allocation


def touched(world: Served) -> None:
    """Write claim c as another client does, without a change to its devices."""
    world.rewrite("c")
