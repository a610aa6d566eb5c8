"""What an eviction made free is kept for the pod that it was for (docs/spec/dra.md §10; switch devicePreemption)."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.plugins.dra.preemption import GIVE_UP_S
from simulator.builders.claims import a_result
from simulator.builders.devices import a_device, a_slice
from tests.unit.scenarios.evicting import OTHERS, evicted, nominations
from tests.unit.scenarios.yard import UPSTREAM, WAITING, Yard, at_once


@pytest.mark.parametrize("priority", [0, 10], ids=["less important", "as important"])
async def test_nobody_slips_in(priority: int) -> None:
    """The device is free and the preemptor backs off still: another pod that is tried before it does not get it."""
    yard = Yard()
    at_once(yard)
    yard.low("v", "d0")
    yard.comes()
    await yard.settle()
    yard.frees("v")
    yard.comes("q", priority=priority)
    await yard.settle()

    assert (yard.tried, yard.writer.binds) == (["p", "q", "p"], [("default/p", "n1")])
    assert (yard.places(), evicted(yard)) == ({"q": "unschedulable"}, ["v"])
    assert yard.message("q") == UPSTREAM


async def test_who_is_more_important_may_take_it() -> None:
    """Then the preemptor looks for another place."""
    yard = Yard()
    at_once(yard)
    yard.low("v", "d0")
    yard.comes()
    await yard.settle()
    yard.frees("v")
    yard.comes("q", priority=11)
    await yard.settle()

    assert yard.writer.binds == [("default/q", "n1")]


async def test_one_is_free_and_one_is_to_come() -> None:
    """Both are for the preemptor, before and after the victim has gone."""
    yard = Yard(2)
    yard.writer.delete_hold = asyncio.Event()
    yard.low("v", "d1")
    yard.comes(count=2)
    await yard.settle()
    yard.comes("q", priority=5)
    await yard.settle()

    assert (evicted(yard), yard.writer.binds) == (["v"], [])

    yard.writer.delete_hold.set()
    yard.gone("v")
    await yard.tries_again()
    assert yard.writer.binds == []

    yard.frees("v")
    await yard.later(30)
    assert yard.writer.binds == [("default/p", "n1")]
    assert sorted(yard.devices_of()) == ["d0", "d1"]


async def test_others_get_what_is_left() -> None:
    """A pod that any device will do does not take the one that is kept, though it comes first."""
    yard = Yard(2)
    at_once(yard)
    yard.low("v", "d0")
    yard.comes("p", "device.attributes['drv'].at == 0")
    await yard.settle()
    yard.frees("v")
    yard.comes("q", priority=5)
    await yard.settle()

    assert yard.tried == ["p", "q", "p"]
    assert (yard.devices_of("q"), yard.devices_of("p")) == (["d1"], ["d0"])


@pytest.mark.parametrize("others", [(), ("y",)], ids=["there is no other", "there is another"])
async def test_a_device_that_other_nodes_see_too(others: tuple[str, ...]) -> None:
    """It is kept from pods on all of them."""
    yard = Yard(0, nodes=("n1", "n2"))
    at_once(yard)
    yard.show(a_slice("n1", "net", *(a_device(name) for name in ("x", *others))).everywhere().pool("net").named("net"))
    yard.show(yard.claim("v").allocated(a_result("r", "net/net/x")).reserved_for("v", "uid-v"))
    yard.uses("v", "v", on="n1", **OTHERS)
    for name in others:
        yard.show(yard.claim(name).allocated(a_result("r", f"net/net/{name}")))
    yard.comes()
    await yard.settle()
    assert (evicted(yard), nominations(yard)) == (["v"], ["n1"])

    yard.frees("v", *others)
    yard.comes("q", priority=5)
    await yard.settle()
    await yard.later(30)
    assert yard.tried[:3] == ["p", "q", "p"]
    assert {"default/p": "n1"}.items() <= dict(yard.writer.binds).items()
    assert (yard.places(), len(yard.writer.binds)) == (({}, 2) if others else ({"q": "unschedulable"}, 1))


async def test_two_preemptors_on_one_node() -> None:
    """Each has a victim of its own."""
    yard = Yard(2)
    at_once(yard)
    yard.low("v", "d0", priority=1)
    yard.low("w", "d1", priority=2)
    yard.comes()
    yard.comes("q")
    await yard.settle()

    assert sorted(evicted(yard)) == ["v", "w"]

    yard.frees("v", "w")
    await yard.later(30)
    assert sorted(yard.writer.binds) == [("default/p", "n1"), ("default/q", "n1")]
    assert sorted((*yard.devices_of("p"), *yard.devices_of("q"))) == ["d0", "d1"]


async def test_two_preemptors_for_one_device() -> None:
    """The second finds nobody to evict, and does not get what the first has made free."""
    yard = Yard()
    yard.low("v", "d0")
    yard.comes()
    yard.comes("q")
    await yard.settle()

    assert (evicted(yard), nominations(yard, "q")) == (["v"], [])

    yard.gone("v")
    yard.frees("v")
    await yard.later(30)
    assert [pod for pod, _ in yard.writer.binds] == ["default/p"]


async def test_the_preemptor_is_deleted() -> None:
    """Whoever waited for the device is told that it is to be had."""
    yard = Yard()
    yard.comes(nominated="n1", gates=("wait",))
    yard.comes("q", priority=5)
    await yard.later(30)
    assert yard.places() == {"p": "gated", "q": "unschedulable"}

    yard.gone("p")
    await yard.later(30)
    assert yard.writer.binds == [("default/q", "n1")]


@pytest.mark.parametrize("is_free", [False, True], ids=["its claim still has the device", "the device is free"])
async def test_after_a_restart(*, is_free: bool) -> None:
    """Who is nominated says for whom the device is: a scheduler that has just begun keeps it, and waits for it."""
    yard = Yard()
    if not is_free:
        yard.holds("v", "d0", users=("v",))
    yard.comes(nominated="n1", gates=("wait",))
    yard.comes("q", priority=5)
    yard.low("other", priority=0)
    await yard.settle()
    assert (yard.writer.binds, evicted(yard)) == ([], [])

    yard.shows_nomination()
    await yard.settle()
    if not is_free:
        assert yard.message("p") == WAITING
        yard.frees("v")
    await yard.later(30)
    assert (yard.writer.binds, evicted(yard)) == ([("default/p", "n1")], [])


async def test_a_device_that_is_never_given_back() -> None:
    """Nobody frees the claim of the victim: some time later another one is looked for, and waited for in its turn."""
    yard = Yard(3)
    at_once(yard)
    yard.low("v", "d0", priority=1)
    yard.low("w", "d1", priority=2)
    yard.low("x", "d2", priority=3)
    yard.comes()
    await yard.settle()
    await yard.tries_again()
    assert (evicted(yard), yard.message("p")) == (["v"], WAITING)

    yard.clock.move(GIVE_UP_S)
    await yard.tries_again()
    assert evicted(yard) == ["v", "w"]

    await yard.tries_again()
    assert (evicted(yard), yard.message("p")) == (["v", "w"], WAITING)


async def test_a_victim_that_takes_its_time() -> None:
    """While it ends the preemptor waits, however long, and evicts nobody else."""
    yard = Yard(2)
    yard.low("v", "d0", priority=1)
    yard.low("w", "d1", priority=2)
    yard.comes()
    await yard.settle()
    yard.uses("v", "v", on="n1", priority=1, deleting=True, **OTHERS)
    for _ in range(5):
        yard.clock.move(GIVE_UP_S)
        await yard.tries_again()

    assert (evicted(yard), yard.message("p"), nominations(yard)) == (["v"], WAITING, ["n1"])
