"""Metrics of bindings: statuses of extension points, the SLI duration, and the age of the oldest binding."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.api.core_v1 import Pod
from scheduler.framework.status import AttemptError, Code, Rejection
from tests.unit.fake_plugins import BeforeBind
from tests.unit.harness import SchedulerHarness, with_pods
from tests.unit.scenarios.seen import point_statuses, samples


class Waits(BeforeBind):
    """PreBind that returns once `go` is set."""

    def __init__(self) -> None:
        super().__init__("Waits")
        self.go = asyncio.Event()

    async def pre_bind(self, *_: object) -> Rejection | None:
        await self.go.wait()
        return None


@pytest.mark.parametrize(
    ("answer", "statuses"),
    [
        pytest.param(None, (["Success"], ["Success"]), id="success"),
        pytest.param(Rejection("Before", Code.UNSCHEDULABLE, ("no",)), (["Unschedulable"], []), id="a rejection"),
        pytest.param(Rejection("Before", Code.ERROR, ("broke",)), (["Error"], []), id="an error that is returned"),
        pytest.param(AttemptError("broke"), (["Error"], []), id="an error that is raised"),
        pytest.param(ValueError("unforeseen"), (["Error"], []), id="a bug of the plugin"),
    ],
)
async def test_statuses_of_prebind_and_bind(
    answer: Rejection | Exception | None, statuses: tuple[list[str], list[str]]
) -> None:
    """Upstream's statuses: alerts count those that are errors (docs/spec/core.md §7.1)."""
    sched = with_pods(pre_bind=(BeforeBind("Before", answer=answer),))
    await sched.settle()

    assert (point_statuses(sched, "PreBind"), point_statuses(sched, "Bind")) == statuses


async def test_a_pod_that_is_preempted_in_prebind_counts_no_failure() -> None:
    sched = with_pods(pre_bind=(Waits(),))
    await sched.settle()
    assert sched.parts.binder.preempt("uid-p", "DefaultPreemption")
    await sched.settle()

    assert point_statuses(sched, "PreBind") == point_statuses(sched, "Bind") == []


async def test_the_time_that_scheduling_took_counts_from_the_first_attempt() -> None:
    """A pod that found no node for 40 s took these 40 s, although its last attempt took none."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="2")
    await sched.settle()
    await sched.later(40)
    sched.node("n1", cpu="2")
    await sched.settle()

    assert ["default/p"] == [key for key, _ in sched.writer.binds]
    sums = samples(sched, "scheduler_pod_scheduling_sli_duration_seconds_sum")
    assert {each.labels["attempts"]: each.value for each in sums} == {"2": 40.0}


async def test_the_age_of_the_oldest_binding() -> None:
    """`oldest_s` runs from the pop until the answer, `unconfirmed_s` from the answer until the watch shows the pod."""
    plugin = Waits()
    sched = with_pods("", pre_bind=(plugin,))
    binder, cluster = sched.parts.binder, sched.cluster
    assert (binder.oldest_s(), cluster.unconfirmed_s()) == (0, 0)

    sched.pod("p")
    await sched.settle()
    await sched.later(40)
    sched.pod("q")
    await sched.settle()
    assert (binder.oldest_s(), cluster.unconfirmed_s()) == (40, 0)

    plugin.go.set()
    await sched.settle()
    await sched.later(7)
    assert (binder.oldest_s(), cluster.unconfirmed_s()) == (0, 7)

    sched.pod("p", on="n1")
    assert cluster.unconfirmed_s() == 7
    sched.gone("q")
    assert cluster.unconfirmed_s() == 0


async def test_a_watch_event_before_the_answer_leaves_nothing_unconfirmed() -> None:
    sched = with_pods()

    def answer(pod: Pod, node_name: str) -> None:
        sched.pod("p", on="n1")

    sched.writer.on_bind = answer
    await sched.settle()
    await sched.later(30)

    assert sched.cluster.sizes()["assumed_pods"] == 0
    assert sched.cluster.unconfirmed_s() == 0
