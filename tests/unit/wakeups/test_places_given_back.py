"""Places and claims of ours that end without a pod leaving a node: whom they held back is woken (docs/spec/core.md §1.12, §10.2)."""

from __future__ import annotations

import asyncio
from typing import Any

from scheduler.core.errors import Unavailable
from scheduler.framework.status import Wait
from tests.unit.brain import Brain
from tests.unit.toys import Holds

TAINT = [{"key": "reserved", "effect": "NoSchedule"}]
FIRST: dict[str, Any] = {
    "cpu": "4",
    "priority": 10,
    "nominated": "n1",
    "tolerations": [{"key": "reserved", "operator": "Exists"}],
}


async def held_back() -> Brain:
    """`first` is gated and nominated to n1, where it does not fit any more; but for that `second` would."""
    brain = Brain()
    brain.node("n1", cpu="4")
    brain.node("n2", cpu="4", taints=TAINT)
    brain.pod("theirs", cpu="1", on="n1", scheduler="other")
    brain.pod("first", **FIRST, gates=["wait"])
    brain.pod("second", cpu="2")
    await brain.settle()
    await brain.later(20)
    assert brain.places() == {"first": "gated", "second": "unschedulable"}
    return brain


async def test_a_nominated_pod_that_goes_elsewhere_wakes_whom_it_held_back() -> None:
    brain = await held_back()

    brain.pod("first", **FIRST)
    await brain.settle()

    assert brain.writer.binds == [("default/first", "n2"), ("default/second", "n1")]


async def test_a_pod_with_other_labels_than_when_it_was_assumed_wakes_whom_it_kept_away() -> None:
    """What was counted since the assumption was another pod, so to say: it has left."""
    brain = Brain()
    brain.node("n1", labels={"kubernetes.io/hostname": "n1"})
    brain.writer.hold = asyncio.Event()
    brain.pod("db", labels={"app": "db"})
    await brain.settle()
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    brain.pod("web", affinity=affinity)
    await brain.settle()
    await brain.later(20)
    assert brain.places()["web"] == "unschedulable"

    brain.pod("db", labels={"app": "cache"})
    brain.pod("db", labels={"app": "cache"}, on="n1")
    brain.writer.hold.set()
    await brain.settle()

    assert brain.writer.binds == [("default/db", "n1"), ("default/web", "n1")]


async def test_a_nomination_that_was_taken_back_ends_with_the_pod_at_the_latest() -> None:
    """Whom it held back is told when the watch shows that it is cleared; here it shows that the pod has gone."""
    brain = Brain()
    brain.node("n1", cpu="4")
    brain.pod("theirs", cpu="1", on="n1", scheduler="other")
    brain.pod("first", cpu="4", priority=10, nominated="n1", gates=["wait"])
    brain.pod("second", cpu="2")
    await brain.settle()
    await brain.later(20)
    assert brain.places() == {"first": "gated", "second": "unschedulable"}

    info = brain.parts.shared.pending.get("default/first")
    assert info is not None
    brain.parts.queue.nominator.add(info, "")
    brain.gone("first")
    await brain.settle()

    assert brain.writer.binds == [("default/second", "n1")]


async def test_a_pod_deleted_at_permit_wakes_others_once_and_not_before_its_place_is_free() -> None:
    """Its status says where it was to go; the place is given back by its binding task."""
    brain = Brain()
    brain.plug(permit=(Holds("A", permits=Wait(600)),))
    brain.node("n1", cpu="2")
    brain.pod("first", cpu="2")
    await brain.settle()
    brain.pod("first", cpu="2", nominated="n1")
    brain.pod("second", cpu="2")
    await brain.settle()
    await brain.later(20)
    assert brain.places()["second"] == "unschedulable"

    brain.gone("first")
    assert brain.places()["second"] == "unschedulable"
    await brain.settle()

    assert brain.cluster.is_assumed("uid-second")
    assert len(brain.parts.records.of("default/second")) == 2


async def test_a_nomination_that_only_we_know_and_that_is_given_up_wakes_whom_it_held_back() -> None:
    """Its write failed, so no watch event tells of its end."""
    brain = Brain()
    brain.node("n", cpu="4")
    brain.pod("v1", on="n", cpu="3", scheduler="other", priority=0)
    brain.writer.patch_errors = [Unavailable("etcd is slow")] * 12
    brain.pod("q", cpu="4", priority=10)
    await brain.settle()
    brain.pod("p", cpu="1", priority=5, preemptionPolicy="Never")
    await brain.settle()
    brain.gone("v1")
    brain.pod("w1", on="n", cpu="3", scheduler="other", priority=20)
    await brain.settle()
    assert ("n", {"p", "q"}) == (brain.parts.queue.nominator.node_of("uid-q"), set(brain.places()))

    for seconds in (2, 12, 12, 30):
        await brain.later(seconds)

    assert brain.parts.queue.nominator.node_of("uid-q") is None
    assert brain.writer.binds == [("default/p", "n")]
