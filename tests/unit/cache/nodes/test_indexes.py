"""Node slots and columns, indexes of nodes by feature, label, priority and image (docs/spec/core.md §2.2, row 87), and multisets per node."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.api import core_v1 as node_module
from scheduler.api.core_v1 import ContainerImage, Node, NodeSelectorRequirement
from scheduler.api.decode import ObjectDecoder, from_manifest
from scheduler.api.selectors import requirement_matches
from scheduler.cache.nodes.images import ImageIndex
from scheduler.cache.nodes.indexes import LabelIndex, NodeMultiset
from scheduler.cache.nodes.nodes import Nodes, Priorities
from scheduler.core import nodeset
from scheduler.core.caching import Interner
from tests.examples import examples
from tests.unit.objects import info, node, pod_requesting, ports

NAMES = ("n1", "n2", "n3")
FEATURES = ("A", "B", "C")

steps = st.tuples(
    st.sampled_from(["set", "set", "remove", "pod comes", "pod goes"]),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(FEATURES), max_size=3),
)


def declaring(name: str, *features: str) -> Node:
    return from_manifest(Node, {"metadata": {"name": name}, "status": {"declaredFeatures": features}})


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(steps, max_size=30))
def test_the_index_equals_a_rebuild(history: list[tuple[str, str, list[str]]]) -> None:
    nodes = Nodes(capacity=1)
    for what, name, features in history:
        match what:
            case "set":
                nodes.set_node(declaring(name, *features))
            case "remove":
                nodes.remove_node(name)
            case "pod comes":
                nodes.remove_pod(name, name)
                nodes.add_pod(name, info(name, on=name))
            case "pod goes":
                nodes.remove_pod(name, name)
        rebuilt: dict[str, int] = {}
        for slot in nodeset.each(nodes.present):
            node = nodes.node(slot)
            assert node is not None
            for feature in node.status.declared_features:
                rebuilt[feature] = rebuilt.get(feature, 0) | 1 << slot
        assert rebuilt == nodes.features._having
        assert [rebuilt.get(f, 0) for f in FEATURES] == [nodes.features.having(f) for f in FEATURES]


KEYS = ("zone", "rank")
VALUES = ("a", "b", "3", "10", "1_0", "")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near")

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


@given(
    st.lists(labels, max_size=6),
    st.builds(
        NodeSelectorRequirement,
        key=st.sampled_from((*KEYS, "none")),
        operator=st.sampled_from(OPERATORS),
        values=st.lists(st.sampled_from(VALUES), max_size=3).map(tuple),
    ),
)
def test_matching_is_the_rule_for_each_node(nodes: list[dict[str, str]], requirement: NodeSelectorRequirement) -> None:
    index = LabelIndex()
    for slot, of_node in enumerate(nodes):
        index.add(slot, of_node)
    universe = nodeset.of(range(0, len(nodes), 2))
    r = requirement
    expected = nodeset.of(
        slot for slot in nodeset.each(universe) if requirement_matches(r.key, r.operator, r.values, nodes[slot])
    )

    assert expected == index.matching(requirement, universe)


pods = st.tuples(st.integers(0, 200), st.sampled_from((-(2**31), -1, 0, 0, 5, 2**31 - 1)))


@given(history=st.lists(st.tuples(st.booleans(), pods)))
def test_what_it_holds_is_what_came_and_did_not_go(history: list[tuple[bool, tuple[int, int]]]) -> None:
    seen, there = Priorities(), Counter[tuple[int, int]]()
    for comes, (slot, priority) in history:
        if comes:
            seen.add(slot, priority)
            there[slot, priority] += 1
        elif there[slot, priority]:
            seen.remove(slot, priority)
            there[slot, priority] -= 1
    held = +there

    for below in (-(2**31), 0, 1, 5, 2**31):
        assert seen.below(below) == nodeset.of(slot for slot, priority in held if priority < below)
    assert {(slot, value): n for value, counts in seen.snapshot().items() for slot, n in counts.items()} == held


histories = st.lists(
    st.tuples(st.sampled_from(["add", "add", "remove", "read"]), st.integers(0, 40), st.sampled_from("ab")),
    max_size=200,
)


@given(histories)
def test_it_agrees_with_a_counter(history: list[tuple[str, int, str]]) -> None:
    seen, there = NodeMultiset[str](), Counter[tuple[int, str]]()
    for what, slot, thing in history:
        before = there[slot, thing]
        if what == "add":
            assert seen.add(slot, thing) is (before == 0)
            there[slot, thing] += 1
        elif what == "read":
            assert seen.nodes(thing) == nodeset.of(at for at, held in +there if held == thing)
        elif before:
            assert seen.remove(slot, thing) is (before == 1)
            there[slot, thing] -= 1
        assert seen.count(slot, thing) == there[slot, thing]
    held = +there

    assert {(at, thing): n for thing, slots in seen.snapshot().items() for at, n in slots.items()} == held
    assert set(seen) == {thing for _, thing in held}
    for thing in "ab":
        assert dict(seen.slots(thing)) == {at: n for (at, each), n in held.items() if each == thing}
        assert seen.nodes(thing) == nodeset.of(seen.slots(thing))


@pytest.mark.parametrize(("slot", "thing"), [(0, "b"), (1, "a")])
def test_what_is_not_there_cannot_go(slot: int, thing: str) -> None:
    seen: NodeMultiset[Any] = NodeMultiset()
    seen.add(0, "a")
    with pytest.raises(KeyError):
        seen.remove(slot, thing)

    assert seen.snapshot() == {"a": {0: 1}}


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


APP = {"names": ["app@sha256:1", "app:1"], "sizeBytes": 7}


def having(name: str, *images: dict[str, Any]) -> Node:
    return from_manifest(Node, {"metadata": {"name": name}, "status": {"images": images}})


def seen(index: ImageIndex) -> dict[str, tuple[int, int]]:
    """Name → nodes and size."""
    return {name: (state.nodes, state.size_bytes) for name, state in index.states.items()}


def test_only_what_changed_is_news() -> None:
    nodes = Nodes()
    nodes.set_node(having("n1", APP))
    nodes.set_node(having("n2", APP))
    state = nodes.images.states.get("app:1")
    nodes.set_node(having("n1", APP))
    nodes.set_node(having("n1", {"names": ["other:1"], "sizeBytes": 3}, APP))
    nodes.remove_node("n3")

    assert state is nodes.images.states.get("app:1")

    nodes.set_node(having("n3", APP))

    assert state is not nodes.images.states.get("app:1")


@pytest.mark.parametrize(
    ("images", "names"),
    [
        pytest.param(b'[{"names": null, "sizeBytes": 5}]', set(), id="an API server writes no names as null"),
        pytest.param(b'[{"sizeBytes": 5}, {"names": ["a"]}]', {"a"}, id="no names, and no size"),
        pytest.param(b"null", set(), id="no images"),
        pytest.param(b'[{"names": ["a", "b"]}, {"names": ["a"]}]', {"a", "b"}, id="one name twice"),
    ],
)
def test_what_nodes_report(images: bytes, names: set[str]) -> None:
    nodes = Nodes()
    node = ObjectDecoder("Node", Node).decode(b'{"metadata": {"name": "n"}, "status": {"images": ' + images + b"}}")
    assert isinstance(node, Node)
    nodes.set_node(node)

    assert names == set(seen(nodes.images))

    nodes.remove_node("n")

    assert seen(nodes.images) == {}


def test_nodes_share_equal_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "_images", Interner(2))
    first, second = having("n1", APP), having("n2", APP)
    having("n3", {"names": ["x"]}, {"names": ["y"]})
    third, fourth = having("n1", APP), having("n4", APP)

    assert first.status.images[0] is second.status.images[0]
    assert third.status.images == first.status.images
    assert third.status.images[0] is not first.status.images[0]
    assert third.status.images[0] is fourth.status.images[0]

    nodes = Nodes()
    nodes.set_node(first)
    nodes.set_node(third)

    assert nodes.images.on[0] is third.status.images  # a heartbeat's own, or both would be kept


class Upstream:
    """kube-scheduler's map: every update of a node takes its images out and puts them in again."""

    def __init__(self) -> None:
        self.nodes: dict[int, tuple[ContainerImage, ...]] = {}
        self.states: dict[str, tuple[set[int], int]] = {}

    def put(self, node: int, images: tuple[ContainerImage, ...]) -> None:
        self.remove(node)
        self.nodes[node] = images
        for image in images:
            for name in image.names or ():
                self.states.setdefault(name, (set(), image.size_bytes))[0].add(node)

    def remove(self, node: int) -> None:
        for image in self.nodes.pop(node, ()):
            for name in image.names or ():
                if name in self.states:
                    self.states[name][0].discard(node)
                    if not self.states[name][0]:
                        del self.states[name]

    def heartbeats(self) -> None:
        for slot, images in list(self.nodes.items()):
            self.put(slot, images)


images = st.lists(
    st.builds(
        ContainerImage,
        names=st.none() | st.lists(st.sampled_from("abcd"), max_size=3).map(tuple),
        size_bytes=st.integers(1, 4),
    ),
    max_size=3,
).map(tuple)
image_steps = st.tuples(
    st.sampled_from(["put", "put", "remove", "put everywhere", "remove everywhere", "remove elsewhere"]),
    st.sampled_from((0, 1, 24)),
    images,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(image_steps, max_size=30))
def test_the_index_equals_upstreams_after_every_heartbeat(
    history: list[tuple[str, int, tuple[ContainerImage, ...]]],
) -> None:
    """87: also if one node fewer has an image."""
    index, upstream = ImageIndex(), Upstream()
    for what, slot, having_ in history:
        everywhere = what.endswith("where")
        for each in range(25) if everywhere else (slot,):
            if what.startswith("put"):
                index.put(each, having_)
                upstream.put(each, having_)
            elif each != slot or what != "remove elsewhere":
                index.put(each, ())
                upstream.remove(each)
        upstream.heartbeats()
        assert seen(index) == {name: (nodeset.of(on), size) for name, (on, size) in upstream.states.items()}
    assert index.on == {slot: having_ for slot, having_ in upstream.nodes.items() if having_}
