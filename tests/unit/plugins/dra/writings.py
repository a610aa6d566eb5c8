"""What the tests of written claims share: a pod whose devices are reserved, and what others do meanwhile."""

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
    """A pod with claim c, its devices reserved on n1."""
    world = Served(*(things or (ASKING,)), ours=ours)
    return world, world.reserved(using("c"))


def taken_by_other(world: Served) -> None:
    """Another scheduler gives d0 of n1 to claim o."""
    world.rewrite("o", allocation=_d0(), reserved_for=(ConsumerReference("", "pods", "x", "x"),))


def _d0() -> AllocationResult:
    allocation = HELD.typed().status.allocation
    assert allocation is not None
    return allocation


def touched(world: Served) -> None:
    """Somebody writes something into claim c that is none of ours."""
    world.rewrite("c")
