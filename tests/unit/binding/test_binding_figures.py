"""What is measured of bindings: how each extension point ended, and who has been on the way for longest."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.api.core_v1 import Pod
from scheduler.core.errors import ApiError, Conflict, Forbidden, NotFound
from scheduler.framework.status import AttemptError, Code, Rejection
from tests.unit.fake_plugins import BeforeBind
from tests.unit.harness import SchedulerHarness, manifest, typed

_NAME = "scheduler_framework_extension_point_duration_seconds"


def ends(sched: SchedulerHarness) -> dict[str, list[str]]:
    """Of PreBind and Bind: the statuses that were told."""
    told: dict[str, list[str]] = {}
    for family in text_string_to_metric_families(sched.parts.shared.metrics.render().decode()):
        for sample in family.samples:
            if sample.name == f"{_NAME}_count" and sample.labels["extension_point"] in {"PreBind", "Bind"}:
                told.setdefault(sample.labels["extension_point"], []).extend(
                    [sample.labels["status"]] * int(sample.value)
                )
    return told


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(None, {"PreBind": ["Success"], "Bind": ["Success"]}, id="all went well"),
        pytest.param(Rejection("Before", Code.UNSCHEDULABLE, ("no",)), {"PreBind": ["Unschedulable"]}, id="refused"),
        pytest.param(
            Rejection("Before", Code.ERROR, ("broke",)), {"PreBind": ["Error"]}, id="an error that is answered"
        ),
        pytest.param(AttemptError("broke"), {"PreBind": ["Error"]}, id="an error that is raised"),
        pytest.param(ValueError("unforeseen"), {"PreBind": ["Error"]}, id="a mistake of the plugin"),
    ],
)
async def test_how_prebind_ended(answer: Rejection | Exception | None, told: dict[str, list[str]]) -> None:
    """Upstream's statuses: alerts count those that are errors (docs/spec/core.md §7.1)."""
    sched = SchedulerHarness()
    sched.plug(pre_bind=(BeforeBind("Before", answer=answer),))
    sched.node("n1")
    sched.pod("p")
    await sched.settle()

    assert ends(sched) == told


@pytest.mark.parametrize(
    ("error", "server", "told"),
    [
        pytest.param(Forbidden("no"), {}, ["Error"], id="the server refuses"),
        pytest.param(NotFound("gone"), {}, [], id="the pod is gone: that is no failure"),
        pytest.param(
            Conflict("taken"), {"on": "elsewhere"}, [], id="somebody else was faster: that is counted elsewhere"
        ),
    ],
)
async def test_how_bind_ended(error: ApiError, server: dict[str, object], told: list[str]) -> None:
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("p")
    if server:
        sched.writer.server["default/p"] = typed(manifest("p", **server))

    def answer(pod: Pod, node_name: str) -> None:
        raise error

    sched.writer.on_bind = answer
    await sched.settle()

    assert ends(sched).get("Bind", []) == told


async def test_preemption_is_no_failure() -> None:
    """The place of a pod in PreBind is taken back: the plugin did nothing wrong."""
    sched, begun = SchedulerHarness(), asyncio.Event()

    class Waits(BeforeBind):
        async def pre_bind(self, *_: object) -> Rejection | None:
            begun.set()
            await asyncio.Event().wait()
            return None

    sched.plug(pre_bind=(Waits("Waits"),))
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    assert begun.is_set()
    assert sched.parts.binder.preempt("uid-p", "DefaultPreemption")
    await sched.settle()

    assert ends(sched) == {}


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
    families = text_string_to_metric_families(sched.parts.shared.metrics.render().decode())
    sums = {
        sample.labels["attempts"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "scheduler_pod_scheduling_sli_duration_seconds_sum"
    }
    assert sums == {"2": 40.0}


async def test_the_oldest_on_its_way() -> None:
    """From being taken off the queue until the answer; then until the watch shows it."""
    sched, answered = SchedulerHarness(), asyncio.Event()

    class Waits(BeforeBind):
        async def pre_bind(self, *_: object) -> Rejection | None:
            await answered.wait()
            return None

    sched.plug(pre_bind=(Waits("Waits"),))
    sched.node("n1")
    binder, cluster = sched.parts.binder, sched.cluster
    assert (binder.oldest_s(), cluster.unconfirmed_s()) == (0, 0)

    sched.pod("p")
    await sched.settle()
    await sched.later(40)
    sched.pod("q")
    await sched.settle()
    assert (binder.oldest_s(), cluster.unconfirmed_s()) == (40, 0)

    answered.set()
    await sched.settle()
    await sched.later(7)
    assert (binder.oldest_s(), cluster.unconfirmed_s()) == (0, 7)

    sched.pod("p", on="n1")
    assert cluster.unconfirmed_s() == 7
    sched.gone("q")
    assert cluster.unconfirmed_s() == 0


async def test_a_watch_that_is_faster_than_the_answer_owes_nothing() -> None:
    """The pod is confirmed before the server has said that it is bound."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("p")

    def answer(pod: Pod, node_name: str) -> None:
        sched.pod("p", on="n1")

    sched.writer.on_bind = answer
    await sched.settle()
    await sched.later(30)

    assert sched.cluster.sizes()["assumed_pods"] == 0
    assert sched.cluster.unconfirmed_s() == 0
