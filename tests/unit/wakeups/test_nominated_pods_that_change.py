"""A nominated pod that takes less of its node, or takes another one, wakes the pods that wait for that node."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import requesting

OURS = "kubestow"
THEIRS = "theirs"
GPU = "example.com/gpu"


def nominee(sched: SchedulerHarness, scheduler: str, **changed: object) -> None:
    """Show a pod that is gated and nominated to n1."""
    spec = {"gates": ["g"], "nominated": "n1", "priority": 5, "containers": requesting(cpu="3"), **changed}
    sched.pod("nominee", scheduler=scheduler, **spec)


def shrinks(sched: SchedulerHarness, scheduler: str) -> None:
    nominee(sched, scheduler, containers=requesting(cpu="1"))


def is_relabelled(sched: SchedulerHarness, scheduler: str) -> None:
    nominee(sched, scheduler, labels={"app": "other"})


def _apart(app: str) -> dict[str, object]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize("scheduler", [OURS, THEIRS])
@pytest.mark.parametrize(
    ("labels", "affinity", "changes"),
    [
        pytest.param({}, {}, shrinks, id="it requests less"),
        pytest.param({"app": "db"}, _apart("db"), is_relabelled, id="its labels no longer match"),
    ],
)
async def test_a_nominated_pod_takes_less(
    scheduler: str,
    labels: dict[str, str],
    affinity: dict[str, object],
    changes: Callable[[SchedulerHarness, str], None],
) -> None:
    """A waiting pod is woken, as when a bound pod changes in this way."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="4", labels={"kubernetes.io/hostname": "n1"})
    nominee(sched, scheduler, labels=labels)
    sched.pod("waits", containers=requesting(cpu="2" if changes is shrinks else "1"), affinity=affinity)
    await sched.settle()
    assert sched.places()["waits"] == "unschedulable"

    changes(sched, scheduler)
    await sched.later(11.0)

    assert [("default/waits", "n1")] == sched.writer.binds


async def test_a_nominated_pod_takes_another_node() -> None:
    """Pods that wait for the node of its nomination are woken."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="4", labels={"tier": "a"}, **{GPU: "1"})
    wants = {"priority": 5, "nominated": "n1", "nodeSelector": {"tier": "a"}, "containers": requesting(cpu="3")}
    sched.pod("nominee", gates=["g"], **wants)
    sched.pod("waits", containers=requesting(cpu="2", **{GPU: "1"}))
    sched.node("n1", cpu="4", labels={"tier": "b"}, **{GPU: "1"})
    await sched.settle()
    assert sched.places()["waits"] == "unschedulable"

    sched.node("n2", cpu="4", labels={"tier": "a"})
    sched.pod("nominee", **wants)
    await sched.later(11.0)

    assert [("default/nominee", "n2"), ("default/waits", "n1")] == sched.writer.binds
