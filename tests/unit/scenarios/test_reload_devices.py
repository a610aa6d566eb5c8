"""Profiles that change while devices are on their way from one pod to another."""

from __future__ import annotations

from functools import partial

from scheduler.plugins.dra.preemption import GIVE_UP_S
from scheduler.profiles.reconciler import RequestedProfile
from tests.unit.scenarios.evicting import evicted, nominations
from tests.unit.scenarios.yard import WAITING, Yard, at_once


def changes(yard: Yard, generation: int) -> None:
    """Other plugins decide from now on, with other weights."""
    wish = RequestedProfile("u", generation, {"percentageOfNodesToScore": generation})
    yard.parts.inbox.put(partial(yard.parts.reloading.reconcile, {"kubestow": wish}))


async def test_changes_do_not_prolong_the_wait_for_a_device_that_is_never_given_back() -> None:
    """How long is counted over all of them: else a preemptor waits for ever if they come often."""
    yard = Yard(2)
    at_once(yard)
    yard.low("v", "d0", priority=1)
    yard.low("w", "d1", priority=2)
    yard.comes()
    await yard.settle()
    await yard.tries_again()
    assert (evicted(yard), yard.message("p")) == (["v"], WAITING)

    yard.clock.move(GIVE_UP_S / 2)
    changes(yard, 1)
    await yard.settle()
    assert (evicted(yard), yard.message("p")) == (["v"], WAITING)

    yard.clock.move(GIVE_UP_S / 2)
    changes(yard, 2)
    await yard.settle()
    assert evicted(yard) == ["v", "w"]


async def test_a_device_that_is_kept_is_kept_by_the_new_plugins() -> None:
    """It follows from the nomination, which outlives them: a lesser pod does not get it meanwhile."""
    yard = Yard()
    yard.low("v", "d0")
    yard.comes()
    await yard.settle()
    assert (evicted(yard), nominations(yard)) == (["v"], ["n1"])

    changes(yard, 1)
    yard.comes("q", priority=5)
    await yard.settle()
    yard.frees("v")
    await yard.later(30)

    assert yard.writer.binds == [("default/p", "n1")]
