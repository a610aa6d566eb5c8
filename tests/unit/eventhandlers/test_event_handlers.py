"""Deltas of pods and nodes: cache, queue and events (docs/spec/core.md §4.2, §4.3, §9.1, §9.2), and the inbox, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import Delta
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.context import Inbox
from scheduler.core.errors import UnforeseenErrors
from scheduler.eventhandlers import deltas, pods
from scheduler.eventhandlers.nodes import node_changes
from scheduler.server.cache_dump import cache_page
from tests.support.volumebuilders import a_claim
from tests.unit.harness import SchedulerHarness, StepClock, manifest, read_node, read_pod
from tests.unit.hints.hint_rows import requesting


def counted(errors: UnforeseenErrors) -> dict[str, int]:
    """The parts that had errors."""
    return {part: count for part, count in errors.counts.items() if count}


async def test_84_pods_of_other_schedulers_use_capacity() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("theirs", cpu="1", on="n1", scheduler="default-scheduler")
    sched.pod("p", cpu="1")
    await sched.settle()
    assert sched.places() == {"p": "unschedulable"}

    sched.gone("theirs")
    await sched.later(2.5)

    assert sched.writer.binds == [("default/p", "n1")]


async def test_86_a_finished_pod_frees_its_place() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("done", cpu="1", on="n1")
    sched.pod("done", cpu="1", on="n1", phase="Succeeded")
    sched.pod("p", cpu="1")

    await sched.settle()

    assert sched.writer.binds == [("default/p", "n1")]


CLAIM_VOLUME = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]


@pytest.mark.parametrize("more", [
    pytest.param({"scheduler": "default-scheduler"}, id="a pod that another scheduler has not bound"),
    pytest.param({"scheduler": "default-scheduler", "on": "n1"}, id="a pod that another scheduler has bound"),
    pytest.param({"cpu": "9"}, id="a pod of ours that waits"),
])  # fmt: skip
@pytest.mark.parametrize("comes_first", ["pod", "claim"])
async def test_a_selected_node_counts_for_the_pods_that_use_the_claim(more: dict[str, Any], comes_first: str) -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    reservations = sched.parts.cluster.volumes.reservations
    claim = a_claim("c", "1Gi", "fast").selected("n1").uid("c").typed()
    steps: list[Callable[[], object]] = [
        lambda: sched.parts.event_handlers.apply("PersistentVolumeClaim", [Delta(None, claim)]),
        lambda: sched.pod("p", volumes=CLAIM_VOLUME, **more),
    ]
    for step in steps if comes_first == "claim" else reversed(steps):
        assert {1 * GIB} != set(reservations.bytes_in_flight().values())
        step()

    assert reservations.bytes_in_flight() == {"fast": GIB}

    sched.gone("p")

    assert (reservations.is_used("default/c"), reservations.bytes_in_flight()) == (False, {"fast": GIB})


GIB = 2**30


async def test_76_a_pod_may_come_before_its_node() -> None:
    sched = SchedulerHarness()
    sched.pod("early", cpu="1", on="n1")
    assert len(sched.parts.cluster.nodes) == 0
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="1")

    await sched.settle()

    assert sched.refusal("p") == "0/1 nodes are available: 1 Insufficient cpu."


async def test_7_a_deleting_pod_is_skipped_with_an_event() -> None:
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("p", deleting=True)

    await sched.settle()

    assert [e.note for e in sched.recorder.events] == ["skip schedule deleting pod: default/p"]
    assert (sched.writer.binds, sched.places()) == ([], {})


def node(**more: object) -> Node:
    raw: dict[str, object] = {"metadata": {"name": "n"}, "spec": {}, "status": {}}
    for path, value in more.items():
        part, _, field = path.partition("_")
        raw[part] = {**raw[part], field: value}  # type: ignore[dict-item]
    read = read_node(raw)
    assert isinstance(read, Node)
    return read


@pytest.mark.parametrize(("old", "new", "labels"), [
    pytest.param(node(), node(), [], id="151 a heartbeat emits nothing"),
    pytest.param(node(), node(spec_unschedulable=True), [], id="150 cordoning emits nothing"),
    pytest.param(node(spec_unschedulable=True), node(), ["NodeUpdateNodeTaint"], id="uncordoning does"),
    pytest.param(node(), node(metadata_labels={"a": "b"}, status_allocatable={"cpu": "1"}),
        ["NodeUpdateNodeAllocatable", "NodeUpdateNodeLabel"], id="one event per changed property"),
    pytest.param(node(status_conditions=[{"type": "Ready", "status": "False", "lastHeartbeatTime": "1"}]),
        node(status_conditions=[{"type": "Ready", "status": "True", "lastHeartbeatTime": "2"}]),
        ["NodeUpdateNodeCondition"], id="a condition's status counts, its time does not"),
    pytest.param(node(metadata_annotations={"a": "1"}), node(metadata_annotations={"a": "2"}),
        ["NodeUpdateNodeAnnotation"], id="annotations"),
])  # fmt: skip
def test_node_changes(old: Node, new: Node, labels: list[str]) -> None:
    assert [event.label for event in node_changes(old, new)] == labels


# -- bad input ---------------------------------------------------------------------------------------------------------


async def test_an_unreadable_node_is_ignored_until_it_is_repaired() -> None:
    sched = SchedulerHarness()
    sched.node("good", cpu="1")
    sched.node("bad", cpu="4 cores")
    assert len(sched.parts.cluster.nodes) == 1
    assert list(sched.cluster.volumes.broken) == [("Node", "bad")]
    sched.pod("p", cpu="1")
    sched.pod("q", cpu="1")
    await sched.settle()
    assert sorted(sched.places().values()) == ["unschedulable"]

    sched.node("bad", cpu="4")
    await sched.later(2.5)

    assert sorted(node for _, node in sched.writer.binds) == ["bad", "good"]
    assert sched.cluster.volumes.broken == {}


async def test_a_node_that_becomes_unreadable_keeps_its_pods() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="2")
    sched.pod("there", cpu="1", on="n1")
    sched.node("n1", cpu="x")
    assert len(sched.parts.cluster.nodes) == 0

    sched.node("n1", cpu="2")

    assert sched.parts.cluster.nodes.view(sched.parts.cluster.nodes.slot("n1") or 0).requested("cpu") == 1000


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"containers": requesting(**{"example.com/foo": "1e99999"})}, id="missing devices, beyond int64"),
        pytest.param({"containers": requesting(**{"example.com/foo": "bad!"})}, id="an unreadable amount of devices"),
        pytest.param({"labels": {"app": 5}}, id="a label"),
        pytest.param({"priority": "high"}, id="the priority"),
        pytest.param({"tolerations": [{"key": 5}]}, id="a toleration"),
        pytest.param({"topologySpreadConstraints": [{"maxSkew": 2**64}]}, id="a spread constraint"),
        pytest.param({"affinity": "near"}, id="the affinity"),
        pytest.param({"containers": "none"}, id="the containers"),
        pytest.param({"containers": [{"resources": {"requests": 5}}]}, id="the requests"),
        pytest.param({"volumes": [{"name": 5}]}, id="a volume"),
    ],
)
async def test_no_detail_of_a_bound_pod_closes_its_node(spec: dict[str, Any]) -> None:
    """Any user can bind a pod, and its unreadable fields must not affect other users."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("odd", on="n1", scheduler="theirs", **spec)

    sched.pod("p", containers=requesting(cpu="1", memory="1Gi"))
    await sched.settle()

    assert sched.writer.binds == [("default/p", "n1")]
    assert "default/odd" in {info.key for info in sched.cluster.pods()}


async def test_a_bound_pod_with_an_amount_beyond_int64_fills_its_node_like_any_large_amount() -> None:
    """As in kube-scheduler from 1.38 on: until its kubelet refuses the pod, as it refuses 8Ei."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("large", on="n1", scheduler="theirs", containers=requesting(memory="1e99999"))

    sched.pod("p", containers=requesting(cpu="1", memory="1Gi"))
    await sched.settle()
    assert sched.writer.binds == []

    sched.gone("large")
    await sched.settle()
    assert sched.writer.binds == [("default/p", "n1")]


async def test_a_node_is_full_of_the_resource_whose_amount_cannot_be_read() -> None:
    """Pods that request the resource are refused with upstream's reason. The pod is not evicted, and its end wakes them."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("odd", on="n1", priority=0, containers=requesting(memory="bad!"))
    sched.pod("p", containers=requesting(memory="1Gi"), priority=100)
    sched.pod("q", cpu="1")
    await sched.settle()
    assert sched.refusal("p").startswith("0/1 nodes are available: 1 Insufficient memory.")
    assert sched.writer.binds == [("default/q", "n1")]
    assert sched.places() == {"p": "unschedulable"}

    sched.gone("odd")
    await sched.later(2.5)

    assert sched.writer.binds[1:] == [("default/p", "n1")]


async def test_unreadable_fields_of_a_bound_pod_are_logged_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = CapturingLogger()
    monkeypatch.setattr(pods, "_log", logger)
    sched = SchedulerHarness()
    sched.node("n1")
    for version in range(2):
        sched.pod("odd", on="n1", containers=requesting(memory="bad!" * 1000), labels={"app": 5}, version=str(version))

    (said,) = logger.calls
    assert said.args == ("pod could not be read in full",)
    assert said.kwargs["pod"] == "default/odd"
    assert "$.metadata.labels[app]" in said.kwargs["error"]
    assert "$.spec.containers[0].resources.requests[memory]" in said.kwargs["error"]
    unreadable: Any = cache_page(sched.cluster)["unreadable"]
    shown, _pause = unreadable()
    assert shown == {"pod": "default/odd", "node": "n1", "why": said.kwargs["error"]}
    assert len(shown["why"]) < 1024


BAD_SELECTOR = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "z", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}
        ]
    }
}


@pytest.mark.parametrize(("spec", "what", "field"), [
    pytest.param({"cpu": "one"}, "'one' is not a quantity", "requests", id="a bad quantity"),
    pytest.param({"affinity": BAD_SELECTOR}, "'Like' is not a label selector operator", "labelSelector", id="selector"),
    pytest.param({"priority": "high"}, "Expected `int", "priority", id="a wrong type"),
])  # fmt: skip
async def test_an_unreadable_pod_of_ours_gets_a_condition_and_an_event(
    spec: dict[str, Any], what: str, field: str
) -> None:
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("p", **spec)
    await sched.settle()
    assert what in sched.message("p")
    assert field in sched.message("p")
    assert [e.reason for e in sched.recorder.events] == ["FailedScheduling"]

    sched.pod("p", cpu="1")
    await sched.settle()

    assert sched.writer.binds == [("default/p", "n1")]


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        pytest.param({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "persistent", id="PVC"),
    ],
)
async def test_a_pod_with_an_unsupported_field_gets_a_condition(spec: dict[str, object], word: str) -> None:
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("p", **spec)

    await sched.settle()

    assert sched.writer.binds == []
    assert word in sched.message("p")
    assert sched.places() == {"p": "unschedulable"}


def failing(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let the first changes of pod `a` fail."""
    left = [times]

    def fails(pod: Pod, **gates: bool) -> PodInfo:
        if pod.metadata.name == "a" and left[0]:
            left[0] -= 1
            raise OverflowError
        return pod_info(pod, **gates)

    monkeypatch.setattr("scheduler.scheduler.pod_info", fails)


async def test_a_change_that_cannot_be_applied_does_not_stop_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, 100)
    sched = SchedulerHarness()
    sched.node("n1")
    batch = [Delta(None, read_pod(manifest(name))) for name in "cab"]
    sched.parts.inbox.put(lambda: sched.parts.event_handlers.apply("Pod", batch))

    await sched.settle()

    assert sorted(sched.writer.binds) == [("default/b", "n1"), ("default/c", "n1")]


@pytest.mark.parametrize(
    ("times", "after_s"),
    [
        pytest.param(1, 3, id="once: after a second"),
        pytest.param(3, 12, id="three times: after seven seconds"),
        pytest.param(9, 320, id="nine times: never more than a minute later"),
    ],
)
async def test_a_change_that_failed_is_applied_again(monkeypatch, times, after_s) -> None:
    """The store delivers a change only once, so the pod would never be seen."""
    failing(monkeypatch, times)
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("a")
    await sched.settle()
    assert [] == sched.writer.binds

    for _ in range(after_s):
        await sched.later(1.0)

    assert [("default/a", "n1")] == sched.writer.binds
    assert {"event-handler": times} == counted(sched.parts.errors)


@pytest.mark.parametrize("cpu", [2, 0], ids=["then the pod changes", "then the pod is deleted"])
async def test_a_failed_change_of_a_bound_pod(monkeypatch, cpu) -> None:
    failing(monkeypatch, 1)
    sched = SchedulerHarness()
    sched.node("n1", cpu="4")
    sched.pod("a", cpu="3", on="n1")
    if cpu:
        sched.pod("a", cpu=str(cpu), on="n1")
    else:
        sched.gone("a")
    sched.pod("p", cpu=str(4 - cpu))
    await sched.settle()
    await sched.later(70)

    assert [("default/p", "n1")] == sched.writer.binds
    assert {"event-handler": 1} == counted(sched.parts.errors)


@pytest.mark.parametrize(
    ("odd", "then", "opens"),
    [
        pytest.param(["odd"], lambda sched: sched.gone("odd"), True, id="opens when that pod goes"),
        pytest.param(["odd"], lambda sched: sched.pod("odd", cpu="1", on="large"), True, id="opens once readable"),
        pytest.param(["odd", "queer"], lambda sched: sched.gone("odd"), False, id="stays full if another pod fills it"),
    ],
)
async def test_a_node_that_an_unreadable_amount_fills(
    odd: list[str], then: Callable[[SchedulerHarness], object], opens: bool
) -> None:
    sched = SchedulerHarness()
    sched.node("small", cpu="1")
    sched.node("large", cpu="4")
    for name in odd:
        sched.pod(name, cpu="bad!", on="large")
    sched.pod("p", cpu="2")
    await sched.settle()
    await sched.later(20)
    assert sched.places() == {"p": "unschedulable"}

    then(sched)
    await sched.settle()

    assert sched.writer.binds == ([("default/p", "large")] if opens else [])


async def test_a_foreign_pod_bound_to_its_nominated_node_wakes_no_pod() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="4")
    sched.pod("theirs", scheduler="other", cpu="4", priority=10, nominated="n1")
    sched.pod("p", cpu="4")
    await sched.settle()
    await sched.later(20)

    sched.pod("theirs", scheduler="other", cpu="4", priority=10, nominated="n1", on="n1")
    await sched.settle()

    assert (sched.places(), len(sched.recorder.events)) == ({"p": "unschedulable"}, 1)


async def test_a_bound_pod_that_has_no_node_any_more_is_scheduled_again() -> None:
    """The server's storage was restored. Pods that waited for the capacity are woken."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="4")
    sched.pod("p", cpu="3", on="n1")
    sched.pod("q", cpu="4", priority=10)
    await sched.settle()
    await sched.later(20)
    assert sched.places() == {"q": "unschedulable"}

    sched.pod("p", cpu="3")
    await sched.settle()
    assert (sched.writer.binds, sched.places()) == ([("default/q", "n1")], {"p": "unschedulable"})
    sched.node("n2", cpu="4")
    await sched.later(2.5)

    assert sched.writer.binds[1:] == [("default/p", "n2")]


async def test_a_waiting_pod_that_is_bound_in_an_unreadable_state_leaves_the_queue() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="2")
    await sched.settle()
    assert sched.places() == {"p": "unschedulable"}

    sched.pod("p", cpu="bad!", on="n1")
    assert sched.places() == {}
    sched.node("n2", cpu="8")
    await sched.later(20)

    assert sched.writer.binds == []


async def test_an_unreadable_object_is_reported_once_per_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update that keeps the same error is not logged again."""
    logger = CapturingLogger()
    for module in (pods, deltas):
        monkeypatch.setattr(module, "_log", logger)
    sched = SchedulerHarness()
    for cpu in ("bad!", "bad!", "bad!", "worse!"):
        sched.pod("p", cpu=cpu)
        sched.node("n1", cpu=cpu)
        await sched.settle()

    assert [call.args[0] for call in logger.calls] == [
        "pod could not be read",
        "object could not be read and is left out",
    ] * 2
    assert [event.reason for event in sched.recorder.events] == ["FailedScheduling"] * 2
    assert ["bad!" in said.message for _, said in sched.writer.conditions] == [True, False]


async def test_deleted_nodes_and_pods_leave_no_state() -> None:
    sched = SchedulerHarness()
    for i in range(20):
        sched.node(f"n{i}")
        sched.pod(f"p{i}", on=f"n{i}")
        sched.pod(f"odd{i}", on=f"n{i}", cpu="bad!")
        for name in (f"p{i}", f"odd{i}") if i % 2 else ():
            sched.gone(name)
        sched.node_gone(f"n{i}")
        for name in () if i % 2 else (f"p{i}", f"odd{i}"):
            sched.gone(name)

    assert sched.cluster.sizes() == {"nodes": 0, "pods": 0, "assumed_pods": 0}
    assert (sched.cluster._versions, sched.cluster._broken) == ({}, {})


def test_changes_are_applied_in_order_and_one_that_raises_does_not_stop_the_next() -> None:
    inbox, seen = Inbox(), []

    def broken() -> None:
        raise RuntimeError

    inbox.put(lambda: seen.append(1))
    inbox.put(broken)
    inbox.put(lambda: seen.append(2))

    assert (inbox.apply(), seen, len(inbox)) == (3, [1, 2], 0)


def test_a_change_may_put_another() -> None:
    inbox, seen = Inbox(), []
    inbox.put(lambda: inbox.put(lambda: seen.append("later")))

    inbox.apply()

    assert seen == ["later"]


async def test_wait_returns_at_once_for_an_earlier_wake() -> None:
    inbox = Inbox()
    inbox.wake()
    await asyncio.wait_for(inbox.wait(), 30)
    waiting = asyncio.ensure_future(inbox.wait())
    await asyncio.sleep(0)
    assert not waiting.done()

    inbox.put(lambda: None)

    await asyncio.wait_for(waiting, 30)


def test_catch_up_applies_changes_except_during_an_attempt() -> None:
    """An attempt that yields to the event loop sees no change before its end.

    Rule: docs/architecture.md, "Design principles".
    """
    inbox, seen = Inbox(), []
    inbox.put(lambda: seen.append("news"))

    with inbox.closed():
        inbox.catch_up()
        assert (seen, len(inbox)) == ([], 1)
    inbox.catch_up()

    assert (seen, len(inbox)) == (["news"], 0)


async def test_many_changes_are_applied_in_turns() -> None:
    """Thousands of bindings may fail at once. Other tasks run in between, and may not apply the rest."""
    clock, inbox, seen = StepClock(), Inbox(), []

    def change(number: int) -> None:
        clock.move(0.002)
        seen.append(number)

    async def other() -> list[int]:
        lengths = []
        while len(seen) < 9:
            await asyncio.sleep(0)
            inbox.catch_up()
            lengths.append(len(seen))
        return lengths

    for number in range(9):
        inbox.put(partial(change, number))
    inbox.put(lambda: inbox.put(partial(change, 10)))
    turns = asyncio.ensure_future(other())
    await asyncio.sleep(0)
    await inbox.apply_paced(clock)

    assert (await turns, seen, len(inbox)) == ([3, 6, 9], list(range(9)), 1)


async def test_caught_up_waits_for_the_end_of_the_attempt() -> None:
    inbox, seen = Inbox(), []
    inbox.put(lambda: seen.append("news"))
    waiting = []
    for _ in range(3):
        with inbox.closed():
            waiting.append(asyncio.ensure_future(inbox.caught_up()))
            await asyncio.sleep(0)
    assert (seen, [each.done() for each in waiting]) == ([], [False] * 3)

    inbox.apply()
    await asyncio.wait_for(asyncio.gather(*waiting), 30)
    inbox.put(lambda: seen.append("more"))
    await inbox.caught_up()

    assert (seen, len(inbox)) == (["news", "more"], 0)
