"""Queueing hints of a pod that waits for devices: docs/spec/dra.md §7 and scenarios 333–345.

Upstream wakes every pod. Our hints check whether the event concerns the claims of the pod.
"""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.core.feature_gates import DEVICE_GATES_ON, EXTENDED_RESOURCE
from scheduler.framework.interface import Hint
from scheduler.plugins.dra.hints import DynamicResourcesHints
from scheduler.queue import pod_changes
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import PodBuilder, pod
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.unit.plugins.ask import hinted
from tests.unit.plugins.dra.world import World

Q, S = Hint.QUEUE, Hint.SKIP
GPU = "example.com/gpu"
RESOURCES = {"claim": Resource.RESOURCE_CLAIM, "slice": Resource.RESOURCE_SLICE, "class": Resource.DEVICE_CLASS}
OWN = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)

MINE = a_claim("c").uid("c").request("r", "A")
MINE_HELD = MINE.allocated(a_result("r", "a/n1/d0"))
OTHER = a_claim("o").uid("o").request("r", "A")
OTHER_HELD = OTHER.allocated(a_result("r", "a/n1/d1"))
NOT_MINE = a_claim("p-e").uid("p-e").request("r", "A")
MADE = NOT_MINE.owned_by("p", "uid-p")
EVERY = a_claim("all").uid("all").request("r", "A", every=True)
SPECIAL = a_claim("p-x").uid("p-x").for_extended_resources().owned_by("p", "uid-p")


def using(*claims: str, **requests: str) -> PodInfo:
    """Return the pod `p` with these claims and the requests of its container."""
    return pod_info(_pod_with(*claims, **requests).typed())


def _pod_with(*claims: str, **requests: str) -> PodBuilder:
    builder = pod("p").uid("uid-p")
    for at, name in enumerate(claims):
        builder = builder.claim(f"e{at}", claim=name)
    for resource, amount in requests.items():
        builder = builder.extended(resource, amount)
    return builder


def from_template(claim: str | None = None, uid: str = "uid-p") -> PodInfo:
    """Return the pod `p` with a claim template. `claim` names the claim, if it exists."""
    builder = pod("p").uid(uid).claim("e", template="t")
    return pod_info((builder.claim_made("e", claim) if claim else builder).typed())


def answer(
    kind: str, info: PodInfo, old: Any, new: Any, *, things: Any = (), gates: frozenset[str] = DEVICE_GATES_ON
) -> Hint | None:
    """Return the hint for a pod that waits among `things`, after the caches show the event."""
    world = World(gates=gates)
    world.show(*things)
    if new is not None:
        world.show(new)
    elif kind == "claim":
        world.devices.claims.remove(old.typed().key)
    elif kind == "slice":
        world.devices.remove_slice(old.typed().key)
    action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE_OTHER
    sides = [None if side is None else side.typed() for side in (old, new)]
    return hinted(world.plugin, ClusterEvent(RESOURCES[kind], action), info, old=sides[0], new=sides[1])


# -- claims ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("info", "old", "new", "expected"), [
    pytest.param(using("c", "missing"), None, MINE, S, id="334 another claim of the pod is missing"),
    pytest.param(using("c", "missing"), OTHER_HELD, OTHER, S,
        id="334 a claim is missing and another claim frees its devices"),
    pytest.param(using("c"), OTHER_HELD, OTHER.allocated(a_result("r", "a/n1/d2")), Q,
        id="another claim has a different device than the cache had"),
    pytest.param(using("c"), OTHER_HELD, OTHER_HELD.allocated_at("2026-01-01T00:00:00Z"), S,
        id="another claim is written with the same device"),
    pytest.param(using("c"), MINE.uid("before"), MINE, Q, id="its own claim is replaced by one with the same name"),
    pytest.param(using("c"), MINE, MINE.label("a", "b").finalizer("x"), S,
        id="338 its own claim gets labels and finalizers"),
    pytest.param(using("c"), MINE, MINE.deleting(), S, id="its own claim is being deleted"),
    pytest.param(using("c"), MINE, None, S, id="its own claim is deleted"),
    pytest.param(from_template("p-e"), NOT_MINE, MADE, Q, id="a claim gets the pod as its owner"),
    pytest.param(from_template("p-e", uid="later"), None, MADE, S,
        id="a claim is created for an older pod with the same name"),
    pytest.param(from_template(), None, MADE, S, id="the pod status has no claim name yet"),
    pytest.param(using("c", **{GPU: "1"}), SPECIAL, None, Q, id="the remaining special claim of the pod is deleted"),
    pytest.param(using("c", **{GPU: "1"}), None, SPECIAL, Q, id="the special claim of the pod is added"),
    pytest.param(using("c"), SPECIAL, None, S,
        id="the special claim is deleted and the pod requests no extended resource"),
])  # fmt: skip
def test_claims(info: PodInfo, old: ClaimBuilder | None, new: ClaimBuilder | None, expected: Hint) -> None:
    """335, 336, 337, 339: the table of hints (tests/unit/hints) has these events; here are the rows between them (§7.2)."""
    assert expected is answer("claim", info, old, new, things=(MINE, *([old] if old is not None else [])))


def test_a_pod_with_devices_waits_for_no_other_claim() -> None:
    """Upstream wakes the pod when another claim frees its devices."""
    assert S is answer("claim", using("c"), OTHER_HELD, OTHER, things=(MINE_HELD,))


@pytest.mark.parametrize("event", [ClusterEvent(Resource.RESOURCE_CLAIM, Action.UPDATE_OTHER), OWN], ids=["333", "340"])
def test_an_object_of_another_type_than_the_event(event: ClusterEvent) -> None:
    """333, 340: the hint raises an error, which the queue treats as QUEUE."""
    world = World()
    world.show(MINE)

    with pytest.raises(AttributeError):
        hinted(world.plugin, event, using("c"), old=None, new=object())


# -- the pod itself ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("new", "expected"), [
    pytest.param(from_template("p-e", uid="another"), S, id="340 the event is of another pod"),
    pytest.param(from_template(), S, id="340 the pod status still has no claim name"),
])  # fmt: skip
def test_340_the_pod_status_names_its_claims(new: PodInfo, expected: Hint) -> None:
    """§7.3: the update of the pod itself."""
    world = World()
    world.show(MADE)

    assert expected is hinted(world.plugin, OWN, from_template(), old=from_template(), new=new)


def test_341_the_same_claim_names_in_another_order() -> None:
    """The change of the order fires the event."""
    both = pod("p").claim("e", template="t").claim("f", template="t")
    old = pod_info(both.claim_made("e", "1").claim_made("f", "2").typed())
    new = pod_info(both.claim_made("f", "2").claim_made("e", "1").typed())

    assert [OWN] == pod_changes(old, new)
    assert [ClusterEvent(Resource.TARGET_POD, Action.UPDATE_OTHER)] == pod_changes(old, old)


# -- classes -----------------------------------------------------------------------------------------------------------

A = a_device_class("A")
SERVES = A.extended_resource(GPU)


@pytest.mark.parametrize(("info", "old", "new", "expected"), [
    pytest.param(using("missing"), None, A, S, id="its claim is missing"),
    pytest.param(using(**{GPU: "1"}), None, SERVES, Q, id="a class that serves its resource is added"),
    pytest.param(using(**{GPU: "1"}), None, A, S, id="a class that serves no resource is added"),
    pytest.param(using(**{"deviceclass.resource.kubernetes.io/A": "1"}), None, A, Q,
        id="a class that the pod requests by name is added"),
])  # fmt: skip
def test_classes(info: PodInfo, old: Any, new: Any, expected: Hint) -> None:
    """Only classes that an unallocated claim or an extended resource requests can help."""
    assert expected is answer("class", info, old, new, things=(MINE,))


def test_a_claim_that_has_devices_needs_no_class() -> None:
    """No event of the class wakes the pod."""
    assert S is answer("class", using("c"), None, A, things=(MINE_HELD,))


@pytest.mark.parametrize("name", ["B", "C"])
def test_classes_of_alternatives(name: str) -> None:
    """All classes must exist, so any class may be the missing one."""
    first = a_claim("c").uid("c").first_available("r", *({"name": n, "deviceClassName": n} for n in "BC"))

    assert Q is answer("class", using("c"), None, a_device_class(name), things=(first,))


# -- slices ------------------------------------------------------------------------------------------------------------

D0, D1 = a_device("d0"), a_device("d1")
ONE = a_slice("n1", "a", D0)
TAINTED = a_slice("n1", "a", D0.taint("x"))
HALF = a_slice("n1", "a", D0).of(2)
RENEWED = ONE.generation(2)
NEXT = a_slice("n1", "a", D1).generation(2).of(2).named("next")


@pytest.mark.parametrize(("old", "new", "there", "expected"), [
    pytest.param(None, NEXT, (ONE,), S, id="half of the next generation of the pool is added"),
    pytest.param(TAINTED, a_slice("n1", "a", D0.taint("x").taint("y")), (), S, id="a device is tainted once more"),
    pytest.param(TAINTED, a_slice("n1", "a", D0.taint("y")), (), Q, id="a device has another taint instead"),
    pytest.param(ONE, ONE.device(D1), (), Q, id="one device is added"),
    pytest.param(ONE.device(D1), ONE, (), Q, id="one device is removed, which may have made the pool invalid"),
    pytest.param(ONE, a_slice("n1", "a", D0.attr("x", 1)), (), Q, id="a device is different"),
    pytest.param(ONE, RENEWED, (), Q, id="the pool is published again"),
    pytest.param(ONE, HALF, (), S, id="the slice count of the pool increases"),
    pytest.param(RENEWED, HALF, (), Q, id="the generation decreases, so the slice hides no other slice"),
    pytest.param(HALF, HALF.where("region", "r1"), (), Q,
        id="the slice moves to other nodes and may have hidden other slices"),
    pytest.param(HALF, HALF.pool("another"), (), Q, id="the slice is part of another pool"),
])  # fmt: skip
def test_slices(old: Any, new: Any, there: Any, expected: Hint) -> None:
    """Only a slice that is not worse than before can help. Every change wakes a pod that requests all devices."""
    is_change = old is None or new is None or old.typed().spec != new.typed().spec

    assert expected is answer("slice", using("c"), old, new, things=(MINE, *there))
    assert (Q if is_change else S) is answer("slice", using("all"), old, new, things=(EVERY, *there))
    assert S is answer("slice", using("c"), old, new, things=(MINE_HELD, *there))
    assert S is answer("slice", using("c", "missing"), old, new, things=(MINE, *there))


def test_slices_for_a_pod_without_claims() -> None:
    """Devices may serve an extended resource that no node has."""
    assert Q is answer("slice", using(**{GPU: "1"}), None, ONE)
    assert S is answer("slice", using(**{GPU: "1"}), None, ONE, gates=DEVICE_GATES_ON - {EXTENDED_RESOURCE})


# -- nodes -------------------------------------------------------------------------------------------------------------


# -- shapes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "other", "is_equal"), [
    pytest.param(using("c"), pod_info(pod("q").claim("x", claim="c").typed()), True,
        id="both pods have the same claims"),
    pytest.param(using("c"), using("c", "o"), False, id="one pod has one more claim"),
    pytest.param(using("c"), pod_info(pod("q", "else").claim("e0", claim="c").typed()), False,
        id="the pods are in different namespaces"),
    pytest.param(from_template("c"), from_template("c", uid="another"), False,
        id="each pod has a claim from a template"),
    pytest.param(using("c"), from_template("c"), False, id="one of the pods must own the claim"),
    pytest.param(using("c"), using("c", **{GPU: "1"}), False, id="one pod also requests a resource"),
    pytest.param(using("c", **{GPU: "1"}), using("c", **{GPU: "2"}), True, id="one pod requests more of the resource"),
])  # fmt: skip
def test_shapes(one: PodInfo, other: PodInfo, is_equal: bool) -> None:
    """Pods of one shape get the same hint. The owner of the claims counts where the hint depends on it."""
    shapes = {
        registration.shape for registration in DynamicResourcesHints(World().handle).events() if registration.shape
    }

    assert all(is_equal == (shape(one) == shape(other)) for shape in shapes)
    assert shapes


# -- configurations ----------------------------------------------------------------------------------------------------
