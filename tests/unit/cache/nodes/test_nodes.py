"""Node slots and columns."""

from __future__ import annotations

import pytest

from scheduler.cache.nodes.nodes import Nodes
from tests.unit.objects import info, node, pod_requesting, ports


def test_resources_that_no_node_offers_have_no_rows() -> None:
    """A pod with spec.nodeName may request thousands of resources, and a row is as long as there are nodes."""
    nodes = Nodes()
    nodes.set_node(node("n1"))
    before = nodes.requested.shape, nodes.allocatable.shape

    nodes.add_pod("n1", pod_requesting("a", **{f"example.com/x{i}": "1" for i in range(1000)}))

    assert before == (nodes.requested.shape, nodes.allocatable.shape)
    assert nodes.view(nodes.by_name(["n1"]).bit_length() - 1).requested("example.com/x7") == 1


def test_what_was_requested_counts_once_a_node_offers_it() -> None:
    """The request also counts while the last node that offered the resource is absent; an unused row is reused for another resource."""
    nodes, name = Nodes(), "example.com/x"
    first, second = nodes.set_node(node("n1")), nodes.set_node(node("n2"))
    shape = nodes.requested.shape

    def seen() -> tuple[tuple[int, int], ...]:
        return tuple((nodes.view(s).requested(name), nodes.view(s).allocatable(name)) for s in (first, second))

    nodes.add_pod("n1", pod_requesting("a", **{name: "2"}))
    assert ((2, 0), (0, 0)) == seen()
    nodes.set_node(node("n2", **{name: "4"}))
    nodes.add_pod("n2", pod_requesting("b", **{name: "3"}))
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
    """Pods may request it on a node that does not exist. A node that offers the resource is added all the same."""
    nodes, name = Nodes(), "example.com/x"
    pods = [pod_requesting(f"p{i}", **{name: str(2**53)}) for i in range(1025)]
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
    nodes = Nodes()
    slot = nodes.add_pod("n1", pod_requesting("a", cpu="1"))

    assert 0 == len(nodes) == nodes.present
    assert nodes.node(slot) is None
    with pytest.raises(LookupError):
        _ = nodes.view(slot).node

    assert slot == nodes.set_node(node("n1"))
    assert len(nodes) == 1
    assert nodes.view(slot).requested("cpu") == 1000


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
    nodes = Nodes()
    slot = nodes.set_node(node("n1"))
    nodes.add_pod("n1", pod_requesting("a", cpu="1"))
    position = nodes.position
    newer = pod_requesting("a", cpu="1")

    assert nodes.replace_pod("n1", newer)
    assert newer is nodes.pods(slot)["a"]
    assert position == nodes.position
    assert not nodes.replace_pod("n1", pod_requesting("a", cpu="2"))
    assert not nodes.replace_pod("n1", info("a", containers=ports("TCP/80")))
    assert not nodes.replace_pod("n1", pod_requesting("b", cpu="1"))
    assert not nodes.replace_pod("n9", pod_requesting("a", cpu="1"))
