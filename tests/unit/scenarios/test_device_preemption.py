"""Pods that are evicted for their devices, which are kept for the preemptor (docs/spec/dra.md §10; switch devicePreemption).

Upstream does not evict pods for devices. Freed devices are kept even if the profile changes in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from scheduler.plugins.dra.preemption import GIVE_UP_S
from scheduler.profiles.reconciler import RequestedProfile
from simulator.builders.claims import a_claim, a_result
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.unit.hints.hint_rows import requesting
from tests.unit.scenarios.device_harness import SHORT, UPSTREAM, WAITING, DeviceHarness, at_once
from tests.unit.scenarios.seen import OTHERS, evicted, found, nominations, ours


async def test_one_pod_has_the_device() -> None:
    """The preemptor waits until the claim of the victim is deallocated."""
    cluster = DeviceHarness()
    cluster.low("v", "d0")
    cluster.comes()
    await cluster.settle()

    assert cluster.message("p") == found("n1", 1, SHORT)
    assert (evicted(cluster), nominations(cluster)) == (["v"], ["n1"])

    cluster.gone("v")
    await cluster.tries_again()
    assert (cluster.message("p"), cluster.places()) == (WAITING, {"p": "unschedulable"})
    assert nominations(cluster) == ["n1"]

    cluster.frees("v")
    await cluster.later(30)
    assert (cluster.writer.binds, evicted(cluster)) == ([("default/p", "n1")], ["v"])
    assert cluster.devices_of() == ["d0"]


@pytest.mark.parametrize("users", [(), ("q",)], ids=["and has no user", "and has a user that waits"])
async def test_a_device_that_is_not_given_back(users: tuple[str, ...]) -> None:
    """A claim of a waiting pod keeps its device, so the preemptor does not wait: the two would wait for each other."""
    cluster = DeviceHarness()
    cluster.holds("c-q", "d0", users=users)
    cluster.uses("q", "c-q", nodeSelector={"is": "not there yet"})
    await cluster.settle()
    cluster.holds("c-q", "d0", users=users)
    cluster.comes(nominated="n1")
    await cluster.settle()

    assert cluster.message("p") == UPSTREAM
    assert evicted(cluster) == []


# -- no victims ------------------------------------------------------------------------------------------------------


def as_important(cluster: DeviceHarness) -> None:
    cluster.low("v", "d0", priority=10)
    cluster.comes()


def user_that_is_no_pod(cluster: DeviceHarness) -> None:
    claim = cluster.claim("s").allocated(a_result("r", "drv/n1/d0"), on="n1").reserved_for("v", "uid-v")
    cluster.show(claim.reserved_for_other("jobs", "j", "uid-j", group="batch"))
    cluster.uses("v", "s", on="n1", **OTHERS)
    cluster.comes()


def user_that_is_unknown(cluster: DeviceHarness) -> None:
    cluster.holds("s", "d0", users=("v", "elsewhere"))
    cluster.uses("v", "s", on="n1", **OTHERS)
    cluster.comes()


@pytest.mark.parametrize("given", [
    pytest.param(as_important, id="its user has equal priority"),
    pytest.param(user_that_is_no_pod, id="its claim has a user that is no pod"),
    pytest.param(user_that_is_unknown, id="its claim has a user that the cache does not have yet"),
])  # fmt: skip
async def test_no_pod_is_evicted_if(given: Callable[[DeviceHarness], None]) -> None:
    """The words are upstream's."""
    cluster = DeviceHarness()
    given(cluster)
    await cluster.settle()

    assert (cluster.message("p"), evicted(cluster), nominations(cluster)) == (UPSTREAM, [], [])


async def test_users_on_two_nodes() -> None:
    """A claim is deallocated once all of its users are gone, and one node has only some of them."""
    cluster = DeviceHarness(nodes=("n1", "n2"))
    cluster.low("a", "d0", priority=10)
    cluster.low("b", "d0", on="n2", priority=10)
    cluster.show(a_slice("n1", "net", a_device("x")).everywhere().pool("all").named("all"))
    cluster.show(
        cluster.claim("s").allocated(a_result("r", "net/all/x")).reserved_for("v", "uid-v").reserved_for("w", "uid-w")
    )
    cluster.uses("v", "s", on="n1", **OTHERS)
    cluster.uses("w", "s", on="n2", **OTHERS)
    cluster.comes("p", "device.driver == 'net'")
    await cluster.settle()

    assert (evicted(cluster), nominations(cluster)) == ([], [])
    assert cluster.message("p").startswith("0/2 nodes are available: 2 cannot allocate all claims.")


@pytest.mark.parametrize("switch", [{"device_preemption": "none"}, {"parity": True}], ids=["none", "parity"])
async def test_switched_off(switch: dict[str, Any]) -> None:
    """As upstream: no pod is evicted for a device."""
    cluster = DeviceHarness(config=ours(**switch))
    cluster.low("v", "d0")
    cluster.comes()
    await cluster.settle()

    assert (cluster.message("p"), evicted(cluster), nominations(cluster)) == (UPSTREAM, [], [])


# -- victims ---------------------------------------------------------------------------------------------------------


async def test_a_part_of_a_device() -> None:
    """Only as many users of a shared device are evicted as needed."""
    cluster = DeviceHarness(0)
    cluster.show(a_slice("n1", "mem", a_device("d").shared().cap("gi", "10")))
    for name, amount in (("v", "6"), ("w", "3")):
        part = a_result("r", "mem/n1/d", share=f"00000000-0000-0000-0000-00000000000{amount}", consumed={"gi": amount})
        cluster.show(cluster.claim(name).allocated(part).reserved_for(name, f"uid-{name}"))
        cluster.uses(name, name, on="n1", **OTHERS)
    cluster.show(a_claim("c-p").uid("c-p").request("r", "gpu", capacity={"gi": "5"}).resource_version("90"))
    cluster.uses("p", "c-p", priority=10)
    await cluster.settle()

    assert evicted(cluster) == ["v"]


async def test_devices_of_extended_resources() -> None:
    cluster = DeviceHarness()
    gpu = {"example.com/gpu": "1"}
    cluster.show(a_device_class("gpu").extended_resource("example.com/gpu").created("2026-01-01T00:00:00Z"))
    cluster.holds("made", "d0", users=("v",))
    cluster.pod("v", on="n1", containers=requesting(**gpu), **OTHERS)
    cluster.pod("p", priority=10, containers=requesting(**gpu))
    await cluster.settle()
    assert (evicted(cluster), nominations(cluster)) == (["v"], ["n1"])

    cluster.gone("v")
    cluster.frees("made")
    cluster.pod("q", priority=5, containers=requesting(**gpu))
    await cluster.settle()
    await cluster.later(30)
    assert (cluster.tried[:3], [pod for pod, _ in cluster.writer.binds]) == (["p", "q", "p"], ["default/p"])


async def test_a_partition() -> None:
    """The preemptor needs a whole card. The user of a partition with the lower priority is evicted."""
    cluster = DeviceHarness(0, nodes=("n1", "n2"))
    for name, priority in (("n1", 5), ("n2", 2)):
        halves = [a_device(f"h{at}").consumes("card", {"units": "1"}) for at in range(2)]
        whole = a_device("whole").consumes("card", {"units": "2"}).attr("drv/whole", value=True)
        cluster.show(a_slice(name, "card", whole, *halves).of(2))
        cluster.show(a_slice(name, "card").of(2).named(f"{name}-counters").counters("card", {"units": "2"}))
        cluster.show(
            cluster.claim(f"c{name}")
            .allocated(a_result("r", f"card/{name}/h1"), on=name)
            .reserved_for(f"v{name}", f"uid-v{name}")
        )
        cluster.uses(f"v{name}", f"c{name}", on=name, priority=priority, **OTHERS)
    cluster.comes("p", "has(device.attributes['drv'].whole)")
    await cluster.settle()

    assert (evicted(cluster), nominations(cluster)) == (["vn2"], ["n2"])


async def preempted(devices: int, *cel: str) -> DeviceHarness:
    """Return a cluster in which a pod `p` has evicted `v`, whose claim has the device `d0` no longer."""
    cluster = DeviceHarness(devices)
    at_once(cluster)
    cluster.low("v", "d0")
    cluster.comes("p", *cel)
    await cluster.settle()
    cluster.frees("v")
    return cluster


@pytest.mark.parametrize("priority", [0, 10], ids=["lower priority", "equal priority"])
async def test_a_free_device_is_kept_while_the_preemptor_backs_off(priority: int) -> None:
    cluster = await preempted(1)
    cluster.comes("q", priority=priority)
    await cluster.settle()

    assert (cluster.tried, cluster.writer.binds) == (["p", "q", "p"], [("default/p", "n1")])
    assert (cluster.places(), evicted(cluster)) == ({"q": "unschedulable"}, ["v"])
    assert cluster.message("q") == UPSTREAM


async def test_a_free_device_and_one_of_a_victim_are_both_kept() -> None:
    cluster = DeviceHarness(2)
    cluster.writer.delete_hold = asyncio.Event()
    cluster.low("v", "d1")
    cluster.comes(count=2)
    await cluster.settle()
    cluster.comes("q", priority=5)
    await cluster.settle()

    assert (evicted(cluster), cluster.writer.binds) == (["v"], [])

    cluster.writer.delete_hold.set()
    cluster.gone("v")
    await cluster.tries_again()
    assert cluster.writer.binds == []

    cluster.frees("v")
    await cluster.later(30)
    assert cluster.writer.binds == [("default/p", "n1")]
    assert sorted(cluster.devices_of()) == ["d0", "d1"]


async def test_other_pods_get_the_remaining_devices() -> None:
    cluster = await preempted(2, "device.attributes['drv'].at == 0")
    cluster.comes("q", priority=5)
    await cluster.settle()

    assert cluster.tried == ["p", "q", "p"]
    assert (cluster.devices_of("q"), cluster.devices_of("p")) == (["d1"], ["d0"])


@pytest.mark.parametrize("further", [(), ("y",)], ids=["it is the only one", "there is another"])
async def test_a_device_of_several_nodes_is_kept_on_all_of_them(further: tuple[str, ...]) -> None:
    cluster = DeviceHarness(0, nodes=("n1", "n2"))
    at_once(cluster)
    cluster.show(
        a_slice("n1", "net", *(a_device(name) for name in ("x", *further))).everywhere().pool("net").named("net")
    )
    cluster.show(cluster.claim("v").allocated(a_result("r", "net/net/x")).reserved_for("v", "uid-v"))
    cluster.uses("v", "v", on="n1", **OTHERS)
    for name in further:
        cluster.show(cluster.claim(name).allocated(a_result("r", f"net/net/{name}")))
    cluster.comes()
    await cluster.settle()
    assert (evicted(cluster), nominations(cluster)) == (["v"], ["n1"])

    cluster.frees("v", *further)
    cluster.comes("q", priority=5)
    await cluster.settle()
    await cluster.later(30)
    assert cluster.tried[:3] == ["p", "q", "p"]
    assert {"default/p": "n1"}.items() <= dict(cluster.writer.binds).items()
    assert (cluster.places(), len(cluster.writer.binds)) == (({}, 2) if further else ({"q": "unschedulable"}, 1))


async def test_two_preemptors_on_one_node() -> None:
    cluster = DeviceHarness(2)
    at_once(cluster)
    cluster.low("v", "d0", priority=1)
    cluster.low("w", "d1", priority=2)
    cluster.comes()
    cluster.comes("q")
    await cluster.settle()

    assert sorted(evicted(cluster)) == ["v", "w"]

    cluster.frees("v", "w")
    await cluster.later(30)
    assert sorted(cluster.writer.binds) == [("default/p", "n1"), ("default/q", "n1")]
    assert sorted((*cluster.devices_of("p"), *cluster.devices_of("q"))) == ["d0", "d1"]


async def test_two_preemptors_for_one_device() -> None:
    cluster = DeviceHarness()
    cluster.low("v", "d0")
    cluster.comes()
    cluster.comes("q")
    await cluster.settle()

    assert (evicted(cluster), nominations(cluster, "q")) == (["v"], [])

    cluster.gone("v")
    cluster.frees("v")
    await cluster.later(30)
    assert [pod for pod, _ in cluster.writer.binds] == ["default/p"]


async def test_the_end_of_the_preemptor_wakes_other_pods() -> None:
    cluster = DeviceHarness()
    cluster.comes(nominated="n1", gates=("wait",))
    cluster.comes("q", priority=5)
    await cluster.later(30)
    assert cluster.places() == {"p": "gated", "q": "unschedulable"}

    cluster.gone("p")
    await cluster.later(30)
    assert cluster.writer.binds == [("default/q", "n1")]


@pytest.mark.parametrize("is_free", [False, True], ids=["its claim still has the device", "the device is free"])
async def test_after_a_restart_the_nomination_keeps_the_device(*, is_free: bool) -> None:
    cluster = DeviceHarness()
    if not is_free:
        cluster.holds("v", "d0", users=("v",))
    cluster.comes(nominated="n1", gates=("wait",))
    cluster.comes("q", priority=5)
    cluster.low("other", priority=0)
    await cluster.settle()
    assert (cluster.writer.binds, evicted(cluster)) == ([], [])

    cluster.shows_nomination()
    await cluster.settle()
    if not is_free:
        assert cluster.message("p") == WAITING
        cluster.frees("v")
    await cluster.later(30)
    assert (cluster.writer.binds, evicted(cluster)) == ([("default/p", "n1")], [])


async def test_a_device_that_is_never_deallocated() -> None:
    """After some time another victim is evicted."""
    cluster = DeviceHarness(3)
    at_once(cluster)
    cluster.low("v", "d0", priority=1)
    cluster.low("w", "d1", priority=2)
    cluster.low("x", "d2", priority=3)
    cluster.comes()
    await cluster.settle()
    await cluster.tries_again()
    assert (evicted(cluster), cluster.message("p")) == (["v"], WAITING)

    cluster.clock.move(GIVE_UP_S)
    await cluster.tries_again()
    assert evicted(cluster) == ["v", "w"]

    await cluster.tries_again()
    assert (evicted(cluster), cluster.message("p")) == (["v", "w"], WAITING)


async def test_the_preemptor_waits_for_a_terminating_victim() -> None:
    cluster = DeviceHarness(2)
    cluster.low("v", "d0", priority=1)
    cluster.low("w", "d1", priority=2)
    cluster.comes()
    await cluster.settle()
    cluster.uses("v", "v", on="n1", priority=1, deleting=True, **OTHERS)
    for _ in range(5):
        cluster.clock.move(GIVE_UP_S)
        await cluster.tries_again()

    assert (evicted(cluster), cluster.message("p"), nominations(cluster)) == (["v"], WAITING, ["n1"])


# -- profiles that change --------------------------------------------------------------------------------------------


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
