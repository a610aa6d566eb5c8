"""Pods that are evicted for their devices, from the plan to the Binding (docs/spec/dra.md §10; switch devicePreemption).

Upstream does not evict pods for devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulator.builders.claims import a_claim, a_result
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.unit.hints.hint_rows import requesting
from tests.unit.scenarios.device_harness import SHORT, UPSTREAM, WAITING, DeviceHarness
from tests.unit.scenarios.evicting import OTHERS, evicted, found, nominations, ours


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
