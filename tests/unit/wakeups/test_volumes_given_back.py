"""Allocations in flight, capacity that was not written, nominations and assumed pods: their end wakes pods that they kept out.

A plan's pod may have left long before; the plan ends when its binding notices (docs/spec/volumes.md §5.4, §7.1).
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.config.types import OUR_NAME, Configuration, KubeSchedulerProfile
from scheduler.core.cluster_events import ClusterEvent
from scheduler.core.errors import Forbidden, Unavailable
from scheduler.eventhandlers.devices import DEVICES_GIVEN_BACK, DeviceHandlers
from scheduler.framework.preemption_state import Preempting
from scheduler.framework.status import Wait
from simulator.builders.claims import a_claim as device_claim, a_result
from tests.support.volumebuilders import a_claim, a_class, a_pv
from tests.unit.eventhandlers.deviceworld import CLAIM, D0, HELD, HandlersWorld, at, broken
from tests.unit.fake_plugins import Holds
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import DEFAULT, gone, harness_of, node, pod
from tests.unit.hints.hint_rows_limits import claims, stored

LOCAL = (a_class("local"), a_pv("v", "1Gi", "local"), a_claim("c", "1Gi", "local"), a_claim("d", "1Gi", "local"))
SHARED = (a_class("made", "P"), a_claim("c", "1Gi", "made"))


def refusing(error: Exception) -> Any:
    def refuses(*_: object) -> None:
        raise error

    return refuses


async def tried_in_vain(*things: Any, rival: str, more: tuple[Any, ...] = (), **waits: Any) -> SchedulerHarness:
    """`rival` has left, but its plan waits to try a busy server again; `p` was tried too early for that."""
    sched = harness_of(DEFAULT)
    for thing in (node("n1"), *stored(*things)):
        thing(sched)
    sched.writer.on_prebind = sched.writer.on_select = refusing(Unavailable("busy"))
    pod("rival", **claims(rival))(sched)
    await sched.settle()
    for thing in more:
        thing(sched)
    pod("p", **waits)(sched)
    await sched.later(11)
    gone("rival")(sched)
    await sched.settle()
    assert sched.places() == {"p": "unschedulable"}
    assert len(sched.parts.binder) == 1
    return sched


async def gives_up(sched: SchedulerHarness) -> None:
    """The rival's plan ends; the server accepts the writes of other pods."""
    sched.writer.on_prebind = sched.writer.on_select = refusing(Forbidden("no"))
    await sched.later(1)
    assert len(sched.parts.binder) == 0
    sched.writer.on_prebind = sched.writer.on_select = None
    await sched.later(11)


async def test_a_volume() -> None:
    sched = await tried_in_vain(*LOCAL, rival="d", **claims("c"))

    await gives_up(sched)

    assert sched.writer.prebinds[-1] == ("v", "default/c", True)


async def test_a_selected_node() -> None:
    """Both share the claim, and this pod cannot go where it was to be."""
    more = (node("n2", labels={"disk": "ssd"}),)
    sched = await tried_in_vain(*SHARED, rival="c", more=more, **claims("c"), nodeSelector={"disk": "ssd"})

    await gives_up(sched)

    assert sched.writer.selections[-1] == ("default/c", "n2")


async def test_a_pod_that_another_scheduler_binds() -> None:
    """To our node, while its volume waits to be written: if that fails the volume is not written."""
    sched = harness_of(DEFAULT)
    for thing in (node("n1"), *stored(*LOCAL)):
        thing(sched)
    sched.writer.on_prebind = refusing(Unavailable("busy"))
    pod("rival", **claims("d"))(sched)
    await sched.settle()
    pod("rival", **claims("d"), on="n1")(sched)
    pod("p", **claims("c"))(sched)
    await sched.later(11)
    assert sched.places() == {"p": "unschedulable"}

    await gives_up(sched)

    assert sched.writer.prebinds[-1] == ("v", "default/c", True)


# -- two profiles of one process: to each other they are as pods of one (§5, §12.3 B-15) -------------------------------

OTHER = "kubestow-too"


async def test_a_claim_that_both_want() -> None:
    """The first pod writes the claim, and the second waits for that, as in one profile."""
    sched = SchedulerHarness(Configuration(profiles=(KubeSchedulerProfile(OUR_NAME), KubeSchedulerProfile(OTHER))))
    for thing in (node("n1"), *stored(a_class("made", "P"), a_claim("c", "1Gi", "made"))):
        thing(sched)
    sched.writer.on_select = refusing(Unavailable("busy"))
    pod("first", **claims("c"))(sched)
    await sched.settle()

    pod("second", **claims("c"), scheduler=OTHER)(sched)
    await sched.settle()

    assert len(sched.parts.binder) == 2
    assert sched.writer.selections == [("default/c", "n1")]


async def test_a_claim_that_the_other_completes() -> None:
    """Its volume is chosen and not quite bound: a pod of the other profile goes there and waits, as one of the same would."""
    sched = SchedulerHarness(Configuration(profiles=(KubeSchedulerProfile(OUR_NAME), KubeSchedulerProfile(OTHER))))
    claim = a_claim("c", "1Gi", "local")
    for thing in (node("n1"), *stored(a_class("local"), a_pv("v", "1Gi", "local"), claim)):
        thing(sched)
    sched.writer.on_prebind = refusing(Unavailable("busy"))
    pod("first", **claims("c"))(sched)
    await sched.settle()
    for thing in stored(claim.wants("v")):
        thing(sched)

    pod("second", **claims("c"), scheduler=OTHER)(sched)
    await sched.settle()

    assert sched.places() == {}
    assert len(sched.parts.binder) == 2


async def test_a_pod_with_other_labels_than_when_it_was_assumed_wakes_the_pod_that_it_kept_away() -> None:
    """What was counted since the assumption was another pod, so to say: it has left."""
    sched = SchedulerHarness()
    sched.node("n1", labels={"kubernetes.io/hostname": "n1"})
    sched.writer.hold = asyncio.Event()
    sched.pod("db", labels={"app": "db"})
    await sched.settle()
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    sched.pod("web", affinity=affinity)
    await sched.settle()
    await sched.later(20)
    assert sched.places()["web"] == "unschedulable"

    sched.pod("db", labels={"app": "cache"})
    sched.pod("db", labels={"app": "cache"}, on="n1")
    sched.writer.hold.set()
    await sched.settle()

    assert sched.writer.binds == [("default/db", "n1"), ("default/web", "n1")]


async def test_a_nomination_that_was_taken_back_ends_with_the_pod_at_the_latest() -> None:
    """The update that clears the nomination would wake the other pod; here the pod is deleted first."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="4")
    sched.pod("theirs", cpu="1", on="n1", scheduler="other")
    sched.pod("first", cpu="4", priority=10, nominated="n1", gates=["wait"])
    sched.pod("second", cpu="2")
    await sched.settle()
    await sched.later(20)
    assert sched.places() == {"first": "gated", "second": "unschedulable"}

    info = sched.parts.shared.pending.get("default/first")
    assert info is not None
    sched.parts.queue.nominator.add(info, "")
    sched.gone("first")
    await sched.settle()

    assert sched.writer.binds == [("default/second", "n1")]


async def test_a_pod_deleted_at_permit_wakes_the_next_pod_once_its_node_is_free() -> None:
    """Its status says where it was to go; the place is given back by its binding task."""
    sched = SchedulerHarness()
    sched.plug(permit=(Holds("A", permits=Wait(600)),))
    sched.node("n1", cpu="2")
    sched.pod("first", cpu="2")
    await sched.settle()
    sched.pod("first", cpu="2", nominated="n1")
    sched.pod("second", cpu="2")
    await sched.settle()
    await sched.later(20)
    assert sched.places()["second"] == "unschedulable"

    sched.gone("first")
    assert sched.places()["second"] == "unschedulable"
    await sched.settle()

    assert sched.cluster.is_assumed("uid-second")
    assert len(sched.parts.records.of("default/second")) == 2


async def test_a_nomination_that_only_we_know_and_that_is_given_up_wakes_the_pod_that_it_kept_out() -> None:
    """Its write failed, so no watch event shows its end."""
    sched = SchedulerHarness()
    sched.node("n", cpu="4")
    sched.pod("v1", on="n", cpu="3", scheduler="other", priority=0)
    sched.writer.patch_errors = [Unavailable("etcd is slow")] * 12
    sched.pod("q", cpu="4", priority=10)
    await sched.settle()
    sched.pod("p", cpu="1", priority=5, preemptionPolicy="Never")
    await sched.settle()
    sched.gone("v1")
    sched.pod("w1", on="n", cpu="3", scheduler="other", priority=20)
    await sched.settle()
    assert ("n", {"p", "q"}) == (sched.parts.queue.nominator.node_of("uid-q"), set(sched.places()))

    for seconds in (2, 12, 12, 30):
        await sched.later(seconds)

    assert sched.parts.queue.nominator.node_of("uid-q") is None
    assert sched.writer.binds == [("default/p", "n")]


def given_back(world: HandlersWorld) -> list[tuple[Any, Any]]:
    """Return the events of this turn: the planned claim and the current one."""
    moved: list[tuple[ClusterEvent, Any, Any]] = []
    event_handlers = DeviceHandlers(
        world.cluster, lambda event, old, new: moved.append((event, old, new)), Preempting()
    )
    event_handlers.tick()
    return [(old, new) for event, old, new in moved if event == DEVICES_GIVEN_BACK]


@pytest.mark.parametrize(("becomes", "is_event"), [
    pytest.param(at(CLAIM, 1), True, id="it was never written"),
    pytest.param(at(HELD, 2), False, id="it was written"),
    pytest.param(at(HELD.allocated_at("2026-01-01T00:00:00Z").reserved_for("p"), 2), False, id="with more to it"),
    pytest.param(None, True, id="the claim is gone"),
    pytest.param(device_claim("c").uid("another").resource_version("2").typed(), True, id="another has its name"),
])  # fmt: skip
def test_the_end_of_an_allocation_in_flight_is_an_event_unless_it_was_written(becomes: Any, is_event: bool) -> None:
    """There is one event, after the last pod that shares the claim has given up."""
    world = HandlersWorld()
    first, plan = at(CLAIM, 1), at(HELD, 1)
    world.feed("ResourceClaim", None, first)
    world.devices.claims.signal("c", plan)
    world.devices.claims.signal("c", plan)
    if becomes != first:
        world.feed("ResourceClaim", first, becomes)

    world.devices.claims.drop_pending("c")
    assert [] == given_back(world)
    world.devices.claims.drop_pending("c")

    assert ([(plan, becomes)] if is_event else []) == given_back(world)
    assert [] == given_back(world)


def test_an_allocation_of_another_scheduler_is_an_event_at_once() -> None:
    """The claim has another device, so ours is free. There is one event."""
    world = HandlersWorld()
    first, plan, theirs = at(CLAIM, 1), at(HELD, 1), at(CLAIM.allocated(a_result("r", "drv/n1/d1")), 2)
    world.feed("ResourceClaim", None, first)
    world.devices.claims.signal("c", plan)
    world.feed("ResourceClaim", first, theirs)

    assert not world.devices.use.is_used(D0)
    assert [(plan, theirs)] == given_back(world)
    world.feed("ResourceClaim", theirs, at(CLAIM.allocated(a_result("r", "drv/n1/d1")).reserved_for("x"), 3))
    world.devices.claims.drop_pending("c")
    assert [] == given_back(world)


def test_an_allocation_of_another_scheduler_before_the_answer_to_our_create() -> None:
    """Another scheduler allocates the claim before the answer to our create arrives."""
    world = HandlersWorld()
    first, plan, theirs = at(CLAIM, 1), at(HELD, 1), at(CLAIM.allocated(a_result("r", "drv/n1/d1")), 2)
    world.devices.claims.signal("temporary", plan)
    world.feed("ResourceClaim", None, first)
    world.feed("ResourceClaim", first, theirs)
    assert [] == given_back(world)
    world.devices.claims.adopt("temporary", first)

    assert not world.devices.use.is_used(D0)
    assert [theirs] == [now for _, now in given_back(world)]
    world.devices.claims.drop_pending("c")
    assert [] == given_back(world)


def test_the_end_of_an_allocation_without_devices_is_an_event() -> None:
    """Another pod that shares the claim may allocate it now."""
    world = HandlersWorld()
    plan = at(CLAIM.allocated(a_result("r", str(D0), admin=True)), 1)
    world.feed("ResourceClaim", None, at(CLAIM, 1))
    world.devices.claims.signal("c", plan)
    world.devices.claims.drop_pending("c")

    assert [(plan, at(CLAIM, 1))] == given_back(world)


def test_an_allocation_that_another_claim_takes_over_is_no_event() -> None:
    """That of a claim which had to be made first (§3.12)."""
    world = HandlersWorld()
    world.devices.claims.signal("temporary", at(HELD.uid(""), 0))
    world.feed("ResourceClaim", None, made := at(CLAIM, 1))
    world.devices.claims.adopt("temporary", made)
    world.devices.claims.drop_pending("temporary")

    assert ([], True) == (given_back(world), world.devices.use.is_exclusive(D0))


@pytest.mark.parametrize(("later", "is_event"), [
    pytest.param(None, True, id="it is gone"),
    pytest.param(at(CLAIM, 3), True, id="it has it no more"),
    pytest.param(at(HELD, 3), False, id="it still has it"),
])  # fmt: skip
def test_what_a_claim_kept_while_it_could_not_be_read(later: Any, is_event: bool) -> None:
    """The device was not free until now."""
    world = HandlersWorld()
    seen, bad = at(HELD, 1), broken("ResourceClaim", at(HELD, 2))
    world.feed("ResourceClaim", None, seen)
    world.feed("ResourceClaim", seen, bad)
    assert [] == given_back(world)
    world.feed("ResourceClaim", bad, later)

    assert ([(seen, later)] if is_event else []) == given_back(world)


def test_retry_waiting_is_an_event_of_the_claim() -> None:
    """The event is that of a new claim. A claim that is gone has none."""
    world = HandlersWorld()
    world.feed("ResourceClaim", None, claim := at(HELD, 1))
    world.devices.claims.retry_waiting("default/c")
    world.devices.claims.retry_waiting("default/gone")

    assert [(None, claim)] == given_back(world)
