"""Node selectors for all nodes at once: the set form of `scheduler.core.placement` (docs/spec/core.md §5.4)."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.cache.nodes import Nodes
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.placement import NODE_NAME_FIELD, is_empty, term_problem
from scheduler.core.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm


def matching_labels(nodes: Nodes, wanted: Mapping[str, str]) -> NodeSet:
    """Present nodes with all of these labels: `nodeSelector`."""
    out = nodes.present
    for key, value in wanted.items():
        out &= nodes.labels.equal(key, value)
    return out


def matching_selector(nodes: Nodes, selector: NodeSelector) -> NodeSet:
    """Present nodes that any of the terms matches. Cost grows with the expressions and their values, not with nodes."""
    out = EMPTY
    for term in selector.node_selector_terms:
        out |= matching_term(nodes, term)
    return out


def matching_term(nodes: Nodes, term: NodeSelectorTerm) -> NodeSet:
    """Present nodes for which all expressions hold; none for an empty or broken term."""
    if is_empty(term) or term_problem(term):
        return EMPTY
    out = nodes.present
    for requirement in term.match_expressions:
        out &= nodes.labels.matching(requirement, nodes.present)
    for requirement in term.match_fields:
        out &= _field(nodes, requirement)
    return out


def _field(nodes: Nodes, requirement: NodeSelectorRequirement) -> NodeSet:
    named = nodes.by_name(requirement.values) if requirement.key == NODE_NAME_FIELD else EMPTY
    return named if requirement.operator == "In" else nodes.present & ~named
