"""The DRA driver: slices and generations of pools, taints, and binding conditions of claims."""

from typing import Any

import pytest

from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import Builder
from simulator.builders.devices import SliceBuilder, a_device, a_slice
from simulator.controllers import DRADriver
from tests.support.clock import VirtualClock
from tests.unit.simulator.stage import add, server_with, settle

DRIVER = "d.example"
DEVICE = f"{DRIVER}/n1/d0"
FIRST = a_slice("n1", DRIVER, a_device("d0"), a_device("d1"))
SECOND = a_slice("n1", DRIVER, a_device("d2"))
WAITS = a_claim("c").request("r", "gpu")


def allocated(*results: dict[str, Any]) -> ClaimBuilder:
    return WAITS.allocated(*results, on="n1")


PENDING = allocated(a_result("r", DEVICE, binding=("Ready", "Warm"), binding_failure=("Broken", "Lost")))


class Harness:
    """A server, and one driver."""

    def __init__(self, *objects: Builder[object], **options: Any) -> None:
        self.clock = VirtualClock()
        self.server = server_with(*objects, clock=self.clock)
        self.driver = DRADriver(self.server, DRIVER, clock=self.clock, **options)

    def settle(self) -> None:
        settle(self.driver)

    def publish(self, *slices: SliceBuilder, **options: Any) -> None:
        self.driver.publish(*slices, **options)
        self.settle()

    def pool(self, name: str = "n1") -> list[str]:
        """Return `devices@generation/count` of each slice."""
        return [
            f"{','.join(device['name'] for device in spec['devices'])}"
            f"@{spec['pool']['generation']}/{spec['pool']['resourceSliceCount']}"
            for spec in (each["spec"] for each in self.server.objects("resourceslices"))
            if spec["pool"]["name"] == name
        ]

    def taints(self) -> dict[str, list[dict[str, Any]]]:
        return {
            device["name"]: device["taints"]
            for each in self.server.objects("resourceslices")
            for device in each["spec"]["devices"]
            if device.get("taints")
        }

    def conditions(self) -> dict[str, list[str]]:
        """Return the types of the true conditions of each device."""
        devices = self.server.get("resourceclaims", "c")["status"].get("devices") or []
        return {
            each["device"]: [condition["type"] for condition in each["conditions"] if condition["status"] == "True"]
            for each in devices
        }


# -- slices ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slices", "pool"),
    [
        pytest.param((FIRST, SECOND), ["d0,d1@1/2", "d2@1/2"], id="nothing changes"),
        pytest.param(
            (FIRST, SECOND.device(a_device("d3"))),
            ["d0,d1@1/2", "d2,d3@1/2"],
            id="one slice changes: the same generation",
        ),
        pytest.param((SECOND, FIRST), ["d2@2/2", "d0,d1@2/2"], id="two slices change: a new generation"),
        pytest.param((FIRST, SECOND, SECOND), ["d0,d1@2/3", "d2@2/3", "d2@2/3"], id="one more slice: a new generation"),
        pytest.param((FIRST,), ["d0,d1@1/1"], id="one slice less: the same generation"),
    ],
)
def test_a_change_makes_a_new_generation_if_one_write_is_not_enough(
    slices: tuple[SliceBuilder, ...], pool: list[str]
) -> None:
    """A reader never takes a part of a change for the whole pool."""
    harness = Harness()
    harness.publish(FIRST, SECOND)
    harness.publish(*slices)
    assert harness.pool() == pool


def test_a_pool_may_be_half_published() -> None:
    harness = Harness()
    harness.publish(FIRST, SECOND)
    harness.driver.stall_after(1)
    harness.publish(FIRST.device(a_device("d8")), SECOND.device(a_device("d9")))
    assert harness.pool() == ["d0,d1,d8@2/2", "d2@1/2"]
    assert harness.driver.is_publishing
    harness.driver.go_on()
    harness.settle()
    assert harness.pool() == ["d0,d1,d8@2/2", "d2,d9@2/2"]
    assert not harness.driver.is_publishing


def test_a_deleted_slice_is_published_again_in_a_new_generation() -> None:
    harness = Harness()
    harness.publish(FIRST, SECOND)
    harness.server.delete("resourceslices", harness.server.objects("resourceslices")[0]["metadata"]["name"])
    harness.settle()
    assert harness.pool() == ["d0,d1@2/2", "d2@2/2"]


def test_a_driver_that_restarts_publishes_a_new_generation() -> None:
    harness = Harness()
    harness.publish(FIRST, SECOND)
    harness.driver.stall_after(1)
    harness.publish(FIRST.device(a_device("d8")), SECOND.device(a_device("d9")))
    harness.driver.die()
    harness.driver.go_on()
    harness.settle()
    assert harness.pool() == ["d0,d1,d8@2/2", "d2@1/2"]
    harness.driver.revive()
    harness.settle()
    assert harness.pool() == ["d0,d1,d8@3/2", "d2,d9@3/2"]


async def test_devices_get_taints_and_lose_them() -> None:
    harness = Harness()
    harness.publish(FIRST, SECOND)
    harness.driver.taint("n1/d1", "k", effect="NoExecute")
    harness.settle()
    (first,) = harness.taints()["d1"]
    assert (first["key"], first["effect"]) == ("k", "NoExecute")
    await harness.clock.advance(60)
    harness.driver.taint("n1/d1", "l", "v")
    harness.settle()
    assert harness.taints()["d1"][0] == first
    assert [each["key"] for each in harness.taints()["d1"]] == ["k", "l"]
    harness.driver.untaint("n1/d1", "k")
    harness.settle()
    assert [(each["key"], each["value"]) for each in harness.taints()["d1"]] == [("l", "v")]
    assert harness.pool() == ["d0,d1@1/2", "d2@1/2"]
    with pytest.raises(KeyError, match=r"pool n1 of d\.example has no device d7"):
        harness.driver.taint("n1/d7", "k")


# -- claims ------------------------------------------------------------------------------------------------------------


def test_a_device_that_cannot_be_prepared() -> None:
    harness = Harness(fault=lambda _: "no power")
    add(harness.server, PENDING)
    harness.settle()
    assert harness.conditions() == {"d0": ["Broken"]}
    (entry,) = harness.server.get("resourceclaims", "c")["status"]["devices"]
    assert (entry["conditions"][0]["reason"], entry["conditions"][0]["message"]) == ("PreparationFailed", "no power")
    assert (harness.driver.prepared, harness.driver.failures) == (0, 1)


def test_an_allocation_that_is_made_again_is_answered_again() -> None:
    answers: list[str | None] = [None, ""]
    harness = Harness(PENDING, fault=lambda _: answers.pop(0))
    harness.settle()
    harness.server.patch("resourceclaims", "c", {"metadata": {"labels": {"a": "b"}}})
    harness.settle()
    assert harness.conditions() == {}
    assert len(harness.driver.preparations) == 1
    harness.server.patch("resourceclaims", "c", {"status": {"allocation": None}}, subresource="status")
    harness.settle()
    harness.server.patch("resourceclaims", "c", {"status": PENDING.obj()["status"]}, subresource="status")
    harness.settle()
    assert harness.conditions() == {"d0": ["Ready", "Warm"]}


def test_only_devices_of_the_driver_with_binding_conditions_are_answered() -> None:
    others = a_result("r", "o.example/n1/x", binding=("Ready",), binding_failure=("Broken",))
    plain = a_result("r", f"{DRIVER}/n1/d1")
    waits = a_result("r", DEVICE, binding=("Ready",), binding_failure=("Broken",))
    harness = Harness(allocated(others, plain, waits).condition("o.example/n1/x", "Other"))
    harness.settle()
    assert harness.conditions() == {"x": ["Other"], "d0": ["Ready"]}


def test_a_dead_driver_answers_no_claim_until_it_is_revived() -> None:
    harness = Harness()
    harness.driver.die()
    add(harness.server, PENDING)
    harness.settle()
    assert harness.conditions() == {}
    harness.driver.revive()
    harness.settle()
    assert harness.conditions() == {"d0": ["Ready", "Warm"]}
