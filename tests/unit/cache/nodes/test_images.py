"""Images by name: docs/spec/core.md §2.2, row 87."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.api import core_v1 as node_module
from scheduler.api.core_v1 import ContainerImage, Node
from scheduler.api.decode import ObjectDecoder, from_manifest
from scheduler.cache.nodes.images import ImageIndex
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.caching import Interner
from tests.examples import examples

APP = {"names": ["app@sha256:1", "app:1"], "sizeBytes": 7}


def having(name: str, *images: dict[str, Any]) -> Node:
    return from_manifest(Node, {"metadata": {"name": name}, "status": {"images": images}})


def seen(index: ImageIndex) -> dict[str, tuple[int, int]]:
    """Name → nodes and size."""
    return {name: (state.nodes, state.size_bytes) for name, state in index._states.items()}


def test_only_what_changed_is_news() -> None:
    nodes = Nodes()
    nodes.set_node(having("n1", APP))
    nodes.set_node(having("n2", APP))
    state = nodes.images.get("app:1")
    nodes.set_node(having("n1", APP))
    nodes.set_node(having("n1", {"names": ["other:1"], "sizeBytes": 3}, APP))
    nodes.remove_node("n3")

    assert state is nodes.images.get("app:1")

    nodes.set_node(having("n3", APP))

    assert state is not nodes.images.get("app:1")


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

    assert nodes.images._on[0] is third.status.images  # a heartbeat's own, or both would be kept


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
        for node, images in list(self.nodes.items()):
            self.put(node, images)


images = st.lists(
    st.builds(
        ContainerImage,
        names=st.none() | st.lists(st.sampled_from("abcd"), max_size=3).map(tuple),
        size_bytes=st.integers(1, 4),
    ),
    max_size=3,
).map(tuple)
steps = st.tuples(
    st.sampled_from(["put", "put", "remove", "put everywhere", "remove everywhere", "remove elsewhere"]),
    st.sampled_from((0, 1, 24)),
    images,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(steps, max_size=30))
def test_the_index_equals_upstreams_after_every_heartbeat(
    history: list[tuple[str, int, tuple[ContainerImage, ...]]],
) -> None:
    """87: also if one node fewer has an image."""
    index, upstream = ImageIndex(), Upstream()
    for what, node, having_ in history:
        everywhere = what.endswith("where")
        for each in range(25) if everywhere else (node,):
            if what.startswith("put"):
                index.put(each, having_)
                upstream.put(each, having_)
            elif each != node or what != "remove elsewhere":
                index.remove(each)
                upstream.remove(each)
        upstream.heartbeats()
        assert seen(index) == {name: (nodeset.of(on), size) for name, (on, size) in upstream.states.items()}
    assert index._on == {node: having_ for node, having_ in upstream.nodes.items() if having_}
