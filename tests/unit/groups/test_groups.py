"""Groups of pods start whole: gate, plan, barrier and undo, with the whole scheduler on virtual time (docs/spec/groups.md)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.pod_group import (
    COSCHEDULING_LABEL,
    COSCHEDULING_POD_GROUP,
    KINDS,
    POD_GROUP,
    VOLCANO_ANNOTATION,
    VOLCANO_POD_GROUP,
)
from scheduler.api.podinfo import PodInfo
from scheduler.config.args import KubestowArgs
from scheduler.config.types import Configuration, KubeSchedulerProfile
from scheduler.core.cooperative import finish
from scheduler.core.errors import Unavailable
from scheduler.core.feature_gates import defaults
from scheduler.cycle import Cycle
from scheduler.explain.answer import Explanation
from tests.unit.harness import SchedulerHarness, StepClock

GROUPED: dict[str, Any] = {"schedulingGroup": {"podGroupName": "g"}}
LABELLED: dict[str, Any] = {"labels": {COSCHEDULING_LABEL: "g"}}
ANNOTATED: dict[str, Any] = {"annotations": {VOLCANO_ANNOTATION: "g"}}
NAMES = ("a", "b", "c")
RELEASED = ", deallocation and deletion of ResourceClaims completed"
ALONE = ", pod group preemption: No preemption victims found for incoming preemptor"


def harness(*nodes: str, version: str = "1.37", clock: StepClock | None = None, **ours: Any) -> SchedulerHarness:
    """A scheduler whose server has groups of all kinds; the nodes have 4 cpu."""
    args = {KubestowArgs.plugin: KubestowArgs(**ours)}
    profiles = tuple(KubeSchedulerProfile(name, args=args) for name in ("kubestow", "batch"))
    sched = SchedulerHarness(Configuration(profiles=profiles, feature_gates=defaults(version)), clock=clock)
    for kind in KINDS:
        sched.served(kind)
    for name in nodes:
        sched.node(name)
    return sched


def bound(sched: SchedulerHarness) -> list[str]:
    return sorted(key.partition("/")[2] for key, _ in sched.writer.binds)


# -- the gate ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "named"), [(POD_GROUP, GROUPED), (COSCHEDULING_POD_GROUP, LABELLED), (VOLCANO_POD_GROUP, ANNOTATED)]
)
async def test_a_group_waits_until_it_is_complete(kind: str, named: dict[str, Any]) -> None:
    sched = harness("n1")
    sched.pod("a", cpu="1", **named)
    await sched.settle()
    assert sched.places() == {"a": "gated"}, "it has no object"

    sched.group("g", 3, kind)
    sched.pod("b", cpu="1", **named)
    await sched.settle()
    assert sched.places() == {"a": "gated", "b": "gated"}, "2 of 3"

    sched.pod("c", cpu="1", **named)
    await sched.settle()
    assert bound(sched) == ["a", "b", "c"]
    assert sched.writer.conditions == [], "gated pods get no condition"


def task(name: str) -> dict[str, Any]:
    return {"annotations": {VOLCANO_ANNOTATION: "g", "volcano.sh/task-spec": name}}


async def test_a_minimum_for_each_task() -> None:
    """The group starts with two workers and one driver, and not with three workers."""
    sched = harness("n1")
    sched.group("g", 3, VOLCANO_POD_GROUP, minTaskMember={"worker": 2, "driver": 1, "observer": 0})
    for at in range(3):
        sched.pod(f"w{at}", cpu="1", **task("worker"))
    await sched.settle()
    assert sched.places() == dict.fromkeys(("w0", "w1", "w2"), "gated")

    sched.pod("d", cpu="4", **task("driver"))
    await sched.later(1.5)
    assert bound(sched) == [], "the driver does not fit next to all workers, and no three pods are enough without it"

    sched.node("n2")
    await sched.later(3)
    assert bound(sched) == ["d", "w0", "w1", "w2"]


async def test_a_pod_that_changes_its_task() -> None:
    sched = harness("n1")
    sched.group("g", 1, VOLCANO_POD_GROUP, minTaskMember={"driver": 1})
    sched.pod("a", cpu="1", annotations={VOLCANO_ANNOTATION: "g"}, labels={"volcano.sh/task-spec": "worker"})
    sched.pod("b", cpu="1", **task("worker"))
    await sched.settle()
    assert sched.places() == dict.fromkeys(("a", "b"), "gated")

    sched.pod("b", cpu="1", **task("driver"))
    sched.gone("a")
    sched.pod("c", cpu="1", **task("worker"))
    await sched.later(1.5)
    assert bound(sched) == ["b", "c"]


async def test_minimums_of_tasks_above_the_minimum_of_the_group() -> None:
    """As in Volcano they have no effect then."""
    sched = harness("n1")
    sched.group("g", 1, VOLCANO_POD_GROUP, minTaskMember={"worker": 2, "driver": 1})
    sched.pod("a", cpu="1", **task("worker"))
    await sched.settle()

    assert bound(sched) == ["a"]


async def test_pods_that_arrive_one_by_one_cost_the_waiting_ones_nothing() -> None:
    """Only the last pod lets the hint be called: once for its group, and for no other group."""
    sched = harness("n1")
    calls: list[str] = []
    (plugin,) = (each for each in sched.parts.profiles["kubestow"].pre_enqueue if each.name == "GangScheduling")
    gate = plugin.pre_enqueue
    plugin.pre_enqueue = lambda pod: calls.append(pod.pod.metadata.name) or gate(pod)  # type: ignore[method-assign, func-returns-value]
    sched.group("other", 2)
    sched.pod("x", schedulingGroup={"podGroupName": "other"})
    sched.group("g", 30)
    for at in range(29):
        sched.pod(f"p{at}", cpu="10m", **GROUPED)
    assert len(calls) == 30, "each pod once, when it came"

    sched.pod("p29", cpu="10m", **GROUPED)
    assert len(calls) == 60, "the last one, and each of its mates once more"
    assert calls.count("x") == 1


async def test_the_object_may_come_last() -> None:
    sched = harness("n1")
    for name in NAMES:
        sched.pod(name, cpu="1", **GROUPED)
    await sched.settle()
    sched.group("g", 3)
    await sched.settle()

    assert bound(sched) == ["a", "b", "c"]


async def test_a_lower_minimum_completes_a_group() -> None:
    sched = harness("n1")
    sched.group("g", 3)
    for name in ("a", "b"):
        sched.pod(name, cpu="1", **GROUPED)
    await sched.settle()
    assert bound(sched) == []
    sched.group("g", 2)
    await sched.settle()

    assert bound(sched) == ["a", "b"]


async def test_a_pod_that_leaves_makes_a_group_incomplete_before_it_is_tried() -> None:
    sched = harness("n1")
    sched.group("g", 2)
    sched.pod("a", cpu="1", **GROUPED)
    sched.pod("b", cpu="1", **GROUPED)
    sched.gone("b")
    await sched.settle()

    assert (bound(sched), sched.places()) == ([], {"a": "gated"})


@pytest.mark.parametrize(
    ("version", "texts"),
    [
        ("1.37", ('waiting for pods\'s pod group "g" to appear in scheduling queue',
                  "waiting for minCount pods from a gang to appear in scheduling queue")),
        ("1.38", ('pod group "g" or one of its composite pod group ancestors has not been created yet',
                  "waiting for podgroup/default/g to meet its quorum")),
    ],
)  # fmt: skip
async def test_the_texts_of_the_gate(version: str, texts: tuple[str, str]) -> None:
    sched = harness("n1", version=version)
    sched.pod("a", **GROUPED)
    plugin = next(p for p in sched.parts.profiles["kubestow"].pre_enqueue if p.name == "GangScheduling")
    info = sched.parts.shared.pending.get("default/a")
    assert info is not None
    first = plugin.pre_enqueue(info)
    sched.group("g", 2)
    second = plugin.pre_enqueue(info)

    assert first is not None
    assert second is not None
    assert (first.message, second.message) == texts


# -- pods without a group, as far as this scheduler is concerned --------------------------------------------------------


@pytest.mark.parametrize("named", [GROUPED, LABELLED])
async def test_a_kind_that_the_server_lacks_gates_no_pod(named: dict[str, Any]) -> None:
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("a", cpu="1", **named)
    await sched.settle()

    assert bound(sched) == ["a"]


async def test_gated_pods_are_released_when_the_kind_goes() -> None:
    sched = harness("n1")
    sched.pod("a", cpu="1", **GROUPED)
    await sched.settle()
    sched.served(is_served=False)
    await sched.settle()

    assert bound(sched) == ["a"]


@pytest.mark.parametrize("ours", [{"groups": "none"}, {"parity": True}])
async def test_the_switch(ours: dict[str, Any]) -> None:
    sched = harness("n1", **ours)
    sched.pod("a", cpu="1", **LABELLED)
    await sched.settle()

    assert bound(sched) == ["a"]


async def test_the_field_wins_over_the_label() -> None:
    sched = harness("n1")
    sched.group("g", 2)
    sched.group("other", 1, COSCHEDULING_POD_GROUP)
    for name in ("a", "b"):
        sched.pod(name, cpu="1", labels={COSCHEDULING_LABEL: "other"}, **GROUPED)
    sched.pod("c", cpu="1", labels={COSCHEDULING_LABEL: "other"})
    await sched.settle()

    assert [group.name for group in sched.cluster.pod_groups.by_group] == ["g", "other"]
    assert bound(sched) == ["a", "b", "c"]


async def test_a_basic_group_places_its_pods_one_by_one() -> None:
    sched = harness("n1")
    sched.group("g", None)
    sched.pod("a", cpu="3", **GROUPED)
    sched.pod("b", cpu="3", **GROUPED)
    await sched.settle()

    assert len(bound(sched)) == 1


# -- the plan ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "of_the_placed"),
    [
        ("1.37", f"pod group is unschedulable, minCount (3) cannot be satisfied: 2 scheduled, 0 remaining{ALONE}"),
        ("1.38", 'parent pod group "g" is unschedulable'),
    ],
)
async def test_a_group_that_does_not_fit_holds_nothing(version: str, of_the_placed: str) -> None:
    sched = harness("n1", version=version)
    sched.group("g", 3)
    for name in NAMES:
        sched.pod(name, cpu="2", **GROUPED)
    await sched.settle()

    assert bound(sched) == []
    assert sched.is_free()
    assert set(sched.places().values()) == {"unschedulable"}
    messages = sorted(sched.message(name) for name in NAMES)
    assert messages == sorted([of_the_placed, of_the_placed, "0/1 nodes are available: 1 Insufficient cpu."])


async def test_one_woken_pod_brings_the_group() -> None:
    sched = harness("n1")
    sched.group("g", 3)
    for name in NAMES:
        sched.pod(name, cpu="2", **GROUPED)
    await sched.settle()
    sched.node("n2")
    await sched.later(1.5)

    assert bound(sched) == ["a", "b", "c"]
    assert [entry.attempts for entry in sched.parts.queue.entries()] == []


async def test_a_refused_group_wakes_no_pod_and_is_not_tried_again_without_an_event() -> None:
    sched = harness("n1")
    sched.group("g", 2)
    sched.pod("other", cpu="5")
    for name in ("a", "b"):
        sched.pod(name, cpu="3", **GROUPED)
    await sched.settle()
    await sched.later(200)

    assert {entry.attempts for entry in sched.parts.queue.entries()} == {1}


async def test_pods_beyond_the_minimum_are_placed_if_they_fit() -> None:
    sched = harness("n1")
    sched.group("g", 2)
    for name in NAMES:
        sched.pod(name, cpu="2", **GROUPED)
    await sched.settle()

    assert len(bound(sched)) == 2
    (pending,) = set(NAMES) - set(bound(sched))
    assert sched.places() == {pending: "unschedulable"}
    assert sched.message(pending) == "0/1 nodes are available: 1 Insufficient cpu."


ZONE_AB = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "small", "operator": "Exists"}]}]}}  # fmt: skip


async def test_another_order_is_tried() -> None:
    """The example of scheduler/groups/cycle.py: by scores the small pods take a node each, and one large pod is left over."""
    sched = harness()
    for name in ("n1", "n2"):
        sched.node(name, labels={"small": "yes"})
    sched.node("n3")
    sched.group("g", 4)
    for name in ("s1", "s2"):
        sched.pod(name, cpu="1", affinity={"nodeAffinity": ZONE_AB}, **GROUPED)
    for name in ("l1", "l2"):
        sched.pod(name, cpu="4", **GROUPED)
    await sched.settle()

    assert bound(sched) == ["l1", "l2", "s1", "s2"]


async def test_the_pod_that_failed_goes_first() -> None:
    """Both kinds fit on both nodes, but only one split works, and the fullest node is the wrong one for the first pod."""
    sched = harness()
    sched.node("n1", cpu="4", memory="4Gi")
    sched.node("n2", cpu="2", memory="8Gi")
    sched.group("g", 2)
    sched.pod("a", containers=[_wants("2", "2Gi")], **GROUPED)
    sched.pod("b", containers=[_wants("1", "6Gi")], **GROUPED)
    await sched.settle()

    assert dict(sched.writer.binds) == {"default/a": "n1", "default/b": "n2"}


def _wants(cpu: str, memory: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}


async def test_a_late_pod_is_placed_alone() -> None:
    sched = harness("n1")
    sched.group("g", 2)
    for name in ("a", "b"):
        sched.pod(name, cpu="1", **GROUPED)
    await sched.settle()
    for name in ("a", "b"):
        sched.pod(name, cpu="1", on="n1", **GROUPED)
    sched.gone("b")
    sched.pod("late", cpu="1", **GROUPED)
    await sched.settle()

    assert bound(sched) == ["a", "b", "late"], "with one running pod and one new one it is smaller than its minimum"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"priority": 5}, "all pods in a single pod group should have the same priority as the pod group's priority, got 5 and 0"),
        ({"preemptionPolicy": "Never"},
         "all pods in a single pod group should have the same preemption policy, got Never and PreemptLowerPriority"),
        ({"scheduler": "batch"},
         'all pods in a single pod group should have the same .spec.schedulerName set, got: "batch" and "kubestow"'),
    ],
)  # fmt: skip
async def test_pods_that_disagree(spec: dict[str, Any], text: str) -> None:
    sched = harness("n1")
    sched.group("g", 2, priority=0)
    sched.pod("a", cpu="1", **GROUPED)
    sched.clock.move(1.0)
    sched.pod("b", cpu="1", **{**GROUPED, **spec})
    await sched.settle()

    assert bound(sched) == []
    assert (sched.message("a"), sched.message("b")) == (text, text)


async def test_a_pod_of_another_scheduler_does_not_count() -> None:
    sched = harness("n1")
    sched.group("g", 2)
    sched.pod("a", cpu="1", **GROUPED)
    sched.pod("b", cpu="1", scheduler="theirs", **GROUPED)
    await sched.settle()

    assert (bound(sched), sched.places()) == ([], {"a": "gated"})


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}, "spec.resourceClaims"),
        ({"parentCompositePodGroupName": "p"}, "spec.parentCompositePodGroupName"),
    ],
)
async def test_what_cannot_be_obeyed_is_refused_by_name(spec: dict[str, Any], field: str) -> None:
    sched = harness("n1")
    sched.group("g", 1, **spec)
    sched.pod("a", cpu="1", **GROUPED)
    await sched.settle()
    assert (
        sched.message("a")
        == f'pod group "g" uses {field}, which Kubestow does not support: remove it, or give these pods to another scheduler'
    )

    sched.group("g", 1)
    await sched.later(1.5)
    assert bound(sched) == ["a"]


async def test_resources_that_the_group_needs_in_total() -> None:
    """The Spark operator writes minMember 1, and minResources for the driver and all executors."""
    sched = harness("n1")
    sched.node("cordoned", cpu="64", unschedulable=True)
    sched.group("g", 1, COSCHEDULING_POD_GROUP, minResources={"cpu": "6", "memory": "1Gi"})
    sched.pod("driver", cpu="1", **LABELLED)
    await sched.settle()
    text = 'pod group "g": minResources cannot be satisfied: 6000m cpu needed, 4000m free on all nodes together'
    assert (bound(sched), sched.message("driver")) == ([], text)

    sched.node("n2", cpu="3")
    await sched.later(1.5)
    assert bound(sched) == ["driver"]

    sched.pod("driver", cpu="1", on="n1", **LABELLED)
    sched.pod("executor", cpu="1", **LABELLED)
    await sched.settle()
    assert bound(sched) == ["driver", "executor"], "the group has started"


async def test_running_pods_count_as_resources_that_are_there() -> None:
    sched = harness("n1")
    sched.group("g", 2, COSCHEDULING_POD_GROUP, minResources={"cpu": "4"})
    sched.pod("a", cpu="3", on="n1", **LABELLED)
    sched.pod("b", cpu="1", **LABELLED)
    await sched.settle()

    assert bound(sched) == ["b"]


async def test_a_resource_that_no_node_has() -> None:
    sched = harness("n1")
    sched.group("g", 1, COSCHEDULING_POD_GROUP, minResources={"example.com/gpu": "1"})
    sched.pod("a", cpu="1", **LABELLED)
    await sched.settle()

    assert sched.message("a").endswith("1 example.com/gpu needed, 0 free on all nodes together")


# -- what is reported ----------------------------------------------------------------------------------------------------


def conditions(sched: SchedulerHarness) -> list[tuple[str, str, str]]:
    return [(each.status, each.reason, each.message) for _, each in sched.writer.group_conditions]


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.37", f"minCount (3) cannot be satisfied: 2 scheduled, 0 remaining{ALONE}"),
        (
            "1.38",
            "scheduling policy's minimum threshold (3) cannot be satisfied: 2 scheduled, 1 unschedulable, 0 not-evaluated"
            + RELEASED
            + ALONE,
        ),
    ],
)
async def test_the_condition_of_a_group(version: str, text: str) -> None:
    sched = harness("n1", version=version)
    sched.group("g", 3)
    for name in NAMES:
        sched.pod(name, cpu="2", **GROUPED)
    await sched.settle()
    (refused,) = conditions(sched)
    assert refused[:2] == ("False", "Unschedulable")
    assert refused[2].startswith(f"{text}; ")
    assert refused[2].endswith(": 0/1 nodes are available: 1 Insufficient cpu.")

    sched.node("n2")
    await sched.later(1.5)
    assert conditions(sched)[1:] == [("True", "Scheduled", "")]
    events = [(event.pod, event.type_, event.reason) for event in sched.recorder.events if event.pod == "default/g"]
    assert events == [("default/g", "Warning", "FailedScheduling"), ("default/g", "Normal", "GroupScheduled")]


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.37", "minCount (1) cannot be satisfied: 0 scheduled, 0 remaining"),
        (
            "1.38",
            "scheduling policy's minimum threshold (1) cannot be satisfied: 0 scheduled, 1 unschedulable, 0 not-evaluated",
        ),
    ],
)
async def test_the_condition_of_a_basic_group(version: str, text: str) -> None:
    """Its pods are placed one by one. The first one that has a node makes it True; pods that have none change nothing then."""
    sched = harness(version=version)
    sched.node("n1", cpu="1")
    sched.group("g", None)
    for name in NAMES:
        sched.pod(name, cpu="2", **GROUPED)
    await sched.settle()
    assert conditions(sched) == [("False", "Unschedulable", text)], "written once, not for each pod"

    sched.node("n2", cpu="2")
    await sched.later(1.5)
    assert len(bound(sched)) == 1
    assert conditions(sched)[1:] == [("True", "Scheduled", "")]

    sched.node("n3", cpu="2")
    await sched.later(12)
    assert (len(bound(sched)), len(conditions(sched))) == (2, 2), "the watch does not show the condition yet"


async def test_an_error_of_a_pod_of_a_basic_group() -> None:
    sched = harness("n1")
    sched.group("g", None)

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no")

    sched.parts.cycle.attempt = fails  # type: ignore[method-assign]
    sched.pod("a", cpu="1", **GROUPED)
    await sched.settle()
    text = "failed to schedule other pod from a pod group: RuntimeError('no')"
    assert conditions(sched) == [("False", "SchedulerError", text)]


async def test_a_group_that_has_started_keeps_its_condition() -> None:
    sched = harness("n1")
    sched.group(
        "g", 2, status={"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled"}]}
    )
    for name in ("a", "b"):
        sched.pod(name, cpu="3", **GROUPED)
    await sched.settle()

    assert conditions(sched) == []


async def test_a_condition_that_was_not_written_is_written_with_the_next_attempt() -> None:
    sched = harness("n1")
    sched.writer.group_errors = [Unavailable("the server is away")]
    sched.group("g", 2)
    for name in ("a", "b"):
        sched.pod(name, cpu="3", **GROUPED)
    await sched.settle()
    assert conditions(sched) == []
    sched.node("n2", cpu="1")
    sched.node("n3", cpu="3")
    await sched.later(1.5)

    assert conditions(sched) == [("True", "Scheduled", "")]


async def test_a_coscheduling_group_gets_events_only() -> None:
    sched = harness("n1")
    sched.group("g", 2, COSCHEDULING_POD_GROUP)
    for name in ("a", "b"):
        sched.pod(name, cpu="3", **LABELLED)
    await sched.settle()

    assert conditions(sched) == []
    (event,) = (event for event in sched.recorder.events if event.pod == "default/g")
    assert event.note.startswith(f"minCount (2) cannot be satisfied: 1 scheduled, 0 remaining{ALONE}; ")


@pytest.mark.parametrize(("queue", "reasons"), [("", []), ("default", []), ("research", ["QueueIgnored"])])
async def test_a_queue_of_volcano(queue: str, reasons: list[str]) -> None:
    sched = harness("n1")
    sched.group("g", 1, VOLCANO_POD_GROUP, queue=queue)
    sched.pod("a", cpu="1", **ANNOTATED)
    await sched.settle()

    events = [event.reason for event in sched.recorder.events if event.pod == "default/g"]
    assert events == ["GroupScheduled", *reasons]


@pytest.mark.parametrize(("version", "reason"), [("1.37", "SchedulerError"), ("1.38", "PodGroupError")])
async def test_the_reason_for_pods_that_disagree(version: str, reason: str) -> None:
    sched = harness("n1", version=version)
    sched.group("g", 2, priority=7)
    for name in ("a", "b"):
        sched.pod(name, cpu="1", **GROUPED)
    await sched.settle()

    (condition,) = conditions(sched)
    assert condition[:2] == ("False", reason)
    assert "the same priority as the" in condition[2]


async def explained(sched: SchedulerHarness, name: str) -> Explanation:
    sched.parts.inbox.apply()
    found = finish(sched.parts.explainer.explain(f"default/{name}"))
    assert found is not None
    return found


async def test_the_explanation_of_a_gated_pod() -> None:
    sched = harness("n1")
    sched.group("g", 3)
    sched.pod("a", cpu="1", **GROUPED)
    await sched.settle()
    found = await explained(sched, "a")

    assert (found.state, found.code) == ("gated", "GroupIncomplete")
    assert found.cause == "waiting for minCount pods from a gang to appear in scheduling queue; 1 of 3 pods exist"


async def test_the_explanation_of_a_pod_that_would_fit_without_its_group() -> None:
    sched = harness("n1")
    sched.group("g", 2)
    sched.pod("large", cpu="8", **GROUPED)
    sched.pod("small", cpu="1", **GROUPED)
    await sched.settle()
    sched.pod("small", cpu="1", conditions=[sched_condition(sched.message("small"))], **GROUPED)
    found = await explained(sched, "small")
    large = await explained(sched, "large")

    assert (found.verdict, found.code) == ("doesNotFit", "GroupUnschedulable")
    assert found.cause.endswith(
        "its group default/g starts with 2 pods, and was refused: minCount (2) cannot be satisfied: 0 scheduled, 1 remaining"
    )
    assert large.code == "InsufficientResources"


def sched_condition(message: str) -> dict[str, str]:
    return {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}


@pytest.mark.parametrize(("cpus", "looked"), [
    pytest.param(("1", "1", "1"), 0, id="equal pods have one order"),
    pytest.param(("1", "2", "1"), 2, id="of two kinds the harder one goes first"),
])  # fmt: skip
async def test_which_pods_are_hardest_to_place(
    cpus: tuple[str, ...], looked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes that one pod of each kind can have are counted, unless there is only one kind."""
    sched = harness("n1", "n2")
    asked: list[str] = []
    feasible = Cycle.feasible

    def counted(cycle: Cycle, pod: PodInfo, *args: Any, **named: Any) -> Any:
        asked.append(pod.pod.metadata.name)
        return feasible(cycle, pod, *args, **named)

    monkeypatch.setattr(Cycle, "feasible", counted)
    sched.group("g", 3)
    for name, cpu in zip(NAMES, cpus):
        sched.pod(name, cpu=cpu, affinity={"nodeAffinity": {}}, **GROUPED)
    await sched.settle()

    assert bound(sched) == ["a", "b", "c"]
    assert looked == len(asked)
