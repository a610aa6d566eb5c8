"""What /debug/pod shows beside the decisions: numbers of plugins that have some, of a pod that waits."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.core.decision_record import DecisionRecord, DecisionRecords
from scheduler.framework.profile import Profile
from scheduler.scheduler import shown
from simulator.builders.core import pod


class Explains:
    """Says this of every pod."""

    def __init__(self, name: str, said: Mapping[str, Any] | None) -> None:
        self.name = name
        self._said = said

    def explain(self, pod: PodInfo) -> Mapping[str, Any] | None:
        return self._said


class Silent:
    """Has nothing to explain."""

    name = "Silent"


def profile(*plugins: object) -> dict[str, Profile]:
    return {"kubestow": cast("Profile", SimpleNamespace(pre_filter=plugins))}


WAITS = pod_info(pod("p").set({"spec": {"schedulerName": "kubestow"}}).typed())
OTHERS = pod_info(pod("p").set({"spec": {"schedulerName": "other"}}).typed())
NUMBERS = Explains("DynamicResources", {"requests": []})


@pytest.mark.parametrize(
    ("waiting", "plugins", "expected"),
    [
        pytest.param(
            WAITS, (Silent(), NUMBERS), {"DynamicResources": {"requests": []}}, id="a plugin that has numbers"
        ),
        pytest.param(WAITS, (Silent(), Explains("X", None)), None, id="none that has anything to say of this pod"),
        pytest.param(None, (NUMBERS,), None, id="the pod does not wait any more"),
        pytest.param(OTHERS, (NUMBERS,), None, id="it is another scheduler's by now"),
    ],
)
def test_facts_beside_the_decisions(waiting: PodInfo | None, plugins: tuple[object, ...], expected: object) -> None:
    """Only where there are any."""
    records = DecisionRecords()
    records.add(DecisionRecord("default/p", "p", "kubestow", 1, 0.0))

    found = shown("default/p", records, waiting=lambda _: waiting, profiles=profile(*plugins))

    assert found is not None
    assert (1, expected) == (len(found["attempts"]), found.get("facts"))


def test_a_pod_that_is_not_remembered() -> None:
    """Nothing is worked out for it."""
    assert shown("default/p", DecisionRecords(), waiting=lambda _: WAITS, profiles=profile(NUMBERS)) is None
