"""Pods that find no victims leave time for other pods (docs/spec/core.md §10.2).

The clock moves with every reading, so work takes the same time in each run, without any sleep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.config.args import KubestowArgs
from scheduler.config.types import Configuration
from scheduler.framework.extender import Consultation
from tests.unit.harness import SchedulerHarness, StepClock

NODES = 60
REPLICAS = 6
READING_S = 0.002
SPREAD = {
    "topologyKey": "zone",
    "maxSkew": 1,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "db"}},
}
"""Spread depends on all nodes, so no verdict is cached."""


class Reading(StepClock):
    """Each reading takes two milliseconds once it `runs`."""

    runs = False

    def now(self) -> float:
        self.time += READING_S if self.runs else 0.0
        return self.time


def crowded(monkeypatch: pytest.MonkeyPatch, **switches: Any) -> tuple[SchedulerHarness, list[str]]:
    """Return a scheduler where preemption finds no victims for replicas, and the list of tried pods.

    Each node has a pod of high priority and one of low priority. A replica requests a whole node.
    """
    config = Configuration()
    own = replace(config.profiles[0], args={**config.profiles[0].args, "Kubestow": KubestowArgs(**switches)})
    monkeypatch.setattr("tests.unit.harness.StepClock", Reading)
    sched = SchedulerHarness(replace(config, profiles=(own,)))
    for index in range(NODES):
        sched.node(f"n{index}", cpu="10", labels={"zone": f"z{index % 3}"})
        sched.pod(f"guard{index}", on=f"n{index}", cpu="1", priority=2000, scheduler="other")
        sched.pod(f"low{index}", on=f"n{index}", cpu="1", priority=-1, scheduler="other")
    tried: list[str] = []
    attempt = sched.parts.loop._cycle.attempt

    def noted(pod: PodInfo, attempts: int, consultation: Consultation | None = None) -> Any:
        tried.append(pod.pod.metadata.name)
        return attempt(pod, attempts, consultation)

    monkeypatch.setattr(sched.parts.loop._cycle, "attempt", noted)
    return sched, tried


def replicas(sched: SchedulerHarness, *names: str, priority: int = 1000, cpu: str = "10") -> None:
    for name in names or [f"db{index}" for index in range(REPLICAS)]:
        sched.pod(name, cpu=cpu, priority=priority, labels={"app": "db"}, topologySpreadConstraints=[SPREAD])


def wake_all(sched: SchedulerHarness) -> None:
    """Delete a pod, which wakes all pods that wait for capacity."""
    sched.gone("low0")
    sched.pod("low0", on="n0", cpu="1", priority=-1, scheduler="other", uid=f"uid-low0-{sched.clock.time}")


async def busy(sched: SchedulerHarness, tried: list[str], *, is_over: Callable[[], bool]) -> list[str]:
    """Return the order of attempts until `is_over`, with the clock running. All pods are woken before each step."""
    tried.clear()
    sched.clock.runs = True  # type: ignore[attr-defined]
    for _ in range(2000):
        if is_over():
            break
        wake_all(sched)
        await sched.parts.loop.step()
        await sched.turns()
    sched.clock.runs = False  # type: ignore[attr-defined]
    assert is_over()
    return tried


async def failed_once(sched: SchedulerHarness, tried: list[str]) -> None:
    """All replicas have failed once, and their back-off is over."""
    replicas(sched)
    sched.clock.runs = True  # type: ignore[attr-defined]
    for _ in range(REPLICAS):
        await sched.parts.loop.step()
    sched.clock.runs = False  # type: ignore[attr-defined]
    assert sorted(tried) == [f"db{index}" for index in range(REPLICAS)]
    sched.clock.move(20)
    wake_all(sched)
    sched.parts.queue.tick()
    assert sched.parts.queue.counts()["active"] == REPLICAS


def bound(sched: SchedulerHarness, names: list[str]) -> Callable[[], bool]:
    return lambda: {f"default/{name}" for name in names} <= {key for key, _ in sched.writer.binds}


SMALL = [f"small{index}" for index in range(20)]


async def test_pods_never_tried_go_first_once_the_replicas_have_used_up_their_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One replica is tried by its priority. After it, small pods get nine times as long."""
    sched, tried = crowded(monkeypatch)
    await failed_once(sched, tried)
    for name in SMALL:
        sched.pod(name, cpu="100m", priority=0)

    order = await busy(sched, tried, is_over=bound(sched, SMALL))

    assert [name for name in order if name.startswith("small")] == SMALL
    assert order[0].startswith("db")
    assert sum(name.startswith("db") for name in order) <= 2


@pytest.mark.parametrize(
    "switches",
    [pytest.param({"preemption_fair_share": "none"}, id="the switch"), pytest.param({"parity": True}, id="parity")],
)
async def test_priority_alone_decides_without_the_share(monkeypatch: pytest.MonkeyPatch, switches: Any) -> None:
    """As kube-scheduler: every replica is tried before any small pod is, and that again after each back-off."""
    sched, tried = crowded(monkeypatch, **switches)
    await failed_once(sched, tried)
    for name in SMALL:
        sched.pod(name, cpu="100m", priority=0)

    order = await busy(sched, tried, is_over=bound(sched, SMALL))

    assert order.index("small0") >= REPLICAS


async def test_replicas_keep_their_share_while_pods_that_fit_keep_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    sched, tried = crowded(monkeypatch)
    await failed_once(sched, tried)
    spent: list[float] = []
    charge = sched.parts.queue.fair_share.charge

    def charged(info: PodInfo, spent_s: float) -> None:
        spent.append(spent_s)
        charge(info, spent_s)

    monkeypatch.setattr(sched.parts.queue.fair_share, "charge", charged)
    began, index = sched.clock.time, 0

    def is_over() -> bool:
        nonlocal index
        while sched.parts.queue.counts()["active"] < REPLICAS + 3:
            sched.pod(f"stream{index}", cpu="1m", priority=0)
            index += 1
        return len(spent) >= 2 * REPLICAS

    order = await busy(sched, tried, is_over=is_over)

    assert 0.05 <= sum(spent) / (sched.clock.time - began) <= 0.15
    assert {name for name in order if name.startswith("db")} == {f"db{index}" for index in range(REPLICAS)}
