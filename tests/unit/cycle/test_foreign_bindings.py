"""Among equal nodes, those to which another scheduler has just bound a pod come last (docs/spec/core.md §2.6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scheduler.cache.cluster import RECENT_S, ForeignBindings
from scheduler.config.args import KubestowArgs
from scheduler.config.types import Configuration
from tests.unit.harness import SchedulerHarness

NODES = ("n0", "n1", "n2", "n3")
BUSY = ("n0", "n2")
POD = {"cpu": "100m", "scheduler": "other"}
TRIES = 40


def crowd(*, busy: tuple[str, ...] = BUSY, **switches: Any) -> SchedulerHarness:
    """Return equal nodes with one foreign pod each. Only the pods of the busy nodes are new."""
    config = Configuration()
    own = replace(config.profiles[0], args={**config.profiles[0].args, "Kubestow": KubestowArgs(**switches)})
    sched = SchedulerHarness(replace(config, profiles=(own,)))
    for name in NODES:
        sched.node(name, pods="1000", cpu="400")
        if name not in busy:
            sched.pod(f"old-{name}", on=name, **POD)
    sched.clock.move(60)
    for name in busy:
        sched.pod(f"new-{name}", on=name, **POD)
    return sched


async def chosen(sched: SchedulerHarness) -> set[str]:
    """Return the nodes to which single pods are bound, one after the other."""
    for index in range(TRIES):
        name = f"p{index}"
        sched.pod(name, cpu="1")
        await sched.settle()
        sched.pod(name, cpu="1", on=sched.writer.binds[-1][1])
        sched.gone(name)
    return {node for _, node in sched.writer.binds}


@pytest.mark.parametrize(
    ("sched", "wait_s", "wanted"),
    [
        pytest.param(crowd, 0.0, {"n1", "n3"}, id="busy nodes are avoided"),
        pytest.param(crowd, 0.9, {"n1", "n3"}, id="busy nodes are avoided for a second"),
        pytest.param(crowd, 1.1, set(NODES), id="after a second all nodes are equal"),
        pytest.param(lambda: crowd(busy=NODES), 0.0, set(NODES), id="if all are busy all are equal"),
        pytest.param(lambda: crowd(busy_nodes="none"), 0.0, set(NODES), id="the switch turns it off"),
        pytest.param(lambda: crowd(parity=True), 0.0, set(NODES), id="parity turns it off"),
    ],
)
async def test_a_pod_of_another_scheduler_makes_its_node_the_last_of_equals(
    sched: Any, wait_s: float, wanted: set[str]
) -> None:
    made = sched()
    made.parts.chance.seed(7)
    made.clock.move(wait_s)

    assert await chosen(made) == wanted


async def test_a_better_node_is_taken_though_it_is_busy() -> None:
    sched = crowd(busy=("n0",))
    for name in NODES[1:]:
        sched.pod(f"more-{name}", on=name, cpu="100", scheduler="other")
    sched.clock.move(60)
    sched.gone("new-n0")
    sched.pod("new-n0", on="n0", **POD)

    assert await chosen(sched) == {"n0"}


async def test_pods_that_this_scheduler_bound_make_no_node_busy() -> None:
    sched = crowd(busy=())
    sched.pod("p", cpu="1")
    await sched.settle()
    sched.pod("p", cpu="1", on=sched.writer.binds[-1][1])

    slots = np.arange(len(NODES))
    assert len(sched.cluster.foreign_bindings.spared(slots, sched.clock.now())) == len(NODES)


@pytest.mark.parametrize(
    ("slots", "wanted"),
    [
        pytest.param([1, 5, 700], [1, 5], id="a slot far beyond the first ones"),
        pytest.param([1, 9000], [1, 9000], id="an unknown slot"),
        pytest.param([700], [700], id="the only one"),
    ],
)
def test_slots_grow_as_the_cluster_does(slots: list[int], wanted: list[int]) -> None:
    bindings = ForeignBindings()
    bindings.add(3, 10.0)
    bindings.add(700, 10.0)

    assert bindings.spared(np.array(slots), 10.0 + RECENT_S / 2).tolist() == wanted
