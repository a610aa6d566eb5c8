"""Sets of nodes that label rules describe: docs/spec/volumes.md §3.4, §3.5, row M25."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from scheduler.cache.nodes.node_groups import (
    NodeGroup,
    NodeGroups,
    Where,
    affinity_problem,
    where_affinity,
    where_selector,
    where_topologies,
)
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.changes import ChangeLog
from scheduler.core.nodeset import NodeSet
from tests.support.volumebuilders import a_class, a_pv
from tests.unit.cache.nodes.labelled_nodes import affinities, node_steps, selectors, take, topologies, where
from tests.unit.wakeups.literal_volumes import affinity_admits, selector_admits, topologies_admit

N1, N2, BARE = "n1", "n2", "bare"


def three_nodes() -> Nodes:
    """n1 in zone a of rank 5, n2 in zone b of rank 7, and one without labels of its own."""
    nodes = Nodes(capacity=2)
    take(nodes, (N1, {"zone": "a", "rank": "5"}))
    take(nodes, (N2, {"zone": "b", "rank": "7"}))
    take(nodes, (BARE, {}))
    return nodes


def found(rule: Where) -> set[str]:
    """The nodes of a rule, by name."""
    nodes = three_nodes()
    return {nodes.name(slot) for slot in nodeset.each(NodeGroups(nodes).acquire(rule).nodes)}


def affinity(*terms: dict[str, Any]) -> Any:
    node_affinity = {"required": {"nodeSelectorTerms": list(terms)}}
    volume = a_pv("v").set({"spec": {"nodeAffinity": node_affinity}}).typed()
    assert volume.spec.node_affinity is not None
    return volume.spec.node_affinity.required


def labels(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


FIELDS = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
WRONG_FIELDS = {"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("required", "expected"),
    [
        pytest.param(None, {N1, N2, BARE}, id="M25 nothing required"),
        pytest.param(affinity(), set(), id="M25 no terms"),
        pytest.param(affinity({}), set(), id="M25 an empty term"),
        pytest.param(affinity({}, labels("zone", "In", "a")), {N1}, id="an empty term and another"),
        pytest.param(affinity(FIELDS), {N1, N2, BARE}, id="M25 Q-2 a term of fields alone holds everywhere"),
        pytest.param(affinity(FIELDS | labels("zone", "In", "b")), {N2}, id="Q-2 fields beside labels are ignored"),
        pytest.param(affinity(WRONG_FIELDS), set(), id="fields that cannot be parsed"),
        pytest.param(
            affinity(WRONG_FIELDS | labels("zone", "In", "b")), set(), id="spoil the labels of their term"
        ),
        pytest.param(affinity(labels("zone", "In", "a", "c")), {N1}, id="one of several values"),
        pytest.param(affinity(labels("zone", "In", "a"), labels("zone", "In", "b")), {N1, N2}, id="either term"),
        pytest.param(
            affinity(
                {"matchExpressions": [*labels("zone", "In", "a", "b")["matchExpressions"],
                                      *labels("rank", "In", "7")["matchExpressions"]]}
            ),
            {N2},
            id="every expression of a term",
        ),
        pytest.param(affinity(labels("zone", "NotIn", "a")), {N2, BARE}, id="M25 NotIn without the label"),
        pytest.param(affinity(labels("zone", "Exists")), {N1, N2}, id="Exists"),
        pytest.param(affinity(labels("zone", "DoesNotExist")), {BARE}, id="DoesNotExist"),
        pytest.param(affinity(labels("rank", "Gt", "5")), {N2}, id="M25 Gt"),
        pytest.param(affinity(labels("rank", "Lt", "7")), {N1}, id="M25 Lt"),
        pytest.param(affinity(labels("zone", "Gt", "5")), set(), id="M25 Gt of a label that is no number"),
        pytest.param(
            affinity(labels("rank", "Gt", "x"), labels("zone", "In", "b")), {N2}, id="M25 a bad operand, a good term"
        ),
        pytest.param(affinity(labels("rank", "Gt", "x")), set(), id="a bad operand alone"),
        pytest.param(affinity(labels("zone", "Near", "a")), set(), id="an operator that does not exist"),
        pytest.param(affinity(labels("zone", "In")), set(), id="In without values"),
        pytest.param(affinity(labels("zone", "NotIn", "bad value!")), set(), id="a value that no label can have"),
        pytest.param(affinity(labels("zone", "Exists", "a")), set(), id="Exists with values"),
    ],
)  # fmt: skip
def test_affinity_of_a_volume(required: Any, expected: set[str]) -> None:
    assert expected == found(where_affinity(required))


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


def allowed(*terms: dict[str, list[str]]) -> Any:
    listed = [{"matchLabelExpressions": [{"key": k, "values": v} for k, v in term.items()]} for term in terms]
    return a_class("D").set({"allowedTopologies": listed}).typed().allowed_topologies


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param(allowed(), {N1, N2, BARE}, id="no terms are everywhere"),
        pytest.param(allowed({}), set(), id="a term without expressions is nowhere"),
        pytest.param(allowed({}, {"zone": ["a"]}), {N1}, id="beside another it is nothing"),
        pytest.param(allowed({"zone": ["a", "c"]}), {N1}, id="one of several values"),
        pytest.param(allowed({"zone": ["a"]}, {"rank": ["7"]}), {N1, N2}, id="either term"),
        pytest.param(allowed({"zone": ["a", "b"], "rank": ["7"]}), {N2}, id="every expression"),
        pytest.param(allowed({"zone": []}), set(), id="no values"),
        pytest.param(allowed({"zone": ["a", "bad value!"]}), set(), id="a value that no label can have"),
        pytest.param(allowed({"zone": ["a"], "bad key!": ["x"]}), set(), id="a key that no label can have"),
    ],
)
def test_allowed_topologies_of_a_class(terms: Any, expected: set[str]) -> None:
    assert expected == found(where_topologies(terms))


def test_equal_rules_share_a_group() -> None:
    """Volumes of one host are one rule, whatever they are called in; the last user takes it along."""
    groups = NodeGroups(three_nodes())
    first, second = (groups.acquire(where_affinity(affinity(labels("zone", "In", "a")))) for _ in range(2))
    groups.release(first)

    assert (first, 1) == (second, len(groups))
    assert {first} == groups.of(first.slot)

    groups.release(second)

    assert 0 == len(groups)
    assert set() == groups.of(first.slot)


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
    """Groups, what each should hold, and a picture of them that follows the log alone."""

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
        """Everything is as if it were asked of each node anew."""
        self.groups.catch_up()
        for group, admits in self.held:
            assert where(self.nodes, admits) == group.nodes
            slots = list(nodeset.each(group.nodes))
            assert group.slot == (slots[0] if len(slots) == 1 else -1)
        live = {group for group, _ in self.held}
        for slot in range(self.nodes.capacity):
            assert self.groups.of(slot) == {group for group in live if group.nodes >> slot & 1}
        assert len(self.groups) == len(live)
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
        """Nothing stays behind of rules that nobody uses."""
        for group, _ in self.held:
            self.groups.release(group)
        groups = self.groups
        assert ({}, {}, set(), {}) == (groups._groups, groups._by_label, groups._unindexed, groups._members)


@given(history=_history, log_max=st.sampled_from([1, 3, 65_536]))
def test_groups_are_as_good_as_asking_every_node(history: list[tuple[str, Any]], log_max: int) -> None:
    """Whatever rules and nodes came, changed, went and came again elsewhere; also if the logs were overrun."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ChangeLog, "log_max", log_max)
        world = Watched()
        for what, more in history:
            world.take(what, more)
        world.look()
        world.close()
