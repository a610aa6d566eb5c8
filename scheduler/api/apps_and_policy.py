"""Services, controllers that own pods, and PodDisruptionBudgets as they are decoded.

Of Services and controllers only the selectors matter (docs/spec/core.md §5.8). Budgets: docs/spec/core.md §3.10.
"""

from __future__ import annotations

import functools
import math
from datetime import UTC, datetime
from typing import Any, Final

from scheduler.api.core_v1 import Pod, PodCondition
from scheduler.api.meta import Frozen, Labels, NamespacedObject
from scheduler.api.selectors import LabelSelector


class PlainSelector(Frozen, frozen=True):
    """A `spec` whose selector is a map of labels; None is a nil selector."""

    selector: Labels | None = None


class Service(NamespacedObject, frozen=True):
    """A Service; with a nil selector it selects no pod."""

    spec: PlainSelector = PlainSelector()


class ReplicationController(NamespacedObject, frozen=True):
    spec: PlainSelector = PlainSelector()


class SetSelector(Frozen, frozen=True):
    """A `spec` whose selector is a `LabelSelector`; None is a nil selector."""

    selector: LabelSelector | None = None


class ReplicaSet(NamespacedObject, frozen=True):
    spec: SetSelector = SetSelector()


class StatefulSet(NamespacedObject, frozen=True):
    spec: SetSelector = SetSelector()


DISRUPTION_TARGET: Final = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"


class BudgetStatus(Frozen, frozen=True):
    """What its controller reports."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] = {}
    """By pod name: evictions that the API server has already allowed."""


class PodDisruptionBudget(NamespacedObject, frozen=True):
    """A budget. Without a selector it protects no pods."""

    spec: SetSelector = SetSelector()
    status: BudgetStatus = BudgetStatus()


def preempted_by(scheduler_name: str, generation: int) -> PodCondition:
    """Return the condition that a victim gets before it is deleted."""
    return PodCondition(
        type=DISRUPTION_TARGET,
        status="True",
        reason=PREEMPTION_BY_SCHEDULER,
        message=f"{scheduler_name}: preempting to accommodate a higher priority pod",
        observed_generation=generation,
    )


def is_leaving_for_a_preemptor(pod: Pod) -> bool:
    """Return whether the pod is being deleted because a scheduler preempted it."""
    if pod.metadata.deletion_timestamp is None:
        return False
    condition = pod.condition(DISRUPTION_TARGET)
    return condition is not None and condition.status == "True" and condition.reason == PREEMPTION_BY_SCHEDULER


@functools.lru_cache(maxsize=4096)
def started_at(start_time: str | None) -> float:
    """Return `status.startTime` in seconds since the epoch. A pod that has not started counts as the latest."""
    if not start_time:
        return math.inf
    try:
        moment = datetime.fromisoformat(start_time)
    except ValueError:
        return math.inf
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
