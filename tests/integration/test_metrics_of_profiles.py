"""Metrics of SchedulerProfile objects and of the shell that watches them: what each action on a daemon changes."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import kopf  # noqa: F401 (loaded before the scenario: the thread that loads it would let virtual time run ahead)
import pytest

from scheduler.config.types import OUR_NAME
from simulator.apiserver import LIKE_1_36_WITH_OURS
from tests.integration.metering import Outcome, Row, Stage, Steps, rises, shows, staged, starts, when

PROFILES: Final = "schedulerprofiles"
_GENERATION: Final = "kubestow_profile_generation"
_INCOMING: Final = "scheduler_queue_incoming_pods_total"
_RELOADS: Final = "kubestow_profile_reloads_total"
_UNSCHEDULABLE: Final = "scheduler_unschedulable_pods"
_UP: Final = "kubestow_shell_up"


def _spec(plugin: str) -> dict[str, Any]:
    return {"plugins": {"score": {"enabled": [{"name": plugin, "weight": 2}]}}}


async def scenario() -> Steps:
    """Run the steps. A pod waits from the first step on, so each profile that is applied causes an attempt."""
    async with staged(served=LIKE_1_36_WITH_OURS) as stage:
        stage.node("n1", cpu="1")
        stage.pod("big", cpu="2")
        await stage.refused("big")
        await stage.until(lambda: _watches(stage) == 1, "kopf does not watch")
        await stage.seconds(5)  # the back-off of the pod is over
        stage.steps.begin("the shell is up")
        with stage.steps("a profile is created"):
            stage.server.create(PROFILES, {"metadata": {"name": OUR_NAME}, "spec": _spec("NodeResourcesFit")})
            await _observed(stage, 1)
        with stage.steps("a profile names a plugin that does not exist"):
            stage.server.patch(PROFILES, OUR_NAME, {"spec": _spec("NoSuchPlugin")})
            await _observed(stage, 2)
        with stage.steps("the profile is corrected"):
            stage.server.patch(PROFILES, OUR_NAME, {"spec": _spec("ImageLocality")})
            await _observed(stage, 3)
        with stage.steps("the profile is deleted"):
            stage.server.delete(PROFILES, OUR_NAME)
            await stage.until(lambda: not stage.daemon.decisions.reloading._wishes, "still in force")
            await stage.seconds(1)
        with stage.steps("a part of the shell ends"):
            next(task for task in asyncio.all_tasks() if task.get_name().startswith("resource observer")).cancel()
            await stage.until(lambda: bool(stage.daemon._shell._why), "not noticed")
        with stage.steps("the shell is up again"):
            await stage.until(lambda: _watches(stage) == 2, "kopf does not watch again")
            await stage.seconds(1)
        return stage.steps


def _watches(stage: Stage) -> int:
    return stage.server.requests()[f"watch {PROFILES} 200"]


async def _observed(stage: Stage, generation: int) -> None:
    """The status of the profile is about this generation."""

    def is_observed() -> bool:
        status = stage.server.get(PROFILES, OUR_NAME).get("status", {})
        return bool(status.get("observedGeneration") == generation)

    await stage.until(is_observed, f"generation {generation} was not observed")
    await stage.seconds(1)


ROWS: Final = [
    *when(
        "the shell is up",
        shows(_UP, 1),
        shows(_GENERATION, 0, profile=OUR_NAME),
        *(starts(_RELOADS, result=result) for result in ("applied", "refused", "removed")),
    ),
    *when(
        "a profile is created",
        rises(_RELOADS, result="applied"),
        shows(_GENERATION, 1, profile=OUR_NAME),
        rises(_INCOMING, queue="active", event="ProfileChanged"),
        rises(_UNSCHEDULABLE, 0, plugin="NodeResourcesFit", profile=OUR_NAME),
    ),
    *when("a profile names a plugin that does not exist", rises(_RELOADS, result="refused")),
    *when("the profile is corrected", rises(_RELOADS, result="applied"), shows(_GENERATION, 3, profile=OUR_NAME)),
    *when("the profile is deleted", rises(_RELOADS, result="removed"), shows(_GENERATION, 0, profile=OUR_NAME)),
    *when("a part of the shell ends", rises("kubestow_shell_restarts_total"), shows(_UP, 0)),
    *when("the shell is up again", shows(_UP, 1)),
]
OUTCOME: Final = Outcome(scenario)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_daemon_moves(row: Row) -> None:
    assert OUTCOME.problems(row) == []
