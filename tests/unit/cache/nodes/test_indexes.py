"""Indexes of nodes by feature, label and priority, and multisets per node."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.api.core_v1 import Node, NodeSelectorRequirement
from scheduler.api.decode import from_manifest
from scheduler.api.selectors import requirement_matches
from scheduler.cache.nodes.label_index import LabelIndex
from scheduler.cache.nodes.node_multiset import NodeMultiset
from scheduler.cache.nodes.nodes import Nodes, Priorities
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
