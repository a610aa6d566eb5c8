"""Pods that Permit holds: who lets them go, who does not, and for how long (docs/spec/core.md §3.11)."""

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
from scheduler.plugins import registry
from scheduler.profiles import build as building
from scheduler.waiting_pods import WaitingPodsMap
from tests.unit.fake_plugins import Holds
from tests.unit.harness import SchedulerHarness, StepClock, manifest
from tests.unit.hints.hint_rows import CAME, node
from tests.unit.scenarios.seen import attempts, with_plugins

UID = "uid-p"
POD = pod_info(from_manifest(Pod, manifest("p")))
WAITS = {"A": Wait(5), "B": Wait(10)}

Step: TypeAlias = Callable[[WaitingPodsMap, StepClock], None]


def allow(plugin: str) -> Step:
    return lambda permits, _clock: permits.allow(UID, plugin)


def reject(plugin: str, why: str = "no") -> Step:
    return lambda permits, _clock: permits.reject(UID, plugin, why)


def after(seconds: float) -> Step:
    return lambda _permits, clock: clock.move(seconds)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def verdict(steps: Iterable[Step], waits: Any = WAITS) -> asyncio.Task[Rejection | None]:
    """The hold after these steps, with a turn for everybody after each."""
    clock = StepClock()
    permits = WaitingPodsMap(clock)
    permits.hold(POD, waits)
    held = asyncio.ensure_future(permits.release(UID))
    for step in (*steps,):
        await turns()
        step(permits, clock)
    await turns()
    assert permits.is_held(UID) is not held.done()
    return held


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([allow("A"), allow("B")], id="both allow it"),
        pytest.param([allow("B"), allow("A")], id="in the other order"),
        pytest.param([allow("A"), allow("A"), allow("B")], id="one allows it twice"),
        pytest.param([allow("A"), after(9), allow("B")], id="one in its own time, the other in its"),
        pytest.param([allow("A"), allow("B"), reject("A")], id="a rejection comes too late"),
        pytest.param([allow("A"), allow("B"), after(60)], id="all time is over when both have allowed it"),
        pytest.param([allow("C"), allow("A"), allow("B")], id="somebody allows it whom it does not wait for"),
    ],
)
async def test_it_is_let_go(steps: list[Step]) -> None:
    held = await verdict(steps)

    assert held.result() is None


@pytest.mark.parametrize(
    ("steps", "plugin", "said"),
    [
        pytest.param([reject("A")], "A", "no", id="one rejects it"),
        pytest.param([allow("A"), reject("B")], "B", "no", id="one allows it, the other rejects it"),
        pytest.param([allow("A"), reject("A"), allow("B")], "A", "no", id="one thinks better of it"),
        pytest.param([reject("A", "first"), reject("B", "second")], "A", "first", id="two reject it"),
        pytest.param([reject("C", "no business of mine")], "C", "no business of mine", id="a third one rejects it"),
        pytest.param(
            [after(5)], "A", "rejected due to timeout after waiting 5s at plugin A", id="the shorter time is over"
        ),
        pytest.param(
            [allow("A"), after(10)],
            "B",
            "rejected due to timeout after waiting 10s at plugin B",
            id="one allows it, and the other's time is over",
        ),
        pytest.param([after(5), allow("A"), allow("B")], "A", "rejected due to timeout", id="both allow it too late"),
    ],
)
async def test_it_is_not_let_go(steps: list[Step], plugin: str, said: str) -> None:
    no = (await verdict(steps)).result()

    assert no is not None
    assert (no.plugin, no.code) == (plugin, Code.UNSCHEDULABLE)
    assert no.message.startswith(said)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([], id="nobody says anything"),
        pytest.param([allow("A")], id="one of two allows it"),
        pytest.param([after(4.9)], id="no time is over yet"),
    ],
)
async def test_it_is_still_held(steps: list[Step]) -> None:
    held = await verdict(steps)

    assert not held.done()
    held.cancel()


@pytest.mark.parametrize(
    ("answer", "is_let_go"),
    [pytest.param(allow("A"), True, id="allowed"), pytest.param(reject("A"), False, id="rejected")],
)
async def test_an_answer_before_anybody_waits_for_it_counts(answer: Step, is_let_go: bool) -> None:
    clock = StepClock()
    permits = WaitingPodsMap(clock)
    permits.hold(POD, {"A": Wait(5)})
    answer(permits, clock)

    assert permits.is_held(UID)
    assert is_let_go == (await permits.release(UID) is None)
    assert not permits.is_held(UID)


async def test_who_gives_up_waiting_ends_the_hold() -> None:
    clock = StepClock()
    permits = WaitingPodsMap(clock)
    permits.hold(POD, WAITS)
    held = asyncio.ensure_future(permits.release(UID))
    await turns()
    held.cancel()
    await turns()
    permits.allow(UID, "A")
    permits.reject(UID, "A", "no")
    permits.discard(UID)

    assert (len(permits), permits.is_held(UID)) == (0, False)


# -- in the whole ------------------------------------------------------------------------------------------------------


async def test_a_rejected_pod_waits_for_what_its_plugin_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first word counts; the place is free at once; the pod's own release does not wake it, a new node does."""
    sched = with_plugins(monkeypatch, Holds("A", permits=Wait(60)), Holds("B", permits=Wait(60)))
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    permits = sched.parts.binder.permits
    permits.allow("uid-p", "A")
    permits.reject("uid-p", "B", "not now")
    permits.reject("uid-p", "A", "never")
    await sched.settle()

    assert sched.message("p") == "0/1 nodes are available: 1 not now."
    assert (sched.is_free(), sched.places(), attempts(sched, "p")) == (True, {"p": "unschedulable"}, 1)
    assert [entry.plugins for entry in sched.parts.queue.entries()] == [("B",)]

    sched.node("n2")
    await sched.later(20)
    assert attempts(sched, "p") == 2


async def test_a_pod_that_is_held_keeps_no_event_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are kept while it is held, for it may be rejected; and not once it was let go."""
    sched = with_plugins(monkeypatch, Holds("A", permits=Wait(60)))
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    sched.writer.hold = asyncio.Event()
    node("n2")(sched)
    assert sched.parts.queue.in_flight_events() == {"PodPopped": 1, CAME.label: 1}

    sched.parts.binder.permits.allow("uid-p", "A")
    await sched.settle()

    assert sched.parts.queue.in_flight_events() == {}
    assert sched.writer.binds == []


async def test_what_happens_while_it_is_held_counts_when_it_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node came meanwhile: the pod is tried again after its back-off."""
    sched = with_plugins(monkeypatch, Holds("A", permits=Wait(60)))
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    sched.node("n2")
    sched.parts.binder.permits.reject("uid-p", "A", "not there")
    await sched.settle()

    assert attempts(sched, "p") == 2


@pytest.mark.parametrize("there", ["n1", "n2"], ids=["on the node that it was meant for", "elsewhere"])
async def test_a_pod_that_is_held_and_bound_by_somebody_else_is_given_up(
    there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: what is reserved for it is given back, and no event is kept for it any more."""
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


class Answers(Holds):
    """A plugin that keeps its handle, and holds every pod."""

    def __init__(self) -> None:
        super().__init__("A", permits=Wait(60))
        self.handle: Any = None


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A scheduler with a plugin that holds pods, and the handle that it was given."""
    plugin = Answers()

    def made(_args: object, handle: Any) -> Answers:
        plugin.handle = handle
        return plugin

    monkeypatch.setattr(building, "registry", lambda: {**registry(), "A": made})
    enabled = PluginSet(enabled=(PluginRef("A"),))
    sched = SchedulerHarness(
        Configuration(profiles=(KubeSchedulerProfile("kubestow", plugins={"multiPoint": enabled}),))
    )
    plugin.harness = sched
    return sched, plugin.handle


async def test_a_plugin_finds_the_pods_that_wait_with_their_nodes_and_plugins(asked) -> None:
    """By uid, and all of them; one that is not held is not found."""
    sched, handle = asked
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


async def test_a_plugin_allows_and_rejects_the_pods_that_wait(asked) -> None:
    sched, handle = asked
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


async def test_a_plugin_activates_pods_that_wait_for_an_event(asked) -> None:
    """They are tried before any event or flush; unknown pods are ignored."""
    sched, handle = asked
    sched.node("n1", unschedulable=True)
    sched.pod("p")
    sched.pod("stranger", scheduler="other")
    await sched.settle()
    await sched.later(20)
    assert (1, {"p": "unschedulable"}) == (attempts(sched, "p"), sched.places())

    handle.activate(pod_info(pod) for pod in sched.seen.values() if isinstance(pod, Pod))
    await sched.settle()

    assert 2 == attempts(sched, "p")
