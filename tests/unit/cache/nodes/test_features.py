"""Declared features by name, as nodes come, change and go: docs/spec/core.md §5.11."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from scheduler.api.core_v1 import Node
from scheduler.api.decode import from_manifest
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from tests.examples import examples
from tests.unit.objects import info

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
    """From the node objects alone, after every step; ghosts and slots used again included."""
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
        assert rebuilt == nodes.features._nodes
        assert [rebuilt.get(f, 0) for f in FEATURES] == [nodes.features.declaring(f) for f in FEATURES]
