"""What PreFilter makes of a pod's claims: docs/spec/volumes.md §2, rows G1–G25 of §11.3."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import pod_info
from scheduler.config.args import KubestowArgs
from scheduler.framework.interface import CycleState
from scheduler.framework.status import SKIP, Code, Rejection
from scheduler.plugins.volumebinding.plugin import STATE
from simulator.builders.core import pod
from tests.support.volumebuilders import a_claim, a_class, a_pv
from tests.unit.plugins.volumebinding.world import BND, PB, U1, U2, UNBOUND_IMMEDIATE, Decided, World, using

ERROR, UNRESOLVABLE = Code.ERROR, Code.UNRESOLVABLE
NO_MODE = 'VolumeBindingMode not set for StorageClass "M"'


def answered(world: World, info: Any) -> tuple[Code, str] | None:
    """The refusal's code and text."""
    _, no = world.pre_filtered(info)
    assert no is not SKIP
    return (no.code, no.message) if isinstance(no, Rejection) else None


def groups(world: World, info: Any) -> dict[str, list[str]]:
    """Names of the claims in each group that has any."""
    state, no = world.pre_filtered(info)
    assert no is None, no
    claims = state.get(STATE).claims
    found = {"bound": claims.bound, "delayed": claims.delayed, "followed": claims.followed}
    return {group: [claim.metadata.name for claim in held] for group, held in found.items() if held}


@pytest.mark.parametrize("made", [pytest.param(pod("p").volume("v", emptyDir={}), id="G1 an emptyDir")])
def test_pods_without_claims_are_none_of_its_business(made: Any) -> None:
    """Skip; and what follows all the same finds nothing to do."""
    world, info = World(), pod_info(made.typed())
    state, no = world.pre_filtered(info)

    assert SKIP is no
    assert world.plugin.reserve(state, info, "n1") is None
    assert SKIP is world.plugin.pre_bind_pre_flight(state, info, "n1")
    world.plugin.unreserve(state, info, "n1")


@pytest.mark.parametrize(
    ("things", "claims", "code", "text"),
    [
        pytest.param(
            (a_class("M").binding_mode(None), a_claim("x", "1G", "M")),
            ["x"],
            ERROR,
            NO_MODE,
            id="G7 a class without mode",
        ),
    ],
)
def test_refused_before_any_node(things: Any, claims: list[str], code: Code, text: str) -> None:
    """Claims that no node can help; and what is wrong with the cluster itself."""
    assert (code, text) == answered(World(*things), using("p", *claims))


@pytest.mark.parametrize(
    ("things", "answer"),
    [
        pytest.param(
            (a_claim("pod-vol", "1G", "W", ns="other").owned_by("pod", "pod"),),
            (UNRESOLVABLE, 'waiting for ephemeral volume controller to create the persistentvolumeclaim "pod-vol"'),
            id="G16 owned, of another namespace: not the claim that is meant",
        ),
    ],
)
def test_ephemeral_claims_are_the_pods_own(things: Any, answer: tuple[Code, str] | None) -> None:
    """§2.1: controlled by the pod of this very uid."""
    assert answer == answered(World(*things), using("pod", ephemeral=["vol"]))


@pytest.mark.parametrize(
    ("things", "claims", "found"),
    [
        pytest.param(
            (U1, U2, BND, PB), ["u2", "bnd", "u1"], {"bound": ["bnd"], "delayed": ["u2", "u1"]}, id="some of each"
        ),
    ],
)
def test_groups(things: Any, claims: list[str], found: dict[str, list[str]]) -> None:
    """§2.3, each claim once."""
    assert found == groups(World(*things), using("p", *claims))


def test_g20_an_assumed_node_pins_the_claim() -> None:
    """G20 What is about to be written counts, although the server does not have it yet."""
    world = World(a_class("E", "P"), a_claim("e", "1G", "E"))
    world.reserved(using("first", "e"), on="n2")

    assert world.cluster.volumes.claims.get_api("default/e").selected_node is None  # type: ignore[union-attr]
    assert {"delayed": ["e"]} == groups(world, using("second", "e"))
    assert Decided((), (), ("e",)) == world.decide(using("second", "e"), on="n2")
    assert {"n1"} == set(world.judged(using("second", "e")))


def test_g21_a_claim_that_only_one_view_has() -> None:
    """G21 The two looks at claims may be answered from different places; then it is an error, not a refusal."""
    world = World(U1)
    world.cluster.volumes.claims.get = lambda key: None  # type: ignore[method-assign]

    text = 'error getting PVC "default/u1": persistentvolumeclaims "default/u1" not found'
    assert (ERROR, text) == answered(world, using("p", "u1"))


def test_f25_filter_without_prefilter_is_an_error() -> None:
    """F25 The state of the attempt is missing."""
    world = World()
    (no,) = world.plugin.filter(CycleState(), using("p", "u1"), world.cluster.nodes.present)

    assert (ERROR, "not found") == (no.code, no.message)


# -- claims that a binding of ours is about to complete (B-26) -----------------------------------------------------------


def test_a_claim_that_is_being_completed_is_followed() -> None:
    """B-26 The PV controller has written the volume's name, not yet the annotation: other pods of the claim go where the volume is."""
    world = World(U1, a_pv("a", "5G", "W").where("k", "n1"))
    world.plan(using("first", "u1"))
    world.show(U1.wants("a"))
    follower = using("second", "u1")

    assert {"followed": ["u1"]} == groups(world, follower)
    assert {"n2"} == set(world.judged(follower))
    assert ["u1"] == [claim.metadata.name for claim in world.plan(follower).followed]


@pytest.mark.parametrize(
    ("ours", "is_under_way"),
    [
        pytest.param(KubestowArgs(treat_binding_as_unbound=True), True, id="switched off"),
        pytest.param(KubestowArgs(), False, id="named by another client"),
    ],
)
def test_a_claim_that_is_not_followed(ours: KubestowArgs, is_under_way: bool) -> None:
    """B-26 Otherwise it is unbound, as upstream says."""
    world = World(U1, a_pv("a", "5G", "W").where("k", "n1"), ours=ours)
    if is_under_way:
        world.plan(using("first", "u1"))
    world.show(U1.wants("a"))

    assert (UNRESOLVABLE, UNBOUND_IMMEDIATE) == answered(world, using("second", "u1"))
