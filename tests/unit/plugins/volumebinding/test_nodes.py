"""What Filter says of nodes, and which volumes are taken there: docs/spec/volumes.md §3, rows F1–F31 and M1–M26."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.config.args import KubestowArgs
from scheduler.framework.status import Code, Rejection
from tests.support.volumebuilders import a_claim, a_class, a_csi_node, a_pv
from tests.unit.plugins.volumebinding.world import (
    BIND_CONFLICT,
    BND,
    D1,
    IB,
    NODE_CONFLICT,
    NOT_ENOUGH_SPACE,
    NOT_EXISTING,
    PARITY,
    PI,
    U1,
    A,
    B,
    Decided,
    World,
    tracking,
    using,
)

FITS = Decided(())
V1, V2, V3 = a_claim("v1", "1G", "W"), a_claim("v2", "2G", "W"), a_claim("v3", "2G", "W")
G1, G2 = (a_pv(name, size, "W").where("k", "n1") for name, size in (("g1", "1G"), ("g2", "2G")))
RUNS = pytest.mark.parametrize(
    "tracks", [None, False, True], ids=["no driver", "a driver without capacity", "a driver that tracks capacity"]
)


def out(*reasons: str) -> Decided:
    return Decided(reasons)


@RUNS
@pytest.mark.parametrize(
    ("things", "claims", "decided"),
    [
        pytest.param((V1, V2, G1, G2), ["v1", "v2"], Decided((), (("v1", "g1"), ("v2", "g2"))), id="F5 claims of 1G and 2G, volumes of 1G and 2G"),
        pytest.param((a_claim("s", "1Gi", "D").selected("n9"),), ["s"], out(BIND_CONFLICT), id="a node is selected that is gone"),
    ],
)  # fmt: skip
def test_one_node(things: Any, claims: list[str], decided: Decided, tracks: bool | None) -> None:
    """What n1 would do for the pod, or why it cannot; drivers that track capacity have none."""
    if tracks and decided.dynamic:
        decided = out(NOT_ENOUGH_SPACE)

    assert decided == World(*things, *tracking(tracks)).decide(using("p", *claims))


@pytest.mark.parametrize(
    ("things", "claims", "judged"),
    [
        pytest.param(
            (BND, IB, PI.set({"spec": {"nodeAffinity": None}}).where("k", "n2")),
            ["ib", "bnd"],
            {"n1": (NODE_CONFLICT,), "n2": (NOT_EXISTING,)},
            id="the first that is wrong ends the look at bound claims",
        ),
    ],
)
def test_all_nodes(things: Any, claims: list[str], judged: dict[str, Any]) -> None:
    """The nodes that are out, by their reasons."""
    assert judged == World(*things).judged(using("p", *claims))


def test_f20_a_class_that_vanished_after_pre_filter() -> None:
    """F20 After PreFilter there was a class, and now there is none."""
    world = World(D1)
    state, no = world.pre_filtered(using("p", "d1"))
    assert no is None
    world.withdraw("StorageClass", "D")
    (refused,) = world.plugin.filter(state, using("p", "d1"), world.cluster.nodes.present)

    assert Rejection("VolumeBinding", Code.ERROR, ('failed to find storage class "D"',)) == refused
    assert ["predicate"] == world.metrics.errors


@pytest.mark.parametrize("ours", [KubestowArgs(), PARITY], ids=["ours", "parity"])
def test_f21_the_volume_that_was_assumed_is_taken_again(ours: KubestowArgs) -> None:
    """F21 What was pre-bound for a claim is its, although another one is as small."""
    world = World(U1, A, a_pv("a2", "5G", "W").where("k", "n1"), ours=ours)
    taken = world.plan(using("p", "u1")).static[0].volume.key

    for _ in range(50):
        assert ((("u1", taken),)) == world.decide(using("again", "u1")).static
        assert {"n2"} == set(world.judged(using("again", "u1")))


def test_f23_the_same_claim_twice_is_bound_once() -> None:
    """F23 (B-16) Upstream takes a second volume for it."""
    world = World(U1, A, B)

    assert (("u1", "a"),) == world.decide(using("p", "u1", "u1")).static
    assert Decided((), (("u1", "a"),)) == World(U1, A).decide(using("p", "u1", "u1"))


# -- migrated volumes ----------------------------------------------------------------------------------------------------

GCE_CLAIM = a_claim("g", "1G", "W").bound_to("gce")
EBS_BAD = a_pv("gce", "1G", "W").source(awsElasticBlockStore={"volumeID": "aws://z/bad"})
MIGRATED_EBS = a_csi_node("n1").migrated("kubernetes.io/aws-ebs")


def test_f31_a_volume_that_cannot_be_translated() -> None:
    """F31 An error where it would have to be, and no business of the other nodes."""
    world = World(GCE_CLAIM, EBS_BAD, MIGRATED_EBS)
    state, no = world.pre_filtered(using("p", "g"))
    assert no is None
    (refused,) = world.plugin.filter(state, using("p", "g"), 1 << world.slot("n1"))

    assert Code.ERROR is refused.code
    assert refused.message.startswith("could not translate pv: ")
    assert {} == world.judged(using("p", "g"), "n2")
    assert FITS == world.decide(using("p", "g"), on="n2")
    assert ["predicate"] == world.metrics.errors


# -- one claim, one volume: what the index's own tests do not show -----------------------------------------------------------


def meant(name: str = "m", *, uid: str = "") -> Any:
    return a_pv(name, "1G", "W").where("k", "n1").claimed_by("u1", uid=uid)


@pytest.mark.parametrize(
    ("things", "static"),
    [
        pytest.param((meant().legacy_class("other"), A), "a", id="of another class it is not seen"),
    ],
)
def test_a_volume_that_is_meant_for_the_claim(things: Any, static: str) -> None:
    """Gates 2 to 8: it is taken before any other is tried."""
    assert (("u1", static),) == World(U1, *things).decide(using("p", "u1")).static


def test_a_volume_that_is_meant_for_it_elsewhere_and_a_provisioner() -> None:
    """Gate 8 is about volumes: what cannot be matched may still be provisioned."""
    world = World(a_class("E", "P"), a_claim("e", "1G", "E"), a_pv("m", "1G", "E").where("k", "n1").claimed_by("e"))

    assert Decided((), (("e", "m"),)) == world.decide(using("p", "e"))
    assert Decided((), (), ("e",)) == world.decide(using("p", "e"), on="n2")


@pytest.mark.parametrize("things", [(), (A,)], ids=["no volumes", "a volume that would fit"])
def test_m19_a_selector_that_is_none(things: Any) -> None:
    """M19 An error, whether or not the class has any volume."""
    world = World(U1.matching_expression("tier", "Near", "a"), *things)
    state, no = world.pre_filtered(using("p", "u1"))
    assert no is None
    (refused,) = world.plugin.filter(state, using("p", "u1"), world.cluster.nodes.present)

    assert Code.ERROR is refused.code
    assert refused.message.startswith("error creating internal label selector for claim: default/u1: ")


def test_m26_of_equal_volumes_always_the_same() -> None:
    """M26 (B-24) And not the same for every claim."""
    claims = [a_claim(f"c{at}", "1G", "W") for at in range(20)]
    world = World(*claims, *(a_pv(f"v{at}", "1G", "W").where("k", "n1") for at in range(8)))
    chosen = {f"c{at}": world.decide(using("p", f"c{at}")).static[0][1] for at in range(20)}

    assert len(set(chosen.values())) > 2
    for _ in range(50):
        assert (("c7", chosen["c7"]),) == world.decide(using("p", "c7")).static


# -- claims of one class that wish for different volumes -------------------------------------------------------------------


def test_entangled_claims_say_why_as_upstream_does() -> None:
    """Claims without a volume are provisioned in order of size: the first that cannot be gives the reason."""
    world = World(
        *tracking(True),
        a_class("X", "P").allowed("k", "n2"),
        a_claim("small", "1G", "X"),
        a_claim("large", "2G", "X").modes("ReadWriteOnce", "ReadOnlyMany"),
        a_claim("other", "3G", "D"),
        a_pv("v", "5G", "X").where("k", "n1").modes("ReadWriteOnce", "ReadOnlyMany"),
    )

    assert out(BIND_CONFLICT) == world.decide(using("p", "small", "large", "other"))
    assert {"n1": (BIND_CONFLICT,), "n2": (NOT_ENOUGH_SPACE,)} == world.judged(using("p", "small", "large", "other"))
