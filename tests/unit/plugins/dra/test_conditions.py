"""Devices that must become ready first: docs/spec/dra.md §3.11, rows 303–308."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.api.meta import seconds
from scheduler.config.args import KubestowArgs
from scheduler.core.feature_gates import BINDING_CONDITIONS, CLAIM_DEVICE_STATUS, DEVICE_GATES_ON
from scheduler.plugins.dra.binding.binding_conditions import is_worn_out, readiness
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import Builder
from tests.unit.plugins.dra.served import Served, Step, Under, using

D0, D1 = "a/n1/d0", "a/n1/d1"
DRIVER_B = "b/n1/d0"
ON = DEVICE_GATES_ON
FOLLOWS = KubestowArgs(device_scoring="firstFit", bind_poll="events")
POLLS = KubestowArgs(device_scoring="firstFit", bind_poll="upstream")
WAITED_FOR = "waiting for binding conditions for device on node n1"
FAILED = 'device binding failed: claim=c, reason=Reported, message="no power"'


def waiting(name: str = "c", *devices: str, failure: str = "Broken") -> ClaimBuilder:
    """Return an allocated claim whose devices must become Ready."""
    results = [a_result("r", each, binding=("Ready",), binding_failure=(failure,)) for each in devices or (D0,)]
    return a_claim(name).request("r", "A").allocated(*results)


def ready(claim: ClaimBuilder, device: str = D0, **more: Any) -> ClaimBuilder:
    return claim.condition(device, "Ready", **more)


def broken(claim: ClaimBuilder, device: str = D0) -> ClaimBuilder:
    return claim.condition(device, "Broken", message="no power")


# -- one claim ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("claim", "expected"), [
    pytest.param(a_claim("c"), (True, False), id="the claim is not allocated"),
    pytest.param(a_claim("c").allocated(a_result("r", D0)), (True, False), id="the devices have no conditions"),
    pytest.param(waiting().condition(D0, "Ready", "Unknown"), (False, False), id="304 the condition is unknown"),
    pytest.param(waiting().condition(D0, "Broken", "False"), (False, False), id="304 the failure condition is False"),
    pytest.param(broken(a_claim("c").allocated(a_result("r", D0, binding_failure=("Broken",)))), (True, False),
        id="306 failure conditions alone are not waited for"),
    pytest.param(ready(ready(waiting("c", D0, D1)), D1), (True, False), id="308 two devices are ready"),
    pytest.param(broken(waiting("c", D0, D1), D1), (False, True), id="a late device does not hide a failed device"),
    pytest.param(a_claim("c").allocated(a_result("r", D0, share="s", binding=("Ready",))).condition(D0, "Ready",
        share="other"), (False, False), id="the status of another share does not count"),
    pytest.param(a_claim("c").allocated(a_result("r", D0, share="s", binding=("Ready",))).condition(D0, "Ready",
        share="s"), (True, False), id="the status of the same share counts"),
])  # fmt: skip
def test_readiness(claim: ClaimBuilder, expected: tuple[bool, bool]) -> None:
    """The result says whether all devices are ready, and whether one has failed."""
    found = readiness(claim.typed())

    assert expected == (found.is_ready, found.failure is not None)


NOW_S = 1_767_225_600.0


@pytest.mark.parametrize(("claim", "since_s", "expected"), [
    pytest.param(waiting(), 599.0, False, id="305 the device may still become ready"),
    pytest.param(waiting(), 601.0, True, id="305 the device has taken too long"),
    pytest.param(waiting(), None, False, id="305 the allocation has no time"),
])  # fmt: skip
def test_worn_out(claim: ClaimBuilder, since_s: float | None, *, expected: bool) -> None:
    """The result says whether the next attempt must use other devices."""
    if since_s is not None:
        claim = claim.allocated_at(seconds(NOW_S - since_s))

    assert expected == is_worn_out(claim.typed(), NOW_S, 600.0)


# -- PreBind -----------------------------------------------------------------------------------------------------------------


def begun(*things: Builder[Any], ours: KubestowArgs = FOLLOWS, gates: frozenset[str] = ON) -> tuple[Served, Under]:
    world = Served(*things, ours=ours, gates=gates)
    names = [each.typed().metadata.name for each in things if isinstance(each, ClaimBuilder)]
    return world, world.reserved(using(*names))


@pytest.mark.parametrize(("claim", "gates", "expected"), [
    pytest.param(a_claim("c").request("r", "A"), ON - {BINDING_CONDITIONS}, None, id="303 a gate is off"),
    pytest.param(a_claim("c").request("r", "A"), ON - {CLAIM_DEVICE_STATUS}, None, id="303 the other gate is off"),
    pytest.param(a_claim("c").request("r", "A").allocated(a_result("r", D0)).allocated_at("2020-01-01T00:00:00Z"), ON,
        "2020-01-01T00:00:00Z", id="303 the time was already set"),
])  # fmt: skip
async def test_when_it_was_allocated(claim: ClaimBuilder, gates: frozenset[str], expected: str | None) -> None:
    """PreBind sets the time of a new allocation."""
    world, under = begun(claim, gates=gates)

    assert "" == await world.bound(under)

    allocation = world.server("c").status.allocation
    assert allocation is not None
    assert expected == allocation.allocation_timestamp


@pytest.mark.parametrize(("claims", "expected"), [
    pytest.param([ready(waiting())], "", id="304 the device is ready"),
    pytest.param([waiting().allocated_at(seconds(NOW_S - 601.0))], "device binding timeout: claim=c",
        id="304 the claim timed out long ago"),
    pytest.param([waiting("d", D1), broken(waiting())], FAILED,
        id="308 the second claim has failed and the first is late"),
])  # fmt: skip
async def test_what_is_seen_at_once(claims: list[ClaimBuilder], expected: str) -> None:
    """PreBind returns at once. The pod still gets the event that the plugin waits."""
    world, under = begun(
        *(waiting(name, *_devices(claim)) for claim in claims if (name := claim.typed().metadata.name))
    )
    world.show(*claims)  # Filter would have refused a claim that had already failed

    assert expected == await world.bound(under)

    assert 0.2 > world.clock.now()
    assert [WAITED_FOR] == [event.note for event in world.recorder.events if event.reason == "BindingConditionsPending"]


def _devices(claim: ClaimBuilder) -> list[str]:
    allocation = claim.typed().status.allocation
    return [str(result.id) for result in allocation.devices.results] if allocation is not None else []


@pytest.mark.parametrize(("ours", "took_s"), [
    pytest.param(FOLLOWS, 12.0, id="304 the wait ends as soon as the device is ready"),
    pytest.param(POLLS, 15.0, id="304 the wait ends at the next poll"),
])  # fmt: skip
async def test_waiting_until_it_is_ready(ours: KubestowArgs, took_s: float) -> None:
    """The binding continues when the device is ready. The metrics count each device."""
    world, under = begun(waiting(), ours=ours)
    task = asyncio.ensure_future(world.pre_bind(under))
    await world.clock.advance(12.0)
    world.rewrite("c", devices=ready(waiting()).typed().status.devices)
    world.relay()
    await world.clock.settle()
    await world.passes(task)

    assert task.result() is None
    ((driver, status, waited_s),) = world.metrics.waits
    assert ("a", "success", took_s) == (driver, status, round(waited_s, 1))
    assert [("a", "success")] == world.metrics.allocations


LATE = "device binding timeout: context deadline exceeded"
JUST_NOW = waiting().allocated_at(seconds(NOW_S - 1.0))


@pytest.mark.parametrize(("claim", "ours", "expected", "after_s"), [
    pytest.param(waiting(), FOLLOWS, LATE, 600.0,
        id="304 the limit counts from the start of the wait if no time was written"),
    pytest.param(JUST_NOW, FOLLOWS, LATE, 600.0, id="304 the written time, in whole seconds, is over a little earlier"),
    pytest.param(JUST_NOW, POLLS, LATE, 600.0, id="304 polling has the same limit"),
    pytest.param(waiting().allocated_at(seconds(NOW_S - 500.0)), FOLLOWS, "device binding timeout: claim=c", 100.0,
        id="304 time that passed before this attempt counts"),
])  # fmt: skip
async def test_it_is_waited_for_no_longer_than_the_limit(
    claim: ClaimBuilder, ours: KubestowArgs, expected: str, after_s: float
) -> None:
    """The text says what ended the wait."""
    world, under = begun(claim, ours=ours)

    assert expected == await world.bound(under)

    assert after_s <= round(world.clock.now(), 0) <= after_s + 6.0 * (after_s < 600.0)
    ((driver, status, waited_s),) = world.metrics.waits
    assert ("a", "timeout", True) == (driver, status, after_s <= round(waited_s, 0) <= after_s + 6.0)


def deallocated(world: Served) -> None:
    world.rewrite("c", allocation=None)
    world.relay()


@pytest.mark.parametrize(("ends", "expected"), [
    pytest.param(lambda world: world.withdraw("c"), 'could not find ResourceClaim "default/c"', id="the claim is gone"),
    pytest.param(deallocated, "claim default/c got deallocated elsewhere in the meantime", id="its devices are gone"),
])  # fmt: skip
async def test_what_ends_the_wait(ends: Step, expected: str) -> None:
    world, under = begun(waiting())
    task = asyncio.ensure_future(world.pre_bind(under))
    await world.clock.advance(7.0)
    ends(world)
    await world.clock.settle()

    no = task.result()
    assert no is not None
    assert expected == no.message
    assert [("a", "error")] == [(driver, status) for driver, status, _ in world.metrics.waits]


async def test_drivers_are_counted_apart() -> None:
    """308: the wait counts every device of the pod, the allocation only devices with conditions."""
    mixed = a_claim("c").allocated(a_result("r", D0, binding=("Ready",)), a_result("q", DRIVER_B))
    world, under = begun(ready(mixed))

    assert "" == await world.bound(under)

    assert [("a", "success"), ("b", "success")] == [(driver, status) for driver, status, _ in world.metrics.waits]
    assert [("a", "success")] == world.metrics.allocations


@pytest.mark.parametrize("gate", [BINDING_CONDITIONS, CLAIM_DEVICE_STATUS])
async def test_without_a_gate_nothing_is_waited_for(gate: str) -> None:
    """§3.11: PreBind returns at once and writes no event."""
    world, under = begun(waiting(), gates=ON - {gate})

    assert "" == await world.bound(under)
    assert [] == world.recorder.events


async def test_no_watcher_is_left_after_the_wait() -> None:
    """A cancelled wait removes its watcher too."""
    world, under = begun(waiting())
    task = asyncio.ensure_future(world.pre_bind(under))
    await world.clock.advance(1.0)
    assert world.devices._watchers
    task.cancel()
    await world.clock.settle()

    assert ({}, True) == (world.devices._watchers, task.cancelled())


# -- the next attempt ----------------------------------------------------------------------------------------------------------
