"""Which events help a pod that waits for devices: docs/spec/dra.md §7 and scenarios 333–345.

Where upstream wakes every pod, ours asks whether the event has to do with the pod's claims.
"""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.core.feature_gates import DEVICE_GATES_ON, DYNAMIC_RESOURCE_ALLOCATION, EXTENDED_RESOURCE
from scheduler.framework.interface import Hint
from scheduler.plugins.dra.hints import DynamicResourcesHints
from scheduler.queue import pod_changes
from simulator.builders.claims import ClaimBuilder, a_claim, a_result, an_option
from simulator.builders.core import PodBuilder, pod
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.unit.plugins.ask import hinted
from tests.unit.plugins.dra.world import Allocated, World

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
    """The pod `p` with these claims, and what its container asks for."""
    return pod_info(_asking(*claims, **requests).typed())


def _asking(*claims: str, **requests: str) -> PodBuilder:
    builder = pod("p").uid("uid-p")
    for at, name in enumerate(claims):
        builder = builder.claim(f"e{at}", claim=name)
    for resource, amount in requests.items():
        builder = builder.extended(resource, amount)
    return builder


def from_template(claim: str | None = None, uid: str = "uid-p") -> PodInfo:
    """The pod `p` with a claim of its own, if it has been made."""
    builder = pod("p").uid(uid).claim("e", template="t")
    return pod_info((builder.claim_made("e", claim) if claim else builder).typed())


def answer(
    kind: str, info: PodInfo, old: Any, new: Any, *, things: Any = (), gates: frozenset[str] = DEVICE_GATES_ON
) -> Hint | None:
    """What a pod that waits among these things is told, once the event shows in the caches."""
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
    pytest.param(using("c", "missing"), None, MINE, S, id="334 another claim of the pod is not there"),
    pytest.param(using("c", "missing"), OTHER_HELD, OTHER, S, id="334 and devices are given back"),
    pytest.param(using("c"), OTHER, OTHER_HELD, S, id="335 a claim of another pod is allocated"),
    pytest.param(using("c"), None, OTHER, S, id="335 a claim of another pod comes"),
    pytest.param(using("c"), OTHER_HELD, OTHER, Q, id="336 another claim gives its devices back"),
    pytest.param(using("c"), OTHER_HELD, None, Q, id="another claim goes with its devices"),
    pytest.param(using("c"), OTHER, None, S, id="another claim goes that had none"),
    pytest.param(using("c"), OTHER_HELD, OTHER.allocated(a_result("r", "a/n1/d2")), Q,
        id="another claim has another device than we had thought"),
    pytest.param(using("c"), OTHER_HELD, OTHER_HELD.allocated_at("2026-01-01T00:00:00Z"), S,
        id="it has the same, written"),
    pytest.param(using("c"), None, MINE, Q, id="337 its own comes"),
    pytest.param(using("c"), MINE.uid("before"), MINE, Q, id="its own is another one by that name"),
    pytest.param(using("c"), MINE, MINE.label("a", "b").finalizer("x"), S, id="338 its own: labels, finalizers"),
    pytest.param(using("c"), MINE, MINE_HELD, Q, id="339 its own is allocated"),
    pytest.param(using("c"), MINE_HELD, MINE_HELD.reserved_for("q"), Q, id="339 its own has another user"),
    pytest.param(using("c"), MINE_HELD, MINE, Q, id="its own gives its devices back"),
    pytest.param(using("c"), MINE, MINE.deleting(), S, id="its own is going"),
    pytest.param(using("c"), MINE, None, S, id="its own goes"),
    pytest.param(from_template("p-e"), None, MADE, Q, id="337 one that was made for it"),
    pytest.param(from_template("p-e"), NOT_MINE, MADE, Q, id="it turns out to be made for it"),
    pytest.param(from_template("p-e", uid="later"), None, MADE, S, id="one that was made for its namesake"),
    pytest.param(from_template(), None, MADE, S, id="nobody has told it of one yet"),
    pytest.param(using("c", **{GPU: "1"}), SPECIAL, None, Q, id="what is left of its own goes"),
    pytest.param(using("c", **{GPU: "1"}), None, SPECIAL, Q, id="what is left of its own is still there"),
    pytest.param(using("c"), SPECIAL, None, S, id="it goes, and it wants no such resource"),
    pytest.param(using(**{GPU: "1"}), OTHER_HELD, OTHER, Q, id="336 of a pod without claims, whose resource is served"),
])  # fmt: skip
def test_claims(info: PodInfo, old: ClaimBuilder | None, new: ClaimBuilder | None, expected: Hint) -> None:
    """§7.2."""
    assert expected is answer("claim", info, old, new, things=(MINE, *([old] if old is not None else [])))


def test_whoever_has_devices_waits_for_no_others() -> None:
    """Upstream wakes it when others give theirs back."""
    assert S is answer("claim", using("c"), OTHER_HELD, OTHER, things=(MINE_HELD,))


@pytest.mark.parametrize("event", [ClusterEvent(Resource.RESOURCE_CLAIM, Action.UPDATE_OTHER), OWN], ids=["333", "340"])
def test_something_else_than_the_event_says(event: ClusterEvent) -> None:
    """333, 340: an error, which the queue takes for a yes."""
    world = World()
    world.show(MINE)

    with pytest.raises(AttributeError):
        hinted(world.plugin, event, using("c"), old=None, new=object())


# -- the pod itself ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("new", "expected"), [
    pytest.param(from_template("p-e", uid="another"), S, id="340 another pod"),
    pytest.param(from_template(), S, id="340 still not told"),
    pytest.param(from_template("p-f"), S, id="340 told of one that is not there"),
    pytest.param(from_template("p-e"), Q, id="340 complete"),
])  # fmt: skip
def test_340_the_pod_is_told_what_its_claims_are_called(new: PodInfo, expected: Hint) -> None:
    """§7.3."""
    world = World()
    world.show(MADE)

    assert expected is hinted(world.plugin, OWN, from_template(), old=from_template(), new=new)


def test_341_the_same_in_another_order() -> None:
    """The event fires."""
    both = pod("p").claim("e", template="t").claim("f", template="t")
    old = pod_info(both.claim_made("e", "1").claim_made("f", "2").typed())
    new = pod_info(both.claim_made("f", "2").claim_made("e", "1").typed())

    assert [OWN] == pod_changes(old, new)
    assert [ClusterEvent(Resource.TARGET_POD, Action.UPDATE_OTHER)] == pod_changes(old, old)


# -- classes -----------------------------------------------------------------------------------------------------------

A = a_device_class("A")
SERVES = A.extended_resource(GPU)


@pytest.mark.parametrize(("info", "old", "new", "expected"), [
    pytest.param(using("c"), None, A, Q, id="its class comes"),
    pytest.param(using("c"), A, a_device_class("A", "true"), Q, id="its class takes other devices"),
    pytest.param(using("c"), A, A.label("a", "b"), S, id="its class is labelled"),
    pytest.param(using("c"), A, None, S, id="its class goes"),
    pytest.param(using("c"), None, a_device_class("B"), S, id="another class comes"),
    pytest.param(using("missing"), None, A, S, id="its claim is not there"),
    pytest.param(using(**{GPU: "1"}), None, SERVES, Q, id="one comes that serves its resource"),
    pytest.param(using(**{GPU: "1"}), SERVES, A, Q, id="one does not serve it any more"),
    pytest.param(using(**{GPU: "1"}), SERVES, None, Q, id="one goes that served it"),
    pytest.param(using(**{GPU: "1"}), None, A, S, id="one comes that serves none"),
    pytest.param(using(**{"deviceclass.resource.kubernetes.io/A": "1"}), None, A, Q,
        id="one comes that it asks for by name"),
])  # fmt: skip
def test_classes(info: PodInfo, old: Any, new: Any, expected: Hint) -> None:
    """Those that a claim without devices, or a resource, asks for."""
    assert expected is answer("class", info, old, new, things=(MINE,))


def test_a_claim_that_has_devices_needs_no_class() -> None:
    """Whatever becomes of it."""
    assert S is answer("class", using("c"), None, A, things=(MINE_HELD,))


@pytest.mark.parametrize("name", ["B", "C"])
def test_classes_of_alternatives(name: str) -> None:
    """All must be there, so any may be the one that was missing."""
    first = a_claim("c").uid("c").first_available("r", *({"name": n, "deviceClassName": n} for n in "BC"))

    assert Q is answer("class", using("c"), None, a_device_class(name), things=(first,))


# -- slices ------------------------------------------------------------------------------------------------------------

D0, D1 = a_device("d0"), a_device("d1")
ONE = a_slice("n1", "a", D0)
TAINTED = a_slice("n1", "a", D0.taint("x"))
HALF = a_slice("n1", "a", D0).of(2)
OTHER_HALF = a_slice("n1", "a", D1).of(2).named("second")
RENEWED = ONE.generation(2)
NEXT = a_slice("n1", "a", D1).generation(2).of(2).named("next")


@pytest.mark.parametrize(("old", "new", "there", "expected"), [
    pytest.param(None, ONE, (), Q, id="devices come"),
    pytest.param(None, HALF, (), S, id="the first half of a pool comes"),
    pytest.param(None, OTHER_HALF, (HALF,), Q, id="the second half comes"),
    pytest.param(None, NEXT, (ONE,), S, id="half of the pool's next generation comes"),
    pytest.param(ONE, ONE.label("a", "b"), (), S, id="it is labelled"),
    pytest.param(ONE, TAINTED, (), S, id="a device is tainted"),
    pytest.param(TAINTED, a_slice("n1", "a", D0.taint("x").taint("y")), (), S, id="a device is tainted once more"),
    pytest.param(TAINTED, a_slice("n1", "a", D0.taint("y")), (), Q, id="it has another taint instead"),
    pytest.param(TAINTED, ONE, (), Q, id="a taint goes"),
    pytest.param(ONE, ONE.device(D1), (), Q, id="one more device"),
    pytest.param(ONE.device(D1), ONE, (), Q, id="one less, which may have been one too many"),
    pytest.param(ONE, a_slice("n1", "a", D0.attr("x", 1)), (), Q, id="a device is different"),
    pytest.param(ONE, RENEWED, (), Q, id="the pool is published anew"),
    pytest.param(HALF, ONE, (), Q, id="the pool is smaller than had been said"),
    pytest.param(ONE, HALF, (), S, id="the pool is larger than had been said"),
    pytest.param(RENEWED, HALF, (), Q, id="it went back, and hides no other any more"),
    pytest.param(HALF, HALF.where("region", "r1"), (), Q, id="it is on other nodes, and may have hidden others"),
    pytest.param(HALF, HALF.pool("another"), (), Q, id="it is part of another pool"),
    pytest.param(ONE, None, (), S, id="the last slice of a pool goes"),
    pytest.param(NEXT, None, (ONE,), Q, id="what hid the generation before goes"),
])  # fmt: skip
def test_slices(old: Any, new: Any, there: Any, expected: Hint) -> None:
    """Only those that are not worse than before can help; whoever wants all devices hears of every change."""
    is_change = old is None or new is None or old.typed().spec != new.typed().spec

    assert expected is answer("slice", using("c"), old, new, things=(MINE, *there))
    assert (Q if is_change else S) is answer("slice", using("all"), old, new, things=(EVERY, *there))
    assert S is answer("slice", using("c"), old, new, things=(MINE_HELD, *there))
    assert S is answer("slice", using("c", "missing"), old, new, things=(MINE, *there))


def test_slices_for_a_pod_without_claims() -> None:
    """Devices may stand in for what no node has."""
    assert Q is answer("slice", using(**{GPU: "1"}), None, ONE)
    assert S is answer("slice", using(**{GPU: "1"}), None, ONE, gates=DEVICE_GATES_ON - {EXTENDED_RESOURCE})


# -- nodes -------------------------------------------------------------------------------------------------------------


def test_no_devices_at_all() -> None:
    """While the gate is off nobody is refused, and nobody waits."""
    assert () == DynamicResourcesHints(World(gates=DEVICE_GATES_ON - {DYNAMIC_RESOURCE_ALLOCATION}).handle).events()


# -- shapes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "other", "is_equal"), [
    pytest.param(using("c"), pod_info(pod("q").claim("x", claim="c").typed()), True, id="the same claims"),
    pytest.param(using("c"), using("c", "o"), False, id="one claim more"),
    pytest.param(using("c"), pod_info(pod("q", "else").claim("e0", claim="c").typed()), False, id="elsewhere"),
    pytest.param(from_template("c"), from_template("c", uid="another"), False, id="claims that were made for each"),
    pytest.param(using("c"), from_template("c"), False, id="one must own it"),
    pytest.param(using("c"), using("c", **{GPU: "1"}), False, id="a resource more"),
    pytest.param(using("c", **{GPU: "1"}), using("c", **{GPU: "2"}), True, id="more of the resource"),
])  # fmt: skip
def test_shapes(one: PodInfo, other: PodInfo, is_equal: bool) -> None:
    """Pods of one shape get one answer: whose claims they are counts where the answer depends on it."""
    shapes = {
        registration.shape for registration in DynamicResourcesHints(World().handle).events() if registration.shape
    }

    assert all(is_equal == (shape(one) == shape(other)) for shape in shapes)
    assert shapes


# -- configurations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("requests", "applies"), [
    pytest.param((), True, id="345 for all"),
    pytest.param(("r/s",), True, id="345 for the very alternative"),
    pytest.param(("r",), True, id="345 for the request of the alternative"),
    pytest.param(("r/t",), False, id="345 for another alternative"),
    pytest.param(("q",), False, id="345 for another request"),
])  # fmt: skip
def test_345_which_configuration_goes_with_a_device(requests: tuple[str, ...], applies: bool) -> None:
    """§2.3."""
    world = World()
    claim = a_claim("c").first_available("r", an_option("s", "A"), an_option("t", "A"))
    world.show(ONE, claim.config("a", {"x": 1}, *requests))

    given = world.allocate("c")

    assert isinstance(given, Allocated)
    assert applies == bool(given.results[0].devices.config)
