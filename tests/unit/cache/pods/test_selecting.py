"""Node selectors for all nodes at once agree with the one-node rule."""

from __future__ import annotations

from typing import Any

from hypothesis import given, strategies as st

from scheduler.api.core_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from scheduler.api.node_affinity import selector_matches
from scheduler.cache.nodes.node_groups import matching_labels, matching_selector, matching_term
from scheduler.core import nodeset
from tests.unit.objects import cluster, node

NODES = [
    node("n1", labels={"zone": "a", "rank": "3"}),
    node("n2", labels={"zone": "b"}),
    node("n3", labels={"zone": "a", "rank": "x"}),
    node("n4"),
]


def requirements(keys: tuple[str, ...], values: tuple[str, ...]) -> Any:
    return st.lists(
        st.builds(
            NodeSelectorRequirement,
            key=st.sampled_from(keys),
            operator=st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near")),
            values=st.lists(st.sampled_from(values), max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple)


terms = st.builds(
    NodeSelectorTerm,
    match_expressions=requirements(("zone", "rank", "no key"), ("a", "b", "2", "3", "not ok")),
    match_fields=requirements(("metadata.name", "metadata.uid"), ("n1", "n2", "n9", "")),
)


@given(st.lists(terms, max_size=3).map(tuple))
def test_selectors(parts: tuple[NodeSelectorTerm, ...]) -> None:
    nodes = cluster(*NODES).nodes
    selector = NodeSelector(parts)
    expected = nodeset.of(
        slot
        for each in NODES
        if selector_matches(selector, each.metadata.name, each.metadata.labels)
        and (slot := nodes.slot(each.metadata.name)) is not None
    )

    assert expected == matching_selector(nodes, selector)


def test_only_present_nodes_match() -> None:
    seen = cluster(*NODES)
    seen.remove_node("n4")
    without_zone = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement("zone", "DoesNotExist"),))

    assert matching_term(seen.nodes, without_zone) == nodeset.EMPTY
    assert seen.nodes.present == matching_labels(seen.nodes, {})
    assert seen.nodes.by_name(["n1", "n3"]) == matching_labels(seen.nodes, {"zone": "a"})
