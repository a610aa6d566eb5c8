"""Pods that are evicted for their devices, from the plan to the Binding (docs/spec/dra.md §10; switch devicePreemption).

Upstream evicts nobody for devices. What the others do is as in test_preemption.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulator.builders.claims import a_claim, a_result
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.unit.hints.hint_rows import asks
from tests.unit.scenarios.evicting import OTHERS, evicted, found, nominations, ours
from tests.unit.scenarios.yard import SHORT, UPSTREAM, WAITING, Yard


async def test_one_pod_has_the_device() -> None:
    """It is evicted; until its claim has given the device back the preemptor waits, and then it takes it."""
    yard = Yard()
    yard.low("v", "d0")
    yard.comes()
    await yard.settle()

    assert yard.message("p") == found("n1", 1, SHORT)
    assert (evicted(yard), nominations(yard)) == (["v"], ["n1"])

    yard.gone("v")
    await yard.tries_again()
    assert (yard.message("p"), yard.places()) == (WAITING, {"p": "unschedulable"})
    assert nominations(yard) == ["n1"]

    yard.frees("v")
    await yard.later(30)
    assert (yard.writer.binds, evicted(yard)) == ([("default/p", "n1")], ["v"])
    assert yard.devices_of() == ["d0"]


# -- whom it would not help that others die ------------------------------------------------------------------------------


def as_important(yard: Yard) -> None:
    yard.low("v", "d0", priority=10)
    yard.comes()


def user_that_is_no_pod(yard: Yard) -> None:
    claim = yard.claim("s").allocated(a_result("r", "drv/n1/d0"), on="n1").reserved_for("v", "uid-v")
    yard.show(claim.reserved_for_other("jobs", "j", "uid-j", group="batch"))
    yard.uses("v", "s", on="n1", **OTHERS)
    yard.comes()


def user_that_nobody_knows(yard: Yard) -> None:
    yard.holds("s", "d0", users=("v", "elsewhere"))
    yard.uses("v", "s", on="n1", **OTHERS)
    yard.comes()


@pytest.mark.parametrize("given", [
    pytest.param(as_important, id="its user is as important"),
    pytest.param(user_that_is_no_pod, id="its claim has a user that is no pod"),
    pytest.param(user_that_nobody_knows, id="its claim has a user who is bound only just now"),
])  # fmt: skip
async def test_nobody_dies_in_vain(given: Callable[[Yard], None]) -> None:
    """The words are upstream's."""
    yard = Yard()
    given(yard)
    await yard.settle()

    assert (yard.message("p"), evicted(yard), nominations(yard)) == (UPSTREAM, [], [])


async def test_users_on_two_nodes() -> None:
    """A claim is given back only when all of them are gone; those of one node do not suffice."""
    yard = Yard(nodes=("n1", "n2"))
    yard.low("a", "d0", priority=10)
    yard.low("b", "d0", on="n2", priority=10)
    yard.show(a_slice("n1", "net", a_device("x")).everywhere().pool("all").named("all"))
    yard.show(
        yard.claim("s").allocated(a_result("r", "net/all/x")).reserved_for("v", "uid-v").reserved_for("w", "uid-w")
    )
    yard.uses("v", "s", on="n1", **OTHERS)
    yard.uses("w", "s", on="n2", **OTHERS)
    yard.comes("p", "device.driver == 'net'")
    await yard.settle()

    assert (evicted(yard), nominations(yard)) == ([], [])
    assert yard.message("p").startswith("0/2 nodes are available: 2 cannot allocate all claims.")


@pytest.mark.parametrize("switch", [{"device_preemption": "none"}, {"parity": True}], ids=["none", "parity"])
async def test_switched_off(switch: dict[str, Any]) -> None:
    """As upstream: nobody is evicted for a device."""
    yard = Yard(config=ours(**switch))
    yard.low("v", "d0")
    yard.comes()
    await yard.settle()

    assert (yard.message("p"), evicted(yard), nominations(yard)) == (UPSTREAM, [], [])


# -- who dies --------------------------------------------------------------------------------------------------------------


async def test_a_part_of_a_device() -> None:
    """Of those who share it only as many go as take what is wanted."""
    yard = Yard(0)
    yard.show(a_slice("n1", "mem", a_device("d").shared().cap("gi", "10")))
    for name, amount in (("v", "6"), ("w", "3")):
        part = a_result("r", "mem/n1/d", share=f"00000000-0000-0000-0000-00000000000{amount}", consumed={"gi": amount})
        yard.show(yard.claim(name).allocated(part).reserved_for(name, f"uid-{name}"))
        yard.uses(name, name, on="n1", **OTHERS)
    yard.show(a_claim("c-p").uid("c-p").request("r", "gpu", capacity={"gi": "5"}).resource_version("90"))
    yard.uses("p", "c-p", priority=10)
    await yard.settle()

    assert evicted(yard) == ["v"]


async def test_devices_that_stand_in_for_resources() -> None:
    """The claims that schedulers make for extended resources are claims like others."""
    yard = Yard()
    gpu = {"example.com/gpu": "1"}
    yard.show(a_device_class("gpu").extended_resource("example.com/gpu").created("2026-01-01T00:00:00Z"))
    yard.holds("made", "d0", users=("v",))
    yard.pod("v", on="n1", containers=asks(**gpu), **OTHERS)
    yard.pod("p", priority=10, containers=asks(**gpu))
    await yard.settle()
    assert (evicted(yard), nominations(yard)) == (["v"], ["n1"])

    yard.gone("v")
    yard.frees("made")
    yard.pod("q", priority=5, containers=asks(**gpu))
    await yard.settle()
    await yard.later(30)
    assert (yard.tried[:3], [pod for pod, _ in yard.writer.binds]) == (["p", "q", "p"], ["default/p"])


async def test_a_partition() -> None:
    """A whole card is wanted: who has a half of it goes, who has half of another stays."""
    yard = Yard(0, nodes=("n1", "n2"))
    for name, priority in (("n1", 5), ("n2", 2)):
        halves = [a_device(f"h{at}").consumes("card", {"units": "1"}) for at in range(2)]
        whole = a_device("whole").consumes("card", {"units": "2"}).attr("drv/whole", value=True)
        yard.show(a_slice(name, "card", whole, *halves).of(2))
        yard.show(a_slice(name, "card").of(2).named(f"{name}-counters").counters("card", {"units": "2"}))
        yard.show(
            yard.claim(f"c{name}")
            .allocated(a_result("r", f"card/{name}/h1"), on=name)
            .reserved_for(f"v{name}", f"uid-v{name}")
        )
        yard.uses(f"v{name}", f"c{name}", on=name, priority=priority, **OTHERS)
    yard.comes("p", "has(device.attributes['drv'].whole)")
    await yard.settle()

    assert (evicted(yard), nominations(yard)) == (["vn2"], ["n2"])
