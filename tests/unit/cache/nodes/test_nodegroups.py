"""Sets of nodes that label rules describe (docs/spec/volumes.md §3.4, §3.5, row M25), and node selectors for all nodes at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from scheduler.api.core_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from scheduler.api.node_affinity import selector_matches
from scheduler.cache.nodes.node_groups import (
    NodeGroup,
    NodeGroups,
    affinity_problem,
    matching_labels,
    matching_selector,
    matching_term,
    where_affinity,
    where_selector,
    where_topologies,
)
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.changes import ChangeLog
from scheduler.core.nodeset import NodeSet
from tests.support.volumebuilders import a_pv
from tests.unit.cache.nodes.labelled_nodes import affinities, node_steps, selectors, take, topologies, where
from tests.unit.cache.picture import leftovers
from tests.unit.objects import cluster, node
from tests.unit.wakeups.literal_volumes import affinity_admits, selector_admits, topologies_admit


def affinity(*terms: dict[str, Any]) -> Any:
    node_affinity = {"required": {"nodeSelectorTerms": list(terms)}}
    volume = a_pv("v").set({"spec": {"nodeAffinity": node_affinity}}).typed()
    assert volume.spec.node_affinity is not None
    return volume.spec.node_affinity.required


def labels(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("required", "problem"),
    [
        pytest.param(None, "", id="nothing required"),
        pytest.param(affinity(labels("zone", "In", "a"), {}), "", id="all can be parsed"),
        pytest.param(
            affinity(labels("zone", "In", "a"), labels("rank", "Gt", "x")),
            "spec.nodeAffinity.required.nodeSelectorTerms[1].matchExpressions[0].values: "
            "exactly one integer is required for Gt and Lt",
            id="the second cannot",
        ),
    ],
)
def test_the_first_term_that_cannot_be_parsed(required: Any, problem: str) -> None:
    assert problem == affinity_problem(required)


_rules = st.one_of(
    affinities.map(lambda required: (where_affinity(required), lambda have: affinity_admits(required, have))),
    selectors.map(lambda wanted: (where_selector(wanted), lambda have: selector_admits(wanted, have))),
    topologies.map(lambda terms: (where_topologies(terms), lambda have: topologies_admit(terms, have))),
)
_history = st.lists(
    st.one_of(
        st.tuples(st.just("node"), node_steps),
        st.tuples(st.just("acquire"), _rules),
        st.tuples(st.just("release"), st.integers(0, 9)),
        st.tuples(st.just("look"), st.none()),
    ),
    max_size=40,
)


class Watched:
    """Groups, what each should hold, and a copy that follows the log alone."""

    def __init__(self) -> None:
        self.nodes = Nodes(capacity=1)
        self.groups = NodeGroups(self.nodes)
        self.held: list[tuple[NodeGroup, Callable[[Mapping[str, str]], bool]]] = []
        self.seen: dict[NodeGroup, NodeSet] = {}
        self.position = self.groups.position

    def take(self, what: str, more: Any) -> None:
        if what == "node":
            take(self.nodes, more)
        elif what == "acquire":
            rule, admits = more
            self.look()
            self.held.append((self.groups.acquire(rule), admits))
        elif what == "release" and self.held:
            self.groups.release(self.held.pop(more % len(self.held))[0])
        elif what == "look":
            self.look()

    def look(self) -> None:
        """Compare all groups with an evaluation of each node."""
        self.groups.catch_up()
        for group, admits in self.held:
            assert where(self.nodes, admits) == group.nodes
            slots = list(nodeset.each(group.nodes))
            assert group.slot == (slots[0] if len(slots) == 1 else -1)
        live = {group for group, _ in self.held}
        for slot in range(self.nodes.capacity):
            assert self.groups.of(slot) == {group for group in live if group.nodes >> slot & 1}
        assert len(self.groups._groups) == len(live)
        self.follow(live)

    def follow(self, live: set[NodeGroup]) -> None:
        """Each entry of the log is a node that came or went; None if too much happened."""
        changes = self.groups.changed_since(self.position)
        if changes is not None:
            for group, slot in changes:
                if group in self.seen:
                    self.seen[group] ^= 1 << slot
            assert {group: nodes for group, nodes in self.seen.items() if group in live} == {
                group: group.nodes for group in live if group in self.seen
            }
        self.seen = {group: group.nodes for group in live}
        self.position = self.groups.position

    def close(self) -> None:
        """Check that released rules leave nothing in the indexes."""
        for group, _ in self.held:
            self.groups.release(group)
        assert leftovers(self.groups) == {}


@given(history=_history, log_max=st.sampled_from([1, 3, 65_536]))
def test_groups_equal_an_evaluation_of_each_node(history: list[tuple[str, Any]], log_max: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ChangeLog, "log_max", log_max)
        world = Watched()
        for what, more in history:
            world.take(what, more)
        world.look()
        world.close()


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
