"""The search for the number of nodes, on outcomes that are known."""

from __future__ import annotations

import pytest

from simulator.simulate.outcome import Outcome, Placement, Timing
from simulator.simulate.planning.nodes_needed import NodesNeeded, as_text, nodes_needed

PODS = 40


def outcome(pending: int, message: str = "", *, pods: int = PODS, owner: str = "") -> Outcome:
    """Return an outcome with pods of which the last ones are pending."""
    placements = tuple(
        Placement(
            *(f"default/p{at}", "" if at >= pods - pending else "n", "Unschedulable", message),
            is_expected_pending=False,
            owner=owner,
        )
        for at in range(pods)
    )
    return Outcome(placements, (), Timing(None, None, 0.0), 1, 0, 0, {}, is_settled=True)


def search(needed: int) -> NodesNeeded:
    """Search where every pod is placed with this many nodes and more."""
    return nodes_needed("n", lambda added: outcome(max(needed - added, 0)))


@pytest.mark.parametrize("needed", range(PODS + 1))
def test_the_least_number(needed: int) -> None:
    found = search(needed)

    assert found.nodes == needed
    assert [each.added for each in found.runs] == sorted({each.added for each in found.runs})
    assert len(found.runs) <= 2 + 2 * needed.bit_length()
    assert needed == 0 or (found.failed is not None and found.failed.added == needed - 1)


def test_no_more_nodes_are_tried_than_pods_are_to_be_placed() -> None:
    found = search(PODS + 1)

    assert found.nodes is None
    assert [each.added for each in found.runs] == [0, 1, 2, 4, 8, 16, 32, 40]


def test_no_more_nodes_are_tried_than_the_limit() -> None:
    found = nodes_needed("n", lambda _: outcome(1, pods=3000))

    assert found.nodes is None
    assert found.runs[-1].added == 1000


def test_pods_of_daemon_sets_are_no_reason_for_more_nodes() -> None:
    """Each added node brings such a pod, so their number never falls below that of the nodes."""
    found = nodes_needed("n", lambda added: outcome(1, pods=1 + added, owner="DaemonSet/agent"))

    assert (found.nodes, len(found.runs)) == (None, 1)


def test_a_stateful_set_creates_its_pods_one_after_another() -> None:
    """A pod of it is created when the one before is placed: each added node takes one of five."""
    found = nodes_needed("n", lambda added: outcome(int(added < 5), pods=min(added + 1, 5)))

    assert found.nodes == 5


@pytest.mark.parametrize(
    ("before", "after", "limits"),
    [
        pytest.param("1 Insufficient cpu.", "2 Insufficient cpu.", ["cpu"], id="cpu"),
        pytest.param(
            "2 Insufficient cpu, 1 cannot allocate all claims.",
            "2 Insufficient cpu, 3 cannot allocate all claims.",
            ["devices"],
            id="the reason of the added nodes",
        ),
        pytest.param(
            "1 node(s) didn't match Pod's node affinity/selector.",
            "1 node(s) didn't match Pod's node affinity/selector, 1 Insufficient example.com/gpu, 1 Too many pods. x",
            ["example.com/gpu", "pods"],
            id="several",
        ),
        pytest.param("1 node(s) were unschedulable.", "2 node(s) were unschedulable.", [], id="no shortage"),
        pytest.param(
            "", "1 x. no new claims, preemption: 0/1 nodes are available: 1 Insufficient cpu.", [], id="preemption"
        ),
    ],
)
def test_the_limit_is_that_of_the_added_nodes(before: str, after: str, limits: list[str]) -> None:
    text = "0/3 nodes are available: "
    found = nodes_needed("n", lambda added: outcome(3 - added, text + (after if added else before)))

    assert found.nodes == 3
    assert found.limits == limits


def test_the_answer_as_text() -> None:
    message = "0/2 nodes are available: 2 Insufficient cpu."
    found = nodes_needed("n", lambda added: outcome(2 - added, message if added else "0/1 nodes are available: 1 x."))

    assert as_text(found) == (
        "2 more nodes like n are needed, limited by cpu\n"
        "with 1 more node: 39 of 40 pods placed; default/p39: 0/2 nodes are available: 2 Insufficient cpu.\n"
    )
    assert as_text(search(0)) == "0 more nodes like n are needed\n"
    assert as_text(nodes_needed("n", lambda _: outcome(1, message, pods=1))).startswith("more nodes like n do not help")
