"""An allocation in flight that is not written is an event for pods that wait for devices (docs/spec/dra.md §1.3, §7)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster_events import ClusterEvent
from scheduler.eventhandlers.devices import DEVICES_GIVEN_BACK, DeviceHandlers
from scheduler.framework.preemption_state import Preempting
from simulator.builders.claims import a_claim, a_result
from tests.unit.eventhandlers.deviceworld import CLAIM, D0, HELD, World, at, broken


def given_back(world: World) -> list[tuple[Any, Any]]:
    """Return the events of this turn: the planned claim and the current one."""
    moved: list[tuple[ClusterEvent, Any, Any]] = []
    intake = DeviceHandlers(world.cluster, lambda event, old, new: moved.append((event, old, new)), Preempting())
    intake.tick()
    return [(old, new) for event, old, new in moved if event == DEVICES_GIVEN_BACK]


@pytest.mark.parametrize(("becomes", "is_event"), [
    pytest.param(at(CLAIM, 1), True, id="it was never written"),
    pytest.param(at(HELD, 2), False, id="it was written"),
    pytest.param(at(HELD.allocated_at("2026-01-01T00:00:00Z").reserved_for("p"), 2), False, id="with more to it"),
    pytest.param(None, True, id="the claim is gone"),
    pytest.param(a_claim("c").uid("another").resource_version("2").typed(), True, id="another has its name"),
])  # fmt: skip
def test_the_end_of_an_allocation_in_flight_is_an_event_unless_it_was_written(becomes: Any, is_event: bool) -> None:
    """There is one event, after the last pod that shares the claim has given up."""
    world = World()
    first, plan = at(CLAIM, 1), at(HELD, 1)
    world.feed("ResourceClaim", None, first)
    world.devices.claims.signal("c", plan)
    world.devices.claims.signal("c", plan)
    if becomes != first:
        world.feed("ResourceClaim", first, becomes)

    world.devices.claims.drop_pending("c")
    assert [] == given_back(world)
    world.devices.claims.drop_pending("c")

    assert ([(plan, becomes)] if is_event else []) == given_back(world)
    assert [] == given_back(world)


def test_an_allocation_of_another_scheduler_is_an_event_at_once() -> None:
    """The claim has another device, so ours is free. There is one event."""
    world = World()
    first, plan, theirs = at(CLAIM, 1), at(HELD, 1), at(CLAIM.allocated(a_result("r", "drv/n1/d1")), 2)
    world.feed("ResourceClaim", None, first)
    world.devices.claims.signal("c", plan)
    world.feed("ResourceClaim", first, theirs)

    assert not world.devices.use.is_used(D0)
    assert [(plan, theirs)] == given_back(world)
    world.feed("ResourceClaim", theirs, at(CLAIM.allocated(a_result("r", "drv/n1/d1")).reserved_for("x"), 3))
    world.devices.claims.drop_pending("c")
    assert [] == given_back(world)


def test_an_allocation_of_another_scheduler_before_the_answer_to_our_create() -> None:
    """Another scheduler allocates the claim before the answer to our create arrives."""
    world = World()
    first, plan, theirs = at(CLAIM, 1), at(HELD, 1), at(CLAIM.allocated(a_result("r", "drv/n1/d1")), 2)
    world.devices.claims.signal("temporary", plan)
    world.feed("ResourceClaim", None, first)
    world.feed("ResourceClaim", first, theirs)
    assert [] == given_back(world)
    world.devices.claims.adopt("temporary", first)

    assert not world.devices.use.is_used(D0)
    assert [theirs] == [now for _, now in given_back(world)]
    world.devices.claims.drop_pending("c")
    assert [] == given_back(world)


def test_the_end_of_an_allocation_without_devices_is_an_event() -> None:
    """Another pod that shares the claim may allocate it now."""
    world = World()
    plan = at(CLAIM.allocated(a_result("r", str(D0), admin=True)), 1)
    world.feed("ResourceClaim", None, at(CLAIM, 1))
    world.devices.claims.signal("c", plan)
    world.devices.claims.drop_pending("c")

    assert [(plan, at(CLAIM, 1))] == given_back(world)


def test_an_allocation_that_another_claim_takes_over_is_no_event() -> None:
    """That of a claim which had to be made first (§3.12)."""
    world = World()
    world.devices.claims.signal("temporary", at(HELD.uid(""), 0))
    world.feed("ResourceClaim", None, made := at(CLAIM, 1))
    world.devices.claims.adopt("temporary", made)
    world.devices.claims.drop_pending("temporary")

    assert ([], True) == (given_back(world), world.devices.use.is_exclusive(D0))


@pytest.mark.parametrize(("later", "is_event"), [
    pytest.param(None, True, id="it is gone"),
    pytest.param(at(CLAIM, 3), True, id="it has it no more"),
    pytest.param(at(HELD, 3), False, id="it still has it"),
])  # fmt: skip
def test_what_a_claim_kept_while_it_could_not_be_read(later: Any, is_event: bool) -> None:
    """The device was not free until now."""
    world = World()
    seen, bad = at(HELD, 1), broken("ResourceClaim", at(HELD, 2))
    world.feed("ResourceClaim", None, seen)
    world.feed("ResourceClaim", seen, bad)
    assert [] == given_back(world)
    world.feed("ResourceClaim", bad, later)

    assert ([(seen, later)] if is_event else []) == given_back(world)


def test_retry_waiting_is_an_event_of_the_claim() -> None:
    """The event is that of a new claim. A claim that is gone has none."""
    world = World()
    world.feed("ResourceClaim", None, claim := at(HELD, 1))
    world.devices.claims.retry_waiting("default/c")
    world.devices.claims.retry_waiting("default/gone")

    assert [(None, claim)] == given_back(world)
