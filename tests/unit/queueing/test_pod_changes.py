"""Changes of pods as events, their replay (docs/spec/core.md §1.7), and nominated pods by node. Ids begin with the row of §9."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.api.core_v1 import (
    Container,
    ContainerExtendedResourceRequest,
    ExtendedResourceClaimStatus,
    PodResourceClaimStatus,
    ResourceRequirements,
)
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.quantity import parse
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.framework.interface import EventHint, Hint
from scheduler.framework.nominator import Nominator
from scheduler.queueing.types import pod_changes
from tests.unit.queueing.harness import Gate, QueueHarness, answer, pod


def with_spec(info: PodInfo, **spec: Any) -> PodInfo:
    """The next version of the pod, with other parts of its spec."""
    metadata = msgspec.structs.replace(info.pod.metadata, resource_version=f"{info.pod.metadata.resource_version}1")
    new = msgspec.structs.replace(info.pod.spec, **spec)
    return pod_info(msgspec.structs.replace(info.pod, metadata=metadata, spec=new))


def with_status(**status: Any) -> PodInfo:
    plain = with_spec(pod("p")).pod
    return pod_info(msgspec.structs.replace(plain, status=msgspec.structs.replace(plain.status, **status)))


def with_requests(**requests: str) -> PodInfo:
    amounts = {name: parse(text) for name, text in requests.items()}
    return with_spec(pod("p"), containers=(Container(name="c", resources=ResourceRequirements(requests=amounts)),))


def with_claim(*names: str | None) -> PodInfo:
    """Each entry is named as its claim; None is one that needs no claim."""
    statuses = tuple(PodResourceClaimStatus(name=name or "none", resource_claim_name=name) for name in names)
    return with_status(resource_claim_statuses=statuses)


def with_extended(claim: str, *requests: str) -> PodInfo:
    mappings = tuple(ContainerExtendedResourceRequest(request_name=request) for request in requests)
    status = ExtendedResourceClaimStatus(resource_claim_name=claim, request_mappings=mappings)
    return with_status(extended_resource_claim_status=status)


OTHER, LABELS, TOLERATIONS = [Action.UPDATE_OTHER], [Action.UPDATE_POD_LABEL], [Action.UPDATE_POD_TOLERATION]
DOWN, UP = [Action.UPDATE_POD_SCALE_DOWN], [Action.UPDATE_POD_SCALE_UP]
GATES = [Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED]
CLAIMS = [Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM]


@pytest.mark.parametrize(("old", "new", "actions"), [
    pytest.param(pod("p"), pod("p", version="2"), OTHER, id="nothing we know"),
    pytest.param(pod("p"), pod("p", labels={"a": "b"}), LABELS, id="labels"),
    pytest.param(with_requests(cpu="2"), with_requests(cpu="1"), DOWN, id="less cpu"),
    pytest.param(with_requests(cpu="2"), with_requests(), DOWN, id="no cpu any more"),
    pytest.param(with_requests(cpu="0"), with_requests(), DOWN, id="no request any more, not of zero"),
    pytest.param(with_requests(cpu="1"), with_requests(cpu="2"), UP, id="more cpu"),
    pytest.param(with_requests(cpu="2", memory="1"), with_requests(cpu="1", memory="2"), DOWN + UP,
        id="less cpu and more memory"),
    pytest.param(with_requests(), with_requests(cpu="0"), UP, id="a request of zero, none before"),
    pytest.param(pod("p", gates=("g",)), pod("p"), GATES, id="the last gate went"),
    pytest.param(pod("p", gates=("g", "h")), pod("p", gates=("g",)), OTHER, id="one gate of two went"),
    pytest.param(pod("p"), pod("p", tolerations=1), TOLERATIONS, id="a toleration more"),
    pytest.param(with_claim("a"), with_claim("b"), CLAIMS, id="another generated claim"),
    pytest.param(with_claim("a"), with_claim("a", "b"), CLAIMS, id="one more generated claim"),
    pytest.param(with_claim("a", "b"), with_claim("b", "a"), CLAIMS, id="341 generated claims in another order"),
    pytest.param(with_claim(None), with_claim("none"), CLAIMS, id="it needs a claim after all"),
    pytest.param(with_claim("a"), with_claim("a"), OTHER, id="the same generated claims"),
    pytest.param(pod("p"), with_extended("c"), CLAIMS, id="a claim for extended resources"),
    pytest.param(with_extended("c"), with_extended("d"), CLAIMS, id="another claim for extended resources"),
    pytest.param(with_extended("c", "r"), with_extended("c", "s"), CLAIMS, id="extended resources from elsewhere"),
    pytest.param(with_extended("c", "r"), with_extended("c", "r"), OTHER, id="from the same requests"),
    pytest.param(pod("p"), pod("p", labels={"a": "b"}, tolerations=1), LABELS + TOLERATIONS,
        id="two properties, two events"),
])  # fmt: skip
def test_changes(old: PodInfo, new: PodInfo, actions: list[Action]) -> None:
    assert actions == [event.action for event in pod_changes(old, new)]
    assert {Resource.TARGET_POD} == {event.resource for event in pod_changes(old, new)}


def test_a_pod_with_a_node() -> None:
    """Once assigned, its changes are about AssignedPod."""
    assert [event.resource for event in pod_changes(pod("p", node="n"), pod("p", node="n", version="2"))] == [
        Resource.ASSIGNED_POD
    ]


# -- changes during an attempt -------------------------------------------------------------------------------------------

LABEL, SHRANK, TOLERATION, LAST_GATE, CLAIM, ANYTHING = (
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
KINDS = (LABEL, SHRANK, TOLERATION, LAST_GATE, CLAIM)


PLAIN = pod("p")
CHANGES = [
    pytest.param(PLAIN, pod("p", version="2", labels={"a": "b"}), LABEL, id="its labels change"),
    pytest.param(with_requests(cpu="2"), with_spec(with_requests(cpu="1")), SHRANK, id="it requests less"),
    pytest.param(PLAIN, pod("p", version="2", tolerations=1), TOLERATION, id="it gets a toleration"),
    pytest.param(pod("p", gates=("g",)), pod("p", version="2"), LAST_GATE, id="its last gate is removed"),
    pytest.param(PLAIN, with_claim("claim"), CLAIM, id="a claim is made for it"),
    pytest.param(PLAIN, pod("p", version="2"), ANYTHING, id="something else changes"),
]


def plugins() -> dict[str, tuple[EventHint, ...]]:
    """One for each kind of change, and one for all."""
    one_each = {event.label: (EventHint(event, answer(Hint.QUEUE)),) for event in KINDS}
    every = EventHint(ClusterEvent(Resource.TARGET_POD, UPDATE), answer(Hint.QUEUE))
    return {**one_each, ANYTHING.label: (every,), "Deaf": ()}


@pytest.mark.parametrize(("old", "new", "event"), CHANGES)
@pytest.mark.parametrize("rejecter", [*(event.label for event in KINDS), ANYTHING.label, "Deaf"])
def test_a_change_during_the_attempt(old: PodInfo, new: PodInfo, event: ClusterEvent, rejecter: str) -> None:
    """56: it wakes the pod if the plugin that rejects it registered the change."""
    harness = QueueHarness(plugins())
    harness.add(old)
    queued = harness.pop()
    harness.update(new)
    harness.fail(queued, rejecter)

    helps = rejecter in {event.label, ANYTHING.label}
    assert harness.places() == {"p": "backoff" if helps else "unschedulable"}
    assert queued.info is new


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


def nominator(*stored: PodInfo) -> Nominator:
    return Nominator({info.key: info for info in stored}.get)


@pytest.mark.parametrize(
    ("status", "given", "nodes"),
    [
        pytest.param("n1", None, ("n1",), id="none given takes the status"),
        pytest.param("n1", "n2", ("n2",), id="given wins over the status"),
        pytest.param("n1", "", (), id="empty clears"),
        pytest.param("", None, (), id="no nomination at all"),
    ],
)
def test_add(status: str, given: str | None, nodes: tuple[str, ...]) -> None:
    """§1.15: Override, or what the status says."""
    info = pod("p", nominated=status)
    nominator_ = nominator(info)
    nominator_.add(info, "before")
    nominator_.add(info, given)

    assert nodes == nominator_.nodes()
    assert tuple(info for _ in nodes) == nominator_.for_node(nodes[0] if nodes else "before")


@pytest.mark.parametrize(
    "stored",
    [pytest.param((), id="64 missing from the store"), pytest.param((pod("p", node="n9"),), id="bound in the store")],
)
def test_refused(stored: tuple[PodInfo, ...]) -> None:
    """Neither a nomination of the status nor a derived one counts."""
    nominator_ = nominator(*stored)
    nominator_.add(pod("p"), "n1")
    nominator_.derive(pod("p"), "n1")

    assert nominator_.nodes() == ()


@pytest.mark.parametrize(
    ("old_status", "new_status", "nodes"),
    [
        pytest.param("", "", ("memory",), id="62 neither object names a node: ours in memory stays"),
        pytest.param("n1", "", (), id="63 the update removes it"),
        pytest.param("n1", "n2", ("n2",), id="the update changes it"),
        pytest.param("", "n1", ("n1",), id="the update brings it"),
    ],
)
def test_update(old_status: str, new_status: str, nodes: tuple[str, ...]) -> None:
    old, new = pod("p", nominated=old_status), pod("p", nominated=new_status, version="2")
    nominator_ = nominator(new)
    nominator_.add(old, "memory")
    nominator_.update(old, new)

    assert nodes == nominator_.nodes()
    assert [(new,) for _ in nodes] == [nominator_.for_node(node) for node in nodes]


def test_a_nominated_pod_that_changes_keeps_its_position() -> None:
    """Devices are kept for the nominated pods in order."""
    a, b, c = pod("a", nominated="n1"), pod("b"), pod("c")
    changed = pod("a", nominated="n1", version="2")
    nominator_ = nominator(changed, b, c)
    nominator_.add(a, "n1")
    nominator_.add_foreign(b, "n1")
    nominator_.add(c, "n1")
    nominator_.update(a, changed)
    assert None is nominator_.add_foreign(b, "n1")

    assert (changed, b, c) == nominator_.for_node("n1")
    assert b == nominator_.remove_foreign(b.uid)
    assert None is nominator_.remove_foreign(c.uid)


def test_foreign_nominations() -> None:
    """§2.6: pods of other schedulers count, are not looked up in our store, and leave only by `remove_foreign`."""
    ours, theirs = pod("ours"), pod("theirs", scheduler="default-scheduler")
    nominator_ = nominator(ours)
    nominator_.add(ours, "n1")
    nominator_.add_foreign(theirs, "n1")
    assert (ours, theirs) == nominator_.for_node("n1")
    nominator_.add_foreign(theirs, "n2")
    nominator_.remove_foreign("ours")
    assert nominator_.nodes() == ("n1", "n2")
    nominator_.remove_foreign("theirs")
    nominator_.remove_foreign("theirs")

    assert nominator_.nodes() == ("n1",)


@pytest.mark.parametrize(
    ("status", "memory", "left", "after"),
    [
        pytest.param("", "", "", ("n1", "derived"), id="no other nomination: derived"),
        pytest.param("n1", "n1", "", ("n1", "status"), id="the status has the same node: status"),
        pytest.param("", "n1", "", ("n1", "preemption"), id="a preemption has the same node: preemption"),
        pytest.param("n2", "n2", "n2", ("n1", "derived"), id="the status has another node: derived"),
    ],
)
def test_a_derived_nomination_and_another_one(status: str, memory: str, left: str, after: tuple[str, str]) -> None:
    info = pod("p", nominated=status)
    nominator_ = nominator(info)
    if memory:
        nominator_.add(info, memory)
    assert nominator_.derive(info, "n1") == left
    assert (nominator_.node_of("p"), nominator_.source(info)) == after
    assert nominator_.for_node("n1") == (info,)


@pytest.mark.parametrize(
    ("status", "left", "after"),
    [
        pytest.param("", "n1", None, id="nothing else nominates the pod"),
        pytest.param("n2", "n1", "n2", id="the status counts again"),
    ],
)
def test_a_derived_nomination_ends(status: str, left: str, after: str | None) -> None:
    info = pod("p", nominated=status)
    nominator_ = nominator(info)
    nominator_.derive(info, "n1")
    assert nominator_.end_derived(info) == left
    assert nominator_.end_derived(info) == ""
    assert (nominator_.node_of("p"), nominator_.derived_node("p")) == (after, "")


@pytest.mark.parametrize(
    ("status", "source"),
    [
        pytest.param("", "derived", id="and stays derived"),
        pytest.param("n1", "status", id="and is the status's after it"),
    ],
)
def test_a_pod_with_a_derived_nomination_changes(status: str, source: str) -> None:
    old, new = pod("p"), pod("p", nominated=status, version="2")
    nominator_ = nominator(new)
    nominator_.derive(old, "n1")
    nominator_.update(old, new)
    assert (nominator_.for_node("n1"), nominator_.source(new)) == ((new,), source)


def test_a_foreign_nomination_has_no_source() -> None:
    theirs = pod("theirs", scheduler="default-scheduler")
    nominator_ = nominator()
    nominator_.add_foreign(theirs, "n1")
    assert nominator_.source(theirs) == ""
