"""Node slots and columns."""

from __future__ import annotations

import pytest

from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from tests.unit.objects import asking, info, node, ports


def test_columns_of_a_node() -> None:
    """Allocatable in milli-CPU and units; pods apart."""
    nodes = Nodes()
    slot = nodes.set_node(node("n1", cpu="1500m", memory="1Gi", pods="5", **{"example.com/x": "2"}))
    seen = nodes.view(slot)

    assert tuple(seen.allocatable(r) for r in ("cpu", "memory", "example.com/x", "none")) == (1500, 2**30, 2, 0)
    assert (seen.allowed_pods, seen.pod_count) == (5, 0)
    assert "n1" == seen.name == seen.node.metadata.name


def test_names_that_nobody_offers_cost_no_rows() -> None:
    """A pod on a node of its own choice may name thousands of resources, and a row is as long as there are nodes."""
    nodes = Nodes()
    nodes.set_node(node("n1"))
    before = nodes.requested.shape, nodes.allocatable.shape

    nodes.add_pod("n1", asking("a", **{f"example.com/x{i}": "1" for i in range(1000)}))

    assert before == (nodes.requested.shape, nodes.allocatable.shape)
    assert nodes.view(nodes.by_name(["n1"]).bit_length() - 1).requested("example.com/x7") == 1


def test_what_was_requested_counts_once_a_node_offers_it() -> None:
    """And while the last one that did is away; a row that nobody needs any more is another resource's."""
    nodes, name = Nodes(), "example.com/x"
    first, second = nodes.set_node(node("n1")), nodes.set_node(node("n2"))
    shape = nodes.requested.shape

    def seen() -> tuple[tuple[int, int], ...]:
        return tuple((nodes.view(s).requested(name), nodes.view(s).allocatable(name)) for s in (first, second))

    nodes.add_pod("n1", asking("a", **{name: "2"}))
    assert ((2, 0), (0, 0)) == seen()
    nodes.set_node(node("n2", **{name: "4"}))
    nodes.add_pod("n2", asking("b", **{name: "3"}))
    assert ((2, 0), (3, 4)) == seen()
    nodes.set_node(node("n1", **{name: "2"}))
    nodes.remove_node("n2")
    assert ((2, 2), (3, 0)) == seen()
    nodes.set_node(node("n1"))
    assert name not in nodes.resources()
    nodes.remove_pod("n1", "a")
    for i in range(50):
        nodes.set_node(node("n1", **{f"example.com/y{i}": "1"}))
    assert (0, 0) == (nodes.view(first).requested("example.com/y49"), nodes.view(first).requested(name))
    nodes.set_node(node("n2", **{name: "4"}))
    assert ((0, 0), (3, 4)) == seen()
    assert shape == nodes.requested.shape


def test_more_is_requested_than_a_column_can_hold() -> None:
    """By pods on a node that is not there, and nobody stops them: a node that offers it can be taken in all the same."""
    nodes, name = Nodes(), "example.com/x"
    pods = [asking(f"p{i}", **{name: str(2**53)}) for i in range(1025)]
    nodes.set_node(node("n1", **{name: "1"}))
    nodes.remove_node("n1")
    for pod in pods:
        nodes.add_pod("none", pod)

    nodes.set_node(node("n1", **{name: "1"}))
    nodes.set_node(node("n1"))
    for pod in pods:
        nodes.remove_pod("none", pod.uid)

    slots = [nodes.set_node(node(each, **{name: "1"})) for each in ("n1", "none")]
    assert [(0, 1)] * 2 == [(nodes.view(slot).requested(name), nodes.view(slot).allocatable(name)) for slot in slots]


def test_76_pods_before_their_node() -> None:
    """The slot holds them, unseen, until the node appears."""
    nodes = Nodes()
    slot = nodes.add_pod("n1", asking("a", cpu="1"))

    assert 0 == len(nodes) == nodes.present
    assert nodes.node(slot) is None
    with pytest.raises(LookupError):
        _ = nodes.view(slot).node

    assert slot == nodes.set_node(node("n1"))
    assert len(nodes) == 1
    assert nodes.view(slot).requested("cpu") == 1000


def test_77_78_ghosts() -> None:
    """A deleted node with pods stays as a ghost; the last pod frees the slot; a node that returns finds its pods."""
    nodes = Nodes()
    slot = nodes.set_node(node("n1"))
    for name in ("a", "b"):
        nodes.add_pod("n1", asking(name, cpu="1"))
    nodes.remove_node("n1")
    ghost = (len(nodes), nodes.slot("n1"), nodes.view(slot).allocatable("cpu"), nodes.view(slot).allowed_pods)
    nodes.set_node(node("n1"))
    back = (len(nodes), nodes.view(slot).requested("cpu"), nodes.view(slot).allocatable("cpu"))
    nodes.remove_node("n1")
    nodes.remove_pod("n1", "a")
    nodes.remove_pod("n1", "b")

    assert (0, slot, 0, 0) == ghost
    assert back == (1, 2000, 4000)
    assert nodes.slot("n1") is None
    assert nodes.name(slot) == ""


def test_growing_keeps_everything() -> None:
    """More nodes and more resources than at first: columns and sets are the same."""
    nodes = Nodes(capacity=2)
    for at in range(9):
        nodes.set_node(node(f"n{at}", cpu=str(at + 1), **{f"example.com/r{at}": "7"}))
        nodes.add_pod(f"n{at}", asking(f"p{at}", cpu=f"{at}m"))

    assert (nodes.capacity, len(nodes)) == (16, 9)
    for at in range(9):
        seen = nodes.view(nodes.slot(f"n{at}") or 0)
        assert ((at + 1) * 1000, 7, at) == (
            seen.allocatable("cpu"),
            seen.allocatable(f"example.com/r{at}"),
            seen.requested("cpu"),
        )


def test_slots_are_used_again() -> None:
    """Nodes that come and go do not use up capacity."""
    nodes = Nodes(capacity=2)
    for at in range(10):
        nodes.set_node(node(f"n{at}"))
        nodes.remove_node(f"n{at}")

    assert (nodes.capacity, len(nodes)) == (2, 0)


@pytest.mark.parametrize(
    ("changed", "generation_moves", "columns_move"),
    [
        pytest.param(node("n1"), False, False, id="151 nothing changed"),
        pytest.param(node("n1", labels={"a": "b"}), True, False, id="labels"),
        pytest.param(node("n1", taints=("a=b:NoSchedule",)), True, False, id="taints"),
        pytest.param(node("n1", cordoned=True), True, False, id="cordon"),
        pytest.param(node("n1", cpu="5"), False, True, id="allocatable"),
    ],
)
def test_what_a_change_invalidates(changed: object, generation_moves: bool, columns_move: bool) -> None:
    """Objects and columns are watched apart, so that memos live as long as they may."""
    nodes = Nodes()
    slot = nodes.set_node(node("n1"))
    before, position = nodes.object_generation, nodes.position
    nodes.set_node(changed)  # type: ignore[arg-type]

    assert generation_moves is (nodes.object_generation != before)
    assert ([slot] if columns_move else []) == nodes.changed_since(position)


def test_replacing_without_touching_columns() -> None:
    """A newer object of equal weight takes its place silently; one of other weight does not."""
    nodes = Nodes()
    slot = nodes.set_node(node("n1"))
    nodes.add_pod("n1", asking("a", cpu="1"))
    position = nodes.position
    newer = asking("a", cpu="1")

    assert nodes.replace_pod("n1", newer)
    assert newer is nodes.pods(slot)["a"]
    assert position == nodes.position
    assert not nodes.replace_pod("n1", asking("a", cpu="2"))
    assert not nodes.replace_pod("n1", info("a", containers=ports("TCP/80")))
    assert not nodes.replace_pod("n1", asking("b", cpu="1"))
    assert not nodes.replace_pod("n9", asking("a", cpu="1"))


def test_by_name_knows_present_nodes_only() -> None:
    """Unknown names and ghosts are left out."""
    nodes = Nodes()
    slot = nodes.set_node(node("n1"))
    nodes.add_pod("ghost", asking("a"))

    assert nodeset.of([slot]) == nodes.by_name(["n1", "ghost", "unknown"])
