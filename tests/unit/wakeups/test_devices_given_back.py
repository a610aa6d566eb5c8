"""What we had planned to give to claims and did not: who waits for devices is told (docs/spec/dra.md §1.3, §7)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster_events import ClusterEvent
from scheduler.eventhandlers.devices import DEVICES_GIVEN_BACK, DeviceHandlers
from scheduler.framework.preemption_state import Preempting
from simulator.builders.claims import a_claim, a_result
from tests.unit.eventhandlers.deviceworld import CLAIM, D0, HELD, World, at, broken


def given_back(world: World) -> list[tuple[Any, Any]]:
    """Each that was told so in this turn: as it was planned, and as it is."""
    moved: list[tuple[ClusterEvent, Any, Any]] = []
    intake = DeviceHandlers(world.cluster, lambda event, old, new: moved.append((event, old, new)), Preempting())
    intake.tick()
    return [(old, new) for event, old, new in moved if event == DEVICES_GIVEN_BACK]


@pytest.mark.parametrize(("becomes", "is_told"), [
    pytest.param(at(CLAIM, 1), True, id="it was never written"),
    pytest.param(at(HELD, 2), False, id="it was written"),
    pytest.param(at(HELD.allocated_at("2026-01-01T00:00:00Z").reserved_for("p"), 2), False, id="with more to it"),
    pytest.param(None, True, id="the claim is gone"),
    pytest.param(a_claim("c").uid("another").resource_version("2").typed(), True, id="another has its name"),
])  # fmt: skip
def test_what_is_in_flight_no_more_is_told_unless_it_was_written(becomes: Any, is_told: bool) -> None:
    """Once, when the last who shared it has given up."""
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

    assert ([(plan, becomes)] if is_told else []) == given_back(world)
    assert [] == given_back(world)


def test_what_others_overtook_is_told_at_once() -> None:
    """They gave the claim another device: ours is not in use from then on. Told once."""
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


def test_what_others_overtook_before_we_knew_whose_it_was_is_told() -> None:
    """The claim is made in our name, and allocated by others before we hear that it was made."""
    world = World()
    first, plan, theirs = at(CLAIM, 1), at(HELD, 1), at(CLAIM.allocated(a_result("r", "drv/n1/d1")), 2)
    world.devices.claims.signal("one of its own", plan)
    world.feed("ResourceClaim", None, first)
    world.feed("ResourceClaim", first, theirs)
    assert [] == given_back(world)
    world.devices.claims.adopt("one of its own", first)

    assert not world.devices.use.is_used(D0)
    assert [theirs] == [now for _, now in given_back(world)]
    world.devices.claims.drop_pending("c")
    assert [] == given_back(world)


def test_a_plan_that_takes_no_device_is_told_too() -> None:
    """Whoever shares the claim may allocate it now."""
    world = World()
    plan = at(CLAIM.allocated(a_result("r", str(D0), admin=True)), 1)
    world.feed("ResourceClaim", None, at(CLAIM, 1))
    world.devices.claims.signal("c", plan)
    world.devices.claims.drop_pending("c")

    assert [(plan, at(CLAIM, 1))] == given_back(world)


def test_a_plan_that_goes_on_as_another_claim_is_not_told() -> None:
    """That of a claim which had to be made first (§3.12)."""
    world = World()
    world.devices.claims.signal("temporary", at(HELD.uid(""), 0))
    world.feed("ResourceClaim", None, made := at(CLAIM, 1))
    world.devices.claims.adopt("temporary", made)
    world.devices.claims.drop_pending("temporary")

    assert ([], True) == (given_back(world), world.devices.use.is_exclusive(D0))


@pytest.mark.parametrize(("later", "is_told"), [
    pytest.param(None, True, id="it is gone"),
    pytest.param(at(CLAIM, 3), True, id="it has it no more"),
    pytest.param(at(HELD, 3), False, id="it still has it"),
])  # fmt: skip
def test_what_a_claim_kept_while_it_could_not_be_read(later: Any, is_told: bool) -> None:
    """Nobody else could get it until now."""
    world = World()
    seen, bad = at(HELD, 1), broken("ResourceClaim", at(HELD, 2))
    world.feed("ResourceClaim", None, seen)
    world.feed("ResourceClaim", seen, bad)
    assert [] == given_back(world)
    world.feed("ResourceClaim", bad, later)

    assert ([(seen, later)] if is_told else []) == given_back(world)


def test_a_claim_to_be_asked_about_again() -> None:
    """To whoever waits for it, it is as if it came; one that is gone is nobody's."""
    world = World()
    world.feed("ResourceClaim", None, claim := at(HELD, 1))
    world.devices.claims.retry_waiting("default/c")
    world.devices.claims.retry_waiting("default/gone")

    assert [(None, claim)] == given_back(world)
