"""The node for a pod where another scheduler may fill the best one (docs/spec/core.md §2.6, docs/adr/0017)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scheduler.config.args import KubestowArgs
from scheduler.config.types import Configuration
from tests.unit.harness import SchedulerHarness

FREE = {"empty": 2000, "half": 1500, "full": 1000}
"""Name of a node of 4 CPU → the milli-CPU that it has left."""


def another_binds(sched: SchedulerHarness, name: str = "first", on: str = "elsewhere", **spec: Any) -> None:
    """The watch shows a pod of another scheduler, and then that it is bound."""
    spec = {"cpu": "1", "scheduler": "theirs"} | spec
    sched.pod(name, **spec)
    sched.pod(name, **spec, on=on)


def nearly_full(labels: dict[str, dict[str, str]] | None = None, **switches: Any) -> SchedulerHarness:
    """Return three nodes that differ in their free cpu."""
    config = Configuration()
    own = replace(config.profiles[0], args={**config.profiles[0].args, "Kubestow": KubestowArgs(**switches)})
    sched = SchedulerHarness(replace(config, profiles=(own,)))
    for name, free in FREE.items():
        sched.node(name, cpu="4", labels=(labels or {}).get(name, {}))
        sched.pod(f"on-{name}", cpu=f"{4000 - free}m", scheduler="theirs", on=name)
    return sched


async def chosen(sched: SchedulerHarness, **spec: Any) -> str:
    sched.pod("p", **{"cpu": "1", **spec})
    await sched.settle()
    return sched.writer.binds[-1][1]


async def test_the_fullest_node_is_taken_where_another_scheduler_may_fill_the_best_one() -> None:
    sched = nearly_full()
    another_binds(sched)

    assert await chosen(sched) == "full"


@pytest.mark.parametrize(("cpu", "wanted"), [
    pytest.param("500m", "empty", id="two of theirs fit with the pod"),
    pytest.param("501m", "full", id="one fits"),
])  # fmt: skip
async def test_a_node_with_capacity_for_two_of_their_pods_is_not_contested(cpu: str, wanted: str) -> None:
    sched = nearly_full()
    another_binds(sched, cpu=cpu)

    assert await chosen(sched) == wanted


async def test_a_node_that_allows_one_more_pod_of_theirs_is_contested() -> None:
    sched = SchedulerHarness()
    for name, pods in (("empty", "3"), ("full", "110")):
        sched.node(name, cpu="400", pods=pods)
    sched.pod("there", cpu="100", scheduler="theirs", on="full")
    another_binds(sched)
    assert await chosen(sched) == "empty"

    sched.gone("p")
    sched.node("empty", cpu="400", pods="2")
    assert await chosen(sched) == "full"


async def test_a_pod_without_requests_goes_to_the_node_with_the_most_pods() -> None:
    sched = SchedulerHarness()
    for name, pods in (("a", 1), ("b", 0)):
        sched.node(name, pods="2")
        for index in range(pods):
            sched.pod(f"{name}-{index}", scheduler="theirs", on=name)
    another_binds(sched)

    assert await chosen(sched, cpu=None) == "a"


async def test_what_the_pod_prefers_comes_first() -> None:
    """The fullest node is taken of those that are as good apart from resources."""
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    }
    sched = nearly_full({"empty": {"disk": "ssd"}, "half": {"disk": "ssd"}})
    another_binds(sched)

    assert await chosen(sched, affinity=affinity) == "half"


async def test_the_largest_pod_of_the_last_minute_counts() -> None:
    sched = nearly_full()
    another_binds(sched, "large", cpu="2")
    sched.clock.move(59)
    another_binds(sched, "small", cpu="100m")
    sched.clock.move(2)
    another_binds(sched, "smaller", cpu="10m")
    assert await chosen(sched) == "full"

    sched.clock.move(61)
    another_binds(sched, "last", cpu="10m")
    sched.gone("p")
    assert await chosen(sched) == "empty"


@pytest.mark.parametrize(("nodes", "wanted"), [
    pytest.param(["full"] * 19, "empty", id="it packs"),
    pytest.param(["full"] * 18, "full", id="too few bindings"),
    pytest.param(["full"] * 19 + ["empty"], "full", id="it no longer packs"),
    pytest.param(["elsewhere"] * 20, "full", id="its node is unknown"),
])  # fmt: skip
async def test_a_scheduler_that_packs_takes_the_emptiest_node_last(nodes: list[str], wanted: str) -> None:
    sched = nearly_full()
    for at, name in enumerate(nodes):
        another_binds(sched, f"theirs-{at}", on=name, cpu="1m")
        sched.clock.move(0.02)
    another_binds(sched, "large")

    assert await chosen(sched, cpu="900m") == wanted


async def test_of_many_bindings_at_once_one_is_compared() -> None:
    sched = nearly_full()
    for at in range(40):
        another_binds(sched, f"theirs-{at}", on="full", cpu="1m")

    assert not sched.cluster.foreign_bindings.pack


async def test_a_binding_to_a_node_without_capacity_for_it_says_nothing() -> None:
    sched = nearly_full()
    for at in range(19):
        another_binds(sched, f"theirs-{at}", on="full", cpu="1m")
        sched.clock.move(0.02)
    for at in range(7):
        another_binds(sched, f"large-{at}", on="empty", cpu="3")
        sched.clock.move(0.02)

    assert sched.cluster.foreign_bindings.pack


def _nothing(sched: SchedulerHarness) -> None:
    """No pod of another scheduler."""


def _listed(sched: SchedulerHarness) -> None:
    sched.pod("first", cpu="1", on="elsewhere", scheduler="theirs")


def _earlier_leader(sched: SchedulerHarness) -> None:
    another_binds(sched, scheduler="kubestow")


def _unbound(sched: SchedulerHarness) -> None:
    sched.pod("first", cpu="1", scheduler="theirs")


def _long_ago(sched: SchedulerHarness) -> None:
    another_binds(sched)
    sched.clock.move(60.1)


@pytest.mark.parametrize("before", [
    pytest.param(_nothing, id="there is none"),
    pytest.param(_listed, id="its pod was bound before the first list"),
    pytest.param(_earlier_leader, id="another replica bound a pod of ours"),
    pytest.param(_unbound, id="it has not bound its pod"),
    pytest.param(_long_ago, id="it bound nothing for a minute"),
])  # fmt: skip
async def test_the_best_node_is_taken_if(before: Callable[[SchedulerHarness], None]) -> None:
    sched = nearly_full()
    before(sched)

    assert await chosen(sched) == "empty"


@pytest.mark.parametrize("switches", [{"parity": True}, {"busy_nodes": "none"}], ids=str)
async def test_the_best_node_is_taken_without_the_switch(switches: dict[str, Any]) -> None:
    sched = nearly_full(**switches)
    another_binds(sched)

    assert await chosen(sched) == "empty"
