"""Two differences of random scenarios with volumes are known, and no other difference is excused."""

from dataclasses import replace
from typing import Final

import pytest

from tests.parity.excuses import excuse
from tests.parity.fuzz import made
from tests.parity.verdict import Verdict

SEVERAL: Final = made("volumes", 7200011)
"""Of class d, n1 and n3 have two capacity objects or more, n2 has two, and n0 one."""
SHARED: Final = made("volumes", 7201148)
"""A pod that is nominated to n0 uses the volume of a4; no pod on n0 does."""


def scored(**volumes: int) -> Verdict:
    scores = {"VolumeBinding": volumes, "NodeAffinity": {"n0": 10, "n1": 20, "n2": 0, "n3": 5}}
    totals = {node: volumes[node] + scores["NodeAffinity"][node] for node in volumes}
    return Verdict(node=max(totals, key=lambda node: totals[node]), scores=scores)


@pytest.mark.parametrize(("theirs", "ours", "is_excused"), [
    pytest.param([scored(n1=7, n2=7, n3=40), scored(n1=40, n2=11, n3=7)], scored(n1=40, n2=11, n3=40), True,
        id="each score was given in some attempt"),
    pytest.param([scored(n1=7, n2=7, n3=40), scored(n1=11, n2=11, n3=7)], scored(n1=40, n2=11, n3=40), False,
        id="one score was never given"),
    pytest.param([scored(n0=7, n1=7), scored(n0=40, n1=7)], scored(n0=7, n1=7), False,
        id="a node with one object"),
    pytest.param([scored(n1=7, n2=7), scored(n1=40, n2=7)], scored(n1=40, n2=7, n3=40), False,
        id="another feasible node"),
    pytest.param([scored(n1=7, n2=7), scored(n1=40, n2=7)],
        replace(scored(n1=40, n2=7), scores={"VolumeBinding": {"n1": 40, "n2": 7}, "NodeAffinity": {"n1": 1, "n2": 0}}),
        False, id="another plugin scores differently, too"),
    pytest.param([Verdict(reason="Unschedulable")], scored(n1=40), False, id="placed and refused"),
])  # fmt: skip
def test_scores_of_several_capacity_objects(theirs: list[Verdict], ours: Verdict, is_excused: bool) -> None:
    assert bool(excuse(SEVERAL, "a1", theirs, ours)) is is_excused


ZONE, FULL = "node(s) had no available volume zone", "node(s) exceed max volume count"
NOT_HELPFUL, NO_VICTIMS = "Preemption is not helpful for scheduling", "No preemption victims found for incoming pod"


def refused(filtered: str, tried: str, between: str = "") -> Verdict:
    return Verdict(
        reason="Unschedulable",
        message=f"0/5 nodes are available: {filtered}. {between}preemption: 0/5 nodes are available: {tried}.",
    )


THEIRS: Final = refused(f"5 {ZONE}", f"5 {NOT_HELPFUL}")


@pytest.mark.parametrize(("name", "ours", "is_excused"), [
    pytest.param("a4", refused(f"1 {FULL}, 4 {ZONE}", f"1 {NO_VICTIMS}, 4 {NOT_HELPFUL}"), True, id="the node is full"),
    pytest.param("a4", refused(f"2 {FULL}, 3 {ZONE}", f"2 {NO_VICTIMS}, 3 {NOT_HELPFUL}"), False, id="another node, too"),
    pytest.param("a4", refused(f"4 {ZONE}, 1 Insufficient cpu", f"5 {NOT_HELPFUL}"), False, id="another reason"),
    pytest.param("a4", refused(f"1 {FULL}, 4 {ZONE}", f"2 {NO_VICTIMS}, 3 {NOT_HELPFUL}"), False,
        id="more nodes in the preemption"),
    pytest.param("a4", Verdict(node="n0"), False, id="placed"),
    pytest.param("a0", refused(f"1 {FULL}, 4 {ZONE}", f"1 {NO_VICTIMS}, 4 {NOT_HELPFUL}"), False,
        id="a pod without that volume"),
])  # fmt: skip
def test_a_volume_that_only_a_nominated_pod_shares(name: str, ours: Verdict, is_excused: bool) -> None:
    assert bool(excuse(SHARED, name, [THEIRS], ours)) is is_excused


NOTHING_FREED = "no new claims to deallocate, "


@pytest.mark.parametrize(("theirs", "ours", "is_excused"), [
    pytest.param(NOTHING_FREED, NOTHING_FREED, True, id="both say it, as in 1.36"),
    pytest.param(NOTHING_FREED, "", False, id="upstream alone"),
    pytest.param("", NOTHING_FREED, False, id="ours alone"),
])  # fmt: skip
def test_what_stands_before_the_preemption_must_be_equal(theirs: str, ours: str, is_excused: bool) -> None:
    said = refused(f"5 {ZONE}", f"5 {NOT_HELPFUL}", theirs)
    our_answer = refused(f"1 {FULL}, 4 {ZONE}", f"1 {NO_VICTIMS}, 4 {NOT_HELPFUL}", ours)

    assert bool(excuse(SHARED, "a4", [said], our_answer)) is is_excused
