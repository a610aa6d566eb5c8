"""Nominations and assumed pods that end without a deletion wake the pods that they kept out (docs/spec/core.md §1.12, §10.2)."""

from __future__ import annotations

import asyncio

from scheduler.core.errors import Unavailable
from scheduler.framework.status import Wait
from tests.unit.fake_plugins import Holds
from tests.unit.harness import SchedulerHarness


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
