"""Metrics of groups: what each action on a daemon changes."""

from __future__ import annotations

from typing import Final

from scheduler.api.storage_v1 import SELECTED_NODE
from scheduler.config.types import OUR_NAME
from simulator.apiserver import GROUPS, LIKE_1_36
from tests.integration.metering import DaemonStage, Steps, rises, shows, staged, when

_ATTEMPTS: Final = "scheduler_podgroup_schedule_attempts_total"
_TOOK: Final = "scheduler_podgroup_scheduling_attempt_duration_seconds"
_ALGORITHM: Final = "scheduler_podgroup_scheduling_algorithm_duration_seconds"
_GIVEN_UP: Final = "kubestow_groups_given_up_total"
_STATES: Final = "kubestow_groups"


async def scenario() -> Steps:
    async with staged(served=(*LIKE_1_36, *GROUPS)) as stage:
        stage.node("n1", cpu="4")
        with stage.steps("a group has too few pods"):
            stage.server.create(
                "podgroups", {"metadata": {"name": "early"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
            )
            stage.pod("early-0", cpu="10m", schedulingGroup={"podGroupName": "early"})
            await stage.until(lambda: _states(stage)["gated"] == 1, "not gated")
        with stage.steps("a group of three starts"):
            _group(stage, "fits", 3, cpu="1")
            await stage.bound("fits-0", "fits-1", "fits-2")
            await stage.until(lambda: _states(stage)["running"] == 1, "not shown")
        with stage.steps("a group does not fit"):
            _group(stage, "large", 2, cpu="3")
            await stage.refused("large-0", "large-1")
        with stage.steps("the pods of a group disagree with it"):
            _group(stage, "mixed", 2, cpu="10m", priority=7)
            await stage.refused("mixed-0", "mixed-1")
        with stage.steps("a group waits for a volume"):
            await _preparing(stage)
        with stage.steps("a pod of a group is gone before the group starts"):
            stage.server.delete("pods", "lost-0", grace_s=0)
            await stage.refused("lost-1")
        with stage.steps("a running group gets a larger minimum, and a pod that does not fit"):
            stage.server.patch("podgroups", "fits", {"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}})
            stage.pod("fits-3", cpu="4", schedulingGroup={"podGroupName": "fits"})
            await stage.refused("fits-3")
        return stage.steps


def _group(stage: DaemonStage, name: str, least: int, *, cpu: str, priority: int = 0) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}, "priority": priority}
    stage.server.create("podgroups", {"metadata": {"name": name}, "spec": spec})
    for at in range(least):
        stage.pod(f"{name}-{at}", cpu=cpu, schedulingGroup={"podGroupName": name})


def _states(stage: DaemonStage) -> dict[str, int]:
    return stage.daemon.scheduler.group_states.counts()


async def _preparing(stage: DaemonStage) -> None:
    """A pod waits for a volume that is never made."""
    binding = {"provisioner": "none.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
    stage.server.create("storageclasses", {"metadata": {"name": "slow"}, **binding})
    spec = {"storageClassName": "slow", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    stage.server.create("persistentvolumeclaims", {"metadata": {"name": "disk"}, "spec": spec})
    stage.server.create(
        "podgroups", {"metadata": {"name": "lost"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    )
    disk = {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
    for name, volumes in (("lost-0", [disk]), ("lost-1", [])):
        stage.pod(name, cpu="10m", schedulingGroup={"podGroupName": "lost"}, volumes=volumes)

    def is_selected() -> bool:
        return SELECTED_NODE in (
            stage.server.get("persistentvolumeclaims", "disk")["metadata"].get("annotations") or {}
        )

    await stage.until(is_selected, "no write")


ROWS: Final = [
    *when("a group has too few pods", shows(_STATES, 1, state="gated")),
    *when(
        "a group of three starts",
        rises(_ATTEMPTS, result="scheduled", profile=OUR_NAME),
        rises(_TOOK, result="scheduled", profile=OUR_NAME),
        rises(_ALGORITHM),
        rises(_GIVEN_UP, 0),
        shows(_STATES, 1, state="running"),
    ),
    *when(
        "a group does not fit",
        rises(_ATTEMPTS, result="unschedulable", profile=OUR_NAME),
        rises(_TOOK, result="unschedulable", profile=OUR_NAME),
        shows(_STATES, 1, state="waiting"),
    ),
    *when(
        "the pods of a group disagree with it",
        rises(_ATTEMPTS, result="error", profile=OUR_NAME),
        rises(_TOOK, result="error", profile=OUR_NAME),
        rises(_ALGORITHM, 0),
    ),
    *when("a group waits for a volume", shows(_STATES, 1, state="binding")),
    *when("a pod of a group is gone before the group starts", rises(_GIVEN_UP)),
    *when(
        "a running group gets a larger minimum, and a pod that does not fit",
        shows(_STATES, 0, state="running"),
        shows(_STATES, 1, state="incomplete"),
    ),
]
STORIES: Final = ((scenario, ROWS),)
