"""The sentence about an attempt that found no node (docs/spec/core.md §3.9)."""

from __future__ import annotations

import pytest

from scheduler.core import nodeset
from scheduler.framework.status import Code, Diagnosis, Rejection, one_node


def no(*reasons: str, plugin: str = "P", code: Code = Code.UNSCHEDULABLE) -> Rejection:
    return Rejection(plugin, code, reasons)


@pytest.mark.parametrize(
    ("diagnosis", "message"),
    [
        pytest.param(
            Diagnosis(
                3,
                {
                    no("Insufficient cpu"): 0b001,
                    no("Insufficient cpu", "Insufficient memory"): 0b010,
                    no("node(s) had untolerated taint(s)", plugin="T"): 0b100,
                },
            ),
            "0/3 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint(s), 2 Insufficient cpu.",
            id="114 a node with two reasons counts in both",
        ),
        pytest.param(
            Diagnosis(14, {no("b"): 0b11, no("a"): (1 << 14) - 4}),
            "0/14 nodes are available: 12 a, 2 b.",
            id="115 counts are sorted as text",
        ),
        pytest.param(
            Diagnosis(2, pre_filter_message="pvc not found", absent=no("pvc not found"), absent_count=2),
            "0/2 nodes are available: pvc not found.",
            id="116 PreFilter's message replaces the counts",
        ),
        pytest.param(
            Diagnosis(5, {no("a"): 1}, no("absent"), 4),
            "0/5 nodes are available: 1 a, 4 absent.",
            id="117 nodes that nothing looked at give the absent reason",
        ),
        pytest.param(
            Diagnosis(1, {no("a"): 1}, post_filter_message="preemption: no."),
            "0/1 nodes are available: 1 a. preemption: no.",
            id="PostFilter's message is appended as it is",
        ),
        pytest.param(Diagnosis(0), "0/0 nodes are available:", id="no reasons, no list"),
        pytest.param(one_node(no("full")), "0/1 nodes are available: 1 full.", id="Reserve and Permit name one node"),
    ],
)
def test_message(diagnosis: Diagnosis, message: str) -> None:
    assert diagnosis.message() == message


def test_a_pending_plugin_is_kept_apart() -> None:
    """Pending skips the back-off later, so it must not be mixed with plain rejections."""
    diagnosis = Diagnosis(1)

    diagnosis.refuse(no("x", plugin="A"))
    diagnosis.refuse(no("y", plugin="B", code=Code.PENDING))
    diagnosis.refuse(no("z", plugin=""))

    assert (diagnosis.unschedulable_plugins, diagnosis.pending_plugins) == ({"A"}, {"B"})


@pytest.mark.parametrize("size", [1, 7, 8, 9, 64, 5000])
def test_a_set_survives_the_way_through_a_mask(size: int) -> None:
    some = nodeset.of(range(0, size, 3))

    assert nodeset.from_mask(nodeset.to_mask(some, size)) == some
    assert nodeset.slots(some, size).tolist() == list(nodeset.each(some)) == list(range(0, size, 3))
