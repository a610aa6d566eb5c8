"""States of groups in metrics, and the event of a group that runs with too few pods (docs/spec/groups.md §8)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.api.pod_group import COSCHEDULING_POD_GROUP, KINDS, POD_GROUP, VOLCANO_POD_GROUP, GroupKey
from scheduler.cache.pod_groups import PodGroups
from scheduler.groups.incomplete import AFTER_S
from scheduler.groups.states import STATES, GroupStates
from tests.unit.groups.test_groups import ANNOTATED, GROUPED, LABELLED, harness, task
from tests.unit.groups.test_groups_barrier import prepared
from tests.unit.harness import SchedulerHarness, manifest, read_pod

NAMED: dict[str, dict[str, Any]] = {
    POD_GROUP: GROUPED,
    COSCHEDULING_POD_GROUP: LABELLED,
    VOLCANO_POD_GROUP: ANNOTATED,
}


def counts(sched: SchedulerHarness) -> dict[str, int]:
    """The states with groups."""
    found = sched.parts.group_states.counts()
    assert tuple(found) == STATES
    return {state: count for state, count in found.items() if count}


def events(sched: SchedulerHarness) -> list[str]:
    found = [event for event in sched.recorder.events if event.reason == "GroupIncomplete"]
    assert all((event.pod, event.type_, event.action) == ("default/g", "Warning", "Scheduling") for event in found)
    return [event.note for event in found]


async def shown(least: int | None, *pods: dict[str, Any], kind: str = POD_GROUP) -> SchedulerHarness:
    """A group of three on a node of four cpu. `least` None: without an object."""
    sched = harness("n1")
    if least is not None:
        sched.group("g", least, kind)
    for at, spec in enumerate(pods):
        sched.pod(f"p{at}", **{"cpu": "1", **NAMED[kind], **spec})
    await sched.settle()
    return sched


ON = {"on": "n1"}
BIG = {"cpu": "5"}


@pytest.mark.parametrize(
    ("least", "pods", "state"),
    [
        pytest.param(2, (), None, id="no pods"),
        pytest.param(None, ({}, ON), "gated", id="no object"),
        pytest.param(None, (ON,), "running", id="no object, and all pods run"),
        pytest.param(2, ({},), "gated", id="too few pods"),
        pytest.param(2, ({}, BIG), "waiting", id="not enough fit"),
        pytest.param(2, (ON, ON, BIG), "running", id="enough run"),
        pytest.param(3, (ON, ON, BIG), "incomplete", id="fewer run, and one waits"),
        pytest.param(3, (ON, ON), "running", id="fewer run, and no pod waits"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_states(least: int | None, pods: tuple[dict[str, Any], ...], state: str | None, kind: str) -> None:
    sched = await shown(least, *pods, kind=kind)

    assert counts(sched) == ({state: 1} if state else {})


async def test_groups_whose_kind_the_server_lacks_do_not_count() -> None:
    sched = harness("n1")
    sched.served(is_served=False)
    sched.pod("a", cpu="1", **GROUPED)
    await sched.settle()

    assert counts(sched) == {}


async def test_a_group_at_its_barrier_is_being_bound() -> None:
    sched, preparing = prepared("n1")
    await sched.settle()
    assert counts(sched) == {"binding": 1}

    preparing.release("a", "b", "c")
    await sched.settle()
    assert counts(sched) == {"waiting": 1}, "the watch has not shown a node yet"

    for name in ("a", "b", "c"):
        sched.pod(name, cpu="1", on="n1", **GROUPED)
    assert counts(sched) == {"running": 1}


def test_ten_thousand_groups_are_counted_in_50_ms() -> None:
    groups = PodGroups()
    groups.serve(POD_GROUP, is_served=True)
    sched = harness()
    sched.group("g", 2)
    wanted = sched.groups[POD_GROUP, "g"]
    for at in range(10_000):
        metadata = type(wanted.metadata)(name=f"g{at}", namespace="default", uid=str(at))
        groups.set(type(wanted)(metadata, wanted.spec))
        for pod in (0, 1):
            spec = {"schedulingGroup": {"podGroupName": f"g{at}"}, "on": "n" if at % 2 and pod else ""}
            read = read_pod(manifest(f"p{at}-{pod}", **spec))
            groups.pod_changed(None, read)  # type: ignore[arg-type]
    states = GroupStates(groups, set)
    took = []
    for _ in range(5):
        began = time.process_time()
        found = states.counts()
        took.append(time.process_time() - began)

    assert found == {"gated": 0, "waiting": 5000, "binding": 0, "running": 0, "incomplete": 5000}
    assert min(took) < 0.05


# -- the event -----------------------------------------------------------------------------------------------------------


SHORT = (ON, ON, *[BIG] * 4)
NOTE = "only 2 of at least 3 pods have had a node for 60 s; without a node: p2, p3, p4, …"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_group_that_runs_with_too_few_pods(kind: str) -> None:
    sched = await shown(3, *SHORT, kind=kind)
    await sched.later(AFTER_S - 1)
    assert events(sched) == []
    await sched.later(1)
    assert events(sched) == [NOTE]

    sched.gone("p1")
    await sched.later(2 * AFTER_S)
    assert events(sched) == [NOTE], "once"

    sched.group_gone("g", kind)
    await sched.settle()
    sched.group("g", 3, kind)
    await sched.settle()
    await sched.later(AFTER_S)
    assert events(sched) == [NOTE, NOTE.replace("only 2", "only 1")], "another object of that name"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda sched: sched.pod("p5", cpu="5", on="n1", **GROUPED), id="one more runs"),
        pytest.param(lambda sched: [sched.gone(f"p{at}") for at in range(2, 6)], id="no pod waits: the rest has ended"),
        pytest.param(lambda sched: [sched.gone(f"p{at}") for at in range(2)], id="none runs"),
        pytest.param(lambda sched: sched.group("g", 2), id="a smaller minimum"),
        pytest.param(lambda sched: sched.group_gone("g"), id="the object is deleted"),
    ],
)
async def test_a_group_that_is_whole_within_a_minute(change: Callable[[SchedulerHarness], object]) -> None:
    sched = await shown(3, *SHORT)
    await sched.later(AFTER_S - 1)
    change(sched)
    await sched.later(2 * AFTER_S)

    assert events(sched) == []


async def test_other_changes_do_not_start_the_minute_again() -> None:
    sched = await shown(3, *SHORT)
    await sched.later(AFTER_S - 1)
    sched.pod("p2", labels={"a": "b"}, **(BIG | GROUPED))
    await sched.later(1)

    assert events(sched) == [NOTE]


async def test_a_standby_writes_nothing_and_the_new_leader_does() -> None:
    sched = await shown(3, *SHORT)
    sched.parts.loop._may_pop = lambda: False
    await sched.later(2 * AFTER_S)
    assert events(sched) == []
    assert sched.cluster.pod_groups.changes() == set(), "nothing accumulates"

    sched.parts.loop._may_pop = lambda: True
    await sched.settle()
    assert events(sched) == [NOTE]


async def test_members_of_other_tasks_do_not_raise_the_minimum_of_a_running_group() -> None:
    sched = harness("n1")
    sched.group("g", 2, VOLCANO_POD_GROUP, minTaskMember={"worker": 1})
    for at in range(2):
        sched.pod(f"w{at}", cpu="1", on="n1", **task("worker"))
    for at in range(3):
        sched.pod(f"d{at}", cpu="5", **task("driver"))
    await sched.settle()
    await sched.later(AFTER_S)

    assert sched.cluster.pod_groups.least(GroupKey(VOLCANO_POD_GROUP, "default/g")) > 2
    assert (counts(sched), events(sched)) == ({"running": 1}, [])
