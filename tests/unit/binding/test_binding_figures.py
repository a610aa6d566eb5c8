"""What is measured of bindings: how each extension point ended, and who has been on the way for longest."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.api.core_v1 import Pod
from scheduler.core.errors import ApiError, Conflict, Forbidden, NotFound
from scheduler.framework.status import AttemptError, Code, Rejection
from tests.unit.brain import Brain, manifest, typed
from tests.unit.toys import BeforeBind

_NAME = "scheduler_framework_extension_point_duration_seconds"


def ends(brain: Brain) -> dict[str, list[str]]:
    """Of PreBind and Bind: the statuses that were told."""
    told: dict[str, list[str]] = {}
    for family in text_string_to_metric_families(brain.parts.shared.metrics.render().decode()):
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
    brain = Brain()
    brain.plug(pre_bind=(BeforeBind("Before", answer=answer),))
    brain.node("n1")
    brain.pod("p")
    await brain.settle()

    assert ends(brain) == told


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
    brain = Brain()
    brain.node("n1")
    brain.pod("p")
    if server:
        brain.writer.server["default/p"] = typed(manifest("p", **server))

    def answer(pod: Pod, node_name: str) -> None:
        raise error

    brain.writer.on_bind = answer
    await brain.settle()

    assert ends(brain).get("Bind", []) == told


async def test_preemption_is_no_failure() -> None:
    """The place of a pod in PreBind is taken back: the plugin did nothing wrong."""
    brain, begun = Brain(), asyncio.Event()

    class Waits(BeforeBind):
        async def pre_bind(self, *_: object) -> Rejection | None:
            begun.set()
            await asyncio.Event().wait()
            return None

    brain.plug(pre_bind=(Waits("Waits"),))
    brain.node("n1")
    brain.pod("p")
    await brain.settle()
    assert begun.is_set()
    assert brain.parts.binder.preempt("uid-p", "DefaultPreemption")
    await brain.settle()

    assert ends(brain) == {}


async def test_the_time_that_scheduling_took_counts_from_the_first_attempt() -> None:
    """A pod that found no node for 40 s took these 40 s, although its last attempt took none."""
    brain = Brain()
    brain.node("n1", cpu="1")
    brain.pod("p", cpu="2")
    await brain.settle()
    await brain.later(40)
    brain.node("n1", cpu="2")
    await brain.settle()

    assert ["default/p"] == [key for key, _ in brain.writer.binds]
    families = text_string_to_metric_families(brain.parts.shared.metrics.render().decode())
    sums = {
        sample.labels["attempts"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "scheduler_pod_scheduling_sli_duration_seconds_sum"
    }
    assert sums == {"2": 40.0}


async def test_the_oldest_on_its_way() -> None:
    """From being taken off the queue until the answer; then until the watch shows it."""
    brain, answered = Brain(), asyncio.Event()

    class Waits(BeforeBind):
        async def pre_bind(self, *_: object) -> Rejection | None:
            await answered.wait()
            return None

    brain.plug(pre_bind=(Waits("Waits"),))
    brain.node("n1")
    binder, cluster = brain.parts.binder, brain.cluster
    assert (binder.oldest_s(), cluster.unconfirmed_s()) == (0, 0)

    brain.pod("p")
    await brain.settle()
    await brain.later(40)
    brain.pod("q")
    await brain.settle()
    assert (binder.oldest_s(), cluster.unconfirmed_s()) == (40, 0)

    answered.set()
    await brain.settle()
    await brain.later(7)
    assert (binder.oldest_s(), cluster.unconfirmed_s()) == (0, 7)

    brain.pod("p", on="n1")
    assert cluster.unconfirmed_s() == 7
    brain.gone("q")
    assert cluster.unconfirmed_s() == 0


async def test_a_watch_that_is_faster_than_the_answer_owes_nothing() -> None:
    """The pod is confirmed before the server has said that it is bound."""
    brain = Brain()
    brain.node("n1")
    brain.pod("p")

    def answer(pod: Pod, node_name: str) -> None:
        brain.pod("p", on="n1")

    brain.writer.on_bind = answer
    await brain.settle()
    await brain.later(30)

    assert brain.cluster.sizes()["assumed_pods"] == 0
    assert brain.cluster.unconfirmed_s() == 0
