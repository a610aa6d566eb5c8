"""A change of a pod in flight is replayed when the attempt fails (docs/spec/core.md §1.7, §1.12)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.api.core_v1 import Container, Pod, PodResourceClaimStatus, ResourceRequirements
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.quantity import parse
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.framework.interface import EventHint, Hint
from tests.unit.queueing.harness import Gate, QueueHarness, answer, pod

LABEL, SHRANK, TOLERATION, GATES, CLAIM, OTHER = (
    ClusterEvent(Resource.TARGET_POD, action)
    for action in (
        Action.UPDATE_POD_LABEL,
        Action.UPDATE_POD_SCALE_DOWN,
        Action.UPDATE_POD_TOLERATION,
        Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
        Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM,
        Action.UPDATE_OTHER,
    )
)
KINDS = (LABEL, SHRANK, TOLERATION, GATES, CLAIM)


def changed(info: PodInfo, **spec: Any) -> PodInfo:
    """The next version of the pod, with other parts of its spec."""
    plain = info.pod
    metadata = msgspec.structs.replace(plain.metadata, resource_version=f"{plain.metadata.resource_version}1")
    return pod_info(msgspec.structs.replace(plain, metadata=metadata, spec=msgspec.structs.replace(plain.spec, **spec)))


def requesting(cpu: str) -> tuple[Container, ...]:
    return (Container(name="c", resources=ResourceRequirements(requests={"cpu": parse(cpu)})),)


def claimed(info: PodInfo) -> PodInfo:
    plain: Pod = changed(info).pod
    statuses = (PodResourceClaimStatus(name="c", resource_claim_name="claim"),)
    status = msgspec.structs.replace(plain.status, resource_claim_statuses=statuses)
    return pod_info(msgspec.structs.replace(plain, status=status))


PLAIN = pod("p")
LARGE = changed(PLAIN, containers=requesting("2"))
CHANGES = [
    pytest.param(PLAIN, pod("p", version="2", labels={"a": "b"}), LABEL, id="its labels change"),
    pytest.param(LARGE, changed(LARGE, containers=requesting("1")), SHRANK, id="it requests less"),
    pytest.param(PLAIN, pod("p", version="2", tolerations=1), TOLERATION, id="it gets a toleration"),
    pytest.param(pod("p", gates=("g",)), pod("p", version="2"), GATES, id="its last gate is removed"),
    pytest.param(PLAIN, claimed(PLAIN), CLAIM, id="a claim is made for it"),
    pytest.param(PLAIN, pod("p", version="2"), OTHER, id="something else changes"),
]


def plugins() -> dict[str, tuple[EventHint, ...]]:
    """One for each kind of change, and one for all."""
    one_each = {event.label: (EventHint(event, answer(Hint.QUEUE)),) for event in KINDS}
    every = EventHint(ClusterEvent(Resource.TARGET_POD, UPDATE), answer(Hint.QUEUE))
    return {**one_each, OTHER.label: (every,), "Deaf": ()}


@pytest.mark.parametrize(("old", "new", "event"), CHANGES)
@pytest.mark.parametrize("rejecter", [*(event.label for event in KINDS), OTHER.label, "Deaf"])
def test_a_change_during_the_attempt(old: PodInfo, new: PodInfo, event: ClusterEvent, rejecter: str) -> None:
    harness = QueueHarness(plugins())
    harness.add(old)
    queued = harness.pop()
    harness.update(new)
    harness.fail(queued, rejecter)

    helps = rejecter in {event.label, OTHER.label}
    assert harness.places() == {"p": "backoff" if helps else "unschedulable"}
    assert queued.info is new


@pytest.mark.parametrize(("old", "new", "event"), CHANGES)
def test_a_change_before_and_one_after_the_attempt(old: PodInfo, new: PodInfo, event: ClusterEvent) -> None:
    harness = QueueHarness(plugins(), initial_backoff_s=100.0)
    harness.add(old)
    harness.update(new)
    harness.fail(harness.pop(), OTHER.label)
    assert harness.place("p") == "unschedulable"

    harness.update(changed(new, priority=3))
    assert harness.place("p") == "backoff"


# -- gates that open and close -----------------------------------------------------------------------------------------

NODE_CAME = ClusterEvent(Resource.NODE, Action.ADD)
POD_WENT = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)


def guarded(gate: Gate) -> QueueHarness:
    """Fit registers new nodes, the gate registers deleted pods."""
    return QueueHarness(
        {
            "Fit": (EventHint(NODE_CAME, answer(Hint.QUEUE)), EventHint(POD_WENT, answer(Hint.QUEUE))),
            gate.name: (EventHint(POD_WENT, answer(Hint.SKIP)),),
        },
        gates=(gate,),
    )


def test_a_pod_can_be_gated_after_it_was_admitted() -> None:
    gate = Gate("Gate")
    harness = guarded(gate)
    queued = harness.rejected(pod("p"), "Fit")
    gate.held.add("p")
    harness.queue.move_all(NODE_CAME, None, None)
    assert (harness.place("p"), queued.gating_plugin) == ("gated", "Gate")
    harness.queue.move_all(NODE_CAME, None, None)
    harness.queue.move_all(POD_WENT, None, None)
    assert (harness.place("p"), queued.rejecters) == ("gated", {"Fit", "Gate"})

    gate.held.clear()
    harness.queue.move_all(NODE_CAME, None, None)
    assert harness.place("p") == "gated"
    harness.queue.move_all(POD_WENT, None, None)

    assert (harness.place("p"), queued.gating_plugin) == ("backoff", "")


@pytest.mark.parametrize("is_open", [True, False], ids=["and opens again", "and stays closed"])
def test_a_gate_closes_during_the_attempt(is_open: bool) -> None:
    """PreEnqueue is called when the pod returns to the queue."""
    gate = Gate("Gate")
    harness = guarded(gate)
    harness.add(pod("p"))
    queued = harness.pop()
    gate.held.add("p")
    harness.queue.move_all(POD_WENT, None, None)
    if is_open:
        gate.held.clear()
    harness.fail(queued, "Fit")

    assert harness.place("p") == ("backoff" if is_open else "gated")


def test_a_pod_that_no_event_wakes_does_not_pass_the_gate() -> None:
    gate = Gate("Gate")
    harness = guarded(gate)
    harness.add(pod("p"))
    queued = harness.pop()
    gate.held.add("p")
    gate.calls = 0
    harness.fail(queued, "Fit")

    assert (harness.place("p"), gate.calls) == ("unschedulable", 0)
