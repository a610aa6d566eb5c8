"""DynamicResources reserves and frees devices, some of which must become ready: docs/spec/dra.md §3.5–§3.11, rows 272–311."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.api.meta import seconds
from scheduler.api.podinfo import pod_info
from scheduler.config.args import KubestowArgs
from scheduler.core.errors import Unavailable
from scheduler.core.feature_gates import BINDING_CONDITIONS, CLAIM_DEVICE_STATUS, DEVICE_GATES_ON
from scheduler.framework.interface import CycleState
from scheduler.plugins.dra.binding.binding_conditions import is_unavailable, readiness
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import Builder, pod
from tests.unit.plugins.dra.served import (
    ASKING,
    ERR,
    HELD,
    NO_DEVICES,
    Served,
    Slow,
    Step,
    U,
    Under,
    claim_for_two,
    fails,
    said,
    steps,
    using,
)

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

    assert expected == is_unavailable(claim.typed(), NOW_S, 600.0)


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


HELD_ON_N9 = ASKING.allocated(a_result("r", "a/n9/d0"), on="n9")


# -- PostFilter ----------------------------------------------------------------------------------------------------------


FREED = (U, "deallocation of ResourceClaim completed")
NOT_HELPED = (U, "still not schedulable")
OTHER = a_claim("d").request("r", "A").allocated(a_result("r", "a/n9/d1"), on="n9")


@pytest.mark.parametrize(("things", "claims", "expected", "writes"), [
    pytest.param([HELD_ON_N9.reserved_for("p", "p").reserved_for("x")], ("c",), NOT_HELPED, ["unreserve c"],
        id="both pods have reserved it: this pod leaves, so that the other can free the devices"),
    pytest.param([HELD_ON_N9, HELD.reserved_for("p", "p").set({"metadata": {"name": "e"}})], ("c", "e"), FREED,
        ["deallocate c", "unreserve e"], id="one that is useless, and one that is reserved for it"),
    pytest.param([HELD_ON_N9, OTHER], ("c", "d"), FREED, ["deallocate c", "deallocate d"],
        id="§10.3 two at once"),
    pytest.param([HELD_ON_N9.reserved_for("x"), OTHER], ("c", "d"), FREED, ["deallocate d"],
        id="§10.3 another pod has reserved the first: the second is freed"),
    pytest.param([HELD_ON_N9.reserved_for("x"), OTHER, a_claim("e").allocated(a_result("r", "a/n9/d2"), on="n9")],
        ("c", "d", "e"), FREED, ["deallocate d"],
        id="§10.3 another pod has reserved the first: one of the other two is freed, as upstream"),
    pytest.param([HELD], ("c",), NOT_HELPED, [], id="the claim blocks no pod"),
    pytest.param([HELD_ON_N9, a_claim("d").request("r", "A", count=9)], ("c", "d"), NOT_HELPED, [],
        id="§3.4 the allocator fails everywhere: freeing would not help"),
])  # fmt: skip
async def test_post_filter(
    things: list[Builder[Any]], claims: tuple[str, ...], expected: object, writes: list[str]
) -> None:
    """PostFilter frees claims so that the pod can run, and reports it in its status."""
    world = Served(*things)
    info, state = world.tried(*claims)

    assert expected == said(world.post_filter(state, info))
    await world.background()
    assert writes == world.writes


async def test_no_claim_is_freed_if_another_plugin_rejects_every_node() -> None:
    """Filter still runs, as in a trial that runs all filters. The claim blocks no node that the other plugin accepts."""
    world = Served(HELD_ON_N9)
    info = using("c")
    state, groups = world.filter(info)
    assert groups

    assert NOT_HELPED == said(world.post_filter(state, info, {}))
    await world.background()
    assert [] == world.writes


async def test_all_pods_that_share_a_useless_claim_leave_it_and_the_last_frees_the_devices() -> None:
    """The order of the attempts does not matter. A daemon that died had reserved the claim for these pods."""
    world = Served(HELD_ON_N9.reserved_for("p", "p").reserved_for("q", "q"))
    for name in ("p", "q", "p"):
        info, state = world.tried("c", name=name)
        world.post_filter(state, info)
        await world.background()

    assert ["unreserve c", "deallocate c"] == world.writes
    assert "" == await world.bound(world.reserved(using("c")))


def test_a_node_that_was_not_searched_does_not_free_a_claim() -> None:
    """§3.4: the claim is not the only obstacle on a node that was not searched."""
    world = Served(HELD_ON_N9, a_claim("d").request("r", "A", count=9))
    world.plugin._verdicts._clock = Slow(world.clock)
    info, state = world.tried("c", "d")

    assert NOT_HELPED == said(world.post_filter(state, info))


async def test_a_claim_that_another_component_changed_is_not_freed() -> None:
    """290: the write fails, and the other component's change stays."""
    world = Served(HELD_ON_N9)
    info, state = world.tried("c")
    world.rewrite("c", reserved_for=())

    assert FREED == said(world.post_filter(state, info))
    await world.background()

    assert ["n9/d0"] == world.devices_of("c")


def test_post_filter_without_a_state() -> None:
    """§3.5: PreFilter of an earlier plugin has refused."""
    world = Served()

    assert (ERR, "not found") == said(world.post_filter(CycleState(), using("c")))


# -- Reserve and Unreserve ---------------------------------------------------------------------------------------------


async def test_the_reservations_of_two_successive_pods_of_one_name_are_both_removed() -> None:
    """The first pod is gone. The write that removes its reservation still runs when the second pod fails, too."""
    world = Served(HELD.reserved_for("p", "first").reserved_for("p", "second"))
    steps(world, fails(Unavailable("busy")))
    for uid in ("first", "second"):
        world.unreserve(world.reserved(pod_info(pod("p").uid(uid).claim("e0", claim="c").typed())))

    await world.background()

    assert [] == world.users("c")


def test_reserve_on_a_node_without_devices() -> None:
    """311: the node was not verified, or another pod reserved the devices first."""
    world = Served(claim_for_two(), claim_for_two("d"))
    info, state = world.tried("c", name="late")
    world.reserved(using("d", name="early"))

    assert NO_DEVICES == said(world.plugin.reserve(state, info, "n1"))
    assert ["d"] == world.in_flight


def test_reserve_after_the_claim_is_gone() -> None:
    """§3.7 step 4: no state of the attempt stays."""
    world = Served(ASKING, a_claim("d").request("r", "A"))
    info, state = world.tried("c", "d")
    world.withdraw("d")

    no = world.plugin.reserve(state, info, "n1")
    world.plugin.unreserve(state, info, "n1")

    assert (ERR, "internal error, couldn't signal allocation for claim d") == said(no)
    assert ([], []) == (world.in_flight, world.used)


async def test_unreserve_before_anything_is_written() -> None:
    """275, 298: a second call changes nothing, and pods that wait for the devices are notified."""
    world = Served(ASKING)
    under = world.reserved(using("c"))
    before = world.server("c")
    world.moves.clear()

    world.unreserve(under)
    await world.undo(under)

    assert ([], [], []) == (world.in_flight, world.used, world.writes)
    assert before is world.server("c")
    ((_, old, new),) = world.moves
    assert (True, False) == (old.is_allocated, new.is_allocated)


async def test_unreserve_after_the_claim_is_written() -> None:
    """297, 298: the pod's own reservation goes, once; the devices stay with the claim."""
    world = Served(ASKING)
    under = world.reserved(using("c"))
    assert "" == await world.bound(under)
    world.moves.clear()

    world.unreserve(under)
    await world.undo(under)

    assert ["protect c", "allocate c", "unreserve c"] == world.writes
    assert ([], ["n1/d0"], ["n1/d0"]) == (world.users("c"), world.devices_of("c"), world.used)


async def test_unreserve_leaves_other_users_alone() -> None:
    """297."""
    world = Served(HELD.reserved_for("x"))
    under = world.reserved(using("c"))
    await world.bound(under)

    assert ["x", "p"] == world.users("c")
    await world.undo(under)

    assert ["x"] == world.users("c")


async def test_unreserve_of_a_pod_that_another_scheduler_has_bound() -> None:
    """The pod runs with its reservation, so the reservation stays."""
    world = Served(ASKING)
    under = world.reserved(using("c"))
    await world.bound(under)
    world.cluster.add_pod(under.info)

    world.plugin.unreserve(under.state, under.info, "n1")
    await world.background()

    assert ["p"] == world.users("c")


def test_unreserve_without_a_reservation() -> None:
    """Unreserve is idempotent and writes nothing."""
    world = Served(ASKING)

    world.plugin.unreserve(CycleState(), using("c"), "n1")
    state, _ = world.filter(using("c"))
    world.plugin.unreserve(state, using("c"), "n1")

    assert [] == world.writes
