"""Preemptions during other changes: no needless victim, no preemptor that waits permanently (docs/spec/core.md §3.10, §9.7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from scheduler.api.decode import Delta
from scheduler.core.errors import ApiError, Fenced, Forbidden
from tests.unit.harness import SchedulerHarness
from tests.unit.preemption.evicting import (
    VICTIM,
    Wire,
    arena,
    ended,
    events,
    goes,
    holds_back,
    is_clean,
    leaves,
    metric,
    rest,
    show_refused,
)

Change = Callable[[SchedulerHarness], object]


# -- a plan that is not valid any more ----------------------------------------------------------------------------------


def gets_a_namesake(sched: SchedulerHarness) -> None:
    sched.gone("p")
    sched.pod("p", cpu="64", priority=100, uid="uid-other", preemptionPolicy="Never")


def another_scheduler_nominates_it(sched: SchedulerHarness) -> None:
    sched.node("n2", cpu="1")
    sched.pod("p", cpu="3", priority=100, nominated="n2")


OVER = [
    pytest.param(lambda sched: sched.gone("p"), id="the preemptor has gone"),
    pytest.param(lambda sched: sched.pod("p", cpu="3", priority=100, deleting=True), id="the preemptor is terminating"),
    pytest.param(
        lambda sched: sched.pod("p", cpu="3", priority=100, on="n7"), id="another scheduler has bound the preemptor"
    ),
    pytest.param(gets_a_namesake, id="another pod has the preemptor's name"),
    pytest.param(another_scheduler_nominates_it, id="the preemptor is nominated elsewhere"),
    pytest.param(lambda sched: sched.node_gone("n1"), id="the node has gone"),
]


@pytest.mark.parametrize("change", OVER)
@pytest.mark.parametrize(
    ("held", "deleted"),
    [
        pytest.param(["nominate p n1"], 0, id="before the first victim"),
        pytest.param(["delete v0", "delete v1"], 2, id="between two victims"),
        pytest.param(["mark v0", "mark v1"], 0, id="between the condition and the deletion of victims"),
    ],
)
@pytest.mark.parametrize("is_behind", [False, True], ids=["applied", "in the inbox"])
async def test_no_further_victim_is_evicted_for_a_plan_that_is_over(
    change: Change, held: list[str], deleted: int, is_behind: bool
) -> None:
    sched, wire = arena(3)
    wire.hold(*held)
    await rest(sched)
    if is_behind:
        sched.parts.inbox.put(partial(change, sched))  # type: ignore[arg-type]
    else:
        change(sched)
    wire.answer(*held)
    await sched.turns()
    sched.parts.inbox.apply()

    assert len(wire.victims()) == deleted
    assert "mark v2" not in wire.sent
    assert ended(sched) == (0, 1)
    assert not sched.parts.evictions._plans
    assert not holds_back(sched)


@pytest.mark.parametrize("change", OVER)
@pytest.mark.parametrize("held", [["nominate p n1"], ["mark v0", "mark v1"]], ids=["nominated", "marked"])
async def test_no_pod_is_evicted_while_changes_wait_for_the_end_of_an_attempt(change: Change, held: list[str]) -> None:
    """The attempt of another pod may take half a minute."""
    sched, wire = arena(3)
    wire.hold(*held)
    await rest(sched)
    sched.parts.inbox.put(partial(change, sched))  # type: ignore[arg-type]
    with sched.parts.inbox.closed():
        wire.answer(*held)
        await sched.turns()
    for _ in range(2):  # the changes, then their effects
        sched.parts.inbox.apply()
        await sched.turns()

    assert wire.victims() == []
    assert not sched.parts.evictions._plans


@pytest.mark.parametrize("change", OVER)
async def test_the_plan_is_checked_after_each_wait_for_a_turn(change: Change) -> None:
    sched, wire = arena(3)
    sched.writer.turn_hold = asyncio.Event()
    await rest(sched)
    change(sched)
    sched.writer.turn_hold.set()
    await sched.turns()

    assert wire.victims() == []


async def test_a_preemptor_that_lost_its_node_looks_for_another_at_once() -> None:
    sched, wire = arena(2)
    wire.hold("delete v0")
    await rest(sched)
    sched.node("n2", cpu="1")
    sched.node_gone("n1")
    sched.node("n2", cpu="4")
    wire.answer("delete v0")
    await rest(sched)

    assert sched.writer.binds == [("default/p", "n2")]


# -- victims that end without eviction ------------------------------------------------------------------------------------


def finishes(sched: SchedulerHarness, name: str) -> None:
    sched.pod(name, **VICTIM, phase="Succeeded")


def is_recreated(sched: SchedulerHarness, name: str) -> None:
    sched.gone(name)
    sched.pod(name, **VICTIM, uid="uid-new")


@pytest.mark.parametrize("ends", [leaves, goes, finishes, is_recreated])
@pytest.mark.parametrize("victim", ["v1", "v2"], ids=["one of many", "the last"])
async def test_a_victim_that_ends_without_eviction_gets_no_write(
    ends: Callable[[SchedulerHarness, str], None], victim: str
) -> None:
    sched, wire = arena(3)
    wire.hold("nominate p n1")
    await rest(sched)
    ends(sched, victim)
    wire.answer("nominate p n1")
    await rest(sched)

    assert sorted(wire.victims()) == sorted({"v0", "v1", "v2"} - {victim})
    assert f"mark {victim}" not in wire.sent
    assert ended(sched) == (1, 0)


async def test_a_victim_that_ends_between_its_two_writes_is_not_deleted() -> None:
    sched, wire = arena(1)
    wire.hold("mark v0")
    await rest(sched)
    is_recreated(sched, "v0")
    wire.answer("mark v0")
    await sched.turns()

    assert wire.victims() == []
    assert events(sched, "Preempted") == []


async def test_the_preemptor_does_not_wait_if_all_victims_are_gone_before_the_preemption_ends() -> None:
    """Their delete events came while the preemptor was gated."""
    sched, wire = arena(3)
    wire.hold("delete v0")
    await rest(sched)
    for name in ("v2", "v1", "v0"):
        sched.gone(name)
    await rest(sched)
    assert sched.places() == {"p": "gated"}

    wire.answer("delete v0")
    await rest(sched)
    assert sched.writer.binds == [("default/p", "n1")]


async def test_a_new_node_is_found_after_the_preemptor_was_gated() -> None:
    sched, wire = arena(2)
    wire.hold("delete v0")
    await rest(sched)
    sched.node("n2", cpu="4")
    await sched.later(3)
    assert (sched.writer.binds, sched.places()) == ([], {"p": "gated"})

    wire.answer("delete v0")
    await sched.later(3)
    await rest(sched)
    assert sched.writer.binds == [("default/p", "n2")]


# -- other nominations -------------------------------------------------------------------------------------------------


async def nominated_low() -> tuple[SchedulerHarness, Wire]:
    """`mid` is nominated to n1, and the DELETE of v0 is under way for it."""
    sched = SchedulerHarness()
    wire = Wire(sched)
    wire.hold("delete v0")
    sched.node("n1", cpu="1")
    sched.pod("v0", **VICTIM)
    sched.pod("mid", cpu="1", priority=50)
    await rest(sched)
    assert sched.parts.queue.nominator.node_of("uid-mid") == "n1"
    return sched, wire


async def test_190_nominations_of_lower_priority_are_cleared_and_their_pods_retried() -> None:
    """The status is cleared before the first victim is evicted."""
    sched, wire = await nominated_low()
    attempts = metric(sched, "scheduler_preemption_attempts_total")
    sched.pod("p", cpu="1", priority=100)
    await rest(sched)
    wire.answer("delete v0")
    await rest(sched)

    assert wire.landed.index("nominate p n1") < wire.sent.index("clear mid")
    assert sched.parts.queue.nominator.node_of("uid-mid") is None
    assert metric(sched, "scheduler_preemption_attempts_total") - attempts == 2


async def test_a_pod_whose_nomination_is_cleared_is_tried_at_once() -> None:
    sched, _wire = arena(1, schedulingGates=[{"name": "wait"}])
    sched.pod("mid", cpu="1", priority=50, nominated="n1", nodeSelector={"not": "there"}, preemptionPolicy="Never")
    await rest(sched)
    attempts = metric(sched, "scheduler_preemption_attempts_total")
    sched.pod("p", cpu="1", priority=100)
    await rest(sched)

    assert metric(sched, "scheduler_preemption_attempts_total") - attempts == 2


async def test_nominations_of_lower_priority_stay_until_the_new_one_is_written() -> None:
    sched, wire = await nominated_low()
    wire.refuses["nominate p n1"] = [Forbidden("no")]
    sched.pod("p", cpu="1", priority=100)
    await rest(sched)

    assert "clear mid" not in wire.sent
    assert sched.parts.queue.nominator.node_of("uid-mid") == "n1"


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        pytest.param("q", {"priority": 100}, id="equal priority"),
        pytest.param("q", {"priority": 200}, id="higher priority"),
        pytest.param("q", {"priority": 50, "scheduler": "theirs"}, id="a pod of another scheduler"),
    ],
)
async def test_other_nominations_stay(name: str, spec: dict[str, Any]) -> None:
    """§2.6: nominations of other schedulers are respected."""
    sched, wire = arena(2, schedulingGates=[{"name": "wait"}])
    sched.pod(name, cpu="1", nominated="n1", preemptionPolicy="Never", **spec)
    await rest(sched)
    sched.pod("p", cpu="1", priority=100)
    await rest(sched)

    assert "v1" in wire.victims()
    assert f"clear {name}" not in wire.sent
    assert sched.parts.queue.nominator.node_of(f"uid-{name}") == "n1"


async def test_a_preemption_ends_when_a_pod_of_higher_priority_takes_its_place() -> None:
    sched, wire = arena(3)
    wire.hold("delete v0")
    await rest(sched)
    sched.pod("high", cpu="3", priority=1000)
    await rest(sched)
    assert sched.parts.queue.nominator.node_of("uid-p") is None

    wire.answer("delete v0")
    await rest(sched)
    assert wire.sent.count("mark v2") == 1
    assert ended(sched) == (1, 1)
    assert sched.parts.queue.nominator.node_of("uid-high") == "n1"


async def test_two_preemptors_of_equal_priority_do_not_evict_for_the_same_capacity() -> None:
    sched, wire = arena(2)
    sched.pod("q", cpu="2", priority=100)
    await rest(sched)

    assert sorted(wire.victims()) == ["v0", "v1"]
    assert len(wire.sent) == 5 + 1  # and the condition of the other


# -- state -------------------------------------------------------------------------------------------------------------


async def lost_again(sched: SchedulerHarness, round_: int) -> None:
    """The victim is gone, and another scheduler binds a pod before the preemptor is tried."""
    victims = [name for name in sched.seen if name.startswith("v")]
    for name in victims:
        sched.gone(name)
    sched.pod(f"v-{round_}", **VICTIM)
    await sched.later(30)
    await rest(sched)


async def test_198_a_node_whose_freed_capacity_is_lost_twice_is_excluded() -> None:
    """#130429: after two losses the node is excluded for a minute, and an event is written."""
    sched, wire = arena(1)
    await rest(sched)
    for round_ in range(1, 3):
        await lost_again(sched, round_)
        assert len(wire.victims()) == round_ + 1
    assert [name for name, _ in events(sched, "PreemptionLost")] == ["p"]
    assert "excluded for 1m0s" in events(sched, "PreemptionLost")[0][1]
    assert metric(sched, "kubestow_preemptions_lost_total") == 1

    await lost_again(sched, 3)
    assert len(wire.victims()) == 3
    sched.clock.move(20)
    await rest(sched)
    assert len(wire.victims()) == 3
    sched.clock.move(11)
    await rest(sched)
    assert len(wire.victims()) == 4, "no event wakes the pod when the minute is over"


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda sched: sched.gone("p"), id="the preemptor is deleted"),
        pytest.param(lambda sched: sched.pod("p", cpu="1", priority=100, on="n1"), id="the preemptor is bound"),
        pytest.param(gets_a_namesake, id="another pod has the preemptor's name"),
    ],
)
@pytest.mark.parametrize("is_early", [False, True], ids=["after the last answer", "before the last answer"])
async def test_no_state_is_left_of_a_preemptor_that_is_gone(end: Change, is_early: bool) -> None:
    sched, wire = arena(1)
    if is_early:
        wire.hold("delete v0")
    await rest(sched)
    sched.gone("v0")
    end(sched)
    if is_early:
        wire.answer("delete v0")
    await rest(sched)

    assert is_clean(sched)
    assert "uid-p" not in sched.parts.patches.snapshot()


# -- lost leadership --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Fenced("not leading"), Forbidden("no")], ids=["the lead is lost", "refused"])
async def test_a_refusal_stops_the_victims_between_their_two_writes(error: ApiError) -> None:
    sched, wire = arena(4)
    wire.hold("delete v0", "mark v1")
    wire.refuses["delete v2"] = [error]
    await rest(sched)
    wire.answer("delete v0", "mark v1")
    await rest(sched)

    assert wire.victims() == ["v0"]
    assert "delete v1" not in wire.sent
    assert ended(sched) == (0, 1)


# -- the watch is behind -----------------------------------------------------------------------------------------------


async def test_changes_in_the_inbox_are_applied_before_a_victim_is_marked() -> None:
    sched, wire = arena(1)
    wire.hold("nominate p n1")
    await rest(sched)
    gone = Delta(sched.seen["v0"], None)
    sched.parts.inbox.put(partial(sched.parts.event_handlers.apply, "Pod", [gone]))
    wire.answer("nominate p n1")
    await sched.turns()

    assert wire.sent == ["nominate p n1"]


async def test_our_nomination_outlives_an_update_that_does_not_show_it_yet() -> None:
    sched, wire = arena(1)
    wire.hold("nominate p n1")
    await rest(sched)
    sched.pod("p", cpu="1", priority=100, labels={"new": "label"})
    wire.answer("nominate p n1")
    await rest(sched)

    assert wire.victims() == ["v0"]


async def test_a_nomination_that_another_writer_removed_is_written_again() -> None:
    sched, wire = arena(1)
    wire.refuses["delete v0"] = [Forbidden("no")]
    await rest(sched)
    show_refused(sched, nominated="n1")
    show_refused(sched, nominated="")
    await sched.later(30)
    await rest(sched)

    assert wire.landed == ["nominate p n1", "mark v0", "nominate p n1", "mark v0", "delete v0"]


async def test_a_nomination_that_a_later_patch_carries_counts() -> None:
    sched, wire = arena(1)
    wire.hold("nominate p n1")
    wire.refuses["nominate p n1"] = [Forbidden("no")]
    await rest(sched)
    info = sched.parts.shared.pending.get("default/p")
    assert info is not None
    sched.parts.failures.report(info.pod, "Unschedulable", "something newer", None)
    wire.answer("nominate p n1")
    await rest(sched)

    assert wire.landed == ["nominate p n1", "mark v0", "delete v0"]


async def test_a_nomination_that_a_later_patch_takes_back_does_not_count() -> None:
    sched, wire = arena(1)
    wire.hold("nominate p n1")
    await rest(sched)
    info = sched.parts.shared.pending.get("default/p")
    assert info is not None
    sched.parts.failures.clear_nomination(info)
    wire.answer("nominate p n1")
    await sched.turns()

    assert wire.landed[:2] == ["nominate p n1", "clear p"]
    assert wire.victims() == []
