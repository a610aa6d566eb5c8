"""Nodes that come, change their labels and go, and rules over those labels: for laws over histories."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from scheduler.api.core_v1 import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from scheduler.api.meta import AnnotatedMetadata
from scheduler.api.selectors import LabelSelector, LabelSelectorRequirement
from scheduler.api.storage_v1 import TopologyLabelRequirement, TopologySelectorTerm
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.nodeset import NodeSet

NAMES = [f"n{at}" for at in range(4)]
Step = tuple[str, dict[str, str] | None]
"""A node's name and its labels from now on; None if it goes."""

labels = st.fixed_dictionaries({}, optional={"zone": st.sampled_from("ab"), "rank": st.sampled_from(["1", "5", "x"])})
node_steps = st.tuples(st.sampled_from(NAMES), st.integers(0, 4).flatmap(lambda at: labels if at else st.none()))


def take(nodes: Nodes, step: Step) -> None:
    """Do it. Every node carries its name as `host`."""
    name, wanted = step
    if wanted is None:
        nodes.remove_node(name)
    else:
        nodes.set_node(Node(metadata=AnnotatedMetadata(name=name, labels={"host": name, **wanted})))


def where(nodes: Nodes, admits: Callable[[Mapping[str, str]], bool]) -> NodeSet:
    """Return the nodes that the rule admits, evaluated one by one."""
    found = []
    for name in nodes.known_names():
        slot = nodes.slot(name)
        node = nodes.node(slot) if slot is not None else None
        if slot is not None and node is not None and admits(node.metadata.labels):
            found.append(slot)
    return nodeset.of(found)


_KEYS = st.sampled_from(["zone", "rank", "host"])
_VALUES = st.lists(st.sampled_from(["a", "b", "1", "4", "x", "n0", "n1", "n2", "bad value!"]), max_size=2).map(tuple)


_FOR_NODES = ["In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near"]
_expressions = st.lists(
    st.builds(NodeSelectorRequirement, _KEYS, st.sampled_from(_FOR_NODES), _VALUES), max_size=2
).map(tuple)
_fields = st.sampled_from(
    [
        (),
        (),
        (NodeSelectorRequirement("metadata.name", "In", ("n0",)),),
        (NodeSelectorRequirement("metadata.name", "Exists"),),
    ]
)
_on_hosts = st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map(
    lambda names: NodeSelectorTerm(match_expressions=(NodeSelectorRequirement("host", "In", tuple(names)),))
)
terms = _on_hosts | st.builds(NodeSelectorTerm, match_expressions=_expressions, match_fields=_fields)
affinities = st.one_of(
    st.none(),
    _on_hosts.map(lambda term: NodeSelector((term,))),
    _on_hosts.map(lambda term: NodeSelector((term,))),
    st.builds(NodeSelector, st.lists(terms, max_size=2).map(tuple)),
)
"""What a volume may require."""


def _selector(exact: dict[str, str], more: tuple[tuple[str, str, tuple[str, ...]], ...]) -> LabelSelector:
    kept = tuple(
        LabelSelectorRequirement(key, operator, values if operator in {"In", "NotIn"} else ())
        for key, operator, values in more
        if values or operator not in {"In", "NotIn"}
    )
    return LabelSelector(match_labels=exact, match_expressions=kept)


selectors = st.none() | st.builds(
    _selector,
    st.dictionaries(_KEYS, st.sampled_from(["a", "1", "n0", "bad value!"]), max_size=1),
    st.lists(st.tuples(_KEYS, st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]), _VALUES), max_size=2).map(
        tuple
    ),
)
"""A capacity object's topology, as decoding lets it pass."""

topologies = st.lists(
    st.builds(
        TopologySelectorTerm, st.lists(st.builds(TopologyLabelRequirement, _KEYS, _VALUES), max_size=2).map(tuple)
    ),
    max_size=2,
)
"""A class's allowedTopologies."""
