"""Pods that Permit holds: how they are allowed or rejected, and the time limit (docs/spec/core.md §3.11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import pytest

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import pod_info
from scheduler.config.types import Configuration, KubeSchedulerProfile, PluginRef, PluginSet
from scheduler.framework.status import Code, Rejection, Wait
from scheduler.framework.wait import WaitingPodsMap
from scheduler.plugins import registry
from scheduler.profiles import build as building
from tests.support import permit
from tests.unit.fake_plugins import Holds
from tests.unit.harness import SchedulerHarness, StepClock, manifest
from tests.unit.hints.hint_rows import CAME, node
from tests.unit.scenarios.seen import attempts, with_plugins

UID = "uid-p"
POD = pod_info(from_manifest(Pod, manifest("p")))
WAITS = {"A": Wait(5), "B": Wait(10)}
TIMEOUT = "rejected due to timeout"

Step: TypeAlias = Callable[[WaitingPodsMap, StepClock], None]


def allow(plugin: str) -> Step:
    return lambda waiting_pods, _clock: permit.allow(waiting_pods, UID, plugin)


def reject(plugin: str, why: str = "no") -> Step:
    return lambda waiting_pods, _clock: waiting_pods.reject(UID, plugin, why)


def after(seconds: float) -> Step:
    return lambda _waiting_pods, clock: clock.move(seconds)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def released(steps: Iterable[Step]) -> asyncio.Task[Rejection | None]:
    """Return the task that waits for the verdict, after these steps."""
    clock = StepClock()
    waiting_pods = WaitingPodsMap(clock)
    waiting_pods.hold(POD, WAITS)
    held = asyncio.ensure_future(waiting_pods.release(UID))
    for step in steps:
        await turns()
        step(waiting_pods, clock)
    await turns()
    assert waiting_pods.is_held(UID) is not held.done()
    return held


ALLOWED = ("", "")


@pytest.mark.parametrize(("steps", "verdict"), [
    pytest.param([allow("A"), allow("B")], ALLOWED, id="both allow it"),
    pytest.param([allow("A"), allow("A"), allow("B")], ALLOWED, id="one allows it twice"),
    pytest.param([allow("A"), after(9), allow("B")], ALLOWED, id="each plugin within its time limit"),
    pytest.param([allow("A"), allow("B"), reject("A")], ALLOWED, id="a rejection comes too late"),
    pytest.param([allow("A"), allow("B"), after(60)], ALLOWED, id="both time limits pass after both allowed it"),
    pytest.param([allow("C"), allow("A"), allow("B")], ALLOWED, id="a plugin without a wait allows it"),
    pytest.param([reject("A")], ("A", "no"), id="one rejects it"),
    pytest.param([allow("A"), reject("B")], ("B", "no"), id="one allows it, the other rejects it"),
    pytest.param([allow("A"), reject("A"), allow("B")], ("A", "no"), id="one allows and then rejects it"),
    pytest.param([reject("A", "first"), reject("B", "second")], ("A", "first"), id="two reject it"),
    pytest.param([reject("C", "not mine")], ("C", "not mine"), id="a third one rejects it"),
    pytest.param([after(5)], ("A", f"{TIMEOUT} after waiting 5s at plugin A"), id="the shorter time limit passes"),
    pytest.param([allow("A"), after(10)], ("B", f"{TIMEOUT} after waiting 10s at plugin B"),
        id="one allows it, and the other's time limit passes"),
    pytest.param([after(5), allow("A"), allow("B")], ("A", TIMEOUT), id="both allow it too late"),
    pytest.param([], None, id="no plugin answers: still held"),
    pytest.param([allow("A")], None, id="one of two allows it: still held"),
])  # fmt: skip
async def test_verdicts(steps: list[Step], verdict: tuple[str, str] | None) -> None:
    held = await released(steps)

    if verdict is None:
        assert not held.done()
        held.cancel()
    elif (no := held.result()) is None:
        assert verdict == ALLOWED
    else:
        assert (no.plugin, no.code) == (verdict[0], Code.UNSCHEDULABLE)
        assert no.message.startswith(verdict[1])


@pytest.mark.parametrize(
    ("answer", "is_allowed"),
    [pytest.param(allow("A"), True, id="allowed"), pytest.param(reject("A"), False, id="rejected")],
)
async def test_an_answer_before_release_counts(answer: Step, is_allowed: bool) -> None:
    clock = StepClock()
    waiting_pods = WaitingPodsMap(clock)
    waiting_pods.hold(POD, {"A": Wait(5)})
    answer(waiting_pods, clock)

    assert waiting_pods.is_held(UID)
    assert is_allowed == (await waiting_pods.release(UID) is None)
    assert not waiting_pods.is_held(UID)


async def test_a_cancelled_release_ends_the_hold() -> None:
    clock = StepClock()
    waiting_pods = WaitingPodsMap(clock)
    waiting_pods.hold(POD, WAITS)
    held = asyncio.ensure_future(waiting_pods.release(UID))
    await turns()
    held.cancel()
    await turns()
    permit.allow(waiting_pods, UID, "A")
    waiting_pods.reject(UID, "A", "no")
    waiting_pods.discard(UID)

    assert (len(waiting_pods), waiting_pods.is_held(UID)) == (0, False)


# -- with the scheduler -----------------------------------------------------------------------------------------------


async def test_a_rejected_pod_waits_for_the_events_of_its_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rejection counts. The pod's own release does not wake it, but a new node does."""
    sched = with_plugins(monkeypatch, Holds("A", permits=Wait(60)), Holds("B", permits=Wait(60)))
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    waiting_pods = sched.parts.binder.waiting_pods
    permit.allow(waiting_pods, "uid-p", "A")
    waiting_pods.reject("uid-p", "B", "not now")
    waiting_pods.reject("uid-p", "A", "never")
    await sched.settle()

    assert sched.message("p") == "0/1 nodes are available: 1 not now."
    assert (sched.is_free(), sched.places(), attempts(sched, "p")) == (True, {"p": "unschedulable"}, 1)
    assert [entry.plugins for entry in sched.parts.queue.entries()] == [("B",)]

    sched.node("n2")
    await sched.later(20)
    assert attempts(sched, "p") == 2


async def test_events_are_kept_while_a_pod_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    sched = with_plugins(monkeypatch, Holds("A", permits=Wait(60)))
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    sched.writer.hold = asyncio.Event()
    node("n2")(sched)
    assert sched.parts.queue.in_flight_events() == {"PodPopped": 1, CAME.label: 1}

    permit.allow(sched.parts.binder.waiting_pods, "uid-p", "A")
    await sched.settle()

    assert sched.parts.queue.in_flight_events() == {}
    assert sched.writer.binds == []


async def test_an_event_while_the_pod_is_held_wakes_it_after_a_rejection(monkeypatch: pytest.MonkeyPatch) -> None:
    sched = with_plugins(monkeypatch, Holds("A", permits=Wait(60)))
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    sched.node("n2")
    sched.parts.binder.waiting_pods.reject("uid-p", "A", "not there")
    await sched.settle()

    assert attempts(sched, "p") == 2


@pytest.mark.parametrize("there", ["n1", "n2"], ids=["to the assumed node", "to another node"])
async def test_a_held_pod_that_another_scheduler_binds_is_released(there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sched = with_plugins(monkeypatch, holds := Holds("A", permits=Wait(600)))
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    sched.node("n2")

    sched.pod("p", on=there)
    await sched.settle()

    assert (sched.is_free(), sched.places()) == (True, {})
    assert sched.parts.queue.in_flight_events() == {}
    assert [call for call in sched.calls if call == f"{holds.name}.unreserve"] == ["A.unreserve"]
    assert sched.writer.binds == []


# -- through a plugin's handle -----------------------------------------------------------------------------------------


class KeepsHandle(Holds):
    """A plugin that keeps its handle and holds every pod."""

    def __init__(self) -> None:
        super().__init__("A", permits=Wait(60))
        self.handle: Any = None


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a scheduler with a plugin that holds pods, and the plugin's handle."""
    plugin = KeepsHandle()

    def made(_args: object, handle: Any) -> KeepsHandle:
        plugin.handle = handle
        return plugin

    monkeypatch.setattr(building, "registry", lambda: {**registry(), "A": made})
    enabled = PluginSet(enabled=(PluginRef("A"),))
    sched = SchedulerHarness(
        Configuration(profiles=(KubeSchedulerProfile("kubestow", plugins={"multiPoint": enabled}),))
    )
    plugin.harness = sched
    return sched, plugin.handle


async def test_a_plugin_finds_the_pods_that_wait_with_their_nodes_and_plugins(plugged) -> None:
    """A pod that is not held is not found."""
    sched, handle = plugged
    sched.node("n1")
    sched.pod("p")
    sched.pod("q")
    await sched.settle()

    assert [("p", "n1", ["A"]), ("q", "n1", ["A"])] == sorted(
        (each.pod.pod.metadata.name, each.pod.node_name, each.pending_plugins())
        for each in handle.iterate_over_waiting_pods()
    )
    assert "p" == handle.get_waiting_pod("uid-p").pod.pod.metadata.name
    assert handle.get_waiting_pod("uid-x") is None


async def test_a_plugin_allows_and_rejects_the_pods_that_wait(plugged) -> None:
    sched, handle = plugged
    sched.node("n1")
    for name in "pqr":
        sched.pod(name)
    await sched.settle()
    for each in handle.iterate_over_waiting_pods():
        if each.pod.pod.metadata.name == "p":
            each.allow("A")
        elif each.pod.pod.metadata.name == "q":
            each.reject("A", "not now")
    was_held = [handle.reject_waiting_pod(uid) for uid in ("uid-r", "uid-x")]
    await sched.settle()

    assert [("default/p", "n1")] == sched.writer.binds
    assert ("0/1 nodes are available: 1 not now.", [True, False]) == (sched.message("q"), was_held)
    assert "0/1 nodes are available: 1 removed." == sched.message("r")


async def test_a_plugin_activates_pods_that_wait_for_an_event(plugged) -> None:
    """Unknown pods are ignored."""
    sched, handle = plugged
    sched.node("n1", unschedulable=True)
    sched.pod("p")
    sched.pod("stranger", scheduler="other")
    await sched.settle()
    await sched.later(20)
    assert (1, {"p": "unschedulable"}) == (attempts(sched, "p"), sched.places())

    handle.activate(pod_info(pod) for pod in sched.seen.values() if isinstance(pod, Pod))
    await sched.settle()

    assert 2 == attempts(sched, "p")
