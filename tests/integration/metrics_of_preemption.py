"""Metrics of preemption: what each action on a daemon changes."""

from __future__ import annotations

from typing import Any, Final

from scheduler.config.types import OUR_NAME
from simulator.apiserver import ApiServer, Fault
from tests.integration.metering import DaemonStage, Steps, rises, staged, when

DELETE: Final[dict[str, Any]] = {"verb": "delete", "resource": "pods"}
_DONE: Final = "scheduler_preemption_goroutines_execution_total"
_DURATION: Final = "scheduler_preemption_goroutines_duration_seconds"
_LOST: Final = "kubestow_preemptions_lost_total"
_OTHERS: Final = "kubestow_preemption_other_victims_total"
_POINT: Final = "scheduler_framework_extension_point_duration_seconds"
_VICTIMS: Final = "scheduler_preemption_victims"


def _with_classes(server: ApiServer) -> None:
    for name, value in (("high", 1000), ("higher", 2000)):
        server.create("priorityclasses", {"metadata": {"name": name}, "value": value})


async def scenario() -> Steps:
    """Each part has one node of a different size, so that no other node fits its pods."""
    async with staged(before=[_with_classes]) as stage:
        for part in (_success, _failure, _lost):
            await part(stage)
        return stage.steps


def _victim(stage: DaemonStage, name: str, node: str, cpu: str, scheduler: str = OUR_NAME) -> None:
    stage.pod(name, cpu=cpu, nodeName=node, schedulerName=scheduler)


def _leaving(stage: DaemonStage, *names: str) -> bool:
    return all(stage.server.get("pods", name)["metadata"].get("deletionTimestamp") for name in names)


def _gone(stage: DaemonStage, *names: str) -> None:
    """Their kubelets have stopped them."""
    for name in names:
        stage.server.delete("pods", name, grace_s=0)


async def _success(stage: DaemonStage) -> None:
    with stage.steps(
        "a pod preempts three pods, two of them of another scheduler, and each deletion takes two seconds"
    ):
        stage.node("n1", cpu="3")
        _victim(stage, "a1", "n1", "1")
        _victim(stage, "a2", "n1", "1", "default-scheduler")
        _victim(stage, "a3", "n1", "1", "default-scheduler")
        await stage.seconds(1)
        stage.server.faults.add(Fault(**DELETE, delay_s=2, times=3))
        stage.pod("p", cpu="3", priorityClassName="high")
        await stage.until(lambda: _leaving(stage, "a1", "a2", "a3"), "not evicted")
        await stage.seconds(5)
    _gone(stage, "a1", "a2", "a3")
    await stage.bound("p")


async def _failure(stage: DaemonStage) -> None:
    with stage.steps("victims may not be deleted"):
        stage.node("n2", cpu="5")
        _victim(stage, "b", "n2", "5")
        await stage.seconds(1)
        refused = stage.server.faults.add(Fault(**DELETE, status=403, times=1))
        stage.pod("q", cpu="5", priorityClassName="high")
        await stage.until(lambda: refused.hits > 0, "not tried")
        await stage.seconds(0.5)
    await stage.until(lambda: _leaving(stage, "b"), "not evicted")
    _gone(stage, "b")
    await stage.bound("q")


async def _lost(stage: DaemonStage) -> None:
    stage.node("n3", cpu="7")
    _victim(stage, "c0", "n3", "7")
    await stage.seconds(1)
    stage.pod("r", cpu="7", priorityClassName="high")
    for i, step in enumerate(("freed capacity is lost once", "freed capacity is lost twice")):
        with stage.steps(step):
            await stage.until(lambda i=i: _leaving(stage, f"c{i}"), "not evicted")  # type: ignore[misc]
            await stage.seconds(5)
            _gone(stage, f"c{i}")
            _victim(stage, f"c{i + 1}", "n3", "7", "default-scheduler")
            await stage.until(lambda i=i: _leaving(stage, f"c{i + 1}"), "not evicted again")  # type: ignore[misc]
            await stage.seconds(5)


ROWS: Final = [
    *when(
        "a pod preempts three pods, two of them of another scheduler, and each deletion takes two seconds",
        rises("scheduler_preemption_attempts_total"),
        rises(_VICTIMS, total=3),
        rises(_OTHERS, 2),
        rises(_DONE, result="success"),
        rises(_DURATION, total=(4, 5), result="success"),
        rises(_POINT, extension_point="PostFilter", status="Success", profile=OUR_NAME),
    ),
    *when(
        "victims may not be deleted", rises(_DONE, result="error"), rises(_DURATION, result="error"), rises(_OTHERS, 0)
    ),
    *when("freed capacity is lost once", rises(_LOST, 0)),
    *when("freed capacity is lost twice", rises(_LOST)),
]
STORIES: Final = ((scenario, ROWS),)
