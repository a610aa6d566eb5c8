"""Decision records: limits, preemptions (docs/spec/core.md §10.5) and what /debug/pod shows."""

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
from tests.unit.harness import SchedulerHarness


def record(pod: str, attempt: int) -> DecisionRecord:
    """An attempt for a pod."""
    return DecisionRecord(pod=pod, uid="u", profile="kubestow", attempt=attempt, started_wall=0.0)


def test_the_last_attempts_of_a_pod_are_kept_in_order() -> None:
    records = DecisionRecords(per_pod=2)
    for attempt in (1, 2, 3):
        records.add(record("a/p", attempt))

    newest = records.latest("a/p")
    assert [r.attempt for r in records.of("a/p")] == [2, 3]
    assert newest is not None
    assert newest.attempt == 3


def test_the_pod_that_was_not_tried_for_longest_is_forgotten() -> None:
    records = DecisionRecords(pods=2)
    for key in ("a/old", "a/mid", "a/old", "a/new"):
        records.add(record(key, 1))

    assert len(records) == 2
    assert records.latest("a/mid") is None
    assert len(records.of("a/old")) == 2


def test_what_is_shown() -> None:
    records = DecisionRecords()
    first, second = record("a/p", 1), record("a/p", 2)
    records.add(first)
    records.add(second)
    second.result = "scheduled"

    shown = records.to_dict("a/p")
    assert shown is not None
    assert [(a["attempt"], a["result"]) for a in shown["attempts"]] == [(2, "scheduled"), (1, "")]
    assert records.to_dict("a/q") is None


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
def test_facts_of_plugins(waiting: PodInfo | None, plugins: tuple[object, ...], expected: object) -> None:
    records = DecisionRecords()
    records.add(DecisionRecord("default/p", "p", "kubestow", 1, 0.0))

    found = shown("default/p", records, waiting=lambda _: waiting, profiles=profile(*plugins))

    assert found is not None
    assert (1, expected) == (len(found["attempts"]), found.get("facts"))


def test_a_pod_that_is_not_remembered() -> None:
    assert shown("default/p", DecisionRecords(), waiting=lambda _: WAITS, profiles=profile(NUMBERS)) is None


NEVER = "no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."


def a_cluster(*, on_n1: int) -> SchedulerHarness:
    """All are full: n1 of pods of that priority, n2 of priority 9, n4 of both; n3 is out of the question."""
    sched = SchedulerHarness()
    for name in ("n1", "n2", "n4"):
        sched.node(name, cpu="2")
    sched.node("n3", cpu="2", taints=[{"key": "k", "effect": "NoSchedule"}])
    for name, node, cpu, priority in (
        ("low", "n1", "2", on_n1),
        ("equal", "n2", "2", 9),
        ("half", "n4", "1", 0),
        ("other-half", "n4", "1", 9),
    ):
        sched.pod(name, cpu=cpu, on=node, priority=priority)
    return sched


def last_attempt(sched: SchedulerHarness, name: str) -> dict[str, Any]:
    """The last attempt, as /debug/pod prints it."""
    page = sched.parts.records.to_dict(f"default/{name}")
    assert page is not None
    attempt: dict[str, Any] = page["attempts"][0]
    return attempt


def why(attempt: dict[str, Any]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Reason → its plugin, and nodes."""
    return {row["reasons"][0]: (row["plugin"], row["examples"]) for row in attempt["preemption"]}


async def test_the_victims_and_the_nodes_where_it_would_not_help() -> None:
    sched = a_cluster(on_n1=0)
    sched.pod("p", cpu="2", priority=9)
    await sched.settle()

    attempt = last_attempt(sched, "p")
    assert (attempt["nominated"], attempt["victims"], attempt["node"]) == ("n1", ("default/low",), "")
    assert why(attempt) == {
        "No preemption victims found for incoming pod": ("DefaultPreemption", ("n2",)),
        "Insufficient cpu": ("NodeResourcesFit", ("n4",)),
    }
    assert {row["reasons"][0] for row in attempt["groups"]} == {"Insufficient cpu", "node(s) had untolerated taint(s)"}


async def test_why_no_eviction_would_help() -> None:
    sched = a_cluster(on_n1=9)
    sched.pod("p", cpu="2", priority=9)
    await sched.settle()

    attempt = last_attempt(sched, "p")
    assert (attempt["nominated"], attempt["victims"]) == ("", ())
    assert why(attempt) == {
        "No preemption victims found for incoming pod": ("DefaultPreemption", ("n1", "n2")),
        "Insufficient cpu": ("NodeResourcesFit", ("n4",)),
        "Preemption is not helpful for scheduling": ("DefaultPreemption", ("n3",)),
    }
    assert sum(row["nodes"] for row in attempt["preemption"]) == attempt["node_count"] == 4


async def test_a_pod_that_may_not_preempt_has_no_such_groups() -> None:
    sched = a_cluster(on_n1=0)
    sched.pod("p", cpu="2", priority=9, preemptionPolicy="Never")
    await sched.settle()

    attempt = last_attempt(sched, "p")
    assert (attempt["preemption"], attempt["nominated"]) == ((), "")
    assert attempt["message"].endswith(NEVER)
