"""The DRA driver actor: slices of pools at generations, half published or whole; taints; answers to waiting claims."""

from typing import Any

import pytest

from simulator.apiserver import ApiServer
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import Builder
from simulator.builders.devices import SliceBuilder, a_device, a_slice
from simulator.controllers import DRADriver
from tests.support.clock import VirtualClock

DRIVER = "d.example"
DEVICE = f"{DRIVER}/n1/d0"
FIRST = a_slice("n1", DRIVER, a_device("d0"), a_device("d1"))
SECOND = a_slice("n1", DRIVER, a_device("d2"))
WAITS = a_claim("c").request("r", "gpu")


def allocated(*results: dict[str, Any]) -> ClaimBuilder:
    return WAITS.allocated(*results, on="n1")


PENDING = allocated(a_result("r", DEVICE, binding=("Ready", "Warm"), binding_failure=("Broken", "Lost")))


class World:
    """A server, and one driver."""

    def __init__(self, *objects: Builder[object], **options: Any) -> None:
        self.clock = VirtualClock()
        self.server = ApiServer(clock=self.clock)
        self.add(*objects)
        self.driver = DRADriver(self.server, DRIVER, clock=self.clock, **options)

    def add(self, *objects: Builder[object]) -> None:
        for each in objects:
            self.server.apply(each.obj())

    def settle(self) -> None:
        rounds = 0
        while self.driver.step():
            rounds += 1
            assert rounds < 50, "the driver never comes to rest"

    def publish(self, *slices: SliceBuilder, **options: Any) -> None:
        self.driver.publish(*slices, **options)
        self.settle()

    def pool(self, name: str = "n1") -> list[str]:
        """`devices@generation/count` of each slice."""
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
        """What the claim tells of each device: the types that are true."""
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
        pytest.param((FIRST, SECOND.device(a_device("d3"))), ["d0,d1@1/2", "d2,d3@1/2"], id="one slice is one write"),
        pytest.param((SECOND, FIRST), ["d2@2/2", "d0,d1@2/2"], id="two slices are a new generation"),
        pytest.param((FIRST, SECOND, SECOND), ["d0,d1@2/3", "d2@2/3", "d2@2/3"], id="one more is a new generation"),
        pytest.param((FIRST,), ["d0,d1@1/1"], id="one less is one write to what stays"),
    ],
)
def test_a_change_makes_a_new_generation_if_one_write_is_not_enough(
    slices: tuple[SliceBuilder, ...], pool: list[str]
) -> None:
    """As drivers do: a reader never takes the half of a change for the whole."""
    world = World()
    world.publish(FIRST, SECOND)
    world.publish(*slices)
    assert world.pool() == pool


def test_a_pool_may_be_half_published() -> None:
    """Old and new generations stand side by side until it goes on."""
    world = World()
    world.publish(FIRST, SECOND)
    world.driver.stall_after(1)
    world.publish(FIRST.device(a_device("d8")), SECOND.device(a_device("d9")))
    assert world.pool() == ["d0,d1,d8@2/2", "d2@1/2"]
    assert world.driver.is_publishing
    world.driver.go_on()
    world.settle()
    assert world.pool() == ["d0,d1,d8@2/2", "d2,d9@2/2"]
    assert not world.driver.is_publishing


def test_what_somebody_deletes_comes_back() -> None:
    """In a new generation, since the pool was not whole."""
    world = World()
    world.publish(FIRST, SECOND)
    world.server.delete("resourceslices", world.server.objects("resourceslices")[0]["metadata"]["name"])
    world.settle()
    assert world.pool() == ["d0,d1@2/2", "d2@2/2"]


def test_a_driver_that_died_halfway_begins_again() -> None:
    """What is of an old generation goes; nothing of a dead driver moves."""
    world = World()
    world.publish(FIRST, SECOND)
    world.driver.stall_after(1)
    world.publish(FIRST.device(a_device("d8")), SECOND.device(a_device("d9")))
    world.driver.die()
    world.driver.go_on()
    world.settle()
    assert world.pool() == ["d0,d1,d8@2/2", "d2@1/2"]
    world.driver.revive()
    world.settle()
    assert world.pool() == ["d0,d1,d8@3/2", "d2,d9@3/2"]


async def test_devices_get_taints_and_lose_them() -> None:
    """One write to one slice; a taint that stays keeps its time."""
    world = World()
    world.publish(FIRST, SECOND)
    world.driver.taint("n1/d1", "k", effect="NoExecute")
    world.settle()
    (first,) = world.taints()["d1"]
    assert (first["key"], first["effect"]) == ("k", "NoExecute")
    await world.clock.advance(60)
    world.driver.taint("n1/d1", "l", "v")
    world.settle()
    assert world.taints()["d1"][0] == first
    assert [each["key"] for each in world.taints()["d1"]] == ["k", "l"]
    world.driver.untaint("n1/d1", "k")
    world.settle()
    assert [(each["key"], each["value"]) for each in world.taints()["d1"]] == [("l", "v")]
    assert world.pool() == ["d0,d1@1/2", "d2@1/2"]
    with pytest.raises(KeyError, match=r"pool n1 of d\.example has no device d7"):
        world.driver.taint("n1/d7", "k")


# -- claims ------------------------------------------------------------------------------------------------------------


def test_a_device_that_cannot_be_prepared() -> None:
    """Its first failure condition, with the words."""
    world = World(fault=lambda _: "no power")
    world.add(PENDING)
    world.settle()
    assert world.conditions() == {"d0": ["Broken"]}
    (entry,) = world.server.get("resourceclaims", "c")["status"]["devices"]
    assert (entry["conditions"][0]["reason"], entry["conditions"][0]["message"]) == ("PreparationFailed", "no power")
    assert (world.driver.prepared, world.driver.failures) == (0, 1)


def test_an_allocation_that_is_never_answered_is_asked_again_when_it_is_made_again() -> None:
    """Silence is for one allocation."""
    answers: list[str | None] = [None, ""]
    world = World(PENDING, fault=lambda _: answers.pop(0))
    world.settle()
    world.server.patch("resourceclaims", "c", {"metadata": {"labels": {"a": "b"}}})
    world.settle()
    assert world.conditions() == {}
    assert len(world.driver.preparations) == 1
    world.server.patch("resourceclaims", "c", {"status": {"allocation": None}}, subresource="status")
    world.settle()
    world.server.patch("resourceclaims", "c", {"status": PENDING.obj()["status"]}, subresource="status")
    world.settle()
    assert world.conditions() == {"d0": ["Ready", "Warm"]}


def test_only_its_own_devices_that_somebody_waits_for_are_answered() -> None:
    """What others have said stays."""
    others = a_result("r", "o.example/n1/x", binding=("Ready",), binding_failure=("Broken",))
    plain = a_result("r", f"{DRIVER}/n1/d1")
    waits = a_result("r", DEVICE, binding=("Ready",), binding_failure=("Broken",))
    world = World(allocated(others, plain, waits).condition("o.example/n1/x", "Other"))
    world.settle()
    assert world.conditions() == {"x": ["Other"], "d0": ["Ready"]}


def test_a_dead_driver_answers_no_claim_until_it_is_revived() -> None:
    world = World()
    world.driver.die()
    world.add(PENDING)
    world.settle()
    assert world.conditions() == {}
    world.driver.revive()
    world.settle()
    assert world.conditions() == {"d0": ["Ready", "Warm"]}
