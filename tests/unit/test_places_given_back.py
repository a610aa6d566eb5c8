"""Places and claims of ours that end without a pod leaving a node: whom they held back is woken (docs/spec/core.md §1.12, §10.2)."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.brain import Brain

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
    """The place that it gives up is one that nobody leaves."""
    brain = await held_back()

    brain.pod("first", **FIRST)
    await brain.settle()

    assert brain.writer.binds == [("default/first", "n2"), ("default/second", "n1")]


async def test_a_nominated_pod_that_somebody_binds_elsewhere_wakes_whom_it_held_back() -> None:
    """Its claim ends though no pod leaves n1."""
    brain = await held_back()

    brain.pod("first", **FIRST, on="n2")
    await brain.settle()

    assert brain.writer.binds == [("default/second", "n1")]


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
