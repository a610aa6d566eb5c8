"""Another scheduler was faster: what is counted, and what a record says we had seen (docs/spec/core.md §2.6)."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Delta
from scheduler.binding import PodWatch
from scheduler.core.errors import Ambiguous, ApiError, Conflict, NotFound
from tests.unit.harness import SchedulerHarness, manifest, read_pod, typed

COUNT = "kubestow_binding_conflicts_total"


def conflicts(sched: SchedulerHarness) -> dict[str, float]:
    """Kind → how many."""
    lines = sched.parts.shared.metrics.render().decode().splitlines()
    rows = [line.split() for line in lines if line.startswith(COUNT + "{")]
    return {labels.split('"')[1]: float(value) for labels, value in rows}


async def decided(sched: SchedulerHarness) -> None:
    """The pod has a node and waits for its turn to be bound."""
    sched.node("n1", cpu="2")
    sched.writer.turn_hold = asyncio.Event()
    sched.pod("p", cpu="2")
    await sched.settle()


async def its_turn_comes(sched: SchedulerHarness) -> None:
    """The Binding may leave, and everything that follows happens."""
    assert sched.writer.turn_hold is not None
    sched.writer.turn_hold.set()
    await sched.settle()


@pytest.mark.parametrize("gone", [False, True], ids=["92 the room is taken", "the node is gone"])
async def test_a_node_that_takes_the_pod_no_more_is_a_conflict(gone: bool) -> None:
    """Counted, said in the pod's event, and nothing is sent."""
    sched = SchedulerHarness()
    await decided(sched)
    if gone:
        sched.node_gone("n1")
    else:
        sched.pod("theirs", cpu="1", on="n1", scheduler="default-scheduler")

    await its_turn_comes(sched)

    assert (conflicts(sched), sched.writer.binds) == ({"node": 1}, [])
    said = "1 node(s) had gone before the pod was bound" if gone else "1 Insufficient cpu"
    event = sched.recorder.events[0]
    assert (event.reason, event.note) == ("FailedScheduling", f"0/1 nodes are available: {said}.")


async def test_a_pod_that_another_scheduler_bound_to_this_node_takes_the_room_of_ours() -> None:
    """We had given it another node. Without a second look at this one, it would have both pods and room for one."""
    sched = SchedulerHarness()
    for name in ("n1", "n2"):
        sched.node(name, cpu="2")
    sched.writer.turn_hold = asyncio.Event()
    for name in ("p", "q"):
        sched.pod(name, cpu="2")
    await sched.settle()
    held = sched.cluster.get("uid-q")
    assert held is not None
    sched.pod("p", cpu="2", on=held.node_name)

    await its_turn_comes(sched)

    assert conflicts(sched).get("node") == 1
    assert ("default/q", held.node_name) not in sched.writer.binds
    assert sched.message("q") == "0/1 nodes are available: 1 Insufficient cpu."


HARD = "requiredDuringSchedulingIgnoredDuringExecution"
BY_ZONE = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        pytest.param(
            {"affinity": {"podAntiAffinity": {HARD: [BY_ZONE]}}},
            {"labels": {"app": "db"}},
            "2 node(s) didn't match pod anti-affinity rules",
            id="whom it hates came to another node of the zone",
        ),
        pytest.param(
            {"labels": {"app": "db"}},
            {"affinity": {"podAntiAffinity": {HARD: [BY_ZONE]}}},
            "2 node(s) didn't satisfy existing pods anti-affinity rules",
            id="who hates it came to another node of the zone",
        ),
        pytest.param(
            {
                "labels": {"app": "db"},
                "topologySpreadConstraints": [
                    {**BY_ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2}
                ],
            },
            {"labels": {"app": "db"}},
            "2 node(s) didn't match pod topology spread constraints",
            id="another of its kind came to the zone",
        ),
        pytest.param({}, {"labels": {"app": "db"}}, "", id="a plain pod does not mind"),
    ],
)
async def test_what_happens_elsewhere_in_the_zone_is_looked_at_too(
    ours: dict[str, Any], theirs: dict[str, Any], said: str
) -> None:
    """Before the Binding leaves; the node itself is as it was."""
    sched = SchedulerHarness()
    sched.writer.turn_hold = asyncio.Event()
    sched.node("n1", labels={"zone": "a"})
    sched.pod("p", **ours)
    await sched.settle()
    sched.node("n2", labels={"zone": "a"})
    sched.pod("theirs", on="n2", scheduler="default-scheduler", **theirs)

    await its_turn_comes(sched)

    assert sched.writer.binds == ([] if said else [("default/p", "n1")])
    if said:
        assert sched.message("p").startswith("0/")
        assert said.partition(" ")[2] in sched.message("p")


@pytest.mark.parametrize(
    ("error", "server", "counted"),
    [
        pytest.param(Conflict("taken"), {"on": "n9"}, {"pod": 1}, id="200 somebody else bound it"),
        pytest.param(
            Ambiguous("reset"), {"on": "n9"}, {"pod": 1}, id="somebody else bound it, and our answer was lost"
        ),
        pytest.param(Ambiguous("reset"), {"on": "n1"}, {}, id="our answer was lost"),
        pytest.param(Conflict("taken"), {"deleting": True}, {}, id="its owner deletes it"),
        pytest.param(Conflict("odd"), {"cpu": "1"}, {}, id="a conflict without a cause"),
        pytest.param(NotFound("gone"), {}, {}, id="it is gone"),
    ],
)
async def test_a_pod_that_is_bound_elsewhere_is_a_conflict(
    error: ApiError, server: dict[str, Any], counted: dict[str, float]
) -> None:
    sched = SchedulerHarness()
    sched.node("n1")
    sched.writer.server["default/p"] = typed(manifest("p", **server))

    def refuse(pod: Pod, node_name: str) -> None:
        raise error

    sched.writer.on_bind = refuse
    sched.pod("p")
    await sched.settle()

    assert conflicts(sched) == counted


async def test_bindings_without_a_rival_count_for_nothing() -> None:
    """Changes of the node that leave room for the pod are no conflict."""
    sched = SchedulerHarness()
    await decided(sched)
    sched.node("n1", cpu="3")
    sched.pod("theirs", cpu="1", on="n1", scheduler="default-scheduler")

    await its_turn_comes(sched)

    assert (conflicts(sched), sched.writer.binds) == ({}, [("default/p", "n1")])


async def test_the_record_tells_what_the_watch_had_shown_when_the_binding_left() -> None:
    """As late as the second look: what came while the pod waited for its turn counts as seen."""
    shown = "5"
    sched = SchedulerHarness(pod_watch=PodWatch(version=lambda: shown))
    await decided(sched)
    record = sched.parts.records.latest("default/p")
    assert record is not None
    assert record.seen_resource_version == ""

    shown = "7"
    await its_turn_comes(sched)

    assert record.to_dict()["seen_resource_version"] == "7"


async def test_what_the_watch_has_shown_counts_although_nobody_has_taken_it_in_yet() -> None:
    """D7: a batch that waits in the inbox for the next attempt is looked at before the Binding leaves."""
    sched = SchedulerHarness()
    await decided(sched)
    theirs = read_pod(manifest("theirs", cpu="1", on="n1", scheduler="default-scheduler"))
    sched.parts.inbox.put(partial(sched.parts.intake.pods, [Delta(None, theirs)]))

    assert sched.writer.turn_hold is not None
    sched.writer.turn_hold.set()
    await sched.turns()

    assert (conflicts(sched), sched.writer.binds) == ({"node": 1}, [])
