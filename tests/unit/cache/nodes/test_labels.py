"""The label index answers like the one-node rule."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from scheduler.api.core_v1 import NodeSelectorRequirement
from scheduler.api.selectors import requirement_matches
from scheduler.cache.nodes.label_index import LabelIndex
from scheduler.core import nodeset

KEYS = ("zone", "rank")
VALUES = ("a", "b", "3", "10", "1_0", "")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near")

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


def test_reading() -> None:
    """Sets by label, by key, by value."""
    index = LabelIndex()
    index.add(0, {"zone": "a"})
    index.add(5, {"zone": "b", "rank": "1"})

    assert nodeset.of([0]) == index.equal("zone", "a")
    assert nodeset.of([0, 5]) == index.having("zone")
    assert {"a": nodeset.of([0]), "b": nodeset.of([5])} == index.values("zone")
    assert index.equal("zone", "c") == nodeset.EMPTY
    assert index.having("none") == nodeset.EMPTY
    assert index.values("none") == {}


def test_a_key_that_nobody_has_leaves_nothing_behind() -> None:
    """Labels that come and go do not pile up."""
    index = LabelIndex()
    index.add(1, {"a": "x", "b": "y"})
    index.add(2, {"a": "z"})
    index.remove(1, {"a": "x", "b": "y"})
    index.remove(2, {"a": "z"})

    assert (index._values, index._having) == ({}, {})


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
    """Set form and one-node form of every operator agree, broken requirements included."""
    index = LabelIndex()
    for slot, of_node in enumerate(nodes):
        index.add(slot, of_node)
    universe = nodeset.of(range(0, len(nodes), 2))
    r = requirement
    expected = nodeset.of(
        slot for slot in nodeset.each(universe) if requirement_matches(r.key, r.operator, r.values, nodes[slot])
    )

    assert expected == index.matching(requirement, universe)


@pytest.mark.parametrize("operator", ["NotIn", "DoesNotExist"])
def test_negation_stays_in_the_universe(operator: str) -> None:
    """Slots without a node never match."""
    values = ("a",) if operator == "NotIn" else ()

    assert LabelIndex().matching(NodeSelectorRequirement("zone", operator, values), 0b101) == 0b101
