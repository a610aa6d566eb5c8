"""Profiles that change while devices of victims are deallocated."""

from __future__ import annotations

from functools import partial

from scheduler.plugins.dra.preemption import GIVE_UP_S
from scheduler.profiles.reconciler import RequestedProfile
from tests.unit.scenarios.device_harness import WAITING, DeviceHarness, at_once
from tests.unit.scenarios.evicting import evicted, nominations


def changes(cluster: DeviceHarness, generation: int) -> None:
    """Replace the profile."""
    wish = RequestedProfile("u", generation, {"percentageOfNodesToScore": generation})
    cluster.parts.inbox.put(partial(cluster.parts.reloading.reconcile, {"kubestow": wish}))


async def test_changes_do_not_prolong_the_wait_for_a_device_that_is_never_deallocated() -> None:
    cluster = DeviceHarness(2)
    at_once(cluster)
    cluster.low("v", "d0", priority=1)
    cluster.low("w", "d1", priority=2)
    cluster.comes()
    await cluster.settle()
    await cluster.tries_again()
    assert (evicted(cluster), cluster.message("p")) == (["v"], WAITING)

    cluster.clock.move(GIVE_UP_S / 2)
    changes(cluster, 1)
    await cluster.settle()
    assert (evicted(cluster), cluster.message("p")) == (["v"], WAITING)

    cluster.clock.move(GIVE_UP_S / 2)
    changes(cluster, 2)
    await cluster.settle()
    assert evicted(cluster) == ["v", "w"]


async def test_the_new_plugins_keep_the_device_of_a_nominated_pod() -> None:
    cluster = DeviceHarness()
    cluster.low("v", "d0")
    cluster.comes()
    await cluster.settle()
    assert (evicted(cluster), nominations(cluster)) == (["v"], ["n1"])

    changes(cluster, 1)
    cluster.comes("q", priority=5)
    await cluster.settle()
    cluster.frees("v")
    await cluster.later(30)

    assert cluster.writer.binds == [("default/p", "n1")]
