"""Start times and disruption conditions of pods: docs/spec/core.md §3.10."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from scheduler.api.apps_and_policy import is_leaving_for_a_preemptor, preempted_by, started_at
from scheduler.api.core_v1 import Pod, PodCondition
from tests.unit import objects

NEW_YEAR = 1767225600.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("2026-01-01T01:00:00+01:00", NEW_YEAR, id="another zone"),
        pytest.param("2026-01-01T00:00:00.250000999Z", NEW_YEAR + 0.25, id="nanoseconds"),
        pytest.param("2026-01-01T00:00:00", NEW_YEAR, id="no zone: UTC"),
        pytest.param("0001-01-01T00:00:00Z", -62135596800.0, id="Go's zero time"),
        pytest.param(None, math.inf, id="not started yet"),
        pytest.param("yesterday", math.inf, id="no time at all"),
        pytest.param("2026-01-01T00:00:60Z", math.inf, id="a leap second"),
    ],
)
def test_started_at(text: str | None, seconds: float) -> None:
    assert seconds == started_at(text)


def test_the_condition_of_a_victim() -> None:
    """The text is upstream's; the preemptor's scheduler evicts."""
    assert preempted_by("kubestow", 7) == PodCondition(
        type="DisruptionTarget",
        status="True",
        reason="PreemptionByScheduler",
        message="kubestow: preempting to accommodate a higher priority pod",
        observed_generation=7,
    )


def deleted(made: Pod) -> Pod:
    metadata = msgspec.structs.replace(made.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(made, metadata=metadata)


def condition(**more: str) -> dict[str, str]:
    return {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", **more}


@pytest.mark.parametrize(
    ("is_deleting", "conditions", "is_leaving"),
    [
        pytest.param(True, [condition()], True, id="it is deleted and has the condition"),
        pytest.param(False, [condition()], False, id="it has the condition and is not deleted yet"),
        pytest.param(True, [], False, id="deleted without a condition"),
        pytest.param(True, [condition(reason="EvictionByEvictionAPI")], False, id="evicted for another reason"),
        pytest.param(True, [condition(status="False")], False, id="the condition is False"),
        pytest.param(
            True, [condition(type="Ready", status="False"), condition()], True, id="after a condition of another type"
        ),
        pytest.param(True, [condition(status="False"), condition()], False, id="the first of the type counts"),
    ],
)
def test_is_leaving_for_a_preemptor(is_deleting: bool, conditions: list[dict[str, Any]], is_leaving: bool) -> None:
    made = objects.pod("a", status={"conditions": conditions})

    assert is_leaving is is_leaving_for_a_preemptor(deleted(made) if is_deleting else made)
