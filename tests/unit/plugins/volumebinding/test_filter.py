"""PreFilter (docs/spec/volumes.md §2, rows G1–G25) and Filter for all nodes at once (§3, §12), which is what it is for each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings

from scheduler.api.podinfo import pod_info
from scheduler.config.args import KubestowArgs
from scheduler.core.errors import VolumeError
from scheduler.framework.interface import CycleState
from scheduler.framework.status import SKIP, Code, Rejection
from scheduler.plugins.volumebinding.plugin import STATE
from scheduler.plugins.volumebinding.pod_volumes import PodVolumes
from simulator.builders.core import pod
from tests.examples import examples
from tests.support.volumebuilders import a_claim, a_class, a_pv
from tests.unit.plugins.volumebinding.drawn_worlds import CLASS_GONE, EQUAL_SIZES, Case, Drawn, drawn, outcome
from tests.unit.plugins.volumebinding.world import (
    BIND_CONFLICT,
    BND,
    D1,
    IB,
    NODE_CONFLICT,
    NOT_ENOUGH_SPACE,
    NOT_EXISTING,
    PARITY,
    PB,
    PI,
    U1,
    U2,
    UNBOUND_IMMEDIATE,
    A,
    B,
    Decided,
    VolumeWorld,
    tracking,
    using,
)

ERROR, UNRESOLVABLE = Code.ERROR, Code.UNRESOLVABLE


def answered(world: VolumeWorld, info: Any) -> tuple[Code, str] | None:
    """The refusal's code and text."""
    _, no = world.pre_filtered(info)
    assert no is not SKIP
    return (no.code, no.message) if isinstance(no, Rejection) else None


def groups(world: VolumeWorld, info: Any) -> dict[str, list[str]]:
    """Names of the claims in each group that has any."""
    state, no = world.pre_filtered(info)
    assert no is None, no
    claims = state.get(STATE).claims
    found = {"bound": claims.bound, "delayed": claims.delayed, "followed": claims.followed}
    return {group: [claim.metadata.name for claim in held] for group, held in found.items() if held}


def test_g1_pods_without_claims_are_none_of_its_business() -> None:
    """G1 Skip, also for an emptyDir; and what follows all the same finds nothing to do."""
    world, info = VolumeWorld(), pod_info(pod("p").volume("v", emptyDir={}).typed())
    state, no = world.pre_filtered(info)

    assert SKIP is no
    assert world.plugin.reserve(state, info, "n1") is None
    assert SKIP is world.plugin.pre_bind_pre_flight(state, info, "n1")
    world.plugin.unreserve(state, info, "n1")


def test_g7_a_class_without_mode() -> None:
    """G7 What is wrong with the cluster itself is an error."""
    world = VolumeWorld(a_class("M").binding_mode(None), a_claim("x", "1G", "M"))

    assert (ERROR, 'VolumeBindingMode not set for StorageClass "M"') == answered(world, using("p", "x"))


def test_g16_an_ephemeral_claim_of_another_namespace_is_not_the_claim_that_is_meant() -> None:
    """G16 Even if the pod's uid owns it."""
    world = VolumeWorld(a_claim("pod-vol", "1G", "W", ns="other").owned_by("pod", "pod"))

    text = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "pod-vol"'
    assert (UNRESOLVABLE, text) == answered(world, using("pod", ephemeral=["vol"]))


def test_groups() -> None:
    """§2.3, each claim once."""
    world = VolumeWorld(U1, U2, BND, PB)

    assert {"bound": ["bnd"], "delayed": ["u2", "u1"]} == groups(world, using("p", "u2", "bnd", "u1"))


def test_g20_an_assumed_node_pins_the_claim() -> None:
    """G20 What is about to be written counts, although the server does not have it yet."""
    world = VolumeWorld(a_class("E", "P"), a_claim("e", "1G", "E"))
    world.reserved(using("first", "e"), on="n2")

    assert world.cluster.volumes.claims.get_api("default/e").selected_node is None  # type: ignore[union-attr]
    assert {"delayed": ["e"]} == groups(world, using("second", "e"))
    assert Decided((), (), ("e",)) == world.decide(using("second", "e"), on="n2")
    assert {"n1"} == set(world.judged(using("second", "e")))


def test_g21_a_claim_that_only_one_view_has() -> None:
    """G21 The two looks at claims may be answered from different places; then it is an error, not a refusal."""
    world = VolumeWorld(U1)
    world.cluster.volumes.claims.get = lambda key: None  # type: ignore[method-assign]

    text = 'error getting PVC "default/u1": persistentvolumeclaims "default/u1" not found'
    assert (ERROR, text) == answered(world, using("p", "u1"))


def test_f25_filter_without_prefilter_is_an_error() -> None:
    """F25 The state of the attempt is missing."""
    world = VolumeWorld()
    (no,) = world.plugin.filter(CycleState(), using("p", "u1"), world.cluster.nodes.present)

    assert (ERROR, "not found") == (no.code, no.message)


# -- claims that a binding of ours is about to complete (B-26) -----------------------------------------------------------


def test_a_claim_that_is_being_completed_is_followed() -> None:
    """B-26 The PV controller has written the volume's name, not yet the annotation: other pods of the claim go where the volume is."""
    world = VolumeWorld(U1, a_pv("a", "5G", "W").where("k", "n1"))
    world.plan(using("first", "u1"))
    world.show(U1.wants("a"))
    follower = using("second", "u1")

    assert {"followed": ["u1"]} == groups(world, follower)
    assert {"n2"} == set(world.judged(follower))
    assert ["u1"] == [claim.metadata.name for claim in world.plan(follower).followed]


@pytest.mark.parametrize(
    ("ours", "is_under_way"),
    [
        pytest.param(KubestowArgs(parity=True), True, id="parity"),
        pytest.param(KubestowArgs(), False, id="named by another client"),
    ],
)
def test_a_claim_that_is_not_followed(ours: KubestowArgs, is_under_way: bool) -> None:
    """B-26 Otherwise it is unbound, as upstream says."""
    world = VolumeWorld(U1, a_pv("a", "5G", "W").where("k", "n1"), ours=ours)
    if is_under_way:
        world.plan(using("first", "u1"))
    world.show(U1.wants("a"))

    assert (UNRESOLVABLE, UNBOUND_IMMEDIATE) == answered(world, using("second", "u1"))


# -- what Filter says of nodes, and which volumes are taken there --------------------------------------------------------------


def out(*reasons: str) -> Decided:
    return Decided(reasons)


def test_the_first_that_is_wrong_ends_the_look_at_bound_claims() -> None:
    """The volume of one claim is on n2, and the other claim has none."""
    world = VolumeWorld(BND, IB, PI.set({"spec": {"nodeAffinity": None}}).where("k", "n2"))

    assert {"n1": (NODE_CONFLICT,), "n2": (NOT_EXISTING,)} == world.judged(using("p", "ib", "bnd"))


def test_f5_claims_of_a_class_leave_the_larger_volumes_to_the_larger_claims() -> None:
    """F5 Claims of 1G and 2G, and volumes of 1G and 2G."""
    small, large = a_claim("v1", "1G", "W"), a_claim("v2", "2G", "W")
    volumes = [a_pv(name, size, "W").where("k", "n1") for name, size in (("g1", "1G"), ("g2", "2G"))]

    assert VolumeWorld(small, large, *volumes).decide(using("p", "v1", "v2")) == Decided(
        (), (("v1", "g1"), ("v2", "g2"))
    )


def test_f20_a_class_that_vanished_after_pre_filter() -> None:
    """F20 After PreFilter there was a class, and now there is none."""
    world = VolumeWorld(D1)
    state, no = world.pre_filtered(using("p", "d1"))
    assert no is None
    world.withdraw("StorageClass", "D")
    (refused,) = world.plugin.filter(state, using("p", "d1"), world.cluster.nodes.present)

    assert Rejection("VolumeBinding", Code.ERROR, ('failed to find storage class "D"',)) == refused
    assert ["predicate"] == world.metrics.errors


@pytest.mark.parametrize("ours", [KubestowArgs(), PARITY], ids=["ours", "parity"])
def test_f21_the_volume_that_was_assumed_is_taken_again(ours: KubestowArgs) -> None:
    """F21 What was pre-bound for a claim is its, although another one is as small."""
    world = VolumeWorld(U1, A, a_pv("a2", "5G", "W").where("k", "n1"), ours=ours)
    taken = world.plan(using("p", "u1")).static[0].volume.key

    for _ in range(50):
        assert ((("u1", taken),)) == world.decide(using("again", "u1")).static
        assert {"n2"} == set(world.judged(using("again", "u1")))


def test_f23_the_same_claim_twice_is_bound_once() -> None:
    """F23 (B-16) Upstream takes a second volume for it."""
    world = VolumeWorld(U1, A, B)

    assert (("u1", "a"),) == world.decide(using("p", "u1", "u1")).static
    assert Decided((), (("u1", "a"),)) == VolumeWorld(U1, A).decide(using("p", "u1", "u1"))


# -- migrated volumes ----------------------------------------------------------------------------------------------------

# -- one claim, one volume: what the index's own tests do not show -----------------------------------------------------------


def test_a_volume_that_is_meant_for_it_elsewhere_and_a_provisioner() -> None:
    """Gate 8 is about volumes: what cannot be matched may still be provisioned."""
    world = VolumeWorld(
        a_class("E", "P"), a_claim("e", "1G", "E"), a_pv("m", "1G", "E").where("k", "n1").claimed_by("e")
    )

    assert Decided((), (("e", "m"),)) == world.decide(using("p", "e"))
    assert Decided((), (), ("e",)) == world.decide(using("p", "e"), on="n2")


@pytest.mark.parametrize("things", [(), (A,)], ids=["no volumes", "a volume that would fit"])
def test_m19_a_selector_that_is_none(things: Any) -> None:
    """M19 An error, whether or not the class has any volume."""
    world = VolumeWorld(U1.matching_expression("tier", "Near", "a"), *things)
    state, no = world.pre_filtered(using("p", "u1"))
    assert no is None
    (refused,) = world.plugin.filter(state, using("p", "u1"), world.cluster.nodes.present)

    assert Code.ERROR is refused.code
    assert refused.message.startswith("error creating internal label selector for claim: default/u1: ")


def test_m26_of_equal_volumes_always_the_same() -> None:
    """M26 (B-24) And not the same for every claim."""
    claims = [a_claim(f"c{at}", "1G", "W") for at in range(20)]
    world = VolumeWorld(*claims, *(a_pv(f"v{at}", "1G", "W").where("k", "n1") for at in range(8)))
    chosen = {f"c{at}": world.decide(using("p", f"c{at}")).static[0][1] for at in range(20)}

    assert len(set(chosen.values())) > 2
    for _ in range(50):
        assert (("c7", chosen["c7"]),) == world.decide(using("p", "c7")).static


# -- claims of one class that wish for different volumes -------------------------------------------------------------------


def test_entangled_claims_say_why_as_upstream_does() -> None:
    """Claims without a volume are provisioned in order of size: the first that cannot be gives the reason."""
    world = VolumeWorld(
        *tracking(True),
        a_class("X", "P").allowed("k", "n2"),
        a_claim("small", "1G", "X"),
        a_claim("large", "2G", "X").modes("ReadWriteOnce", "ReadOnlyMany"),
        a_claim("other", "3G", "D"),
        a_pv("v", "5G", "X").where("k", "n1").modes("ReadWriteOnce", "ReadOnlyMany"),
    )

    assert out(BIND_CONFLICT) == world.decide(using("p", "small", "large", "other"))
    assert {"n1": (BIND_CONFLICT,), "n2": (NOT_ENOUGH_SPACE,)} == world.judged(using("p", "small", "large", "other"))


@example(CLASS_GONE)
@example(EQUAL_SIZES)
@settings(max_examples=examples(250))
@given(drawn())
def test_all_nodes_at_once_are_each_of_them(world: Drawn) -> None:
    """Without reservations: the reasons of §3, in their order, and volumes of the same sizes."""
    case = Case(world)
    finder = case.finder(together=False)
    wanted = {slot: outcome(case, name, here) for slot, name, here in case.nodes()}
    if None in wanted.values():
        with pytest.raises(VolumeError):
            case.conflicts(finder)
        return
    conflicts = case.conflicts(finder)
    for slot, expected in wanted.items():
        assert expected is not None
        found = finder.find(case.claims, slot)
        if expected.reasons:
            assert expected.reasons == found
            assert conflicts.get(slot) == expected.reasons or (case.claims.is_entangled and slot not in conflicts)
            continue
        assert slot not in conflicts
        assert isinstance(found, PodVolumes)
        static = [(binding.claim.key, binding.volume.key) for binding in found.static]
        assert case.sizes(expected.static) == case.sizes(static)
        assert [claim for claim, _ in expected.dynamic] == [provision.claim.key for provision in found.dynamic]
        assert [pool is not None for _, pool in expected.dynamic] == [p.pool is not None for p in found.dynamic]


@example(CLASS_GONE)
@settings(max_examples=examples(250))
@given(drawn())
def test_with_reservations_all_nodes_and_one_node_agree(world: Drawn) -> None:
    """B-1 refuses more than upstream, and what it lets pass can be had."""
    case = Case(world)
    alone, together = case.finder(together=False), case.finder(together=True)
    try:
        lacking, conflicts = case.conflicts(alone), case.conflicts(together)
    except VolumeError:
        with pytest.raises(VolumeError):
            case.conflicts(alone)
        with pytest.raises(VolumeError):
            case.conflicts(together)
        return
    for slot, _, _ in case.nodes():
        found = together.find(case.claims, slot)
        if slot in lacking:
            assert slot in conflicts
        if slot in conflicts:
            assert conflicts[slot] == found
        elif not case.claims.is_entangled:
            assert isinstance(found, PodVolumes), found


@example(CLASS_GONE)
@given(drawn())
def test_filter_changes_nothing(world: Drawn) -> None:
    """Repeated calls, for any nodes, have equal results and leave the reservations as they are."""
    case = Case(world)
    finder = case.finder(together=True)
    before = {entry.claim.key: entry.pool.in_flight for entry in case.cluster.volumes.reservations if entry.pool}
    try:
        first = case.conflicts(finder)
    except VolumeError:
        return
    for slot, _, _ in case.nodes():
        alone = finder.conflicts(case.claims, 1 << slot)
        assert ([first[slot]] if slot in first else []) == list(alone)
        finder.find(case.claims, slot)

    assert first == case.conflicts(finder)
    after = {entry.claim.key: entry.pool.in_flight for entry in case.cluster.volumes.reservations if entry.pool}
    assert before == after
