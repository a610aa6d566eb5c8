"""Where an allocation can be used, and access for administrators: docs/spec/dra.md §9.3. For the notation see `scenarios`."""

from __future__ import annotations

import pytest

from scheduler.config.args import KubestowArgs
from simulator.builders.devices import a_device, a_node_selector, on_node
from tests.unit.plugins.dra.scenarios import Given, asks, dev, exactly, given, is_as, on, outcome, outcome_under, want

REGION = on("", "p1", "d1").where("region", "r1")
EARTH = on("", "p3", "d1").where("planet", "earth")
EVERYWHERE = on("", "p2", "d1").everywhere()


def terms(*expressions):
    """A node selector of a term for each of these expressions; an empty one is a term without any."""
    return {"nodeSelectorTerms": [a_node_selector(*[one] * bool(one))["nodeSelectorTerms"][0] for one in expressions]}


def by(pool, selector):
    """A pool with d1, which may be used where the selector says."""
    return on("", pool, "d1").set({"spec": {"nodeSelector": selector}})


HERE_OR_THERE = terms(("planet", "In", "earth"), ("region", "In", "r9"))
ADMIN = want(admin=True)
NO_ADMIN = exactly(count=1, allocationMode="ExactCount", adminAccess=False)
FORBIDDEN = "ERR claim default/c0, request r0: admin access is requested, but the feature is disabled"
D1, TWO = on("n1", "p1", "d1"), on("n1", "p1", "d1 d2")


def per_device(*devices):
    return on("", "p1", *devices).per_device()


def test_with_parity_a_node_selector_of_several_terms_is_an_error() -> None:
    """Upstream merges selectors of one term only."""
    said = outcome_under(given([by("p1", HERE_OR_THERE)]), KubestowArgs(parity=True))

    assert said == "ERR create NodeSelector for claim c0: unsupported ResourceSlice.NodeSelector with 2 terms"


@pytest.mark.parametrize(("case", "expected"), [
    # places
    pytest.param(given([REGION]), "r0→p1/d1 @region In r1", id="56 somewhere in the region"),
    pytest.param(given([REGION], at="n2"), "nil", id="57 in another region"),
    pytest.param(given([REGION, EVERYWHERE, EARTH, on("", "p4", "d1").set({"spec": {"nodeSelector": on_node("n1")}})],
        "A*4"), "r0→p1/d1 r0→p2/d1 r0→p3/d1 r0→p4/d1 @region In r1, planet In earth, metadata.name In n1",
        id="58 several places: where all of them are"),
    pytest.param(given([REGION, on("n1", "p2", "d1")], "A*2"), "r0→p1/d1 r0→p2/d1", id="59 one of them here"),
    pytest.param(given([EVERYWHERE]), "r0→p2/d1 @anywhere", id="60 everywhere"),
    pytest.param(given([REGION, on("", "p2", "d1").where("region", "r1")], "A*2"), "r0→p1/d1 r0→p2/d1 @region In r1",
        id="61 twice the same place"),
    pytest.param(given([by("p1", HERE_OR_THERE)]), "r0→p1/d1 @planet In earth or region In r9",
        id="62 this place or that"),
    pytest.param(given([by("p1", HERE_OR_THERE), by("p2", HERE_OR_THERE)], "A*2"),
        "r0→p1/d1 r0→p2/d1 @planet In earth or region In r9", id="62 twice this place or that"),
    pytest.param(
        given([by("p1", HERE_OR_THERE), by("p2", terms(("region", "In", "r1"), ("planet", "Exists")))], "A*2"),
        "r0→p1/d1 r0→p2/d1 @planet In earth, region In r1 or planet In earth, planet Exists"
        " or region In r9, region In r1 or region In r9, planet Exists",
        id="62 this place or that, and this place or that",
    ),
    pytest.param(given([by("p1", terms((), ("planet", "In", "earth"), ("region", "In", "r9"))), REGION.pool("p2")],
        "A*2"), "r0→p1/d1 r0→p2/d1 @planet In earth, region In r1 or region In r9, region In r1",
        id="62 a term without words is nowhere"),
    pytest.param(given([by(f"p{at}", terms(("planet", "Exists"), (f"k{at}", "Exists"))) for at in range(7)], "A*7"),
        "ERR create NodeSelector for claim c0: unsupported ResourceSlice.NodeSelector with 2 terms",
        id="62 this place or that, of more than 64 combinations"),
    pytest.param(given([on("", "p1", a_device("d1").binds_to_node()).where("planet", "earth")], f="BC"), "r0→p1/d1",
        id="63 a device that is bound to the node"),
    pytest.param(given([per_device(dev("d1", mem="4Gi").on("n1"), dev("d2", mem="6Gi").on("n2"))],
        asks([want(mem="6Gi"), want(mem="4Gi")]), f="PD PL"), "r0/s1→p1/d1", id="69 each device of its node"),
    pytest.param(given([per_device(a_device("d1").where("region", "r1"))], f="PD"), "r0→p1/d1 @region In r1",
        id="70 a device of a region"),
    pytest.param(given([per_device(a_device("d1").where("region", "r1"), a_device("d2").on("n1"),
        a_device("d3").everywhere())], "A*3", f="PD"), "r0→p1/d1 r0→p1/d2 r0→p1/d3", id="71 one of them of the node"),
    pytest.param(given([per_device(a_device("d1").on("n1"))]), "nil",
        id="72 each device of its node, with the gate off"),
    # administrators
    pytest.param(given([D1], ADMIN), FORBIDDEN, id="64 with the gate off"),
    pytest.param(given([D1], NO_ADMIN), FORBIDDEN, id="64 with the gate off even the word is one too many"),
    pytest.param(given([D1], NO_ADMIN, f="AA", used="p1/d1"), "nil", id="64 no access is no access"),
    pytest.param(given([D1], ADMIN, f="AA", used="p1/d1"), "r0→p1/d1(admin)", id="65 to what is in use"),
    pytest.param(given([TWO], [asks(ADMIN), asks(ADMIN)], f="AA"), "r0→p1/d1(admin) | r0→p1/d1(admin)",
        id="66 two claims to one device"),
    pytest.param(given([D1], [asks("A"), asks(ADMIN)], f="AA"), "r0→p1/d1 | r0→p1/d1(admin)",
        id="67 to what an earlier claim gets"),
    pytest.param(given([D1], [asks(ADMIN), asks("A")], f="AA"), "nil",
        id="68 a later claim does not get what is looked into"),
])  # fmt: skip
def test_places(case: Given, expected: str) -> None:
    assert is_as(expected, outcome(case)), outcome(case)
